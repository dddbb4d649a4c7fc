//! W1: runs of five trivial durable effects in a row. One at a time for latency; many in flight for
//! throughput; the raw limit in turn with both, so that every figure is also a ratio. A database
//! full of other runs takes its turns with one that is empty. Several worker processes share the
//! runs in flight: each starts its part.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use roundel::{Cx, Engine, EngineBuilder, Failure, Result as RunResult, Workflow};
use serde::{Deserialize, Serialize};

use crate::beside::{self, Beside, TURN, WARM_UP};
use crate::ground::{Ground, Target};
use crate::helper::{self, Helper};
use crate::others::{self, Others};
use crate::percentile::{Sorted, median};
use crate::process::{Busy, memory_mb};
use crate::tasks::all_of;
use crate::{Error, Raw};

const EFFECTS: u32 = 5;
/// Journal entries of a run: its start, a beginning and an end of each effect, its end.
pub(crate) const ENTRIES: u64 = 2 + 2 * EFFECTS as u64;
const FIVE: Workflow<Order, Receipt> = Workflow::named("bench-five");

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where to measure.
    pub target: Target,
    /// Worker processes, this one among them; more than one on a server only.
    pub workers: usize,
    /// Runs in flight in throughput mode.
    pub in_flight: usize,
    /// How long throughput is measured.
    pub time: Duration,
    /// Runs one after the other in latency mode.
    pub latency_runs: usize,
    /// Ended runs in the database beforehand.
    pub stored: u64,
    /// Sleeping runs beforehand.
    pub sleeping: u64,
}

/// What was measured. Latencies are of whole runs, in microseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// Always `w1`.
    pub workload: &'static str,
    /// Worker processes.
    pub workers: usize,
    /// Runs in flight in throughput mode.
    pub in_flight: usize,
    /// Durable effects per second.
    pub effects_per_second: f64,
    /// A run of five effects, alone: the median.
    pub p50_us: f64,
    /// The 99th percentile.
    pub p99_us: f64,
    /// Processors in use, by whomever, in throughput mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processors: Option<f64>,
    /// And in latency mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alone_processors: Option<f64>,
    /// The raw limit.
    #[serde(flatten)]
    pub raw: Raw,
    /// Effects per second by the raw limit.
    pub ratio: f64,
    /// Ended runs in the database beforehand.
    pub stored: u64,
    /// Sleeping runs beforehand.
    pub sleeping: u64,
    /// Effects per second in an empty database meanwhile, if the other is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effects_per_second_before: Option<f64>,
    /// Effects per second by those in the empty one.
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
    let work = async |ground: &Ground| on(ground, plan, progress).await;
    Ground::with(&plan.target, "w1", work).await
}

async fn on(ground: &Ground, plan: &Plan, progress: &dyn Fn(&str)) -> Result<Figures, Error> {
    let mut beside = ground.beside().await?;
    let mut plain = Place::open(ground.engine("w1")).await?;
    progress("one run at a time");
    let mut alone_busy = Busy::default();
    let turns = (&mut beside, &mut alone_busy);
    let alone = latency(&plain.engine, plan.latency_runs, turns).await?;
    plain.helpers = helper::start(ground, plan.workers, ("w1", None))?;
    let mut full = None;
    let mut added_memory_mb = None;
    if plan.stored + plan.sleeping > 0 {
        let mut place = Place::open(ground.engine("full")).await?;
        // What an engine at work holds in any case is not what the stored runs add.
        place.slice(plan.in_flight).await?;
        let memory = memory_mb();
        let others = Others {
            stored: plan.stored,
            sleeping: plan.sleeping,
        };
        let filled = others.put_into(&place.engine, Duration::MAX, progress);
        filled.await?;
        added_memory_mb = Some(memory_mb() - memory);
        full = Some(place);
    }
    progress("many runs in flight");
    for place in [Some(&mut plain), full.as_mut()].into_iter().flatten() {
        place.slice(plan.in_flight).await?;
        place.rates.clear();
    }
    let mut busy = Busy::default();
    for _ in 0..beside::slices(plan.time) {
        beside.rows().await?;
        for place in [Some(&mut plain), full.as_mut()].into_iter().flatten() {
            busy.during(place.slice(plan.in_flight)).await?;
        }
    }
    let empty_rate = plain.close().await;
    let (effects_per_second, before) = match full {
        Some(full) => (full.close().await, Some(empty_rate)),
        None => (empty_rate, None),
    };
    let p50_us = alone.percentile(50.0).unwrap_or(0.0);
    Ok(Figures {
        workload: "w1",
        workers: plan.workers.max(1),
        in_flight: plan.in_flight,
        effects_per_second,
        p50_us,
        p99_us: alone.percentile(99.0).unwrap_or(0.0),
        processors: busy.processors(),
        alone_processors: alone_busy.processors(),
        raw: beside.raw(Some(p50_us)),
        ratio: effects_per_second / beside.rows_per_second(),
        stored: plan.stored,
        sleeping: plan.sleeping,
        effects_per_second_before: before,
        ratio_to_before: before.map(|before| effects_per_second / before),
        added_memory_mb,
    })
}

