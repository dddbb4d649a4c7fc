//! W3: fan-out. A parent starts a hundred children, each with one effect, and waits for all. One
//! parent at a time for latency; a few at once for throughput, counted in children.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use roundel::future::try_join_all;
use roundel::{Cx, Engine, Failure, Result as RunResult, Workflow};
use serde::Serialize;
use tokio::task::JoinSet;

use crate::Error;
use crate::beside::{self, Beside, SLICE, WARM_UP};
use crate::percentile::{Sorted, median};
use crate::tasks::all_of;

const PARENT: Workflow<u32, u64> = Workflow::named("bench-parent");
const CHILD: Workflow<u32, u64> = Workflow::named("bench-child");
/// Syncs of the disk between two parents.
const SYNCS: usize = 5;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where the files go.
    pub dir: PathBuf,
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
    /// Children of one parent.
    pub children: u32,
    /// A parent alone, from its start until its end is known, in milliseconds: the median.
    pub p50_ms: f64,
    /// The slowest.
    pub max_ms: f64,
    /// The median, in syncs of the disk.
    pub p50_fdatasyncs: f64,
    /// Parents at once in throughput mode.
    pub in_flight: usize,
    /// Children that ended per second, in throughput mode.
    pub children_per_second: f64,
    /// The raw limit: rows per second in batches of a hundred.
    pub limit_rows_per_second: f64,
    /// Children per second by the raw limit.
    pub ratio: f64,
    /// Appending 4 KiB and syncing.
    pub fdatasync_p50_us: f64,
}

async fn parent(cx: Cx, children: u32) -> RunResult<u64> {
    let children = (0..children).map(|number| cx.child(CHILD, &number));
    let answers = try_join_all(children).await?;
    Ok(answers.into_iter().sum())
}

/// `begun` counts effects: a child has one.
async fn child(cx: Cx, number: u32, begun: Arc<AtomicU64>) -> RunResult<u64> {
    let work = |_| {
        begun.fetch_add(1, Ordering::Relaxed);
        async move { Ok::<_, Failure>(u64::from(number)) }
    };
    cx.effect("work", work).await
}

/// An engine for parents and children, and the count of children that have begun their work.
pub(crate) struct Family {
    pub(crate) engine: Engine,
    begun: Arc<AtomicU64>,
}

impl Family {
    pub(crate) async fn open(file: PathBuf) -> Result<Family, roundel::Error> {
        let begun = Arc::new(AtomicU64::new(0));
        let counter = begun.clone();
        let engine = Engine::open(file)
            .register(PARENT, parent)
            .register(CHILD, move |cx, number| child(cx, number, counter.clone()))
            .start()
            .await?;
        Ok(Family { engine, begun })
    }

    /// One parent alone, in milliseconds.
    pub(crate) async fn one(&self, children: u32) -> Result<f64, roundel::Error> {
        let begin = Instant::now();
        let mut run = self.engine.start(PARENT, &children).await?;
        run.result().await?;
        Ok(begin.elapsed().as_secs_f64() * 1e3)
    }

    /// Children per second, over a slice.
    async fn slice(&self, plan: &Plan) -> Result<f64, roundel::Error> {
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
        let (begin, before) = (Instant::now(), self.begun.load(Ordering::Relaxed));
        tokio::time::sleep(SLICE).await;
        let children = self.begun.load(Ordering::Relaxed) - before;
        let rate = children as f64 / begin.elapsed().as_secs_f64();
        stop.store(true, Ordering::Relaxed);
        all_of(tasks).await?;
        Ok(rate)
    }
}

/// Measures W3 as planned. `progress` is told what is being done.
///
/// # Errors
/// When the folder or the database cannot be used.
pub async fn measure(plan: &Plan, progress: &dyn Fn(&str)) -> Result<Figures, Error> {
    let folder = tempfile::Builder::new()
        .prefix("w3-")
        .tempdir_in(&plan.dir)?;
    let mut beside = Beside::open(folder.path())?;
    let family = Family::open(folder.path().join("w3.db")).await?;
    progress("one parent at a time");
    family.one(plan.children).await?;
    let mut alone = Vec::new();
    for _ in 0..plan.parents {
        beside.syncs(SYNCS)?;
        alone.push(family.one(plan.children).await?);
    }
    progress("parents in flight");
    let mut rates = Vec::new();
    family.slice(plan).await?;
    for _ in 0..beside::slices(plan.time) {
        beside.rows()?;
        rates.push(family.slice(plan).await?);
    }
    family.engine.shutdown().await;
    let alone = Sorted::new(alone);
    let p50_ms = alone.percentile(50.0).unwrap_or(0.0);
    Ok(Figures {
        workload: "w3",
        children: plan.children,
        p50_ms,
        max_ms: alone.percentile(100.0).unwrap_or(0.0),
        p50_fdatasyncs: p50_ms * 1e3 / beside.fdatasync_p50_us(),
        in_flight: plan.in_flight,
        children_per_second: median(&rates),
        limit_rows_per_second: beside.rows_per_second(),
        ratio: median(&rates) / beside.rows_per_second(),
        fdatasync_p50_us: beside.fdatasync_p50_us(),
    })
}
