//! Committing a round: fenced first, everything else after.

use super::wakes::{inbox, own_mail};
use super::{
    checks, conditions, ends, facts, operators, queues, require_run, scopes, signals, starts,
};
use crate::mutant::{self, Mutant};
use crate::{
    CancelMark, Caused, Claimant, Committed, Consumed, Failure, GateRow, Hint, JournalRow, MailId,
    Name, Outcome, Parent, Payload, Refusal, Round, Rows, RunId, RunRow, RunState, Scope, Target,
    Then, Timestamp, UndoMark, WaitId, WaitRow,
};

/// Commits a round, or refuses it whole.
pub(super) fn commit(round: &Round, rows: &mut Rows, now: Timestamp) -> Result<Committed, Refusal> {
    let state = checks::round(round, rows, now)?;
    let row = rows.run(round.run).expect("checked");
    let held = queues::held(row);
    let facts = facts::of_round(round, rows, now)?;
    append(round, rows, now);
    facts.carry_out(rows, now);
    let mut committed = Committed {
        at: now,
        ..Committed::default()
    };
    committed.slot_freed = clear_suspicion(round, rows);
    consume(round, rows, now);
    send(round, rows, now);
    for caused in &round.caused {
        cause(round, caused, rows, now);
    }
    scopes::settle_empty(round, rows, now);
    if let Some(state) = state.filter(|_| !mutant::on(Mutant::StateLost)) {
        rows.states.put(round.run, state);
    }
    conditions::look(round, rows, now);
    leave(round, rows, now);
    let row = rows.run(round.run).expect("a committed run exists");
    (committed.epoch, committed.created_at) = (row.epoch, row.created_at);
    committed.kept = row.owner == Some(round.worker);
    committed.cancel = row.cancel == CancelMark::Requested;
    if committed.kept && row.matched > 0 {
        committed.inbox = inbox(rows, round.run);
    }
    if !committed.kept {
        queues::give_back(rows, held, now);
    }
    Ok(committed)
}

