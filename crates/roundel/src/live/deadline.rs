//! Deadlines, as a run in memory meets them. A forward one that is missed ends the run as a request
//! to end does: no user code runs any more, what is below is asked to end and waited for, and what
//! was done is undone; only the reason is another. A workflow may say that its runs fail without
//! that, or are parked as they are, until an operator lifts the deadline. One for the rollback lets
//! nothing more be undone: what is under way below has the same deadline, or an earlier one, and is
//! waited for.

use std::sync::Arc;

use roundel_core::mutant::{self, Mutant};
use roundel_core::{Call, Deadline, Deadlines, Entry, Failure, Outcome, Timestamp};

use super::{Due, Handler, LiveRun};
use crate::cx::shared::{Asked, Phase};
use crate::cx::{Cx, Times};
use crate::names::WhenLate;

/// No call has this number: it stands for the run itself.
const RUN: u32 = 0;

/// A workflow's function, whose runs do this when they are late.
pub(crate) fn heeding(when_late: WhenLate, handler: Handler) -> Handler {
    Arc::new(move |cx: Cx, input| {
        cx.shared.lock().when_late = when_late;
        handler(cx, input)
    })
}

impl LiveRun {
    /// Puts the deadline that counts now among the timers.
    pub(super) fn set_deadline(&mut self) {
        self.timers.retain(|(_, _, due)| *due != Due::Deadline);
        let deadlines = self.shared.info.deadlines;
        let due = match self.rolling.is_some() {
            true => deadlines.rollback,
            false => deadlines.forward,
        };
        self.timers
            .extend(due.map(|due| (due.at, RUN, Due::Deadline)));
    }

    /// The engine refused what came after the deadline.
    pub(crate) fn deadline_missed(&mut self, now: Timestamp) {
        let deadlines = self.shared.info.deadlines;
        match self.is_rolling_back() {
            true => self.stop_undoing(deadlines.rollback),
            false => self.miss(deadlines.forward, now),
        }
    }

    /// The deadlines of what the run sets off.
    pub(super) fn deadlines_below(&self, times: Times, now: Timestamp) -> Deadlines {
        let info = &self.shared.info;
        info.deadlines.and(times.set(info.run, now))
    }

    /// Takes up a deadline that has passed.
    pub(super) fn take_up_deadline(&mut self, now: Timestamp) {
        let mut past = self.timers.iter().take_while(|(at, ..)| *at <= now);
        if !past.any(|(_, _, due)| *due == Due::Deadline) {
            return;
        }
        self.timers.retain(|(_, _, due)| *due != Due::Deadline);
        let deadlines = self.shared.info.deadlines;
        match self.rolling.is_some() {
            true => self.stop_undoing(deadlines.rollback),
            false => self.miss(deadlines.forward, now),
        }
    }

    fn miss(&mut self, deadline: Option<Deadline>, now: Timestamp) {
        if self.cancelling.is_some() || self.is_rolling_back() {
            return;
        }
        let declared = self.shared.lock().when_late;
        match declared {
            WhenLate::Park if !mutant::on(Mutant::LateUndone) => self.overdue = deadline,
            _ => {
                self.missed = deadline;
                self.kept = declared == WhenLate::Fail;
                self.cancel(now, false);
            }
        }
    }

    /// No undo begins after this, and none is tried again.
    fn stop_undoing(&mut self, deadline: Option<Deadline>) {
        let Some(deadline) = deadline else { return };
        let inner = self.shared.lock();
        let mut open: Vec<(u32, Call, bool)> = inner
            .calls
            .iter()
            .filter(|(_, slot)| !matches!(slot.phase, Phase::Done(_)))
            .filter(|(_, slot)| !matches!(slot.ask, Asked::RollBack(_)))
            .map(|(call, slot)| (*call, slot.what.clone(), slot.phase == Phase::Open))
            .collect();
        drop(inner);
        open.sort_unstable_by_key(|(call, ..)| *call);
        for (call, what, begun) in open {
            self.steps.retain(|step| *step != call);
            self.timers.retain(|(_, of, _)| *of != call);
            self.stop_attempt(call);
            self.refuse(call, what, begun, deadline);
        }
    }

    /// A call of the rollback fails, since that has lasted too long.
    fn refuse(&mut self, call: u32, what: Call, begun: bool, deadline: Deadline) {
        let outcome = Outcome::Failure(Box::new(too_late(deadline)));
        let mut inner = self.shared.lock();
        inner.fresh.retain(|fresh| *fresh != call);
        inner.complete(call, outcome.clone());
        drop(inner);
        self.draft.push(match begun {
            true => Entry::Done { call, outcome },
            false => Entry::Did {
                call,
                what,
                outcome,
            },
        });
    }

    /// Calls that the rollback makes after its deadline fail. Returns whether there was one.
    pub(super) fn refuse_late(&mut self, now: Timestamp) -> bool {
        let due = self.shared.info.deadlines.rollback;
        let due = due.filter(|due| self.rolling.is_some() && due.has_passed(now));
        let Some(due) = due else { return false };
        let inner = self.shared.lock();
        let first = inner.fresh.first().copied();
        let first = first.and_then(|call| Some((call, inner.calls.get(&call)?.what.clone())));
        drop(inner);
        let Some((call, what)) = first else {
            return false;
        };
        self.refuse(call, what, false, due);
        true
    }

    /// What a run fails with that has missed its deadline.
    pub(super) fn missed_failure(&self) -> Option<Failure> {
        self.missed.map(|deadline| deadline.missed())
    }
}

fn too_late(deadline: Deadline) -> Failure {
    let mut failure = deadline.missed();
    failure.message = format!("{}, so this was not undone", failure.message);
    failure
}
