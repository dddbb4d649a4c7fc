//! What `decide` guarantees of the rows of a run, for any list of operations.

use super::entries::Place;
use super::{Invariant, OfferRecord, Read, Report, RunRecord};
use crate::{
    CancelMark, Flow, GateId, KeyKind, MailId, MailRow, Outcome, RunId, RunRow, RunState, Taken,
    Told, UndoMark, WaitId, WaitRow, limits,
};

pub(super) fn run(record: &RunRecord, read: &Read<'_>, report: &mut Report<'_>) {
    let Some(row) = &record.row else {
        orphans(record, read.len(), report);
        return;
    };
    tree(record, row, report);
    journal(row, read, report);
    counters(record, row, report);
    scheduling(row, report);
    mail(record, row, report);
    for (id, wait) in &record.waits {
        matched(record, (id, wait), report);
        passed(record, (id, wait), report);
    }
    keys(record, row, report);
    latch(record, row, report);
    quotas(record, row, report);
}

/// Rows of a run that is not there.
fn orphans(record: &RunRecord, rounds: usize, report: &mut Report<'_>) {
    let left = [
        ("journal rows", rounds),
        ("labels", record.labels.len()),
        ("messages", record.mail.len()),
        ("waits", record.waits.len()),
        // Who waits for a fact watches what is no run.
        (
            "watches",
            if report.run.is_some_and(RunId::is_mark) {
                0
            } else {
                record.watches.len()
            },
        ),
        ("states", record.state.iter().count()),
        ("keys", record.keys.len()),
        ("latches", record.latches.len()),
    ];
    for (what, count) in left.into_iter().filter(|(_, count)| *count > 0) {
        let found = format!("{count} {what} of a run that is not there");
        report.add(Invariant::NoOrphan, found, "none");
    }
}

/// Lane, parent, root, depth.
fn tree(record: &RunRecord, row: &RunRow, report: &mut Report<'_>) {
    if record.lane.is_none() {
        let found = format!("lane {} which is not there", row.lane.0);
        report.add(Invariant::NoOrphan, found, "a lane");
    }
    let Some(parent) = row.parent else {
        if row.root != row.id || row.depth != 0 {
            let found = format!("no parent, root {}, depth {}", row.root, row.depth);
            report.add(Invariant::NoOrphan, found, "itself as root, depth 0");
        }
        return;
    };
    let Some((above, namespace)) = &record.parent else {
        let found = format!("parent {} which is not there", parent.run);
        report.add(Invariant::NoOrphan, found, "a parent");
        return;
    };
    if row.root != above.root || u32::from(row.depth) != u32::from(above.depth) + 1 {
        let found = format!("root {}, depth {}", row.root, row.depth);
        let expected = format!("root {}, depth {}", above.root, u32::from(above.depth) + 1);
        report.add(Invariant::NoOrphan, found, expected);
    }
    if parent.execution > above.execution {
        let found = format!("a parent's execution {}", parent.execution);
        let expected = format!("{} at most", above.execution);
        report.add(Invariant::NoOrphan, found, expected);
    }
    let own = record.lane.as_ref().map(|lane| &lane.namespace);
    if let (Some(own), Some(above)) = (own, namespace)
        && own != above
    {
        let found = format!("namespace {own:?}");
        report.add(
            Invariant::Isolation,
            found,
            format!("{above:?} of its parent"),
        );
    }
}

