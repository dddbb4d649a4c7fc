//! The end of a run: terminal is terminal, and whoever waits for it is told in the same commit.

use super::signals::let_go;
use super::wakes::tell;
use crate::mutant::{self, Mutant};
use crate::{Claimant, Hint, Outcome, Parent, Rows, RunId, RunState, Timestamp, WaitId};

/// Ends the run. Messages it did not read stay with it, to be seen.
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
    row.settle(now);
    let parent = row.parent;
    announce(rows, (id, parent), outcome, Some(claimant), now);
    let outcome = Some(outcome.clone());
    rows.hints.push(Hint::AtRest(id, state, outcome));
}

/// Tells whoever waits for the run: its parent, and those who watch it.
pub(super) fn announce(
    rows: &mut Rows,
    (id, parent): (RunId, Option<Parent>),
    outcome: &Outcome,
    claimant: Option<Claimant>,
    now: Timestamp,
) {
    if let Some(parent) = parent {
        let to = (parent.run, parent.execution, parent.call);
        tell(rows, to, outcome, claimant, now);
    }
    let watches: Vec<_> = rows.watchers_of(id).collect();
    for watch in watches {
        rows.watches.remove(&watch);
        let (_, watcher, execution, call) = watch;
        tell(rows, (watcher, execution, call), outcome, claimant, now);
    }
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
