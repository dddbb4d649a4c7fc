//! W5: cooperation. What publishing to three subscribers costs against three plain child runs, what
//! rolling a tree back costs against running it, how long ten thousand children of one call take
//! to wake their parent, and whether a hundred thousand parents that wait change anything for one
//! that becomes ready. What is compared takes turns in the same process.

use std::time::{Duration, Instant};

use roundel::{
    Cx, Engine, EngineBuilder, Failure, Result as RunResult, RunState, Topic, Tx, Workflow, future,
};
use serde::Serialize;
use tokio::task::JoinSet;

use crate::ground::{Ground, Target};
use crate::helper;
use crate::percentile::{Sorted, median};
use crate::tasks::all_of;
use crate::{Error, Raw};

const CHILDREN: Workflow<u64, u64> = Workflow::named("bench-children");
const PUBLISHES: Workflow<u64, u64> = Workflow::named("bench-publishes");
const ONE: Workflow<u64, u64> = Workflow::named("bench-one");
const TWO: Workflow<u64, u64> = Workflow::named("bench-two");
const THREE: Workflow<u64, u64> = Workflow::named("bench-three");
const TREE: Workflow<bool, u64> = Workflow::named("bench-tree");
const LEAF: Workflow<u64, u64> = Workflow::named("bench-leaf");
const MANY: Workflow<u64, u64> = Workflow::named("bench-many");
const WAITS: Workflow<u64, u64> = Workflow::named("bench-waits");
const SLEEPS: Workflow<u64, u64> = Workflow::named("bench-sleeps");
const PLACED: Topic<u64> = Topic::named("bench-placed");

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where to measure.
    pub target: Target,
    /// Worker processes, this one among them; more than one on a server only.
    pub workers: usize,
    /// Parents in one turn.
    pub parents: usize,
    /// Turns of each kind.
    pub turns: usize,
    /// Children of one call.
    pub fan_in: u64,
    /// Parents that wait meanwhile.
    pub waiting: u64,
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// Always `w5`.
    pub workload: &'static str,
    /// Worker processes.
    pub workers: usize,
    /// The raw limit.
    #[serde(flatten)]
    pub raw: Raw,
    /// Runs that end per second while parents have three children, by the raw limit.
    pub ratio: f64,
    /// Parents in one turn.
    pub parents: usize,
    /// Parents with three child runs each, per second.
    pub children_per_second: f64,
    /// Parents that publish to three subscribers, per second.
    pub publishes_per_second: f64,
    /// What publishing costs, by what three plain child runs do.
    pub publish_cost: f64,
    /// Trees that complete, per second.
    pub trees_per_second: f64,
    /// Completed trees that are undone, per second.
    pub rollbacks_per_second: f64,
    /// What undoing a tree costs, by what running it did.
    pub rollback_cost: f64,
    /// Children of one call.
    pub fan_in: u64,
    /// From the start of their parent until its end is known, in seconds.
    pub fan_in_seconds: f64,
    /// A parent of one child, alone: the median, in microseconds.
    pub alone_p50_us: f64,
    /// The same while these many parents wait.
    pub waiting: u64,
    /// The median then.
    pub among_waiting_p50_us: f64,
    /// The second by the first.
    pub waiting_cost: f64,
}

async fn leaf(cx: Cx, of: u64) -> RunResult<u64> {
    cx.effect("handle", |_| async move { Ok::<_, Failure>(of) })
        .await
}

async fn children(cx: Cx, of: u64) -> RunResult<u64> {
    let (one, two, three) =
        future::join3(cx.child(ONE, &of), cx.child(TWO, &of), cx.child(THREE, &of)).await;
    Ok(one? + two? + three?)
}

async fn publishes(cx: Cx, of: u64) -> RunResult<u64> {
    let ended = cx.publish(PLACED, &of).await?;
    ended.iter().map(|end| end.output::<u64>()).sum()
}

/// A step that can be undone.
async fn undoable(cx: &Cx, name: &'static str) -> RunResult<u64> {
    let step = cx.step(name, |_: Tx| async { Ok::<_, Failure>(7) });
    step.undo(|_: Tx, _: u64| async { Ok::<_, Failure>(()) })
        .await
}

async fn tree(cx: Cx, _: bool) -> RunResult<u64> {
    undoable(&cx, "first").await?;
    cx.children(LEAF, &[1, 2, 3]).await?;
    undoable(&cx, "second").await
}

async fn undoable_leaf(cx: Cx, _: u64) -> RunResult<u64> {
    undoable(&cx, "leaf").await
}

async fn many(cx: Cx, count: u64) -> RunResult<u64> {
    let inputs: Vec<u64> = (0..count).collect();
    Ok(cx.children(ONE, &inputs).await?.len() as u64)
}

async fn waits(cx: Cx, of: u64) -> RunResult<u64> {
    Ok(cx.children(SLEEPS, &[of]).await?.len() as u64)
}

async fn sleeps(cx: Cx, of: u64) -> RunResult<u64> {
    cx.sleep(Duration::from_secs(86_400)).await;
    Ok(of)
}

/// Measures W5 as planned. `progress` is told what is being done.
///
/// # Errors
/// When the folder or the database cannot be used.
pub async fn measure(plan: &Plan, progress: &dyn Fn(&str)) -> Result<Figures, Error> {
    let work = async |ground: &Ground| on(ground, plan, progress).await;
    Ground::with(&plan.target, "w5", work).await
}

