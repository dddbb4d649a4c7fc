//! The way between a process and the database, on which things go wrong.
//!
//! It can be cut: nothing that a process still does reaches the database, every answer is that it
//! is closed, and what it had in memory is let go at once. So a crash is exact: what was committed
//! stays, all else is gone.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use roundel_core::{Hint, Op};
use roundel_store::{
    Answer, Answered, Ask, Boxed, Clock, Error, Listener, Memory, Query, Request, Sink, Store,
};
use tokio::sync::Notify;

use super::explore::{Kind, Points};
use super::stage::Crashes;
use crate::worker::Worker;

/// An answer that comes late comes this much later: after those to all requests meanwhile.
const LATE: Duration = Duration::from_millis(20);
/// What a lost hint was about is found this much later.
const SWEEP: Duration = Duration::from_secs(30);
/// How many leases a process stands still for.
const STALL: u32 = 2;

pub(super) struct Gate {
    memory: Arc<Memory>,
    /// The number of the process; 0 is outside of all.
    process: u32,
    crashes: Crashes,
    crashed: Arc<Notify>,
    cut: AtomicBool,
    /// Told when it is cut.
    dead: Notify,
    used: Notify,
    worker: OnceLock<Weak<Worker>>,
    /// What waits while the process stands still.
    held: Mutex<Option<Vec<Request>>>,
}

/// A process's way to the database.
pub(super) struct Way(pub(super) Arc<Gate>);

impl Gate {
    /// Of somebody who is no process: nothing goes wrong.
    pub(super) fn outside(memory: &Arc<Memory>, points: Option<&Arc<Points>>) -> Arc<Gate> {
        let crashes = match points {
            Some(points) => Crashes::Explored(points.clone(), 0),
            None => Crashes::Never,
        };
        Gate::inside(memory, 0, &crashes, &Arc::default())
    }

    pub(super) fn inside(
        memory: &Arc<Memory>,
        process: u32,
        crashes: &Crashes,
        crashed: &Arc<Notify>,
    ) -> Arc<Gate> {
        Arc::new(Gate {
            memory: memory.clone(),
            process,
            crashes: crashes.clone(),
            crashed: crashed.clone(),
            cut: AtomicBool::new(false),
            dead: Notify::new(),
            used: Notify::new(),
            worker: OnceLock::new(),
            held: Mutex::default(),
        })
    }

    /// The process has this worker now.
    pub(super) fn serves(&self, worker: &Arc<Worker>) {
        let _ = self.worker.set(Arc::downgrade(worker));
        if let Some(points) = self.crashes.points() {
            points.up(self.process);
        }
    }

    pub(super) fn is_cut(&self) -> bool {
        self.cut.load(Ordering::Acquire)
    }

    /// The process crashes, here and now.
    pub(super) fn die(&self) {
        if self.cut.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Some(worker) = self.worker.get().and_then(Weak::upgrade) {
            worker.abandon();
        }
        self.dead.notify_waiters();
        self.crashed.notify_one();
    }

    /// Waits until the process has crashed.
    pub(super) async fn died(&self) {
        loop {
            let dead = self.dead.notified();
            if self.is_cut() {
                return;
            }
            dead.await;
        }
    }

    /// Waits until it asks for something.
    pub(super) async fn used(&self) {
        self.used.notified().await;
    }

    fn held(&self) -> std::sync::MutexGuard<'_, Option<Vec<Request>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds a request back, if the process stands still. Gives it back if not.
    fn hold(&self, request: Request) -> Option<Request> {
        let mut held = self.held();
        let Some(waiting) = &mut *held else {
            return Some(request);
        };
        if !matches!(*request.ask, Ask::Op(Op::Renew(_))) {
            waiting.push(request);
            return None;
        }
        drop(held);
        let text = "the process stands still".to_owned();
        answer(request, Error::Unavailable(text));
        None
    }

    /// The process stands still, and then goes on as if nothing had been.
    fn stall(self: &Arc<Self>, request: Request) {
        *self.held() = Some(vec![request]);
        let (gate, clock) = (self.clone(), self.memory.clock().clone());
        let worker = self.worker.get().and_then(Weak::upgrade);
        let lease = worker.map_or(SWEEP, |worker| worker.config.lease);
        tokio::spawn(async move {
            clock.sleep_until(clock.now().after(lease * STALL)).await;
            let held = gate.held().take();
            for request in held.into_iter().flatten() {
                gate.pass(request, None);
            }
        });
    }

