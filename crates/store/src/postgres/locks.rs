//! Locks: keys, gates, topics, and the rows that operations change, each in its order. A batch that
//! many wait for takes what is free and notes what is not; an operation alone waits.

use std::collections::BTreeSet;

use roundel_core::{GateId, KeyId, LatchId, PublicationId, QueueId, RunId, WorkerId};

use super::columns;
use super::known::{Hold, Topic};
use super::link::{arrays, values};
use super::load::Loading;
use super::trouble::Trouble;
use super::values::Id;
use crate::cells::{self, Cells, number, run_columns};

/// What to do about a lock that somebody else has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Patience {
    Skip,
    Wait,
}

/// A statement that locks: passing over what is locked, or waiting for it.
struct Locking {
    skip: &'static str,
    wait: &'static str,
}

macro_rules! locking {
    ($sql:expr, $of:literal) => {
        Locking {
            skip: concat!($sql, " FOR UPDATE OF ", $of, " SKIP LOCKED"),
            wait: concat!($sql, " FOR UPDATE OF ", $of),
        }
    };
}

impl Locking {
    fn sql(&self, patience: Patience) -> &'static str {
        match patience {
            Patience::Skip => self.skip,
            Patience::Wait => self.wait,
        }
    }
}

const RUNS: Locking = locking!(
    concat!(
        "SELECT ",
        run_columns!(),
        " FROM roundel_run WHERE id = ANY($1) ORDER BY id"
    ),
    "roundel_run"
);
const RUNS_THERE: &str = "SELECT id FROM roundel_run WHERE id = ANY($1)";
const WORKERS: Locking = locking!(
    "SELECT id, name, started_at, seen_at, suspect, lanes FROM roundel_worker WHERE id = ANY($1) \
     ORDER BY id",
    "roundel_worker"
);
const WORKERS_THERE: &str = "SELECT id FROM roundel_worker WHERE id = ANY($1)";
const PUBLICATIONS: Locking = locking!(
    "SELECT id, namespace, topic, payload, by_run, by_execution, by_call, at, heard, closes_at, \
     deadlines, context FROM roundel_publication WHERE id = ANY($1) ORDER BY id",
    "roundel_publication"
);
const PUBLICATIONS_THERE: &str = "SELECT id FROM roundel_publication WHERE id = ANY($1)";
const LATCHES: Locking = locking!(
    "SELECT latch.run, latch.execution, latch.call, latch.part, open, total, failed, closes_at \
     FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::smallint[]) \
     AS asked (run, execution, call, part) \
     JOIN roundel_latch AS latch USING (run, execution, call, part) ORDER BY 1, 2, 3, 4",
    "latch"
);
const LATCHES_THERE: &str = "SELECT run, execution, call, part, 0, 0, 0, NULL::bigint \
     FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::smallint[]) \
     AS asked (run, execution, call, part) \
     JOIN roundel_latch AS latch USING (run, execution, call, part)";
const GATES_MAKE: &str = "INSERT INTO roundel_gate (namespace, name, waiters, offers) \
     SELECT namespace, name, 0, 0 FROM unnest($1::text[], $2::text[]) AS asked (namespace, name) \
     ON CONFLICT DO NOTHING";
const GATES: Locking = locking!(
    "SELECT gate.namespace, gate.name, waiters, offers \
     FROM unnest($1::text[], $2::text[]) AS asked (namespace, name) \
     JOIN roundel_gate AS gate \
     ON gate.namespace = asked.namespace AND gate.name = asked.name ORDER BY 1, 2",
    "gate"
);
const QUEUES: Locking = locking!(
    "SELECT found.namespace, found.queue, paused, concurrency, rate_count, rate_time, \
     spent_until, changed_at, per_key, turn \
     FROM unnest($1::text[], $2::text[]) AS asked (namespace, queue) \
     JOIN roundel_queue AS found ON found.namespace = asked.namespace \
     AND found.queue = asked.queue ORDER BY 1, 2",
    "found"
);
const QUEUES_THERE: &str = "SELECT found.namespace, found.queue \
     FROM unnest($1::text[], $2::text[]) AS asked (namespace, queue) \
     JOIN roundel_queue AS found ON found.namespace = asked.namespace \
     AND found.queue = asked.queue";
