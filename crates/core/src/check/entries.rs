//! What a journal says, if a worker wrote it: how it begins and ends, and that each call completes
//! once.

use std::collections::{BTreeMap, BTreeSet};

use super::{Invariant, Read, Report, RunRecord};
use crate::{Call, Entry, Outcome, Remainder, RunRow, RunState, UndoBy, UndoMark, Why};

/// Execution and number of an entry. Shown only of one that should not be.
#[derive(Clone, Copy)]
pub(super) struct Place(pub(super) u32, pub(super) u64);

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Place(execution, number) = self;
        write!(f, "execution {execution}, entry {number}")
    }
}

pub(super) fn run(record: &RunRecord, read: &Read<'_>, report: &mut Report<'_>) {
    let Some(row) = &record.row else { return };
    below(record, row, report);
    if row.state.has_ended() && !record.latches.is_empty() {
        let found = format!("{} latches of a run that is over", record.latches.len());
        report.add(Invariant::NoLeak, found, "none");
    }
    let mut execution = 0;
    let mut told = Told::default();
    for (round, entries) in read {
        // What cannot be read is reported with the rows.
        let Ok(entries) = entries else { return };
        if round.execution != execution {
            if execution > 0 {
                told.finish_execution(execution, report);
            }
            (execution, told) = (round.execution, told.next(round.execution));
        }
        for (number, entry) in (round.first..).zip(entries.iter()) {
            told.take(Place(execution, number), entry, report);
            if number == 1 {
                begins(record, entry, report);
            }
        }
    }
    told.finish(row, report);
}

/// A run ends, and begins anew, only after those below it have ended.
fn below(record: &RunRecord, row: &RunRow, report: &mut Report<'_>) {
    let (Some(parent), Some((above, _))) = (row.parent, &record.parent) else {
        return;
    };
    let over = above.state.has_ended() || above.execution > parent.execution;
    // What is over may have to be undone.
    if over && !row.state.has_ended() && row.undo != UndoMark::Underway {
        let found = format!("{} below a run that is over", row.state.as_str());
        report.add(Invariant::ParentAfterChildren, found, "that it ended first");
    }
}

fn begins(record: &RunRecord, first: &Entry, report: &mut Report<'_>) {
    let Some(lane) = &record.lane else { return };
    let fits = matches!(first, Entry::Started { workflow, .. } if *workflow == lane.workflow);
    if !fits {
        let expected = format!("the start of `{}`", lane.workflow);
        report.add(Invariant::GapFree, "another first entry", expected);
    }
}

/// A call, as far as the journal has told.
#[derive(Default)]
struct Known {
    begun: bool,
    attempted: bool,
    done: bool,
    dropped: bool,
    child: bool,
    /// Where it completed, or began if it did not, if it can be undone.
    undoable_at: Option<u64>,
    /// It is done in any case: not only in a rollback.
    finally: bool,
    /// Some of what it set off has to be rolled back before it is undone.
    left: bool,
    /// The call that it undoes, and of which execution.
    undoes: Option<(u32, u32)>,
    /// The call of this execution whose scope it rolls back.
    rolls_back: Option<u32>,
}

/// What an execution's journal has told so far.
#[derive(Default)]
struct Told {
    execution: u32,
    /// What earlier executions did and is undone with this one, and where.
    earlier: BTreeMap<(u32, u32), u64>,
    calls: BTreeMap<u32, Known>,
    cancel_seen: bool,
    continued: bool,
    ended: Vec<crate::RunState>,
    entries: u64,
    rolling_back: bool,
    /// An operator let an undo be left out.
    skipped: bool,
    /// Calls that are undone, and the place of the last of them in the journals.
    undone: BTreeSet<(u32, u32)>,
    undone_last: Option<(u32, u64)>,
    /// Calls whose scope is rolled back.
    rolled_back: BTreeSet<u32>,
}

