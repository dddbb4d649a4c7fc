//! A run in memory, as the simulator drives it: the same `LiveRun` that the worker has, turned by
//! hand. No part of the interface; it changes with what it shows.
//!
//! Absent on purpose: decisions. Everything here passes on.

use std::cell::Cell;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use roundel_core::check::Reader;
use roundel_core::{
    Claimed, Committed, Delivery, Failure, Fence, JournalRow, Name, Payload, Round, RunId,
    ScopeEnd, Timestamp, WorkerId,
};
use roundel_store::{Boxed, Clock, Tx, Work, Worked};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::command::handled;
pub use crate::cx::shared::RunInfo;
use crate::cx::{Attempt, Cx, NamedUndos, UndoHandler};
use crate::live::{Driver, Handler, Journal, LiveRun, StepWork, erased, heeding};
use crate::metrics::Counters;
use crate::names::WhenLate;
use crate::{Command, Undo};

thread_local! {
    static DRAWS: Cell<Option<u64>> = const { Cell::new(None) };
}

/// From now on, random numbers and ids of workflows on this thread come from this seed.
pub fn seed(seed: u64) {
    DRAWS.set(Some(seed));
}

/// The next random number, if this thread simulates (splitmix64).
pub(crate) fn draw() -> Option<u64> {
    let state = DRAWS.get()?.wrapping_add(0x9E37_79B9_7F4A_7C15);
    DRAWS.set(Some(state));
    let mut mixed = state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    Some(mixed ^ (mixed >> 31))
}

/// A workflow's function.
#[derive(Clone)]
pub struct Function(Handler);

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Function")
    }
}

impl Function {
    /// This one, its types erased as a registration does it.
    pub fn new<I, O, F, Fut>(function: F) -> Function
    where
        I: DeserializeOwned + Send + 'static,
        O: Serialize + Send + 'static,
        F: Fn(Cx, I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, Failure>> + Send + 'static,
    {
        Function(erased(function))
    }

    /// The same, of a workflow whose runs are parked when they are late.
    #[must_use]
    pub fn parked_when_late(self) -> Function {
        Function(heeding(WhenLate::Park, self.0))
    }

    /// The same, of a workflow whose runs fail when they are late.
    #[must_use]
    pub fn failed_when_late(self) -> Function {
        Function(heeding(WhenLate::Fail, self.0))
    }

    /// The function of batches.
    #[must_use]
    pub fn batch() -> Function {
        Function(erased(crate::batch::run))
    }

    /// The function of schedules, whose journals begin anew after so many looks.
    #[must_use]
    pub fn schedule(passes: usize) -> Function {
        let keep = move |cx, first| crate::schedule::look_often(cx, first, passes);
        Function(erased(keep))
    }

    /// The function that a handler of this command becomes.
    pub fn handler<I, O, F, Fut>(command: Command<I, O>, handler: F) -> Function
    where
        I: DeserializeOwned + Clone + Send + 'static,
        O: Serialize + DeserializeOwned + Send + 'static,
        F: Fn(Attempt, I) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<O, Failure>> + Send + 'static,
    {
        Function(erased(handled(command, handler)))
    }
}

/// What undoes by name.
#[derive(Clone, Debug, Default)]
pub struct Undos(Arc<NamedUndos>);

impl Undos {
    /// This one, in a step.
    pub fn one<A, F, Fut>(undo: Undo<A>, function: F) -> Undos
    where
        A: DeserializeOwned,
        F: Fn(Tx, A) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        let mut named = NamedUndos::default();
        named.0.insert(undo.name(), UndoHandler::of_step(function));
        Undos(Arc::new(named))
    }
}

/// Is a step's round refused for what the step itself asked for?
#[must_use]
pub fn is_of_step(refusal: &roundel_core::Refusal) -> bool {
    crate::live::is_of_step(refusal)
}

/// Who drives it.
#[derive(Clone, Debug)]
pub struct Seat {
    pub worker: WorkerId,
    pub lease: Duration,
    pub grace: Duration,
    name: Arc<str>,
    undos: Undos,
    counters: Arc<Counters>,
}

impl Seat {
    #[must_use]
    pub fn new(worker: WorkerId, lease: Duration, grace: Duration, undos: Undos) -> Seat {
        Seat {
            worker,
            lease,
            grace,
            name: "a worker".into(),
            undos,
            counters: Arc::default(),
        }
    }

    fn driver(&self) -> Driver {
        Driver {
            worker: self.worker,
            name: self.name.clone(),
            lease: self.lease,
            grace: self.grace,
            flag: Arc::default(),
            counters: self.counters.clone(),
            undos: self.undos.0.clone(),
            projections: Arc::default(),
        }
    }
}

