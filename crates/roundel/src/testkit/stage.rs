//! Processes that come and go over one database in memory. What is outside, the test's own client,
//! stays.
//!
//! Absent on purpose: what happens on the way between a process and the database; that is in
//! `way.rs`.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use roundel_core::{Op, Release, RunId, limits};
use roundel_store::{Answer, Clock, Memory, Query, Store};
use tokio::sync::Notify;

use super::clock::{IN_VAIN, VirtualClock};
use super::explore::Points;
use super::script::Hooks;
use super::way::{Gate, Way};
use crate::worker::Worker;
use crate::{Client, Engine, EngineBuilder};

pub(super) type App = Arc<dyn Fn(EngineBuilder) -> EngineBuilder + Send + Sync>;

/// A program whose start fails is started again after this long.
const RESTART: Duration = Duration::from_secs(1);
/// Starts that may fail one after the other.
const STARTS: u32 = 10;

/// When processes crash by themselves.
#[derive(Clone)]
pub(super) enum Crashes {
    /// Only when told to.
    Never,
    /// After each round of theirs that is committed.
    AfterEveryRound,
    /// As a schedule says; so many of them work at once.
    Explored(Arc<Points>, usize),
}

impl Crashes {
    pub(super) fn points(&self) -> Option<&Arc<Points>> {
        match self {
            Crashes::Explored(points, _) => Some(points),
            Crashes::Never | Crashes::AfterEveryRound => None,
        }
    }
}

pub(super) struct Stage {
    app: App,
    pub(super) memory: Arc<Memory>,
    pub(super) clock: Arc<VirtualClock>,
    pub(super) hooks: Arc<Hooks>,
    crashes: Crashes,
    crashed: Arc<Notify>,
    crash_count: AtomicU32,
    /// Processes that were ever up.
    count: AtomicU32,
    on: tokio::sync::Mutex<Vec<On>>,
    came_on: Notify,
}

/// A process that is on.
struct On {
    engine: Engine,
    gate: Arc<Gate>,
}

impl Stage {
    pub(super) fn new(
        app: App,
        (memory, clock, hooks): (Arc<Memory>, Arc<VirtualClock>, Arc<Hooks>),
        crashes: Crashes,
    ) -> Stage {
        if let Some(points) = crashes.points() {
            points.by(&clock);
            memory.inject(points.clone());
        }
        Stage {
            app,
            memory,
            clock,
            hooks,
            crashes,
            crashed: Arc::default(),
            crash_count: AtomicU32::new(0),
            count: AtomicU32::new(0),
            on: tokio::sync::Mutex::default(),
            came_on: Notify::new(),
        }
    }

    /// A client that is not part of any process.
    pub(super) async fn client(&self) -> Result<Engine, crate::Error> {
        let gate = Gate::outside(&self.memory, self.crashes.points());
        let builder = Engine::over(Arc::new(Way(gate)));
        (self.app)(builder)
            .without_workflows()
            .for_tests(IN_VAIN)
            .start()
            .await
    }

    pub(super) fn is_explored(&self) -> bool {
        self.crashes.points().is_some()
    }

    pub(super) fn crash_count(&self) -> u32 {
        self.crash_count.load(Ordering::Relaxed)
    }

    /// How long the leases of its processes last.
    pub(super) fn lease(&self) -> Duration {
        let on = self.on.try_lock();
        let worker = on.ok().and_then(|on| on.first()?.engine.worker().cloned());
        worker.map_or(Duration::from_secs(30), |worker| worker.config.lease)
    }

    /// All processes that are on crash, and others come on.
    pub(super) async fn crash(&self) -> Result<(), crate::Error> {
        for on in self.on.lock().await.iter() {
            on.gate.die();
        }
        self.fill().await
    }

    /// Waits until a process crashes, then starts another.
    pub(super) async fn supervise(&self) {
        loop {
            self.crashed.notified().await;
            if let Err(error) = self.fill().await {
                panic!("the application could not be started again: {error}");
            }
        }
    }

