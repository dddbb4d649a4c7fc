//! Finds runs that are due: lane by lane, by priority, oldest first, by seeks in the ready index.
//! What is not due yet is never looked at, however much of it there is.

use std::collections::BTreeMap;

use roundel_core::{Due as Asked, LaneId, Name, RunId, Timestamp, limits};
use rusqlite::{Connection, OptionalExtension, Result, Statement};

use super::batch::keep;
use super::columns;
use crate::turns::{Turns, in_turn};

mod keys;

use keys::Keys;

/// The next priority that anything has, due or not.
const PRIORITY: &str = "SELECT priority FROM roundel_run INDEXED BY roundel_run_ready \
     WHERE lane = ?1 AND suspect = ?2 AND priority > ?3 AND ready_at IS NOT NULL \
     ORDER BY priority LIMIT 1";
/// Those that are due.
const DUE: &str = "SELECT ready_at, id FROM roundel_run INDEXED BY roundel_run_ready \
     WHERE lane = ?1 AND suspect = ?2 AND priority = ?3 AND ready_at <= ?4 \
     ORDER BY ready_at, id LIMIT ?5";
/// The first that is not due yet.
const NEXT: &str = "SELECT ready_at FROM roundel_run INDEXED BY roundel_run_ready \
     WHERE lane = ?1 AND suspect = ?2 AND priority = ?3 AND ready_at > ?4 \
     ORDER BY ready_at LIMIT 1";
/// Those that no limit holds back and that are due.
const AHEAD: &str = "SELECT id FROM roundel_run INDEXED BY roundel_run_flow WHERE lane = ?1 \
     AND flow IN (1, 2) AND coalesce(ready_at, keyed_at) <= ?2 \
     ORDER BY coalesce(ready_at, keyed_at), id LIMIT ?3";
/// The first of them that is not due yet.
const AHEAD_NEXT: &str = "SELECT min(coalesce(ready_at, keyed_at)) \
     FROM roundel_run INDEXED BY roundel_run_flow \
     WHERE lane = ?1 AND flow IN (1, 2) AND coalesce(ready_at, keyed_at) > ?2";
/// When this clock, or the one before it, last showed something.
const LAST_COMMIT: &str = "SELECT max(at) FROM roundel_committer";
const TOO_LONG: &str = "SELECT id, lane FROM roundel_run \
     WHERE owner IS NOT NULL AND lease_until > ?1 ORDER BY lease_until, id";

/// The statements of the search.
pub(super) struct Due<'c> {
    priority: Statement<'c>,
    due: Statement<'c>,
    next: Statement<'c>,
    ahead: Statement<'c>,
    ahead_next: Statement<'c>,
    keys: Keys<'c>,
    turns: Turns,
    /// Leases that were made by a clock that had gone back when the file was opened.
    too_long: Vec<(RunId, LaneId)>,
}

/// What a search found.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Found {
    /// In the order in which they are to be taken.
    pub(super) runs: Vec<RunId>,
    /// When the next one is due.
    pub(super) next: Option<Timestamp>,
    /// In lanes with too many flow keys, the last that was looked at.
    pub(super) looked_at: BTreeMap<LaneId, Name>,
}

/// A run that is due: priority, time, id.
type Candidate = (i64, i64, [u8; 16]);

/// Which of a lane's runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Innocent,
    Suspect,
}

