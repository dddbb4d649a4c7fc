//! What the next round will say, as it is gathered; and how calls get into it.

use std::collections::BTreeMap;

use roundel_core::{
    Call, Caused, Class, Consumed, Deadlines, Entry, Failure, GateId, Name, OpenWait, Outcome,
    Parent, Payload, Round, RunId, Scope, Start, StateChange, Timestamp, UndoMark, encode_entries,
    limits,
};

use super::scopes::scope_size;
use super::{Due, LiveRun};
use crate::cx::Times;
use crate::cx::shared::{Asked, Phase, RunInfo, Slot, Span};

#[derive(Default)]
pub(super) struct Draft {
    pub(super) entries: Vec<Entry>,
    pub(super) consumed: Vec<Consumed>,
    pub(super) closed: Vec<(Name, u32)>,
    pub(super) opened: Vec<OpenWait>,
    pub(super) caused: Vec<Caused>,
    pub(super) state: Vec<StateChange>,
    /// The oldest version of the state that those have seen who wait for the next.
    pub(super) state_seen: Option<u64>,
    pub(super) cancels: Vec<Scope>,
    pub(super) cancel_seen: bool,
    /// What there is to undo, if that changes.
    pub(super) undo: Option<UndoMark>,
    /// Gates of offerable waits that open or close.
    pub(super) gates: Vec<Name>,
    /// Effects that begin once the round is committed.
    pub(super) starts: Vec<u32>,
    /// Children that exist once the round is committed.
    pub(super) children: Vec<(u32, RunId)>,
    /// Calls whose runs exist once the round is committed.
    pub(super) scopes: Vec<u32>,
    /// Calls whose runs have all ended, as this round says; and whether they were asked to.
    pub(super) settled: Vec<(u32, bool)>,
    /// Children whose end this round takes up.
    pub(super) ended: Vec<(u32, (RunId, bool))>,
    /// Waits that this round ends.
    pub(super) lifted: Vec<(u32, (Name, bool))>,
    /// What the next execution begins with, and its first that is undone with it.
    pub(super) anew: Option<(Payload, Option<u32>)>,
    /// About how large the entries are.
    bytes: usize,
}

impl Draft {
    pub(super) fn push(&mut self, entry: Entry) {
        self.bytes += size(&entry);
        self.entries.push(entry);
    }

    /// Should it be committed before there is more? What one entry adds still fits.
    pub(super) fn is_full(&self) -> bool {
        self.bytes >= limits::ROUND_BYTES / 2
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
            && self.consumed.is_empty()
            && self.closed.is_empty()
            && self.cancels.is_empty()
            && self.caused.is_empty()
            && !self.cancel_seen
    }

    /// Does it begin runs that are waited for?
    pub(super) fn sets_off(&self) -> bool {
        !self.children.is_empty() || !self.scopes.is_empty()
    }

    /// Does it begin something that can be undone?
    fn adds_to_undo(&self) -> Option<UndoMark> {
        let undoable = self.entries.iter().any(|entry| match entry {
            Entry::Begun { what, .. } | Entry::Did { what, .. } | Entry::Worked { what, .. } => {
                what.undo().is_some()
            }
            _ => false,
        });
        undoable.then_some(UndoMark::Possible)
    }

    /// Fills the round. `all_waits` are the offerable ones that end with the run.
    pub(super) fn fill(
        &self,
        round: &mut Round,
        info: &RunInfo,
        all_waits: Option<&BTreeMap<u32, (Name, bool)>>,
    ) {
        if !self.entries.is_empty() {
            round.entries = encode_entries(&self.entries);
            round.count = u32::try_from(self.entries.len()).expect("a round is small");
        }
        round.consumed.clone_from(&self.consumed);
        round.closed.clone_from(&self.closed);
        round.opened.clone_from(&self.opened);
        round.caused.clone_from(&self.caused);
        round
            .caused
            .extend(self.cancels.iter().map(|scope| Caused::Cancel(*scope)));
        round.state.clone_from(&self.state);
        round.state_seen = self.state_seen;
        round.cancel_seen = self.cancel_seen;
        round.undo = self.undo.or_else(|| self.adds_to_undo());
        let mut names: Vec<&Name> = self.gates.iter().collect();
        let ending = all_waits.into_iter().flat_map(BTreeMap::values);
        names.extend(
            ending
                .filter(|(_, offerable)| *offerable)
                .map(|(name, _)| name),
        );
        names.sort();
        names.dedup();
        let gate = |name: &Name| GateId {
            namespace: info.namespace.clone(),
            name: name.clone(),
        };
        round.gates = names.into_iter().map(gate).collect();
    }
}