    /// A process comes on in the place of each that has crashed.
    pub(super) async fn fill(&self) -> Result<(), crate::Error> {
        let mut on = self.on.lock().await;
        let (dead, alive) = std::mem::take(&mut *on)
            .into_iter()
            .partition(|on: &On| on.gate.is_cut());
        *on = alive;
        let dead: Vec<On> = dead;
        for On { engine, .. } in dead {
            self.crash_count.fetch_add(1, Ordering::Relaxed);
            // By a schedule, leases end by time, as in life.
            if let Some(worker) = engine.worker().filter(|_| self.crashes.points().is_none()) {
                self.take_back(worker).await;
            }
        }
        let wanted = match self.crashes {
            Crashes::Explored(_, processes) => processes,
            Crashes::Never | Crashes::AfterEveryRound => 1,
        };
        while on.len() < wanted {
            let next = self.next().await?;
            on.push(next);
        }
        self.came_on.notify_waiters();
        Ok(())
    }

    /// A process comes on. One whose start fails is started again, as whatever looks after it
    /// would.
    async fn next(&self) -> Result<On, crate::Error> {
        let mut failed = 0;
        loop {
            let number = self.count.fetch_add(1, Ordering::Relaxed) + 1;
            let gate = Gate::inside(&self.memory, number, &self.crashes, &self.crashed);
            match self.start(&gate).await {
                Ok(engine) => return Ok(On { engine, gate }),
                Err(error) if self.crashes.points().is_none() || failed >= STARTS => {
                    return Err(error);
                }
                Err(_) => {
                    gate.die();
                    failed += 1;
                    self.crash_count.fetch_add(1, Ordering::Relaxed);
                    let at = self.clock.now().after(RESTART);
                    self.clock.sleep_until(at).await;
                }
            }
        }
    }

    async fn start(&self, gate: &Arc<Gate>) -> Result<Engine, crate::Error> {
        let builder = Engine::over(Arc::new(Way(gate.clone()))).hooks(self.hooks.clone());
        let mut builder = (self.app)(builder).for_tests(Duration::MAX);
        if self.crashes.points().is_none() {
            builder = builder.lease(limits::LEASE);
        }
        let engine = builder.start().await?;
        if let Some(worker) = engine.worker() {
            gate.serves(worker);
            let worker = Arc::downgrade(worker);
            tokio::spawn(renew(worker, gate.clone(), self.clock.clone()));
        }
        Ok(engine)
    }

    /// A client that is part of a process that is on, and the way it has to the database.
    pub(super) async fn inside(&self) -> (Client, Arc<Gate>) {
        loop {
            let came_on = self.came_on.notified();
            let on = self.on.lock().await;
            if let Some(alive) = on.iter().find(|on| !on.gate.is_cut()) {
                return (alive.engine.client(), alive.gate.clone());
            }
            drop(on);
            came_on.await;
        }
    }

    /// Gives back what a crashed worker had: its runs need not wait until their leases end.
    async fn take_back(&self, worker: &Worker) {
        let Ok(Answer::Dump(dump)) = self.memory.read(Query::Dump).await else {
            return;
        };
        let owned = |run: &&roundel_core::RunRow| run.owner == Some(worker.id);
        let runs: Vec<RunId> = dump.runs.iter().filter(owned).map(|run| run.id).collect();
        let release = Release {
            worker: worker.id,
            runs,
            leave: true,
        };
        let _ = roundel_store::ask(&*self.memory, Op::Release(release));
    }
}

/// Renews leases by virtual time, as long as the worker does something: a renewal counts.
async fn renew(worker: Weak<Worker>, gate: Arc<Gate>, clock: Arc<VirtualClock>) {
    loop {
        gate.used().await;
        let Some(lease) = worker.upgrade().map(|worker| worker.config.lease) else {
            return;
        };
        clock.sleep_until(clock.now().after(lease / 3)).await;
        let Some(worker) = worker.upgrade().filter(|worker| !worker.is_stopping()) else {
            return;
        };
        worker.renew();
    }
}
