//! Scopes: runs that one call set off together, and the latch that says when all have ended.
//! Publications are the scopes whose runs are found in the table of subscriptions.

use super::wakes::tell;
use super::{batches, starts, undos};
use crate::mutant::{self, Mutant};
use crate::{
    CancelMark, Caused, Claimant, Context, Join, Joined, LatchId, LatchRow, Name, Outcome, Parent,
    Payload, PublicationId, PublicationRow, Publish, Published, Refusal, Round, Rows, RunId,
    RunRow, Scope, Start, Subscribe, SubscriptionId, SubscriptionRow, Timestamp, Told, UndoMark,
    limits, subscriber_run,
};

/// Publishes: one run for each workflow that subscribes at this moment, in this commit.
pub(super) fn publish(
    publish: &Publish,
    by: Option<Parent>,
    rows: &mut Rows,
    now: Timestamp,
) -> Result<Published, Refusal> {
    Refusal::payload(publish.payload.size())?;
    publish.context.check()?;
    let id = publish.id;
    if let Some(row) = rows.publications.get(&id) {
        let same = (&row.namespace, &row.topic, row.payload.identity())
            == (
                &publish.namespace,
                &publish.topic,
                publish.payload.identity(),
            );
        if !same || row.by != by {
            let key = Name::new(id.to_string()).expect("an id is a name");
            return Err(Refusal::Conflict { key });
        }
        let (new, heard) = (false, row.heard);
        return Ok(Published { id, new, heard });
    }
    let subscribers = rows.subscribers_of(&publish.namespace, &publish.topic);
    let subscribers: Vec<Name> = subscribers.cloned().collect();
    let heard = u32::try_from(subscribers.len()).expect("limited");
    let closes_at = publish.window.map(|window| now.after(window));
    let row = PublicationRow {
        namespace: publish.namespace.clone(),
        topic: publish.topic.clone(),
        payload: publish.payload.clone(),
        by,
        at: now,
        heard,
        closes_at,
        deadlines: publish.deadlines,
        context: publish.context.clone(),
    };
    let starts = subscribers
        .iter()
        .map(|workflow| subscriber(id, &row, workflow));
    let starts: Vec<Start> = starts.collect();
    open(&starts, by, rows, now)?;
    for start in &starts {
        rows.run_mut(start.run).expect("just made").publication = Some(id);
    }
    if let (Some(by), Some(closes_at)) = (by, closes_at) {
        keep_open(rows, by, closes_at);
    }
    rows.publications.put(id, row);
    let new = true;
    Ok(Published { id, new, heard })
}

/// The run that a publication sets off for a workflow.
fn subscriber(id: PublicationId, publication: &PublicationRow, workflow: &Name) -> Start {
    Start {
        parent: publication.by,
        deadlines: publication.deadlines,
        context: publication.context.clone(),
        ..Start::new(
            publication.namespace.clone(),
            subscriber_run(id, workflow),
            workflow.clone(),
            publication.payload.clone(),
        )
    }
}

/// Lets a workflow join a publication, unless its window is closed or whoever published has gone
/// on: that is decided here, under the lock of the run that waits.
pub(super) fn join(join: &Join, rows: &mut Rows, now: Timestamp) -> Result<Joined, Refusal> {
    let Some(row) = rows.publications.get(&join.publication).cloned() else {
        return Ok(Joined::Unknown);
    };
    if row.namespace != join.namespace {
        return Ok(Joined::Unknown);
    }
    let start = subscriber(join.publication, &row, &join.workflow);
    if rows.run(start.run).is_some() {
        return Ok(Joined::Already(start.run));
    }
    let in_time = |closes_at: Option<Timestamp>| closes_at.is_some_and(|at| now < at);
    let waits = row.by.is_none_or(|by| {
        let latch = rows.latches.get(&LatchId::of(by, 0));
        let goes_on = rows.run(by.run).is_none_or(|row| {
            let ends = row.cancel != CancelMark::None || row.missed(now).is_some();
            ends || row.undo == UndoMark::Underway
        });
        latch.is_some_and(|latch| in_time(latch.closes_at)) && !goes_on
    });
    let late = !waits || !in_time(row.closes_at);
    if late && !mutant::on(Mutant::LateSubscriberJoins) {
        return Ok(Joined::Late);
    }
    open(std::slice::from_ref(&start), row.by, rows, now)?;
    rows.run_mut(start.run).expect("just made").publication = Some(join.publication);
    let row = rows.publications.get_mut(&join.publication).expect("found");
    row.heard += 1;
    Ok(Joined::New(start.run))
}

