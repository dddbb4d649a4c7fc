//! What a run's function and its driver share: the table of durable calls.
//!
//! A call gets its number at its first poll. Its future finds its outcome here, put there by the
//! driver, one outcome at a time with a poll between, in the order of the journal; live exactly as
//! in replay. Dropping a future before its outcome notes that, and removes nothing else.

use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context as Polled, Poll, Waker};
use std::time::Duration;

use roundel_core::{
    Attempted, Call, Context, Deadlines, Emitted, Failure, Name, NewFact, Offer, Outcome, Payload,
    Publish, Retry, RunId, Scope, ScopeEnd, Signal, Start, StateChange, Target, Timestamp,
};
use roundel_store::Tx;
use rustc_hash::FxHashMap;

use super::{By, Times, inside, was_set_off};

/// What is fixed about a run while its function runs.
#[derive(Clone, Debug)]
#[cfg_attr(not(feature = "sim"), allow(unreachable_pub))]
pub struct RunInfo {
    pub namespace: Name,
    pub run: RunId,
    pub workflow: Name,
    pub version: u32,
    pub execution: u32,
    pub key: Option<Name>,
    pub is_root: bool,
    /// Until when it must have ended.
    pub deadlines: Deadlines,
    /// What flowed down to it.
    pub context: Context,
}

pub(crate) struct Shared {
    pub(crate) info: RunInfo,
    inner: Mutex<Inner>,
}

#[derive(Default)]
pub(crate) struct Inner {
    /// The last number given to a call.
    last: u32,
    /// Boxed, or the table would move them about.
    pub(crate) calls: FxHashMap<u32, Box<Slot>>,
    /// Registered and not in the journal yet, in order.
    pub(crate) fresh: Vec<u32>,
    /// Effects that finished an attempt, in order.
    pub(crate) finished: Vec<(u32, Result<Payload, Failure>)>,
    /// Conditions that were looked at: of which call, which version of the state, whether it is so,
    /// and the state.
    pub(crate) judged: Vec<(u32, u64, bool, Payload)>,
    /// Calls whose futures were dropped before their outcome, in order.
    pub(crate) dropped: Vec<u32>,
    /// The step whose turn it is, while the run is inside its transaction.
    pub(crate) in_step: Option<(u32, Tx)>,
    /// What that step came to.
    pub(crate) worked: Option<Result<Payload, Failure>>,
    /// Effects that were woken while a step had the function's turn.
    pub(crate) skipped: Vec<u32>,
    /// The function asked to begin anew.
    pub(crate) continue_with: Option<crate::live::Anew>,
    /// Effects whose attempt may run.
    pub(crate) running: u32,
    /// Futures that the engine knows and that are not durable: resources being opened.
    pub(crate) opening: u32,
    /// How what calls did is undone.
    pub(crate) undos: FxHashMap<crate::live::Of, super::undo::Handler>,
    /// Some of them are done in any case.
    pub(crate) finally: bool,
    /// It is parked by a failure that is nobody's business, also where somebody waits for it.
    pub(crate) parks: bool,
    /// Attempts that want more time: of which call, which attempt, how long.
    pub(crate) extended: Vec<(u32, u32, std::time::Duration)>,
    /// What becomes of it if it misses its deadline.
    pub(crate) when_late: crate::names::WhenLate,
    /// What the step at hand publishes.
    pub(crate) emitted: Vec<Publish>,
    /// What the step at hand sends, and when each begins, if not at once.
    pub(crate) sent: Vec<(Start, Option<By>)>,
    /// What the step at hand records.
    pub(crate) recorded: Vec<NewFact>,
    /// What calls that have come back published.
    pub(crate) published: Vec<Emitted>,
    /// How the runs ended that the last call set off.
    pub(crate) ended: Vec<ScopeEnd>,
    /// What the step came to whose call set them off, if it was a step.
    pub(crate) ended_step: Option<Payload>,
    /// What flows down from here.
    pub(crate) context: Context,
    /// What the step at hand has set of it.
    pub(crate) step_context: Context,
    /// The run was asked to end.
    pub(crate) cancelled: bool,
    cancel_wakers: Vec<Waker>,
    /// The function is being let go: drops mean nothing.
    pub(crate) closed: bool,
    /// The journal is being replayed.
    pub(crate) replaying: bool,
    /// It is only replayed, to see whether it would go on: nothing outside is touched.
    pub(crate) rehearsing: bool,
    /// What a test kit says about this run.
    #[cfg(feature = "testkit")]
    pub(crate) hooks: Option<Arc<crate::testkit::Hooks>>,
}

