//! Which gates an operation passes, and how many who wait there it may reach.

use std::collections::BTreeMap;

use super::Need;
use crate::{Caused, GateId, Offer, Policy, Round, Rows, RunId, Signal, Start};

/// The gates that a round and the first rounds of what it starts pass.
#[derive(Default)]
pub(super) struct Gates {
    /// Each with the number of offers made there.
    pub(super) offers: BTreeMap<GateId, usize>,
    /// Waits that begin.
    pub(super) opened: usize,
}

impl Gates {
    pub(super) fn of(round: &Round) -> Gates {
        let mut gates = Gates::default();
        gates.add(round);
        gates
    }

    fn add(&mut self, round: &Round) {
        self.opened += round.opened.len();
        for gate in &round.gates {
            self.offers.entry(gate.clone()).or_default();
        }
        for caused in &round.caused {
            match caused {
                Caused::Offer(_, offer) => {
                    *self.offers.entry(gate_of(offer)).or_default() += 1;
                }
                Caused::Signal(_, signal) => self.sent(signal),
                Caused::Child(_, start) | Caused::Spawn(_, start) => self.started(start),
                _ => {}
            }
        }
    }

    /// What is sent to a run that ends in the same commit may be left to others.
    fn sent(&mut self, signal: &Signal) {
        if signal.policy == Policy::Offer {
            *self.offers.entry(gate_of_signal(signal)).or_default() += 1;
        }
    }

    pub(super) fn started(&mut self, start: &Start) {
        start.first.iter().for_each(|first| self.add(first));
        start.signal.iter().for_each(|signal| self.sent(signal));
    }
}

pub(super) fn gate_of_signal(signal: &Signal) -> GateId {
    GateId {
        namespace: signal.namespace.clone(),
        name: signal.name.clone(),
    }
}

/// Offers may be taken, given and given back: as often as there are waits and offers.
pub(super) fn of_gates(gates: Gates, run: RunId, rows: &Rows, out: &mut Vec<Need>) {
    let open = rows.run(run).map_or(0, |row| row.waits as usize);
    let waits = open + gates.opened;
    for (gate, offers) in gates.offers {
        out.push(Need::Waiters(gate.clone(), waits + offers + 1));
        out.push(Need::Offers(gate, waits + 1));
    }
}

pub(super) fn gate_of(offer: &Offer) -> GateId {
    GateId {
        namespace: offer.namespace.clone(),
        name: offer.name.clone(),
    }
}
