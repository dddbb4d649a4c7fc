//! Waiting for signals, and for a condition on the run's own state, which is a wait for the signal
//! that it has changed:
//!
//! | | what happens |
//! |---|---|
//! | the call is made | the state is read, and the condition looked at |
//! | it holds | the call is done, with that state; if it had begun, its wait is closed |
//! | it does not | the call begins: a wait, which has seen that version of the state |
//! | the state changed | it is read and looked at again; the wait has now seen that version |
//! | the journal was replayed | likewise |
//!
//! The condition belongs to the call's future and is looked at when that is polled. A wait does not
//! depend on when that is: whoever combines futures may be slow to poll this one.

use roundel_core::{Call, Entry, Failure, OpenWait, Outcome, Payload, STATE_CHANGED, Timestamp};

use super::{Due, LiveRun};
use crate::cx::shared::{Asked, Limit, Phase};

impl LiveRun {
    /// A wait begins.
    pub(super) fn begin_wait(
        &mut self,
        call: u32,
        what: &mut Call,
        (offerable, limit): (bool, Limit),
        now: Timestamp,
    ) {
        let Call::Wait { signal, until } = what else {
            unreachable!("a wait waits")
        };
        *until = limit.within.map(|within| now.after(within));
        if let Some(until) = until {
            self.timers.insert((*until, call, Due::WaitEnds));
        }
        self.waits.insert(call, (signal.clone(), offerable));
        if offerable {
            self.draft.gates.push(signal.clone());
        }
        self.draft.opened.push(OpenWait {
            call,
            name: signal.clone(),
            offerable,
        });
    }

    /// A wait has lasted long enough.
    pub(super) fn wait_ends(&mut self, call: u32, what: &Call) -> Result<(), Failure> {
        let Call::Wait { signal, .. } = what else {
            return Ok(());
        };
        let message = match *signal == STATE_CHANGED {
            true => "the run's state did not come to what it waits for in time".to_owned(),
            false => format!("no signal `{signal}` came in time"),
        };
        let inner = self.shared.lock();
        let parks = inner.calls.get(&call).is_some_and(|slot| match slot.ask {
            Asked::Wait { limit, .. } | Asked::Until(limit) => limit.parks,
            _ => false,
        });
        drop(inner);
        if parks {
            return Err(Failure::permanent(message).with_code("timed_out"));
        }
        self.close_wait(call);
        let failure = Failure::business(message).with_code("timed_out");
        self.complete(call, Outcome::Failure(Box::new(failure)));
        Ok(())
    }

    /// Nobody waits in this call any more. A wait that the database does not know yet is not told
    /// to it at all.
    pub(super) fn close_wait(&mut self, call: u32) {
        let Some((signal, offerable)) = self.waits.remove(&call) else {
            return;
        };
        let opened = self.draft.opened.len();
        self.draft.opened.retain(|open| open.call != call);
        if self.draft.opened.len() < opened {
            return;
        }
        if offerable {
            self.draft.gates.push(signal.clone());
        }
        self.draft.closed.push((signal.clone(), call));
        self.draft.lifted.push((call, (signal, offerable)));
    }

    /// Nobody waits for signals any more.
    pub(super) fn close_waits(&mut self) {
        let open: Vec<u32> = self.waits.keys().copied().collect();
        open.into_iter().for_each(|call| self.close_wait(call));
    }

    /// The state may have changed: it is read for this call.
    pub(super) fn look_again(&mut self, call: u32) {
        let inner = self.shared.lock();
        let open = inner.calls.get(&call);
        let open = open.is_some_and(|slot| slot.phase == Phase::Open);
        let open = open && !inner.closed && !inner.dropped.contains(&call);
        drop(inner);
        if open && !self.reads.contains(&call) {
            self.reads.push_back(call);
        }
    }

    /// The journal has been replayed: what happened to the state meanwhile is not in it.
    pub(super) fn look_at_all_again(&mut self) {
        let inner = self.shared.lock();
        let until = inner.calls.iter();
        let until = until.filter(|(_, slot)| matches!(slot.ask, Asked::Until(_)));
        let mut until: Vec<u32> = until.map(|(call, _)| *call).collect();
        drop(inner);
        until.sort_unstable();
        until.into_iter().for_each(|call| self.look_again(call));
    }

    /// The state was read for this call: its condition is looked at.
    pub(super) fn look_at(&mut self, call: u32, version: u64, state: Payload) {
        self.shared.lock().judge(call, version, state);
        if let Some(wait) = self.waits.get(&call).cloned() {
            self.draft.closed.push((STATE_CHANGED, call));
            self.draft.lifted.push((call, wait));
            self.open(call, version);
        }
    }

    /// The call waits for a newer state than this.
    fn open(&mut self, call: u32, version: u64) {
        let seen = self.draft.state_seen;
        self.draft.state_seen = Some(seen.map_or(version, |seen| seen.min(version)));
        self.draft.opened.retain(|open| open.call != call);
        self.draft.opened.push(OpenWait {
            call,
            name: STATE_CHANGED,
            offerable: false,
        });
    }

    /// Takes up a condition that was looked at. Returns whether there was one.
    pub(super) fn take_judged(&mut self, now: Timestamp) -> bool {
        let mut inner = self.shared.lock();
        if inner.judged.is_empty() {
            return false;
        }
        let (call, version, holds, state) = inner.judged.remove(0);
        let Some(slot) = inner.calls.get_mut(&call) else {
            return true;
        };
        let (mut what, ask, fresh) = (
            slot.what.clone(),
            slot.ask.clone(),
            slot.phase == Phase::Fresh,
        );
        let outcome = Outcome::Value(state);
        match (holds, fresh) {
            (true, true) => {
                drop(inner);
                self.did(call, what, outcome);
            }
            (true, false) => {
                drop(inner);
                self.timers.retain(|(_, of, _)| *of != call);
                self.reads.retain(|read| *read != call);
                self.close_wait(call);
                self.complete(call, outcome);
            }
            (false, true) => {
                let Asked::Until(limit) = ask else {
                    unreachable!("conditions are of such calls")
                };
                slot.phase = Phase::Open;
                slot.begun_at = Some(now);
                drop(inner);
                self.begin_wait(call, &mut what, (false, limit), now);
                self.open(call, version);
                if let Some(slot) = self.shared.lock().calls.get_mut(&call) {
                    slot.what = what.clone();
                }
                self.draft.push(Entry::Begun { call, what });
            }
            // It waits for the next.
            (false, false) => {}
        }
        true
    }
}
