//! Steps: the run goes to the store, which polls it inside the transaction.

use std::any::Any;
use std::sync::Arc;
use std::task::Wake;

use roundel_core::{
    Attempted, Call, Caused, Context, Entry, Failure, Fence, Name, Outcome, Payload, Record,
    Refusal, Round, RunId, Start, Then, Timestamp, WorkerId,
};
use roundel_store::{Clock, Tx, TxError, Work, Worked};

use super::draft::sent_at;
use super::{Due, LiveRun};
use crate::cx::shared::{Asked, Phase};

/// A run on its way through a transaction.
pub(crate) struct StepWork {
    pub(crate) live: Box<LiveRun>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) runtime: Option<tokio::runtime::Handle>,
}

impl Work for StepWork {
    fn lease(&self) -> (RunId, WorkerId, Fence) {
        (self.live.run(), self.live.driver.worker, self.live.fence)
    }

    fn run(&mut self, tx: Tx) -> Worked {
        let _entered = self.runtime.as_ref().map(tokio::runtime::Handle::enter);
        let call = *self.live.steps.front().expect("a step is due");
        let Some(result) = self.live.poll_step(call, tx) else {
            let round = self.live.round(Then::Continue);
            return Worked { round, keep: false };
        };
        let (result, recorded) = match self.live.recorded() {
            Ok(recorded) => (result, recorded),
            Err(failure) => (result.and(Err(failure)), None),
        };
        let keep = result.is_ok();
        let mut round = self.live.step_round(call, result, self.clock.now());
        round.caused.extend(recorded.filter(|_| keep));
        Worked { round, keep }
    }

    fn refused(&mut self, error: TxError) -> Round {
        let call = *self.live.steps.front().expect("a step is due");
        let failure = Failure::permanent(error).with_code("rule_broken");
        self.live.step_round(call, Err(failure), self.clock.now())
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }
}

impl LiveRun {
    /// Polls the function with the transaction at hand until the step's closure has run. None if
    /// the function let go of the step meanwhile, or ended: then nothing of it stays.
    fn poll_step(&mut self, call: u32, tx: Tx) -> Option<Result<roundel_core::Payload, Failure>> {
        self.step_entry = None;
        let mut inner = self.shared.lock();
        inner.worked = None;
        inner.emitted.clear();
        inner.sent.clear();
        inner.recorded.clear();
        inner.step_context = Context::default();
        inner.in_step = Some((call, tx));
        if let Some(waker) = inner
            .calls
            .get_mut(&call)
            .and_then(|slot| slot.waker.take())
        {
            waker.wake();
        }
        drop(inner);
        self.flag.wake_by_ref();
        for _ in 0..super::POLLS {
            let again = self.poll();
            if !again || self.shared.lock().worked.is_some() {
                break;
            }
        }
        let mut inner = self.shared.lock();
        inner.in_step = None;
        let worked = inner.worked.take();
        inner.wake_skipped();
        let waits = inner.calls.contains_key(&call) && !inner.dropped.contains(&call);
        drop(inner);
        if self.future.is_none() || !waits {
            return None;
        }
        let missing = || Failure::permanent("the step's closure was not reached");
        Some(worked.unwrap_or_else(|| Err(missing())))
    }

    /// The facts that the step recorded, with where they are folded in.
    fn recorded(&mut self) -> Result<Option<Caused>, Failure> {
        let facts = std::mem::take(&mut self.shared.lock().recorded);
        if facts.is_empty() {
            return Ok(None);
        }
        let projections = &self.driver.projections;
        let facts = facts.into_iter();
        let facts = facts.map(|fact| projections.with_documents(fact));
        let namespace = self.shared.info.namespace.clone();
        Ok(Some(Caused::Record(Box::new(Record {
            own: true,
            by: Name::new(self.driver.name.to_string()).ok(),
            knows: projections.knows.clone(),
            ..Record::new(namespace, facts.collect::<Result<_, _>>()?)
        }))))
    }

