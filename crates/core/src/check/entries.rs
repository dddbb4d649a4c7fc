//! What a journal says, if a worker wrote it: how it begins and ends, and that each call completes
//! once.

use std::collections::BTreeMap;

use super::{Invariant, Read, Report, RunRecord};
use crate::{Call, Entry, RunRow};

/// Execution and number of an entry. Shown only of one that should not be.
#[derive(Clone, Copy)]
pub(super) struct Place(pub(super) u32, pub(super) u64);

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Place(execution, number) = self;
        write!(f, "execution {execution}, entry {number}")
    }
}

pub(super) fn run(record: &RunRecord, read: &Read, report: &mut Report<'_>) {
    let Some(row) = &record.row else { return };
    below(record, row, report);
    let mut execution = 0;
    let mut told = Told::default();
    for (round, entries) in record.journal.iter().zip(read) {
        // What cannot be read is reported with the rows.
        let Ok(entries) = entries else { return };
        if round.execution != execution {
            if execution > 0 {
                told.finish_execution(execution, report);
            }
            (execution, told) = (round.execution, Told::default());
        }
        for (number, entry) in (round.first..).zip(entries) {
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
    if over && !row.state.has_ended() {
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
}

/// What an execution's journal has told so far.
#[derive(Default)]
struct Told {
    calls: BTreeMap<u32, Known>,
    cancel_seen: bool,
    continued: bool,
    ended: Vec<crate::RunState>,
}

impl Told {
    fn take(&mut self, place: Place, entry: &Entry, report: &mut Report<'_>) {
        if self.continued || !self.ended.is_empty() {
            let found = format!("{place} after the end");
            report.add(Invariant::NothingAfterEnd, found, "nothing");
        }
        let begins = matches!(
            entry,
            Entry::Begun { .. } | Entry::Did { .. } | Entry::Attempted { .. }
        );
        if self.cancel_seen && begins {
            let found = format!("{place} begins something after the request to end");
            report.add(Invariant::Cancel, found, "that nothing begins");
        }
        match entry {
            Entry::Started { .. } => {}
            Entry::CancelSeen => self.cancel_seen = true,
            Entry::Continued => self.continued = true,
            Entry::Ended { state } => self.ended.push(*state),
            Entry::Begun { call, .. }
            | Entry::Done { call, .. }
            | Entry::Did { call, .. }
            | Entry::Attempted { call, .. }
            | Entry::Dropped { call } => self.call(*call, place, entry, report),
        }
    }

    fn call(&mut self, number: u32, place: Place, entry: &Entry, report: &mut Report<'_>) {
        let call = self.calls.entry(number).or_default();
        let known = call.begun || call.attempted;
        let sound = match entry {
            Entry::Begun { what, .. } => {
                call.child = matches!(what, Call::Child { .. });
                !std::mem::replace(&mut call.begun, true) && !call.done
            }
            Entry::Attempted { .. } => {
                call.attempted = true;
                !call.done && !call.dropped
            }
            // The end of a child that was let go is still recorded.
            Entry::Done { .. } => {
                let due = known && (!call.dropped || call.child);
                !std::mem::replace(&mut call.done, true) && due
            }
            Entry::Did { .. } => !std::mem::replace(&mut call.done, true) && !call.begun,
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
    }

    fn finish_execution(&self, execution: u32, report: &mut Report<'_>) {
        if !self.continued || !self.ended.is_empty() {
            let found = format!("execution {execution} ended otherwise, and another after it");
            report.add(Invariant::OneEnd, found, "that it continues as new");
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
        if self.continued {
            let found = "the last execution says that another follows";
            report.add(Invariant::OneEnd, found, "another");
        }
    }
}
