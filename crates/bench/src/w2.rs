//! W2: a queue of small jobs. A job is a command; many senders send them one by one, each send
//! answered when it is durable, while the engine works on a few at a time. Counted from the first
//! send until the last job has ended. One job alone gives the latency. If asked for, queues with
//! limits that are never reached take turns with those without; and so do queues whose handler
//! takes many jobs in one call. Senders can also send many in one call.

use std::time::{Duration, Instant};

use roundel::{Attempt, Client, Command, Engine, EngineBuilder, Failure};
use serde::Serialize;
use tokio::task::JoinSet;

use crate::beside::{Beside, TURN};
use crate::ground::{Ground, Target};
use crate::helper::{self, Helper};
use crate::percentile::{Sorted, median};
use crate::process::Busy;
use crate::tasks::all_of;
use crate::{Error, Raw};

const JOB: Command<String, u64> = Command::named("bench-job");
const LIMITED: Command<String, u64> = Command::named("bench-limited-job");
const MANY: Command<String, u64> = Command::named("bench-many-jobs");
/// At once, and in a second; more than any machine does.
const MOST: u32 = 1_000_000;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where to measure.
    pub target: Target,
    /// Worker processes, this one among them; more than one on a server only.
    pub workers: usize,
    /// Jobs in one queue.
    pub jobs: usize,
    /// Senders at once.
    pub senders: usize,
    /// Jobs that a sender sends in one call.
    pub send_many: usize,
    /// Jobs worked on at once, by each process.
    pub concurrency: usize,
    /// Queues, one after the other, in turn with the raw limit.
    pub turns: usize,
    /// Jobs one after the other in latency mode.
    pub latency_runs: usize,
    /// Whether queues with limits take turns with those without.
    pub limited: bool,
    /// Whether queues whose handler takes many jobs take turns with the others: so many at most in
    /// one call, and as many calls at once as there are jobs elsewhere, in this process.
    pub many: Option<usize>,
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// Always `w2`.
    pub workload: &'static str,
    /// Worker processes.
    pub workers: usize,
    /// Jobs in one queue.
    pub jobs: usize,
    /// Senders at once.
    pub senders: usize,
    /// Jobs that a sender sends in one call.
    pub send_many: usize,
    /// Jobs worked on at once, by each process.
    pub concurrency: usize,
    /// From the first send until the last job has ended.
    pub jobs_per_second: f64,
    /// From the first send until the last is answered.
    pub sends_per_second: f64,
    /// A job alone, from its send until its end is known: the median.
    pub p50_us: f64,
    /// The 99th percentile.
    pub p99_us: f64,
    /// Processors in use meanwhile, by whomever.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processors: Option<f64>,
    /// The raw limit.
    #[serde(flatten)]
    pub raw: Raw,
    /// Jobs per second by the raw limit.
    pub ratio: f64,
    /// From the first send until the last job has ended, in a queue with limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limited_jobs_per_second: Option<f64>,
    /// The same by that of the queue without, which had its turn just before: the median.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limited_ratio: Option<f64>,
    /// From the first send until the last job has ended, where a handler takes many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub many_jobs_per_second: Option<f64>,
    /// Processors in use meanwhile, by whomever.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub many_processors: Option<f64>,
    /// The same by the raw limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub many_ratio: Option<f64>,
}

async fn job(_: Attempt, payload: String) -> Result<u64, Failure> {
    Ok(payload.len() as u64)
}

pub(crate) fn register(engine: EngineBuilder) -> EngineBuilder {
    engine.handle(JOB, job).handle(LIMITED, job)
}

async fn jobs(jobs: Vec<(Attempt, String)>) -> Vec<Result<u64, Failure>> {
    let answers = jobs.iter().map(|(_, payload)| Ok(payload.len() as u64));
    answers.collect()
}

/// A process beside, in which a handler takes many jobs in one call.
async fn many(ground: &Ground, plan: &Plan) -> Result<Option<Workers>, Error> {
    let Some(most) = plan.many else {
        return Ok(None);
    };
    let engine = ground.engine("w2_many").handle_many(MANY, most, jobs);
    let engine = engine.concurrency(plan.concurrency * most);
    Ok(Some(Workers {
        engine: engine.start().await?,
        helpers: Vec::new(),
    }))
}

fn payload() -> String {
    "a job of the usual size ".repeat(4)
}

/// Measures W2 as planned. `progress` is told what is being done.
///
/// # Errors
/// When the folder or the database cannot be used.
pub async fn measure(plan: &Plan, progress: &dyn Fn(&str)) -> Result<Figures, Error> {
    let work = async |ground: &Ground| on(ground, plan, progress).await;
    Ground::with(&plan.target, "w2", work).await
}

