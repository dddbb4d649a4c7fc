//! One play of a test under one schedule, from an empty database to its end; and what is checked
//! then, whatever the test itself checks.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use futures_util::FutureExt;
use roundel_core::{RunState, Timestamp};
use roundel_store::{Answer, Clock, Depth, Dump, Query, Store, Tx, verify};

use super::hush;
use super::points::{Law, Line, Points};
use super::schedule::{Places, Schedule};
use crate::EngineBuilder;
use crate::testkit::stage::{Crashes, Stage};
use crate::testkit::timeline::Timeline;
use crate::testkit::{Opening, TestKit, ids};

/// Runs whose timelines are told.
const SHOWN: usize = 4;
/// Leases that may pass until what is due has been taken up.
const LEASES: u32 = 4;

/// Where a play takes place: an empty database, on the way to which things go wrong.
#[derive(Clone)]
pub struct World {
    points: Arc<Points>,
    processes: usize,
    stage: Arc<Mutex<Option<Arc<Stage>>>>,
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World").finish_non_exhaustive()
    }
}

impl World {
    /// Opens the application, as [`TestKit::open`] does; but its processes crash, and their leases
    /// then end by time.
    pub fn open(
        &self,
        app: impl Fn(EngineBuilder) -> EngineBuilder + Send + Sync + 'static,
    ) -> Opening {
        let mut opening = TestKit::open(app);
        opening.crashes = Crashes::Explored(self.points.clone(), self.processes);
        opening.stage = Some(self.stage.clone());
        opening
    }

