//! Writes what a batch decided. Every statement is prepared once and kept: a round that continues
//! costs one insert and one update, which touches no index.

mod runs;
mod scopes;

use roundel_core::{
    Changes, GateId, GateRow, KeyId, KeyRow, MailId, MailRow, OfferId, OfferRow, Rows, RunId,
    StateRow, Taken, Timestamp, WaitId, WaitRow, WorkerRow, Write,
};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, Result, Statement, ToSql};

use runs::Runs;
use scopes::Scopes;

use super::batch::keep;
use super::columns::number;
use super::facts;

const JOURNAL_INSERT: &str = "INSERT INTO roundel_journal \
     (run, execution, first, count, epoch, at, entries) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
const LANE_INSERT: &str =
    "INSERT INTO roundel_lane (id, namespace, workflow, version) VALUES (?1, ?2, ?3, ?4)";
const LABEL_INSERT: &str =
    "INSERT OR REPLACE INTO roundel_label (run, name, value) VALUES (?1, ?2, ?3)";
const MAIL_PUT: &str = "INSERT OR REPLACE INTO roundel_mail \
     (run, name, number, execution, call, body, at, policy, expires_at, parked_at) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
const MAIL_DELETE: &str = "DELETE FROM roundel_mail WHERE run = ?1 AND name = ?2 AND number = ?3";
const WAIT_INSERT: &str = "INSERT INTO roundel_wait \
     (run, name, call, place, taken_mail, taken_offer, namespace) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
const WAIT_UPDATE: &str = "UPDATE roundel_wait SET place = ?4, taken_mail = ?5, taken_offer = ?6 \
     WHERE run = ?1 AND name = ?2 AND call = ?3";
const WAIT_DELETE: &str = "DELETE FROM roundel_wait WHERE run = ?1 AND name = ?2 AND call = ?3";
const GATE_PUT: &str = "INSERT OR REPLACE INTO roundel_gate (namespace, name, waiters, offers) \
     VALUES (?1, ?2, ?3, ?4)";
const GATE_DELETE: &str = "DELETE FROM roundel_gate WHERE namespace = ?1 AND name = ?2";
const OFFER_INSERT: &str = "INSERT INTO roundel_offer \
     (namespace, name, place, payload, taken_by, at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
const OFFER_UPDATE: &str = "UPDATE roundel_offer SET taken_by = ?4 \
     WHERE namespace = ?1 AND name = ?2 AND place = ?3";
const OFFER_DELETE: &str =
    "DELETE FROM roundel_offer WHERE namespace = ?1 AND name = ?2 AND place = ?3";
const KEY_PUT: &str = "INSERT OR REPLACE INTO roundel_key \
     (namespace, kind, key, run, digest, sent) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
const KEY_DELETE: &str = "DELETE FROM roundel_key WHERE namespace = ?1 AND kind = ?2 AND key = ?3";
const WATCH_INSERT: &str = "INSERT OR IGNORE INTO roundel_watch \
     (watched, watcher, execution, call) VALUES (?1, ?2, ?3, ?4)";
const WATCH_DELETE: &str = "DELETE FROM roundel_watch \
     WHERE watched = ?1 AND watcher = ?2 AND execution = ?3 AND call = ?4";
const STATE_PUT: &str =
    "INSERT OR REPLACE INTO roundel_state (run, version, value) VALUES (?1, ?2, ?3)";
const STATE_DELETE: &str = "DELETE FROM roundel_state WHERE run = ?1";
const WORKER_PUT: &str = "INSERT OR REPLACE INTO roundel_worker \
     (id, name, started_at, seen_at, suspect, lanes) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
const WORKER_DELETE: &str = "DELETE FROM roundel_worker WHERE id = ?1";
const COMMITTER_PUT: &str = "INSERT INTO roundel_committer (incarnation, batch, at) \
     VALUES (?1, ?2, ?3) ON CONFLICT DO UPDATE SET batch = ?2, at = ?3";
/// Everything under a run, and the run. That it waited for the end of others is left to them.
const RUN_DELETE: [&str; 10] = [
    "DELETE FROM roundel_latch WHERE run = ?1",
    "DELETE FROM roundel_publication WHERE by_run = ?1",
    "DELETE FROM roundel_journal WHERE run = ?1",
    "DELETE FROM roundel_mail WHERE run = ?1",
    "DELETE FROM roundel_wait WHERE run = ?1",
    "DELETE FROM roundel_watch WHERE watched = ?1",
    "DELETE FROM roundel_state WHERE run = ?1",
    "DELETE FROM roundel_key WHERE run = ?1",
    "DELETE FROM roundel_label WHERE run = ?1",
    "DELETE FROM roundel_run WHERE id = ?1",
];

