//! Everything of one run together, and of one offer: what verification reads.
//!
//! A page is a range of ids, and each table is read once over that range: rows that belong to no
//! run lie in it too, and are found. The range ends early when there is much in it, so that a page
//! fits into memory, whatever the database holds.

use std::collections::BTreeMap;

use roundel_core::check::{GateSeen, OfferRecord, RunRecord};
use roundel_core::{GateId, GateRow, Lane, LaneId, OfferId, OfferRow, RunId, RunRow, Taken, Told};
use sqlx::postgres::PgRow;

use super::columns;
use super::link::values;
use super::read::{BEFORE_ALL, Reader, cut, page};
use super::trouble::Trouble;
use super::values::Id;
use crate::Page;
use crate::cells::{self, Cells, number, run_columns};

/// Bytes after which a page ends with the run at hand.
const BYTES: i64 = 4 << 20;

const RUNS: &str = concat!(
    "SELECT ",
    run_columns!(),
    " FROM roundel_run WHERE id > $1 ORDER BY id LIMIT $2"
);
const RUN: &str = concat!("SELECT ", run_columns!(), " FROM roundel_run WHERE id = $1");
const LANES: &str = "SELECT namespace, workflow, version FROM roundel_lane ORDER BY id";
/// How much hangs under each run, roughly.
const SIZES: &str = "SELECT run, sum(bytes)::bigint FROM ( \
     SELECT run, octet_length(entries) + 64 AS bytes FROM roundel_journal \
     WHERE run > $1 AND run <= $2 UNION ALL \
     SELECT run, octet_length(body) + 64 FROM roundel_mail \
     WHERE run > $1 AND run <= $2 UNION ALL \
     SELECT run, octet_length(value) + 64 FROM roundel_state \
     WHERE run > $1 AND run <= $2 UNION ALL \
     SELECT run, 64 FROM roundel_wait WHERE run > $1 AND run <= $2 UNION ALL \
     SELECT watched, 64 FROM roundel_watch WHERE watched > $1 AND watched <= $2) AS sizes \
     GROUP BY run ORDER BY run";
const JOURNAL: &str = "SELECT run, execution, first, count, epoch, at, entries \
     FROM roundel_journal WHERE run > $1 AND run <= $2 ORDER BY run, execution, first";
const LABELS: &str = "SELECT run, name, value FROM roundel_label \
     WHERE run > $1 AND run <= $2 ORDER BY run, name";
const MAIL: &str = "SELECT run, name, number, execution, call, body, at, \
     policy, expires_at, parked_at FROM roundel_mail \
     WHERE run > $1 AND run <= $2 ORDER BY run, name, number";
const WAITS: &str = "SELECT run, name, call, place, taken_mail, taken_offer FROM roundel_wait \
     WHERE run > $1 AND run <= $2 ORDER BY run, name, call";
const WATCHES: &str = "SELECT watched, watcher, execution, call FROM roundel_watch \
     WHERE watched > $1 AND watched <= $2 ORDER BY watched, watcher, execution, call";
const STATES: &str = "SELECT run, version, value FROM roundel_state \
     WHERE run > $1 AND run <= $2 ORDER BY run";
const KEYS: &str = "SELECT namespace, kind, key, run, digest, sent FROM roundel_key \
     WHERE run > $1 AND run <= $2 AND run IS NOT NULL ORDER BY run, namespace, kind, key";
const LATCHES: &str = "SELECT run, execution, call, part, open, total, failed, closes_at \
     FROM roundel_latch WHERE run > $1 AND run <= $2 ORDER BY run, execution, call, part";
const LATCH: &str = "SELECT run, execution, call, part, open, total, failed, closes_at \
     FROM roundel_latch WHERE run = $1 AND execution = $2 AND call = $3 AND part = $4";
const GATE: &str = "SELECT waiters, offers FROM roundel_gate \
     WHERE namespace = $1 AND name = $2 AND (waiters > 0 OR offers > 0)";
const OFFER: &str = "SELECT namespace, name, place, payload, taken_by, at FROM roundel_offer \
     WHERE namespace = $1 AND name = $2 AND place = $3";
const FREE: &str = "SELECT place FROM roundel_offer \
     WHERE namespace = $1 AND name = $2 AND taken_by IS NULL ORDER BY place LIMIT 1";
