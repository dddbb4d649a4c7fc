//! W1: runs of five trivial durable effects in a row. One at a time for latency; many in flight for
//! throughput; always with the raw limit of the machine, measured before and after in the same
//! process, so that every figure is also a ratio.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use roundel::{Cx, Engine, Failure, Result as RunResult, Workflow};
use serde::{Deserialize, Serialize};

use crate::limit::{self, Limit};
use crate::percentile::Sorted;

const EFFECTS: u32 = 5;
const FIVE: Workflow<Order, Receipt> = Workflow::named("bench-five");
const EMPTY: Workflow<(), ()> = Workflow::named("bench-empty");
const SLEEPY: Workflow<(), ()> = Workflow::named("bench-sleepy");

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where the files go.
    pub dir: PathBuf,
    /// Runs in flight in throughput mode.
    pub in_flight: usize,
    /// How long throughput is measured.
    pub time: Duration,
    /// Runs one after the other in latency mode.
    pub latency_runs: usize,
    /// Ended runs in the file beforehand.
    pub stored: u64,
    /// Sleeping runs beforehand.
    pub sleeping: u64,
}

/// What was measured. Latencies are of whole runs, in microseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// Always `w1`.
    pub workload: &'static str,
    /// Runs in flight in throughput mode.
    pub in_flight: usize,
    /// Durable effects per second.
    pub effects_per_second: f64,
    /// A run of five effects, alone: the median.
    pub p50_us: f64,
    /// The 99th percentile.
    pub p99_us: f64,
    /// The raw limit: rows per second in batches of a hundred.
    pub limit_rows_per_second: f64,
    /// Effects per second by the raw limit.
    pub ratio: f64,
    /// Appending 4 KiB and syncing.
    pub fdatasync_p50_us: f64,
    /// Ended runs in the file beforehand.
    pub stored: u64,
    /// Sleeping runs beforehand.
    pub sleeping: u64,
    /// Effects per second before runs were stored or put to sleep, if any were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effects_per_second_before: Option<f64>,
    /// Memory that the stored or sleeping runs added.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub added_memory_mb: Option<f64>,
}