const KEYS_CLAIM: &str = "INSERT INTO roundel_key (namespace, kind, key, digest) \
     SELECT namespace, kind, key, '' \
     FROM unnest($1::text[], $2::text[], $3::text[]) AS asked (namespace, kind, key) \
     ON CONFLICT DO NOTHING RETURNING namespace, kind, key";
const KEYS: Locking = locking!(
    "SELECT found.namespace, found.kind, found.key, run, digest, sent \
     FROM unnest($1::text[], $2::text[], $3::text[]) AS asked (namespace, kind, key) \
     JOIN roundel_key AS found ON found.namespace = asked.namespace \
     AND found.kind = asked.kind AND found.key = asked.key ORDER BY 1, 2, 3",
    "found"
);
const KEYS_READ: &str = "SELECT found.namespace, found.kind, found.key, run, digest, sent \
     FROM unnest($1::text[], $2::text[], $3::text[]) AS asked (namespace, kind, key) \
     JOIN roundel_key AS found ON found.namespace = asked.namespace \
     AND found.kind = asked.kind AND found.key = asked.key";
/// A topic may have no row to lock. The lock's number is made of the names and of whose it is.
macro_rules! topic_lock {
    ($function:literal) => {
        concat!(
            "SELECT ",
            $function,
            "(hashtextextended(concat_ws(E'\\n', 'roundel topic', current_schema(), \
             $1::text, $2::text), 0))"
        )
    };
}
const TOPIC_TRY: &str = topic_lock!("pg_try_advisory_xact_lock");
const TOPIC_TRY_SHARED: &str = topic_lock!("pg_try_advisory_xact_lock_shared");
const TOPIC_WAIT: &str = topic_lock!("pg_advisory_xact_lock");
const TOPIC_WAIT_SHARED: &str = topic_lock!("pg_advisory_xact_lock_shared");