/// A window counts as one that has not ended.
fn keep_open(rows: &mut Rows, by: Parent, closes_at: Timestamp) {
    let mut row = rows
        .latches
        .get(&LatchId::of(by, 0))
        .copied()
        .unwrap_or_default();
    row.open += u32::from(row.closes_at.is_none());
    row.closes_at = row.closes_at.max(Some(closes_at));
    rows.latches.put(LatchId::of(by, 0), row);
}

/// The window of what a call published is over, or nobody waits for it any more.
pub(super) fn close(rows: &mut Rows, by: Parent, early: bool, now: Timestamp) {
    let Some(row) = rows.latches.get_mut(&LatchId::of(by, 0)) else {
        return;
    };
    if row.closes_at.is_some_and(|at| at <= now || early) {
        row.closes_at = None;
        lower(rows, LatchId::of(by, 0), 0, None, now);
    }
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
    let latch = |part| LatchId::of(at, part);
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
    let LatchRow {
        open,
        failed,
        total,
        ..
    } = *row;
    let early = mutant::on(Mutant::ScopeSettlesEarly) && id.part == 0;
    if open > 0 && !early {
        return;
    }
    rows.latches.remove(&id);
    if id.part > 0 {
        if mutant::on(Mutant::LatchPartLost) {
            return;
        }
        return lower(rows, LatchId { part: 0, ..id }, failed, claimant, now);
    }
    settled(rows, id, (total, failed), claimant, now);
}

/// Tells the call that all it set off has ended, and how many otherwise than they should.
fn settled(
    rows: &mut Rows,
    id: LatchId,
    (total, failed): (u32, u32),
    claimant: Option<Claimant>,
    now: Timestamp,
) {
    if batches::end(rows, id, (total, failed), claimant, now) {
        return;
    }
    let failed = Payload::encode(&failed).expect("a number has a JSON form");
    let to = (id.run, id.execution, id.call);
    tell(rows, to, &Outcome::Value(failed), claimant, now);
}

/// Tells calls of the round whose scope is empty that nothing is left to wait for.
pub(super) fn settle_empty(round: &Round, rows: &mut Rows, now: Timestamp) {
    let mut calls: Vec<u32> = round.caused.iter().filter_map(scope_of).collect();
    if calls.is_empty() {
        return;
    }
    calls.sort_unstable();
    calls.dedup();
    let (run, execution) = (round.run, rows.run(round.run).expect("checked").execution);
    for call in calls {
        let id = LatchId {
            run,
            execution,
            call,
            part: 0,
        };
        let row = rows.latches.get(&id).copied().unwrap_or_default();
        if row.open == 0 {
            rows.latches.remove(&id);
            settled(rows, id, (row.total, row.failed), None, now);
        }
    }
}

/// The call whose scope this is part of.
fn scope_of(caused: &Caused) -> Option<u32> {
    match caused {
        Caused::Children(call, _) | Caused::Publish(call, _) | Caused::RollBack(call, ..) => {
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
pub(super) fn roll_back(
    rows: &mut Rows,
    at: Parent,
    (scope, context): (Scope, &Context),
    now: Timestamp,
) {
    let mut failed = 0;
    let deadline = rows.run(at.run).and_then(|row| row.deadlines.rollback);
    let above = undos::FromAbove { deadline, context };
    for id in runs_of(rows, at.run, scope) {
        let its_own = |row: &RunRow| row.parent.is_some_and(|parent| parent.run == at.run);
        if !rows.run(id).is_some_and(its_own) {
            continue;
        }
        match undos::ask(rows, id, &above, now) {
            undos::Asked::Underway => {
                enter(rows, at, id);
            }
            undos::Asked::HasFailed => failed += 1,
            undos::Asked::Nothing => {}
        }
    }
    if failed > 0 {
        let id = LatchId::of(at, 0);
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
    if subscribe.on {
        join_all(subscribe, rows, now)?;
    }
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

/// A workflow that subscribes joins what is published in a window that is open.
fn join_all(subscribe: &Subscribe, rows: &mut Rows, now: Timestamp) -> Result<(), Refusal> {
    for publication in std::mem::take(&mut rows.open_publications) {
        let asked = Join {
            namespace: subscribe.namespace.clone(),
            publication,
            workflow: subscribe.workflow.clone(),
        };
        join(&asked, rows, now)?;
    }
    Ok(())
}
