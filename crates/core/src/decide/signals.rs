//! Signals and offers: delivery, and matching waits with messages.

use super::batches::is_batch;
use super::conditions;
use super::wakes::{hand_over, waits_for};
use super::{offer_key, sender_key, target_run};
use crate::message::digest;
use crate::mutant::{self, Mutant};
use crate::{
    Claimant, Delivery, GateId, KeyId, KeyRow, MailId, MailRow, Name, Offer, OfferId, OfferRow,
    Outcome, Policy, Refusal, Rows, RunId, STATE_CHANGED, Sent, Signal, Source, Taken, Timestamp,
    WaitId, limits,
};

/// Sends a signal to one run.
pub(super) fn send(signal: &Signal, rows: &mut Rows, now: Timestamp) -> Result<Sent, Refusal> {
    let to = target_run(rows, &signal.namespace, &signal.target);
    send_to(to, signal, rows, now)
}

/// What can refuse a signal to a run that has no messages yet.
pub(super) fn may_send(signal: &Signal, rows: &Rows) -> Result<Option<Sent>, Refusal> {
    Refusal::payload(signal.payload.size())?;
    Refusal::reserved(&signal.name)?;
    let key = signal
        .key
        .as_ref()
        .map(|key| (sender_key(signal, key), key));
    repeated(rows, key.as_ref(), digest_of(signal))
}

fn digest_of(signal: &Signal) -> u128 {
    digest(&[signal.name.as_str(), signal.payload.identity()])
}

/// Sends a signal to this run, whatever it names as its target.
pub(super) fn send_to(
    to: Option<RunId>,
    signal: &Signal,
    rows: &mut Rows,
    now: Timestamp,
) -> Result<Sent, Refusal> {
    if let Some(first) = may_send(signal, rows)? {
        return Ok(first);
    }
    let Some(id) = to else {
        return Ok(Sent::TargetUnknown);
    };
    let row = rows.run(id).expect("the target exists");
    if row.state.has_ended() {
        return Ok(Sent::TargetEnded(row.state));
    }
    let (first, last) = waits_for(id, &signal.name);
    let open = rows
        .waits
        .range(first, last)
        .find(|(_, wait)| wait.taken.is_none());
    let open = open.map(|(wait, _)| wait.clone());
    let sent = match (&open, signal.policy) {
        (Some(_), _) => Sent::Delivered(id),
        (None, Policy::Drop) => Sent::Dropped,
        // Nobody ever reads what is sent to one.
        (None, _) if is_batch(rows, row) => Sent::Dropped,
        (None, _) => Sent::Queued,
    };
    if sent != Sent::Dropped {
        let unread = row.mail as usize;
        Refusal::over(
            "a run's unread messages",
            limits::MAILBOX as usize,
            unread + 1,
        )?;
        keep(rows, id, signal, open, now);
    }
    if let Some(key) = &signal.key {
        let (run, digest, sent) = (Some(id), digest_of(signal), Some(sent));
        rows.keys
            .put(sender_key(signal, key), KeyRow { run, digest, sent });
    }
    Ok(sent)
}

/// Puts the message into the mailbox and matches it to the wait, if there is one.
pub(super) fn keep(
    rows: &mut Rows,
    id: RunId,
    signal: &Signal,
    open: Option<WaitId>,
    now: Timestamp,
) {
    let row = rows.run_mut(id).expect("the target exists");
    row.mail_last += 1;
    row.mail += 1;
    row.changed_at = now;
    let number = row.mail_last;
    let body = Outcome::Value(signal.payload.clone());
    let mail = MailId {
        run: id,
        name: Some(signal.name.clone()),
        number,
    };
    rows.mail.put(
        mail,
        MailRow {
            answers: None,
            body: body.clone(),
            at: now,
            policy: signal.policy,
            expires_at: signal.expires.map(|after| now.after(after)),
            parked_at: None,
        },
    );
    if let Some(wait) = open.filter(|_| !mutant::on(Mutant::SignalUnmatched)) {
        let (taken, claimant) = (Taken::Mail(number), signal.claimant);
        let passed = Passed {
            taken,
            body,
            claimant,
        };
        take(rows, &signal.namespace, wait, passed, now);
    }
}

/// A message on its way to a wait.
struct Passed {
    taken: Taken,
    body: Outcome,
    claimant: Option<Claimant>,
}

