//! Facts that come in: each is recorded, queued, waits for a fact that it needs, or is parked.
//!
//! An item of the queue is a run that nobody works on. Recording its fact ends it in the same
//! commit; what waits is held until the fact that it needs is recorded, and let go in that commit.

use super::{batches, facts, operators, rounds, run_key, starts};
use crate::incoming::{due_at, item_gate, item_key, item_run, next_place};
use crate::mutant::{self, Mutant};
use crate::{
    Batch, CancelMark, Cause, FactId, Failure, Hint, INCOMING, Item, Name, Outcome, Payload,
    Receive, Received, Record, RecordedFact, Refusal, Rows, RunId, RunRow, RunState, Start, Take,
    Timestamp, UndoMark, limits,
};

/// Takes facts in, one after the other.
pub(super) fn receive(
    receive: &Receive,
    rows: &mut Rows,
    now: Timestamp,
) -> Result<Vec<Received>, Refusal> {
    check(&receive.items)?;
    let items = receive.items.iter();
    Ok(items.map(|item| one(receive, item, rows, now)).collect())
}

/// Not more than one commit holds.
fn check(items: &[Item]) -> Result<(), Refusal> {
    Refusal::over("facts taken in at once", limits::FACTS, items.len())?;
    let bytes = items.iter().map(|item| item.envelope.size()).sum();
    let what = "bytes of facts taken in at once";
    Refusal::over(what, limits::ROUND_BYTES, bytes)
}

fn one(receive: &Receive, item: &Item, rows: &mut Rows, now: Timestamp) -> Received {
    let namespace = &receive.namespace;
    let found = match item.from {
        None => by_key(namespace, item, rows),
        Some((run, execution)) => {
            end_asked(namespace, run, rows, now);
            let its = open(namespace, run, rows).filter(|row| row.execution == execution);
            match its {
                Some(row) => Some(row.id),
                None => return Received::Gone,
            }
        }
    };
    let at = (namespace, item);
    match &item.take {
        Take::Queue => queue(at, found, rows, now),
        Take::Park(failure) => park(at, found, failure, rows, now),
        Take::Record => match record(receive, (item, found), rows, now) {
            Ok(recorded) => Received::Recorded(recorded),
            Err(_) if mutant::on(Mutant::InboxClearedFirst) && item.from.is_some() => {
                found
                    .into_iter()
                    .for_each(|run| end(rows, (run, item), now));
                Received::Gone
            }
            Err(Refusal::FactMissing { needs, .. }) => wait(at, found, needs, rows, now),
            // A process that has it takes it up.
            Err(Refusal::LacksProjection { .. }) => queue(at, found, rows, now),
            Err(refusal) => park(at, found, &failure_of(&refusal), rows, now),
        },
    }
}

fn failure_of(refusal: &Refusal) -> Failure {
    let other = || Failure::permanent(refusal).with_code("refused");
    refusal.of_facts().unwrap_or_else(other)
}

/// The item of this id, if it is one that can be taken.
fn open<'r>(namespace: &Name, run: RunId, rows: &'r Rows) -> Option<&'r RunRow> {
    let row = at_rest(namespace, run, rows)?;
    (row.cancel == CancelMark::None).then_some(row)
}

/// The item of this id, if nobody has it and it has not ended.
fn at_rest<'r>(namespace: &Name, run: RunId, rows: &'r Rows) -> Option<&'r RunRow> {
    let row = rows.run(run)?;
    let lane = rows.lane(row.lane);
    let item = lane.workflow == INCOMING && lane.namespace == *namespace;
    let untouched = row.owner.is_none() && row.head == 1 && row.waits == 0;
    let untouched = untouched && row.undo == UndoMark::Nothing && row.parent.is_none();
    (item && untouched && !row.state.has_ended()).then_some(row)
}