/// A database with an engine on it, and how fast it was in each of its slices.
pub(crate) struct Place {
    pub(crate) engine: Engine,
    pub(crate) helpers: Vec<Helper>,
    begun: Arc<AtomicU64>,
    pub(crate) rates: Vec<f64>,
}

impl Place {
    pub(crate) async fn open(engine: EngineBuilder) -> Result<Place, roundel::Error> {
        Place::start(engine, nothing_else).await
    }

    /// An engine for W1, and for what else is registered.
    pub(crate) async fn start(
        engine: EngineBuilder,
        also: fn(EngineBuilder) -> EngineBuilder,
    ) -> Result<Place, roundel::Error> {
        let begun = Arc::new(AtomicU64::new(0));
        let counter = begun.clone();
        let engine = others::register(also(engine))
            .register(FIVE, move |cx, order| five(cx, order, counter.clone()));
        Ok(Place {
            engine: engine.start().await?,
            helpers: Vec::new(),
            begun,
            rates: Vec::new(),
        })
    }

    /// Keeps so many runs in flight for a slice, in all processes, and notes how many effects began
    /// in it.
    pub(crate) async fn slice(&mut self, in_flight: usize) -> Result<(), Error> {
        let part = in_flight.div_ceil(self.helpers.len() + 1);
        for helper in &mut self.helpers {
            helper.tell(&format!("slice {part}"))?;
        }
        let mut rate = self.own_slice(part).await?;
        for helper in &mut self.helpers {
            rate += helper.answer()?;
        }
        self.rates.push(rate);
        Ok(())
    }

    async fn own_slice(&self, in_flight: usize) -> Result<f64, Error> {
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
        let begun = || Ok(self.begun.load(Ordering::Relaxed) as f64);
        let rate = beside::rate(begun).await?;
        stop.store(true, Ordering::Relaxed);
        all_of(tasks).await?;
        Ok(rate)
    }

    /// So many runs, one at a time, in microseconds.
    pub(crate) async fn alone(&self, runs: usize) -> Result<Vec<f64>, Error> {
        some(&self.engine, 0..runs).await
    }

    /// Shuts the engine down; the median of its slices.
    pub(crate) async fn close(self) -> f64 {
        self.engine.shutdown().await;
        median(&self.rates)
    }
}

/// For engines that only do W1.
pub(crate) fn nothing_else(engine: EngineBuilder) -> EngineBuilder {
    engine
}

fn order(number: u64) -> Order {
    Order {
        number,
        customer: "a customer with a name of usual length".into(),
    }
}

/// One run alone, in microseconds.
async fn one(engine: &Engine, number: u64) -> Result<f64, Error> {
    let begin = Instant::now();
    let mut run = engine.start(FIVE, &order(number)).await?;
    run.result().await?;
    Ok(begin.elapsed().as_secs_f64() * 1e6)
}

/// One run at a time, in turn with the raw limit; the first turn only warms up.
async fn latency(
    engine: &Engine,
    runs: usize,
    (beside, busy): (&mut Beside, &mut Busy),
) -> Result<Sorted, Error> {
    let mut times = Vec::with_capacity(runs);
    for first in (0..runs + TURN).step_by(TURN) {
        beside.syncs(TURN).await?;
        let turn = first..(runs + TURN).min(first + TURN);
        let took = busy.during(some(engine, turn)).await?;
        if first > 0 {
            times.extend(took);
        }
    }
    Ok(Sorted::new(times))
}

async fn some(engine: &Engine, numbers: Range<usize>) -> Result<Vec<f64>, Error> {
    let mut times = Vec::with_capacity(numbers.len());
    for number in numbers {
        times.push(one(engine, number as u64).await?);
    }
    Ok(times)
}
