//! The end of a run: terminal is terminal, and whoever waits for it is told in the same commit.

use super::scopes::lower;
use super::signals::let_go;
use super::wakes::tell;
use super::{batches, leftovers};
use crate::mutant::{self, Mutant};
use crate::{
    Batch, Claimant, Hint, LatchId, Outcome, Parent, Rows, RunId, RunState, Timestamp, Told,
    UndoMark, WaitId,
};

/// Ends the run. What it did not read is settled; answers to its own calls go.
pub(super) fn end(
    rows: &mut Rows,
    id: RunId,
    (state, outcome): (RunState, &Outcome),
    claimant: Claimant,
    now: Timestamp,
) {
    assert!(
        state.has_ended(),
        "run {id} cannot end as {}",
        state.as_str()
    );
    if !mutant::on(Mutant::EndKeepsWaits) {
        close_waits(rows, id, claimant, now);
    }
    leftovers::settle(rows, id, claimant, now);
    let row = rows.run_mut(id).expect("a run that ends exists");
    assert!(!row.state.has_ended(), "run {id} ended twice");
    row.owner = None;
    row.lease_until = None;
    row.state = state;
    row.outcome = Some(outcome.clone());
    row.holder = None;
    row.news_at = None;
    row.timer_at = None;
    row.matched = 0;
    row.watchers = 0;
    row.undo = match state {
        RunState::RollbackFailed if mutant::on(Mutant::AcceptedUnasked) => UndoMark::Accepted,
        RunState::RollbackFailed => UndoMark::Possible,
        _ if row.undo == UndoMark::Kept => UndoMark::Kept,
        RunState::RolledBack | RunState::Cancelled => UndoMark::Nothing,
        _ => row.undo,
    };
    row.settle(now);
    let parent = row.parent.map(|parent| (parent, row.told));
    announce(rows, (id, parent), (state, outcome), Some(claimant), now);
    let outcome = Some(outcome.clone());
    rows.hints.push(Hint::AtRest(id, state, outcome));
}

/// Tells whoever waits for the run: its parent, and those who watch it.
pub(super) fn announce(
    rows: &mut Rows,
    (id, parent): (RunId, Option<(Parent, Told)>),
    (state, outcome): (RunState, &Outcome),
    claimant: Option<Claimant>,
    now: Timestamp,
) {
    match parent {
        Some((parent, Told::Message)) => {
            let to = (parent.run, parent.execution, parent.call);
            tell(rows, to, outcome, claimant, now);
        }
        Some((parent, told)) => {
            let undone = state == RunState::RolledBack && is_rollback(told, parent);
            let failed = u32::from(state != RunState::Completed && !undone);
            if let Some(latch) = latch_of(parent.run, told) {
                lower(rows, latch, failed, claimant, now);
            }
        }
        None => {}
    }
    let watches: Vec<_> = rows.watchers_of(id).collect();
    for watch in watches {
        rows.watches.remove(&watch);
        let (_, watcher, execution, call) = watch;
        if call == Batch::HELD {
            batches::release(rows, watcher, now);
            continue;
        }
        tell(rows, (watcher, execution, call), outcome, claimant, now);
    }
}

/// A planted bug: who waits for a run is told that it is parked, as if that were its end.
pub(super) fn told_parked(rows: &mut Rows, id: RunId, now: Timestamp) {
    let told = rows.run(id).map(|row| (row.parent, row.told));
    if let Some((Some(parent), told)) = told
        && let Some(latch) = latch_of(parent.run, told)
    {
        lower(rows, latch, 1, None, now);
    }
}

/// The latch that a run lowers when it ends.
pub(crate) fn latch_of(run: RunId, told: Told) -> Option<LatchId> {
    let Told::Latch {
        execution,
        call,
        part,
    } = told
    else {
        return None;
    };
    let by = Parent {
        run,
        execution,
        call,
    };
    Some(LatchId::of(by, part))
}

/// Is it another call than the one that set the run off that waits: one that rolls it back?
fn is_rollback(told: Told, parent: Parent) -> bool {
    let its = (parent.execution, parent.call);
    matches!(told, Told::Latch { execution, call, .. } if (execution, call) != its)
}

/// Ends all waits of a run without consuming.
pub(super) fn close_waits(rows: &mut Rows, id: RunId, claimant: Claimant, now: Timestamp) {
    let row = rows.run(id).expect("a run with waits exists");
    if row.waits == 0 {
        return;
    }
    let namespace = rows.lane(row.lane).namespace.clone();
    let waits: Vec<WaitId> = rows.waits_of(id).map(|(wait, _)| wait.clone()).collect();
    for wait in &waits {
        let_go(rows, &namespace, wait, Some(claimant), now);
    }
    assert_eq!(
        rows.run(id).map(|row| row.waits),
        Some(0),
        "run {id} has waits nobody loaded"
    );
}
