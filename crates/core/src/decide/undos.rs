//! Undoing what a run did: the only way out of a terminal state, always into a phase of its own.

use super::require_run;
use crate::mutant::{self, Mutant};
use crate::{
    Accept, CancelMark, Context, Deadline, Deadlines, Entry, Failure, Hint, JournalRow, Outcome,
    Refusal, Reply, Resume, Rows, RunId, RunState, Timestamp, Told, Undo, UndoMark, Undone, Why,
    encode_entries,
};

/// What comes of asking a run of a scope to undo what it did.
pub(super) enum Asked {
    /// It does, and will say when it is done.
    Underway,
    /// It could not, some time ago, and nobody has accepted that.
    HasFailed,
    /// It has nothing to undo, or has undone it.
    Nothing,
}

/// What flows down to a run that is rolled back with its parent: who was given up by an operator
/// has no deadline, and neither has what is below it.
pub(super) struct FromAbove<'c> {
    pub(super) deadline: Option<Deadline>,
    pub(super) context: &'c Context,
}

/// Asks a run whose parent is rolled back to undo what it did.
pub(super) fn ask(rows: &mut Rows, id: RunId, above: &FromAbove<'_>, now: Timestamp) -> Asked {
    let Some(row) = rows.run(id) else {
        return Asked::Nothing;
    };
    match (row.state, row.undo) {
        (RunState::Completed, UndoMark::Nothing) => {
            nothing_to_undo(rows, id, now);
            Asked::Nothing
        }
        (RunState::Completed, _) => {
            begin_below(rows, id, above, now);
            Asked::Underway
        }
        // An operator was quicker; it may also be parked on its way.
        (_, UndoMark::Underway) => Asked::Underway,
        (RunState::RolledBack, _) if mutant::on(Mutant::RolledBackTwice) => {
            begin_below(rows, id, above, now);
            Asked::Underway
        }
        (RunState::RollbackFailed, UndoMark::Possible) => Asked::HasFailed,
        _ => Asked::Nothing,
    }
}

/// Undoes a run on request, with all below it.
pub(super) fn undo(undo: &Undo, rows: &mut Rows, now: Timestamp) -> Result<Undone, Refusal> {
    let run = require_run(rows, &undo.namespace, &undo.target)?;
    let row = rows.run(run).expect("found");
    let (state, partial) = (row.state, row.parent.is_some());
    if row.undo == UndoMark::Underway {
        return Ok(Undone::Already(state));
    }
    match state {
        RunState::Completed if row.undo == UndoMark::Nothing => nothing_to_undo(rows, run, now),
        RunState::Completed => begin(rows, run, Why::Asked, Told::Nobody, now),
        RunState::Parked => {
            let why = match &row.outcome {
                // A request to end that was acknowledged is not overtaken by another end.
                _ if row.cancel != CancelMark::None => Why::Cancelled,
                Some(Outcome::Failure(failure)) => Why::Failed(failure.clone()),
                _ => Why::Asked,
            };
            let told = row.told;
            begin(rows, run, why, told, now);
        }
        state if state.has_ended() => return Ok(Undone::Already(state)),
        state => return Err(Refusal::NotAtRest { run, state }),
    }
    Ok(Undone::Begun { partial })
}

/// Lets a rollback that failed go on, with or without the undo that failed.
pub(super) fn retry(resume: &Resume, run: RunId, rows: &mut Rows, now: Timestamp) -> Reply {
    let why = match resume.skip {
        true => Why::Skipped,
        false => Why::Retried,
    };
    begin(rows, run, why, Told::Nobody, now);
    Reply::Resumed
}