async fn on(ground: &Ground, plan: &Plan, progress: &dyn Fn(&str)) -> Result<Figures, Error> {
    let mut beside = ground.beside().await?;
    let engine = register(ground.engine("w2")).concurrency(plan.concurrency);
    let engine = engine.start().await?;
    progress("one job at a time");
    let alone = latency(&engine, plan.latency_runs, &mut beside).await?;
    let role = ("w2", Some(plan.concurrency));
    let mut workers = Workers {
        helpers: helper::start(ground, plan.workers, role)?,
        engine,
    };
    progress("queues of jobs");
    let (mut ended, mut sent) = (Vec::new(), Vec::new());
    let (mut limited, mut ratios, mut by_many) = (Vec::new(), Vec::new(), Vec::new());
    let (mut busy, mut busy_by_many) = (Busy::default(), Busy::default());
    let mut many = many(ground, plan).await?;
    workers.queue(plan, JOB).await?;
    if plan.limited {
        workers.limit().await?;
        workers.queue(plan, LIMITED).await?;
    }
    for _ in 0..plan.turns {
        beside.rows().await?;
        let queue = busy.during(workers.queue(plan, JOB)).await?;
        let per_second = |time: Duration| plan.jobs as f64 / time.as_secs_f64();
        sent.push(per_second(queue.sent));
        ended.push(per_second(queue.ended));
        if plan.limited {
            let under_limits = workers.queue(plan, LIMITED).await?.ended;
            limited.push(per_second(under_limits));
            ratios.push(per_second(under_limits) / per_second(queue.ended));
        }
        if let Some(many) = &mut many {
            let queue = busy_by_many.during(many.queue(plan, MANY)).await?;
            by_many.push(per_second(queue.ended));
        }
    }
    workers.engine.shutdown().await;
    if let Some(many) = many {
        many.engine.shutdown().await;
    }
    let p50_us = alone.percentile(50.0).unwrap_or(0.0);
    Ok(Figures {
        workload: "w2",
        workers: plan.workers.max(1),
        jobs: plan.jobs,
        senders: plan.senders,
        send_many: plan.send_many,
        concurrency: plan.concurrency,
        jobs_per_second: median(&ended),
        sends_per_second: median(&sent),
        p50_us,
        p99_us: alone.percentile(99.0).unwrap_or(0.0),
        processors: busy.processors(),
        raw: beside.raw(Some(p50_us)),
        ratio: median(&ended) / beside.rows_per_second(),
        limited_jobs_per_second: plan.limited.then(|| median(&limited)),
        limited_ratio: plan.limited.then(|| median(&ratios)),
        many_jobs_per_second: plan.many.map(|_| median(&by_many)),
        many_processors: busy_by_many.processors(),
        many_ratio: plan
            .many
            .map(|_| median(&by_many) / beside.rows_per_second()),
    })
}

/// How long a queue took, from its first send.
struct Queue {
    sent: Duration,
    ended: Duration,
}

/// All processes.
struct Workers {
    engine: Engine,
    helpers: Vec<Helper>,
}

impl Workers {
    /// Limits that are never reached.
    async fn limit(&self) -> Result<(), Error> {
        let queue = self.engine.client().queue(LIMITED).concurrency(MOST);
        queue.rate(MOST, Duration::from_secs(1)).set().await?;
        Ok(())
    }

    async fn queue(&mut self, plan: &Plan, job: Command<String, u64>) -> Result<Queue, Error> {
        let goal = helper::ended(&self.engine, &mut self.helpers)? + plan.jobs as f64;
        let begin = Instant::now();
        let mut senders = JoinSet::new();
        for first in 0..plan.senders {
            let client = self.engine.client();
            let mine = (first..plan.jobs).step_by(plan.senders).len();
            senders.spawn(send(client, job, (mine, plan.send_many)));
        }
        all_of(senders).await?;
        let sent = begin.elapsed();
        while helper::ended(&self.engine, &mut self.helpers)? < goal {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let ended = begin.elapsed();
        Ok(Queue { sent, ended })
    }
}

/// Sends so many, so many of them in one call.
async fn send(
    client: Client,
    job: Command<String, u64>,
    (mut jobs, many): (usize, usize),
) -> Result<(), roundel::Error> {
    while jobs > 0 {
        if many <= 1 {
            client.send(job, &payload()).await?;
            jobs -= 1;
            continue;
        }
        let part = (0..jobs.min(many)).map(|_| client.send(job, &payload()));
        for sent in client.start_all(part).await {
            sent?;
            jobs -= 1;
        }
    }
    Ok(())
}

/// One job at a time, in turn with the raw limit; the first turn only warms up.
async fn latency(engine: &Engine, runs: usize, beside: &mut Beside) -> Result<Sorted, Error> {
    let mut times = Vec::with_capacity(runs);
    for number in 0..runs + TURN {
        beside.syncs_in_turn(number).await?;
        let begin = Instant::now();
        engine.send(JOB, &payload()).await?.result().await?;
        if number >= TURN {
            times.push(begin.elapsed().as_secs_f64() * 1e6);
        }
    }
    Ok(Sorted::new(times))
}
