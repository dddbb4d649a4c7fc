//! Finds runs that are due: oldest first within priority, lanes in turn, by seeks in the ready
//! index. What is not due yet is never looked at, however much of it there is.

use roundel_core::{LaneId, RunId, Timestamp};
use rusqlite::{Connection, OptionalExtension, Result, Statement};

/// The next priority that anything has, due or not.
const PRIORITY: &str = "SELECT priority FROM roundel_run INDEXED BY roundel_run_ready \
     WHERE lane = ?1 AND suspect = ?2 AND priority > ?3 AND ready_at IS NOT NULL \
     ORDER BY priority LIMIT 1";
/// Those that are due, after the last one taken.
const DUE: &str = "SELECT ready_at, id FROM roundel_run INDEXED BY roundel_run_ready \
     WHERE lane = ?1 AND suspect = ?2 AND priority = ?3 AND ready_at <= ?4 \
     AND ready_at >= ?5 AND (ready_at > ?5 OR id > ?6) ORDER BY ready_at, id LIMIT ?7";
/// The first that is not due yet.
const NEXT: &str = "SELECT ready_at FROM roundel_run INDEXED BY roundel_run_ready \
     WHERE lane = ?1 AND suspect = ?2 AND priority = ?3 AND ready_at > ?4 \
     ORDER BY ready_at LIMIT 1";

/// The statements of the search.
pub(super) struct Due<'c> {
    priority: Statement<'c>,
    due: Statement<'c>,
    next: Statement<'c>,
    /// Which lane comes first: another one each time, so that none waits for ever.
    turn: usize,
}

/// What a search found.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Found {
    /// These, a suspect last.
    pub(super) runs: Vec<RunId>,
    /// When to look again.
    pub(super) next: Option<Timestamp>,
}

/// Where the search stands in one lane.
struct Cursor {
    lane: LaneId,
    /// The level it is at; none when it has been through all.
    priority: Option<i64>,
    /// The last run taken at this level.
    after: (i64, [u8; 16]),
    /// Nothing more is due at this level.
    done: bool,
}

impl Cursor {
    fn move_to(&mut self, priority: Option<i64>) {
        self.priority = priority;
        self.after = (i64::MIN, [0; 16]);
        self.done = false;
    }
}

/// A run that is due, in the order of claims: priority, time, id.
type Candidate = (i64, i64, [u8; 16]);

impl<'c> Due<'c> {
    pub(super) fn new(connection: &'c Connection) -> Result<Due<'c>> {
        Ok(Due {
            priority: connection.prepare(PRIORITY)?,
            due: connection.prepare(DUE)?,
            next: connection.prepare(NEXT)?,
            turn: 0,
        })
    }

    /// Up to `limit` runs of these lanes that are due, and one suspect if there is one.
    pub(super) fn search(
        &mut self,
        lanes: &[LaneId],
        limit: usize,
        now: Timestamp,
    ) -> Result<Found> {
        if lanes.is_empty() {
            return Ok(Found::default());
        }
        let mut turns = lanes.to_vec();
        turns.rotate_left(self.turn % lanes.len());
        self.turn = self.turn.wrapping_add(1);
        let (mut found, mut next) = self.level_by_level(&turns, false, limit, now)?;
        if found.len() == limit {
            next = Some(now.0);
        }
        let (suspects, next_suspect) = self.level_by_level(&turns, true, 1, now)?;
        if suspects.is_empty() {
            next = earliest(next, next_suspect);
        }
        found.sort_unstable();
        found.extend(suspects);
        Ok(Found {
            runs: found
                .into_iter()
                .map(|(_, _, id)| RunId::from_bytes(id))
                .collect(),
            next: next.map(Timestamp),
        })
    }

    /// Goes through the priorities, from the lowest number up; at each, the lanes share what is
    /// left of the limit. Also says when the first of those that are not due will be, unless the
    /// limit was reached before that was known.
    fn level_by_level(
        &mut self,
        lanes: &[LaneId],
        suspect: bool,
        limit: usize,
        now: Timestamp,
    ) -> Result<(Vec<Candidate>, Option<i64>)> {
        let mut cursors = Vec::with_capacity(lanes.len());
        for lane in lanes {
            let priority = self.priority_above(*lane, suspect, i64::MIN)?;
            let mut cursor = Cursor {
                lane: *lane,
                priority: None,
                after: (0, [0; 16]),
                done: false,
            };
            cursor.move_to(priority);
            cursors.push(cursor);
        }
        let (mut found, mut next) = (Vec::new(), None);
        while found.len() < limit {
            let Some(level) = cursors.iter().filter_map(|cursor| cursor.priority).min() else {
                break;
            };
            let here = cursors
                .iter_mut()
                .filter(|cursor| cursor.priority == Some(level));
            let mut here: Vec<&mut Cursor> = here.collect();
            self.share(&mut here, suspect, limit, now, &mut found)?;
            for cursor in here {
                let values = (cursor.lane.0, suspect, level, now.0);
                let later = self.next.query_row(values, |row| row.get(0)).optional()?;
                next = earliest(next, later);
                let priority = self.priority_above(cursor.lane, suspect, level)?;
                cursor.move_to(priority);
            }
        }
        Ok((found, next))
    }

    /// Takes what is due at one level: each lane its share, then those that have more.
    fn share(
        &mut self,
        lanes: &mut [&mut Cursor],
        suspect: bool,
        limit: usize,
        now: Timestamp,
        found: &mut Vec<Candidate>,
    ) -> Result<()> {
        loop {
            let mut left = lanes.iter().filter(|cursor| !cursor.done).count();
            if left == 0 || found.len() == limit {
                return Ok(());
            }
            for cursor in lanes.iter_mut().filter(|cursor| !cursor.done) {
                let share = (limit - found.len()).div_ceil(left);
                left -= 1;
                self.take(cursor, suspect, share, now, found)?;
            }
        }
    }

    fn take(
        &mut self,
        cursor: &mut Cursor,
        suspect: bool,
        share: usize,
        now: Timestamp,
        found: &mut Vec<Candidate>,
    ) -> Result<()> {
        let level = cursor
            .priority
            .expect("a cursor that is taken from stands at a level");
        let (at, id) = cursor.after;
        let limit = i64::try_from(share).unwrap_or(i64::MAX);
        let values = (cursor.lane.0, suspect, level, now.0, at, id, limit);
        let mut rows = self.due.query(values)?;
        let before = found.len();
        while let Some(row) = rows.next()? {
            cursor.after = (row.get(0)?, row.get(1)?);
            found.push((level, cursor.after.0, cursor.after.1));
        }
        cursor.done = found.len() - before < share;
        Ok(())
    }

    fn priority_above(&mut self, lane: LaneId, suspect: bool, level: i64) -> Result<Option<i64>> {
        self.priority
            .query_row((lane.0, suspect, level), |row| row.get(0))
            .optional()
    }
}

fn earliest(one: Option<i64>, other: Option<i64>) -> Option<i64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
