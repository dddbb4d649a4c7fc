//! W4: a signal. A run waits for it; timed from its sending until the run has ended and its result
//! is known. One at a time for latency; for throughput many runs wait, and all are sent theirs.

use std::time::Instant;

use roundel::{Client, Cx, Engine, EngineBuilder, Result as RunResult, Signal, Workflow};
use serde::Serialize;
use tokio::task::JoinSet;

use crate::beside::TURN;
use crate::ground::{Ground, Target};
use crate::helper;
use crate::others::at_rest;
use crate::percentile::{Sorted, median};
use crate::process::Busy;
use crate::tasks::all_of;
use crate::{Error, Raw};

const WAITS: Workflow<(), u64> = Workflow::named("bench-waits");
const GO: Signal<u64> = Signal::named("go");

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where to measure.
    pub target: Target,
    /// Worker processes, this one among them; more than one on a server only.
    pub workers: usize,
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
    /// Worker processes.
    pub workers: usize,
    /// From the sending until the result is known: the median.
    pub p50_us: f64,
    /// The 99th percentile.
    pub p99_us: f64,
    /// Processors in use meanwhile, by whomever.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alone_processors: Option<f64>,
    /// Runs that wait at once in throughput mode.
    pub in_flight: usize,
    /// Runs that got their signal and ended, per second.
    pub signals_per_second: f64,
    /// The raw limit.
    #[serde(flatten)]
    pub raw: Raw,
    /// Signals per second by the raw limit.
    pub ratio: f64,
}

async fn waits(cx: Cx, (): ()) -> RunResult<u64> {
    cx.wait(GO).await
}

pub(crate) fn register(engine: EngineBuilder) -> EngineBuilder {
    engine.register(WAITS, waits)
}

/// Measures W4 as planned. `progress` is told what is being done.
///
/// # Errors
/// When the folder or the database cannot be used.
pub async fn measure(plan: &Plan, progress: &dyn Fn(&str)) -> Result<Figures, Error> {
    let work = async |ground: &Ground| on(ground, plan, progress).await;
    Ground::with(&plan.target, "w4", work).await
}

async fn on(ground: &Ground, plan: &Plan, progress: &dyn Fn(&str)) -> Result<Figures, Error> {
    let mut beside = ground.beside().await?;
    let engine = register(ground.engine("w4")).start().await?;
    let _helpers = helper::start(ground, plan.workers, ("w4", None))?;
    progress("one signal at a time");
    let (mut times, mut busy) = (Vec::new(), Busy::default());
    for number in 0..plan.latency_runs + TURN {
        beside.syncs_in_turn(number).await?;
        let time = busy.during(one(&engine)).await?;
        // The first turn only warms up.
        if number >= TURN {
            times.push(time);
        }
    }
    progress("many runs that wait");
    let mut rates = Vec::new();
    many(&engine, plan.in_flight).await?;
    for _ in 0..plan.turns {
        beside.rows().await?;
        rates.push(many(&engine, plan.in_flight).await?);
    }
    engine.shutdown().await;
    let times = Sorted::new(times);
    let p50_us = times.percentile(50.0).unwrap_or(0.0);
    Ok(Figures {
        workload: "w4",
        workers: plan.workers.max(1),
        p50_us,
        p99_us: times.percentile(99.0).unwrap_or(0.0),
        alone_processors: busy.processors(),
        in_flight: plan.in_flight,
        signals_per_second: median(&rates),
        raw: beside.raw(Some(p50_us)),
        ratio: median(&rates) / beside.rows_per_second(),
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
