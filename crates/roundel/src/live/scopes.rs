//! What calls set off together, as its end reaches the function.

use roundel_core::mutant::{self, Mutant};
use roundel_core::{
    Call, Caused, Consumed, Context, Delivery, Emitted, Entry, Failure, Outcome, Payload, Publish,
    Remainder, RunState, Scope, ScopeEnd, Source, Timestamp, limits,
};

use super::{Due, LiveRun, Turn};
use crate::cx::shared::{Asked, Phase};
use crate::cx::{TOO_LARGE, ends_value, listed, scope_result};

impl LiveRun {
    /// Is this about what a call set off together, or rolls back?
    pub(super) fn is_of_scope(&self, delivery: &Delivery) -> bool {
        let call = delivery.call;
        let inner = self.shared.lock();
        let rolls_back = |ask: &Asked| matches!(ask, Asked::RollBack(_));
        self.scopes.contains_key(&call)
            || self.draft.scopes.contains(&call)
            || inner
                .calls
                .get(&call)
                .is_some_and(|slot| rolls_back(&slot.ask))
    }

    /// All runs of a scope have ended, or some of them could not be set off.
    pub(super) fn take_settled(&mut self, delivery: Delivery) {
        let call = delivery.call;
        if matches!(delivery.body, Outcome::Failure(_)) {
            self.refused.push(delivery);
            return;
        }
        let inner = self.shared.lock();
        let slot = inner.calls.get(&call).filter(|_| !inner.closed);
        let waits =
            slot.is_some_and(|slot| slot.phase == Phase::Open) && !inner.dropped.contains(&call);
        let rolls_back = slot.is_some_and(|slot| matches!(slot.ask, Asked::RollBack(_)));
        let is_batch = slot.is_some_and(|slot| matches!(slot.what, Call::Batch { .. }));
        drop(inner);
        if waits && is_batch {
            // How many failed is all that a batch says of its commands.
            let outcome = delivery.body.clone();
            let asked = self.scopes.remove(&call);
            self.draft.settled.extend(asked.map(|asked| (call, asked)));
            return self.settle_rollback(&delivery, outcome);
        }
        if !waits {
            // Nobody waits for it any more; that it is over matters all the same.
            let ends = Vec::new();
            return self.settle(&delivery, ends, None);
        }
        if rolls_back && failed(&delivery) == 0 {
            let outcome = Outcome::Value(Payload::null());
            return self.settle_rollback(&delivery, outcome);
        }
        self.settles.push_back((call, delivery));
    }

    /// The scope whose runs are to be read next.
    pub(super) fn next_to_settle(&self) -> Option<Turn> {
        let (call, _) = self.settles.front()?;
        let inner = self.shared.lock();
        let scope = match inner.calls.get(call).map(|slot| &slot.ask) {
            Some(Asked::RollBack(scope)) => *scope,
            _ => Scope::Call {
                execution: self.shared.info.execution,
                call: *call,
            },
        };
        Some(Turn::Settle(*call, scope))
    }

    /// Nobody waits any more for scopes that have settled: that they have is all that matters.
    pub(super) fn settle_unread(&mut self) {
        for (_, delivery) in std::mem::take(&mut self.settles) {
            self.settle(&delivery, Vec::new(), None);
        }
    }

    /// How the runs of this scope ended.
    pub(crate) fn settled(&mut self, call: u32, ends: Vec<ScopeEnd>) {
        let place = self.settles.iter().position(|(of, _)| *of == call);
        let Some((_, delivery)) = place.and_then(|place| self.settles.remove(place)) else {
            return;
        };
        let ends = with_room(ends);
        let inner = self.shared.lock();
        let slot = inner.calls.get(&call);
        let rolls_back = slot.is_some_and(|slot| matches!(slot.ask, Asked::RollBack(_)));
        let what = slot.map(|slot| (slot.what.clone(), slot.worked.clone()));
        let wanted = slot.map_or(0, |slot| match &slot.ask {
            Asked::Children(starts, _) => starts.len(),
            _ => 0,
        });
        drop(inner);
        if rolls_back {
            let outcome = Outcome::Failure(Box::new(not_rolled_back(&ends)));
            return self.settle_rollback(&delivery, outcome);
        }
        let Some((what, worked)) = what else {
            return self.settle(&delivery, ends, None);
        };
        // A result is missing for each that was deleted after its end.
        let gone = wanted.saturating_sub(ends.len());
        let failed = failed(&delivery).max(u32::try_from(gone).unwrap_or(u32::MAX));
        let outcome = self.scope_outcome((call, &what), worked, &ends, failed);
        self.settle(&delivery, ends, Some(outcome));
    }

