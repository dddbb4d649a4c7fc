//! Scopes: runs that one call set off together, and the latch that says when all have ended.
//! Publications are the scopes whose runs are found in the table of subscriptions.

use super::wakes::tell;
use super::{starts, undos};
use crate::mutant::{self, Mutant};
use crate::{
    Caused, Claimant, LatchId, LatchRow, Name, Outcome, Parent, Payload, PublicationRow, Publish,
    Published, Refusal, Round, Rows, RunId, RunRow, Scope, Start, Subscribe, SubscriptionId,
    SubscriptionRow, Timestamp, Told, limits, subscriber_run,
};

/// Publishes: one run for each workflow that subscribes at this moment, in this commit.
pub(super) fn publish(
    publish: &Publish,
    by: Option<Parent>,
    rows: &mut Rows,
    now: Timestamp,
) -> Result<Published, Refusal> {
    Refusal::payload(publish.payload.size())?;
    let id = publish.id;
    if let Some(row) = rows.publications.get(&id) {
        let same = (&row.namespace, &row.topic, &row.payload)
            == (&publish.namespace, &publish.topic, &publish.payload);
        if !same || row.by != by {
            let key = Name::new(id.to_string()).expect("an id is a name");
            return Err(Refusal::Conflict { key });
        }
        let (new, heard) = (false, row.heard);
        return Ok(Published { id, new, heard });
    }
    let subscribers = rows.subscribers_of(&publish.namespace, &publish.topic);
    let subscribers: Vec<Name> = subscribers.cloned().collect();
    let starts = subscribers.iter().map(|workflow| Start {
        namespace: publish.namespace.clone(),
        run: subscriber_run(id, workflow),
        workflow: workflow.clone(),
        version: None,
        key: None,
        input: publish.payload.clone(),
        labels: Vec::new(),
        priority: 0,
        at: None,
        parent: by,
        claimant: None,
        first: None,
        signal: None,
    });
    let starts: Vec<Start> = starts.collect();
    open(&starts, by, rows, now)?;
    for start in &starts {
        rows.run_mut(start.run).expect("just made").publication = Some(id);
    }
    let heard = u32::try_from(starts.len()).expect("limited");
    let row = PublicationRow {
        namespace: publish.namespace.clone(),
        topic: publish.topic.clone(),
        payload: publish.payload.clone(),
        by,
        at: now,
        heard,
    };
    rows.publications.put(id, row);
    let new = true;
    Ok(Published { id, new, heard })
}

/// Starts runs that are waited for together, if somebody waits.
pub(super) fn open(
    starts: &[Start],
    by: Option<Parent>,
    rows: &mut Rows,
    now: Timestamp,
) -> Result<(), Refusal> {
    Refusal::over("what one call sets off", limits::FAN_OUT, starts.len())?;
    starts
        .iter()
        .try_for_each(|start| starts::may_start(start, rows))?;
    for start in starts {
        starts::child(start, rows, now)?;
        if let Some(by) = by {
            let number = enter(rows, by, start.run);
            rows.run_mut(start.run).expect("just made").number = Some(number);
        }
    }
    Ok(())
}

/// Counts a run at the latch of a call. Returns its number there.
fn enter(rows: &mut Rows, at: Parent, run: RunId) -> u32 {
    let latch = |part| LatchId {
        run: at.run,
        execution: at.execution,
        call: at.call,
        part,
    };
    let mut top = rows.latches.get(&latch(0)).copied().unwrap_or_default();
    let number = top.total;
    let part = LatchId::part_of(number);
    top.total += 1;
    if part > 0 {
        let mut row = rows.latches.get(&latch(part)).copied().unwrap_or_default();
        top.open += u32::from(row.open == 0);
        row.open += 1;
        rows.latches.put(latch(part), row);
    } else {
        top.open += 1;
    }
    rows.latches.put(latch(0), top);
    rows.run_mut(run).expect("a run that is waited for").told = Told::Latch {
        execution: at.execution,
        call: at.call,
        part,
    };
    number
}

