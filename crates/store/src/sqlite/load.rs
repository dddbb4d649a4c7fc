//! Loads what operations need. Rows that are already in memory are newer than the database's and
//! stay; searches ask the database, so what was decided before must have been written by then.

mod kinds;
mod scopes;

use std::collections::BTreeSet;

use roundel_core::{
    GateId, KeyId, Lane, MailId, Name, Need, OfferId, Rows, RunId, Taken, Timestamp, WaitId,
    WaitRow, WorkerId, limits,
};
use rusqlite::{Connection, OptionalExtension, Result, Statement};

use super::batch::keep;
use super::columns::{self, number, run_columns};
use super::due::Due;
use super::facts;
use kinds::is_list;
pub(super) use kinds::is_search;
use scopes::Scopes;

const LANES: &str = "SELECT namespace, workflow, version FROM roundel_lane ORDER BY id";
const RUN: &str = concat!("SELECT ", run_columns!(), " FROM roundel_run WHERE id = ?1");
const KEY: &str = "SELECT run, digest, sent FROM roundel_key \
     WHERE namespace = ?1 AND kind = ?2 AND key = ?3";
const GATE: &str = "SELECT waiters, offers FROM roundel_gate WHERE namespace = ?1 AND name = ?2";
const WORKER: &str =
    "SELECT id, name, started_at, seen_at, suspect, lanes FROM roundel_worker WHERE id = ?1";
const UNSEEN: &str = "SELECT id FROM roundel_worker WHERE seen_at < ?1 ORDER BY id LIMIT ?2";
const STATE: &str = "SELECT version, value FROM roundel_state WHERE run = ?1";
const WAITS: &str = "SELECT run, name, call, place, taken_mail, taken_offer FROM roundel_wait \
     WHERE run = ?1 AND name = ?2";
const ALL_WAITS: &str = "SELECT run, name, call, place, taken_mail, taken_offer \
     FROM roundel_wait WHERE run = ?1";
const WAITERS: &str = "SELECT run, name, call, place, taken_mail, taken_offer FROM roundel_wait \
     WHERE namespace = ?1 AND name = ?2 AND place IS NOT NULL AND taken_mail IS NULL \
     AND taken_offer IS NULL ORDER BY place LIMIT ?3";
const MAIL: &str = "SELECT * FROM (SELECT run, name, number, execution, call, body, at, policy, \
     expires_at, parked_at FROM roundel_mail \
     WHERE run = ?1 AND name = ?2 AND expires_at IS NULL AND parked_at IS NULL \
     ORDER BY number LIMIT ?3) UNION ALL \
     SELECT run, name, number, execution, call, body, at, policy, expires_at, parked_at \
     FROM roundel_mail WHERE run = ?1 AND name = ?2 AND expires_at IS NOT NULL \
     AND parked_at IS NULL";
const UNREAD: &str = "SELECT run, name, number, execution, call, body, at, policy, expires_at, \
     parked_at FROM roundel_mail WHERE run = ?1 AND name > ''";
const ONE_MAIL: &str = "SELECT run, name, number, execution, call, body, at, \
     policy, expires_at, parked_at FROM roundel_mail \
     WHERE run = ?1 AND name = ?2 AND number = ?3";
const OFFERS: &str = "SELECT place, payload, taken_by, at FROM roundel_offer \
     WHERE namespace = ?1 AND name = ?2 AND taken_by IS NULL ORDER BY place LIMIT ?3";
const ONE_OFFER: &str = "SELECT place, payload, taken_by, at FROM roundel_offer \
     WHERE namespace = ?1 AND name = ?2 AND place = ?3";
const WATCHES: &str = "SELECT watched, watcher, execution, call FROM roundel_watch \
     WHERE watched = ?1";
/// The run's next child.
const CHILD: &str = "SELECT id FROM roundel_run INDEXED BY roundel_run_parent \
     WHERE parent_run = ?1 AND id > ?2 ORDER BY id LIMIT 1";

/// No mailbox is longer.
const ALL: i64 = i64::MAX;

