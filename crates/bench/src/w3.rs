//! W3: fan-out. A parent starts a hundred children, each with one effect, and waits for all. One
//! parent at a time for latency; a few at once for throughput, counted in children.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use roundel::future::try_join_all;
use roundel::{Cx, Engine, EngineBuilder, Failure, Result as RunResult, Workflow};
use serde::Serialize;
use tokio::task::JoinSet;

use crate::beside::{self, WARM_UP};
use crate::ground::{Ground, Target};
use crate::helper::{self, Helper};
use crate::percentile::{Sorted, median};
use crate::process::Busy;
use crate::tasks::all_of;
use crate::{Error, Raw};

const PARENT: Workflow<u32, u64> = Workflow::named("bench-parent");
const CHILD: Workflow<u32, u64> = Workflow::named("bench-child");
/// Syncs of the disk, or round trips, between two parents.
const SYNCS: usize = 5;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where to measure.
    pub target: Target,
    /// Worker processes, this one among them; more than one on a server only.
    pub workers: usize,
    /// Children of one parent.
    pub children: u32,
    /// Parents one after the other in latency mode.
    pub parents: usize,
    /// Parents at once in throughput mode.
    pub in_flight: usize,
    /// How long throughput is measured.
    pub time: Duration,
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// Always `w3`.
    pub workload: &'static str,
    /// Worker processes.
    pub workers: usize,
    /// Children of one parent.
    pub children: u32,
    /// A parent alone, from its start until its end is known, in milliseconds: the median.
    pub p50_ms: f64,
    /// The slowest.
    pub max_ms: f64,
    /// Processors in use meanwhile, by whomever.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alone_processors: Option<f64>,
    /// Parents at once in throughput mode.
    pub in_flight: usize,
    /// Children that ended per second, in throughput mode.
    pub children_per_second: f64,
    /// The raw limit.
    #[serde(flatten)]
    pub raw: Raw,
    /// Children per second by the raw limit.
    pub ratio: f64,
}

async fn parent(cx: Cx, children: u32) -> RunResult<u64> {
    let children = (0..children).map(|number| cx.child(CHILD, &number));
    let answers = try_join_all(children).await?;
    Ok(answers.into_iter().sum())
}

async fn child(cx: Cx, number: u32) -> RunResult<u64> {
    let work = |_| async move { Ok::<_, Failure>(u64::from(number)) };
    cx.effect("work", work).await
}

pub(crate) fn register(engine: EngineBuilder) -> EngineBuilder {
    engine.register(PARENT, parent).register(CHILD, child)
}

/// An engine for parents and children, and processes that help.
pub(crate) struct Family {
    pub(crate) engine: Engine,
    helpers: Vec<Helper>,
}

impl Family {
    pub(crate) async fn open(engine: EngineBuilder) -> Result<Family, roundel::Error> {
        let engine = register(engine).start().await?;
        let helpers = Vec::new();
        Ok(Family { engine, helpers })
    }

    /// One parent alone, in milliseconds.
    pub(crate) async fn one(&self, children: u32) -> Result<f64, roundel::Error> {
        let begin = Instant::now();
        let mut run = self.engine.start(PARENT, &children).await?;
        run.result().await?;
        Ok(begin.elapsed().as_secs_f64() * 1e3)
    }

    /// Children per second, over a slice.
    async fn slice(&mut self, plan: &Plan) -> Result<f64, Error> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        for _ in 0..plan.in_flight {
            let (client, stop, children) = (self.engine.client(), stop.clone(), plan.children);
            tasks.spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    client.start(PARENT, &children).await?.result().await?;
                }
                Ok::<(), roundel::Error>(())
            });
        }
        tokio::time::sleep(WARM_UP).await;
        let rate = beside::rate(|| self.ended()).await?;
        stop.store(true, Ordering::Relaxed);
        all_of(tasks).await?;
        // Parents end too.
        let children = f64::from(plan.children);
        Ok(rate * children / (children + 1.0))
    }

    fn ended(&mut self) -> Result<f64, Error> {
        helper::ended(&self.engine, &mut self.helpers)
    }
}

/// Measures W3 as planned. `progress` is told what is being done.
///
/// # Errors
/// When the folder or the database cannot be used.
pub async fn measure(plan: &Plan, progress: &dyn Fn(&str)) -> Result<Figures, Error> {
    let work = async |ground: &Ground| on(ground, plan, progress).await;
    Ground::with(&plan.target, "w3", work).await
}

async fn on(ground: &Ground, plan: &Plan, progress: &dyn Fn(&str)) -> Result<Figures, Error> {
    let mut beside = ground.beside().await?;
    let mut family = Family::open(ground.engine("w3")).await?;
    family.helpers = helper::start(ground, plan.workers, ("w3", None))?;
    progress("one parent at a time");
    family.one(plan.children).await?;
    let (mut alone, mut busy) = (Vec::new(), Busy::default());
    for _ in 0..plan.parents {
        beside.syncs(SYNCS).await?;
        alone.push(busy.during(family.one(plan.children)).await?);
    }
    progress("parents in flight");
    let mut rates = Vec::new();
    family.slice(plan).await?;
    for _ in 0..beside::slices(plan.time) {
        beside.rows().await?;
        rates.push(family.slice(plan).await?);
    }
    family.engine.shutdown().await;
    let alone = Sorted::new(alone);
    let p50_ms = alone.percentile(50.0).unwrap_or(0.0);
    Ok(Figures {
        workload: "w3",
        workers: plan.workers.max(1),
        children: plan.children,
        p50_ms,
        max_ms: alone.percentile(100.0).unwrap_or(0.0),
        alone_processors: busy.processors(),
        in_flight: plan.in_flight,
        children_per_second: median(&rates),
        raw: beside.raw(Some(p50_ms * 1e3)),
        ratio: median(&rates) / beside.rows_per_second(),
    })
}
