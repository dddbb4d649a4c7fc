//! Committing a round: fenced first, everything else after.

use super::wakes::{inbox, own_mail};
use super::{ends, operators, signals, starts, target_run};
use crate::{
    CancelMark, Caused, Committed, Consumed, Failure, GateRow, Hint, JournalRow, MailId, Name,
    Outcome, Payload, Refusal, Round, Rows, RunId, RunRow, RunState, StateChange, StateRow, Target,
    Then, Timestamp, WaitId, WaitRow, WorkerId, limits,
};

/// Commits a round, or refuses it whole.
pub(super) fn commit(round: &Round, rows: &mut Rows, now: Timestamp) -> Result<Committed, Refusal> {
    check(round, rows)?;
    append(round, rows, now);
    let mut committed = Committed {
        at: now,
        ..Committed::default()
    };
    committed.slot_freed = clear_suspicion(round, rows);
    consume(round, rows, now);
    for caused in &round.caused {
        cause(round, caused, rows, now);
    }
    for change in &round.state {
        change_state(rows, round.run, change);
    }
    leave(round, rows, now);
    let row = rows.run(round.run).expect("a committed run exists");
    committed.epoch = row.epoch;
    committed.kept = row.owner == Some(round.worker);
    if committed.kept && row.matched > 0 {
        committed.inbox = inbox(rows, round.run);
    }
    Ok(committed)
}

/// May this worker take a step of the run under this epoch? Asked before user code runs inside the
/// transaction; the commit asks again.
///
/// # Errors
/// When it may not.
pub fn may_step(rows: &Rows, run: RunId, worker: WorkerId, epoch: u64) -> Result<(), Refusal> {
    let row = owned(rows, run, worker, epoch)?;
    if row.cancel != CancelMark::None {
        return Err(Refusal::CancelRequested { run });
    }
    Ok(())
}

/// The run, if this worker has it under this epoch.
fn owned(rows: &Rows, run: RunId, worker: WorkerId, epoch: u64) -> Result<&RunRow, Refusal> {
    let row = rows.run(run).ok_or(Refusal::UnknownRun { run })?;
    if row.epoch != epoch || row.owner != Some(worker) {
        return Err(Refusal::Fenced {
            run,
            epoch,
            current: row.epoch,
        });
    }
    Ok(row)
}

/// Everything that can refuse a round, before anything changes.
fn check(round: &Round, rows: &Rows) -> Result<(), Refusal> {
    let run = round.run;
    let row = owned(rows, run, round.worker, round.epoch)?;
    if row.cancel != CancelMark::None && round.is_forward() {
        return Err(Refusal::CancelRequested { run });
    }
    Refusal::over(
        "what one round sets off",
        limits::FAN_OUT,
        round.caused.len(),
    )?;
    Refusal::over(
        "a round's size in bytes",
        limits::ROUND_BYTES,
        round.entries.len(),
    )?;
    let ends = matches!(
        round.then,
        Then::End(..) | Then::ContinueAsNew(..) | Then::Park(_)
    );
    let reserve = if ends { limits::JOURNAL_RESERVE } else { 0 };
    let length = usize::try_from(row.head).unwrap_or(usize::MAX) + round.count as usize;
    let limit = usize::try_from(limits::JOURNAL_ENTRIES + reserve).expect("a small number");
    Refusal::over("a journal's entries", limit, length)?;
    if let Then::End(_, Outcome::Value(value)) = &round.then {
        signals::check(value)?;
    }
    for change in &round.state {
        let (StateChange::Set(value) | StateChange::Merge(value)) = change;
        signals::check(value)?;
    }
    round
        .consumed
        .iter()
        .try_for_each(|consumed| match consumed {
            Consumed::Wait(name, call) => {
                let wait = WaitId {
                    run,
                    name: name.clone(),
                    call: *call,
                };
                match rows.waits.get(&wait) {
                    Some(WaitRow { taken: Some(_), .. }) => Ok(()),
                    _ => Err(Refusal::Inconsistent {
                        run,
                        what: "it consumed what no wait had",
                    }),
                }
            }
            Consumed::Mail(number) => {
                let mail = MailId {
                    run,
                    name: None,
                    number: *number,
                };
                let known = rows.mail.get(&mail).map(|_| ());
                known.ok_or(Refusal::Inconsistent {
                    run,
                    what: "it consumed a message it never got",
                })
            }
        })
}

