//! What happened, counted in the journals.

use rusqlite::Connection;
use serde::Serialize;

/// Counts of what the runs did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Counts {
    /// Steps that committed.
    pub(super) steps: u32,
    /// Effects that ended.
    pub(super) effects: u32,
    /// Attempts of effects that failed and were followed by another.
    pub(super) retries: u32,
    /// Pauses.
    pub(super) sleeps: u32,
    /// Signals that a run waited for and got.
    pub(super) signals: u32,
    /// Waits for a signal whose time was up.
    pub(super) timeouts: u32,
    /// Publications.
    pub(super) publications: u32,
    /// Runs that were set off by others.
    pub(super) children: u32,
    /// Steps and effects that were undone.
    pub(super) undone: u32,
    /// Runs that undid what they had done.
    pub(super) rolled_back: u32,
}

const COUNTS: &str = "\
    WITH entry AS (
        SELECT kind, run, execution, entry ->> '$.call' AS call, entry -> '$.what' AS what,
            entry -> '$.outcome.failure' AS failure
        FROM roundel_entry WHERE kind IN ('begun', 'done', 'did', 'attempted')
    ), call AS (
        SELECT begun.what, coalesce(done.failure, begun.failure) AS failure
        FROM entry AS begun LEFT JOIN entry AS done
            ON done.kind = 'done' AND done.run = begun.run
            AND done.execution = begun.execution AND done.call = begun.call
        WHERE begun.kind IN ('begun', 'did')
    )
    SELECT
        count(what -> '$.step'), count(what -> '$.effect'), count(what -> '$.sleep'),
        count(what -> '$.wait') FILTER (WHERE failure IS NULL),
        count(what -> '$.wait') FILTER (WHERE failure ->> '$.code' = 'timed_out'),
        (SELECT count(*) FROM roundel_run WHERE parent_run IS NOT NULL),
        (SELECT count(what -> '$.effect') FROM entry WHERE kind = 'attempted'),
        (SELECT count(*) FROM roundel_publication),
        count(what -> '$.undo') FILTER (WHERE failure IS NULL),
        (SELECT count(*) FROM roundel_run WHERE state = 'rolled_back')
    FROM call";

pub(super) fn count(db: &Connection) -> rusqlite::Result<Counts> {
    db.query_row(COUNTS, (), |row| {
        Ok(Counts {
            steps: row.get(0)?,
            effects: row.get(1)?,
            sleeps: row.get(2)?,
            signals: row.get(3)?,
            timeouts: row.get(4)?,
            children: row.get(5)?,
            retries: row.get(6)?,
            publications: row.get(7)?,
            undone: row.get(8)?,
            rolled_back: row.get(9)?,
        })
    })
}