const OFFERS: &str = "SELECT namespace, name, place, payload, taken_by, at FROM roundel_offer \
     WHERE (namespace, name, place) > ($1, $2, $3) ORDER BY namespace, name, place LIMIT $4";
const HAD: &str = "SELECT count(*) FROM roundel_wait \
     WHERE run = $1 AND name = $2 AND taken_offer = $3";

type Records = BTreeMap<RunId, RunRecord>;

impl Reader<'_> {
    pub(super) async fn records(
        &mut self,
        after: Option<RunId>,
        limit: usize,
    ) -> Result<Page<(RunId, RunRecord)>, Trouble> {
        let mut page = self.bare_records(after, limit).await?;
        let lanes = self
            .all(LANES, values![], |row| cells::lane(row, 0))
            .await?;
        for (_, record) in &mut page.items {
            self.surroundings(record, &lanes).await?;
        }
        Ok(page)
    }

    /// Only what hangs under each run.
    pub(super) async fn bare_records(
        &mut self,
        after: Option<RunId>,
        limit: usize,
    ) -> Result<Page<(RunId, RunRecord)>, Trouble> {
        let after = after.map_or(BEFORE_ALL, Id::from);
        let runs = self
            .all(RUNS, values![after, page(limit)], cells::run)
            .await?;
        let whole = runs.len() < usize::try_from(page(limit)).expect("a small number");
        let end = RunId::from_bytes([0xFF; 16]);
        let last = runs.last().map_or(end, |row| row.id);
        let last = if whole { end } else { last };
        let fits = self.fitting(after, last).await?;
        let (last, more) = fits.map_or((last, !whole), |fits| (fits, true));
        let mut found = Records::new();
        for row in runs.into_iter().filter(|row| row.id <= last) {
            let id = row.id;
            found.entry(id).or_default().row = Some(row);
        }
        self.tables((after, last), &mut found).await?;
        let items = found.into_iter().collect();
        Ok(Page { items, more })
    }

    /// The last run of the range that still fits, if not all do.
    async fn fitting(&mut self, after: Id, last: RunId) -> Result<Option<RunId>, Trouble> {
        let sizes = self
            .all(SIZES, values![after, Id::from(last)], |row| {
                Ok((cells::run_id(row, 0)?, row.int(1)?.unwrap_or_default()))
            })
            .await?;
        let mut bytes = 0;
        let mut before: Option<RunId> = None;
        for (run, size) in sizes {
            if bytes > BYTES && before.is_some() {
                return Ok(before);
            }
            bytes += size;
            before = Some(run);
        }
        Ok(None)
    }

    /// Reads the tables that hang under runs.
    async fn tables(
        &mut self,
        (after, last): (Id, RunId),
        found: &mut Records,
    ) -> Result<(), Trouble> {
        let last = Id::from(last);
        for row in self
            .all(JOURNAL, values![after, last], cells::journal)
            .await?
        {
            found.entry(row.run).or_default().journal.push(row);
        }
        for (run, name, value) in self.all(LABELS, values![after, last], cells::label).await? {
            found.entry(run).or_default().labels.push((name, value));
        }
        for mail in self.all(MAIL, values![after, last], cells::mail).await? {
            found.entry(mail.0.run).or_default().mail.push(mail);
        }
        for wait in self.all(WAITS, values![after, last], cells::wait).await? {
            found.entry(wait.0.run).or_default().waits.push(wait);
        }
        for watch in self
            .all(WATCHES, values![after, last], cells::watch)
            .await?
        {
            found.entry(watch.0).or_default().watches.push(watch);
        }
        let state = |row: &PgRow| Ok((cells::run_id(row, 0)?, cells::own_state(row, 1)?));
        for (run, state) in self.all(STATES, values![after, last], state).await? {
            found.entry(run).or_default().state = Some(state);
        }
        for latch in self
            .all(LATCHES, values![after, last], cells::latch)
            .await?
        {
            found.entry(latch.0.run).or_default().latches.push(latch);
        }
        let key = |row: &PgRow| Ok((cells::key_id(row)?, cells::key(row, 3)?));
        for (id, key) in self.all(KEYS, values![after, last], key).await? {
            if let Some(run) = key.run {
                found.entry(run).or_default().keys.push((id, key));
            }
        }
        Ok(())
    }

    /// Lane, parent, and the gates where it waits.
    async fn surroundings(
        &mut self,
        record: &mut RunRecord,
        lanes: &[Lane],
    ) -> Result<(), Trouble> {
        let lane = |id: LaneId| lanes.get((id.0 as usize).wrapping_sub(1)).cloned();
        let Some(row) = &record.row else {
            return Ok(());
        };
        record.lane = lane(row.lane);
        if let (Some(parent), told) = (row.parent, row.told) {
            if let Told::Latch {
                execution,
                call,
                part,
            } = told
            {
                let key = (Id::from(parent.run), i64::from(execution), i64::from(call));
                let values = values![key.0, key.1, key.2, i16::from(part)];
                let found = self.all(LATCH, values, cells::latch).await?.pop();
                record.told_by = Some(found.map(|(_, row)| row));
            }
            let values = values![Id::from(parent.run)];
            let found: Option<RunRow> = self.all(RUN, values, cells::run).await?.pop();
            record.parent = found.map(|found| {
                let lane = lane(found.lane);
                (found, lane.map(|lane| lane.namespace))
            });
        }
        let Some(lane) = record.lane.clone() else {
            return Ok(());
        };
        for (id, wait) in record.waits.iter().filter(|(_, wait)| wait.place.is_some()) {
            let gate = GateId {
                namespace: lane.namespace.clone(),
                name: id.name.clone(),
            };
            if let Some(Taken::Offer(place)) = wait.taken {
                let names = (gate.namespace.as_str(), gate.name.as_str());
                let values = values![names.0, names.1, number(place)];
                record
                    .offers
                    .extend(self.all(OFFER, values, columns::offer).await?);
            }
            if record.gates.last().is_none_or(|seen| seen.gate != gate) {
                record.gates.push(self.gate_seen(gate).await?);
            }
        }
        Ok(())
    }

    async fn gate_row(&mut self, gate: &GateId) -> Result<Option<GateRow>, Trouble> {
        let values = values![gate.namespace.as_str(), gate.name.as_str()];
        Ok(self
            .all(GATE, values, |row| cells::gate(row, 0))
            .await?
            .pop())
    }

    async fn gate_seen(&mut self, gate: GateId) -> Result<GateSeen, Trouble> {
        let row = self.gate_row(&gate).await?;
        let values = values![gate.namespace.as_str(), gate.name.as_str()];
        let place = |row: &PgRow| Ok(row.int(0)?.unwrap_or_default().unsigned_abs());
        let free = self.all(FREE, values, place).await?.pop();
        Ok(GateSeen { gate, row, free })
    }

    pub(super) async fn offers(
        &mut self,
        after: Option<&OfferId>,
        limit: usize,
    ) -> Result<Page<OfferRecord>, Trouble> {
        let found = self.bare_offers(after, page(limit) + 1).await?;
        let found = cut(found, page(limit));
        let mut items = Vec::with_capacity(found.items.len());
        for (id, row) in found.items {
            let mut waits = 0;
            if let Some(run) = row.taken_by {
                let values = values![Id::from(run), id.gate.name.as_str(), number(id.place)];
                let had = |row: &PgRow| Ok(row.int(0)?.unwrap_or_default());
                let had = self.all(HAD, values, had).await?.pop().unwrap_or_default();
                waits = u32::try_from(had).unwrap_or(u32::MAX);
            }
            let gate = self.gate_row(&id.gate).await?;
            items.push(OfferRecord {
                id,
                row,
                gate,
                waits,
            });
        }
        let more = found.more;
        Ok(Page { items, more })
    }

    /// Offers alone, so many at most.
    pub(super) async fn bare_offers(
        &mut self,
        after: Option<&OfferId>,
        most: i64,
    ) -> Result<Vec<(OfferId, OfferRow)>, Trouble> {
        let (namespace, name, place) = after.map_or(("", "", 0), |id| {
            let GateId { namespace, name } = &id.gate;
            (namespace.as_str(), name.as_str(), number(id.place))
        });
        let values = values![namespace, name, place, most];
        self.all(OFFERS, values, columns::offer).await
    }
}