fn append(round: &Round, rows: &mut Rows, now: Timestamp) {
    let row = rows.run_mut(round.run).expect("checked");
    row.epoch += 1;
    row.timer_at = round.timer_at;
    if round.cancel_seen {
        row.cancel = CancelMark::Seen;
    }
    if round.count == 0 {
        return;
    }
    let first = row.head + 1;
    row.head += u64::from(round.count);
    let (run, execution) = (row.id, row.execution);
    let started = rows.journal.last_mut();
    if let Some(start) = started.filter(|last| last.run == run && last.epoch == 0) {
        join(&mut start.entries, &round.entries);
        start.count += round.count;
        return;
    }
    rows.journal.push(JournalRow {
        run,
        execution,
        first,
        count: round.count,
        epoch: round.epoch,
        at: now,
        entries: round.entries.clone(),
    });
}

/// Two JSON arrays, neither of them empty, as one: a start and its first round are one row.
fn join(first: &mut Vec<u8>, second: &[u8]) {
    assert!(
        first.last() == Some(&b']') && second.first() == Some(&b'['),
        "entries are arrays"
    );
    first.pop();
    first.push(b',');
    first.extend_from_slice(&second[1..]);
}

/// A round that commits did not kill its worker. Returns whether the worker's slot is free again.
fn clear_suspicion(round: &Round, rows: &mut Rows) -> bool {
    let row = rows.run_mut(round.run).expect("checked");
    if round.count > 0 {
        row.crashes = 0;
    }
    if !std::mem::take(&mut row.suspect) {
        return false;
    }
    let Some(worker) = rows.workers.get(&round.worker) else {
        return false;
    };
    if worker.suspect != Some(round.run) {
        return false;
    }
    rows.workers.get_mut(&round.worker).expect("found").suspect = None;
    true
}

fn consume(round: &Round, rows: &mut Rows, now: Timestamp) {
    let anything = round.consumed.len() + round.closed.len() + round.opened.len();
    if anything == 0 {
        return;
    }
    let run = round.run;
    let namespace = namespace_of(rows, run);
    let mut names: Vec<&Name> = Vec::new();
    for consumed in &round.consumed {
        match consumed {
            Consumed::Wait(name, call) => {
                let wait = WaitId {
                    run,
                    name: name.clone(),
                    call: *call,
                };
                signals::consume(rows, &namespace, &wait);
            }
            Consumed::Mail(number) => {
                let mail = MailId {
                    run,
                    name: None,
                    number: *number,
                };
                rows.mail.remove(&mail);
                let row = rows.run_mut(run).expect("checked");
                row.mail -= 1;
                row.matched -= 1;
            }
        }
    }
    for (name, call) in &round.closed {
        let wait = WaitId {
            run,
            name: name.clone(),
            call: *call,
        };
        signals::let_go(rows, &namespace, &wait, Some(round.claimant()), now);
        names.push(name);
    }
    for open in &round.opened {
        let place = open
            .offerable
            .then(|| next_place(rows, &namespace, &open.name));
        let wait = WaitId {
            run,
            name: open.name.clone(),
            call: open.call,
        };
        rows.put_wait(&namespace, wait, WaitRow { place, taken: None });
        rows.run_mut(run).expect("checked").waits += 1;
        names.push(&open.name);
    }
    names.sort();
    names.dedup();
    for name in names {
        signals::match_waits(rows, &namespace, run, name, now);
    }
}

