//! The rows alone, one operation at a time: what the simulator decides over. No locks, no clock, no
//! transaction for user code; whoever drives it says what is committed and when.

use roundel_core::check::{self, OfferRecord, ProjectionReader, Reader, Violation};
use roundel_core::{
    AuditReader, FactId, FactReader, FactRow, JournalRow, LaneId, Op, Position, Refusal, Reply,
    Rows, RunId, Timestamp,
};

use super::state::Tables;

/// All rows, driven by hand.
#[derive(Clone, Default)]
pub struct Model {
    tables: Tables,
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Model").finish_non_exhaustive()
    }
}

impl Model {
    /// Decides one operation and keeps what changed, as one commit.
    ///
    /// # Errors
    /// When it is refused; then nothing has changed.
    pub fn decide(&mut self, op: &Op, now: Timestamp) -> Result<Reply, Refusal> {
        self.tables.decide(op, now)
    }

    /// All rows but journals and labels.
    #[must_use]
    pub fn rows(&self) -> &Rows {
        &self.tables.rows
    }

    /// The hints of what was committed since the last time.
    pub fn take_hints(&mut self) -> Vec<roundel_core::Hint> {
        self.tables.rows.take_hints()
    }

    /// When the first run of these lanes is due, or was.
    #[must_use]
    pub fn next_due(&self, lanes: &[LaneId], now: Timestamp) -> Option<Timestamp> {
        self.tables.index.next_due(lanes, now)
    }

    /// The journal of one execution, in order.
    #[must_use]
    pub fn journal(&self, run: RunId, execution: u32) -> &[JournalRow] {
        self.tables.journal(run, execution)
    }

    /// The runs that one call set off together, in order.
    #[must_use]
    pub fn scope(&self, run: RunId, execution: u32, call: u32) -> Vec<RunId> {
        let scope = (run, execution, call);
        self.tables.index.scope(scope, 0).collect()
    }

    /// All facts, in the order in which they were recorded.
    pub fn facts(&self) -> impl Iterator<Item = (&FactId, &FactRow)> {
        self.tables.facts_in_order()
    }

    /// Everything that should not be, in any row.
    pub fn check(&self, reader: &mut Reader, out: &mut Vec<Violation>) {
        for run in self.tables.known_runs() {
            let record = self.tables.record_but_journal(run);
            reader.run(run, (&record, self.tables.rest.journal(run)), out);
        }
        for (id, row) in self.tables.rows.offers.iter() {
            let record = OfferRecord::gather(&self.tables.rows, id, row);
            check::offer(&record, out);
        }
        let mut audit = AuditReader::default();
        for (id, row) in self.tables.rows.audit.iter() {
            audit.read(id, row, out);
        }
        let rows = &self.tables.rows;
        let mut facts = FactReader::default();
        let watched = rows.watches.iter().map(|((watched, ..), ())| *watched);
        watched
            .filter(|run| run.is_mark())
            .for_each(|mark| facts.watched(mark));
        for (id, row) in self.tables.facts_in_order() {
            facts.read(id, row, out);
        }
        while let Some((mark, id)) = facts.doubt() {
            let waits = rows.watchers_of(mark);
            out.extend(waits.map(|watch| FactReader::overlooked(&id, watch.1)));
        }
        let projections = || self.tables.rows.projections.iter();
        if projections().next().is_none() {
            return;
        }
        let mut reader = ProjectionReader::default();
        projections().for_each(|(id, row)| reader.begin(id, row));
        for number in 1..=self.tables.rest.facts.len() as u64 {
            reader.fact(Position { batch: 0, number });
        }
        let documents = self.tables.rows.documents.iter();
        documents.for_each(|(id, row)| reader.document(id, row));
        projections().for_each(|(id, row)| reader.end(id, row, out));
    }
}