/// The item that is this fact, if it can be taken. Another fact under its id is no such item.
fn by_key(namespace: &Name, item: &Item, rows: &Rows) -> Option<RunId> {
    let key = run_key(namespace, &item_key(&item.fact.id).ok()?);
    let run = rows.keys.get(&key)?.run?;
    let row = open(namespace, run, rows)?;
    let start = start_of(namespace, item, run).ok()?;
    starts::is_new(&start, rows).is_ok().then_some(row.id)
}

/// An item that somebody has asked to end does so: no worker sees to it.
fn end_asked(namespace: &Name, run: RunId, rows: &mut Rows, now: Timestamp) {
    let asked = |row: &&RunRow| row.cancel != CancelMark::None;
    if at_rest(namespace, run, rows).filter(asked).is_some() {
        operators::end_unbegun(rows, run, now);
    }
}

/// Records the fact, and ends the item.
fn record(
    receive: &Receive,
    (item, found): (&Item, Option<RunId>),
    rows: &mut Rows,
    now: Timestamp,
) -> Result<RecordedFact, Refusal> {
    let record = Record {
        by: receive.by.clone(),
        knows: receive.knows.clone(),
        ..Record::new(receive.namespace.clone(), vec![item.fact.clone()])
    };
    let cause = found.and_then(|run| rows.run(run)).map(|row| Cause {
        run: row.id,
        execution: row.execution,
        entry: row.head + 1,
    });
    let mut plan = facts::Plan::default();
    let recorded = plan.add((&record, cause), rows, now)?;
    plan.carry_out(rows, now);
    if let Some(run) = found {
        end(rows, (run, item), now);
    }
    Ok(recorded[0])
}

fn end(rows: &mut Rows, (run, item): (RunId, &Item), now: Timestamp) {
    let value = Payload::encode(&item.fact.id).expect("a name is JSON");
    let outcome = Outcome::Value(value);
    operators::end_by_hand(rows, run, (RunState::Completed, &outcome), now);
}

/// Keeps it for later, unless it is recorded already.
fn queue(at: (&Name, &Item), found: Option<RunId>, rows: &mut Rows, now: Timestamp) -> Received {
    let id = FactId {
        namespace: at.0.clone(),
        id: at.1.fact.id.clone(),
    };
    if let Some(known) = rows.facts.get(&id) {
        return match facts::repeated(&at.1.fact, known) {
            Ok(recorded) => Received::Recorded(recorded),
            Err(refusal) => Received::Refused(Box::new(refusal)),
        };
    }
    match kept(at, found, rows, now) {
        Ok(Some(run)) => Received::Queued(run),
        other => not_kept(other),
    }
}

/// It waits for an operator.
fn park(
    at: (&Name, &Item),
    found: Option<RunId>,
    failure: &Failure,
    rows: &mut Rows,
    now: Timestamp,
) -> Received {
    let run = match kept(at, found, rows, now) {
        Ok(Some(run)) => run,
        other => return not_kept(other),
    };
    let row = rows.run_mut(run).expect("an item");
    row.timer_at = None;
    rounds::park(row, failure, now);
    let reason = row.outcome.clone();
    rows.hints.push(Hint::AtRest(run, RunState::Parked, reason));
    let failure = Box::new(failure.clone());
    Received::Parked { run, failure }
}

/// It waits for a fact, which lets it go in the commit that records it. Who has waited too long
/// waits for an operator instead.
fn wait(
    at: (&Name, &Item),
    found: Option<RunId>,
    on: Name,
    rows: &mut Rows,
    now: Timestamp,
) -> Received {
    let timer = found.and_then(|run| rows.run(run)?.timer_at);
    if timer.is_some_and(|timer| timer <= now) {
        let text = format!("the fact `{on}`, which it needs, did not come in time");
        let failure = Failure::permanent(text).with_code("fact_missing");
        return park(at, found, &failure, rows, now);
    }
    let run = match kept(at, found, rows, now) {
        Ok(Some(run)) => run,
        other => return not_kept(other),
    };
    let needed = FactId {
        namespace: at.0.clone(),
        id: on.clone(),
    };
    let row = rows.run_mut(run).expect("an item");
    if row.state == RunState::Waiting {
        // It is held: nobody has let it go since it was last looked at.
        return Received::Waiting { run, on };
    }
    (row.state, row.outcome, row.news_at) = (RunState::Waiting, None, None);
    row.timer_at = row
        .timer_at
        .or_else(|| at.1.patience.map(|patience| now.after(patience)));
    row.epoch += 1;
    row.settle(now);
    // A number of its own: what is left of an earlier time is another.
    let time = u32::try_from(row.epoch).unwrap_or(u32::MAX);
    rows.watches
        .put((needed.mark(), run, time, Batch::HELD), ());
    Received::Waiting { run, on }
}