fn namespace_of(rows: &Rows, run: RunId) -> Name {
    rows.lane(rows.run(run).expect("checked").lane)
        .namespace
        .clone()
}

fn next_place(rows: &mut Rows, namespace: &Name, name: &Name) -> u64 {
    let gate = crate::GateId {
        namespace: namespace.clone(),
        name: name.clone(),
    };
    let mut counters = rows
        .gates
        .get(&gate)
        .cloned()
        .unwrap_or_else(GateRow::default);
    counters.waiters += 1;
    let place = counters.waiters;
    rows.gates.put(gate, counters);
    place
}

/// One thing that the round set off. If it is refused, its call fails; the round stands. What
/// became of it is a message to the call, so that a crash before the next round loses nothing.
fn cause(round: &Round, caused: &Caused, rows: &mut Rows, now: Timestamp) {
    let (call, answer) = match caused {
        Caused::Child(call, start) => (*call, starts::start_caused(start, rows, now).map(|_| None)),
        Caused::Spawn(call, start) => (
            *call,
            starts::start_caused(start, rows, now).map(|run| Payload::encode(&run).ok()),
        ),
        Caused::Signal(call, signal) => (
            *call,
            signals::send(signal, rows, now).map(|sent| Payload::encode(&sent).ok()),
        ),
        Caused::Offer(call, offer) => (
            *call,
            signals::offer(offer, rows, now).map(|sent| Payload::encode(&sent).ok()),
        ),
        Caused::Watch(call, namespace, target) => (
            *call,
            watch(round, *call, (namespace, target), rows, now).map(|()| None),
        ),
        Caused::Cancel(run) => {
            operators::mark(rows, *run, Some(round.claimant()), now);
            return;
        }
    };
    let outcome = match answer {
        Ok(None) => return,
        Ok(Some(value)) => Outcome::Value(value),
        Err(refusal) => {
            let code = match refusal {
                Refusal::Conflict { .. } => "conflict",
                Refusal::UnknownRun { .. } | Refusal::UnknownKey { .. } => "unknown_run",
                _ => "refused",
            };
            Outcome::Failure(Box::new(Failure::business(refusal).with_code(code)))
        }
    };
    let execution = rows.run(round.run).expect("checked").execution;
    super::wakes::tell(rows, (round.run, execution, call), &outcome, None, now);
}

/// Waits for another run's end; one that has ended answers at once.
fn watch(
    round: &Round,
    call: u32,
    (namespace, target): (&Name, &Target),
    rows: &mut Rows,
    now: Timestamp,
) -> Result<(), Refusal> {
    let watched = target_run(rows, namespace, target).ok_or_else(|| match target {
        Target::Run(run) => Refusal::UnknownRun { run: *run },
        Target::Key(key) => Refusal::UnknownKey { key: key.clone() },
    })?;
    let execution = rows.run(round.run).expect("checked").execution;
    let row = rows.run(watched).expect("found");
    if row.state.has_ended() {
        let outcome = row.outcome.clone().expect("an ended run has an outcome");
        super::wakes::tell(rows, (round.run, execution, call), &outcome, None, now);
    } else {
        rows.watches.put((watched, round.run, execution, call), ());
        rows.run_mut(watched).expect("found").watchers += 1;
    }
    Ok(())
}

pub(super) fn change_state(rows: &mut Rows, run: RunId, change: &StateChange) {
    let before = rows.states.get(&run);
    let version = before.map_or(0, |state| state.version) + 1;
    let value = match change {
        StateChange::Set(value) => value.clone(),
        StateChange::Merge(patch) => merged(before.map(|state| &state.value), patch),
    };
    rows.states.put(run, StateRow { version, value });
}