fn append(round: &Round, rows: &mut Rows, now: Timestamp) {
    let row = rows.run_mut(round.run).expect("checked");
    row.epoch += u64::from(!mutant::on(Mutant::EpochKeptAtCommit));
    row.timer_at = round.timer_at;
    if round.cancel_seen {
        row.cancel = CancelMark::Seen;
    }
    if row.undo != UndoMark::Kept {
        row.undo = round.undo.unwrap_or(row.undo);
    }
    if round.count == 0 {
        return;
    }
    let first = row.head + 1;
    if !mutant::on(Mutant::HeadKept) {
        row.head += u64::from(round.count);
    }
    let (run, execution) = (row.id, row.execution);
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
            Consumed::Mail(_) if mutant::on(Mutant::OwnMailKept) => {}
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

/// What a step sent. Nothing else of the round comes before: that it can be sent was checked.
fn send(round: &Round, rows: &mut Rows, now: Timestamp) {
    for start in round.sent().filter(|_| !mutant::on(Mutant::SentLost)) {
        starts::start(start, rows, now).expect("checked");
    }
}

/// One thing that the round set off. If it is refused, its call fails; the round stands. What
/// became of it is a message to the call, so that a crash before the next round loses nothing.
fn cause(round: &Round, caused: &Caused, rows: &mut Rows, now: Timestamp) {
    let at = |rows: &Rows, call: u32| Parent {
        run: round.run,
        execution: rows.run(round.run).expect("checked").execution,
        call,
    };
    let (call, answer) = match caused {
        Caused::Child(call, start) => (*call, starts::child(start, rows, now).map(|()| None)),
        Caused::Children(call, starts) => {
            let by = at(rows, *call);
            (
                *call,
                scopes::open(starts, Some(by), rows, now).map(|()| None),
            )
        }
        Caused::Publish(call, publish) => {
            let by = at(rows, *call);
            let published = scopes::publish(publish, Some(by), rows, now);
            (*call, published.map(|_| None))
        }
        Caused::Spawn(call, start) => (
            *call,
            starts::start(start, rows, now).map(|started| Payload::encode(&started.run).ok()),
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
        Caused::Send(_) | Caused::Record(_) => return,
        Caused::Close(_) | Caused::RollBack(..) | Caused::Cancel(_) => {
            return below(round, caused, rows, now);
        }
    };
    if answer.is_ok() {
        note_set_off(caused, rows.run_mut(round.run).expect("checked"));
    }
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

/// What becomes of what the run set off before.
fn below(round: &Round, caused: &Caused, rows: &mut Rows, now: Timestamp) {
    let current = rows.run(round.run).expect("checked").execution;
    let at = |execution: u32, call: u32| Parent {
        run: round.run,
        execution,
        call,
    };
    match caused {
        Caused::Close(call) => scopes::close(rows, at(current, *call), false, now),
        Caused::RollBack(call, scope, context) => {
            scopes::roll_back(rows, at(current, *call), (*scope, context), now);
        }
        Caused::Cancel(scope) => {
            let runs = scopes::runs_of(rows, round.run, *scope);
            let kept = rows.run(round.run).expect("checked").undo == UndoMark::Kept;
            // Its own end is for the round itself to say.
            for run in runs.into_iter().filter(|run| *run != round.run) {
                match kept {
                    true => operators::keep(rows, run, now),
                    false => operators::mark(rows, run, Some(round.claimant()), now),
                }
            }
            if let Scope::Call { execution, call } = *scope {
                scopes::close(rows, at(execution, call), true, now);
            }
        }
        _ => unreachable!("only what is about what it set off"),
    }
}

/// What a run sets off and waits for is undone with it.
fn note_set_off(caused: &Caused, row: &mut RunRow) {
    let sets_off = matches!(
        caused,
        Caused::Child(..) | Caused::Children(..) | Caused::Publish(..)
    );
    if sets_off && row.undo == UndoMark::Nothing {
        row.undo = UndoMark::Possible;
    }
}

/// Waits for another run's end; one that has ended answers at once.
fn watch(
    round: &Round,
    call: u32,
    (namespace, target): (&Name, &Target),
    rows: &mut Rows,
    now: Timestamp,
) -> Result<(), Refusal> {
    let watched = require_run(rows, namespace, target)?;
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

/// What the round leaves behind.
fn leave(round: &Round, rows: &mut Rows, now: Timestamp) {
    let row = rows.run_mut(round.run).expect("checked");
    match &round.then {
        Then::Continue => row.settle(now),
        Then::Suspend => {
            suspend(row, now);
            if let (None, Some(at)) = (row.owner, row.ready_at) {
                let lane = row.lane;
                rows.hints.push(Hint::Ready(lane, at));
            }
        }
        Then::End(state, outcome) => {
            ends::end(rows, round.run, (*state, outcome), round.claimant(), now);
        }
        Then::Park(failure) => {
            row.end_lease();
            park(row, failure, now);
            let reason = row.outcome.clone();
            if mutant::on(Mutant::BatchEndsWithParked) {
                ends::told_parked(rows, round.run, now);
            }
            rows.hints
                .push(Hint::AtRest(round.run, RunState::Parked, reason));
        }
        Then::ContinueAsNew(started, version) => {
            let of = (round.run, round.epoch);
            continue_as_new(rows, of, (started, *version), round.claimant(), now);
        }
    }
}

/// Gives the lease up, unless something is there already.
fn suspend(row: &mut RunRow, now: Timestamp) {
    let due = row.timer_at.is_some_and(|at| at <= now);
    let news = row.matched > 0 || row.cancel == CancelMark::Requested || due;
    if news && !mutant::on(Mutant::SuspendsBlindly) {
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
pub(super) fn continue_as_new(
    rows: &mut Rows,
    (run, epoch): (RunId, u64),
    (started, version): (&[u8], Option<u32>),
    claimant: Claimant,
    now: Timestamp,
) {
    ends::close_waits(rows, run, claimant, now);
    let (first, mut last) = own_mail(run);
    if mutant::on(Mutant::AnewDropsSignals) {
        last.name = Some(Name::constant("~"));
    }
    let old: Vec<MailId> = rows
        .mail
        .range(first, last)
        .map(|(mail, _)| mail.clone())
        .collect();
    for mail in &old {
        rows.mail.remove(mail);
    }
    let lane = rows.lane(rows.run(run).expect("checked").lane).clone();
    let lane = version.map(|version| rows.make_lane(&crate::Lane { version, ..lane }));
    let row = rows.run_mut(run).expect("checked");
    row.mail -= u32::try_from(old.len()).expect("a mailbox is small");
    row.matched = 0;
    row.execution += 1;
    row.head = 1;
    row.timer_at = row.deadlines.forward.map(|due| due.at);
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
        epoch,
        at: now,
        entries: started.to_vec(),
    });
    if other {
        rows.hints.push(Hint::Ready(lane, now));
    }
}
