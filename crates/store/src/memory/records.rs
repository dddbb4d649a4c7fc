//! Everything of one run together, and of one offer: what verification reads.

use std::collections::BTreeSet;

use roundel_core::check::{OfferRecord, RunRecord};
use roundel_core::{Name, OfferId, RunId};

use super::read::page;
use super::state::Tables;
use crate::Page;

impl Tables {
    pub(super) fn records(&self, after: Option<RunId>, limit: usize) -> Page<(RunId, RunRecord)> {
        let rows = &self.rows;
        let mut known: BTreeSet<RunId> = rows.runs().map(|row| row.id).collect();
        known.extend(self.journal.keys().map(|(run, ..)| *run));
        known.extend(self.labels.keys().map(|(run, _)| *run));
        known.extend(rows.mail.iter().map(|(id, _)| id.run));
        known.extend(rows.waits.iter().map(|(id, _)| id.run));
        known.extend(rows.watches.iter().map(|((watched, ..), ())| *watched));
        known.extend(rows.states.iter().map(|(run, _)| *run));
        known.extend(rows.latches.iter().map(|(id, _)| id.run));
        known.extend(rows.keys.iter().filter_map(|(_, key)| key.run));
        let known = known
            .into_iter()
            .filter(|run| after.is_none_or(|after| *run > after));
        page(known.map(|run| (run, self.record(run))), limit)
    }

    fn record(&self, run: RunId) -> RunRecord {
        let journal = self.journal.range((run, 0, 0)..=(run, u32::MAX, u64::MAX));
        let labels = self.labels.range((run, Name::constant(" "))..);
        let labels = labels.take_while(|((of, _), _)| *of == run);
        RunRecord {
            journal: journal.map(|(_, row)| row.clone()).collect(),
            labels: labels
                .map(|((_, name), value)| (name.clone(), value.clone()))
                .collect(),
            ..RunRecord::gather(&self.rows, run)
        }
    }

    pub(super) fn offers(&self, after: Option<&OfferId>, limit: usize) -> Page<OfferRecord> {
        let all = self.rows.offers.iter();
        let offers = all.filter(|(id, _)| after.is_none_or(|after| *id > after));
        let records = offers.map(|(id, row)| OfferRecord::gather(&self.rows, id, row));
        page(records, limit)
    }
}