    /// What the call comes to, given how what it set off ended.
    fn scope_outcome(
        &self,
        (call, what): (u32, &Call),
        worked: Option<Payload>,
        ends: &[ScopeEnd],
        failed: u32,
    ) -> Outcome {
        let mut refused = self.refused.iter().filter(|delivery| delivery.call == call);
        if let Some(Outcome::Failure(failure)) = refused.next().map(|delivery| &delivery.body) {
            return Outcome::Failure(failure.clone());
        }
        let size = scope_size(ends);
        if size > limits::PAYLOAD_BYTES {
            return Outcome::Failure(Box::new(too_large(what, size)));
        }
        let mut all = std::borrow::Cow::Borrowed(ends);
        if mutant::on(Mutant::FailurePresentedAgain) {
            all.to_mut().extend(self.shared.lock().ended.clone());
        }
        let value = scope_result(what, &all, failed).and_then(|()| match worked {
            Some(value) => Ok(value),
            None => ends_value(ends),
        });
        value.into()
    }

    /// The end of a scope goes into the journal, and to whoever waits for it.
    fn settle(&mut self, delivery: &Delivery, mut ends: Vec<ScopeEnd>, outcome: Option<Outcome>) {
        let call = delivery.call;
        let asked = self.scopes.remove(&call);
        self.draft.settled.extend(asked.map(|asked| (call, asked)));
        if scope_size(&ends) > limits::PAYLOAD_BYTES {
            ends.clear();
        }
        if let Some(outcome) = &outcome {
            let mut inner = self.shared.lock();
            inner.ended.clone_from(&ends);
            inner.ended_step = inner.calls.get(&call).and_then(|slot| slot.worked.clone());
            inner.note_published(call, outcome);
            inner.complete(call, outcome.clone());
        }
        let failure = match outcome {
            Some(Outcome::Failure(failure)) => Some(failure),
            _ => None,
        };
        self.draft.push(Entry::Settled {
            call,
            ends,
            failure,
        });
        let (its, others) = std::mem::take(&mut self.refused)
            .into_iter()
            .partition(|refused| refused.call == call);
        self.refused = others;
        let its: Vec<Delivery> = its;
        its.iter().for_each(|refused| self.consume(refused));
        self.consume(delivery);
    }

    fn settle_rollback(&mut self, delivery: &Delivery, outcome: Outcome) {
        let call = delivery.call;
        self.shared.lock().complete(call, outcome.clone());
        self.draft.push(Entry::Done { call, outcome });
        self.consume(delivery);
    }

    fn consume(&mut self, delivery: &Delivery) {
        if let Source::Mail(number) = delivery.source {
            self.draft.consumed.push(Consumed::Mail(number));
        }
    }

    /// The journal says how a scope ended.
    pub(super) fn replay_settled(
        &mut self,
        call: u32,
        (ends, failure): (Vec<ScopeEnd>, Option<Box<Failure>>),
    ) -> Result<(), Failure> {
        self.scopes.remove(&call);
        let mut inner = self.shared.lock();
        let slot = inner.calls.get(&call);
        let open = slot.is_some_and(|slot| slot.phase == Phase::Open);
        if !open || inner.dropped.contains(&call) || inner.closed {
            return Ok(());
        }
        let slot = inner.calls.get(&call).expect("just seen");
        let (what, worked) = (slot.what.clone(), slot.worked.clone());
        drop(inner);
        let outcome = match failure {
            Some(failure) => Outcome::Failure(failure),
            None => self.scope_outcome((call, &what), worked, &ends, 0),
        };
        inner = self.shared.lock();
        inner.ended = ends;
        inner.ended_step = inner.calls.get(&call).and_then(|slot| slot.worked.clone());
        inner.note_published(call, &outcome);
        inner.complete(call, outcome);
        Ok(())
    }

    /// A step is committed; what it set off is waited for.
    pub(super) fn step_worked(
        &mut self,
        call: u32,
        (value, emitted): (Payload, Vec<Emitted>),
        closes_at: Option<Timestamp>,
    ) {
        self.scopes.insert(call, false);
        self.timers
            .extend(closes_at.map(|at| (at, call, Due::WindowCloses)));
        if let Some(slot) = self.shared.lock().calls.get_mut(&call) {
            slot.phase = Phase::Open;
            slot.worked = Some(value);
            slot.emitted = emitted;
        }
    }