/// Matches a wait to a message and hands it over.
fn take(rows: &mut Rows, namespace: &Name, wait: WaitId, passed: Passed, now: Timestamp) {
    let row = rows.waits.get(&wait).cloned();
    let mut row = row.expect("a matched wait exists");
    assert!(
        row.taken.is_none(),
        "call {} of run {} is matched twice",
        wait.call,
        wait.run
    );
    row.taken = Some(passed.taken);
    let (run, call, source) = (wait.run, wait.call, Source::Wait(wait.name.clone()));
    let body = passed.body;
    rows.put_wait(namespace, wait, row);
    let execution = rows.run(run).expect("a wait has a run").execution;
    let delivery = Delivery {
        execution,
        call,
        source,
        body,
    };
    hand_over(rows, run, delivery, passed.claimant, now);
}

/// The first answer to a repeated request; an error if the request is another.
fn repeated(
    rows: &Rows,
    key: Option<&(KeyId, &Name)>,
    digest: u128,
) -> Result<Option<Sent>, Refusal> {
    let Some((id, name)) = key.filter(|_| !mutant::on(Mutant::SenderKeyIgnored)) else {
        return Ok(None);
    };
    match rows.keys.get(id) {
        None => Ok(None),
        Some(row) if row.digest == digest => Ok(row.sent),
        Some(_) => Err(Refusal::Conflict {
            key: (*name).clone(),
        }),
    }
}

/// Offers a signal to the one who waits longest; keeps it if nobody does.
pub(super) fn offer(offer: &Offer, rows: &mut Rows, now: Timestamp) -> Result<Sent, Refusal> {
    Refusal::payload(offer.payload.size())?;
    Refusal::reserved(&offer.name)?;
    let gate = GateId {
        namespace: offer.namespace.clone(),
        name: offer.name.clone(),
    };
    let digest = digest(&[offer.name.as_str(), offer.payload.identity()]);
    let key = offer.key.as_ref().map(|key| (offer_key(&gate, key), key));
    if let Some(first) = repeated(rows, key.as_ref(), digest)? {
        return Ok(first);
    }
    let sent = keep_offer(offer, rows, now);
    if let Some((key, _)) = key {
        rows.keys.put(
            key,
            KeyRow {
                run: None,
                digest,
                sent: Some(sent),
            },
        );
    }
    Ok(sent)
}

/// Puts the offer at its gate, and gives it to the one who waits longest.
pub(super) fn keep_offer(offer: &Offer, rows: &mut Rows, now: Timestamp) -> Sent {
    let gate = GateId {
        namespace: offer.namespace.clone(),
        name: offer.name.clone(),
    };
    let mut counters = rows.gates.get(&gate).cloned().unwrap_or_default();
    counters.offers += 1;
    let place = counters.offers;
    rows.gates.put(gate.clone(), counters);
    let row = OfferRow {
        payload: offer.payload.clone(),
        taken_by: None,
        at: now,
    };
    let id = OfferId {
        gate: gate.clone(),
        place,
    };
    rows.offers.put(id, row);
    give(rows, &gate, place, offer.claimant, now).map_or(Sent::Queued, Sent::Delivered)
}

/// Gives an offer that nobody has to the one who waits longest.
fn give(
    rows: &mut Rows,
    gate: &GateId,
    place: u64,
    claimant: Option<Claimant>,
    now: Timestamp,
) -> Option<RunId> {
    let wait = rows.waiters_at(gate).next()?.clone();
    let run = wait.run;
    let offer = OfferId {
        gate: gate.clone(),
        place,
    };
    let row = rows
        .offers
        .get_mut(&offer)
        .expect("an offer that is given exists");
    row.taken_by = Some(run).filter(|_| !mutant::on(Mutant::OfferGivenTwice));
    let body = Outcome::Value(row.payload.clone());
    let taken = Taken::Offer(place);
    let passed = Passed {
        taken,
        body,
        claimant,
    };
    take(rows, &gate.namespace, wait, passed, now);
    Some(run)
}