impl Told {
    /// What the next execution's journal tells.
    fn next(mut self, execution: u32) -> Told {
        let mut left = self.undoable();
        left.retain(|(of, _)| !self.undone.contains(of));
        self.earlier.extend(left);
        Told {
            execution,
            earlier: self.earlier,
            ..Told::default()
        }
    }

    /// What this execution did that can be undone, and where.
    fn undoable(&self) -> Vec<((u32, u32), u64)> {
        let calls = self.calls.iter();
        let undoable = |(of, call): (&u32, &Known)| {
            let at = call.undoable_at?;
            Some(((self.execution, *of), at))
        };
        calls.filter_map(undoable).collect()
    }

    fn take(&mut self, place: Place, entry: &Entry, report: &mut Report<'_>) {
        self.entries += 1;
        let reopens = matches!(entry, Entry::RollingBack { .. }) && !self.continued;
        if (self.continued || !self.ended.is_empty()) && !reopens {
            let found = format!("{place} after the end");
            report.add(Invariant::NothingAfterEnd, found, "nothing");
        }
        let begins = matches!(
            entry,
            Entry::Begun { .. }
                | Entry::Did { .. }
                | Entry::Attempted { .. }
                | Entry::Worked { .. }
        );
        if self.cancel_seen && begins && !self.rolling_back {
            let found = format!("{place} begins something after the request to end");
            report.add(Invariant::Cancel, found, "that nothing begins");
        }
        self.phases(place, entry, report);
        match entry {
            Entry::Started { unsettled, .. } => {
                let first = unsettled.unwrap_or(u32::MAX);
                self.earlier.retain(|(execution, _), _| *execution >= first);
            }
            Entry::ContextSet { .. } => {}
            Entry::CancelSeen | Entry::Kept | Entry::DeadlineMissed { .. } => {
                self.cancel_seen = true;
            }
            Entry::Continued => self.continued = true,
            Entry::Ended { state } => self.ended.push(*state),
            Entry::RollingBack { why, .. } => {
                self.ended.clear();
                self.rolling_back = true;
                self.skipped |= *why == Why::Skipped;
            }
            Entry::Begun { call, .. }
            | Entry::Done { call, .. }
            | Entry::Did { call, .. }
            | Entry::Attempted { call, .. }
            | Entry::Worked { call, .. }
            | Entry::Settled { call, .. }
            | Entry::Dropped { call } => self.call(*call, place, entry, report),
        }
    }

    /// A run that undoes what it did does nothing else; what it waited for has ended.
    fn phases(&self, place: Place, entry: &Entry, report: &mut Report<'_>) {
        if let Entry::Begun { what, .. }
        | Entry::Did { what, .. }
        | Entry::Attempted { what, .. }
        | Entry::Worked { what, .. } = entry
        {
            let undoes = matches!(what, Call::Undo { .. } | Call::RollBack { .. });
            let finally = matches!(
                what,
                Call::Undo { of, .. } if self.calls.get(of).is_some_and(|call| call.finally)
            );
            if undoes != self.rolling_back && !finally {
                let found = format!("{place} begins {what}");
                let expected = match undoes {
                    true => "that it is rolled back first",
                    false => "only what undoes: it is rolled back",
                };
                report.add(Invariant::RollbackOrder, found, expected);
            }
            if let Call::Undo { of, execution, .. } = what {
                self.undoes((execution.unwrap_or(self.execution), *of), place, report);
            }
        }
        let over = [RunState::RolledBack, RunState::Cancelled, RunState::Failed];
        let again = self.ended.iter().any(|state| over.contains(state));
        if again && matches!(entry, Entry::RollingBack { .. }) {
            let found = format!("{place} rolls back what had been, or had nothing to undo");
            report.add(Invariant::RollbackComplete, found, "once");
        }
        if let Entry::Settled { ends, .. } = entry {
            let open = [RunState::Ready, RunState::Running, RunState::Waiting];
            if let Some(end) = ends.iter().find(|end| open.contains(&end.state)) {
                let found = format!("{place} says that {} is {}", end.run, end.state.as_str());
                report.add(Invariant::ParentAfterChildren, found, "that it has ended");
            }
        }
    }

