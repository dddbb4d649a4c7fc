//! W1: runs of five trivial durable effects in a row. One at a time for latency; many in flight for
//! throughput; the raw limit in turn with both, so that every figure is also a ratio. A file full
//! of other runs takes its turns with one that is empty.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use roundel::{Cx, Engine, Failure, Result as RunResult, Workflow};
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::beside::{self, Beside, SLICE, TURN, WARM_UP};
use crate::others::{self, Others};
use crate::percentile::{Sorted, median};
use crate::process::memory_mb;
use crate::tasks::all_of;

const EFFECTS: u32 = 5;
const FIVE: Workflow<Order, Receipt> = Workflow::named("bench-five");

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
    /// Effects per second in an empty file meanwhile, if the other is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effects_per_second_before: Option<f64>,
    /// Effects per second by those in the empty file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio_to_before: Option<f64>,
    /// Memory that the stored or sleeping runs added.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub added_memory_mb: Option<f64>,
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

/// `begun` counts effects: one begins when its beginning, and the result of the one before, are
/// committed.
async fn five(cx: Cx, order: Order, begun: Arc<AtomicU64>) -> RunResult<Receipt> {
    let mut total = 0;
    for part in 0..EFFECTS {
        let price = |_| {
            begun.fetch_add(1, Ordering::Relaxed);
            async move {
                Ok::<_, Failure>(Receipt {
                    number: u64::from(part),
                    total: 7,
                })
            }
        };
        let line = cx.effect("price", price).await?;
        total += line.total;
    }
    Ok(Receipt {
        number: order.number,
        total,
    })
}

/// Measures W1 as planned. `progress` is told what is being done.
///
/// # Errors
/// When the folder or the database cannot be used.
pub async fn measure(plan: &Plan, progress: &dyn Fn(&str)) -> Result<Figures, Error> {
    let folder = tempfile::Builder::new()
        .prefix("w1-")
        .tempdir_in(&plan.dir)?;
    let mut beside = Beside::open(folder.path())?;
    let mut plain = Place::open(&folder.path().join("w1.db")).await?;
    progress("one run at a time");
    let alone = latency(&plain.engine, plan.latency_runs, &mut beside).await?;
    let mut full = None;
    let mut added_memory_mb = None;
    if plan.stored + plan.sleeping > 0 {
        let mut place = Place::open(&folder.path().join("full.db")).await?;
        // What an engine at work holds in any case is not what the stored runs add.
        place.slice(plan.in_flight).await?;
        let memory = memory_mb();
        let others = Others {
            stored: plan.stored,
            sleeping: plan.sleeping,
        };
        others.put_into(&place.engine, progress).await?;
        added_memory_mb = Some(memory_mb() - memory);
        full = Some(place);
    }
    progress("many runs in flight");
    for place in [Some(&mut plain), full.as_mut()].into_iter().flatten() {
        place.slice(plan.in_flight).await?;
        place.rates.clear();
    }
    for _ in 0..beside::slices(plan.time) {
        beside.rows()?;
        for place in [Some(&mut plain), full.as_mut()].into_iter().flatten() {
            place.slice(plan.in_flight).await?;
        }
    }
    let empty_rate = plain.close().await;
    let (effects_per_second, before) = match full {
        Some(full) => (full.close().await, Some(empty_rate)),
        None => (empty_rate, None),
    };
    Ok(Figures {
        workload: "w1",
        in_flight: plan.in_flight,
        effects_per_second,
        p50_us: alone.percentile(50.0).unwrap_or(0.0),
        p99_us: alone.percentile(99.0).unwrap_or(0.0),
        limit_rows_per_second: beside.rows_per_second(),
        ratio: effects_per_second / beside.rows_per_second(),
        fdatasync_p50_us: beside.fdatasync_p50_us(),
        stored: plan.stored,
        sleeping: plan.sleeping,
        effects_per_second_before: before,
        ratio_to_before: before.map(|before| effects_per_second / before),
        added_memory_mb,
    })
}

/// A file with an engine on it, and how fast it was in each of its slices.
pub(crate) struct Place {
    pub(crate) engine: Engine,
    begun: Arc<AtomicU64>,
    pub(crate) rates: Vec<f64>,
}

impl Place {
    pub(crate) async fn open(file: &Path) -> Result<Place, roundel::Error> {
        let begun = Arc::new(AtomicU64::new(0));
        let counter = begun.clone();
        let engine = others::register(Engine::open(file))
            .register(FIVE, move |cx, order| five(cx, order, counter.clone()))
            .start()
            .await?;
        let rates = Vec::new();
        Ok(Place {
            engine,
            begun,
            rates,
        })
    }

    /// Keeps so many runs in flight for a slice, and notes how many effects began in it.
    pub(crate) async fn slice(&mut self, in_flight: usize) -> Result<(), roundel::Error> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..in_flight as u64 {
            let (client, stop) = (self.engine.client(), stop.clone());
            tasks.spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    client.start(FIVE, &order(number)).await?.result().await?;
                }
                Ok::<(), roundel::Error>(())
            });
        }
        tokio::time::sleep(WARM_UP).await;
        let (begin, before) = (Instant::now(), self.begun.load(Ordering::Relaxed));
        tokio::time::sleep(SLICE).await;
        let effects = self.begun.load(Ordering::Relaxed) - before;
        self.rates
            .push(effects as f64 / begin.elapsed().as_secs_f64());
        stop.store(true, Ordering::Relaxed);
        all_of(tasks).await
    }

    /// Shuts the engine down; the median of its slices.
    pub(crate) async fn close(self) -> f64 {
        self.engine.shutdown().await;
        median(&self.rates)
    }
}

fn order(number: u64) -> Order {
    Order {
        number,
        customer: "a customer with a name of usual length".into(),
    }
}

/// One run at a time, in turn with the disk; the first turn only warms up.
async fn latency(engine: &Engine, runs: usize, beside: &mut Beside) -> Result<Sorted, Error> {
    let mut times = Vec::with_capacity(runs);
    for number in 0..runs + TURN {
        beside.syncs_in_turn(number)?;
        let begin = Instant::now();
        let order = order(number as u64);
        engine.start(FIVE, &order).await?.result().await?;
        if number >= TURN {
            times.push(begin.elapsed().as_secs_f64() * 1e6);
        }
    }
    Ok(Sorted::new(times))
}