impl LiveRun {
    /// Takes calls that were made since the last round into the draft. Returns whether one of them
    /// is already done, so that the function goes on first.
    pub(super) fn record_fresh(&mut self, now: Timestamp) -> bool {
        if self.refuse_late(now) || self.take_judged(now) {
            return true;
        }
        loop {
            let mut inner = self.shared.lock();
            if inner.fresh.is_empty() {
                return false;
            }
            let call = inner.fresh.remove(0);
            let Some(slot) = inner.calls.get_mut(&call) else {
                continue;
            };
            let mut what = slot.what.clone();
            let value = match slot.ask.clone() {
                Asked::Step(_) => {
                    self.steps.push_back(call);
                    continue;
                }
                Asked::ReadState | Asked::ReadLineage | Asked::Until(_) => {
                    self.reads.push_back(call);
                    continue;
                }
                Asked::Record(value) => value,
                Asked::SetContext(context) => {
                    inner.context.take(&context);
                    self.draft.push(Entry::ContextSet { context });
                    Payload::null()
                }
                Asked::Now => Payload::encode(&now).expect("a number has a JSON form"),
                Asked::Change(change) => {
                    self.draft.state.push(change);
                    Payload::null()
                }
                ask => {
                    slot.phase = Phase::Open;
                    slot.begun_at = Some(now);
                    drop(inner);
                    self.begin(call, &mut what, ask, now);
                    if let Some(slot) = self.shared.lock().calls.get_mut(&call) {
                        slot.what = what.clone();
                    }
                    self.draft.push(Entry::Begun { call, what });
                    continue;
                }
            };
            let outcome = Outcome::Value(value);
            inner.complete(call, outcome.clone());
            self.draft.push(Entry::Did {
                call,
                what,
                outcome,
            });
            return true;
        }
    }

    /// A call begins: what it sets off, and when it is due.
    fn begin(&mut self, call: u32, what: &mut Call, ask: Asked, now: Timestamp) {
        match ask {
            Asked::Effect(tries) => {
                self.draft.starts.push(call);
                if let Some(total) = tries.total {
                    self.timers.insert((now.after(total), call, Due::CallEnds));
                }
            }
            Asked::Sleep(span) => {
                let at = match span {
                    Span::For(span) => now.after(span),
                    Span::Until(at) => at,
                };
                *what = Call::Sleep { until: at };
                self.timers.insert((at, call, Due::Sleep));
            }
            Asked::Wait { offerable, limit } => {
                self.begin_wait(call, what, (offerable, limit), now);
            }
            Asked::Watch(target) => {
                let namespace = self.shared.info.namespace.clone();
                let caused = Caused::Watch(call, namespace, target);
                self.draft.caused.push(caused);
            }
            Asked::Child(start, times) => self.begin_child(call, start, times, now),
            Asked::Children(starts, times) => self.begin_children(call, starts, times, now),
            Asked::Publish(mut publish, times) => {
                publish.deadlines = self.deadlines_below(times, now);
                publish.context = self.context_below(&publish.context);
                if let Some(window) = publish.window {
                    self.timers
                        .insert((now.after(window), call, Due::WindowCloses));
                }
                self.draft.scopes.push(call);
                self.draft.caused.push(Caused::Publish(call, publish));
            }
            Asked::RollBack(scope) => {
                let context = self.shared.lock().context.clone();
                let caused = Caused::RollBack(call, scope, context);
                self.draft.caused.push(caused);
            }
            Asked::Spawn(mut start, times) => {
                start.at = times.begins.map(|begins| begins.time(now));
                sent_at(&mut start, now);
                self.draft.caused.push(Caused::Spawn(call, start));
            }
            Asked::Signal(mut signal) => {
                signal.claimant = Some(self.claimant());
                self.draft.caused.push(Caused::Signal(call, signal));
            }
            Asked::Offer(mut offer) => {
                offer.claimant = Some(self.claimant());
                self.draft.caused.push(Caused::Offer(call, offer));
            }
            Asked::Step(_)
            | Asked::ReadState
            | Asked::ReadLineage
            | Asked::Until(_)
            | Asked::Record(_)
            | Asked::SetContext(_)
            | Asked::Now
            | Asked::Change(_) => {
                unreachable!("recorded when done")
            }
        }
    }