    /// Only what happened is undone, after what it set off.
    fn undoes(&self, of: (u32, u32), place: Place, report: &mut Report<'_>) {
        let (execution, call) = of;
        let its = self
            .calls
            .get(&call)
            .filter(|_| execution == self.execution);
        let happened = its.is_some_and(|call| call.undoable_at.is_some());
        if !happened && !self.earlier.contains_key(&of) {
            let found = format!("{place} undoes call {call}, which did nothing");
            report.add(Invariant::RollbackComplete, found, "what happened only");
        }
        let left = its.is_some_and(|call| call.left) && !self.rolled_back.contains(&call);
        if left && !self.skipped {
            let found = format!("{place} undoes call {call} before what that set off");
            report.add(Invariant::RollbackOrder, found, "after it");
        }
    }

    fn call(&mut self, number: u32, place: Place, entry: &Entry, report: &mut Report<'_>) {
        let (at, execution) = (self.entries, self.execution);
        let call = self.calls.entry(number).or_default();
        let known = call.begun || call.attempted;
        let sound = match entry {
            Entry::Begun { what, .. } => {
                call.child = sets_off(what);
                call.note((what, execution), at, true);
                !std::mem::replace(&mut call.begun, true) && !call.done
            }
            Entry::Attempted { .. } => {
                call.attempted = true;
                !call.done && !call.dropped
            }
            Entry::Worked { what, .. } => {
                call.child = true;
                call.note((what, execution), at, true);
                !std::mem::replace(&mut call.begun, true) && !call.done
            }
            // The end of a child that was let go is still recorded.
            Entry::Done { .. } | Entry::Settled { .. } => {
                let due = known && (!call.dropped || call.child);
                let happened = !matches!(
                    entry,
                    Entry::Done { outcome: Outcome::Failure(failure), .. } if failure.did_not_happen
                );
                call.undoable_at = call.undoable_at.map(|_| at).filter(|_| happened);
                if let Entry::Settled { ends, .. } = entry {
                    call.left = ends.iter().any(|end| end.state == RunState::Completed);
                }
                !std::mem::replace(&mut call.done, true) && due
            }
            Entry::Did { what, outcome, .. } => {
                call.note((what, execution), at, matches!(outcome, Outcome::Value(_)));
                !std::mem::replace(&mut call.done, true) && !call.begun
            }
            Entry::Dropped { .. } => {
                !std::mem::replace(&mut call.dropped, true) && known && !call.done
            }
            _ => true,
        };
        if !sound {
            let found = format!("{place} for call {number}, out of turn or again");
            let expected = "one beginning, then one end";
            report.add(Invariant::OneEffect, found, expected);
        }
        let ok = matches!(
            entry,
            Entry::Did {
                outcome: Outcome::Value(_),
                ..
            } | Entry::Done {
                outcome: Outcome::Value(_),
                ..
            }
        );
        let of = self.calls[&number].rolls_back.filter(|_| ok);
        self.rolled_back.extend(of);
        if let Some(of) = self.calls[&number].undoes.filter(|_| ok) {
            self.undo(of, place, report);
        }
    }

    /// A call is undone: newest first, each once.
    fn undo(&mut self, of: (u32, u32), place: Place, report: &mut Report<'_>) {
        let (execution, call) = of;
        if !self.undone.insert(of) {
            let found = format!("{place} undoes call {call} of execution {execution} again");
            report.add(Invariant::RollbackComplete, found, "each once");
        }
        let at = match execution == self.execution {
            true => self.calls.get(&call).and_then(|call| call.undoable_at),
            false => self.earlier.get(&of).copied(),
        };
        let at = at.map(|at| (execution, at));
        let finally = self.calls.get(&call).is_some_and(|call| call.finally);
        if finally && execution == self.execution && !self.rolling_back {
            return;
        }
        let in_order = at.is_some_and(|at| self.undone_last.is_none_or(|last| at < last));
        if !in_order || !self.rolling_back {
            let found = format!("{place} undoes call {call} of execution {execution} out of turn");
            report.add(Invariant::RollbackOrder, found, "newest first");
        }
        self.undone_last = at;
    }

