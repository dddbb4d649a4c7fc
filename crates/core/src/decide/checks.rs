//! Everything that can refuse a round, before anything changes.

use std::collections::BTreeSet;

use super::{starts, states};
use crate::mutant::{self, Mutant};
use crate::{
    CancelMark, Caused, Consumed, Fence, GateId, MailId, Name, Outcome, Parent, Refusal, Round,
    Rows, RunId, RunRow, RunState, STATE_CHANGED, StateRow, Then, Timestamp, UndoMark, WaitId,
    WaitRow, WorkerId, limits,
};

/// May this worker take a step of the run under this fence? Asked before user code runs inside the
/// transaction; the commit asks again.
///
/// # Errors
/// When it may not.
pub fn may_step(
    rows: &Rows,
    run: RunId,
    (worker, fence): (WorkerId, Fence),
    now: Timestamp,
) -> Result<(), Refusal> {
    let row = owned(rows, run, worker, fence)?;
    let undoing = row.undo == UndoMark::Underway;
    if row.cancel != CancelMark::None && !undoing && !mutant::on(Mutant::StepsAfterCancel) {
        return Err(Refusal::CancelRequested { run });
    }
    match row.missed(now) {
        Some(deadline) => Err(Refusal::DeadlineMissed { run, deadline }),
        None => Ok(()),
    }
}

/// The run, if this worker has it under this fence. Who does not know when it was started has just
/// begun it: what comes first is the same for whichever run has the id.
fn owned(rows: &Rows, run: RunId, worker: WorkerId, fence: Fence) -> Result<&RunRow, Refusal> {
    let row = rows.run(run).ok_or(Refusal::UnknownRun { run })?;
    let late = row.epoch != fence.epoch && !mutant::on(Mutant::EpochIgnored);
    let another = fence.created_at.is_some() && !row.fence().is_same_run(fence);
    if (late || another || row.owner != Some(worker)) && !mutant::on(Mutant::NoFence) {
        return Err(Refusal::Fenced {
            run,
            epoch: fence.epoch,
            current: row.epoch,
        });
    }
    Ok(row)
}

/// Checks a round. Returns what becomes of the run's state, if it changes it.
pub(super) fn round(
    round: &Round,
    rows: &Rows,
    now: Timestamp,
) -> Result<Option<StateRow>, Refusal> {
    let run = round.run;
    let row = owned(rows, run, round.worker, round.fence())?;
    // Until it has taken up the request to end, its journal says that next, or that it has ended.
    let silent = round.count == 0 || round.cancel_seen || matches!(round.then, Then::End(..));
    let silent = silent || mutant::on(Mutant::BegunAfterCancel);
    // One that missed its deadline fails with that, also if it was asked to end at the same time.
    let fails = matches!(round.then, Then::End(RunState::Failed, _))
        && (round.cancel_seen || row.cancel == CancelMark::Seen);
    let forward = round.is_forward() && !fails;
    // A rollback that failed may be taken up again, and must then know why it goes on.
    let stuck = matches!(round.then, Then::End(RunState::RollbackFailed, _));
    let overtakes = stuck && !round.cancel_seen;
    let refused = match row.cancel {
        // What a run did is undone also after it was asked to end.
        _ if row.undo == UndoMark::Underway => false,
        CancelMark::None => false,
        CancelMark::Requested => !silent || forward || overtakes,
        CancelMark::Seen => forward,
    };
    if refused && !mutant::on(Mutant::StepsAfterCancel) {
        return Err(Refusal::CancelRequested { run });
    }
    // What a run does after its deadline is to say so. An undo that came through in time is noted.
    let late = row.missed(now).filter(|_| row.undo != UndoMark::Underway);
    if let Some(deadline) = late.filter(|_| !silent || forward) {
        return Err(Refusal::DeadlineMissed { run, deadline });
    }
    limits(round, row)?;
    consistent(round, rows, row).map_err(|what| Refusal::Inconsistent { run, what })?;
    starts::may_send(round.sent(), rows)?;
    states::next(rows.states.get(&run), &round.state)
}

fn limits(round: &Round, row: &RunRow) -> Result<(), Refusal> {
    let bytes = match &round.then {
        Then::ContinueAsNew(started, _) => started.len().max(round.entries.len()),
        _ => round.entries.len(),
    };
    let batches = || round.caused.iter().filter_map(Caused::batch);
    let members: usize = batches().map(|batch| batch.members.len()).sum();
    let sets_off = (round.caused.len() - batches().count()) + members;
    Refusal::over("what one round sets off", limits::FAN_OUT, sets_off)?;
    Refusal::over("a round's size in bytes", limits::ROUND_BYTES, bytes)?;
    let reserve = match round.then {
        Then::End(..) | Then::ContinueAsNew(..) | Then::Park(_) => limits::JOURNAL_RESERVE,
        Then::Continue | Then::Suspend => 0,
    };
    let length = usize::try_from(row.head).unwrap_or(usize::MAX) + round.count as usize;
    let limit = usize::try_from(limits::JOURNAL_ENTRIES + reserve).expect("a small number");
    Refusal::over("a journal's entries", limit, length)?;
    if let Then::End(_, Outcome::Value(value)) = &round.then {
        Refusal::payload(value.size())?;
    }
    Ok(())
}