/// The item that it is, made now if there was none. None if there was one that has ended without
/// it: somebody has discarded it.
fn kept(
    (namespace, item): (&Name, &Item),
    found: Option<RunId>,
    rows: &mut Rows,
    now: Timestamp,
) -> Result<Option<RunId>, Refusal> {
    if found.is_some() {
        return Ok(found);
    }
    let gate = item_gate(namespace);
    let mut counters = rows.gates.get(&gate).cloned().unwrap_or_default();
    counters.offers = next_place(counters.offers, now);
    let run = item_run(namespace, counters.offers);
    let start = start_of(namespace, item, run)?;
    starts::check(&start)?;
    if !starts::is_new(&start, rows)? {
        return Ok(None);
    }
    let due = due_at(counters.offers);
    rows.gates.put(gate, counters);
    starts::start(&start, rows, now)?;
    let row = rows.run_mut(run).expect("just made");
    row.news_at = Some(due);
    row.timer_at = item.patience.map(|patience| now.after(patience));
    row.settle(now);
    Ok(Some(run))
}

fn not_kept(kept: Result<Option<RunId>, Refusal>) -> Received {
    match kept {
        Err(refusal) => Received::Refused(Box::new(refusal)),
        Ok(_) => Received::Gone,
    }
}

/// May a decider put these into the queue?
pub(super) fn may_queue(record: &Record, rows: &Rows) -> Result<(), Refusal> {
    check(&record.queued)?;
    let mut ids: Vec<&Name> = record.queued.iter().map(|item| &item.fact.id).collect();
    ids.sort();
    if let Some(twice) = ids.windows(2).find(|two| two[0] == two[1]) {
        let id = twice[0].clone();
        return Err(Refusal::AnotherFact { id });
    }
    for item in &record.queued {
        if let Some(known) = rows.facts.get(&record.fact_id(&item.fact)) {
            facts::repeated(&item.fact, known)?;
            continue;
        }
        let start = start_of(&record.namespace, item, RunId(uuid::Uuid::nil()))?;
        starts::check(&start)?;
        let is_there = by_key(&record.namespace, item, rows).is_some();
        if !starts::is_new(&start, rows)? && !is_there {
            return Err(starts::in_use(&start));
        }
    }
    Ok(())
}

/// The start of the run that is the item.
fn start_of(namespace: &Name, item: &Item, run: RunId) -> Result<Start, Refusal> {
    Ok(Start {
        version: Some(1),
        key: Some(item_key(&item.fact.id)?),
        ..Start::new(namespace.clone(), run, INCOMING, item.envelope.clone())
    })
}

/// A decider puts these into the queue.
pub(super) fn put(record: &Record, rows: &mut Rows, now: Timestamp) {
    for item in &record.queued {
        let found = by_key(&record.namespace, item, rows);
        queue((&record.namespace, item), found, rows, now);
    }
}

/// Those that waited for this fact are let go.
pub(super) fn let_go(fact: &FactId, rows: &mut Rows, now: Timestamp) {
    if mutant::on(Mutant::NeedUntold) {
        return;
    }
    let waiting: Vec<_> = rows.watchers_of(fact.mark()).collect();
    for watch in waiting {
        rows.watches.remove(&watch);
        batches::release(rows, watch.1, now);
    }
}
