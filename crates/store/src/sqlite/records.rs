//! Everything of one run together, and of one offer: what verification reads.
//!
//! A page is a range of ids, and each table is read once over that range: rows that belong to no
//! run lie in it too, and are found. The range ends early when there is much in it, so that a page
//! fits into memory, whatever the file holds.

use std::collections::BTreeMap;

use roundel_core::check::{GateSeen, OfferRecord, RunRecord};
use roundel_core::{GateId, GateRow, Lane, Name, OfferId, OfferRow, RunId, RunRow, Taken, Told};
use rusqlite::{OptionalExtension, Result, Row};

use super::columns::{self, number, run_columns};
use super::read::{self, Reader, page};
use crate::Page;

/// Bytes after which a page ends with the run at hand.
const BYTES: usize = 4 << 20;

const RUNS: &str = concat!(
    "SELECT ",
    run_columns!(),
    " FROM roundel_run WHERE id > ?1 ORDER BY id LIMIT ?2"
);
const RUN: &str = concat!("SELECT ", run_columns!(), " FROM roundel_run WHERE id = ?1");
const LANE: &str = "SELECT namespace, workflow, version FROM roundel_lane WHERE id = ?1";
const JOURNAL: &str = "SELECT run, execution, first, count, epoch, at, entries \
     FROM roundel_journal WHERE run > ?1 AND run <= ?2 ORDER BY run, execution, first";
const LABELS: &str = "SELECT run, name, value FROM roundel_label \
     WHERE run > ?1 AND run <= ?2 ORDER BY run, name";
const MAIL: &str = "SELECT run, name, number, execution, call, body, at, \
     policy, expires_at, parked_at FROM roundel_mail \
     WHERE run > ?1 AND run <= ?2 ORDER BY run, name, number";
const WAITS: &str = "SELECT run, name, call, place, taken_mail, taken_offer FROM roundel_wait \
     WHERE run > ?1 AND run <= ?2 ORDER BY run, name, call";
const WATCHES: &str = "SELECT watched, watcher, execution, call FROM roundel_watch \
     WHERE watched > ?1 AND watched <= ?2 ORDER BY watched, watcher, execution, call";
const STATES: &str = "SELECT run, version, value FROM roundel_state \
     WHERE run > ?1 AND run <= ?2 ORDER BY run";
const KEYS: &str = "SELECT namespace, kind, key, run, digest, sent \
     FROM roundel_key INDEXED BY roundel_key_run \
     WHERE run > ?1 AND run <= ?2 AND run IS NOT NULL ORDER BY run, namespace, kind, key";
const LATCHES: &str = "SELECT run, execution, call, part, open, total, failed, closes_at \
     FROM roundel_latch WHERE run > ?1 AND run <= ?2 ORDER BY run, execution, call, part";
const LATCH: &str = "SELECT run, execution, call, part, open, total, failed, closes_at \
     FROM roundel_latch WHERE run = ?1 AND execution = ?2 AND call = ?3 AND part = ?4";
const GATE: &str = "SELECT waiters, offers FROM roundel_gate WHERE namespace = ?1 AND name = ?2";
const OFFER: &str = "SELECT place, payload, taken_by, at FROM roundel_offer \
     WHERE namespace = ?1 AND name = ?2 AND place = ?3";
const FREE: &str = "SELECT place FROM roundel_offer \
     WHERE namespace = ?1 AND name = ?2 AND taken_by IS NULL ORDER BY place LIMIT 1";
const OFFERS: &str = "SELECT namespace, name, place, payload, taken_by, at FROM roundel_offer \
     WHERE (namespace, name, place) > (?1, ?2, ?3) ORDER BY namespace, name, place LIMIT ?4";
const HAD: &str = "SELECT count(*) FROM roundel_wait \
     WHERE run = ?1 AND name = ?2 AND taken_offer = ?3";

/// A range of ids, and what was found in it.
struct Range {
    after: Vec<u8>,
    last: RunId,
    /// All that there is lies in it.
    whole: bool,
    bytes: usize,
    found: BTreeMap<RunId, RunRecord>,
}

impl Range {
    /// What is known of this run.
    fn of(&mut self, run: RunId) -> &mut RunRecord {
        self.found.entry(run).or_default()
    }
}