    /// The round that records what the step came to.
    fn step_round(
        &mut self,
        call: u32,
        result: Result<roundel_core::Payload, Failure>,
        now: roundel_core::Timestamp,
    ) -> Round {
        let entry = self
            .judge(call, result, now)
            .expect("a step that ran is known");
        let (entry, emitted) = self.with_emitted(entry);
        let mut inner = self.shared.lock();
        let set = std::mem::take(&mut inner.step_context);
        let sent = std::mem::take(&mut inner.sent);
        drop(inner);
        let happened = matches!(
            entry,
            Entry::Worked { .. }
                | Entry::Did {
                    outcome: Outcome::Value(_),
                    ..
                }
        );
        let set = Some(set).filter(|set| happened && !set.is_empty());
        let (entries, caused) = (self.draft.entries.len(), self.draft.caused.len());
        let said = set.clone().map(|context| Entry::ContextSet { context });
        self.draft.entries.extend(said);
        self.draft.entries.push(entry.clone());
        self.draft.caused.extend(emitted);
        let sent = sent.into_iter().filter(|_| happened);
        self.draft.caused.extend(sent.map(|(start, begins)| {
            let at = begins.map(|begins| begins.time(now));
            let mut start = Start { at, ..start };
            sent_at(&mut start, now);
            Caused::Send(Box::new(start))
        }));
        let round = self.round(Then::Continue);
        self.draft.entries.truncate(entries);
        self.draft.caused.truncate(caused);
        self.step_entry = Some((call, set, entry));
        round
    }

    /// The step's round was committed.
    pub(super) fn step_done(&mut self, call: u32, entry: Entry, at: Timestamp) {
        self.steps.retain(|step| *step != call);
        match entry {
            Entry::Did { outcome, .. } => self.shared.lock().complete(call, outcome),
            Entry::Worked {
                value,
                window,
                emitted,
                ..
            } => {
                let closes_at = window.map(|window| at.after(window));
                self.step_worked(call, (value, emitted), closes_at);
            }
            Entry::Attempted {
                attempt,
                failure,
                at,
                retry_at,
                ..
            } => {
                let mut inner = self.shared.lock();
                if let Some(slot) = inner.calls.get_mut(&call) {
                    slot.phase = Phase::Open;
                    slot.attempts.push(Attempted {
                        attempt,
                        message: failure.message,
                        at,
                    });
                }
                drop(inner);
                self.timers.insert((retry_at, call, Due::Retry));
            }
            _ => unreachable!("a step did or was attempted"),
        }
    }

    /// The step's round was refused for what the step sent or recorded. Nothing of it stays, and it
    /// has failed with that.
    pub(crate) fn step_refused(&mut self, refusal: &Refusal) {
        self.step_entry = None;
        let call = self.steps.pop_front().expect("a step was due");
        let inner = self.shared.lock();
        let Some(slot) = inner.calls.get(&call) else {
            return;
        };
        let failure = refused_step(refusal);
        let what = slot.what.clone();
        drop(inner);
        self.did(call, what, Outcome::Failure(Box::new(failure)));
        self.flag.wake_by_ref();
    }

    /// A call is done that had not begun.
    pub(super) fn did(&mut self, call: u32, what: Call, outcome: Outcome) {
        self.shared.lock().complete(call, outcome.clone());
        self.draft.push(Entry::Did {
            call,
            what,
            outcome,
        });
    }

    /// The run's state could not be read: ask again.
    pub(crate) fn read_again(&mut self, call: u32) {
        self.reads.push_front(call);
    }

    /// Is it the lineage that this call reads, and not the run's state?
    pub(crate) fn reads_lineage(&self, call: u32) -> bool {
        let inner = self.shared.lock();
        let slot = inner.calls.get(&call);
        slot.is_some_and(|slot| matches!(slot.ask, Asked::ReadLineage))
    }

    /// The run's state of this version, or its lineage, was read for this call.
    pub(crate) fn state_read(&mut self, call: u32, (version, value): (u64, Payload)) {
        let inner = self.shared.lock();
        let Some(slot) = inner.calls.get(&call) else {
            return;
        };
        if matches!(slot.ask, Asked::Until(_)) {
            drop(inner);
            return self.look_at(call, version, value);
        }
        let what = slot.what.clone();
        drop(inner);
        self.did(call, what, Outcome::Value(value));
    }
}

/// Is a step's round refused for what the step itself asked for?
pub(crate) fn is_of_step(refusal: &Refusal) -> bool {
    refusal.of_facts().is_some()
}

/// What such a step fails with.
fn refused_step(refusal: &Refusal) -> Failure {
    let failure = refusal.of_facts();
    failure.unwrap_or_else(|| Failure::business(refusal).with_code("conflict"))
}
