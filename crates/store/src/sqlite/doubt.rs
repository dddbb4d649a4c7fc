//! A commit whose outcome is open: asked of the file, never guessed, and before anything is tried
//! again.

use rusqlite::{Connection, OptionalExtension};

use super::columns::number;
use super::log::{Move, move_log};
use super::shared::Shared;

const LAST: &str = "SELECT batch FROM roundel_committer WHERE incarnation = ?1";

/// Was the batch of this number committed? Asked on a fresh connection, after the log was moved
/// into the database, so that the answer is on disk; and under the write lock, so that it stays.
pub(super) fn was_committed(
    connection: &Connection,
    shared: &Shared,
    batch: u64,
) -> Result<bool, String> {
    if let Some(gone) = shared.gone() {
        return Err(gone);
    }
    if !move_log(connection, Move::All) {
        return Err("the log cannot be moved into the database".into());
    }
    let last = under_lock(connection, &shared.incarnation).map_err(|error| error.to_string())?;
    Ok(last == Some(number(batch)))
}

fn under_lock(connection: &Connection, incarnation: &[u8; 16]) -> rusqlite::Result<Option<i64>> {
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let last = connection
        .query_row(LAST, [incarnation], |row| row.get(0))
        .optional();
    connection.execute_batch("ROLLBACK")?;
    last
}