/// One durable call.
pub(crate) struct Slot {
    pub(crate) what: Call,
    pub(crate) ask: Asked,
    pub(crate) phase: Phase,
    pub(crate) waker: Option<Waker>,
    /// When it began, by the store's clock.
    pub(crate) begun_at: Option<Timestamp>,
    /// Attempts that failed.
    pub(crate) attempts: Vec<Attempted>,
    /// May an attempt run? An effect runs only after its beginning is committed.
    pub(crate) run: bool,
    /// What a step came to that waits for what it set off.
    pub(crate) worked: Option<Payload>,
    /// What that step published.
    pub(crate) emitted: Vec<Emitted>,
    /// The run's state and its version, for the condition that it waits for.
    pub(crate) state: Option<(u64, Payload)>,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Phase {
    /// Not in the journal.
    Fresh,
    /// Begun, not done.
    Open,
    /// Done; the future has not seen it.
    Done(Outcome),
}

/// What a call needs beyond what the journal says.
#[derive(Clone, Debug)]
pub(crate) enum Asked {
    Step(Tries),
    Effect(Tries),
    Sleep(Span),
    Wait { offerable: bool, limit: Limit },
    Until(Limit),
    Watch(Target),
    Child(Box<Start>, Times),
    Children(Vec<Start>, Times),
    Publish(Box<Publish>, Times),
    RollBack(Scope),
    Spawn(Box<Start>, Times),
    Signal(Box<Signal>),
    Offer(Box<Offer>),
    Record(Payload),
    SetContext(Context),
    Now,
    Change(StateChange),
    ReadState,
    ReadLineage,
}

impl Asked {
    /// Is it done in a transaction of the store?
    pub(crate) fn is_step(&self) -> bool {
        matches!(self, Asked::Step(_))
    }
}

/// How long a wait may last.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limit {
    pub(crate) within: Option<Duration>,
    /// The run is parked when it has lasted so long; otherwise the call fails.
    pub(crate) parks: bool,
}

/// How long a sleep is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Span {
    For(std::time::Duration),
    Until(Timestamp),
}

/// How often and how long a step or an effect is tried.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tries {
    pub(crate) retry: Retry,
    pub(crate) each: Option<std::time::Duration>,
    pub(crate) total: Option<std::time::Duration>,
}

impl Shared {
    pub(crate) fn new(info: RunInfo, replaying: bool) -> Arc<Shared> {
        let context = info.context.clone();
        Arc::new(Shared {
            info,
            inner: Mutex::new(Inner {
                replaying,
                context,
                ..Inner::default()
            }),
        })
    }

    /// The next random number of a test, if this is one.
    pub(crate) fn seeded(&self) -> Option<u64> {
        #[cfg(feature = "sim")]
        if let Some(drawn) = crate::sim::draw() {
            return Some(drawn);
        }
        self.scripted()
    }

    #[cfg(feature = "testkit")]
    fn scripted(&self) -> Option<u64> {
        let hooks = self.lock().hooks.clone()?;
        Some(hooks.random())
    }

