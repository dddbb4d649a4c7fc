//! Attempts of steps and effects: what one comes to, whether there is another, and when.

use roundel_core::{Attempted, Call, Class, Entry, Failure, Origin, Outcome, Payload, Timestamp};

use super::{Due, LiveRun};
use crate::cx::shared::{Asked, Shared, Tries};

impl LiveRun {
    /// Lets an effect's next attempt run.
    pub(super) fn start_attempt(&mut self, call: u32, now: Timestamp) {
        let mut inner = self.shared.lock();
        let Some(slot) = inner.calls.get(&call) else {
            return;
        };
        if let Asked::Effect(Tries {
            each: Some(each), ..
        }) = slot.ask
        {
            self.timers
                .insert((now.after(each), call, Due::AttemptEnds));
        }
        inner.let_run(call);
    }

    /// Attempts that said that they need longer get it, if they are still the last of their call.
    pub(super) fn extend_attempts(&mut self, now: Timestamp) {
        let extended = std::mem::take(&mut self.shared.lock().extended);
        for (call, number, span) in extended {
            let inner = self.shared.lock();
            let before = inner.calls.get(&call).map(|slot| slot.attempts.len());
            drop(inner);
            let last = before.is_some_and(|before| before + 1 == number as usize);
            let timer = self.attempt_timer(call);
            if last && self.timers.remove(&timer) {
                let until = now.after(span).max(timer.0);
                self.timers.insert((until, call, Due::AttemptEnds));
            }
        }
    }

    /// An attempt of an effect has ended.
    pub(super) fn finish_attempt(
        &mut self,
        call: u32,
        result: Result<Payload, Failure>,
        now: Timestamp,
    ) {
        self.timers.remove(&self.attempt_timer(call));
        let Some(entry) = self.judge(call, result, now) else {
            return;
        };
        if let Entry::Attempted { retry_at, .. } = &entry {
            self.timers.insert((*retry_at, call, Due::Retry));
            self.draft.push(entry);
            return;
        }
        let outcome = match entry {
            Entry::Did { outcome, .. } => outcome,
            _ => unreachable!("an attempt ends or is repeated"),
        };
        self.timers.retain(|(_, of, _)| *of != call);
        self.shared.lock().complete(call, outcome.clone());
        self.draft.push(Entry::Done { call, outcome });
    }

    fn attempt_timer(&self, call: u32) -> (Timestamp, u32, Due) {
        let timers = self.timers.iter();
        let found = timers
            .copied()
            .find(|(_, of, due)| *of == call && *due == Due::AttemptEnds);
        found.unwrap_or((Timestamp::MAX, call, Due::AttemptEnds))
    }

    /// What an attempt of a step or effect comes to: `Did`, or `Attempted` if there is another.
    pub(super) fn judge(
        &self,
        call: u32,
        result: Result<Payload, Failure>,
        now: Timestamp,
    ) -> Option<Entry> {
        // Only a retry needs one; it is not free.
        let draw = result.as_ref().err().map_or(0.0, |_| draw(&self.shared));
        let mut inner = self.shared.lock();
        let slot = inner.calls.get_mut(&call)?;
        let (Asked::Effect(tries) | Asked::Step(tries)) = slot.ask else {
            return None;
        };
        let what = slot.what.clone();
        let mut failure = match result {
            Ok(value) => {
                return Some(Entry::Did {
                    call,
                    what,
                    outcome: Outcome::Value(value),
                });
            }
            Err(failure) => failure,
        };
        let attempt = u32::try_from(slot.attempts.len())
            .unwrap_or(u32::MAX)
            .saturating_add(1);
        let retry_at = now.after(tries.retry.pause(attempt, draw));
        let ends = slot
            .begun_at
            .zip(tries.total)
            .map(|(begun, total)| begun.after(total));
        let again = failure.class == Class::Transient
            && !tries.retry.is_last(attempt)
            && ends.is_none_or(|ends| retry_at < ends);
        if again {
            self.count(failure.class);
            let message = failure.message.clone();
            if !matches!(slot.ask, Asked::Step(_)) {
                slot.attempts.push(Attempted {
                    attempt,
                    message,
                    at: now,
                });
            }
            return Some(Entry::Attempted {
                call,
                what,
                attempt,
                failure: Box::new(failure),
                at: now,
                retry_at,
            });
        }
        failure.attempts.clone_from(&slot.attempts);
        self.close(&mut failure, call, &what, attempt);
        self.count(failure.class);
        Some(Entry::Did {
            call,
            what,
            outcome: Outcome::Failure(Box::new(failure)),
        })
    }

    /// No further attempt is made: the failure says so, and where it happened.
    fn close(&self, failure: &mut Failure, call: u32, what: &Call, attempt: u32) {
        if failure.class == Class::Transient {
            failure.class = Class::Exhausted;
        }
        let (run, name) = (self.shared.info.run, what.signature().1.to_owned());
        let origin = Origin {
            run,
            workflow: self.shared.info.workflow.as_str().to_owned(),
            call,
            name,
            attempt,
            worker: self.driver.name.to_string(),
        };
        failure.origin.get_or_insert_with(|| Box::new(origin));
    }

    pub(super) fn count(&self, class: Class) {
        let counters = &self.driver.counters;
        match class {
            Class::Business => counters.failures_business.one(),
            Class::Transient => counters.failures_transient.one(),
            Class::Permanent | Class::Exhausted | Class::Cancelled => {
                counters.failures_permanent.one();
            }
        }
    }

    /// Abandons an attempt that runs; its future is dropped at its next poll.
    pub(super) fn stop_attempt(&mut self, call: u32) {
        let mut inner = self.shared.lock();
        inner.finished.retain(|(of, _)| *of != call);
        inner.stop(call);
    }
}

/// A random number, 0 to 1.
fn draw(shared: &Shared) -> f64 {
    let bits = crate::cx::random(shared) >> 12;
    #[allow(clippy::cast_precision_loss)]
    let (bits, all) = (bits as f64, (1_u64 << 52) as f64);
    bits / all
}
