//! Signals that a run ended without: discarded, offered to others, or parked for an operator, as
//! their policy says; and what the operator then does about those that are parked.

use super::{require_run, signals, target_run};
use crate::mutant::{self, Mutant};
use crate::{
    Claimant, Destination, MailId, MailRow, Name, Offer, Outcome, Payload, Policy, Redirect,
    Refusal, Rows, RunId, Sent, Signal, Target, Timestamp,
};

/// The run ends: what becomes of the signals that it did not read, in order of arrival.
pub(super) fn settle(rows: &mut Rows, run: RunId, claimant: Claimant, now: Timestamp) {
    let row = rows.run(run).expect("a run that ends exists");
    if row.mail == 0 || mutant::on(Mutant::LeftoversForgotten) {
        return;
    }
    let namespace = rows.lane(row.lane).namespace.clone();
    let left = rows.mail_of(run).filter(|(_, row)| row.parked_at.is_none());
    let mut left: Vec<MailId> = left.map(|(id, _)| id.clone()).collect();
    left.sort_by_key(|id| id.number);
    for id in left {
        let row = rows.mail.get(&id).expect("found").clone();
        match (&id.name, row.policy) {
            // An answer to a call of its own.
            (None, _) | (_, Policy::Drop | Policy::Discard) => remove(rows, &id),
            _ if row.has_expired(now) => remove(rows, &id),
            (Some(name), Policy::Offer) => {
                remove(rows, &id);
                let offer = offer_of((&namespace, name), &row, Some(claimant));
                signals::keep_offer(&offer, rows, now);
            }
            (Some(_), Policy::Keep) => {
                let row = rows.mail.get_mut(&id).expect("found");
                row.parked_at = Some(now);
            }
        }
    }
}

fn remove(rows: &mut Rows, id: &MailId) {
    rows.mail.remove(id).expect("an unread message is loaded");
    rows.run_mut(id.run).expect("a message has a run").mail -= 1;
}

fn payload_of(row: &MailRow) -> Payload {
    match &row.body {
        Outcome::Value(payload) => payload.clone(),
        Outcome::Failure(_) => unreachable!("a signal has a value"),
    }
}

fn offer_of((namespace, name): (&Name, &Name), row: &MailRow, claimant: Option<Claimant>) -> Offer {
    Offer {
        namespace: namespace.clone(),
        name: name.clone(),
        payload: payload_of(row),
        key: None,
        claimant,
    }
}

/// Removes a parked signal, or passes it on. What cannot be delivered stays where it is.
pub(super) fn redirect(
    redirect: &Redirect,
    rows: &mut Rows,
    now: Timestamp,
) -> Result<Sent, Refusal> {
    let (run, number) = (redirect.run, redirect.number);
    require_run(rows, &redirect.namespace, &Target::Run(run))?;
    let id = redirect.mail();
    let parked = rows.mail.get(&id).filter(|row| row.parked_at.is_some());
    let Some(row) = parked.cloned() else {
        return Err(Refusal::SignalNotParked { run, number });
    };
    let sent = match &redirect.to {
        Destination::Out => Sent::Dropped,
        Destination::Run(target) => {
            let signal = Signal {
                namespace: redirect.namespace.clone(),
                target: target.clone(),
                name: redirect.name.clone(),
                payload: payload_of(&row),
                policy: row.policy,
                expires: None,
                key: None,
                claimant: redirect.claimant,
            };
            let to = target_run(rows, &redirect.namespace, target);
            signals::send_to(to, &signal, rows, now)?
        }
        Destination::Offer => {
            let name = (&redirect.namespace, &redirect.name);
            signals::keep_offer(&offer_of(name, &row, redirect.claimant), rows, now)
        }
    };
    let stays = matches!(sent, Sent::TargetEnded(_) | Sent::TargetUnknown);
    if !stays {
        remove(rows, &id);
    }
    Ok(sent)
}