/// Accepts what a failed rollback left undone.
pub(super) fn accept(accept: &Accept, rows: &mut Rows, now: Timestamp) -> Result<Reply, Refusal> {
    let run = require_run(rows, &accept.namespace, &accept.target)?;
    let row = rows.run_mut(run).expect("found");
    if row.state != RunState::RollbackFailed {
        let state = row.state;
        return Err(Refusal::RollbackDidNotFail { run, state });
    }
    row.undo = UndoMark::Accepted;
    row.changed_at = now;
    Ok(Reply::Accepted)
}

/// A planted bug: a worker that is gone is taken for a failure of its runs.
pub(super) fn lost(rows: &mut Rows, id: RunId, now: Timestamp) {
    let told = rows.run(id).expect("found").told;
    let why = Why::Failed(Box::new(Failure::transient("its worker is gone")));
    begin(rows, id, why, told, now);
}

/// The run is rolled back with its parent.
fn begin_below(rows: &mut Rows, id: RunId, above: &FromAbove<'_>, now: Timestamp) {
    let own = rows.run(id).expect("found").deadlines;
    let of = |rollback| Deadlines {
        forward: None,
        rollback,
    };
    let due = above.deadline.map(|due| of(Some(due)).and(own).rollback);
    enter(rows, id, (Why::Asked, Told::Nobody), above.context, now);
    let row = rows.run_mut(id).expect("found");
    row.deadlines.rollback = due.flatten();
}

/// The run is rolled back because an operator wants that, however late it is.
fn begin(rows: &mut Rows, id: RunId, why: Why, told: Told, now: Timestamp) {
    enter(rows, id, (why, told), &Context::default(), now);
    let row = rows.run_mut(id).expect("found");
    row.deadlines.rollback = None;
}

/// The run enters its rollback: whoever claims it next finds that in its journal.
fn enter(rows: &mut Rows, id: RunId, (why, told): (Why, Told), context: &Context, now: Timestamp) {
    let row = rows.run_mut(id).expect("found");
    let was = row.outcome.take().filter(|_| row.state.has_ended());
    row.state = RunState::Waiting;
    row.undo = UndoMark::Underway;
    row.told = told;
    row.crashes = 0;
    row.suspect = false;
    row.holder = None;
    row.news_at = Some(now);
    let context = context.clone();
    let entry = Entry::RollingBack { why, was, context };
    if !mutant::on(Mutant::RollbackEntryLost) {
        append(rows, id, &[entry], now);
    }
    let row = rows.run_mut(id).expect("found");
    row.settle(now);
    let lane = row.lane;
    rows.hints.push(Hint::Ready(lane, now));
}

/// A run that did nothing that could be undone is done with that at once.
fn nothing_to_undo(rows: &mut Rows, id: RunId, now: Timestamp) {
    let row = rows.run_mut(id).expect("found");
    let was = row.outcome.replace(Outcome::Failure(Box::new(undone())));
    row.state = RunState::RolledBack;
    let (why, state) = (Why::Asked, RunState::RolledBack);
    let context = Context::default();
    let rolling_back = Entry::RollingBack { why, was, context };
    let entries = [rolling_back, Entry::Ended { state }];
    append(rows, id, &entries, now);
    let row = rows.run_mut(id).expect("found");
    row.settle(now);
    let outcome = row.outcome.clone();
    rows.hints.push(Hint::AtRest(id, state, outcome));
}

/// How a run ends that is undone after it had completed.
#[must_use]
pub fn undone() -> Failure {
    Failure::business("the run was undone").with_code("undone")
}

/// Adds entries that no round of the run brought, under a fence of their own.
pub(super) fn append(rows: &mut Rows, id: RunId, entries: &[Entry], now: Timestamp) {
    let row = rows.run_mut(id).expect("found");
    let (execution, first, epoch) = (row.execution, row.head + 1, row.epoch + 1);
    let count = u32::try_from(entries.len()).expect("few");
    row.head += u64::from(count);
    row.epoch += 2;
    rows.journal.push(JournalRow {
        run: id,
        execution,
        first,
        count,
        epoch,
        at: now,
        entries: encode_entries(entries),
    });
}