    fn begin_child(&mut self, call: u32, start: Box<Start>, times: Times, now: Timestamp) {
        let deadlines = self.deadlines_below(times, now);
        let at = times.begins.map(|begins| begins.time(now));
        let mut start = Start { at, ..*start };
        sent_at(&mut start, now);
        let start = Box::new(self.below(call, start, deadlines));
        self.draft.children.push((call, start.run));
        self.draft.caused.push(Caused::Child(call, start));
    }

    fn begin_children(&mut self, call: u32, starts: Vec<Start>, times: Times, now: Timestamp) {
        let deadlines = self.deadlines_below(times, now);
        let starts = starts.into_iter();
        let starts = starts.map(|start| self.below(call, start, deadlines));
        let starts = starts.collect();
        self.draft.scopes.push(call);
        self.draft.caused.push(Caused::Children(call, starts));
    }

    /// A child of this call, with what flows down to it.
    fn below(&self, call: u32, start: Start, deadlines: Deadlines) -> Start {
        let info = &self.shared.info;
        let mut batch = start.batch;
        for start in batch.iter_mut().flat_map(|batch| batch.starts_mut()) {
            start.context = self.context_below(&start.context);
        }
        Start {
            parent: Some(Parent {
                run: info.run,
                execution: info.execution,
                call,
            }),
            deadlines,
            context: self.context_below(&start.context),
            batch,
            ..start
        }
    }

    /// Calls that the function let go of: their waits close, their children are asked to end.
    pub(super) fn record_dropped(&mut self) {
        let dropped = std::mem::take(&mut self.shared.lock().dropped);
        for call in dropped {
            let Some(slot) = self.shared.lock().calls.remove(&call) else {
                continue;
            };
            self.draft.push(Entry::Dropped { call });
            self.forget(call, &slot);
        }
    }

    /// What a dropped call leaves to be done.
    fn forget(&mut self, call: u32, slot: &Slot) {
        self.timers.retain(|(_, of, _)| *of != call);
        self.draft.starts.retain(|start| *start != call);
        match &slot.what {
            Call::Wait { .. } => self.close_wait(call),
            Call::Child { run, .. } => match self.children.get_mut(&call) {
                Some((_, asked)) => {
                    *asked = true;
                    self.draft.cancels.push(Scope::Child(*run));
                }
                None => self.draft.cancels.push(Scope::Child(*run)),
            },
            Call::Children { .. }
            | Call::Batch { .. }
            | Call::Publish { .. }
            | Call::Step { .. } => {
                self.forget_scope(call);
            }
            _ => {}
        }
    }

    /// What was not committed has not happened: back to where the journal ends, as far as that
    /// matters to a run whose function is gone.
    pub(super) fn discard(&mut self) {
        let draft = std::mem::take(&mut self.draft);
        self.step_entry = None;
        for open in &draft.opened {
            self.waits.remove(&open.call);
        }
        self.waits.extend(draft.lifted);
        for consumed in &draft.consumed {
            if let Consumed::Mail(number) = consumed {
                self.seen_mail.remove(number);
            }
        }
        self.children.extend(draft.ended);
        for (_, asked) in self.children.values_mut() {
            *asked = false;
        }
        self.scopes.extend(draft.settled);
        for asked in self.scopes.values_mut() {
            *asked = false;
        }
    }

