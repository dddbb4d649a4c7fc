//! What people and programs ask of a run from outside: cancel, patch, resume, delete.

use super::leases::unpark;
use super::wakes::wake;
use super::{conditions, ends, queues, require_run, rounds, states, target_run, undos};
use crate::mutant::{self, Mutant};
use crate::{
    BATCH, Cancel, CancelMark, Cancelled, Claimant, Class, Complete, Deadline, Delete, Entry,
    Failure, Forget, Hint, INCOMING, IfParked, Outcome, Park, Patch, Patched, Refusal, Reply,
    Resume, Rows, RunId, RunRow, RunState, StateChange, Timestamp, UndoMark, limits,
};

/// Marks a run; it ends at its next boundary.
pub(super) fn cancel(cancel: &Cancel, rows: &mut Rows, now: Timestamp) -> Cancelled {
    let Some(id) = target_run(rows, &cancel.namespace, &cancel.target) else {
        return Cancelled::TargetUnknown;
    };
    let row = rows.run(id).expect("found");
    let state = row.state;
    if row.undo == UndoMark::Underway {
        return Cancelled::RollingBack;
    }
    if state.has_ended() {
        if mutant::on(Mutant::EndOverwritten) {
            rows.run_mut(id).expect("found").state = RunState::Cancelled;
        }
        return Cancelled::AlreadyEnded(state);
    }
    if mutant::on(Mutant::CancelAckedOnly) {
        return Cancelled::Requested;
    }
    if cancel.keep && !mutant::on(Mutant::KeptUndone) {
        keep(rows, id, now);
    } else {
        mark(rows, id, cancel.claimant, now);
    }
    Cancelled::Requested
}

/// Ends a run, and all below it, without undoing what they did. Its journal says so under a fence
/// of its own: whoever has it is fenced off, and whoever claims it next knows, also if it was asked
/// before to end otherwise.
pub(super) fn keep(rows: &mut Rows, id: RunId, now: Timestamp) {
    let Some(row) = rows.run(id) else { return };
    let settled = matches!(row.undo, UndoMark::Underway | UndoMark::Kept);
    if row.state.has_ended() || settled {
        return;
    }
    if is_unbegun(row, now) {
        end_unbegun(rows, id, now);
        return;
    }
    let (held, owner) = (queues::held(row), row.has_it());
    if let Some(owner) = owner {
        rows.hints.push(Hint::Cancel(id, owner));
    }
    let row = rows.run_mut(id).expect("found");
    if row.owner.is_some() {
        row.end_lease();
    }
    (row.cancel, row.undo) = (CancelMark::Seen, UndoMark::Kept);
    undos::append(rows, id, &[Entry::Kept], now);
    unpark(rows, id, now);
    queues::give_back(rows, held, now);
}

/// Marks one run, and wakes it: its next round marks what is below it. One that nobody has begun
/// ends at once: nobody may ever be there who could begin it.
pub(super) fn mark(rows: &mut Rows, id: RunId, claimant: Option<Claimant>, now: Timestamp) {
    let Some(row) = rows.run(id) else { return };
    let undoing = row.undo == UndoMark::Underway;
    if row.cancel != CancelMark::None || row.state.has_ended() || undoing {
        return;
    }
    if is_unbegun(row, now) {
        end_unbegun(rows, id, now);
        return;
    }
    let row = rows.run_mut(id).expect("found");
    row.cancel = CancelMark::Requested;
    row.changed_at = now;
    let (owner, parked) = (row.has_it(), row.state == RunState::Parked);
    if let Some(owner) = owner {
        rows.hints.push(Hint::Cancel(id, owner));
    }
    if parked {
        unpark(rows, id, now);
        return;
    }
    if mutant::on(Mutant::CancelNotWoken) {
        return;
    }
    wake(rows, id, claimant, now);
}

/// Has nobody begun it?
fn is_unbegun(row: &RunRow, now: Timestamp) -> bool {
    let begun = row.head > 1 || row.execution > 1 || row.waits > 0 || row.is_leased(now);
    !begun && row.undo == UndoMark::Nothing && !row.state.has_ended()
}

pub(super) fn end_unbegun(rows: &mut Rows, id: RunId, now: Timestamp) {
    let failure = Failure::new(Class::Cancelled, "the run was cancelled").with_code("cancelled");
    let outcome = Outcome::Failure(Box::new(failure));
    end_by_hand(rows, id, (RunState::Cancelled, &outcome), now);
}

/// Ends a run that nobody has.
pub(super) fn end_by_hand(rows: &mut Rows, id: RunId, end: (RunState, &Outcome), now: Timestamp) {
    let row = rows.run_mut(id).expect("found");
    let held = queues::held(row);
    if row.owner.is_some() {
        row.end_lease();
    }
    (row.crashes, row.suspect) = (0, false);
    undos::append(rows, id, &[Entry::Ended { state: end.0 }], now);
    ends::end(rows, id, end, NOBODY, now);
    queues::give_back(rows, held, now);
}