    #[cfg(not(feature = "testkit"))]
    #[allow(clippy::unused_self)]
    fn scripted(&self) -> Option<u64> {
        None
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Inner {
    /// The function is gone, and another takes its place, which undoes what that one did.
    pub(crate) fn begin_rollback(&mut self) {
        self.calls.clear();
        self.fresh.clear();
        self.finished.clear();
        self.dropped.clear();
        self.skipped.clear();
        self.judged.clear();
        self.continue_with = None;
        (self.running, self.opening) = (0, 0);
        (self.closed, self.cancelled) = (false, false);
    }

    /// What the step at hand publishes, as the journal will name it.
    pub(crate) fn emitting(&self) -> Vec<Emitted> {
        let named = |publish: &Publish| Emitted {
            topic: publish.topic.clone(),
            publication: publish.id,
        };
        self.emitted.iter().map(named).collect()
    }

    /// Notes what a call published that comes back with this outcome.
    pub(crate) fn note_published(&mut self, call: u32, outcome: &Outcome) {
        let Some(slot) = self.calls.get(&call).filter(|_| was_set_off(outcome)) else {
            return;
        };
        let published = match &slot.what {
            Call::Publish { topic, id, .. } => id.map(|publication| Emitted {
                topic: topic.clone(),
                publication,
            }),
            _ => None,
        };
        let emitted = slot.emitted.clone();
        self.published.extend(published.into_iter().chain(emitted));
    }

    /// Calls are numbered on from here.
    pub(crate) fn number_from(&mut self, last: u32) {
        self.last = last;
    }

    pub(crate) fn register(&mut self, what: Call, ask: Asked, waker: &Waker) -> u32 {
        self.last += 1;
        let slot = Box::new(Slot {
            what,
            ask,
            phase: Phase::Fresh,
            waker: Some(waker.clone()),
            begun_at: None,
            attempts: Vec::new(),
            run: false,
            worked: None,
            emitted: Vec::new(),
            state: None,
        });
        self.calls.insert(self.last, slot);
        self.fresh.push(self.last);
        self.last
    }

    /// Puts the outcome where the call's future finds it, and wakes that.
    pub(crate) fn complete(&mut self, call: u32, outcome: Outcome) {
        self.attempt_over(call);
        if let Some(slot) = self.calls.get_mut(&call) {
            slot.phase = Phase::Done(outcome);
            if let Some(waker) = slot.waker.take() {
                waker.wake();
            }
        }
    }

    /// Lets the next attempt of an effect run.
    pub(crate) fn let_run(&mut self, call: u32) {
        if let Some(slot) = self.calls.get_mut(&call) {
            if !std::mem::replace(&mut slot.run, true) {
                self.running += 1;
            }
            if let Some(waker) = slot.waker.take() {
                waker.wake();
            }
        }
    }

    /// The attempt is over: nothing of it runs any more.
    pub(crate) fn attempt_over(&mut self, call: u32) {
        if let Some(slot) = self.calls.get_mut(&call)
            && std::mem::replace(&mut slot.run, false)
        {
            self.running -= 1;
        }
    }

    /// Abandons the attempt: the call's future drops it when it is polled.
    pub(crate) fn stop(&mut self, call: u32) {
        self.attempt_over(call);
        if let Some(waker) = self.calls.get_mut(&call).and_then(|slot| slot.waker.take()) {
            waker.wake();
        }
    }

    /// Lets the condition of a call be looked at.
    pub(crate) fn judge(&mut self, call: u32, version: u64, state: Payload) {
        if let Some(slot) = self.calls.get_mut(&call) {
            slot.state = Some((version, state));
            if let Some(waker) = slot.waker.take() {
                waker.wake();
            }
        }
    }

    /// Wakes the effects that a step kept waiting: whoever combines them may not look again of
    /// itself.
    pub(crate) fn wake_skipped(&mut self) {
        for call in std::mem::take(&mut self.skipped) {
            let slot = self.calls.get_mut(&call);
            if let Some(waker) = slot.and_then(|slot| slot.waker.take()) {
                waker.wake();
            }
        }
    }

    /// The first attempt that has ended and is not recorded.
    pub(crate) fn next_finished(&mut self) -> Option<(u32, Result<Payload, Failure>)> {
        if self.finished.is_empty() {
            None
        } else {
            Some(self.finished.remove(0))
        }
    }

    pub(crate) fn cancel(&mut self) {
        self.cancelled = true;
        self.cancel_wakers.drain(..).for_each(Waker::wake);
    }

    pub(crate) fn poll_cancelled(&mut self, context: &Polled<'_>) -> Poll<()> {
        if self.cancelled {
            return Poll::Ready(());
        }
        self.cancel_wakers.push(context.waker().clone());
        Poll::Pending
    }
}

/// A durable call, as its future holds it.
pub(crate) struct CallGuard {
    pub(crate) shared: Arc<Shared>,
    number: Option<u32>,
}

impl CallGuard {
    pub(crate) fn new(shared: &Arc<Shared>) -> CallGuard {
        CallGuard {
            shared: shared.clone(),
            number: None,
        }
    }

    /// Registers at the first poll; afterwards looks for the outcome.
    pub(crate) fn poll(
        &mut self,
        context: &Polled<'_>,
        ask: impl FnOnce() -> (Call, Asked),
    ) -> Poll<Outcome> {
        let mut inner = self.shared.lock();
        let Some(number) = self.number else {
            if inside::is_misplaced(&self.shared) {
                return Poll::Pending;
            }
            let (what, ask) = ask();
            self.number = Some(inner.register(what, ask, context.waker()));
            return Poll::Pending;
        };
        let slot = inner
            .calls
            .get_mut(&number)
            .expect("a call is polled after its end");
        if !matches!(slot.phase, Phase::Done(_)) {
            match &mut slot.waker {
                Some(waker) => waker.clone_from(context.waker()),
                none => *none = Some(context.waker().clone()),
            }
            return Poll::Pending;
        }
        let slot = inner.calls.remove(&number).expect("just seen");
        self.number = None;
        match slot.phase {
            Phase::Done(outcome) => Poll::Ready(outcome),
            Phase::Fresh | Phase::Open => unreachable!("just seen"),
        }
    }

    /// Looks at the condition of the call, if there is a state to look at. The condition is the
    /// user's: nothing is locked meanwhile.
    pub(crate) fn judge(&self, condition: impl FnOnce(&Payload) -> bool) {
        let Some(number) = self.number else { return };
        let mut inner = self.shared.lock();
        let state = inner.calls.get_mut(&number);
        let Some((version, state)) = state.and_then(|slot| slot.state.take()) else {
            return;
        };
        drop(inner);
        let holds = condition(&state);
        let judged = (number, version, holds, state);
        self.shared.lock().judged.push(judged);
    }

    pub(crate) fn number(&self) -> Option<u32> {
        self.number
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let mut inner = self.shared.lock();
        if inner.closed {
            return;
        }
        inner.attempt_over(number);
        let Some(mut slot) = inner.calls.remove(&number) else {
            return;
        };
        inner.finished.retain(|(call, _)| *call != number);
        inner.judged.retain(|(call, ..)| *call != number);
        if slot.phase == Phase::Fresh {
            // Never recorded: it leaves no trace, but its number stays used, live as in replay.
            inner.fresh.retain(|call| *call != number);
        } else if slot.phase == Phase::Open {
            inner.dropped.push(number);
            slot.waker = None;
            inner.calls.insert(number, slot);
        }
    }
}
