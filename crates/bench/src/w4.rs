//! W4: a signal. A run waits for it; timed from its sending until the run has ended and its result
//! is known. One at a time for latency; for throughput many runs wait, and all are sent theirs.

use std::path::PathBuf;
use std::time::Instant;

use roundel::{Client, Cx, Engine, Result as RunResult, Signal, Workflow};
use serde::Serialize;
use tokio::task::JoinSet;

use crate::Error;
use crate::beside::{Beside, TURN};
use crate::others::at_rest;
use crate::percentile::{Sorted, median};
use crate::tasks::all_of;

const WAITS: Workflow<(), u64> = Workflow::named("bench-waits");
const GO: Signal<u64> = Signal::named("go");

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where the files go.
    pub dir: PathBuf,
    /// Signals one after the other in latency mode.
    pub latency_runs: usize,
    /// Runs that wait at once in throughput mode.
    pub in_flight: usize,
    /// How often, in turn with the raw limit.
    pub turns: usize,
}

/// What was measured. Latencies are in microseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// Always `w4`.
    pub workload: &'static str,
    /// From the sending until the result is known: the median.
    pub p50_us: f64,
    /// The 99th percentile.
    pub p99_us: f64,
    /// The median, in syncs of the disk.
    pub p50_fdatasyncs: f64,
    /// Runs that wait at once in throughput mode.
    pub in_flight: usize,
    /// Runs that got their signal and ended, per second.
    pub signals_per_second: f64,
    /// The raw limit: rows per second in batches of a hundred.
    pub limit_rows_per_second: f64,
    /// Signals per second by the raw limit.
    pub ratio: f64,
    /// Appending 4 KiB and syncing.
    pub fdatasync_p50_us: f64,
}

async fn waits(cx: Cx, (): ()) -> RunResult<u64> {
    cx.wait(GO).await
}

/// Measures W4 as planned. `progress` is told what is being done.
///
/// # Errors
/// When the folder or the database cannot be used.
pub async fn measure(plan: &Plan, progress: &dyn Fn(&str)) -> Result<Figures, Error> {
    let folder = tempfile::Builder::new()
        .prefix("w4-")
        .tempdir_in(&plan.dir)?;
    let mut beside = Beside::open(folder.path())?;
    let engine = Engine::open(folder.path().join("w4.db"))
        .register(WAITS, waits)
        .start()
        .await?;
    progress("one signal at a time");
    let mut times = Vec::new();
    for number in 0..plan.latency_runs + TURN {
        beside.syncs_in_turn(number)?;
        let time = one(&engine).await?;
        // The first turn only warms up.
        if number >= TURN {
            times.push(time);
        }
    }
    progress("many runs that wait");
    let mut rates = Vec::new();
    many(&engine, plan.in_flight).await?;
    for _ in 0..plan.turns {
        beside.rows()?;
        rates.push(many(&engine, plan.in_flight).await?);
    }
    engine.shutdown().await;
    let times = Sorted::new(times);
    let p50_us = times.percentile(50.0).unwrap_or(0.0);
    Ok(Figures {
        workload: "w4",
        p50_us,
        p99_us: times.percentile(99.0).unwrap_or(0.0),
        p50_fdatasyncs: p50_us / beside.fdatasync_p50_us(),
        in_flight: plan.in_flight,
        signals_per_second: median(&rates),
        limit_rows_per_second: beside.rows_per_second(),
        ratio: median(&rates) / beside.rows_per_second(),
        fdatasync_p50_us: beside.fdatasync_p50_us(),
    })
}

async fn one(engine: &Engine) -> Result<f64, roundel::Error> {
    let mut run = engine.start(WAITS, &()).await?;
    at_rest(engine).await;
    let begin = Instant::now();
    engine.signal(run.id(), GO, &7).await?;
    run.result().await?;
    Ok(begin.elapsed().as_secs_f64() * 1e6)
}

/// Signals per second when so many runs wait, each for its own.
async fn many(engine: &Engine, runs: usize) -> Result<f64, roundel::Error> {
    let mut starts = JoinSet::new();
    for _ in 0..runs {
        let client = engine.client();
        starts.spawn(async move { client.start(WAITS, &()).await });
    }
    let mut waiting = Vec::new();
    for run in starts.join_all().await {
        waiting.push(run?);
    }
    at_rest(engine).await;
    let begin = Instant::now();
    let mut tasks = JoinSet::new();
    for mut run in waiting {
        let client: Client = engine.client();
        tasks.spawn(async move {
            client.signal(run.id(), GO, &7).await?;
            run.result().await.map(drop)
        });
    }
    all_of(tasks).await?;
    Ok(runs as f64 / begin.elapsed().as_secs_f64())
}
