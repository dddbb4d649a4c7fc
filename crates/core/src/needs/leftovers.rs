//! What operations need about signals that a run ended without.

use std::collections::BTreeMap;

use super::{Need, Stage, of_message, of_offered, of_target};
use crate::decide::target_run;
use crate::{Destination, GateId, Policy, Redirect, Rows, RunId, Target};

/// Runs end: whoever waits for what they leave to others, beside so many that come just now. Their
/// mailboxes were loaded before.
pub(super) fn of_leftovers(
    runs: impl Iterator<Item = RunId>,
    come: usize,
    rows: &Rows,
    out: &mut Vec<Need>,
) {
    let mut gates: BTreeMap<GateId, usize> = BTreeMap::new();
    // Those that end may be among those who wait.
    let mut waits = 0;
    for row in runs.filter_map(|run| rows.run(run)) {
        waits += row.waits as usize;
        let namespace = &rows.lane(row.lane).namespace;
        for (id, mail) in rows.mail_of(row.id) {
            if let (Some(name), Policy::Offer) = (&id.name, mail.policy) {
                let (namespace, name) = (namespace.clone(), name.clone());
                *gates.entry(GateId { namespace, name }).or_default() += 1;
            }
        }
    }
    for (gate, offers) in gates {
        out.push(Need::Gate(gate.clone()));
        out.push(Need::Waiters(gate, waits + offers + come + 1));
    }
}

pub(super) fn of_redirect(redirect: &Redirect, rows: &Rows, stage: Stage, out: &mut Vec<Need>) {
    let (namespace, from) = (&redirect.namespace, Target::Run(redirect.run));
    of_target(namespace, &from, rows, stage, out);
    if stage == Stage::Rest {
        out.push(Need::Letter(redirect.mail()));
    }
    match &redirect.to {
        Destination::Out => {}
        Destination::Run(to) => {
            of_target(namespace, to, rows, stage, out);
            let to = target_run(rows, namespace, to);
            if let Some(to) = to.filter(|_| stage == Stage::Rest) {
                of_message(to, (&redirect.name, redirect.claimant), rows, out);
            }
        }
        Destination::Offer => {
            let gate = GateId {
                namespace: namespace.clone(),
                name: redirect.name.clone(),
            };
            of_offered(gate, redirect.claimant, (rows, stage), out);
        }
    }
}
