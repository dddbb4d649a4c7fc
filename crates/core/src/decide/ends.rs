//! The end of a run: terminal is terminal, and whoever waits for it is told in the same commit.

use super::scopes::lower;
use super::signals::let_go;
use super::wakes::{own_mail, tell};
use crate::mutant::{self, Mutant};
use crate::{
    Claimant, Hint, LatchId, Outcome, Parent, Rows, RunId, RunState, Timestamp, Told, UndoMark,
    WaitId,
};

/// Ends the run. Signals it did not read stay with it, to be seen; answers to its own calls go.
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
    let (first, last) = own_mail(id);
    let unread: Vec<_> = rows
        .mail
        .range(first, last)
        .map(|(id, _)| id.clone())
        .collect();
    for mail in &unread {
        rows.mail.remove(mail);
    }
    let row = rows.run_mut(id).expect("a run that ends exists");
    row.mail -= u32::try_from(unread.len()).expect("a mailbox is small");
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
        RunState::RollbackFailed => UndoMark::Possible,
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
        tell(rows, (watcher, execution, call), outcome, claimant, now);
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
    Some(LatchId {
        run,
        execution,
        call,
        part,
    })
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
