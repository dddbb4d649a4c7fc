//! Facts: recorded by many at once and folded into a document each, by the commit; recorded one
//! after the other, in turn with the same rows written as plain SQL; and a projection of all of
//! them built anew.
//!
//! Plain SQL is what a program with tasks would do without an engine: a thread owns the connection,
//! since a commit blocks, and a task asks it and awaits the answer. The same transaction made by
//! the thread that wants it, which then can do nothing else, is shown beside it.

use std::path::Path;
use std::sync::mpsc;
use std::time::Instant;

use roundel::{Engine, Fact, Projection};
use rusqlite::Connection;
use serde::Serialize;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::ground::{Ground, Target};
use crate::percentile::median;
use crate::tasks::all_of;
use crate::{Error, Raw, limit};

const PAID: Fact<(u64, u64)> = Fact::named("bench-paid");
/// Documents that facts are folded into.
const ACCOUNTS: u64 = 1_000;
/// Facts recorded by one operation, while the log is made that is then folded anew.
const TOGETHER: usize = 500;

/// So many come before those that count: until then the log of plain SQL grows, and a commit that
/// lengthens a file costs twice. The engine's log is made long ahead of its use.
const WARM: usize = 500;

const PLAIN: &str = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; \
     CREATE TABLE fact (position INTEGER PRIMARY KEY, namespace TEXT NOT NULL, id TEXT NOT NULL, \
     kind TEXT NOT NULL, version INTEGER NOT NULL, data TEXT NOT NULL, at INTEGER NOT NULL, \
     own INTEGER NOT NULL, by_name TEXT, run BLOB, execution INTEGER, entry INTEGER, \
     stream TEXT, stream_version INTEGER, UNIQUE (namespace, id)) STRICT; \
     CREATE UNIQUE INDEX fact_stream ON fact (namespace, stream, stream_version) \
     WHERE stream IS NOT NULL; \
     CREATE INDEX fact_run ON fact (run) WHERE run IS NOT NULL; \
     CREATE TABLE document (namespace TEXT NOT NULL, path TEXT NOT NULL, \
     generation INTEGER NOT NULL, projection TEXT NOT NULL, version INTEGER NOT NULL, value TEXT, \
     at INTEGER NOT NULL, PRIMARY KEY (namespace, path, generation)) STRICT, WITHOUT ROWID;";
const PLAIN_FACT: &str = "INSERT INTO fact (namespace, id, kind, version, data, at, own, by_name) \
     VALUES ('default', ?1, 'bench-paid', 1, ?2, ?3, 0, 'bench')";
const PLAIN_DOCUMENT: &str = "INSERT INTO document \
     (namespace, path, generation, projection, version, value, at) \
     VALUES ('default', ?1, 0, 'bench-balances', 1, ?2, ?3) \
     ON CONFLICT (namespace, path, generation) \
     DO UPDATE SET version = version + 1, value = value + excluded.value, at = excluded.at";

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where to measure.
    pub target: Target,
    /// Facts recorded in one turn.
    pub facts: usize,
    /// Recorders at once.
    pub recorders: usize,
    /// Turns, each beside the raw limit.
    pub turns: usize,
    /// Facts one after the other, each beside the same rows as plain SQL.
    pub alone: usize,
    /// Facts that are folded anew.
    pub rebuilt: usize,
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// Always `facts`.
    pub workload: &'static str,
    /// Recorders at once.
    pub recorders: usize,
    /// Recorded by many at once, each folded into one document.
    pub facts_per_second: f64,
    /// The raw limit.
    #[serde(flatten)]
    pub raw: Raw,
    /// Facts per second by the raw limit.
    pub ratio: f64,
    /// One fact alone: the median.
    pub p50_us: f64,
    /// The same rows as plain SQL, asked for by a task, in turn with it: the median. Over a file
    /// only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plain_p50_us: Option<f64>,
    /// The same by a thread that waits for the disk itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocking_p50_us: Option<f64>,
    /// One fact alone by the same rows as plain SQL asked for by a task, less one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overhead: Option<f64>,
    /// Facts that were folded anew.
    pub rebuilt: usize,
    /// Facts folded anew in a second, while nobody records.
    pub rebuilt_per_second: f64,
}

fn balances() -> Projection<u64> {
    Projection::named("bench-balances").fold(
        PAID,
        |(account, _)| vec![format!("balance/{account}")],
        |balance, (_, cents)| Ok(Some(balance.unwrap_or(0) + cents)),
    )
}

/// Measures facts as planned. `progress` is told what is being done.
///
/// # Errors
/// When the folder or the database cannot be used.
pub async fn measure(plan: &Plan, progress: &dyn Fn(&str)) -> Result<Figures, Error> {
    let work = async |ground: &Ground| on(ground, plan, progress).await;
    Ground::with(&plan.target, "facts", work).await
}

