//! Loads what operations need. Rows that are already in memory are newer than the database's and
//! stay; searches ask the database, so what was decided before must have been written by then.

use std::collections::BTreeSet;

use roundel_core::{
    GateId, KeyId, Lane, LatchId, MailId, Name, Need, OfferId, PublicationId, Rows, RunId, Taken,
    Timestamp, WaitId, WaitRow, WorkerId,
};
use rusqlite::{Connection, OptionalExtension, Result, Statement};

use super::batch::keep;
use super::columns::{self, number, run_columns};
use super::due::Due;

const LANES: &str = "SELECT namespace, workflow, version FROM roundel_lane ORDER BY id";
const RUN: &str = concat!("SELECT ", run_columns!(), " FROM roundel_run WHERE id = ?1");
const KEY: &str = "SELECT run, digest, sent FROM roundel_key \
     WHERE namespace = ?1 AND kind = ?2 AND key = ?3";
const GATE: &str = "SELECT waiters, offers FROM roundel_gate WHERE namespace = ?1 AND name = ?2";
const WORKER: &str =
    "SELECT id, name, started_at, seen_at, suspect FROM roundel_worker WHERE id = ?1";
const STATE: &str = "SELECT version, value FROM roundel_state WHERE run = ?1";
const WAITS: &str = "SELECT run, name, call, place, taken_mail, taken_offer FROM roundel_wait \
     WHERE run = ?1 AND name = ?2";
const ALL_WAITS: &str = "SELECT run, name, call, place, taken_mail, taken_offer \
     FROM roundel_wait WHERE run = ?1";
const WAITERS: &str = "SELECT run, name, call, place, taken_mail, taken_offer FROM roundel_wait \
     WHERE namespace = ?1 AND name = ?2 AND place IS NOT NULL AND taken_mail IS NULL \
     AND taken_offer IS NULL ORDER BY place LIMIT ?3";
const MAIL: &str = "SELECT run, name, number, execution, call, body, at FROM roundel_mail \
     WHERE run = ?1 AND name = ?2 ORDER BY number LIMIT ?3";
const ONE_MAIL: &str = "SELECT run, name, number, execution, call, body, at FROM roundel_mail \
     WHERE run = ?1 AND name = ?2 AND number = ?3";
const OFFERS: &str = "SELECT place, payload, taken_by, at FROM roundel_offer \
     WHERE namespace = ?1 AND name = ?2 AND taken_by IS NULL ORDER BY place LIMIT ?3";
const ONE_OFFER: &str = "SELECT place, payload, taken_by, at FROM roundel_offer \
     WHERE namespace = ?1 AND name = ?2 AND place = ?3";
const WATCHES: &str = "SELECT watched, watcher, execution, call FROM roundel_watch \
     WHERE watched = ?1";
const SUBSCRIBERS: &str = "SELECT namespace, topic, workflow, since FROM roundel_subscription \
     WHERE namespace = ?1 AND topic = ?2";
const PUBLICATION: &str = "SELECT id, namespace, topic, payload, by_run, by_execution, by_call, \
     at, heard, closes_at, deadlines, context FROM roundel_publication WHERE id = ?1";
const OPEN_PUBLICATIONS: &str = "SELECT id FROM roundel_publication \
     INDEXED BY roundel_publication_window \
     WHERE namespace = ?1 AND topic = ?2 AND closes_at > ?3 ORDER BY id";
const LATCH: &str = "SELECT run, execution, call, part, open, total, failed, closes_at \
     FROM roundel_latch WHERE run = ?1 AND execution = ?2 AND call = ?3 AND part = ?4";
const SCOPE: &str = "SELECT id FROM roundel_run INDEXED BY roundel_run_scope \
     WHERE parent_run = ?1 AND parent_execution = ?2 AND parent_call = ?3 \
     AND number IS NOT NULL ORDER BY number";
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
    offers: Statement<'c>,
    one_offer: Statement<'c>,
    watches: Statement<'c>,
    child: Statement<'c>,
    subscribers: Statement<'c>,
    publication: Statement<'c>,
    open_publications: Statement<'c>,
    latch: Statement<'c>,
    scope: Statement<'c>,
    due: Due<'c>,
    /// Lists that were loaded whole in this transaction; later changes to them are in memory.
    whole: BTreeSet<Need>,
}