/// What no worker that keeps the rules sends.
fn consistent(round: &Round, rows: &Rows, row: &RunRow) -> Result<(), &'static str> {
    if let Then::End(state, _) = &round.then {
        ensure(state.has_ended(), "it ended in a state that is no end")?;
    }
    consumed(round, rows)?;
    waits(round, rows, &rows.lane(row.lane).namespace)?;
    for caused in &round.caused {
        match caused {
            Caused::Child(call, start) => {
                let (run, execution, call) = (row.id, row.execution, *call);
                let this = Parent {
                    run,
                    execution,
                    call,
                };
                ensure(start.parent == Some(this), "its child has another parent")?;
            }
            Caused::Children(call, starts) => {
                let (run, execution, call) = (row.id, row.execution, *call);
                let this = Some(Parent {
                    run,
                    execution,
                    call,
                });
                let own = starts.iter().all(|start| start.parent == this);
                ensure(own, "a child of its has another parent")?;
            }
            Caused::Publish(_, publish) => {
                let own = rows.lane(row.lane).namespace == publish.namespace;
                ensure(own, "it publishes in another namespace")?;
            }
            Caused::Spawn(_, start) => {
                ensure(start.parent.is_none(), "what it spawned has a parent")?;
            }
            Caused::Send(start) => {
                let own = rows.lane(row.lane).namespace == start.namespace;
                ensure(own, "it sends into another namespace")?;
                let plain = start.parent.is_none() && start.signal.is_none();
                let plain = plain && start.claimant.is_none() && start.first.is_none();
                ensure(plain, "what a step sent is more than a start")?;
            }
            Caused::Record(record) => {
                let own = rows.lane(row.lane).namespace == record.namespace;
                ensure(own, "it records facts in another namespace")?;
                let plain = record.sent.is_empty() && record.queued.is_empty();
                ensure(plain, "what a step recorded is more than facts")?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn consumed(round: &Round, rows: &Rows) -> Result<(), &'static str> {
    let run = round.run;
    let (mut waits, mut mail) = (BTreeSet::new(), BTreeSet::new());
    for consumed in &round.consumed {
        match consumed {
            Consumed::Wait(name, call) => {
                let wait = WaitId {
                    run,
                    name: name.clone(),
                    call: *call,
                };
                let has = matches!(rows.waits.get(&wait), Some(WaitRow { taken: Some(_), .. }));
                ensure(has, "it consumed what no wait had")?;
                ensure(waits.insert((name, call)), "it consumed a message twice")?;
            }
            Consumed::Mail(number) => {
                let id = MailId {
                    run,
                    name: None,
                    number: *number,
                };
                ensure(
                    rows.mail.get(&id).is_some(),
                    "it consumed a message it never got",
                )?;
                ensure(mail.insert(number), "it consumed a message twice")?;
            }
        }
    }
    Ok(())
}

/// Offerable waits that open or close need their gate, or an offer and a wait can pass each other.
fn waits(round: &Round, rows: &Rows, namespace: &Name) -> Result<(), &'static str> {
    let run = round.run;
    let has_gate = |name: &Name| {
        let gate = GateId {
            namespace: namespace.clone(),
            name: name.clone(),
        };
        round.gates.contains(&gate)
    };
    let mut open = BTreeSet::new();
    for wait in &round.opened {
        let (name, call) = (wait.name.clone(), wait.call);
        let known = rows.waits.get(&WaitId { run, name, call });
        let again = round.closed.contains(&(wait.name.clone(), call));
        ensure(known.is_none() || again, "it opened a wait that is open")?;
        ensure(open.insert((&wait.name, call)), "it opened a wait twice")?;
        let gate = !wait.offerable || has_gate(&wait.name);
        ensure(gate, "it opened a wait for offers without its gate")?;
        let looked = wait.name != STATE_CHANGED || (round.state_seen.is_some() && !wait.offerable);
        ensure(
            looked,
            "it waits for its state to change and has not looked at it",
        )?;
    }
    for (name, call) in &round.closed {
        let (name, call) = (name.clone(), *call);
        let known = rows.waits.get(&WaitId {
            run,
            name: name.clone(),
            call,
        });
        let gate = known.is_none_or(|wait| wait.place.is_none()) || has_gate(&name);
        ensure(gate, "it closed a wait for offers without its gate")?;
    }
    Ok(())
}

fn ensure(holds: bool, what: &'static str) -> Result<(), &'static str> {
    if holds { Ok(()) } else { Err(what) }
}