/// RFC 7396: objects are merged, null removes, anything else replaces.
fn merged(before: Option<&Payload>, patch: &Payload) -> Payload {
    fn merge(into: &mut serde_json::Value, patch: serde_json::Value) {
        let serde_json::Value::Object(patch) = patch else {
            *into = patch;
            return;
        };
        if !into.is_object() {
            *into = serde_json::Value::Object(serde_json::Map::new());
        }
        let object = into.as_object_mut().expect("just made one");
        for (key, value) in patch {
            if value.is_null() {
                object.remove(&key);
            } else {
                merge(object.entry(key).or_insert(serde_json::Value::Null), value);
            }
        }
    }
    let mut value = before
        .and_then(|payload| payload.decode().ok())
        .unwrap_or_default();
    match patch.decode() {
        Ok(patch) => merge(&mut value, patch),
        Err(_) => return patch.clone(),
    }
    Payload::encode(&value).unwrap_or_else(|_| patch.clone())
}

/// What the round leaves behind.
fn leave(round: &Round, rows: &mut Rows, now: Timestamp) {
    let row = rows.run_mut(round.run).expect("checked");
    match &round.then {
        Then::Continue => row.settle(now),
        Then::Suspend => suspend(row, now),
        Then::End(state, outcome) => {
            ends::end(rows, round.run, (*state, outcome), round.claimant(), now);
        }
        Then::Park(failure) => {
            row.end_lease();
            park(row, failure, now);
            let reason = row.outcome.clone();
            rows.hints
                .push(Hint::AtRest(round.run, RunState::Parked, reason));
        }
        Then::ContinueAsNew(started, version) => {
            continue_as_new(round, started, *version, rows, now);
        }
    }
}

/// Gives the lease up, unless something is there already.
fn suspend(row: &mut RunRow, now: Timestamp) {
    let due = row.timer_at.is_some_and(|at| at <= now);
    if row.matched > 0 || row.cancel == CancelMark::Requested || due {
        row.settle(now);
        return;
    }
    row.end_lease();
    row.epoch -= 1;
    row.news_at = None;
    row.settle(now);
}

/// Parks a run that nobody has: it waits for an operator, with the reason.
pub(super) fn park(row: &mut RunRow, failure: &Failure, now: Timestamp) {
    row.state = RunState::Parked;
    row.outcome = Some(Outcome::Failure(Box::new(failure.clone())));
    row.news_at = None;
    row.settle(now);
}

/// The run begins anew with an empty journal. Its unread signals stay; what was meant for calls of
/// the old execution goes.
fn continue_as_new(
    round: &Round,
    started: &[u8],
    version: Option<u32>,
    rows: &mut Rows,
    now: Timestamp,
) {
    let run = round.run;
    ends::close_waits(rows, run, round.claimant(), now);
    let (first, last) = own_mail(run);
    let old: Vec<MailId> = rows
        .mail
        .range(first, last)
        .map(|(mail, _)| mail.clone())
        .collect();
    for mail in &old {
        rows.mail.remove(mail);
    }
    let lane = rows.lane(rows.run(run).expect("checked").lane).clone();
    let lane = version.map(|version| rows.make_lane(crate::Lane { version, ..lane }));
    let row = rows.run_mut(run).expect("checked");
    row.mail -= u32::try_from(old.len()).expect("a mailbox is small");
    row.matched = 0;
    row.execution += 1;
    row.head = 1;
    row.timer_at = None;
    let other = lane.is_some_and(|lane| lane != row.lane);
    row.lane = lane.unwrap_or(row.lane);
    if other {
        row.end_lease();
        row.epoch -= 1;
        row.holder = None;
        row.news_at = Some(now);
    }
    row.settle(now);
    let (execution, lane) = (row.execution, row.lane);
    rows.journal.push(JournalRow {
        run,
        execution,
        first: 1,
        count: 1,
        epoch: round.epoch,
        at: now,
        entries: started.to_vec(),
    });
    if other {
        rows.hints.push(Hint::Ready(lane, now));
    }
}