/// Numbers without gaps, epochs that rise, entries that can be read.
fn journal(row: &RunRow, read: &Read<'_>, report: &mut Report<'_>) {
    let (mut execution, mut next, mut epoch) = (0, 1, 0);
    for (round, entries) in read {
        let place = Place(round.execution, round.first);
        let anew = round.execution != execution;
        if anew {
            let due = execution + 1;
            if round.execution != due {
                let expected = format!("execution {due}");
                report.add(Invariant::GapFree, format!("{place}, next"), expected);
            }
            (execution, next) = (round.execution, 1);
        }
        if round.first != next || round.count == 0 {
            let found = format!("{place}, {} of them", round.count);
            report.add(Invariant::GapFree, found, format!("some from {next} on"));
        }
        next = round.first.saturating_add(u64::from(round.count));
        let rises = round.epoch > epoch || (anew && round.epoch == epoch);
        let ended = round.epoch < row.epoch || round.epoch == 0;
        if !rises || !ended {
            let found = format!("{place} under epoch {}", round.epoch);
            let expected = format!("one after {epoch} and before {}", row.epoch);
            report.add(Invariant::Fencing, found, expected);
        }
        epoch = epoch.max(round.epoch);
        match entries {
            Err(error) => {
                let found = format!("{place} that cannot be read ({error})");
                report.add(Invariant::GapFree, found, "entries");
            }
            Ok(entries) if entries.len() != round.count as usize => {
                let found = format!("{place}, {} of them", entries.len());
                report.add(Invariant::GapFree, found, round.count.to_string());
            }
            Ok(_) => {}
        }
    }
    let found = (u64::from(execution), next - 1);
    if found != (u64::from(row.execution), row.head) {
        let found = format!("a journal up to execution {}, entry {}", found.0, found.1);
        let expected = format!("up to execution {}, entry {}", row.execution, row.head);
        report.add(Invariant::GapFree, found, expected);
    }
}

/// Counters say what the tables hold.
fn counters(record: &RunRecord, row: &RunRow, report: &mut Report<'_>) {
    let own = record.mail.iter().filter(|(id, _)| id.name.is_none());
    let taken = record.waits.iter().filter(|(_, wait)| wait.taken.is_some());
    let matched = match row.state.has_ended() {
        true => 0,
        false => own.count() + taken.count(),
    };
    let all = [
        ("messages counted", row.mail, record.mail.len()),
        ("waits counted", row.waits, record.waits.len()),
        ("watchers counted", row.watchers, record.watches.len()),
        ("matched messages counted", row.matched, matched),
    ];
    for (what, counted, there) in all {
        report.same(Invariant::NoLostMessage, what, counted.into(), there as u64);
    }
}

/// State, lease and `ready_at` fit each other.
fn scheduling(row: &RunRow, report: &mut Report<'_>) {
    let state = row.state.as_str();
    let rests = row.state.has_ended() || row.state == RunState::Parked;
    let leased = row.owner.is_some();
    let works = row.state == RunState::Running || (leased && row.state == RunState::RollingBack);
    if leased != row.lease_until.is_some() || leased != works {
        let found = match leased {
            true => format!("{state} and leased"),
            false => format!("{state} and not leased"),
        };
        let invariant = if rests {
            Invariant::NoLeak
        } else {
            Invariant::Liveness
        };
        report.add(invariant, found, "a lease exactly while running");
    }
    let as_it_should = match row.flow {
        Flow::Free => true,
        Flow::Permit => leased,
        Flow::Pass => !rests && (leased || row.goes_ahead()),
    };
    if !as_it_should {
        let found = format!("{state} and, to the limits of its queue, {:?}", row.flow);
        report.add(Invariant::NoLeak, found, "a permit exactly while leased");
    }
    let times = (row.ready_at, row.news_at, row.timer_at, row.waits);
    if rests && row.ready_at.is_some() {
        report.add(
            Invariant::NoLeak,
            format!("{state} and to be claimed"),
            "at rest",
        );
    }
    if row.state.has_ended() && times != (None, None, None, 0) {
        let found = format!("{state} and still waiting for a time or a message");
        report.add(Invariant::NoLeak, found, "nothing to wait for");
    }
    if (row.outcome.is_some()) != rests {
        let found = match rests {
            true => format!("{state} without an outcome"),
            false => format!("{state} with an outcome"),
        };
        report.add(Invariant::OneEnd, found, "an outcome exactly at rest");
    }
    if row.state == RunState::Parked && matches!(row.outcome, Some(Outcome::Value(_))) {
        report.add(
            Invariant::OneEnd,
            "parked with a value",
            "the reason, a failure",
        );
    }
    if rests {
        return;
    }
    let mut settled = row.clone();
    settled.settle(row.changed_at);
    if settled.ready_at != row.ready_at || settled.state != row.state {
        let found = format!("{state}, to be claimed {}", shown(row.ready_at));
        let expected = format!("{}, {}", settled.state.as_str(), shown(settled.ready_at));
        report.add(Invariant::Liveness, found, expected);
    }
    let undoing = row.undo == UndoMark::Underway;
    let called = row.matched > 0 || (row.cancel == CancelMark::Requested && !undoing);
    if !leased && row.news_at.is_none() && called {
        let found = "waiting, with something to take up";
        report.add(Invariant::Liveness, found, "ready");
    }
}