pub use crate::live::Turn;

/// A run in memory.
#[derive(Debug)]
pub struct Live(Box<LiveRun>);

impl Live {
    /// One that has not begun.
    #[must_use]
    pub fn born(about: RunInfo, function: &Function, input: Payload, seat: &Seat) -> Live {
        let (info, driver) = (about, seat.driver());
        Live(LiveRun::new(info, &function.0, input, driver))
    }

    /// One that was claimed, from its journal.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub fn load<'a>(
        about: RunInfo,
        function: &Function,
        journal: impl IntoIterator<Item = &'a JournalRow>,
        (claimed, seat, reader): (Claimed, &Seat, &mut Reader),
    ) -> Result<Live, Failure> {
        let read = |bytes: &[u8]| reader.read(bytes).map(|entries| entries.to_vec());
        let journal = Journal::read(journal, read)?;
        let (info, driver) = (about, seat.driver());
        let live = LiveRun::load(info, &function.0, journal, (claimed, driver));
        Ok(Live(live))
    }

    #[must_use]
    pub fn run(&self) -> RunId {
        self.0.run()
    }

    #[must_use]
    pub fn fence(&self) -> Fence {
        self.0.fence()
    }

    #[must_use]
    pub fn is_current(&self, claimed: &Claimed) -> bool {
        self.0.is_current(claimed)
    }

    /// Was something done to it since its last turn?
    #[must_use]
    pub fn is_woken(&self) -> bool {
        self.0.flag.is_raised()
    }

    pub fn reclaimed(&mut self, claimed: Claimed) {
        self.0.reclaimed(claimed);
    }

    pub fn turn(&mut self, now: Timestamp) -> Turn {
        self.0.turn(now)
    }

    pub fn committed(&mut self, committed: Committed) -> bool {
        self.0.committed(committed)
    }

    pub fn deliver(&mut self, fence: Fence, delivery: Delivery) {
        self.0.deliver(fence, delivery);
    }

    pub fn asked_to_end(&mut self, fence: Fence, now: Timestamp) {
        self.0.asked_to_end(fence, now);
    }

    pub fn cancel(&mut self, now: Timestamp) {
        self.0.cancel(now, false);
    }

    pub fn deadline_missed(&mut self, now: Timestamp) {
        self.0.deadline_missed(now);
    }

    pub fn step_refused(&mut self, refusal: &roundel_core::Refusal) {
        self.0.step_refused(refusal);
    }

    /// The round that parks it.
    ///
    /// # Panics
    /// Never: parking is a commit.
    pub fn park(&mut self, failure: Failure) -> Box<Round> {
        match self.0.park(failure) {
            Turn::Commit(round) => round,
            _ => unreachable!("it parks"),
        }
    }

    pub fn state_read(&mut self, call: u32, state: (u64, Payload)) {
        self.0.state_read(call, state);
    }

    pub fn read_again(&mut self, call: u32) {
        self.0.read_again(call);
    }

    pub fn settled(&mut self, call: u32, ends: Vec<ScopeEnd>) {
        self.0.settled(call, ends);
    }

    /// The journal of an earlier execution, and the function of its version, if there is one.
    pub fn recalled<'a>(
        &mut self,
        execution: u32,
        journal: impl IntoIterator<Item = &'a JournalRow>,
        function: impl Fn(&Name, u32) -> Option<Function>,
    ) {
        let handler = |name: &Name, version| function(name, version).map(|function| function.0);
        self.0.recalled(execution, journal, handler);
    }

    /// Runs the step that is due, outside of any database: the code keeps what it does elsewhere.
    #[must_use]
    pub fn step(self, now: Timestamp) -> (Live, Worked) {
        let mut work = StepWork {
            live: self.0,
            clock: Arc::new(Still(now)),
            runtime: None,
        };
        let worked = work.run(Tx::of_no_step());
        (Live(work.live), worked)
    }

    /// The next execution, once the round that ended this one is committed.
    ///
    /// # Panics
    /// When the run does not begin anew.
    #[must_use]
    pub fn anew(&self, function: &Function, committed: Committed, seat: &Seat) -> Live {
        let input = self.0.continue_input().expect("it begins anew");
        let info = self.0.next_info();
        let next = LiveRun::new(info, &function.0, input, seat.driver());
        Live(next.after_continue(&self.0, committed))
    }
}

/// A clock that stands still.
struct Still(Timestamp);

impl Clock for Still {
    fn now(&self) -> Timestamp {
        self.0
    }

    fn sleep_until(&self, _: Timestamp) -> Boxed<'_, ()> {
        Box::pin(std::future::pending())
    }
}