/// Matches the run's open waits for this signal: first to its own messages, oldest first, then to
/// offers, oldest first.
pub(super) fn match_waits(
    rows: &mut Rows,
    namespace: &Name,
    id: RunId,
    name: &Name,
    now: Timestamp,
) {
    let (first, last) = waits_for(id, name);
    let (mut busy, mut open) = (Vec::new(), Vec::new());
    for (wait, row) in rows.waits.range(first, last) {
        match row.taken {
            Some(taken) => busy.push(taken),
            None => open.push((wait.clone(), row.place.is_some())),
        }
    }
    let at = |number| MailId {
        run: id,
        name: Some(name.clone()),
        number,
    };
    expire(rows, (at(0), at(u64::MAX)), &busy, now);
    for (wait, offerable) in open {
        let found = rows
            .mail
            .range(at(0), at(u64::MAX))
            .filter(|(_, row)| row.parked_at.is_none())
            .find(|(mail, _)| !busy.contains(&Taken::Mail(mail.number)))
            .map(|(mail, row)| (Taken::Mail(mail.number), row.body.clone()));
        let found = found.or_else(|| {
            let gate = GateId {
                namespace: namespace.clone(),
                name: name.clone(),
            };
            offerable.then(|| next_offer(rows, &gate)).flatten()
        });
        let Some((taken, body)) = found else { continue };
        if let Taken::Offer(place) = taken {
            let offer = offer_id(namespace, name, place);
            rows.offers.get_mut(&offer).expect("found").taken_by = Some(id);
        }
        busy.push(taken);
        let claimant = None;
        let passed = Passed {
            taken,
            body,
            claimant,
        };
        take(rows, namespace, wait, passed, now);
    }
}

/// Removes messages that no wait has and for which it is too late. Parked ones are an operator's.
fn expire(rows: &mut Rows, (first, last): (MailId, MailId), busy: &[Taken], now: Timestamp) {
    let run = first.run;
    let late = rows.mail.range(first, last).filter(|(mail, row)| {
        let free = !busy.contains(&Taken::Mail(mail.number)) && row.parked_at.is_none();
        free && row.has_expired(now)
    });
    let late: Vec<MailId> = late.map(|(mail, _)| mail.clone()).collect();
    for mail in &late {
        rows.mail.remove(mail);
        rows.run_mut(run).expect("a message has a run").mail -= 1;
    }
}

fn next_offer(rows: &Rows, gate: &GateId) -> Option<(Taken, Outcome)> {
    let at = |place| OfferId {
        gate: gate.clone(),
        place,
    };
    let (id, row) = rows
        .offers
        .range(at(0), at(u64::MAX))
        .find(|(_, row)| row.taken_by.is_none())?;
    Some((Taken::Offer(id.place), Outcome::Value(row.payload.clone())))
}

/// Ends a wait without consuming: what it was matched to is free again, in its old place.
pub(super) fn let_go(
    rows: &mut Rows,
    namespace: &Name,
    wait: &WaitId,
    claimant: Option<Claimant>,
    now: Timestamp,
) {
    let Some(row) = rows.remove_wait(namespace, wait) else {
        return;
    };
    let run = rows.run_mut(wait.run).expect("a wait has a run");
    run.waits -= 1;
    if row.taken.is_some() {
        run.matched -= 1;
    }
    if let (Some(Taken::Mail(number)), true) = (row.taken, wait.name == STATE_CHANGED) {
        conditions::forget(rows, wait, number);
    }
    if let Some(Taken::Offer(place)) = row.taken
        && !mutant::on(Mutant::OfferNotGivenBack)
    {
        let offer = offer_id(namespace, &wait.name, place);
        rows.offers
            .get_mut(&offer)
            .expect("a matched offer is loaded")
            .taken_by = None;
        give(rows, &offer.gate, place, claimant, now);
    }
}

/// Ends a wait and consumes what it was matched to.
pub(super) fn consume(rows: &mut Rows, namespace: &Name, wait: &WaitId) {
    let row = rows
        .remove_wait(namespace, wait)
        .expect("a consumed wait exists");
    match row.taken.expect("a consumed wait is matched") {
        Taken::Mail(_) if mutant::on(Mutant::ConsumedKept) => {}
        Taken::Mail(number) => {
            let mail = MailId {
                run: wait.run,
                name: Some(wait.name.clone()),
                number,
            };
            rows.mail
                .remove(&mail)
                .expect("a matched message is loaded");
            rows.run_mut(wait.run).expect("a wait has a run").mail -= 1;
        }
        Taken::Offer(place) => {
            let offer = offer_id(namespace, &wait.name, place);
            rows.offers
                .remove(&offer)
                .expect("a matched offer is loaded");
        }
    }
    let run = rows.run_mut(wait.run).expect("a wait has a run");
    run.waits -= 1;
    run.matched -= 1;
}

pub(super) fn offer_id(namespace: &Name, name: &Name, place: u64) -> OfferId {
    OfferId {
        gate: GateId {
            namespace: namespace.clone(),
            name: name.clone(),
        },
        place,
    }
}
