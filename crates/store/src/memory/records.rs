//! Everything of one run together, and of one offer: what verification reads.

use roundel_core::check::{OfferRecord, RunRecord};
use roundel_core::{Name, OfferId, RunId};

use super::read::page;
use super::state::Tables;
use crate::Page;

impl Tables {
    pub(super) fn records(&self, after: Option<RunId>, limit: usize) -> Page<(RunId, RunRecord)> {
        let known = self.known_runs().into_iter();
        let known = known.filter(|run| after.is_none_or(|after| *run > after));
        page(known.map(|run| (run, self.record(run))), limit)
    }

    /// Every run that is there, or that something is there for, in order.
    pub(super) fn known_runs(&self) -> Vec<RunId> {
        let rows = &self.rows;
        let mut known: Vec<RunId> = rows.runs().map(|row| row.id).collect();
        known.extend(self.rest.journals.keys());
        known.extend(self.rest.labels.keys().map(|(run, _)| *run));
        known.extend(rows.mail.iter().map(|(id, _)| id.run));
        known.extend(rows.waits.iter().map(|(id, _)| id.run));
        known.extend(rows.watches.iter().map(|((watched, ..), ())| *watched));
        known.extend(rows.states.iter().map(|(run, _)| *run));
        known.extend(rows.latches.iter().map(|(id, _)| id.run));
        known.extend(rows.keys.iter().filter_map(|(_, key)| key.run));
        known.sort_unstable();
        known.dedup();
        known
    }

    pub(super) fn record(&self, run: RunId) -> RunRecord {
        RunRecord {
            journal: self.rest.journal(run).to_vec(),
            ..self.record_but_journal(run)
        }
    }

    pub(super) fn record_but_journal(&self, run: RunId) -> RunRecord {
        let labels = self.rest.labels.range((run, Name::constant(" "))..);
        let labels = labels.take_while(|((of, _), _)| *of == run);
        let labels = labels.map(|((_, name), value)| (name.clone(), value.clone()));
        let mut record = RunRecord::gather(&self.rows, run);
        record.labels.extend(labels);
        record
    }

    pub(super) fn offers(&self, after: Option<&OfferId>, limit: usize) -> Page<OfferRecord> {
        let all = self.rows.offers.iter();
        let offers = all.filter(|(id, _)| after.is_none_or(|after| *id > after));
        let records = offers.map(|(id, row)| OfferRecord::gather(&self.rows, id, row));
        page(records, limit)
    }
}