impl<'c> Due<'c> {
    pub(super) fn new(connection: &'c Connection, now: Timestamp) -> Result<Due<'c>> {
        Ok(Due {
            priority: keep(connection, PRIORITY)?,
            due: keep(connection, DUE)?,
            next: keep(connection, NEXT)?,
            ahead: keep(connection, AHEAD)?,
            ahead_next: keep(connection, AHEAD_NEXT)?,
            keys: Keys::new(connection)?,
            turns: Turns::default(),
            too_long: too_long(connection, now)?,
        })
    }

    #[cfg(test)]
    pub(super) fn prepared_again(&self) -> i32 {
        self.due.get_status(rusqlite::StatementStatus::RePrepare)
    }

    /// What is due, as `Need::Due` says.
    pub(super) fn search(&mut self, asked: &Asked, now: Timestamp) -> Result<Found> {
        let mut found = Found::default();
        let mut suspects = Vec::new();
        let lanes: Vec<LaneId> = asked.lanes.iter().map(|(lane, _)| *lane).collect();
        // Those with a flow key are limited by themselves.
        let mut plain = 0;
        for lane in self.turns.order(lanes.iter().copied()) {
            for keyed in asked.keyed.iter().filter(|keyed| keyed.lane == lane) {
                suspects.extend(self.keys.search(keyed, now, &mut found)?);
            }
            let of_it = asked.lanes.iter().find(|(of, _)| *of == lane);
            let most = of_it.map_or(0, |(_, most)| *most);
            let wanted = asked.limit.saturating_sub(plain).min(most);
            let (runs, next) = self.lane((lane, Part::Innocent), wanted, now)?;
            plain += runs.len();
            found.runs.extend(runs.iter().map(id));
            found.next = earliest(found.next, next);
            let (runs, next) = self.lane((lane, Part::Suspect), 1, now)?;
            suspects.extend(runs);
            found.next = earliest(found.next, next);
        }
        found.runs.extend(suspects.iter().min().map(id));
        for lane in &asked.ahead {
            self.ahead(*lane, asked.limit, now, &mut found)?;
        }
        let asked = |lane: &LaneId| lanes.contains(lane) || asked.ahead.contains(lane);
        let mine = self.too_long.iter().filter(|(_, lane)| asked(lane));
        found.runs.extend(mine.map(|(run, _)| *run));
        Ok(found)
    }

    /// Those of a lane that no limit holds back.
    fn ahead(
        &mut self,
        lane: LaneId,
        limit: usize,
        now: Timestamp,
        found: &mut Found,
    ) -> Result<()> {
        let most = i64::try_from(limit).unwrap_or(i64::MAX);
        let runs = self
            .ahead
            .query_map((lane.0, now.0, most), |row| columns::run_id(row, 0))?;
        for run in runs {
            found.runs.push(run?);
        }
        let next: Option<i64> = self
            .ahead_next
            .query_row((lane.0, now.0), |row| row.get(0))?;
        found.next = earliest(found.next, next.map(Timestamp));
        Ok(())
    }

    /// Goes through the priorities of a lane, from the lowest number up.
    fn lane(
        &mut self,
        (lane, part): (LaneId, Part),
        limit: usize,
        now: Timestamp,
    ) -> Result<(Vec<Candidate>, Option<Timestamp>)> {
        let suspect = part == Part::Suspect;
        let (mut found, mut next) = (Vec::new(), None);
        let mut above = i64::MIN;
        loop {
            let level = self
                .priority
                .query_row((lane.0, suspect, above), |row| row.get(0));
            let Some(level) = level.optional()? else {
                return Ok((found, next));
            };
            if found.len() < limit {
                let left = i64::try_from(limit - found.len()).unwrap_or(i64::MAX);
                let mut rows = self.due.query((lane.0, suspect, level, now.0, left))?;
                while let Some(row) = rows.next()? {
                    found.push((level, row.get(0)?, row.get(1)?));
                }
            }
            let values = (lane.0, suspect, level, now.0);
            let later = self.next.query_row(values, |row| row.get(0).map(Timestamp));
            next = earliest(next, later.optional()?);
            above = level;
        }
    }
}

fn id((_, _, id): &Candidate) -> RunId {
    RunId::from_bytes(*id)
}

fn earliest(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// Leases that end later than the longest one made now. There are none unless the clock has gone
/// back since the last commit; only then all runs are looked at.
fn too_long(connection: &Connection, now: Timestamp) -> Result<Vec<(RunId, LaneId)>> {
    let last: Option<i64> = connection.query_row(LAST_COMMIT, [], |row| row.get(0))?;
    if last.is_none_or(|last| last <= now.0) {
        return Ok(Vec::new());
    }
    let longest = now.after(limits::LEASE).0;
    let mut statement = connection.prepare(TOO_LONG)?;
    let read = |row: &rusqlite::Row<'_>| Ok((columns::run_id(row, 0)?, row.get(1).map(LaneId)?));
    statement.query_map([longest], read)?.collect()
}