    fn finish_execution(&self, execution: u32, report: &mut Report<'_>) {
        if !self.continued || !self.ended.is_empty() {
            let found = format!("execution {execution} ended otherwise, and another after it");
            report.add(Invariant::OneEnd, found, "that it continues as new");
        }
    }

    /// A rollback that failed says what it left.
    fn remainder(&self, row: &RunRow, missing: &[(u32, u32)], report: &mut Report<'_>) {
        let failed = self.ended == [RunState::RollbackFailed] && !self.skipped;
        let told = row.outcome.as_ref().filter(|_| failed);
        let Some(Outcome::Failure(failure)) = told else {
            return;
        };
        let Some(told) = Remainder::told_by(failure) else {
            return;
        };
        let own = told.calls.iter().filter(|call| call.own);
        let own: BTreeSet<(u32, u32)> = own.map(|call| (call.execution, call.call)).collect();
        let all = told.calls.len() == told.count;
        let fits = own.iter().all(|of| missing.contains(of));
        if !fits || (all && own.len() != missing.len()) {
            let found = format!("says that (execution, call) {own:?} are not undone");
            report.add(Invariant::RollbackComplete, found, format!("{missing:?}"));
        }
    }

    fn finish(&self, row: &RunRow, report: &mut Report<'_>) {
        let state = row.state.as_str();
        let ends: Vec<&str> = self.ended.iter().map(|state| state.as_str()).collect();
        let due: &[&str] = match row.state.has_ended() {
            true => &[state],
            false => &[],
        };
        if ends != due {
            let found = format!("{state}, and in the journal {ends:?}");
            report.add(Invariant::OneEnd, found, format!("{due:?}"));
        }
        let all = self.undoable().into_iter().map(|(of, _)| of);
        let all = all.chain(self.earlier.keys().copied());
        let missing: Vec<(u32, u32)> = all.filter(|of| !self.undone.contains(of)).collect();
        if self.ended == [RunState::RolledBack] && !self.skipped && !missing.is_empty() {
            let found = format!("rolled back, and (execution, call) {missing:?} are not undone");
            report.add(Invariant::RollbackComplete, found, "all of them");
        }
        self.remainder(row, &missing, report);
        let finally = self.calls.iter().filter(|(_, call)| call.finally);
        let done = |of: u32| self.undone.contains(&(self.execution, of));
        let left: Vec<u32> = finally.map(|(of, _)| *of).filter(|of| !done(*of)).collect();
        if self.ended == [RunState::Completed] && !left.is_empty() {
            let found =
                format!("completed, and calls {left:?} of what is done in any case are not");
            report.add(Invariant::RollbackComplete, found, "all of them");
        }
        if self.continued {
            let found = "the last execution says that another follows";
            report.add(Invariant::OneEnd, found, "another");
        }
    }
}

impl Known {
    /// What is called: can it be undone, or does it undo?
    fn note(&mut self, (what, execution): (&Call, u32), at: u64, happened: bool) {
        if what.undo().is_some() && happened {
            self.undoable_at = Some(at);
            self.finally = what.undo() == Some(&UndoBy::Finally);
        }
        match what {
            Call::Undo {
                of, execution: its, ..
            } => self.undoes = Some((its.unwrap_or(execution), *of)),
            Call::RollBack { of, execution: its } if its.is_none_or(|its| its == execution) => {
                self.rolls_back = Some(*of);
            }
            _ => {}
        }
    }
}

/// Does the call wait for runs that it sets off?
fn sets_off(what: &Call) -> bool {
    matches!(
        what,
        Call::Child { .. } | Call::Children { .. } | Call::Batch { .. } | Call::Publish { .. }
    )
}