impl Loading<'_> {
    pub(super) async fn runs(&mut self, runs: &BTreeSet<RunId>) -> Result<(), Trouble> {
        let mut left: BTreeSet<RunId> = runs.clone();
        left.retain(|run| !self.rows.run_is_loaded(*run) && !self.known.missed.runs.contains(run));
        if left.is_empty() {
            return Ok(());
        }
        let ids = |left: &BTreeSet<RunId>| left.iter().copied().map(Id::from).collect::<Vec<_>>();
        let locked = self.link.all(RUNS.sql(self.patience), values![ids(&left)]);
        for row in locked.await? {
            let row = cells::run(&row)?;
            left.remove(&row.id);
            self.lanes_up_to(row.lane).await?;
            self.rows.load_run(row.id, Some(row));
        }
        if left.is_empty() {
            return Ok(());
        }
        for row in self.link.all(RUNS_THERE, values![ids(&left)]).await? {
            let run = cells::run_id(&row, 0)?;
            left.remove(&run);
            self.known.missed.runs.insert(run);
        }
        for run in left {
            self.rows.load_run(run, None);
        }
        Ok(())
    }

    pub(super) async fn workers(&mut self, workers: &BTreeSet<WorkerId>) -> Result<(), Trouble> {
        let mut left: BTreeSet<WorkerId> = workers.clone();
        left.retain(|worker| !self.rows.workers.is_loaded(worker));
        if left.is_empty() {
            return Ok(());
        }
        let ids =
            |left: &BTreeSet<WorkerId>| left.iter().copied().map(Id::from).collect::<Vec<_>>();
        let locked = self
            .link
            .all(WORKERS.sql(self.patience), values![ids(&left)]);
        for row in locked.await? {
            let row = cells::worker(&row)?;
            left.remove(&row.id);
            self.rows.workers.load(row.id, Some(row));
        }
        if left.is_empty() {
            return Ok(());
        }
        for row in self.link.all(WORKERS_THERE, values![ids(&left)]).await? {
            let worker = WorkerId::from_bytes(*cells::run_id(&row, 0)?.as_bytes());
            left.remove(&worker);
            self.known.missed.workers.insert(worker);
        }
        for worker in left {
            self.rows.workers.load(worker, None);
        }
        Ok(())
    }

    pub(super) async fn publications(
        &mut self,
        wanted: &BTreeSet<PublicationId>,
    ) -> Result<(), Trouble> {
        let mut left: BTreeSet<PublicationId> = wanted.clone();
        left.retain(|id| !self.rows.publications.is_loaded(id));
        if left.is_empty() {
            return Ok(());
        }
        let ids =
            |left: &BTreeSet<PublicationId>| left.iter().copied().map(Id::from).collect::<Vec<_>>();
        let locked = self
            .link
            .all(PUBLICATIONS.sql(self.patience), values![ids(&left)]);
        for row in locked.await? {
            let (id, row) = cells::publication(&row)?;
            left.remove(&id);
            self.rows.publications.load(id, Some(row));
        }
        if left.is_empty() {
            return Ok(());
        }
        let there = self.link.all(PUBLICATIONS_THERE, values![ids(&left)]);
        for row in there.await? {
            let id = PublicationId::from_bytes(*cells::run_id(&row, 0)?.as_bytes());
            left.remove(&id);
            self.known.missed.publications.insert(id);
        }
        for id in left {
            self.rows.publications.load(id, None);
        }
        Ok(())
    }

    pub(super) async fn latches(&mut self, wanted: &BTreeSet<LatchId>) -> Result<(), Trouble> {
        let mut left: BTreeSet<LatchId> = wanted.clone();
        left.retain(|id| !self.rows.latches.is_loaded(id));
        if left.is_empty() {
            return Ok(());
        }
        let values = latch_values(&left)?;
        for row in self.link.all(LATCHES.sql(self.patience), values).await? {
            let (id, row) = cells::latch(&row)?;
            left.remove(&id);
            self.rows.latches.load(id, Some(row));
        }
        if left.is_empty() {
            return Ok(());
        }
        for row in self.link.all(LATCHES_THERE, latch_values(&left)?).await? {
            let (id, _) = cells::latch(&row)?;
            left.remove(&id);
            self.known.missed.latches.insert(id);
        }
        for id in left {
            self.rows.latches.load(id, None);
        }
        Ok(())
    }

    /// Limits of queues. Who changes them for the first time makes a lane, and is alone then.
    pub(super) async fn queues(&mut self, wanted: &BTreeSet<QueueId>) -> Result<(), Trouble> {
        let mut left: BTreeSet<QueueId> = wanted.clone();
        left.retain(|id| !self.rows.queues.is_loaded(id) && !self.known.missed.queues.contains(id));
        if left.is_empty() {
            return Ok(());
        }
        let locked = self
            .link
            .all(QUEUES.sql(self.patience), queue_values(&left)?);
        for row in locked.await? {
            let (id, row) = cells::queue(&row)?;
            left.remove(&id);
            self.rows.queues.load(id, Some(row));
        }
        if left.is_empty() {
            return Ok(());
        }
        for row in self.link.all(QUEUES_THERE, queue_values(&left)?).await? {
            let id = QueueId {
                namespace: cells::name(&row, 0)?,
                queue: cells::name(&row, 1)?,
            };
            left.remove(&id);
            self.known.missed.queues.insert(id);
        }
        for id in left {
            self.rows.queues.load(id, None);
        }
        Ok(())
    }

    /// Gates are made on demand, so there is always a row to lock.
    pub(super) async fn gates(&mut self, wanted: &BTreeSet<GateId>) -> Result<(), Trouble> {
        let mut left: BTreeSet<GateId> = wanted.clone();
        left.retain(|gate| {
            !self.rows.gates.is_loaded(gate) && !self.known.missed.gates.contains(gate)
        });
        if left.is_empty() {
            return Ok(());
        }
        self.link.execute(GATES_MAKE, gate_values(&left)?).await?;
        let locked = self.link.all(GATES.sql(self.patience), gate_values(&left)?);
        for row in locked.await? {
            let gate = columns::gate_id(&row)?;
            left.remove(&gate);
            let row = cells::gate(&row, 2)?;
            let row = Some(row).filter(|row| row.waiters + row.offers > 0);
            self.rows.gates.load(gate, row);
        }
        self.known.missed.gates.extend(left);
        Ok(())
    }

    /// Keys that something will be put under. A row is made for those that nobody has.
    pub(super) async fn claim_keys(&mut self, wanted: &BTreeSet<KeyId>) -> Result<(), Trouble> {
        let (again, mut left): (BTreeSet<KeyId>, BTreeSet<KeyId>) = wanted
            .iter()
            .filter(|key| !self.known.missed.keys.contains(*key))
            .cloned()
            .partition(|key| self.known.claimed.contains(key));
        self.read_keys(&again).await?;
        if left.is_empty() {
            return Ok(());
        }
        // Making a row waits for whoever makes the same. That must not be done by one who holds
        // what the other may want.
        if self.patience == Patience::Skip && self.pass > 0 {
            self.known.missed.keys.extend(left);
            return Ok(());
        }
        for row in self.link.all(KEYS_CLAIM, key_values(&left)?).await? {
            let key = cells::key_id(&row)?;
            left.remove(&key);
            self.rows.keys.load(key.clone(), None);
            self.known.empty.insert(key.clone());
            self.known.claimed.insert(key);
        }
        if left.is_empty() {
            return Ok(());
        }
        let locked = self.link.all(KEYS.sql(self.patience), key_values(&left)?);
        for row in locked.await? {
            let (key, row) = (cells::key_id(&row)?, cells::key(&row, 3)?);
            left.remove(&key);
            self.rows.keys.load(key.clone(), Some(row));
            self.known.claimed.insert(key);
        }
        self.known.missed.keys.extend(left);
        Ok(())
    }

    /// Keys that are only looked up.
    pub(super) async fn read_keys(&mut self, wanted: &BTreeSet<KeyId>) -> Result<(), Trouble> {
        let mut left: BTreeSet<KeyId> = wanted.clone();
        left.retain(|key| !self.rows.keys.is_loaded(key));
        if left.is_empty() {
            return Ok(());
        }
        for row in self.link.all(KEYS_READ, key_values(&left)?).await? {
            let key = cells::key_id(&row)?;
            if self.known.empty.contains(&key) && row.bytes(4)?.is_some_and(<[u8]>::is_empty) {
                continue;
            }
            left.remove(&key);
            self.rows.keys.load(key, Some(cells::key(&row, 3)?));
        }
        for key in left {
            self.rows.keys.load(key, None);
        }
        Ok(())
    }

    pub(super) async fn topic(&mut self, topic: &Topic, hold: Hold) -> Result<(), Trouble> {
        let held = self.known.topics.get(topic);
        if held.is_some_and(|held| *held >= hold) || self.known.missed.topics.contains(topic) {
            return Ok(());
        }
        let sql = match (self.patience, hold) {
            (Patience::Skip, Hold::Shared) => TOPIC_TRY_SHARED,
            (Patience::Skip, Hold::Alone) => TOPIC_TRY,
            (Patience::Wait, Hold::Shared) => TOPIC_WAIT_SHARED,
            (Patience::Wait, Hold::Alone) => TOPIC_WAIT,
        };
        let names = values![topic.0.as_str(), topic.1.as_str()];
        let rows = self.link.all(sql, names).await?;
        let refused = self.patience == Patience::Skip
            && rows.first().map_or(Ok(None), |row| row.int(0))? != Some(1);
        if refused {
            self.known.missed.topics.insert(topic.clone());
        } else {
            self.known.topics.insert(topic.clone(), hold);
        }
        Ok(())
    }
}

fn gate_values(gates: &BTreeSet<GateId>) -> Result<sqlx::postgres::PgArguments, Trouble> {
    Ok(arrays![gates; gate => gate.namespace.as_str().to_owned(), gate.name.as_str().to_owned()])
}

fn queue_values(queues: &BTreeSet<QueueId>) -> Result<sqlx::postgres::PgArguments, Trouble> {
    Ok(arrays![queues; id => id.namespace.as_str().to_owned(), id.queue.as_str().to_owned()])
}

fn key_values(keys: &BTreeSet<KeyId>) -> Result<sqlx::postgres::PgArguments, Trouble> {
    Ok(arrays![keys; key =>
        key.namespace.as_str().to_owned(), key.kind.as_str(), key.key.clone()])
}

fn latch_values(latches: &BTreeSet<LatchId>) -> Result<sqlx::postgres::PgArguments, Trouble> {
    Ok(arrays![latches; id =>
        Id::from(id.run), number(id.execution.into()), number(id.call.into()), i16::from(id.part)])
}