fn shown(at: Option<crate::Timestamp>) -> String {
    at.map_or_else(|| "never".into(), |at| format!("at {at}"))
}

/// Numbers come from the run's counter, and the engine's own messages are for this execution.
fn mail(record: &RunRecord, row: &RunRow, report: &mut Report<'_>) {
    let mut numbers: Vec<u64> = record.mail.iter().map(|(id, _)| id.number).collect();
    numbers.sort_unstable();
    let twice = numbers.windows(2).find(|pair| pair[0] == pair[1]);
    if let Some(twice) = twice {
        let found = format!("two messages of number {}", twice[0]);
        report.add(Invariant::Order, found, "one");
    }
    if let Some(last) = numbers.last().filter(|last| **last > row.mail_last) {
        let found = format!("message {last}");
        report.add(
            Invariant::Order,
            found,
            format!("{} at most", row.mail_last),
        );
    }
    for (id, body) in &record.mail {
        let due = match (&id.name, body.answers) {
            (Some(_), None) => true,
            (None, Some((execution, _))) => execution == row.execution || row.state.has_ended(),
            _ => false,
        };
        parked(row, (id, body), report);
        if !due {
            let found = format!("message {} for {:?}", id.number, body.answers);
            let expected = format!("a signal, or a call of execution {}", row.execution);
            report.add(Invariant::Delivery, found, expected);
        }
    }
}

/// What is left in the mailbox of a run that has ended is parked, and only signals are.
fn parked(row: &RunRow, (id, mail): (&MailId, &MailRow), report: &mut Report<'_>) {
    let number = id.number;
    if mail.parked_at.is_none() && row.state.has_ended() {
        let found = format!("message {number} of a run that has ended");
        report.add(Invariant::NoLostMessage, found, "parked, or gone");
    }
    if mail.parked_at.is_some() && id.name.is_none() {
        let found = format!("message {number} of the engine's own, parked");
        report.add(Invariant::NoLostMessage, found, "signals only");
    }
}

/// What a wait has is there, and nobody else's.
fn matched(record: &RunRecord, (id, wait): (&WaitId, &WaitRow), report: &mut Report<'_>) {
    let Some(taken) = wait.taken else { return };
    let what = format!("call {} waits for `{}` and has", id.call, id.name);
    let there = match taken {
        Taken::Mail(number) => {
            let (run, name) = (id.run, Some(id.name.clone()));
            let mail = MailId { run, name, number };
            record.mail.iter().any(|(known, _)| *known == mail)
        }
        Taken::Offer(place) => record.offers.iter().any(|(offer, row)| {
            let this = offer.gate.name == id.name && offer.place == place;
            this && row.taken_by == Some(id.run)
        }),
    };
    if !there {
        let found = format!("{what} {taken:?}, which is not there or not its own");
        report.add(Invariant::Delivery, found, "a message that is there");
    }
    let same = |(other, row): &&(WaitId, WaitRow)| other.name == id.name && row.taken == wait.taken;
    let first = record.waits.iter().find(same).map(|(first, _)| first);
    if first.is_some_and(|first| first != id) {
        let found = format!("{what} {taken:?}, which another call has too");
        report.add(Invariant::Delivery, found, "one call for each message");
    }
}

