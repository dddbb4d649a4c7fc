//! Waiting for the run's own state to change: calls that wait for a condition on it.
//!
//! The condition is code, so the core does not know it. It knows which calls wait, and which
//! version of the state they have looked at; whoever changes the state tells them, as a signal is
//! told, and the run's worker looks again. A wait that begins, or goes on, after the state has
//! changed is told in the same commit: a change and a wait cannot pass each other.

use super::signals;
use super::wakes::waits_for;
use crate::mutant::{self, Mutant};
use crate::{
    MailId, Payload, Policy, Round, Rows, RunId, STATE_CHANGED, Signal, Target, Timestamp, WaitId,
};

/// A round may have changed the state, or opened waits that looked at an older one.
pub(super) fn look(round: &Round, rows: &mut Rows, now: Timestamp) {
    let version = rows.states.get(&round.run).map_or(0, |row| row.version);
    let seen = round.state_seen.unwrap_or(version);
    let changed = !round.state.is_empty();
    let late = seen < version && !mutant::on(Mutant::ChangeOverlooked);
    if !changed && !late {
        return;
    }
    let opened = |call| round.opened.iter().any(|open| open.call == call);
    let news = |call| match opened(call) {
        true => late,
        false => changed,
    };
    tell(rows, round.run, now, news);
}

/// Tells those calls that wait for the state to change, and for whom this is news, that it has.
pub(super) fn tell(rows: &mut Rows, run: RunId, now: Timestamp, news: impl Fn(u32) -> bool) {
    let row = rows.run(run).expect("a run whose state changed exists");
    if row.waits == 0 || mutant::on(Mutant::PatchWakesNobody) {
        return;
    }
    let namespace = rows.lane(row.lane).namespace.clone();
    let (first, last) = waits_for(run, &STATE_CHANGED);
    let untold = rows
        .waits
        .range(first, last)
        .filter(|(_, row)| row.taken.is_none());
    let untold: Vec<WaitId> = untold.map(|(wait, _)| wait.clone()).collect();
    for wait in untold.into_iter().filter(|wait| news(wait.call)) {
        let signal = Signal {
            namespace: namespace.clone(),
            target: Target::Run(run),
            name: STATE_CHANGED,
            payload: Payload::null(),
            policy: Policy::Discard,
            expires: None,
            key: None,
            claimant: None,
        };
        signals::keep(rows, run, &signal, Some(wait), now);
    }
}

/// A wait that was told has ended, or goes on: nobody else gets what it was told.
pub(super) fn forget(rows: &mut Rows, wait: &WaitId, number: u64) {
    let mail = MailId {
        run: wait.run,
        name: Some(STATE_CHANGED),
        number,
    };
    if rows.mail.remove(&mail).is_some() {
        rows.run_mut(wait.run).expect("a wait has a run").mail -= 1;
    }
}