/// The statements that load, of one connection.
pub(super) struct Loads<'c> {
    lanes: Statement<'c>,
    run: Statement<'c>,
    key: Statement<'c>,
    gate: Statement<'c>,
    worker: Statement<'c>,
    state: Statement<'c>,
    waits: Statement<'c>,
    all_waits: Statement<'c>,
    waiters: Statement<'c>,
    mail: Statement<'c>,
    one_mail: Statement<'c>,
    unread: Statement<'c>,
    offers: Statement<'c>,
    one_offer: Statement<'c>,
    watches: Statement<'c>,
    unseen: Statement<'c>,
    child: Statement<'c>,
    scopes: Scopes<'c>,
    facts: facts::Loads<'c>,
    due: Due<'c>,
    /// Lists that were loaded whole in this transaction; later changes to them are in memory.
    whole: BTreeSet<Need>,
}

impl<'c> Loads<'c> {
    pub(super) fn new(connection: &'c Connection, now: Timestamp) -> Result<Loads<'c>> {
        let prepare = |sql| keep(connection, sql);
        Ok(Loads {
            lanes: prepare(LANES)?,
            run: prepare(RUN)?,
            key: prepare(KEY)?,
            gate: prepare(GATE)?,
            worker: prepare(WORKER)?,
            state: prepare(STATE)?,
            waits: prepare(WAITS)?,
            all_waits: prepare(ALL_WAITS)?,
            waiters: prepare(WAITERS)?,
            mail: prepare(MAIL)?,
            one_mail: prepare(ONE_MAIL)?,
            unread: prepare(UNREAD)?,
            offers: prepare(OFFERS)?,
            one_offer: prepare(ONE_OFFER)?,
            watches: prepare(WATCHES)?,
            unseen: prepare(UNSEEN)?,
            child: prepare(CHILD)?,
            scopes: Scopes::new(connection)?,
            facts: facts::Loads::new(connection)?,
            due: Due::new(connection, now)?,
            whole: BTreeSet::new(),
        })
    }

    /// Is this already in memory?
    pub(super) fn has(&self, need: &Need, rows: &Rows) -> bool {
        match need {
            Need::Key(key) => rows.keys.is_loaded(key),
            Need::Gate(gate) => rows.gates.is_loaded(gate),
            Need::Run(run) => rows.run_is_loaded(*run),
            Need::Worker(worker) => rows.workers.is_loaded(worker),
            Need::State(run) => rows.states.is_loaded(run),
            Need::Publication(id) => rows.publications.is_loaded(id),
            Need::Latch(id) => rows.latches.is_loaded(id),
            Need::Letter(id) => rows.mail.is_loaded(id),
            Need::Queue(id) => rows.queues.is_loaded(id),
            Need::Fact(id) => rows.facts.is_loaded(id),
            Need::Stream(id) => rows.streams.is_loaded(id),
            Need::Document(id) => rows.documents.is_loaded(id),
            // One process writes at a time.
            Need::Lock(_) => true,
            _ => is_list(need) && self.whole.contains(need),
        }
    }

    /// How often statements had to be prepared anew.
    #[cfg(test)]
    pub(super) fn prepared_again(&self) -> i32 {
        let again =
            |statement: &Statement<'_>| statement.get_status(rusqlite::StatementStatus::RePrepare);
        again(&self.mail) + again(&self.offers) + again(&self.waiters) + self.due.prepared_again()
    }

    /// All rows were dropped from memory.
    pub(super) fn forget(&mut self) {
        self.whole.clear();
    }

    /// Rows other than runs and projections were.
    pub(super) fn forget_rest(&mut self) {
        let kept = |need: &Need| matches!(need, Need::Projections(_));
        self.whole.retain(kept);
    }

    /// Does nobody wait for the end of this run, in the database or in memory? Then that is known
    /// from now on, and nothing had to be written first to learn it.
    pub(super) fn is_unwatched(&mut self, run: RunId, rows: &Rows) -> Result<bool> {
        let unwatched =
            rows.watchers_of(run).next().is_none() && !self.watches.exists([run.as_bytes()])?;
        if unwatched {
            self.whole.insert(Need::Watchers(run));
        }
        Ok(unwatched)
    }

    pub(super) fn lanes(&mut self) -> Result<Vec<Lane>> {
        self.lanes
            .query_map([], |row| columns::lane(row, 0))?
            .collect()
    }

    /// Loads what is needed and not there.
    pub(super) fn load(&mut self, need: Need, rows: &mut Rows, now: Timestamp) -> Result<()> {
        match &need {
            Need::Key(key) => self.key(key, rows)?,
            Need::Gate(gate) => self.gate(gate, rows)?,
            Need::Run(run) => self.run(*run, rows)?,
            Need::Worker(worker) => self.worker(*worker, rows)?,
            Need::State(run) => self.state(*run, rows)?,
            Need::Due(asked) => {
                let found = self.due.search(asked, now)?;
                self.found(found.runs, rows)?;
                rows.found_next = found.next;
                rows.looked_at = found.looked_at;
            }
            Need::Unseen(limit) => self.unseen(*limit, rows, now)?,
            Need::Subtree(run, limit) => {
                let found = self.subtree(*run, *limit)?;
                self.found(found, rows)?;
            }
            Need::Waits(run, name) => self.waits(*run, name, rows)?,
            Need::AllWaits(run, waiters) => self.all_waits(*run, *waiters, rows)?,
            Need::Letter(id) => self.one_mail(id, rows)?,
            Need::Unread(run) => self.unread(*run, rows)?,
            Need::Mail(run, name, limit) => {
                let limit = i64::try_from(*limit).unwrap_or(ALL);
                self.mail(*run, name.as_str(), limit, rows)?;
            }
            Need::Inbox(run) => self.inbox(*run, rows)?,
            Need::Offers(gate, limit) => self.offers(gate, *limit, rows)?,
            Need::Waiters(gate, limit) => self.waiters(gate, *limit, rows)?,
            Need::Watchers(run) => self.watchers(*run, rows)?,
            Need::Subscribers(namespace, topic) => {
                self.scopes.subscribers(namespace, topic, rows)?;
            }
            Need::Publication(id) => self.scopes.publication(*id, rows)?,
            Need::OpenPublications(namespace, topic) => {
                self.scopes
                    .open_publications((namespace, topic), rows, now)?;
            }
            Need::Heard(id) => {
                let heard = self.scopes.heard(*id)?;
                self.found(heard.into_iter().collect(), rows)?;
            }
            Need::Latch(id) => self.scopes.latch(*id, rows)?,
            Need::Queue(id) => self.scopes.queue(id, rows)?,
            Need::Permits(id) => self.scopes.permits(id, rows)?,
            Need::Fact(id) => self.facts.fact(id, rows)?,
            Need::Stream(id) => self.facts.stream(id, rows)?,
            Need::Document(id) => self.facts.document(id, rows)?,
            Need::Projections(namespace) => self.facts.projections(namespace, rows)?,
            Need::Tail(after, limit, _) => self.facts.tail(*after, *limit, rows)?,
            Need::Sweep(namespace, path, limit) => {
                self.facts.sweep((namespace, path), *limit, rows)?;
            }
            Need::Lock(_) => unreachable!("one process writes at a time"),
            Need::Audit(namespace) => self.scopes.last_audit(namespace, rows)?,
            Need::Scope(run, execution, call) => {
                let scope = (*run, *execution, *call);
                let found = self.scopes.scope(scope)?;
                found.iter().try_for_each(|run| self.run(*run, rows))?;
                rows.scopes.insert(scope, found);
            }
        }
        if is_list(&need) {
            self.whole.insert(need);
        }
        Ok(())
    }

    fn found(&mut self, found: Vec<RunId>, rows: &mut Rows) -> Result<()> {
        for run in &found {
            self.run(*run, rows)?;
        }
        rows.found = found;
        Ok(())
    }

    /// Workers that were not seen for long.
    fn unseen(&mut self, limit: usize, rows: &mut Rows, now: Timestamp) -> Result<()> {
        let most = i64::try_from(limit).unwrap_or(ALL);
        let values = (now.before(limits::UNSEEN).0, most);
        let found = self.unseen.query_map(values, |row| row.get(0))?;
        let found = found.map(|id| id.map(WorkerId::from_bytes));
        rows.unseen = found.collect::<Result<_>>()?;
        for worker in rows.unseen.clone() {
            self.worker(worker, rows)?;
        }
        Ok(())
    }

    /// The run and all below it, the lowest first, brothers by id.
    fn subtree(&mut self, run: RunId, limit: usize) -> Result<Vec<RunId>> {
        let mut found = Vec::new();
        let mut path: Vec<(RunId, Vec<u8>)> = vec![(run, Vec::new())];
        while let Some((parent, after)) = path.last() {
            if found.len() == limit {
                break;
            }
            let values = (parent.as_bytes(), after);
            let child = self.child.query_row(values, |row| columns::run_id(row, 0));
            if let Some(child) = child.optional()? {
                path.last_mut().expect("not empty").1 = child.as_bytes().to_vec();
                path.push((child, Vec::new()));
            } else {
                found.push(*parent);
                path.pop();
            }
        }
        Ok(found)
    }

    fn run(&mut self, run: RunId, rows: &mut Rows) -> Result<()> {
        if !rows.run_is_loaded(run) {
            let row = self
                .run
                .query_row([run.as_bytes()], columns::run)
                .optional()?;
            rows.load_run(run, row);
        }
        Ok(())
    }

    /// A run that may be woken and taken: it then hands over its inbox.
    fn run_to_wake(&mut self, run: RunId, rows: &mut Rows) -> Result<()> {
        self.run(run, rows)?;
        if rows.run(run).is_some_and(|row| row.matched > 0) && !self.has(&Need::Inbox(run), rows) {
            self.inbox(run, rows)?;
            self.whole.insert(Need::Inbox(run));
        }
        Ok(())
    }

    fn key(&mut self, key: &KeyId, rows: &mut Rows) -> Result<()> {
        let values = (key.namespace.as_str(), key.kind.as_str(), key.key.as_str());
        let row = self
            .key
            .query_row(values, |row| columns::key(row, 0))
            .optional()?;
        rows.keys.load(key.clone(), row);
        Ok(())
    }

    fn gate(&mut self, gate: &GateId, rows: &mut Rows) -> Result<()> {
        let values = (gate.namespace.as_str(), gate.name.as_str());
        let row = self
            .gate
            .query_row(values, |row| columns::gate(row, 0))
            .optional()?;
        rows.gates.load(gate.clone(), row);
        Ok(())
    }

    fn worker(&mut self, worker: WorkerId, rows: &mut Rows) -> Result<()> {
        let row = self
            .worker
            .query_row([worker.as_bytes()], columns::worker)
            .optional()?;
        rows.workers.load(worker, row);
        Ok(())
    }

    fn state(&mut self, run: RunId, rows: &mut Rows) -> Result<()> {
        let read = |row: &rusqlite::Row<'_>| columns::own_state(row, 0);
        let row = self.state.query_row([run.as_bytes()], read).optional()?;
        rows.states.load(run, row);
        Ok(())
    }

    fn waits(&mut self, run: RunId, name: &Name, rows: &mut Rows) -> Result<()> {
        let Some(namespace) = namespace(run, rows) else {
            return Ok(());
        };
        let waits = self
            .waits
            .query_map((run.as_bytes(), name.as_str()), columns::wait)?;
        for wait in waits {
            let (id, row) = wait?;
            rows.load_wait(&namespace, id, row);
        }
        Ok(())
    }

    fn waits_of(&mut self, run: RunId) -> Result<Vec<(WaitId, WaitRow)>> {
        self.all_waits
            .query_map([run.as_bytes()], columns::wait)?
            .collect()
    }

    fn all_waits(&mut self, run: RunId, waiters: usize, rows: &mut Rows) -> Result<()> {
        let Some(namespace) = namespace(run, rows) else {
            return Ok(());
        };
        let waits = self.waits_of(run)?;
        for (id, row) in &waits {
            rows.load_wait(&namespace, id.clone(), row.clone());
        }
        for (id, row) in &waits {
            let Some(Taken::Offer(place)) = row.taken else {
                continue;
            };
            self.one_offer(&namespace, &id.name, place, rows)?;
            let gate = GateId {
                namespace: namespace.clone(),
                name: id.name.clone(),
            };
            self.waiters(&gate, waiters, rows)?;
        }
        Ok(())
    }

    fn mail(&mut self, run: RunId, name: &str, limit: i64, rows: &mut Rows) -> Result<()> {
        let found = self
            .mail
            .query_map((run.as_bytes(), name, limit), columns::mail)?;
        for mail in found {
            let (id, row) = mail?;
            rows.mail.load(id, Some(row));
        }
        Ok(())
    }

    fn unread(&mut self, run: RunId, rows: &mut Rows) -> Result<()> {
        let found = self.unread.query_map([run.as_bytes()], columns::mail)?;
        found
            .into_iter()
            .try_for_each(|mail| mail.map(|(id, row)| rows.mail.load(id, Some(row))))
    }

    fn inbox(&mut self, run: RunId, rows: &mut Rows) -> Result<()> {
        let Some(namespace) = namespace(run, rows) else {
            return Ok(());
        };
        self.mail(run, "", ALL, rows)?;
        for (id, row) in self.waits_of(run)? {
            match row.taken {
                None => continue,
                Some(Taken::Offer(place)) => self.one_offer(&namespace, &id.name, place, rows)?,
                Some(Taken::Mail(number)) => {
                    let name = Some(id.name.clone());
                    self.one_mail(&MailId { run, name, number }, rows)?;
                }
            }
            rows.load_wait(&namespace, id, row);
        }
        Ok(())
    }

    fn one_mail(&mut self, id: &MailId, rows: &mut Rows) -> Result<()> {
        if rows.mail.is_loaded(id) {
            return Ok(());
        }
        let name = id.name.as_ref().map_or("", |name| name.as_str());
        let values = (id.run.as_bytes(), name, number(id.number));
        let found = self.one_mail.query_row(values, columns::mail).optional()?;
        rows.mail.load(id.clone(), found.map(|(_, row)| row));
        Ok(())
    }

    fn one_offer(
        &mut self,
        namespace: &Name,
        name: &Name,
        place: u64,
        rows: &mut Rows,
    ) -> Result<()> {
        let gate = GateId {
            namespace: namespace.clone(),
            name: name.clone(),
        };
        let id = OfferId { gate, place };
        if rows.offers.is_loaded(&id) {
            return Ok(());
        }
        let values = (namespace.as_str(), name.as_str(), number(place));
        let read = |row: &rusqlite::Row<'_>| columns::offer(row, 0);
        let found = self.one_offer.query_row(values, read).optional()?;
        rows.offers.load(id, found.map(|(_, row)| row));
        Ok(())
    }

    fn offers(&mut self, gate: &GateId, limit: usize, rows: &mut Rows) -> Result<()> {
        let limit = i64::try_from(limit).unwrap_or(ALL);
        let values = (gate.namespace.as_str(), gate.name.as_str(), limit);
        let found = self
            .offers
            .query_map(values, |row| columns::offer(row, 0))?;
        for offer in found {
            let (place, row) = offer?;
            let gate = gate.clone();
            rows.offers.load(OfferId { gate, place }, Some(row));
        }
        Ok(())
    }

    fn waiters(&mut self, gate: &GateId, limit: usize, rows: &mut Rows) -> Result<()> {
        let limit = i64::try_from(limit).unwrap_or(ALL);
        let values = (gate.namespace.as_str(), gate.name.as_str(), limit);
        let found = self.waiters.query_map(values, columns::wait)?;
        let found = found.collect::<Result<Vec<_>>>()?;
        for (id, row) in found {
            self.run_to_wake(id.run, rows)?;
            rows.load_wait(&gate.namespace, id, row);
        }
        Ok(())
    }

    fn watchers(&mut self, run: RunId, rows: &mut Rows) -> Result<()> {
        let found = self.watches.query_map([run.as_bytes()], columns::watch)?;
        let found = found.collect::<Result<Vec<_>>>()?;
        for watch in found {
            self.run_to_wake(watch.1, rows)?;
            rows.watches.load(watch, Some(()));
        }
        Ok(())
    }
}

fn namespace(run: RunId, rows: &Rows) -> Option<Name> {
    let row = rows.run(run)?;
    Some(rows.lane(row.lane).namespace.clone())
}