    /// Takes the next timer that is due. Returns whether there was one.
    ///
    /// # Errors
    /// When an operator must look.
    pub(super) fn fire_due(&mut self, now: Timestamp) -> Result<bool, Failure> {
        let Some(&(at, call, due)) = self.timers.first() else {
            return Ok(false);
        };
        if at > now || self.must_commit_first(call, due) {
            return Ok(false);
        }
        self.timers.pop_first();
        let slot = self
            .shared
            .lock()
            .calls
            .get(&call)
            .map(|slot| (slot.what.clone(), slot.run, slot.ask.is_step()));
        let Some((what, running, is_step)) = slot else {
            return Ok(true);
        };
        match due {
            // What undoes a step is one too.
            Due::Retry if is_step => self.steps.push_back(call),
            Due::Retry => self.start_attempt(call, now),
            Due::Sleep => self.complete(call, Outcome::Value(Payload::null())),
            Due::WindowCloses => self.draft.caused.push(Caused::Close(call)),
            Due::WaitEnds => self.wait_ends(call, &what)?,
            Due::AttemptEnds if running => {
                self.stop_attempt(call);
                let message = format!("the attempt of {what} took too long");
                let failure = Failure::transient(message).with_code("timed_out");
                self.finish_attempt(call, Err(failure), now);
            }
            Due::CallEnds => {
                self.stop_attempt(call);
                let message = format!("{what} took too long, all attempts together");
                let mut failure = Failure::new(Class::Exhausted, message).with_code("timed_out");
                self.count(failure.class);
                if let Some(slot) = self.shared.lock().calls.get(&call) {
                    failure.attempts.clone_from(&slot.attempts);
                }
                self.timers.retain(|(_, of, _)| *of != call);
                self.complete(call, Outcome::Failure(Box::new(failure)));
            }
            // Taken up before anything else.
            Due::AttemptEnds | Due::Deadline => {}
        }
        Ok(true)
    }

    /// A wait ends by time only after the database has looked for what is there already; an attempt
    /// begins only after the one before it is recorded.
    fn must_commit_first(&self, call: u32, due: Due) -> bool {
        match due {
            Due::WaitEnds => {
                // What was told before is looked at first, too.
                let opens = self.draft.opened.iter().any(|open| open.call == call);
                opens || self.reads.contains(&call)
            }
            Due::Retry => !self.draft.entries.is_empty(),
            Due::WindowCloses => self.draft.scopes.contains(&call),
            Due::Sleep | Due::AttemptEnds | Due::CallEnds | Due::Deadline => false,
        }
    }

    pub(super) fn complete(&mut self, call: u32, outcome: Outcome) {
        self.shared.lock().complete(call, outcome.clone());
        self.draft.push(Entry::Done { call, outcome });
    }
}

/// About how large an entry is.
fn size(entry: &Entry) -> usize {
    let payload = match entry {
        Entry::Done { outcome, .. } | Entry::Did { outcome, .. } => match outcome {
            Outcome::Value(value) => value.size(),
            Outcome::Failure(of) => of.size(),
        },
        Entry::Attempted { failure, .. } => failure.size(),
        Entry::ContextSet { context } => context.size(),
        Entry::Worked { value, .. } => value.size(),
        Entry::Settled { ends, failure, .. } => {
            scope_size(ends) + failure.as_ref().map_or(0, |failure| failure.size())
        }
        _ => 0,
    };
    payload + 128
}

/// What is sent together with it is sent then.
pub(super) fn sent_at(start: &mut Start, now: Timestamp) {
    if let Some(batch) = &mut start.batch {
        batch.sent_at(now);
    }
}