/// Must what was decided be written before this is asked for?
pub(super) fn is_search(need: &Need) -> bool {
    match need {
        Need::Key(_)
        | Need::Gate(_)
        | Need::Run(_)
        | Need::Worker(_)
        | Need::State(_)
        | Need::Publication(_)
        | Need::Latch(_) => false,
        Need::Due(..)
        | Need::Subtree(..)
        | Need::Waits(..)
        | Need::AllWaits(..)
        | Need::Mail(..)
        | Need::Inbox(_)
        | Need::Offers(..)
        | Need::Waiters(..)
        | Need::Watchers(_)
        | Need::Subscribers(..)
        | Need::OpenPublications(..)
        | Need::Scope(..) => true,
    }
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
            offers: prepare(OFFERS)?,
            one_offer: prepare(ONE_OFFER)?,
            watches: prepare(WATCHES)?,
            child: prepare(CHILD)?,
            subscribers: prepare(SUBSCRIBERS)?,
            publication: prepare(PUBLICATION)?,
            open_publications: prepare(OPEN_PUBLICATIONS)?,
            latch: prepare(LATCH)?,
            scope: prepare(SCOPE)?,
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
            Need::Waits(..) | Need::Inbox(_) | Need::Watchers(_) | Need::Subscribers(..) => {
                self.whole.contains(need)
            }
            _ => false,
        }
    }

    /// How often statements had to be prepared anew.
    #[cfg(test)]
    pub(super) fn prepared_again(&self) -> i32 {
        let again =
            |statement: &Statement<'_>| statement.get_status(rusqlite::StatementStatus::RePrepare);
        again(&self.mail) + again(&self.offers) + again(&self.waiters) + self.due.prepared_again()
    }

    /// Rows other than runs were dropped from memory.
    pub(super) fn forget(&mut self) {
        self.whole.clear();
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
            Need::Due(lanes, limit) => {
                let found = self.due.search(lanes, *limit, now)?;
                self.found(found.runs, rows)?;
                rows.found_next = found.next;
            }
            Need::Subtree(run, limit) => {
                let found = self.subtree(*run, *limit)?;
                self.found(found, rows)?;
            }
            Need::Waits(run, name) => self.waits(*run, name, rows)?,
            Need::AllWaits(run, waiters) => self.all_waits(*run, *waiters, rows)?,
            Need::Mail(run, name, limit) => {
                let limit = i64::try_from(*limit).unwrap_or(ALL);
                self.mail(*run, name.as_str(), limit, rows)?;
            }
            Need::Inbox(run) => self.inbox(*run, rows)?,
            Need::Offers(gate, limit) => self.offers(gate, *limit, rows)?,
            Need::Waiters(gate, limit) => self.waiters(gate, *limit, rows)?,
            Need::Watchers(run) => self.watchers(*run, rows)?,
            Need::Subscribers(namespace, topic) => self.subscribers(namespace, topic, rows)?,
            Need::Publication(id) => self.publication(*id, rows)?,
            Need::OpenPublications(namespace, topic) => {
                let values = (namespace.as_str(), topic.as_str(), now.0);
                let found = self
                    .open_publications
                    .query_map(values, |row| row.get(0).map(PublicationId::from_bytes))?;
                rows.open_publications = found.collect::<Result<_>>()?;
                for id in rows.open_publications.clone() {
                    self.publication(id, rows)?;
                }
            }
            Need::Latch(id) => self.latch(*id, rows)?,
            Need::Scope(run, execution, call) => self.scope((*run, *execution, *call), rows)?,
        }
        let whole = matches!(
            need,
            Need::Waits(..) | Need::Inbox(_) | Need::Watchers(_) | Need::Subscribers(..)
        );
        if whole {
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

    fn subscribers(&mut self, namespace: &Name, topic: &Name, rows: &mut Rows) -> Result<()> {
        let values = (namespace.as_str(), topic.as_str());
        let found = self.subscribers.query_map(values, columns::subscription)?;
        for subscription in found {
            let (id, row) = subscription?;
            rows.subscriptions.load(id, Some(row));
        }
        Ok(())
    }

    fn publication(&mut self, id: PublicationId, rows: &mut Rows) -> Result<()> {
        let found = self
            .publication
            .query_row([id.as_bytes()], columns::publication)
            .optional()?;
        rows.publications.load(id, found.map(|(_, row)| row));
        Ok(())
    }

    fn latch(&mut self, id: LatchId, rows: &mut Rows) -> Result<()> {
        let values = (id.run.as_bytes(), id.execution, id.call, id.part);
        let found = self.latch.query_row(values, columns::latch).optional()?;
        rows.latches.load(id, found.map(|(_, row)| row));
        Ok(())
    }

    fn scope(&mut self, scope: (RunId, u32, u32), rows: &mut Rows) -> Result<()> {
        let values = (scope.0.as_bytes(), scope.1, scope.2);
        let found = self
            .scope
            .query_map(values, |row| columns::run_id(row, 0))?;
        let found = found.collect::<Result<Vec<_>>>()?;
        for run in &found {
            self.run(*run, rows)?;
        }
        rows.scopes.insert(scope, found);
        Ok(())
    }
}

fn namespace(run: RunId, rows: &Rows) -> Option<Name> {
    let row = rows.run(run)?;
    Some(rows.lane(row.lane).namespace.clone())
}