async fn on(ground: &Ground, plan: &Plan, progress: &dyn Fn(&str)) -> Result<Figures, Error> {
    let mut beside = ground.beside().await?;
    let engine = register(ground.engine("w5")).start().await?;
    let _helpers = helper::start(ground, plan.workers, ("w5", None))?;
    progress("three children, and three subscribers, in turn");
    let (mut plain, mut published) = (Vec::new(), Vec::new());
    for turn in 0..=plan.turns {
        beside.rows().await?;
        let (one, other) = (
            rate(&engine, CHILDREN, &1, plan.parents).await?.0,
            rate(&engine, PUBLISHES, &1, plan.parents).await?.0,
        );
        if turn > 0 {
            plain.push(one);
            published.push(other);
        }
    }
    progress("trees, and their rollback, in turn");
    let (mut trees, mut rollbacks) = (Vec::new(), Vec::new());
    for turn in 0..=plan.turns {
        let (forward, runs) = rate(&engine, TREE, &true, plan.parents).await?;
        let back = undo(&engine, &runs).await?;
        if turn > 0 {
            trees.push(forward);
            rollbacks.push(back);
        }
    }
    progress("many children of one call");
    let mut fan_in = Vec::new();
    for _ in 0..3 {
        let begin = Instant::now();
        engine.start(MANY, &plan.fan_in).await?.result().await?;
        fan_in.push(begin.elapsed().as_secs_f64());
    }
    progress("parents that wait");
    let alone = latency(&engine).await?;
    rest(&engine, plan.waiting).await?;
    let among = latency(&engine).await?;
    engine.shutdown().await;
    let (alone, among) = (
        alone.percentile(50.0).unwrap_or(0.0),
        among.percentile(50.0).unwrap_or(0.0),
    );
    Ok(Figures {
        workload: "w5",
        workers: plan.workers.max(1),
        raw: beside.raw(None),
        ratio: 4.0 * median(&plain) / beside.rows_per_second(),
        parents: plan.parents,
        children_per_second: median(&plain),
        publishes_per_second: median(&published),
        publish_cost: median(&plain) / median(&published),
        trees_per_second: median(&trees),
        rollbacks_per_second: median(&rollbacks),
        rollback_cost: median(&trees) / median(&rollbacks),
        fan_in: plan.fan_in,
        fan_in_seconds: median(&fan_in),
        alone_p50_us: alone,
        waiting: plan.waiting,
        among_waiting_p50_us: among,
        waiting_cost: among / alone,
    })
}

pub(crate) fn register(engine: EngineBuilder) -> EngineBuilder {
    engine
        .register(CHILDREN, children)
        .register(PUBLISHES, publishes)
        .register(ONE, leaf)
        .register(TWO, leaf)
        .register(THREE, leaf)
        .register(TREE, tree)
        .register(LEAF, undoable_leaf)
        .register(MANY, many)
        .register(WAITS, waits)
        .register(SLEEPS, sleeps)
        .subscribe(PLACED, ONE)
        .subscribe(PLACED, TWO)
        .subscribe(PLACED, THREE)
}

/// Starts so many at once and waits for all; returns how many ended per second, and which.
async fn rate<I>(
    engine: &Engine,
    workflow: Workflow<I, u64>,
    input: &I,
    count: usize,
) -> Result<(f64, Vec<roundel::RunId>), Error>
where
    I: Serialize + Copy + Send + Sync + 'static,
{
    let begin = Instant::now();
    let mut runs = JoinSet::new();
    let ids = std::sync::Arc::new(std::sync::Mutex::new(Vec::with_capacity(count)));
    for _ in 0..count {
        let (client, input, ids) = (engine.client(), *input, ids.clone());
        runs.spawn(async move {
            let mut run = client.start(workflow, &input).await?;
            run.result().await?;
            ids.lock().expect("no panic").push(run.id());
            Ok::<(), roundel::Error>(())
        });
    }
    all_of(runs).await?;
    let rate = count as f64 / begin.elapsed().as_secs_f64();
    let ids = std::mem::take(&mut *ids.lock().expect("no panic"));
    Ok((rate, ids))
}

/// Undoes these trees, and waits for all.
async fn undo(engine: &Engine, runs: &[roundel::RunId]) -> Result<f64, Error> {
    let begin = Instant::now();
    let mut undone = JoinSet::new();
    for run in runs {
        let (client, run) = (engine.client(), *run);
        undone.spawn(async move {
            client.undo(run).await?;
            // What was undone ends with a failure that says so.
            let _ = client.handle(TREE, run).await?.result().await;
            Ok::<(), roundel::Error>(())
        });
    }
    all_of(undone).await?;
    let rate = runs.len() as f64 / begin.elapsed().as_secs_f64();
    if let Some(run) = runs.first() {
        let state = engine.run(*run).await?.row.state;
        assert_eq!(state, RunState::RolledBack, "a tree that was undone");
    }
    Ok(rate)
}

/// A parent with one child, one at a time.
async fn latency(engine: &Engine) -> Result<Sorted, Error> {
    let mut times = Vec::new();
    for number in 0..220 {
        let begin = Instant::now();
        engine.start(MANY, &1).await?.result().await?;
        if number >= 20 {
            times.push(begin.elapsed().as_secs_f64() * 1e6);
        }
    }
    Ok(Sorted::new(times))
}

/// Lets so many parents wait for a child that sleeps.
async fn rest(engine: &Engine, count: u64) -> Result<(), Error> {
    let mut starts = JoinSet::new();
    for first in 0..64 {
        let client = engine.client();
        starts.spawn(async move {
            for of in (first..count).step_by(64) {
                client.start(WAITS, &of).await?;
            }
            Ok::<(), roundel::Error>(())
        });
    }
    all_of(starts).await?;
    let waiting = |stats: &roundel::Stats| {
        let waits = |run: &&(roundel::Name, u32, RunState, u64)| run.2 == RunState::Waiting;
        stats
            .runs
            .iter()
            .filter(waits)
            .map(|run| run.3)
            .sum::<u64>()
    };
    while waiting(&engine.stats().await?) < count * 2 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}
