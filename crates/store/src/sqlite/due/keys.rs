//! Finds runs that are due among those that have a flow key: the keys of a lane in turn, by seeks.

use roundel_core::{Keyed, Name, Timestamp, limits};
use rusqlite::{Connection, OptionalExtension, Result, Statement};

use super::super::batch::keep;
use super::super::columns;
use super::{Candidate, Found, earliest, id, in_turn};

/// The next key of a lane of which anything waits, due or not.
const KEY: &str = "SELECT flow_key FROM roundel_run INDEXED BY roundel_run_keyed \
     WHERE lane = ?1 AND flow_key > ?2 AND keyed_at IS NOT NULL ORDER BY flow_key LIMIT 1";
/// The next priority that anything of a key has, due or not.
const PRIORITY: &str = "SELECT priority FROM roundel_run INDEXED BY roundel_run_keyed \
     WHERE lane = ?1 AND flow_key = ?2 AND suspect = ?3 AND priority > ?4 \
     AND keyed_at IS NOT NULL ORDER BY priority LIMIT 1";
const DUE: &str = "SELECT keyed_at, id FROM roundel_run INDEXED BY roundel_run_keyed \
     WHERE lane = ?1 AND flow_key = ?2 AND suspect = ?3 AND priority = ?4 AND keyed_at <= ?5 \
     ORDER BY keyed_at, id LIMIT ?6";
const NEXT: &str = "SELECT keyed_at FROM roundel_run INDEXED BY roundel_run_keyed \
     WHERE lane = ?1 AND flow_key = ?2 AND suspect = ?3 AND priority = ?4 AND keyed_at > ?5 \
     ORDER BY keyed_at LIMIT 1";

/// The statements of the search.
pub(super) struct Keys<'c> {
    key: Statement<'c>,
    priority: Statement<'c>,
    due: Statement<'c>,
    next: Statement<'c>,
}

impl<'c> Keys<'c> {
    pub(super) fn new(connection: &'c Connection) -> Result<Keys<'c>> {
        Ok(Keys {
            key: keep(connection, KEY)?,
            priority: keep(connection, PRIORITY)?,
            due: keep(connection, DUE)?,
            next: keep(connection, NEXT)?,
        })
    }

    /// What is due, as `Keyed` says. Returns suspects, the first among them.
    pub(super) fn search(
        &mut self,
        asked: &Keyed,
        now: Timestamp,
        found: &mut Found,
    ) -> Result<Vec<Candidate>> {
        let (mut keys, mut suspects) = (Vec::new(), Vec::new());
        let (mut at, mut looked, mut more) = (asked.after.clone(), 0, None);
        let mut wrapped = asked.after.is_none();
        while keys.len() < asked.limit {
            let after = at.as_ref().map_or("", Name::as_str);
            let key = (asked.lane.0, after);
            let key = self.key.query_row(key, |row| columns::name(row, 0));
            let key = key.optional()?;
            let ends = wrapped && asked.after.is_some() && key > asked.after;
            let Some(key) = key.filter(|_| !ends) else {
                if wrapped {
                    break;
                }
                (at, wrapped) = (None, true);
                continue;
            };
            at = Some(key.clone());
            if asked.full.contains(&key) {
                continue;
            }
            if looked == limits::TURNS {
                found.looked_at.extend(more.map(|key| (asked.lane, key)));
                break;
            }
            looked += 1;
            let (first, next) = self.of_key((asked, &key, false), 1, now)?;
            found.next = earliest(found.next, next);
            let (suspect, next) = self.of_key((asked, &key, true), 1, now)?;
            found.next = earliest(found.next, next);
            suspects.extend(suspect);
            more = Some(key.clone());
            keys.extend((!first.is_empty()).then_some((key, first)));
        }
        let enough = keys.len() >= asked.limit;
        let mut lists = Vec::new();
        for (key, first) in keys {
            let due = match enough {
                true => first,
                false => self.of_key((asked, &key, false), asked.limit, now)?.0,
            };
            lists.push(due.iter().map(id).collect());
        }
        found.runs.extend(in_turn(lists, asked.limit));
        Ok(suspects)
    }

    /// Goes through the priorities of a key, from the lowest number up.
    fn of_key(
        &mut self,
        (asked, key, suspect): (&Keyed, &Name, bool),
        limit: usize,
        now: Timestamp,
    ) -> Result<(Vec<Candidate>, Option<Timestamp>)> {
        let (lane, key) = (asked.lane.0, key.as_str());
        let (mut found, mut next) = (Vec::new(), None);
        let mut above = i64::MIN;
        loop {
            let values = (lane, key, suspect, above);
            let level = self.priority.query_row(values, |row| row.get(0));
            let Some(level) = level.optional()? else {
                return Ok((found, next));
            };
            if found.len() < limit {
                let left = i64::try_from(limit - found.len()).unwrap_or(i64::MAX);
                let values = (lane, key, suspect, level, now.0, left);
                let mut rows = self.due.query(values)?;
                while let Some(row) = rows.next()? {
                    found.push((level, row.get(0)?, row.get(1)?));
                }
            }
            let values = (lane, key, suspect, level, now.0);
            let later = self.next.query_row(values, |row| row.get(0).map(Timestamp));
            next = earliest(next, later.optional()?);
            above = level;
        }
    }
}
