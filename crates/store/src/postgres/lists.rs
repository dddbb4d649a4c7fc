//! What hangs under rows that are locked: waits, messages, offers, who waits for what.

use std::collections::{BTreeMap, BTreeSet};

use roundel_core::{GateId, MailId, Name, Need, OfferId, RunId, WaitId, WaitRow};

use super::columns;
use super::known::{Topic, UpTo, audit_of, mail_of, offers_of};
use super::link::{arrays, values};
use super::load::Loading;
use super::trouble::Trouble;
use super::values::Id;
use crate::cells::{self, number};

const WAITS: &str = "SELECT run, name, call, place, taken_mail, taken_offer \
     FROM unnest($1::uuid[], $2::text[]) AS asked (run, name) \
     JOIN roundel_wait USING (run, name)";
const ALL_WAITS: &str = "SELECT run, name, call, place, taken_mail, taken_offer \
     FROM roundel_wait WHERE run = ANY($1)";
const TAKEN_WAITS: &str = "SELECT run, name, call, place, taken_mail, taken_offer \
     FROM roundel_wait WHERE run = ANY($1) \
     AND (taken_mail IS NOT NULL OR taken_offer IS NOT NULL)";
const WAITERS: &str = "SELECT found.run, found.name, call, place, NULL::bigint, NULL::bigint, \
     asked.namespace FROM unnest($1::text[], $2::text[], $3::bigint[]) \
     AS asked (namespace, name, most) CROSS JOIN LATERAL (SELECT run, name, call, place \
     FROM roundel_wait AS wait WHERE wait.namespace = asked.namespace AND wait.name = asked.name \
     AND place IS NOT NULL AND taken_mail IS NULL AND taken_offer IS NULL \
     ORDER BY place LIMIT most) AS found";
const MAIL: &str = "SELECT found.* FROM unnest($1::uuid[], $2::text[], $3::bigint[]) \
     AS asked (run, name, most) CROSS JOIN LATERAL ((SELECT run, name, number, execution, call, \
     body, at, policy, expires_at, parked_at FROM roundel_mail AS mail \
     WHERE mail.run = asked.run AND mail.name = asked.name AND expires_at IS NULL \
     AND parked_at IS NULL ORDER BY number LIMIT most) UNION ALL \
     (SELECT run, name, number, execution, call, body, at, policy, expires_at, parked_at \
     FROM roundel_mail AS mail WHERE mail.run = asked.run AND mail.name = asked.name \
     AND expires_at IS NOT NULL AND parked_at IS NULL)) AS found";
const UNREAD: &str = "SELECT run, name, number, execution, call, body, at, policy, expires_at, \
     parked_at FROM roundel_mail WHERE run = ANY($1) AND name <> ''";
const OWN_MAIL: &str = "SELECT run, name, number, execution, call, body, at, \
     policy, expires_at, parked_at \
     FROM roundel_mail WHERE run = ANY($1) AND name = ''";
const THESE_MAIL: &str = "SELECT run, name, number, execution, call, body, at, \
     policy, expires_at, parked_at \
     FROM unnest($1::uuid[], $2::text[], $3::bigint[]) AS asked (run, name, number) \
     JOIN roundel_mail USING (run, name, number)";
const OFFERS: &str = "SELECT found.* FROM unnest($1::text[], $2::text[], $3::bigint[]) \
     AS asked (namespace, name, most) CROSS JOIN LATERAL (SELECT namespace, name, place, payload, \
     taken_by, at FROM roundel_offer AS offer WHERE offer.namespace = asked.namespace \
     AND offer.name = asked.name AND taken_by IS NULL ORDER BY place LIMIT most) AS found";
const THESE_OFFERS: &str = "SELECT namespace, name, place, payload, taken_by, at \
     FROM unnest($1::text[], $2::text[], $3::bigint[]) AS asked (namespace, name, place) \
     JOIN roundel_offer USING (namespace, name, place)";
const WATCHES: &str =
    "SELECT watched, watcher, execution, call FROM roundel_watch WHERE watched = ANY($1)";
const STATES: &str = "SELECT run, version, value FROM roundel_state WHERE run = ANY($1)";
const SUBSCRIBERS: &str = "SELECT namespace, topic, workflow, since \
     FROM unnest($1::text[], $2::text[]) AS asked (namespace, topic) \
     JOIN roundel_subscription USING (namespace, topic)";
const LAST_AUDIT: &str = "SELECT namespace, number, at, operator, reason, action, target, run, \
     detail, answer, seal FROM roundel_audit WHERE namespace = $1 ORDER BY number DESC LIMIT 1";