/// Merges a patch into the state of a run that has not ended.
pub(super) fn patch(patch: &Patch, rows: &mut Rows, now: Timestamp) -> Result<Patched, Refusal> {
    Refusal::payload(patch.patch.size())?;
    let Some(id) = target_run(rows, &patch.namespace, &patch.target) else {
        return Ok(Patched::TargetUnknown);
    };
    let state = rows.run(id).expect("found").state;
    if state.has_ended() {
        return Ok(Patched::TargetEnded(state));
    }
    let version = rows.states.get(&id).map_or(0, |row| row.version);
    if patch.expected.is_some_and(|expected| expected != version) {
        return Ok(Patched::VersionIs(version));
    }
    let change = StateChange::Merge(patch.patch.clone());
    let state = states::next(rows.states.get(&id), &[change])?.expect("one change");
    rows.states.put(id, state.clone());
    rows.run_mut(id).expect("found").changed_at = now;
    conditions::tell(rows, id, now, |_| true);
    Ok(Patched::Changed(state))
}

/// Parks a run that nobody works on. Whoever works on one finds out by itself.
pub(super) fn park(park: &Park, rows: &mut Rows, now: Timestamp) -> Result<Reply, Refusal> {
    Refusal::payload(park.failure.size())?;
    let run = require_run(rows, &park.namespace, &park.target)?;
    let row = rows.run(run).expect("found");
    let state = row.state;
    let at_rest = state.has_ended() || state == RunState::Parked;
    // These have no code that could be mended.
    let ours = [BATCH, INCOMING].contains(&rows.lane(row.lane).workflow);
    // One that was asked to end may not need its code for that.
    let ends = row.cancel != CancelMark::None;
    if at_rest || ours || ends || row.owner.is_some() {
        return Err(Refusal::NotWaiting { run, state });
    }
    not_moved(row, Some(park.seen))?;
    let row = rows.run_mut(run).expect("found");
    // What was decided on the run as it was holds no more.
    row.epoch += 1;
    rounds::park(row, &park.failure, now);
    let reason = row.outcome.clone();
    rows.hints.push(Hint::AtRest(run, RunState::Parked, reason));
    Ok(Reply::Parked)
}

/// Has the run gone on since somebody looked at it?
fn not_moved(row: &RunRow, seen: Option<u64>) -> Result<(), Refusal> {
    let (run, epoch) = (row.id, row.epoch);
    match seen.filter(|seen| *seen != epoch) {
        Some(seen) if !mutant::on(Mutant::OldLookTaken) => {
            Err(Refusal::MovedOn { run, seen, epoch })
        }
        _ => Ok(()),
    }
}

/// Lets a parked run go on from where it was.
pub(super) fn resume(resume: &Resume, rows: &mut Rows, now: Timestamp) -> Result<Reply, Refusal> {
    let run = require_run(rows, &resume.namespace, &resume.target)?;
    let state = rows.run(run).expect("found").state;
    if state == RunState::RollbackFailed {
        return Ok(undos::retry(resume, run, rows, now));
    }
    if resume.skip {
        return Err(Refusal::RollbackDidNotFail { run, state });
    }
    if state != RunState::Parked {
        return Err(Refusal::NotParked { run, state });
    }
    if let Some(anew) = &resume.anew {
        Refusal::payload(anew.started.len())?;
        if rows.run(run).expect("found").execution != anew.execution {
            return Err(Refusal::HasBegun { run, state });
        }
        nothing_open(rows, run)?;
        undos::append(rows, run, &[Entry::Continued], now);
        let epoch = rows.run(run).expect("found").epoch - 1;
        rounds::continue_as_new(rows, (run, epoch), (&anew.started, None), NOBODY, now);
    }
    lift(rows, run);
    unpark(rows, run, now);
    Ok(Reply::Resumed)
}

/// Who was parked for being late may go on, however late it is: an operator wants that. What it was
/// late for, its failure says; by the clock it may be early again, if that was set back.
fn lift(rows: &mut Rows, run: RunId) {
    let row = rows.run_mut(run).expect("found");
    let Some(Outcome::Failure(why)) = &row.outcome else {
        return;
    };
    let missed = why.data.as_ref().filter(|_| why.code == Deadline::CODE);
    let missed = missed.and_then(|missed| missed.decode::<Deadline>().ok());
    // Who was asked to end has no such deadline.
    let due = row
        .missed(Timestamp(i64::MAX))
        .filter(|_| row.undo != UndoMark::Underway);
    if missed.is_some() && missed == due && !mutant::on(Mutant::LateForEver) {
        row.deadlines.forward = None;
    }
}

