//! What people and programs ask of a run from outside: cancel, patch, resume, delete.

use super::leases::unpark;
use super::wakes::wake;
use super::{ends, require_run, states, target_run, undos};
use crate::mutant::{self, Mutant};
use crate::{
    Cancel, CancelMark, Cancelled, Claimant, Complete, Delete, Entry, Failure, Hint, Outcome,
    Patch, Patched, Refusal, Reply, Resume, Rows, RunId, RunState, StateChange, Timestamp,
    UndoMark, limits,
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
    mark(rows, id, cancel.claimant, now);
    Cancelled::Requested
}

/// Marks one run, and wakes it: its next round marks what is below it.
pub(super) fn mark(rows: &mut Rows, id: RunId, claimant: Option<Claimant>, now: Timestamp) {
    let Some(row) = rows.run(id) else { return };
    let undoing = row.undo == UndoMark::Underway;
    if row.cancel != CancelMark::None || row.state.has_ended() || undoing {
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
    Ok(Patched::Changed(state))
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
    unpark(rows, run, now);
    Ok(Reply::Resumed)
}

/// Ends a run that nobody has begun, with a value that comes from elsewhere.
pub(super) fn complete(
    complete: &Complete,
    rows: &mut Rows,
    now: Timestamp,
) -> Result<Reply, Refusal> {
    Refusal::payload(complete.value.size())?;
    let run = require_run(rows, &complete.namespace, &complete.target)?;
    let row = rows.run(run).expect("found");
    let state = row.state;
    let begun = row.head > 1 || row.execution > 1 || row.waits > 0 || row.is_leased(now);
    if begun || row.undo != UndoMark::Nothing || row.state.has_ended() {
        return Err(Refusal::HasBegun { run, state });
    }
    let row = rows.run_mut(run).expect("found");
    if row.owner.is_some() {
        row.end_lease();
    }
    let (state, outcome) = (RunState::Completed, Outcome::Value(complete.value.clone()));
    undos::append(rows, run, &[Entry::Ended { state }], now);
    ends::end(rows, run, (state, &outcome), NOBODY, now);
    Ok(Reply::Completed)
}

/// Takes nothing that it wakes.
const NOBODY: Claimant = Claimant {
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
        let state = row.state;
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
    }
    Ok(Reply::Deleted {
        runs: tree.len(),
        more,
    })
}