/// The statements that write, of one connection.
pub(super) struct Writes<'c> {
    runs: Runs<'c>,
    journal: Statement<'c>,
    lane: Statement<'c>,
    label: Statement<'c>,
    mail_put: Statement<'c>,
    mail_delete: Statement<'c>,
    wait_insert: Statement<'c>,
    wait_update: Statement<'c>,
    wait_delete: Statement<'c>,
    gate_put: Statement<'c>,
    gate_delete: Statement<'c>,
    offer_insert: Statement<'c>,
    offer_update: Statement<'c>,
    offer_delete: Statement<'c>,
    key_put: Statement<'c>,
    key_delete: Statement<'c>,
    watch_insert: Statement<'c>,
    watch_delete: Statement<'c>,
    state_put: Statement<'c>,
    state_delete: Statement<'c>,
    worker_put: Statement<'c>,
    worker_delete: Statement<'c>,
    scopes: Scopes<'c>,
    facts: facts::Writes<'c>,
    committer: Statement<'c>,
    run_delete: Vec<Statement<'c>>,
}

impl<'c> Writes<'c> {
    pub(super) fn new(connection: &'c Connection) -> Result<Writes<'c>> {
        let prepare = |sql| keep(connection, sql);
        Ok(Writes {
            runs: Runs::new(connection)?,
            journal: prepare(JOURNAL_INSERT)?,
            lane: prepare(LANE_INSERT)?,
            label: prepare(LABEL_INSERT)?,
            mail_put: prepare(MAIL_PUT)?,
            mail_delete: prepare(MAIL_DELETE)?,
            wait_insert: prepare(WAIT_INSERT)?,
            wait_update: prepare(WAIT_UPDATE)?,
            wait_delete: prepare(WAIT_DELETE)?,
            gate_put: prepare(GATE_PUT)?,
            gate_delete: prepare(GATE_DELETE)?,
            offer_insert: prepare(OFFER_INSERT)?,
            offer_update: prepare(OFFER_UPDATE)?,
            offer_delete: prepare(OFFER_DELETE)?,
            key_put: prepare(KEY_PUT)?,
            key_delete: prepare(KEY_DELETE)?,
            watch_insert: prepare(WATCH_INSERT)?,
            watch_delete: prepare(WATCH_DELETE)?,
            state_put: prepare(STATE_PUT)?,
            state_delete: prepare(STATE_DELETE)?,
            worker_put: prepare(WORKER_PUT)?,
            worker_delete: prepare(WORKER_DELETE)?,
            scopes: Scopes::new(connection)?,
            facts: facts::Writes::new(connection)?,
            committer: prepare(COMMITTER_PUT)?,
            run_delete: RUN_DELETE.into_iter().map(prepare).collect::<Result<_>>()?,
        })
    }

    /// Writes everything, in the order in which it is listed. `rows` says in which namespace a
    /// wait's run is.
    pub(super) fn all(&mut self, changes: &Changes, rows: &Rows) -> Result<()> {
        for (at, lane) in (changes.first_lane..).zip(&changes.lanes) {
            let (namespace, workflow) = (lane.namespace.as_str(), lane.workflow.as_str());
            self.lane.execute((at, namespace, workflow, lane.version))?;
        }
        for change in &changes.runs {
            self.runs.write(change)?;
        }
        for row in &changes.journal {
            let entries = Text(&row.entries);
            let (first, epoch) = (number(row.first), number(row.epoch));
            let run = row.run.as_bytes();
            let values = (
                run,
                row.execution,
                first,
                row.count,
                epoch,
                row.at.0,
                entries,
            );
            self.journal.execute(values)?;
        }
        for (run, name, value) in &changes.labels {
            self.label.execute((run.as_bytes(), name.as_str(), value))?;
        }
        self.messages(changes, rows)?;
        for (key, write) in &changes.keys {
            self.key(key, write)?;
        }
        for ((watched, watcher, execution, call), write) in &changes.watches {
            let statement = match write {
                Write::Insert(()) | Write::Update(()) => &mut self.watch_insert,
                Write::Delete => &mut self.watch_delete,
            };
            statement.execute((watched.as_bytes(), watcher.as_bytes(), execution, call))?;
        }
        for (run, write) in &changes.states {
            self.own_state(*run, write)?;
        }
        for (worker, write) in &changes.workers {
            match write {
                Write::Insert(row) | Write::Update(row) => self.worker(row)?,
                Write::Delete => drop(self.worker_delete.execute([worker.as_bytes()])?),
            }
        }
        self.scopes.all(changes)?;
        self.facts.all(changes)?;
        for run in &changes.deleted {
            for statement in &mut self.run_delete {
                statement.execute([run.as_bytes()])?;
            }
        }
        Ok(())
    }

    fn messages(&mut self, changes: &Changes, rows: &Rows) -> Result<()> {
        for (id, write) in &changes.mail {
            self.mail(id, write)?;
        }
        for (id, write) in &changes.waits {
            self.wait(id, write, rows)?;
        }
        for (id, write) in &changes.gates {
            self.gate(id, write)?;
        }
        for (id, write) in &changes.offers {
            self.offer(id, write)?;
        }
        Ok(())
    }

    /// Notes that this process committed its batch of this number.
    pub(super) fn committer(
        &mut self,
        incarnation: &[u8; 16],
        batch: u64,
        now: Timestamp,
    ) -> Result<()> {
        self.committer
            .execute((incarnation, number(batch), now.0))?;
        Ok(())
    }

    fn mail(&mut self, id: &MailId, write: &Write<MailRow>) -> Result<()> {
        let name = id.name.as_ref().map_or("", |name| name.as_str());
        let key = (id.run.as_bytes(), name, number(id.number));
        match write {
            Write::Insert(row) | Write::Update(row) => {
                let (execution, call) = row.answers.unzip();
                let body = encoded(&row.body)?;
                let (expires, parked) =
                    (row.expires_at.map(|at| at.0), row.parked_at.map(|at| at.0));
                let policy = row.policy.number();
                self.mail_put.execute((
                    key.0, key.1, key.2, execution, call, body, row.at.0, policy, expires, parked,
                ))?;
            }
            Write::Delete => drop(self.mail_delete.execute(key)?),
        }
        Ok(())
    }

    fn wait(&mut self, id: &WaitId, write: &Write<WaitRow>, rows: &Rows) -> Result<()> {
        let key = (id.run.as_bytes(), id.name.as_str(), id.call);
        let taken = |row: &WaitRow| match row.taken {
            None => (None, None),
            Some(Taken::Mail(mail)) => (Some(number(mail)), None),
            Some(Taken::Offer(offer)) => (None, Some(number(offer))),
        };
        match write {
            Write::Insert(row) => {
                let (mail, offer) = taken(row);
                let run = rows.run(id.run).expect("a new wait's run is here");
                let namespace = rows.lane(run.lane).namespace.as_str();
                let place = row.place.map(number);
                let values = (key.0, key.1, key.2, place, mail, offer, namespace);
                self.wait_insert.execute(values)?;
            }
            Write::Update(row) => {
                let (mail, offer) = taken(row);
                let place = row.place.map(number);
                self.wait_update
                    .execute((key.0, key.1, key.2, place, mail, offer))?;
            }
            Write::Delete => drop(self.wait_delete.execute(key)?),
        }
        Ok(())
    }

    fn gate(&mut self, id: &GateId, write: &Write<GateRow>) -> Result<()> {
        let (namespace, name) = (id.namespace.as_str(), id.name.as_str());
        match write {
            Write::Insert(row) | Write::Update(row) => {
                let (waiters, offers) = (number(row.waiters), number(row.offers));
                self.gate_put.execute((namespace, name, waiters, offers))?;
            }
            Write::Delete => drop(self.gate_delete.execute((namespace, name))?),
        }
        Ok(())
    }

    fn offer(&mut self, id: &OfferId, write: &Write<OfferRow>) -> Result<()> {
        let (namespace, name) = (id.gate.namespace.as_str(), id.gate.name.as_str());
        let key = (namespace, name, number(id.place));
        let taken = |row: &OfferRow| row.taken_by.map(|run| *run.as_bytes());
        match write {
            Write::Insert(row) => {
                let payload = row.payload.as_str();
                let values = (key.0, key.1, key.2, payload, taken(row), row.at.0);
                self.offer_insert.execute(values)?;
            }
            Write::Update(row) => {
                self.offer_update
                    .execute((key.0, key.1, key.2, taken(row)))?;
            }
            Write::Delete => drop(self.offer_delete.execute(key)?),
        }
        Ok(())
    }

    fn key(&mut self, id: &KeyId, write: &Write<KeyRow>) -> Result<()> {
        let key = (id.namespace.as_str(), id.kind.as_str(), id.key.as_str());
        match write {
            Write::Insert(row) | Write::Update(row) => {
                let run = row.run.map(|run| *run.as_bytes());
                let sent = row.sent.as_ref().map(encoded).transpose()?;
                let digest = row.digest.to_be_bytes();
                self.key_put
                    .execute((key.0, key.1, key.2, run, digest, sent))?;
            }
            Write::Delete => drop(self.key_delete.execute(key)?),
        }
        Ok(())
    }

    fn own_state(&mut self, run: RunId, write: &Write<StateRow>) -> Result<()> {
        match write {
            Write::Insert(row) | Write::Update(row) => {
                let (version, value) = (number(row.version), row.value.as_str());
                self.state_put.execute((run.as_bytes(), version, value))?;
            }
            Write::Delete => drop(self.state_delete.execute([run.as_bytes()])?),
        }
        Ok(())
    }

    fn worker(&mut self, row: &WorkerRow) -> Result<()> {
        let suspect = row.suspect.map(|run| *run.as_bytes());
        let (started, seen) = (row.started_at.0, row.seen_at.0);
        let lanes: Vec<u32> = row.lanes.iter().map(|lane| lane.0).collect();
        let lanes = encoded(&lanes)?;
        let values = (row.id.as_bytes(), &row.name, started, seen, suspect, lanes);
        self.worker_put.execute(values)?;
        Ok(())
    }
}

fn encoded<T: serde::Serialize>(value: &T) -> Result<String> {
    serde_json::to_string(value)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))
}

/// Bytes that are known to be text.
struct Text<'a>(&'a [u8]);

impl ToSql for Text<'_> {
    fn to_sql(&self) -> Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(ValueRef::Text(self.0)))
    }
}
