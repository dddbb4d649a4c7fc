//! W2: a queue of small jobs. A job is a run with one effect; many senders start them one by one,
//! each start answered when it is durable, while the engine works on a few at a time. Counted from
//! the first send until the last job has ended. One job alone gives the latency.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use roundel::{Cx, Engine, Failure, Result as RunResult, Workflow};
use serde::Serialize;
use tokio::task::JoinSet;

use crate::Error;
use crate::beside::{Beside, TURN};
use crate::percentile::{Sorted, median};
use crate::tasks::all_of;

const JOB: Workflow<String, u64> = Workflow::named("bench-job");

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where the files go.
    pub dir: PathBuf,
    /// Jobs in one queue.
    pub jobs: usize,
    /// Senders at once.
    pub senders: usize,
    /// Jobs worked on at once.
    pub concurrency: usize,
    /// Queues, one after the other, in turn with the raw limit.
    pub turns: usize,
    /// Jobs one after the other in latency mode.
    pub latency_runs: usize,
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// Always `w2`.
    pub workload: &'static str,
    /// Jobs in one queue.
    pub jobs: usize,
    /// Senders at once.
    pub senders: usize,
    /// Jobs worked on at once.
    pub concurrency: usize,
    /// From the first send until the last job has ended.
    pub jobs_per_second: f64,
    /// From the first send until the last is answered.
    pub sends_per_second: f64,
    /// A job alone, from its send until its end is known: the median.
    pub p50_us: f64,
    /// The 99th percentile.
    pub p99_us: f64,
    /// The raw limit: rows per second in batches of a hundred.
    pub limit_rows_per_second: f64,
    /// Jobs per second by the raw limit.
    pub ratio: f64,
    /// Appending 4 KiB and syncing.
    pub fdatasync_p50_us: f64,
}

async fn job(cx: Cx, payload: String) -> RunResult<u64> {
    let length = payload.len() as u64;
    cx.effect("handle", |_| async move { Ok::<_, Failure>(length) })
        .await
}

fn payload() -> String {
    "a job of the usual size ".repeat(4)
}

/// Measures W2 as planned. `progress` is told what is being done.
///
/// # Errors
/// When the folder or the database cannot be used.
pub async fn measure(plan: &Plan, progress: &dyn Fn(&str)) -> Result<Figures, Error> {
    let folder = tempfile::Builder::new()
        .prefix("w2-")
        .tempdir_in(&plan.dir)?;
    let mut beside = Beside::open(folder.path())?;
    let engine = Engine::open(folder.path().join("w2.db"))
        .register(JOB, job)
        .concurrency(plan.concurrency)
        .start()
        .await?;
    progress("one job at a time");
    let alone = latency(&engine, plan.latency_runs, &mut beside).await?;
    progress("queues of jobs");
    let (mut ended, mut sent) = (Vec::new(), Vec::new());
    queue(&engine, plan).await?;
    for _ in 0..plan.turns {
        beside.rows()?;
        let queue = queue(&engine, plan).await?;
        let per_second = |time: Duration| plan.jobs as f64 / time.as_secs_f64();
        sent.push(per_second(queue.sent));
        ended.push(per_second(queue.ended));
    }
    engine.shutdown().await;
    Ok(Figures {
        workload: "w2",
        jobs: plan.jobs,
        senders: plan.senders,
        concurrency: plan.concurrency,
        jobs_per_second: median(&ended),
        sends_per_second: median(&sent),
        p50_us: alone.percentile(50.0).unwrap_or(0.0),
        p99_us: alone.percentile(99.0).unwrap_or(0.0),
        limit_rows_per_second: beside.rows_per_second(),
        ratio: median(&ended) / beside.rows_per_second(),
        fdatasync_p50_us: beside.fdatasync_p50_us(),
    })
}

/// How long a queue took, from its first send.
struct Queue {
    sent: Duration,
    ended: Duration,
}

async fn queue(engine: &Engine, plan: &Plan) -> Result<Queue, Error> {
    let goal = engine.metrics().runs_completed + plan.jobs as u64;
    let begin = Instant::now();
    let mut senders = JoinSet::new();
    for first in 0..plan.senders {
        let client = engine.client();
        let mine = (first..plan.jobs).step_by(plan.senders);
        senders.spawn(async move {
            for _ in mine {
                client.start(JOB, &payload()).await?;
            }
            Ok::<(), roundel::Error>(())
        });
    }
    all_of(senders).await?;
    let sent = begin.elapsed();
    while engine.metrics().runs_completed < goal {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let ended = begin.elapsed();
    Ok(Queue { sent, ended })
}

/// One job at a time, in turn with the disk; the first turn only warms up.
async fn latency(engine: &Engine, runs: usize, beside: &mut Beside) -> Result<Sorted, Error> {
    let mut times = Vec::with_capacity(runs);
    for number in 0..runs + TURN {
        beside.syncs_in_turn(number)?;
        let begin = Instant::now();
        engine.start(JOB, &payload()).await?.result().await?;
        if number >= TURN {
            times.push(begin.elapsed().as_secs_f64() * 1e6);
        }
    }
    Ok(Sorted::new(times))
}