    /// From now on this holds after every commit: it looks at what steps have written, and says
    /// what is wrong, if something is. What it writes does not stay.
    pub fn always<L, Fut, E>(&self, name: impl Into<String>, law: L)
    where
        L: Fn(Tx) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>>,
        E: std::fmt::Display,
    {
        let holds = move |tx: Tx| {
            let looking = pin!(law(tx));
            match looking.poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(held) => held.map_err(|error| error.to_string()),
                Poll::Pending => Err("it awaited something other than its transaction".into()),
            }
        };
        let (name, holds) = (name.into(), Box::new(holds));
        self.points.always(Law { name, holds });
    }

    fn stage(&self) -> Option<Arc<Stage>> {
        let stage = self.stage.lock();
        stage.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What a test says in the end: nothing, or a result.
pub trait Verdict {
    /// As text, if something is wrong.
    ///
    /// # Errors
    /// When something is wrong.
    fn verdict(self) -> Result<(), String>;
}

impl Verdict for () {
    fn verdict(self) -> Result<(), String> {
        Ok(())
    }
}

impl<E: std::fmt::Display> Verdict for Result<(), E> {
    fn verdict(self) -> Result<(), String> {
        self.map_err(|error| error.to_string())
    }
}

/// What became of a play.
pub(super) struct Played {
    pub(super) schedule: Schedule,
    pub(super) verdict: Result<(), String>,
    pub(super) places: Places,
    pub(super) struck: u32,
    pub(super) crashes: u32,
    pub(super) lines: Vec<Line>,
    /// Runs that wait for an operator, and why.
    pub(super) parked: Vec<String>,
    pub(super) timelines: String,
}

/// Plays a test once.
pub(super) fn play<F, Fut>(scenario: &F, schedule: &Schedule, processes: usize) -> Played
where
    F: Fn(World) -> Fut,
    Fut: Future,
    Fut::Output: Verdict,
{
    let _ids = ids::count();
    let points = Points::new(schedule.clone());
    let world = World {
        points: points.clone(),
        processes,
        stage: Arc::default(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime with one thread");
    hush::said();
    let (verdict, dump) = runtime.block_on(async {
        let to_the_end = AssertUnwindSafe(to_the_end(scenario, &world)).catch_unwind();
        let verdict = to_the_end.await.unwrap_or_else(|_| Err(String::new()));
        let dump = match world.stage() {
            // What panicked may have left it in no state to be read.
            Some(stage) => AssertUnwindSafe(dump(&stage)).catch_unwind().await,
            None => Ok(Box::default()),
        };
        (verdict, dump.unwrap_or_default())
    });
    let verdict = verdict.map_err(|why| with_panics(why, hush::said()));
    let stage = world.stage();
    let crashes = stage.as_ref().map_or(0, |stage| stage.crash_count());
    // It is held by those who listen to it, and they by it.
    if let Some(stage) = stage {
        stage.memory.close();
    }
    drop(runtime);
    Played {
        schedule: schedule.clone(),
        timelines: if verdict.is_err() {
            timelines(&dump)
        } else {
            String::new()
        },
        verdict,
        places: points.places(),
        struck: points.struck(),
        crashes,
        lines: points.lines(),
        parked: parked(&dump),
    }
}

async fn to_the_end<F, Fut>(scenario: &F, world: &World) -> Result<(), String>
where
    F: Fn(World) -> Fut,
    Fut: Future,
    Fut::Output: Verdict,
{
    let playing = async { scenario(world.clone()).await.verdict() };
    tokio::select! {
        biased;
        why = world.points.broken() => return Err(why),
        verdict = playing => verdict?,
    }
    let Some(stage) = world.stage() else {
        return Err("the test opens nothing: begin with `world.open(app).await`".into());
    };
    let resting = async {
        come_to_rest(&stage).await?;
        all_is_sound(&stage).await
    };
    tokio::select! {
        biased;
        why = world.points.broken() => Err(why),
        rested = resting => rested,
    }
}

/// Why a play is broken, with what panicked on the way: the test itself, and code that it ran.
fn with_panics(why: String, mut panics: Vec<String>) -> String {
    let why = match why.is_empty() {
        true => panics.pop().unwrap_or_else(|| "it panicked".into()),
        false => why,
    };
    panics.dedup();
    let told = panics.iter().map(|panic| format!("\nbefore that, {panic}"));
    told.fold(why, |all, next| all + &next)
}

async fn dump(stage: &Stage) -> Box<Dump> {
    match stage.memory.read(Query::Dump).await {
        Ok(Answer::Dump(dump)) => dump,
        _ => Box::default(),
    }
}

/// Whatever is due is taken up, by whoever is left.
async fn come_to_rest(stage: &Stage) -> Result<(), String> {
    let lease = stage.lease();
    stage.clock.settle().await;
    let open = |dump: &Dump, until: Timestamp| {
        let due = |at: Option<Timestamp>| at.is_some_and(|at| at <= until);
        let stuck = dump
            .runs
            .iter()
            .find(|run| !run.state.has_ended() && due(run.ready_at));
        stuck.cloned()
    };
    for _ in 0..LEASES {
        let now = stage.clock.now();
        if open(&*dump(stage).await, now.after(lease)).is_none() {
            return Ok(());
        }
        stage.clock.sleep_until(now.after(lease)).await;
        stage.clock.settle().await;
    }
    let now = stage.clock.now();
    let dump = dump(stage).await;
    // What is due keeps moving on, unless nobody takes it up.
    let lease = i64::try_from(lease.as_micros()).unwrap_or(i64::MAX);
    match open(&dump, Timestamp(now.0.saturating_sub(lease))) {
        Some(run) => Err(format!("nobody takes up run {}, though it is due", run.id)),
        None => Ok(()),
    }
}

/// What must be true of all rows is true.
async fn all_is_sound(stage: &Stage) -> Result<(), String> {
    let mut found = Vec::new();
    let checked = verify(&*stage.memory, Depth::Entries, |_, violations| {
        found.extend(violations.iter().map(ToString::to_string));
    });
    checked.await.map_err(|error| error.to_string())?;
    if found.is_empty() {
        return Ok(());
    }
    Err(format!("what is stored is not sound: {}", found.join("; ")))
}

fn parked(dump: &Dump) -> Vec<String> {
    let parked = dump.runs.iter().filter(|run| run.state == RunState::Parked);
    parked
        .map(|run| match &run.outcome {
            Some(roundel_core::Outcome::Failure(reason)) => format!("run {}, {reason}", run.id),
            _ => format!("run {}", run.id),
        })
        .collect()
}

fn timelines(dump: &Dump) -> String {
    let runs = dump.runs.iter().filter_map(|run| Timeline::of(run, dump));
    let shown: Vec<String> = runs
        .take(SHOWN)
        .map(|timeline| timeline.to_string())
        .collect();
    let more = dump.runs.len().saturating_sub(SHOWN);
    match more {
        0 => shown.join("\n"),
        more => format!("{}\nand {more} more runs\n", shown.join("\n")),
    }
}
