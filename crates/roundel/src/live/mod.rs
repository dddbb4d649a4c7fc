//! A run in memory: its function, polled by hand, and what the next round will say.
//!
//! `turn` brings the function as far as it goes and says what must happen next; it does no I/O, so
//! the simulator drives it as the worker does. Outcomes reach the function one at a time, in the
//! order of the journal, with polls until it is quiet between them. They are handed over before
//! their commit, so that the same round can record what begins next; effects run only after it.

mod attempts;
mod cancel;
mod commits;
mod deadline;
mod draft;
mod driver;
mod earlier;
mod finally;
mod history;
mod inbox;
mod rehearsal;
mod replay;
mod rollback;
mod scopes;
mod step;
mod waits;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Polled, Poll, Wake, Waker};

use roundel_core::mutant::{self, Mutant};
use roundel_core::{
    Claimed, Context, Deadline, Delivery, Entry, Failure, Fence, Name, Outcome, Payload, Round,
    RunId, RunState, Scope, Then, Timestamp, Why,
};
use rustc_hash::FxHashSet;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::cx::shared::{RunInfo, Shared};
use crate::cx::{Cx, decode, encode};
use crate::flag::Flag;

pub(crate) use deadline::heeding;
use draft::Draft;

pub(crate) use driver::{Driver, Handlers};
pub(crate) use earlier::Anew;
pub(crate) use history::{History, Of, Undoable};
pub(crate) use rehearsal::Rehearsed;
pub(crate) use replay::Journal;
pub(crate) use step::{StepWork, is_of_step};

/// A workflow's function, its types erased.
pub(crate) type Handler = Arc<dyn Fn(Cx, Payload) -> Running + Send + Sync>;
type Running = Pin<Box<dyn Future<Output = Result<Payload, Failure>> + Send>>;

/// Erases a function's types.
pub(crate) fn erased<I, O, F, Fut>(function: F) -> Handler
where
    I: DeserializeOwned + Send + 'static,
    O: Serialize + Send + 'static,
    F: Fn(Cx, I) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<O, Failure>> + Send + 'static,
{
    let function = Arc::new(function);
    Arc::new(move |cx, input| {
        let function = function.clone();
        Box::pin(async move {
            let input = decode(&input)?;
            let output = function(cx, input).await?;
            encode(&output)
        })
    })
}

/// How often the function may wake itself before others get a turn.
const POLLS: usize = 128;

/// What must happen next.
#[derive(Debug)]
#[allow(unreachable_pub)]
pub enum Turn {
    /// Commit this round.
    Commit(Box<Round>),
    /// Run the next step in the transaction, and commit.
    Step,
    /// Read the run's state, then call `state_read`.
    Read(u32),
    /// Read how the runs of this scope ended, then call `settled`.
    Settle(u32, Scope),
    /// Read the journal of this earlier execution, then call `recalled`.
    Recall(u32),
    /// Nothing until the flag is raised, or this time.
    Wait(Option<Timestamp>),
    /// Nothing yet: let others run.
    Yield,
}

/// A time that matters to a call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Due {
    /// A sleep is over.
    Sleep,
    /// A wait has lasted long enough.
    WaitEnds,
    /// The next attempt may begin.
    Retry,
    /// The attempt has lasted long enough; in memory only.
    AttemptEnds,
    /// All attempts have lasted long enough.
    CallEnds,
    /// Nobody joins any more what the call published.
    WindowCloses,
    /// The run has lasted long enough.
    Deadline,
}