/// An open wait and a message that it could take have not passed each other.
fn passed(record: &RunRecord, (id, wait): (&WaitId, &WaitRow), report: &mut Report<'_>) {
    if let Some(place) = wait.place {
        let seen = |gate: &&super::GateSeen| gate.gate.name == id.name;
        let gate = record.gates.iter().find(seen);
        let last = gate.and_then(|gate| gate.row.as_ref());
        let last = last.map_or(0, |gate| gate.waiters);
        if place > last {
            let found = format!("place {place} among those who wait for `{}`", id.name);
            report.add(Invariant::Order, found, format!("{last} at most"));
        }
        let free = gate.and_then(|gate| gate.free);
        if let Some(free) = free.filter(|_| wait.taken.is_none()) {
            let found = format!("call {} waits for offer {free} of `{}`", id.call, id.name);
            report.add(Invariant::Delivery, found, "that it has it");
        }
    }
    let busy = |number| {
        let taken = Some(Taken::Mail(number));
        let mut waits = record.waits.iter();
        waits.any(|(other, row)| other.name == id.name && row.taken == taken)
    };
    let free = record.mail.iter().find(|(mail, row)| {
        let free = row.parked_at.is_none() && !busy(mail.number);
        wait.taken.is_none() && mail.name.as_ref() == Some(&id.name) && free
    });
    if let Some((mail, _)) = free {
        let (call, number) = (id.call, mail.number);
        let found = format!("call {call} waits for message {number} of `{}`", id.name);
        report.add(Invariant::Delivery, found, "that it has it");
    }
}

/// The user's own id leads to the run, and no other does.
fn keys(record: &RunRecord, row: &RunRow, report: &mut Report<'_>) {
    let Some(lane) = &record.lane else { return };
    let mut leads = false;
    for (id, _) in &record.keys {
        let own = match id.kind {
            KeyKind::Run => row.key.as_ref().is_some_and(|key| key.as_str() == id.key),
            KeyKind::Sender => true,
        };
        leads |= own && id.kind == KeyKind::Run;
        if !own {
            let found = format!("key `{}` leads to it", id.key);
            report.add(Invariant::OneKey, found, "its own key only");
        }
        if id.namespace != lane.namespace {
            let found = format!("key `{}` of namespace {:?}", id.key, id.namespace);
            report.add(Invariant::Isolation, found, format!("{:?}", lane.namespace));
        }
    }
    if let Some(key) = row.key.as_ref().filter(|_| !leads) {
        let found = format!("key {key:?} does not lead to it");
        report.add(Invariant::OneKey, found, "that it does");
    }
}

/// Whoever ends last tells the parent: what is not over is counted at the latch it is told by.
fn latch(record: &RunRecord, row: &RunRow, report: &mut Report<'_>) {
    let idle = record.latches.iter().find(|(_, latch)| latch.open == 0);
    if let Some((id, _)) = idle {
        let found = format!("call {} waits for runs that have all ended", id.call);
        report.add(Invariant::NoLostMessage, found, "that it was told");
    }
    let (Told::Latch { .. }, Some(seen)) = (row.told, &record.told_by) else {
        return;
    };
    let over = row.state.has_ended();
    if !over && seen.is_none_or(|latch| latch.open == 0) {
        let found = "a run that its scope does not wait for";
        report.add(Invariant::ParentAfterChildren, found, "that it is counted");
    }
}

/// Nothing is above its limit.
fn quotas(record: &RunRecord, row: &RunRow, report: &mut Report<'_>) {
    let entries = limits::JOURNAL_ENTRIES + limits::JOURNAL_RESERVE;
    let all = [
        ("entries", row.head, entries),
        ("levels", row.depth.into(), limits::DEPTH.into()),
        ("labels", record.labels.len() as u64, limits::LABELS as u64),
    ];
    for (what, found, limit) in all {
        if found > limit {
            let found = format!("{found} {what}");
            report.add(Invariant::Limits, found, format!("{limit} at most"));
        }
    }
    if row.crashes >= limits::CRASHES && row.state != RunState::Parked {
        let found = format!("{} crashes and {}", row.crashes, row.state.as_str());
        report.add(Invariant::Attempts, found, "parked");
    }
}

/// An offer lies under its gate; who has it knows.
pub(super) fn offer(record: &OfferRecord, report: &mut Report<'_>) {
    let OfferRecord { id, row, .. } = record;
    let GateId { name, .. } = &id.gate;
    let last = record.gate.as_ref().map_or(0, |gate| gate.offers);
    if id.place > last {
        let found = format!("offer {} of `{name}`", id.place);
        report.add(Invariant::Order, found, format!("{last} at most"));
    }
    let expected = u32::from(row.taken_by.is_some());
    if record.waits != expected {
        let found = format!("offer {} of `{name}`, had by {}", id.place, record.waits);
        report.add(Invariant::Delivery, found, format!("{expected} waits"));
    }
}