    fn ask(self: &Arc<Self>, request: Request) {
        if self.is_cut() {
            answer(request, Error::Closed);
            return;
        }
        let Some(mut request) = self.hold(request) else {
            return;
        };
        match (&self.crashes, self.process) {
            (Crashes::Explored(points, _), 0) => {
                points.outside(&request.ask);
                points.enqueue(false);
                self.memory.submit(vec![request]);
            }
            (Crashes::Explored(points, _), _) => {
                let (ask, struck) = points.request(self.process, request.ask);
                request.ask = ask;
                if struck == Some(Kind::Stall) {
                    self.stall(request);
                } else {
                    self.pass(request, struck);
                }
            }
            (Crashes::AfterEveryRound, _) if is_round(&request.ask) => {
                self.pass(request, Some(Kind::After));
            }
            _ => self.pass(request, None),
        }
    }

    fn pass(self: &Arc<Self>, request: Request, struck: Option<Kind>) {
        if self.is_cut() {
            answer(request, Error::Closed);
            return;
        }
        if let Some(points) = self.crashes.points() {
            points.enqueue(matches!(struck, Some(Kind::Before | Kind::Refused)));
        }
        let Request { ask, tag, sink } = request;
        let gate = self.clone();
        let sink = Arc::new(Back { gate, struck, sink });
        self.memory.submit(vec![Request { ask, tag, sink }]);
    }
}

fn answer(request: Request, error: Error) {
    let Request { ask, tag, sink } = request;
    let result = Err(error);
    sink.deliver(vec![Answered { tag, result, ask }]);
}

/// Is this a round?
fn is_round(ask: &Ask) -> bool {
    matches!(ask, Ask::Op(Op::Commit(_)) | Ask::Work(_))
}

impl Store for Way {
    fn submit(&self, requests: Vec<Request>) {
        for request in requests {
            self.0.ask(request);
        }
        self.0.used.notify_one();
    }

    fn read(&self, query: Query) -> Boxed<'_, Result<Answer, Error>> {
        if self.0.is_cut() {
            return Box::pin(async { Err(Error::Closed) });
        }
        self.0.memory.read(query)
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        self.0.memory.clock()
    }

    fn listen(&self, listener: Arc<dyn Listener>) {
        let gate = self.0.clone();
        self.0.memory.listen(Arc::new(Ear { gate, listener }));
    }

    fn watch_closely(&self, _closely: bool) {}

    /// The database is the stage's.
    fn close(&self) {}
}

/// The way back from the database.
struct Back {
    gate: Arc<Gate>,
    struck: Option<Kind>,
    sink: Arc<dyn Sink>,
}

impl Back {
    /// Whoever is gone hears nothing.
    fn hand_over(gate: &Gate, sink: &dyn Sink, mut answers: Vec<Answered>) {
        if gate.is_cut() {
            for answer in &mut answers {
                answer.result = Err(Error::Closed);
            }
        }
        sink.deliver(answers);
    }
}

impl Sink for Back {
    fn deliver(&self, mut answers: Vec<Answered>) {
        let committed = answers.iter().any(|answer| answer.result.is_ok());
        if let Some(points) = self.gate.crashes.points().filter(|_| committed) {
            points.committed(&self.gate.memory);
        }
        let planned = self.gate.crashes.points().is_some();
        match self.struck {
            Some(Kind::Before) => self.gate.die(),
            Some(Kind::After) if committed || planned => self.gate.die(),
            Some(Kind::Unknown) => {
                for answer in &mut answers {
                    answer.result = Err(Error::Unknown("a fault of the test".into()));
                }
            }
            Some(Kind::Late) => {
                let (gate, sink) = (self.gate.clone(), self.sink.clone());
                tokio::spawn(async move {
                    let clock = gate.memory.clock().clone();
                    clock.sleep_until(clock.now().after(LATE)).await;
                    Back::hand_over(&gate, &*sink, answers);
                });
                return;
            }
            _ => {}
        }
        Back::hand_over(&self.gate, &*self.sink, answers);
    }
}

/// Hints go to the process as long as it lives.
struct Ear {
    gate: Arc<Gate>,
    listener: Arc<dyn Listener>,
}

impl Listener for Ear {
    fn hints(&self, hints: Vec<Hint>) {
        if self.gate.is_cut() {
            return;
        }
        let inside = self.gate.process > 0;
        let points = self.gate.crashes.points().filter(|_| inside);
        if points.is_some_and(|points| points.hints()) {
            let (gate, listener) = (self.gate.clone(), self.listener.clone());
            tokio::spawn(async move {
                let clock = gate.memory.clock().clone();
                clock.sleep_until(clock.now().after(SWEEP)).await;
                if !gate.is_cut() {
                    listener.others_committed();
                }
            });
            return;
        }
        self.listener.hints(hints);
    }

    fn others_committed(&self) {
        if !self.gate.is_cut() {
            self.listener.others_committed();
        }
    }
}