/// How often to look again for those who wait, because their runs had to be locked first.
const TRIES: usize = 4;

fn most(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

fn ids(runs: impl IntoIterator<Item = RunId>) -> Vec<Id> {
    runs.into_iter().map(Id::from).collect()
}

/// Up to where a list is known of which so many were asked for and so many came.
fn up_to(asked: usize, came: usize, last: Option<u64>) -> UpTo {
    match last {
        Some(last) if came == asked => UpTo::Place(last),
        _ => UpTo::All,
    }
}

impl Loading<'_> {
    fn namespace(&self, run: RunId) -> Option<Name> {
        let row = self.rows.run(run)?;
        Some(self.rows.lane(row.lane).namespace.clone())
    }

    fn load_wait(&mut self, (id, row): (WaitId, WaitRow)) {
        if let Some(namespace) = self.namespace(id.run) {
            self.rows.load_wait(&namespace, id, row);
        }
    }

    pub(super) async fn waits(&mut self, asked: BTreeSet<(RunId, Name)>) -> Result<(), Trouble> {
        if asked.is_empty() {
            return Ok(());
        }
        let values = arrays![asked; (run, name) => Id::from(*run), name.as_str().to_owned()];
        for row in self.link.all(WAITS, values).await? {
            self.load_wait(cells::wait(&row)?);
        }
        let needs = asked.into_iter().map(|(run, name)| Need::Waits(run, name));
        self.known.whole.extend(needs);
        Ok(())
    }

    /// All waits of these runs, what they have, and who waits behind them, so many each.
    pub(super) async fn all_waits(&mut self, asked: BTreeMap<RunId, usize>) -> Result<(), Trouble> {
        let new = asked.keys().copied();
        let new: Vec<RunId> = new
            .filter(|run| !self.known.all_waits.contains(run))
            .collect();
        if !new.is_empty() {
            let values = values![ids(new.iter().copied())];
            for row in self.link.all(ALL_WAITS, values).await? {
                self.load_wait(cells::wait(&row)?);
            }
            self.known.all_waits.extend(new);
        }
        let mut waiters: BTreeMap<GateId, usize> = BTreeMap::new();
        let mut offers = Vec::new();
        for (run, count) in asked {
            for offer in offers_of(run, self.rows) {
                *waiters.entry(offer.gate.clone()).or_default() += count;
                offers.push(offer);
            }
        }
        // The offers may be given on: that is decided at their gates.
        let gates = waiters.keys().cloned().collect();
        self.gates(&gates).await?;
        self.these_offers(offers).await?;
        Box::pin(self.waiters(waiters)).await
    }

    pub(super) async fn mail(
        &mut self,
        asked: BTreeMap<(RunId, Name), usize>,
    ) -> Result<(), Trouble> {
        if asked.is_empty() {
            return Ok(());
        }
        let values = arrays![asked; ((run, name), limit) =>
            Id::from(*run), name.as_str().to_owned(), most(*limit)];
        let mut came: BTreeMap<(RunId, Name), (usize, u64)> = BTreeMap::new();
        for row in self.link.all(MAIL, values).await? {
            let (id, row) = cells::mail(&row)?;
            if let Some(name) = id.name.as_ref().filter(|_| row.expires_at.is_none()) {
                let entry = came.entry((id.run, name.clone())).or_default();
                *entry = (entry.0 + 1, entry.1.max(id.number));
            }
            self.rows.mail.load(id, Some(row));
        }
        for (key, limit) in asked {
            let came = came.get(&key);
            let count = came.map_or(0, |came| came.0);
            let known = up_to(limit, count, came.map(|came| came.1));
            self.known.mail.insert(key, known);
        }
        Ok(())
    }

    /// All signals in the mailboxes of these runs.
    pub(super) async fn unread(&mut self, asked: BTreeSet<RunId>) -> Result<(), Trouble> {
        let mut asked = asked;
        asked.retain(|run| !self.known.whole.contains(&Need::Unread(*run)));
        if asked.is_empty() {
            return Ok(());
        }
        for row in self.link.all(UNREAD, values![ids(asked.clone())]).await? {
            let (id, row) = cells::mail(&row)?;
            self.rows.mail.load(id, Some(row));
        }
        self.known.whole.extend(asked.into_iter().map(Need::Unread));
        Ok(())
    }

    pub(super) async fn inboxes(&mut self, asked: BTreeSet<RunId>) -> Result<(), Trouble> {
        let mut asked = asked;
        asked.retain(|run| !self.known.whole.contains(&Need::Inbox(*run)));
        if asked.is_empty() {
            return Ok(());
        }
        for row in self.link.all(OWN_MAIL, values![ids(asked.clone())]).await? {
            let (id, row) = cells::mail(&row)?;
            self.rows.mail.load(id, Some(row));
        }
        let taken = self.link.all(TAKEN_WAITS, values![ids(asked.clone())]);
        for row in taken.await? {
            self.load_wait(cells::wait(&row)?);
        }
        let (mut mail, mut offers) = (Vec::new(), Vec::new());
        for run in &asked {
            mail.extend(mail_of(*run, self.rows));
            offers.extend(offers_of(*run, self.rows));
        }
        self.these_mail(mail).await?;
        self.these_offers(offers).await?;
        self.known.whole.extend(asked.into_iter().map(Need::Inbox));
        Ok(())
    }

    pub(super) async fn these_mail(&mut self, mut asked: Vec<MailId>) -> Result<(), Trouble> {
        asked.retain(|id| !self.rows.mail.is_loaded(id));
        if asked.is_empty() {
            return Ok(());
        }
        let values = arrays![asked; id =>
            Id::from(id.run),
            id.name.as_ref().map_or_else(String::new, |name| name.as_str().to_owned()),
            number(id.number)];
        for row in self.link.all(THESE_MAIL, values).await? {
            let (id, row) = cells::mail(&row)?;
            self.rows.mail.load(id, Some(row));
        }
        for id in asked {
            self.rows.mail.load(id, None);
        }
        Ok(())
    }

    async fn these_offers(&mut self, mut asked: Vec<OfferId>) -> Result<(), Trouble> {
        asked.retain(|id| !self.rows.offers.is_loaded(id));
        if asked.is_empty() {
            return Ok(());
        }
        let values = arrays![asked; id =>
            id.gate.namespace.as_str().to_owned(), id.gate.name.as_str().to_owned(),
            number(id.place)];
        for row in self.link.all(THESE_OFFERS, values).await? {
            let (id, row) = columns::offer(&row)?;
            self.rows.offers.load(id, Some(row));
        }
        for id in asked {
            self.rows.offers.load(id, None);
        }
        Ok(())
    }

    pub(super) async fn offers(&mut self, asked: BTreeMap<GateId, usize>) -> Result<(), Trouble> {
        let gates = asked.keys().cloned().collect();
        self.gates(&gates).await?;
        let asked = self.reached(asked);
        if asked.is_empty() {
            return Ok(());
        }
        let mut came: BTreeMap<GateId, (usize, u64)> = BTreeMap::new();
        for row in self.link.all(OFFERS, gate_values(&asked)?).await? {
            let (id, row) = columns::offer(&row)?;
            let entry = came.entry(id.gate.clone()).or_default();
            *entry = (entry.0 + 1, entry.1.max(id.place));
            self.rows.offers.load(id, Some(row));
        }
        for (gate, limit) in asked {
            let came = came.get(&gate);
            let known = up_to(
                limit,
                came.map_or(0, |came| came.0),
                came.map(|came| came.1),
            );
            self.known.offers.insert(gate, known);
        }
        Ok(())
    }

    /// The gates that we have.
    fn reached(&self, asked: BTreeMap<GateId, usize>) -> BTreeMap<GateId, usize> {
        let mut asked = asked;
        asked.retain(|gate, _| !self.known.missed.gates.contains(gate));
        asked
    }

    /// The first who wait at each gate, so many, with their runs. A wait may end under its run's
    /// lock alone: so once the runs are locked, it is looked again.
    pub(super) async fn waiters(&mut self, asked: BTreeMap<GateId, usize>) -> Result<(), Trouble> {
        let gates = asked.keys().cloned().collect();
        self.gates(&gates).await?;
        let mut asked = self.reached(asked);
        for _ in 0..TRIES {
            if asked.is_empty() {
                return Ok(());
            }
            let mut found: Vec<(GateId, WaitId, WaitRow)> = Vec::new();
            for row in self.link.all(WAITERS, gate_values(&asked)?).await? {
                let (id, wait) = cells::wait(&row)?;
                let (namespace, name) = (cells::name(&row, 6)?, id.name.clone());
                found.push((GateId { namespace, name }, id, wait));
            }
            let runs: BTreeSet<RunId> = found.iter().map(|(_, id, _)| id.run).collect();
            let stable = runs.iter().all(|run| self.rows.run_is_loaded(*run));
            if stable {
                self.found_waiters(&asked, found);
                return self.inboxes_to_wake(runs).await;
            }
            self.runs(&runs).await?;
            for (gate, id, _) in &found {
                if self.known.missed.runs.contains(&id.run) {
                    asked.remove(gate);
                    self.known.missed.gates.insert(gate.clone());
                }
            }
        }
        self.known.missed.gates.extend(asked.into_keys());
        Ok(())
    }

    fn found_waiters(
        &mut self,
        asked: &BTreeMap<GateId, usize>,
        found: Vec<(GateId, WaitId, WaitRow)>,
    ) {
        for (gate, limit) in asked {
            let places = found.iter().filter(|(at, ..)| at == gate);
            let places: Vec<u64> = places.filter_map(|(.., row)| row.place).collect();
            let known = up_to(*limit, places.len(), places.into_iter().max());
            self.known.waiters.insert(gate.clone(), known);
        }
        for (gate, id, row) in found {
            self.rows.load_wait(&gate.namespace, id, row);
        }
    }

    /// Runs that may be woken and taken then hand over their inboxes.
    async fn inboxes_to_wake(&mut self, runs: BTreeSet<RunId>) -> Result<(), Trouble> {
        let mut runs = runs;
        runs.retain(|run| self.rows.run(*run).is_some_and(|row| row.matched > 0));
        self.inboxes(runs).await
    }

    /// Who waits for the end of these runs, with their runs.
    pub(super) async fn watchers(&mut self, asked: BTreeSet<RunId>) -> Result<(), Trouble> {
        if asked.is_empty() {
            return Ok(());
        }
        let found = self.link.all(WATCHES, values![ids(asked.clone())]).await?;
        let found = found.iter().map(cells::watch);
        let found = found.collect::<Result<Vec<_>, _>>()?;
        let runs: BTreeSet<RunId> = found.iter().map(|watch| watch.1).collect();
        self.runs(&runs).await?;
        for watch in found {
            if self.known.missed.runs.contains(&watch.1) {
                self.known.missed.runs.insert(watch.0);
            }
            self.rows.watches.load(watch, Some(()));
        }
        self.known
            .whole
            .extend(asked.into_iter().map(Need::Watchers));
        self.inboxes_to_wake(runs).await
    }

    pub(super) async fn states(&mut self, asked: BTreeSet<RunId>) -> Result<(), Trouble> {
        if asked.is_empty() {
            return Ok(());
        }
        for row in self.link.all(STATES, values![ids(asked.clone())]).await? {
            let (run, state) = (cells::run_id(&row, 0)?, cells::own_state(&row, 1)?);
            self.rows.states.load(run, Some(state));
        }
        for run in asked {
            self.rows.states.load(run, None);
        }
        Ok(())
    }

    /// The last rows of these audits, once we have them alone.
    pub(super) async fn audits(&mut self, asked: BTreeSet<Name>) -> Result<(), Trouble> {
        for namespace in asked {
            let missed = &self.known.missed.topics;
            if missed.contains(&audit_of(&namespace)) {
                continue;
            }
            let values = values![namespace.as_str()];
            for row in self.link.all(LAST_AUDIT, values).await? {
                let (id, row) = cells::audit(&row)?;
                self.rows.audit.load(id, Some(row));
            }
            self.known.whole.insert(Need::Audit(namespace));
        }
        Ok(())
    }

    pub(super) async fn subscribers(&mut self, asked: BTreeSet<Topic>) -> Result<(), Trouble> {
        let mut asked = asked;
        asked.retain(|topic| !self.known.missed.topics.contains(topic));
        if asked.is_empty() {
            return Ok(());
        }
        let values = arrays![asked; (namespace, topic) =>
            namespace.as_str().to_owned(), topic.as_str().to_owned()];
        for row in self.link.all(SUBSCRIBERS, values).await? {
            let (id, row) = cells::subscription(&row)?;
            self.rows.subscriptions.load(id, Some(row));
        }
        let needs = asked.into_iter();
        let needs = needs.map(|(namespace, topic)| Need::Subscribers(namespace, topic));
        self.known.whole.extend(needs);
        Ok(())
    }
}

fn gate_values(asked: &BTreeMap<GateId, usize>) -> Result<sqlx::postgres::PgArguments, Trouble> {
    Ok(arrays![asked; (gate, limit) =>
        gate.namespace.as_str().to_owned(), gate.name.as_str().to_owned(), most(*limit)])
}