/// What is not parked is left alone: somebody else may have been faster. So is what went on since
/// it was looked at, and was parked again: for what reason, whoever decided does not know.
pub(super) fn if_parked(
    parked: &IfParked,
    rows: &mut Rows,
    now: Timestamp,
) -> Result<Reply, Refusal> {
    let IfParked { op, seen } = parked;
    let about = op.about().ok_or(Refusal::NotAudited)?;
    if let Some(target) = &about.target {
        let run = require_run(rows, about.namespace, target)?;
        let row = rows.run(run).expect("found");
        if !row.awaits_operator() {
            let state = row.state;
            return Err(Refusal::NotParked { run, state });
        }
        not_moved(row, *seen)?;
    }
    super::decide(op, rows, now)
}

/// A run can begin anew, or end, by hand only if it waits for nothing and nothing below it runs.
fn nothing_open(rows: &mut Rows, run: RunId) -> Result<(), Refusal> {
    let below = std::mem::take(&mut rows.found);
    let row = rows.run(run).expect("found");
    if row.waits > 0 || below.len() > limits::DELETE {
        let state = row.state;
        return Err(Refusal::HasBegun { run, state });
    }
    let below = below.iter().filter(|id| **id != run);
    let mut below = below.filter_map(|id| rows.run(*id));
    match below.find(|row| !row.state.has_ended()) {
        Some(row) => Err(Refusal::NotEnded {
            run: row.id,
            state: row.state,
        }),
        None => Ok(()),
    }
}

/// Ends a run that nobody has begun, or that is parked, with a value that comes from elsewhere. One
/// that was asked to end does so as that: its lease may have been given back before it did.
pub(super) fn complete(
    complete: &Complete,
    rows: &mut Rows,
    now: Timestamp,
) -> Result<Reply, Refusal> {
    Refusal::payload(complete.value.size())?;
    let run = require_run(rows, &complete.namespace, &complete.target)?;
    let row = rows.run(run).expect("found");
    let state = row.state;
    let asked = row.cancel != CancelMark::None && !state.has_ended();
    if asked && !mutant::on(Mutant::CompletedAfterCancel) {
        return Err(Refusal::CancelRequested { run });
    }
    if state == RunState::Completed && mutant::on(Mutant::RepliedTwice) {
        rows.run_mut(run).expect("found").outcome = Some(Outcome::Value(complete.value.clone()));
        return Ok(Reply::Completed);
    }
    if state == RunState::Parked && row.undo == UndoMark::Nothing {
        nothing_open(rows, run)?;
    } else if !is_unbegun(row, now) {
        return Err(Refusal::HasBegun { run, state });
    }
    let outcome = Outcome::Value(complete.value.clone());
    end_by_hand(rows, run, (RunState::Completed, &outcome), now);
    Ok(Reply::Completed)
}

/// Takes nothing that it wakes.
pub(super) const NOBODY: Claimant = Claimant {
    worker: crate::WorkerId(uuid::Uuid::nil()),
    lease: limits::LEASE,
};

/// Removes a run and all below it, the lowest first, so that a tree is never without its root.
/// Whoever waits for the end of one that had not ended is told.
pub(super) fn delete(delete: &Delete, rows: &mut Rows, now: Timestamp) -> Result<Reply, Refusal> {
    let run = require_run(rows, &delete.namespace, &delete.target)?;
    let tree = std::mem::take(&mut rows.found);
    let more = tree.len() > limits::DELETE;
    let tree = &tree[..tree.len().min(limits::DELETE)];
    let root = rows.run(run).expect("found").root;
    let at_stake = tree.iter().chain([&run, &root]);
    let mut at_stake = at_stake.filter_map(|id| rows.run(*id));
    if let Some(live) = at_stake.find(|row| !row.state.has_ended() && !delete.force) {
        let (run, state) = (live.id, live.state);
        return Err(Refusal::NotEnded { run, state });
    }
    for id in tree {
        ends::close_waits(rows, *id, NOBODY, now);
        let row = rows.run(*id).expect("found");
        let (state, held) = (row.state, queues::held(row));
        let parent = row
            .parent
            .filter(|_| *id == run)
            .map(|parent| (parent, row.told));
        rows.delete_run(*id);
        if !state.has_ended() {
            let failure = Failure::business(format!("run {id} was deleted")).with_code("deleted");
            let outcome = Outcome::Failure(Box::new(failure));
            ends::announce(rows, (*id, parent), (state, &outcome), None, now);
        }
        rows.hints.push(Hint::AtRest(*id, state, None));
        queues::give_back(rows, held, now);
    }
    Ok(Reply::Deleted {
        runs: tree.len(),
        more,
    })
}

/// Removes what a client published, unless something of it is left or may still come. Returns
/// whether it went.
pub(super) fn forget(forget: &Forget, rows: &mut Rows, now: Timestamp) -> bool {
    let heard = std::mem::take(&mut rows.found);
    let Some(row) = rows.publications.get(&forget.publication) else {
        return false;
    };
    let open = row.closes_at.is_some_and(|at| now < at);
    let its = row.namespace == forget.namespace && row.by.is_none();
    let goes = its && !open && heard.is_empty();
    if goes {
        rows.publications.remove(&forget.publication);
    }
    goes
}