/// Why W1 could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The raw limit.
    #[error(transparent)]
    Limit(#[from] limit::Error),
    /// The engine.
    #[error(transparent)]
    Engine(#[from] roundel::Error),
    /// The folder.
    #[error("a folder for the measurement could not be made: {0}")]
    Folder(#[from] std::io::Error),
}

#[derive(Serialize, Deserialize)]
struct Order {
    number: u64,
    customer: String,
}

#[derive(Serialize, Deserialize)]
struct Receipt {
    number: u64,
    total: u64,
}

async fn five(cx: Cx, order: Order) -> RunResult<Receipt> {
    let mut total = 0;
    for part in 0..EFFECTS {
        let line = cx
            .effect("price", |_| async move {
                Ok::<_, Failure>(Receipt {
                    number: u64::from(part),
                    total: 7,
                })
            })
            .await?;
        total += line.total;
    }
    Ok(Receipt {
        number: order.number,
        total,
    })
}

async fn empty(_: Cx, (): ()) -> RunResult<()> {
    Ok(())
}

async fn sleepy(cx: Cx, (): ()) -> RunResult<()> {
    cx.sleep(Duration::from_secs(30 * 24 * 3600)).await;
    Ok(())
}

/// Measures W1 as planned. `progress` is told what is being done.
///
/// # Errors
/// When the folder or the database cannot be used.
pub async fn measure(plan: &Plan, progress: &dyn Fn(&str)) -> Result<Figures, Error> {
    let folder = tempfile::Builder::new()
        .prefix("w1-")
        .tempdir_in(&plan.dir)?;
    progress("measuring the raw limit");
    let before = raw(folder.path()).await?;
    let engine = open(&folder.path().join("w1.db")).await?;
    progress("one run at a time");
    let alone = latency(&engine, plan.latency_runs).await?;
    let mut first = None;
    let mut added_memory_mb = None;
    if plan.stored + plan.sleeping > 0 {
        progress("many runs in flight, in an empty file");
        first = Some(throughput(&engine, plan).await?);
        let memory = memory_mb();
        progress("filling the file");
        fill(&engine, plan, progress).await?;
        added_memory_mb = Some(memory_mb() - memory);
    }
    progress("many runs in flight");
    let effects_per_second = throughput(&engine, plan).await?;
    engine.shutdown().await;
    progress("measuring the raw limit again");
    let after = raw(folder.path()).await?;
    let limit = f64::midpoint(before.rows_per_second, after.rows_per_second);
    let sync = f64::midpoint(before.fdatasync_p50_us, after.fdatasync_p50_us);
    Ok(Figures {
        workload: "w1",
        in_flight: plan.in_flight,
        effects_per_second,
        p50_us: alone.percentile(50.0).unwrap_or(0.0),
        p99_us: alone.percentile(99.0).unwrap_or(0.0),
        limit_rows_per_second: limit,
        ratio: effects_per_second / limit,
        fdatasync_p50_us: sync,
        stored: plan.stored,
        sleeping: plan.sleeping,
        effects_per_second_before: first,
        added_memory_mb,
    })
}

async fn raw(dir: &Path) -> Result<Limit, Error> {
    let dir = dir.to_owned();
    let measured = move || limit::measure(&dir, Duration::from_secs(3));
    match tokio::task::spawn_blocking(measured).await {
        Ok(limit) => Ok(limit?),
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    }
}

async fn open(file: &Path) -> Result<Engine, roundel::Error> {
    Engine::open(file)
        .register(FIVE, five)
        .register(EMPTY, empty)
        .register(SLEEPY, sleepy)
        .start()
        .await
}

fn order(number: u64) -> Order {
    Order {
        number,
        customer: "a customer with a name of usual length".into(),
    }
}

async fn latency(engine: &Engine, runs: usize) -> Result<Sorted, roundel::Error> {
    let mut times = Vec::with_capacity(runs);
    for number in 0..runs as u64 + 20 {
        let begin = Instant::now();
        engine.start(FIVE, &order(number)).await?.result().await?;
        if number >= 20 {
            times.push(begin.elapsed().as_secs_f64() * 1e6);
        }
    }
    Ok(Sorted::new(times))
}

async fn throughput(engine: &Engine, plan: &Plan) -> Result<f64, roundel::Error> {
    let done = Arc::new(AtomicU64::new(0));
    let begin = Instant::now();
    let end = begin + plan.time;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..plan.in_flight {
        let (client, done) = (engine.client(), done.clone());
        tasks.spawn(async move {
            while Instant::now() < end {
                let number = done.fetch_add(1, Ordering::Relaxed);
                client.start(FIVE, &order(number)).await?.result().await?;
            }
            Ok::<(), roundel::Error>(())
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
    }
    let effects = done.load(Ordering::Relaxed) * u64::from(EFFECTS);
    Ok(effects as f64 / begin.elapsed().as_secs_f64())
}

async fn fill(engine: &Engine, plan: &Plan, progress: &dyn Fn(&str)) -> Result<(), roundel::Error> {
    const AT_ONCE: u64 = 2000;
    for (total, sleeps) in [(plan.stored, false), (plan.sleeping, true)] {
        let mut made = 0;
        while made < total {
            let wave = AT_ONCE.min(total - made);
            let mut tasks = tokio::task::JoinSet::new();
            for _ in 0..wave {
                let client = engine.client();
                tasks.spawn(async move {
                    if sleeps {
                        client.start(SLEEPY, &()).await.map(drop)
                    } else {
                        client.start(EMPTY, &()).await.map(drop)
                    }
                });
            }
            while let Some(task) = tasks.join_next().await {
                task.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
            }
            made += wave;
            if made % 100_000 == 0 {
                progress(&format!("filling the file: {made} of {total}"));
            }
        }
    }
    Ok(())
}

/// What the process holds in memory, where the system says it.
fn memory_mb() -> f64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let resident = pages
        .split_whitespace()
        .nth(1)
        .and_then(|pages| pages.parse::<f64>().ok());
    resident.unwrap_or(0.0) * 4096.0 / 1e6
}