impl Reader<'_> {
    pub(super) fn records(
        &self,
        after: Option<RunId>,
        limit: usize,
    ) -> Result<Page<(RunId, RunRecord)>> {
        let mut page = self.bare_records(after, limit)?;
        for (_, record) in &mut page.items {
            self.surroundings(record)?;
        }
        Ok(page)
    }

    /// Only what hangs under each run.
    pub(super) fn bare_records(
        &self,
        after: Option<RunId>,
        limit: usize,
    ) -> Result<Page<(RunId, RunRecord)>> {
        let after = after.map_or_else(Vec::new, |run| run.as_bytes().to_vec());
        let runs = self.all(RUNS, (&after, page(limit)), columns::run)?;
        let whole = runs.len() < usize::try_from(page(limit)).expect("a small number");
        let end = RunId::from_bytes([0xFF; 16]);
        let last = runs.last().map_or(end, |row| row.id);
        let mut range = Range {
            after,
            last: if whole { end } else { last },
            whole,
            bytes: 0,
            found: BTreeMap::new(),
        };
        self.tables(&mut range)?;
        let last = range.last;
        for row in runs.into_iter().filter(|row| row.id <= last) {
            let id = row.id;
            range.of(id).row = Some(row);
        }
        let mut items: Vec<_> = range.found.into_iter().collect();
        items.retain(|(run, _)| *run <= range.last);
        let more = !range.whole;
        Ok(Page { items, more })
    }

    /// Reads the tables that hang under runs.
    fn tables(&self, range: &mut Range) -> Result<()> {
        self.each(JOURNAL, range, |row, range| {
            let row = columns::journal(row)?;
            range.bytes += row.entries.len();
            range.of(row.run).journal.push(row);
            Ok(())
        })?;
        self.each(LABELS, range, |row, range| {
            let (run, name, value) = columns::label(row)?;
            range.of(run).labels.push((name, value));
            Ok(())
        })?;
        self.each(MAIL, range, |row, range| {
            range.bytes += row.get_ref(5)?.as_bytes()?.len();
            let mail = columns::mail(row)?;
            range.of(mail.0.run).mail.push(mail);
            Ok(())
        })?;
        self.each(WAITS, range, |row, range| {
            let wait = columns::wait(row)?;
            range.of(wait.0.run).waits.push(wait);
            Ok(())
        })?;
        self.each(WATCHES, range, |row, range| {
            let watch = columns::watch(row)?;
            range.of(watch.0).watches.push(watch);
            Ok(())
        })?;
        self.each(STATES, range, |row, range| {
            range.bytes += row.get_ref(2)?.as_bytes()?.len();
            let (run, state) = (columns::run_id(row, 0)?, columns::own_state(row, 1)?);
            range.of(run).state = Some(state);
            Ok(())
        })?;
        self.each(LATCHES, range, |row, range| {
            let latch = columns::latch(row)?;
            range.of(latch.0.run).latches.push(latch);
            Ok(())
        })?;
        self.each(KEYS, range, |row, range| {
            let (id, key) = (columns::key_id(row)?, columns::key(row, 3)?);
            if let Some(run) = key.run {
                range.of(run).keys.push((id, key));
            }
            Ok(())
        })
    }

    /// Reads a table over the range; when that is full, it ends with the run before this one.
    fn each(
        &self,
        sql: &str,
        range: &mut Range,
        mut read: impl FnMut(&Row<'_>, &mut Range) -> Result<()>,
    ) -> Result<()> {
        let mut statement = self.connection().prepare_cached(sql)?;
        let column = statement
            .column_index("run")
            .or_else(|_| statement.column_index("watched"))?;
        let mut rows = statement.query((&range.after, range.last.as_bytes()))?;
        let mut before: Option<RunId> = None;
        while let Some(row) = rows.next()? {
            let run = columns::run_id(row, column)?;
            if let Some(done) = before.filter(|done| *done != run && range.bytes > BYTES) {
                (range.last, range.whole) = (done, false);
                break;
            }
            before = Some(run);
            range.bytes += 64;
            read(row, range)?;
        }
        Ok(())
    }

    /// Lane, parent, and the gates where it waits.
    fn surroundings(&self, record: &mut RunRecord) -> Result<()> {
        let Some(row) = &record.row else {
            return Ok(());
        };
        record.lane = self.lane(row)?;
        if let (Some(parent), told) = (row.parent, row.told) {
            if let Told::Latch {
                execution,
                call,
                part,
            } = told
            {
                let values = (parent.run.as_bytes(), execution, call, part);
                let found = self.all(LATCH, values, columns::latch)?.pop();
                record.told_by = Some(found.map(|(_, row)| row));
            }
            let found = self.all(RUN, [parent.run.as_bytes()], columns::run)?.pop();
            record.parent = match found {
                Some(found) => {
                    let lane = self.lane(&found)?;
                    Some((found, lane.map(|lane| lane.namespace)))
                }
                None => None,
            };
        }
        let Some(lane) = &record.lane else {
            return Ok(());
        };
        for (id, wait) in record.waits.iter().filter(|(_, wait)| wait.place.is_some()) {
            let gate = GateId {
                namespace: lane.namespace.clone(),
                name: id.name.clone(),
            };
            if let Some(Taken::Offer(place)) = wait.taken {
                record.offers.extend(self.offer(&gate, place)?);
            }
            if record.gates.last().is_none_or(|seen| seen.gate != gate) {
                record.gates.push(self.gate_seen(gate)?);
            }
        }
        Ok(())
    }

    fn lane(&self, row: &RunRow) -> Result<Option<Lane>> {
        let mut found = self.all(LANE, [row.lane.0], |row| columns::lane(row, 0))?;
        Ok(found.pop())
    }

    fn offer(&self, gate: &GateId, place: u64) -> Result<Option<(OfferId, OfferRow)>> {
        let values = (gate.namespace.as_str(), gate.name.as_str(), number(place));
        let found = self.all(OFFER, values, |row| columns::offer(row, 0))?.pop();
        Ok(found.map(|(place, row)| {
            let gate = gate.clone();
            (OfferId { gate, place }, row)
        }))
    }

    fn gate_row(&self, gate: &GateId) -> Result<Option<GateRow>> {
        let values = (gate.namespace.as_str(), gate.name.as_str());
        Ok(self.all(GATE, values, |row| columns::gate(row, 0))?.pop())
    }

    fn gate_seen(&self, gate: GateId) -> Result<GateSeen> {
        let row = self.gate_row(&gate)?;
        let mut statement = self.connection().prepare_cached(FREE)?;
        let values = (gate.namespace.as_str(), gate.name.as_str());
        let free = statement.query_row(values, |row| row.get::<_, i64>(0));
        let free = free.optional()?.map(i64::unsigned_abs);
        Ok(GateSeen { gate, row, free })
    }

    pub(super) fn offers(
        &self,
        after: Option<&OfferId>,
        limit: usize,
    ) -> Result<Page<OfferRecord>> {
        let mut found = self.bare_offers(after, page(limit) + 1)?;
        let limit = usize::try_from(page(limit)).expect("a small number");
        let more = found.len() > limit;
        found.truncate(limit);
        let mut items = Vec::with_capacity(found.len());
        for (id, row) in found {
            let waits = match row.taken_by {
                None => 0,
                Some(run) => self.had(run, &id.gate.name, id.place)?,
            };
            let gate = self.gate_row(&id.gate)?;
            items.push(OfferRecord {
                id,
                row,
                gate,
                waits,
            });
        }
        Ok(Page { items, more })
    }

    /// Offers alone, so many at most.
    pub(super) fn bare_offers(
        &self,
        after: Option<&OfferId>,
        most: i64,
    ) -> Result<Vec<(OfferId, OfferRow)>> {
        let (namespace, name, place) = after.map_or(("", "", 0), |id| {
            let GateId { namespace, name } = &id.gate;
            (namespace.as_str(), name.as_str(), number(id.place))
        });
        self.all(OFFERS, (namespace, name, place, most), read::offer)
    }

    /// How many waits of the run say that they have this offer.
    fn had(&self, run: RunId, name: &Name, place: u64) -> Result<u32> {
        let mut statement = self.connection().prepare_cached(HAD)?;
        let values = (run.as_bytes(), name.as_str(), number(place));
        statement.query_row(values, |row| row.get(0))
    }
}
