//! Waking a run, and leasing it: the one way into a lease.

use crate::message::MailId;
use crate::mutant::{self, Mutant};
use crate::{
    Claimant, Claimed, Delivery, Hint, MailRow, Outcome, Policy, Rows, RunId, RunState, Source,
    Taken, Timestamp, WaitId, limits,
};

/// Something waits for the run. A live lease is left alone: its owner sees it in its next commit.
/// If the claimant has the run in memory, it takes it at once.
pub(super) fn wake(rows: &mut Rows, id: RunId, claimant: Option<Claimant>, now: Timestamp) {
    let Some(row) = rows.run_mut(id) else { return };
    if row.owner.is_some() || row.state == RunState::Parked || row.state.has_ended() {
        return;
    }
    if mutant::on(Mutant::WakeLost) {
        return;
    }
    row.news_at = Some(row.news_at.map_or(now, |since| since.min(now)));
    let held = claimant.filter(|by| row.holder == Some(by.worker) && !row.suspect);
    let lane = row.lane;
    // Permits are given by claims alone.
    let held = held.filter(|_| !rows.is_limited(lane));
    if let Some(claimant) = held {
        grant(rows, id, claimant, now);
        return;
    }
    let row = rows.run_mut(id).expect("found");
    row.settle(now);
    let (lane, at) = (row.lane, row.ready_at.unwrap_or(now));
    rows.hints.push(Hint::Ready(lane, at));
}

/// Leases the run, and notes it as taken by the operation at hand.
pub(super) fn grant(rows: &mut Rows, id: RunId, claimant: Claimant, now: Timestamp) {
    let row = rows.run_mut(id).expect("a granted run exists");
    assert!(
        row.owner.is_none() && !row.state.has_ended(),
        "run {id} cannot be leased"
    );
    row.epoch += u64::from(!mutant::on(Mutant::EpochKeptAtClaim));
    row.owner = Some(claimant.worker);
    row.holder = Some(claimant.worker);
    row.lease_until = Some(now.after(claimant.lease.min(limits::LEASE)));
    row.news_at = None;
    row.settle(now);
    let mut claimed = Claimed {
        run: id,
        epoch: row.epoch,
        created_at: row.created_at,
        lane: row.lane,
        execution: row.execution,
        head: row.head,
        parent: row.parent,
        key: row.key.clone(),
        cancel: row.cancel,
        deadlines: row.deadlines,
        suspect: row.suspect,
        inbox: Vec::new(),
        at: now,
    };
    if row.matched > 0 {
        claimed.inbox = inbox(rows, id);
    }
    rows.claimed.push(claimed);
}

/// What is matched to calls of the run and not consumed yet, in order of arrival.
pub(super) fn inbox(rows: &Rows, id: RunId) -> Vec<Delivery> {
    let row = rows.run(id).expect("an inbox has a run");
    let namespace = &rows.lane(row.lane).namespace;
    let mut found: Vec<((bool, u64), Delivery)> = Vec::new();
    let (first, last) = own_mail(id);
    for (mail, body) in rows.mail.range(first, last) {
        let Some((execution, call)) = body.answers else {
            continue;
        };
        assert_eq!(
            execution, row.execution,
            "run {id} has a message for another execution"
        );
        let source = Source::Mail(mail.number);
        found.push((
            (false, mail.number),
            Delivery {
                execution,
                call,
                source,
                body: body.body.clone(),
            },
        ));
    }
    for (wait, body) in rows.waits_of(id) {
        let Some(taken) = body.taken else { continue };
        let (order, body) = match taken {
            Taken::Mail(number) => {
                let mail = MailId {
                    run: id,
                    name: Some(wait.name.clone()),
                    number,
                };
                let row = rows.mail.get(&mail).expect("a matched message is loaded");
                ((false, number), row.body.clone())
            }
            Taken::Offer(place) => {
                let offer = super::signals::offer_id(namespace, &wait.name, place);
                let row = rows.offers.get(&offer).expect("a matched offer is loaded");
                ((true, place), Outcome::Value(row.payload.clone()))
            }
        };
        let source = Source::Wait(wait.name.clone());
        found.push((
            order,
            Delivery {
                execution: row.execution,
                call: wait.call,
                source,
                body,
            },
        ));
    }
    found.sort_by_key(|(order, _)| *order);
    found.truncate(limits::INBOX);
    if mutant::on(Mutant::InboxLost) {
        found.clear();
    }
    found.into_iter().map(|(_, delivery)| delivery).collect()
}

/// Where the engine's own messages to a run lie.
pub(super) fn own_mail(run: RunId) -> (MailId, MailId) {
    let at = |number| MailId {
        run,
        name: None,
        number,
    };
    (at(0), at(u64::MAX))
}

/// Hands a matched message to the run: to its owner by a hint, else by waking it.
pub(super) fn hand_over(
    rows: &mut Rows,
    id: RunId,
    delivery: Delivery,
    claimant: Option<Claimant>,
    now: Timestamp,
) {
    let row = rows.run_mut(id).expect("a message has a run");
    row.matched += u32::from(!mutant::on(Mutant::MatchedUncounted));
    row.changed_at = now;
    if let Some(owner) = row.has_it() {
        rows.hints.push(Hint::Mail(id, owner, delivery));
    }
    wake(rows, id, claimant, now);
}

/// A message of the engine's own: the end of a child or of a watched run.
pub(super) fn tell(
    rows: &mut Rows,
    to: (RunId, u32, u32),
    body: &Outcome,
    claimant: Option<Claimant>,
    now: Timestamp,
) {
    let (id, execution, call) = to;
    let Some(row) = rows.run_mut(id) else { return };
    let old = row.execution != execution && !mutant::on(Mutant::ToldToOldExecution);
    if row.state.has_ended() || old || mutant::on(Mutant::ParentUntold) {
        return;
    }
    row.mail_last += 1;
    row.mail += 1;
    let number = row.mail_last;
    let mail = MailId {
        run: id,
        name: None,
        number,
    };
    let answers = Some((execution, call));
    rows.mail.put(
        mail,
        MailRow {
            answers,
            body: body.clone(),
            at: now,
            policy: Policy::Discard,
            expires_at: None,
            parked_at: None,
        },
    );
    let delivery = Delivery {
        execution,
        call,
        source: Source::Mail(number),
        body: body.clone(),
    };
    hand_over(rows, id, delivery, claimant, now);
}

/// The waits of a run for a signal, as a range.
pub(super) fn waits_for(run: RunId, name: &crate::Name) -> (WaitId, WaitId) {
    let at = |call| WaitId {
        run,
        name: name.clone(),
        call,
    };
    (at(0), at(u32::MAX))
}
