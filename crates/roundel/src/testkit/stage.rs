//! Workers that come and go over one database in memory. What is outside, the test's own client,
//! stays.
//!
//! A worker's way to the database can be cut: nothing that it still does reaches the database, and
//! every answer is that it is closed. So a crash is exact: what was committed stays, all else is
//! gone.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use roundel_core::{Op, Release, RunId, limits};
use roundel_store::{
    Answer, Answered, Ask, Boxed, Clock, Error, Listener, Memory, Query, Request, Sink, Store,
};
use tokio::sync::Notify;

use super::clock::{IN_VAIN, VirtualClock};
use super::script::Hooks;
use crate::worker::Worker;
use crate::{Engine, EngineBuilder};

pub(super) type App = Arc<dyn Fn(EngineBuilder) -> EngineBuilder + Send + Sync>;

/// When workers crash by themselves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Crashes {
    /// Only when told to.
    Never,
    /// After each round of theirs that is committed.
    AfterEveryRound,
}

pub(super) struct Stage {
    pub(super) app: App,
    pub(super) memory: Arc<Memory>,
    pub(super) clock: Arc<VirtualClock>,
    pub(super) hooks: Arc<Hooks>,
    pub(super) crashes: Crashes,
    pub(super) crashed: Arc<Notify>,
    pub(super) crash_count: AtomicU32,
    on: tokio::sync::Mutex<Option<On>>,
}

/// The worker that is on.
struct On {
    engine: Engine,
    way: Arc<Way>,
}

impl Stage {
    pub(super) fn new(
        app: App,
        (memory, clock, hooks): (Arc<Memory>, Arc<VirtualClock>, Arc<Hooks>),
        crashes: Crashes,
    ) -> Stage {
        Stage {
            app,
            memory,
            clock,
            hooks,
            crashes,
            crashed: Arc::default(),
            crash_count: AtomicU32::new(0),
            on: tokio::sync::Mutex::default(),
        }
    }

    /// A client that is not part of any worker.
    pub(super) async fn client(&self) -> Result<Engine, crate::Error> {
        let builder = Engine::over(self.memory.clone());
        (self.app)(builder)
            .without_workflows()
            .for_tests(IN_VAIN)
            .start()
            .await
    }

    /// A worker comes on; the one before, if there was one, has crashed.
    pub(super) async fn next_worker(&self) -> Result<(), crate::Error> {
        let mut on = self.on.lock().await;
        if let Some(On { engine, way }) = on.take() {
            way.cut();
            self.crash_count.fetch_add(1, Ordering::Relaxed);
            if let Some(worker) = engine.worker() {
                self.take_back(worker).await;
            }
            drop(engine);
        }
        let way = Arc::new(Way {
            inner: self.memory.clone(),
            gate: Arc::new(Gate {
                cut: AtomicBool::new(false),
                crashes: self.crashes,
                crashed: self.crashed.clone(),
            }),
            used: Notify::new(),
        });
        let builder = Engine::over(way.clone()).hooks(self.hooks.clone());
        let engine = (self.app)(builder)
            .lease(limits::LEASE)
            .for_tests(Duration::MAX)
            .start()
            .await?;
        if let Some(worker) = engine.worker() {
            let worker = Arc::downgrade(worker);
            tokio::spawn(renew(worker, way.clone(), self.clock.clone()));
        }
        *on = Some(On { engine, way });
        Ok(())
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
async fn renew(worker: Weak<Worker>, way: Arc<Way>, clock: Arc<VirtualClock>) {
    loop {
        way.used.notified().await;
        clock
            .sleep_until(clock.now().after(limits::LEASE / 3))
            .await;
        let Some(worker) = worker.upgrade().filter(|worker| !worker.is_stopping()) else {
            return;
        };
        worker.renew();
    }
}

/// A worker's way to the database.
struct Way {
    inner: Arc<Memory>,
    gate: Arc<Gate>,
    used: Notify,
}

struct Gate {
    cut: AtomicBool,
    crashes: Crashes,
    crashed: Arc<Notify>,
}

impl Gate {
    fn is_cut(&self) -> bool {
        self.cut.load(Ordering::Acquire)
    }
}

impl Way {
    fn cut(&self) {
        self.gate.cut.store(true, Ordering::Release);
    }
}

/// Is this a round?
fn is_round(ask: &Ask) -> bool {
    matches!(ask, Ask::Op(Op::Commit(_)) | Ask::Work(_))
}

impl Store for Way {
    fn submit(&self, requests: Vec<Request>) {
        for Request { ask, tag, sink } in requests {
            if self.gate.is_cut() {
                let result = Err(Error::Closed);
                sink.deliver(vec![Answered { tag, result, ask }]);
                continue;
            }
            let dies = self.gate.crashes == Crashes::AfterEveryRound && is_round(&ask);
            let gate = self.gate.clone();
            let sink = Arc::new(Back { gate, dies, sink });
            self.inner.submit(vec![Request { ask, tag, sink }]);
        }
        self.used.notify_one();
    }

    fn read(&self, query: Query) -> Boxed<'_, Result<Answer, Error>> {
        if self.gate.is_cut() {
            return Box::pin(async { Err(Error::Closed) });
        }
        self.inner.read(query)
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        self.inner.clock()
    }

    fn listen(&self, listener: Arc<dyn Listener>) {
        let gate = self.gate.clone();
        self.inner.listen(Arc::new(Ear { gate, listener }));
    }

    fn watch_closely(&self, _closely: bool) {}

    /// The database is the stage's.
    fn close(&self) {}
}

/// The way back from the database.
struct Back {
    gate: Arc<Gate>,
    dies: bool,
    sink: Arc<dyn Sink>,
}

impl Sink for Back {
    fn deliver(&self, mut answers: Vec<Answered>) {
        let committed = answers.iter().any(|answer| answer.result.is_ok());
        if self.dies && committed && !self.gate.cut.swap(true, Ordering::AcqRel) {
            self.gate.crashed.notify_one();
        }
        if self.gate.is_cut() {
            for answer in &mut answers {
                answer.result = Err(Error::Closed);
            }
        }
        self.sink.deliver(answers);
    }
}

/// Hints go to the worker as long as it lives.
struct Ear {
    gate: Arc<Gate>,
    listener: Arc<dyn Listener>,
}

impl Listener for Ear {
    fn hints(&self, hints: Vec<roundel_core::Hint>) {
        if !self.gate.is_cut() {
            self.listener.hints(hints);
        }
    }

    fn others_committed(&self) {
        if !self.gate.is_cut() {
            self.listener.others_committed();
        }
    }
}
