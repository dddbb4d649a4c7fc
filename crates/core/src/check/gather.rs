//! Records out of rows that are all in memory: for the memory store, and for tests.

use super::{GateSeen, OfferRecord, RunRecord};
use crate::decide::latch_of;
use crate::{GateId, LatchId, Name, OfferId, OfferRow, Rows, RunId, Taken, WaitId, WaitRow};

impl RunRecord {
    /// Everything of one run but its journal and its labels, which rows in memory do not keep.
    #[must_use]
    pub fn gather(rows: &Rows, run: RunId) -> RunRecord {
        let row = rows.run(run).cloned();
        let lane = row.as_ref().map(|row| rows.lane(row.lane).clone());
        let parent = row.as_ref().and_then(|row| rows.run(row.parent?.run));
        let parent = parent.map(|row| {
            let namespace = rows.lane(row.lane).namespace.clone();
            (row.clone(), Some(namespace))
        });
        let waits = rows.waits_of(run);
        let waits: Vec<_> = waits.map(|(id, wait)| (id.clone(), wait.clone())).collect();
        let (gates, offers) = match &lane {
            Some(lane) => gates_of(rows, &waits, &lane.namespace),
            None => Default::default(),
        };
        let mail = rows.mail_of(run);
        let told_by = row.as_ref().and_then(|row| {
            let latch = latch_of(row.parent?.run, row.told)?;
            Some(rows.latches.get(&latch).copied())
        });
        let first = LatchId {
            run,
            execution: 0,
            call: 0,
            part: 0,
        };
        let latches = rows.latches.starting_at(first);
        let latches = latches.take_while(|(id, _)| id.run == run);
        let keys = rows.keys.iter().filter(|(_, key)| key.run == Some(run));
        RunRecord {
            row,
            lane,
            parent,
            journal: Vec::new(),
            labels: Vec::new(),
            mail: mail.map(|(id, mail)| (id.clone(), mail.clone())).collect(),
            waits,
            gates,
            offers,
            watches: rows.watchers_of(run).collect(),
            state: rows.states.get(&run).cloned(),
            keys: keys.map(|(id, key)| (id.clone(), key.clone())).collect(),
            latches: latches.map(|(id, row)| (*id, *row)).collect(),
            told_by,
        }
    }
}

/// The gates where a run waits, and the offers that it has.
fn gates_of(
    rows: &Rows,
    waits: &[(WaitId, WaitRow)],
    namespace: &Name,
) -> (Vec<GateSeen>, Vec<(OfferId, OfferRow)>) {
    let (mut gates, mut offers): (Vec<GateSeen>, Vec<_>) = Default::default();
    for (id, wait) in waits.iter().filter(|(_, wait)| wait.place.is_some()) {
        let gate = GateId {
            namespace: namespace.clone(),
            name: id.name.clone(),
        };
        let at = |place| OfferId {
            gate: gate.clone(),
            place,
        };
        if let Some(Taken::Offer(place)) = wait.taken {
            let row = rows.offers.get(&at(place)).cloned();
            offers.extend(row.map(|row| (at(place), row)));
        }
        if gates.last().is_some_and(|seen| seen.gate == gate) {
            continue;
        }
        let mut all = rows.offers.range(at(0), at(u64::MAX));
        let free = all.find(|(_, row)| row.taken_by.is_none());
        let free = free.map(|(id, _)| id.place);
        let row = rows.gates.get(&gate).cloned();
        gates.push(GateSeen { gate, row, free });
    }
    (gates, offers)
}

impl OfferRecord {
    /// Everything of one offer.
    #[must_use]
    pub fn gather(rows: &Rows, id: &OfferId, row: &OfferRow) -> OfferRecord {
        let taken = Some(Taken::Offer(id.place));
        let waits = row.taken_by.into_iter().flat_map(|run| rows.waits_of(run));
        let waits = waits.filter(|(wait, row)| wait.name == id.gate.name && row.taken == taken);
        OfferRecord {
            id: id.clone(),
            row: row.clone(),
            gate: rows.gates.get(&id.gate).cloned(),
            waits: u32::try_from(waits.count()).unwrap_or(u32::MAX),
        }
    }
}