async fn on(ground: &Ground, plan: &Plan, progress: &dyn Fn(&str)) -> Result<Figures, Error> {
    let mut beside = ground.beside().await?;
    let engine = ground.engine("facts").project(balances()).start().await?;
    progress("one fact at a time");
    let alone = one_by_one(&engine, ground, plan.alone).await?;
    progress("facts of many at once");
    record_all(&engine, plan).await?;
    let mut rates = Vec::new();
    for _ in 0..plan.turns {
        beside.rows().await?;
        let begin = Instant::now();
        record_all(&engine, plan).await?;
        rates.push(plan.facts as f64 / begin.elapsed().as_secs_f64());
    }
    progress("a rebuild");
    let rebuilt_per_second = rebuild(&engine, plan.rebuilt).await?;
    engine.shutdown().await;
    let (p50_us, plain) = (median(&alone.facts), alone.plain);
    let plain_p50_us = plain.as_ref().map(|plain| median(&plain.0));
    Ok(Figures {
        workload: "facts",
        recorders: plan.recorders,
        facts_per_second: median(&rates),
        raw: beside.raw(None),
        ratio: median(&rates) / beside.rows_per_second(),
        p50_us,
        plain_p50_us,
        blocking_p50_us: plain.map(|plain| median(&plain.1)),
        overhead: plain_p50_us.map(|plain| p50_us / plain - 1.0),
        rebuilt: plan.rebuilt,
        rebuilt_per_second,
    })
}

async fn record_all(engine: &Engine, plan: &Plan) -> Result<(), Error> {
    let mut recorders = JoinSet::new();
    for first in 0..plan.recorders {
        let client = engine.client();
        let mine = (first..plan.facts).step_by(plan.recorders);
        recorders.spawn(async move {
            for number in mine {
                let says = (number as u64 % ACCOUNTS, 1);
                client.record(PAID, &says).await?;
            }
            Ok::<(), roundel::Error>(())
        });
    }
    Ok(all_of(recorders).await?)
}

/// How long each took, in us.
struct Alone {
    facts: Vec<f64>,
    /// Asked for by a task, and by a thread that waits itself.
    plain: Option<(Vec<f64>, Vec<f64>)>,
}

/// One fact after the other, and the same rows as plain SQL both ways, in turn.
async fn one_by_one(engine: &Engine, ground: &Ground, count: usize) -> Result<Alone, Error> {
    let mut plain = match ground.url() {
        None => Some((
            Plain::open(&ground.file("plain"))?,
            open_plain(&ground.file("blocking"))?,
        )),
        Some(_) => None,
    };
    let (mut facts, mut rows) = (Vec::new(), (Vec::new(), Vec::new()));
    for number in 0..count + WARM {
        let says = (number as u64 % ACCOUNTS, 1);
        let begin = Instant::now();
        engine.record(PAID, &says).await?;
        let took = microseconds(begin);
        if number >= WARM {
            facts.push(took);
        }
        let Some((asked, blocking)) = &mut plain else {
            continue;
        };
        let begin = Instant::now();
        asked.write(number).await?;
        let took = microseconds(begin);
        let begin = Instant::now();
        write_plain(blocking, number)?;
        if number >= WARM {
            rows.0.push(took);
            rows.1.push(microseconds(begin));
        }
    }
    let plain = plain.map(|_| rows);
    Ok(Alone { facts, plain })
}

fn microseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e6
}

/// A thread that owns a connection and does what tasks ask of it.
struct Plain(mpsc::Sender<(usize, oneshot::Sender<Result<(), limit::Error>>)>);

impl Plain {
    fn open(file: &Path) -> Result<Plain, limit::Error> {
        let mut connection = open_plain(file)?;
        let (asked, asks) = mpsc::channel::<(usize, oneshot::Sender<_>)>();
        std::thread::Builder::new()
            .name("plain-writer".into())
            .spawn(move || {
                for (number, answer) in asks {
                    let _ = answer.send(write_plain(&mut connection, number));
                }
            })?;
        Ok(Plain(asked))
    }

    async fn write(&self, number: usize) -> Result<(), Error> {
        let (answer, answered) = oneshot::channel();
        self.0.send((number, answer)).expect("it waits for more");
        Ok(answered.await.expect("it answers")?)
    }
}

fn open_plain(file: &Path) -> Result<Connection, limit::Error> {
    let plain = Connection::open(file)?;
    plain.execute_batch(PLAIN)?;
    Ok(plain)
}

/// The rows that recording a fact writes, in one transaction.
fn write_plain(plain: &mut Connection, number: usize) -> Result<(), limit::Error> {
    let (id, account) = (uuid::Uuid::now_v7().to_string(), number as u64 % ACCOUNTS);
    let transaction = plain.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let data = format!("[{account},1]");
    transaction
        .prepare_cached(PLAIN_FACT)?
        .execute((id, data, 0))?;
    let path = format!("balance/{account}");
    transaction
        .prepare_cached(PLAIN_DOCUMENT)?
        .execute((path, 1, 0))?;
    transaction.commit()?;
    Ok(())
}

/// Records until there are so many facts, and folds all of them anew.
async fn rebuild(engine: &Engine, facts: usize) -> Result<f64, Error> {
    let known = engine
        .projections()
        .await?
        .first()
        .map_or(0, |status| status.facts);
    let missing = facts.saturating_sub(usize::try_from(known).unwrap_or(usize::MAX));
    let numbers: Vec<u64> = (0..missing as u64).collect();
    for some in numbers.chunks(TOGETHER) {
        let mut record = engine.record(PAID, &(some[0] % ACCOUNTS, 1));
        for number in &some[1..] {
            record = record.and(PAID, &(number % ACCOUNTS, 1));
        }
        record.await?;
    }
    let facts = engine
        .projections()
        .await?
        .first()
        .map_or(0, |status| status.facts);
    let begin = Instant::now();
    engine.rebuild("bench-balances").await?;
    Ok(facts as f64 / begin.elapsed().as_secs_f64())
}