pub(crate) struct LiveRun {
    pub(crate) shared: Arc<Shared>,
    future: Option<Running>,
    pub(crate) flag: Arc<Flag>,
    waker: Waker,
    driver: Driver,
    fence: Fence,
    parent: Option<RunId>,
    /// Entries in the journal.
    head: u64,
    replay: VecDeque<(Entry, Timestamp)>,
    inbox: VecDeque<Delivery>,
    seen_mail: FxHashSet<u64>,
    timers: BTreeSet<(Timestamp, u32, Due)>,
    /// Children that have not ended, by call; and whether they were asked to.
    children: BTreeMap<u32, (RunId, bool)>,
    /// Calls that set off runs which have not all ended; and whether those were asked to.
    scopes: BTreeMap<u32, bool>,
    /// Calls whose runs have all ended, to be read: with the message that says so.
    settles: VecDeque<(u32, Delivery)>,
    /// What the engine refused of what calls set off, until the rest has ended.
    refused: Vec<Delivery>,
    /// What can be undone.
    history: History,
    earlier: earlier::Earlier,
    rolling: Option<rollback::Rolling>,
    /// Open waits: for which signal, and whether they take offers.
    waits: BTreeMap<u32, (Name, bool)>,
    /// Steps and reads of state that are due.
    steps: VecDeque<u32>,
    reads: VecDeque<u32>,
    draft: Draft,
    returned: Option<Result<Payload, Failure>>,
    cancelling: Option<cancel::Cancelling>,
    /// The deadline that it has missed, if that is why it ends.
    missed: Option<Deadline>,
    /// The same, if it is parked for that.
    overdue: Option<Deadline>,
    /// It ends without undoing what it did.
    kept: bool,
    /// The step whose round is on its way: what it set of the context, and what it came to.
    step_entry: Option<(u32, Option<Context>, Entry)>,
}

impl std::fmt::Debug for LiveRun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LiveRun({} at {})", self.shared.info.run, self.head)
    }
}

impl LiveRun {
    /// A run whose journal says these entries, the first of which says what it was started with.
    pub(crate) fn new(
        info: RunInfo,
        handler: &Handler,
        input: Payload,
        driver: Driver,
    ) -> Box<LiveRun> {
        let shared = Shared::new(info, false);
        let cx = Cx {
            shared: shared.clone(),
        };
        let flag = driver.flag.clone();
        flag.wake_by_ref();
        let made = catch_unwind(AssertUnwindSafe(|| handler(cx, input)));
        let (future, returned) = match made {
            Ok(future) => (Some(future), None),
            Err(panic) => (None, Some(Err(crate::cx::panicked(panic.as_ref())))),
        };
        // In its box from the first: it is large, and moved often.
        let mut live = Box::new(LiveRun {
            shared,
            future,
            waker: Waker::from(flag.clone()),
            flag,
            driver,
            fence: Fence {
                created_at: None,
                epoch: 1,
            },
            parent: None,
            head: 1,
            replay: VecDeque::new(),
            inbox: VecDeque::new(),
            seen_mail: FxHashSet::default(),
            timers: BTreeSet::new(),
            children: BTreeMap::new(),
            scopes: BTreeMap::new(),
            settles: VecDeque::new(),
            refused: Vec::new(),
            history: History::default(),
            earlier: earlier::Earlier::default(),
            rolling: None,
            waits: BTreeMap::new(),
            steps: VecDeque::new(),
            reads: VecDeque::new(),
            draft: Draft::default(),
            returned,
            cancelling: None,
            missed: None,
            overdue: None,
            kept: false,
            step_entry: None,
        });
        live.set_deadline();
        live
    }

    pub(crate) fn run(&self) -> RunId {
        self.shared.info.run
    }

    /// The fence of its next round.
    pub(crate) fn fence(&self) -> Fence {
        self.fence
    }

    /// Is this what was claimed, so that nothing need be replayed?
    pub(crate) fn is_current(&self, claimed: &Claimed) -> bool {
        // One that has just begun is whichever run has the id.
        let begins = self.fence.created_at.is_none();
        let current = self.head == claimed.head
            && self.shared.info.execution == claimed.execution
            && self.fence.epoch <= claimed.epoch
            && (begins || self.fence.is_same_run(claimed.fence()));
        current || mutant::on(Mutant::StaleMemory)
    }