    /// The step's entry, and what it publishes.
    pub(super) fn with_emitted(&mut self, entry: Entry) -> (Entry, Vec<Caused>) {
        let mut inner = self.shared.lock();
        let named = inner.emitting();
        let emitted: Vec<Publish> = std::mem::take(&mut inner.emitted);
        drop(inner);
        match entry {
            Entry::Did {
                call,
                what,
                outcome: Outcome::Value(value),
            } if !emitted.is_empty() => {
                let window = emitted.iter().filter_map(|publish| publish.window).max();
                let caused = emitted.into_iter();
                let caused = caused.map(|publish| Caused::Publish(call, Box::new(publish)));
                let worked = Entry::Worked {
                    call,
                    what,
                    value,
                    window,
                    emitted: named,
                };
                (worked, caused.collect())
            }
            entry => (entry, Vec::new()),
        }
    }

    /// The windows of what these calls published are open, by the store's clock, since then.
    pub(super) fn open_windows(&mut self, calls: &[u32], since: Timestamp) {
        for call in calls {
            let inner = self.shared.lock();
            let window = match inner.calls.get(call).map(|slot| &slot.what) {
                Some(Call::Publish { window, .. }) => *window,
                _ => None,
            };
            drop(inner);
            if let Some(window) = window {
                self.timers
                    .retain(|(_, of, due)| (of, *due) != (call, Due::WindowCloses));
                self.timers
                    .insert((since.after(window), *call, Due::WindowCloses));
            }
        }
    }

    /// What flows down to what the run sets off, beside what the call adds.
    pub(super) fn context_below(&self, added: &Context) -> Context {
        let mut context = self.shared.lock().context.clone();
        context.take(added);
        context
    }

    /// The function let go of a call that set off runs: they are asked to end.
    pub(super) fn forget_scope(&mut self, call: u32) {
        if let Some(asked) = self.scopes.get_mut(&call) {
            *asked = true;
            let execution = self.shared.info.execution;
            self.draft.cancels.push(Scope::Call { execution, call });
        }
        if let Some(place) = self.settles.iter().position(|(of, _)| *of == call)
            && let Some((_, delivery)) = self.settles.remove(place)
        {
            return self.settle(&delivery, Vec::new(), None);
        }
        if !self.draft.scopes.contains(&call) {
            return;
        }
        // What the database does not know yet is not told to it; replay must not wait for it.
        self.draft.scopes.retain(|of| *of != call);
        self.draft.caused.retain(|caused| match caused {
            Caused::Children(of, _) | Caused::Publish(of, _) => *of != call,
            _ => true,
        });
        let (ends, failure) = (Vec::new(), None);
        self.draft.push(Entry::Settled {
            call,
            ends,
            failure,
        });
    }
}

/// How many runs of the scope ended otherwise than they should.
fn failed(delivery: &Delivery) -> u32 {
    match &delivery.body {
        Outcome::Value(value) => value.decode().unwrap_or(0),
        Outcome::Failure(_) => 0,
    }
}

pub(super) fn scope_size(ends: &[ScopeEnd]) -> usize {
    let size = |end: &ScopeEnd| match &end.outcome {
        Outcome::Value(value) => value.size() + 128,
        Outcome::Failure(failure) => failure.size() + 128,
    };
    ends.iter().map(size).sum()
}

/// If that is too much, failures say only what went wrong, and where: the runs have the rest.
fn with_room(mut ends: Vec<ScopeEnd>) -> Vec<ScopeEnd> {
    // They stand in the journal twice: as they are, and in what the call fails with.
    if scope_size(&ends) > limits::PAYLOAD_BYTES / 2 {
        for end in &mut ends {
            if let Outcome::Failure(failure) = &mut end.outcome {
                failure.data = None;
                failure.cause = None;
                failure.attempts.clear();
            }
        }
    }
    ends
}

/// The results of a scope do not fit into the journal.
fn too_large(what: &Call, size: usize) -> Failure {
    let limit = limits::PAYLOAD_BYTES;
    Failure::permanent(format!(
        "the results of what {what} set off have {size} bytes together; at most {limit} are \
         allowed; let the runs return references"
    ))
    .with_code(TOO_LARGE)
}

/// Why a rollback cannot go on: what was set off could not be undone.
fn not_rolled_back(ends: &[ScopeEnd]) -> Failure {
    let stuck = |end: &&ScopeEnd| end.state == RunState::RollbackFailed;
    let stuck: Vec<&ScopeEnd> = ends.iter().filter(stuck).collect();
    let message = match stuck.first() {
        Some(first) => format!(
            "{} of the runs that it set off could not be undone; the first is run {} of `{}`",
            stuck.len(),
            first.run,
            first.workflow
        ),
        None => "a run that it set off could not be undone".to_owned(),
    };
    let failure = Failure::business(message)
        .with_code(Remainder::CODE)
        .with_data(&listed(&stuck));
    match stuck.first().map(|first| &first.outcome) {
        Some(Outcome::Failure(cause)) => failure.caused_by((**cause).clone()),
        _ => failure,
    }
}