/// A run of a scope has ended. The last one wakes whoever waits for all of them.
pub(super) fn lower(
    rows: &mut Rows,
    id: LatchId,
    failed: u32,
    claimant: Option<Claimant>,
    now: Timestamp,
) {
    let Some(row) = rows.latches.get_mut(&id) else {
        return;
    };
    row.open -= 1;
    row.failed += failed;
    let LatchRow { open, failed, .. } = *row;
    let early = mutant::on(Mutant::ScopeSettlesEarly) && id.part == 0;
    if open > 0 && !early {
        return;
    }
    rows.latches.remove(&id);
    if id.part > 0 {
        return lower(rows, LatchId { part: 0, ..id }, failed, claimant, now);
    }
    let settled = Outcome::Value(Payload::encode(&failed).expect("a number has a JSON form"));
    tell(
        rows,
        (id.run, id.execution, id.call),
        &settled,
        claimant,
        now,
    );
}

/// Tells calls of the round whose scope is empty that nothing is left to wait for.
pub(super) fn settle_empty(round: &Round, rows: &mut Rows, now: Timestamp) {
    let mut calls: Vec<u32> = round.caused.iter().filter_map(scope_of).collect();
    if calls.is_empty() {
        return;
    }
    calls.dedup();
    let execution = rows.run(round.run).expect("checked").execution;
    for call in calls {
        let id = LatchId {
            run: round.run,
            execution,
            call,
            part: 0,
        };
        match rows.latches.get(&id) {
            Some(row) if row.open > 0 => {}
            row => {
                let failed = row.map_or(0, |row| row.failed);
                rows.latches.remove(&id);
                let none = Payload::encode(&failed).expect("a number has a JSON form");
                let to = (round.run, execution, call);
                tell(rows, to, &Outcome::Value(none), None, now);
            }
        }
    }
}

/// The call whose scope this is part of.
fn scope_of(caused: &Caused) -> Option<u32> {
    match caused {
        Caused::Children(call, _) | Caused::Publish(call, _) | Caused::RollBack(call, _) => {
            Some(*call)
        }
        _ => None,
    }
}

/// The runs of a scope, in order.
pub(super) fn runs_of(rows: &mut Rows, run: RunId, scope: Scope) -> Vec<RunId> {
    match scope {
        Scope::Child(child) => vec![child],
        Scope::Call { execution, call } => {
            let found = rows.scopes.remove(&(run, execution, call));
            found.unwrap_or_default()
        }
    }
}

/// Rolls back what an earlier call of the run set off, and lets the call at hand wait for it.
pub(super) fn roll_back(rows: &mut Rows, at: Parent, scope: Scope, now: Timestamp) {
    let mut failed = 0;
    for id in runs_of(rows, at.run, scope) {
        let its_own = |row: &RunRow| row.parent.is_some_and(|parent| parent.run == at.run);
        if !rows.run(id).is_some_and(its_own) {
            continue;
        }
        match undos::ask(rows, id, now) {
            undos::Asked::Underway => {
                enter(rows, at, id);
            }
            undos::Asked::HasFailed => failed += 1,
            undos::Asked::Nothing => {}
        }
    }
    if failed > 0 {
        let id = LatchId {
            run: at.run,
            execution: at.execution,
            call: at.call,
            part: 0,
        };
        let row = rows.latches.get(&id).copied().unwrap_or_default();
        rows.latches.put(id, LatchRow { failed, ..row });
    }
}

/// Makes a workflow's interest in a topic known, or ends it. Returns whether that is new.
pub(super) fn subscribe(
    subscribe: &Subscribe,
    rows: &mut Rows,
    now: Timestamp,
) -> Result<bool, Refusal> {
    let id = SubscriptionId {
        namespace: subscribe.namespace.clone(),
        topic: subscribe.topic.clone(),
        workflow: subscribe.workflow.clone(),
    };
    let known = rows.subscriptions.get(&id).is_some();
    if known == subscribe.on {
        return Ok(false);
    }
    if subscribe.on {
        let others = rows.subscribers_of(&id.namespace, &id.topic).count();
        Refusal::over("a topic's subscribers", limits::SUBSCRIBERS, others + 1)?;
        rows.subscriptions.put(id, SubscriptionRow { since: now });
    } else {
        rows.subscriptions.remove(&id);
    }
    Ok(true)
}