    /// It has been claimed for this worker again.
    pub(crate) fn reclaimed(&mut self, claimed: Claimed) {
        self.fence = claimed.fence();
        self.parent = claimed.parent.map(|parent| parent.run);
        // What the claim brought came before anything that was told since.
        for delivery in claimed.inbox.into_iter().rev() {
            self.inbox.push_front(delivery);
        }
        if claimed.cancel != roundel_core::CancelMark::None {
            self.cancel(claimed.at, claimed.cancel == roundel_core::CancelMark::Seen);
        }
        self.flag.wake_by_ref();
    }

    /// Brings the function as far as it goes.
    pub(crate) fn turn(&mut self, now: Timestamp) -> Turn {
        for _ in 0..POLLS {
            if self.replay.is_empty() {
                self.take_up_deadline(now);
            }
            if let Some(late) = self.overdue.take() {
                return self.park(late.missed());
            }
            // What the journal says comes first: it tells what must be undone.
            if self.cancelling.is_some() && self.replay.is_empty() {
                return self.cancel_turn(now);
            }
            match self.recall() {
                Ok(None) => {}
                Ok(Some(turn)) => return turn,
                Err(failure) => return self.park(failure),
            }
            if let Err(failure) = self.start_rollback() {
                return self.park(failure);
            }
            if self.poll() {
                continue;
            }
            match self.start_finally() {
                Ok(false) => {}
                Ok(true) => continue,
                Err(failure) => return self.park(failure),
            }
            match self.advance(now) {
                Ok(true) => {}
                Ok(false) => return self.conclude(now),
                Err(failure) => return self.park(failure),
            }
        }
        self.flag.wake_by_ref();
        Turn::Yield
    }

    /// Polls once if something woke it. Returns whether it must be polled again.
    fn poll(&mut self) -> bool {
        let Some(future) = self.future.as_mut() else {
            return false;
        };
        if !self.flag.lower() {
            return false;
        }
        let context = &mut Polled::from_waker(&self.waker);
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context)));
        let result = match polled {
            Ok(Poll::Pending) => {
                if self.shared.lock().continue_with.is_some() {
                    self.let_go();
                    return false;
                }
                return self.flag.is_raised();
            }
            Ok(Poll::Ready(result)) => result,
            Err(panic) => Err(crate::cx::panicked(panic.as_ref())),
        };
        self.let_go();
        self.returned = Some(result);
        false
    }

    /// Drops the function. What it still waited for is let go without a trace.
    fn let_go(&mut self) {
        self.shared.lock().closed = true;
        self.future = None;
    }

    /// Takes the next thing that happened, and hands it to the function. Returns whether there was
    /// one.
    fn advance(&mut self, now: Timestamp) -> Result<bool, Failure> {
        if self.must_open_first() {
            return Ok(false);
        }
        if let Some((entry, at)) = self.replay.pop_front() {
            match self.replay_entry(entry, at) {
                Err(_) if mutant::on(Mutant::DivergenceRecorded) => self.replay.clear(),
                replayed => replayed?,
            }
            if self.replay.is_empty() {
                self.replayed(now);
            }
            return Ok(true);
        }
        if self.draft.is_full() {
            return Ok(false);
        }
        if self.future.is_some() {
            if self.record_fresh(now) {
                return Ok(true);
            }
            self.record_dropped();
        }
        if let Some(delivery) = self.inbox.pop_front() {
            self.take_delivery(delivery);
            return Ok(true);
        }
        if self.future.is_none() {
            return Ok(false);
        }
        let finished = self.shared.lock().next_finished();
        if let Some((call, result)) = finished {
            self.finish_attempt(call, result, now);
            return Ok(true);
        }
        self.extend_attempts(now);
        self.fire_due(now)
    }

    /// Everything has happened that can: what next?
    fn conclude(&mut self, now: Timestamp) -> Turn {
        if self.future.is_none() {
            return self.finish(now);
        }
        if !self.replay.is_empty() {
            return Turn::Wait(None);
        }
        self.steps
            .retain(|call| self.shared.lock().calls.contains_key(call));
        if !self.steps.is_empty() {
            // No step of a run that was asked to end is let in before it is known to undo.
            let mut entries = self.draft.entries.iter();
            let late = self.missed.is_some();
            let asked = entries.any(|entry| rollback::is_asked_for(entry, late));
            return match asked {
                true => self.commit(Then::Continue),
                false => Turn::Step,
            };
        }
        let inner = self.shared.lock();
        let in_flight = inner.running > 0 || inner.opening > 0 || !self.draft.starts.is_empty();
        let open = !inner.calls.is_empty();
        drop(inner);
        if !self.draft.is_empty() {
            let reads = !self.reads.is_empty() || !self.settles.is_empty();
            let keep = in_flight || reads || self.draft.is_full();
            let then = if keep { Then::Continue } else { Then::Suspend };
            return self.commit(then);
        }
        if let Some(call) = self.reads.pop_front() {
            return Turn::Read(call);
        }
        if let Some(settle) = self.next_to_settle() {
            return settle;
        }
        if in_flight {
            return Turn::Wait(self.timers.first().map(|(at, _, _)| *at));
        }
        if open {
            return self.commit(Then::Suspend);
        }
        self.park(
            Failure::permanent(
                "the workflow waits for something the engine does not know; await only what `cx` \
             offers, and do I/O inside effects",
            )
            .with_code("foreign_await"),
        )
    }

    /// The function has returned, or begins anew: first its children must have ended.
    fn finish(&mut self, now: Timestamp) -> Turn {
        if self.draft.sets_off() {
            return self.commit(Then::Continue);
        }
        self.settle_unread();
        if !self.children.is_empty() || !self.scopes.is_empty() {
            return self.end_children();
        }
        // What nobody had asked for was open until now.
        if !mutant::on(Mutant::FinallyUnread) {
            match self.start_finally() {
                Ok(false) => {}
                Ok(true) => return Turn::Yield,
                Err(failure) => return self.park(failure),
            }
        }
        let anew = self.shared.lock().continue_with.take();
        if let Some(anew) = anew {
            return self.begin_anew(anew);
        }
        let returned = self.returned.take();
        let returned = returned.expect("a function that is gone has returned");
        if self.rolling.is_some() {
            return self.rolled_back(returned);
        }
        match returned {
            Ok(value) => self.end(RunState::Completed, Outcome::Value(value)),
            Err(failure) => {
                use roundel_core::Class::{Business, Cancelled};
                let judged = matches!(failure.class, Business | Cancelled);
                let parks = self.shared.info.is_root || self.shared.lock().parks;
                if parks && !judged {
                    return self.park(failure);
                }
                if self.has_something_to_undo() {
                    self.roll_back(Why::Failed(Box::new(failure)));
                    return self.turn(now);
                }
                self.end(RunState::Failed, Outcome::Failure(Box::new(failure)))
            }
        }
    }

    fn end(&mut self, state: RunState, outcome: Outcome) -> Turn {
        self.draft.push(Entry::Ended { state });
        self.commit(Then::End(state, outcome))
    }

    /// An operator must look. What this turn brought is not recorded, so that it happens again
    /// once the run is resumed.
    pub(crate) fn park(&mut self, failure: Failure) -> Turn {
        self.draft = Draft::default();
        self.let_go();
        self.commit(Then::Park(Box::new(failure)))
    }
}

impl Drop for LiveRun {
    fn drop(&mut self) {
        self.let_go();
        // How calls are undone may well hold a `Cx`, and so what holds it.
        let undos = std::mem::take(&mut self.shared.lock().undos);
        drop(undos);
    }
}
