//! The write-ahead log: moved into the database from time to time, and kept short.
//!
//! SQLite moves it by itself after some pages, but begins it anew only when nobody reads from it.
//! If there is always somebody, it would grow for ever; then the writer waits for them, at first
//! for a moment now and then, in the end for as long as our own readers may take.
//!
//! A log file that grows makes every commit wait for the file system's own journal too, which
//! doubles its time. So the file is made long ahead of its use, filled with zeros: SQLite ignores
//! what lies behind the last frame it knows, and writes over it.

use std::fs::OpenOptions;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::open::CHECKPOINT_PAGES;

/// Bytes beyond which the log is long.
pub(super) const LONG: u64 = if cfg!(test) { 1 << 20 } else { 64 << 20 };
/// Bytes beyond which the writer waits for readers.
const TOO_LONG: u64 = 3 * LONG;
/// Batches between two looks at its length.
const LOOK: u32 = 32;
/// Bytes that the log has before it is moved into the database: a frame is a page and its header.
const READY: u64 = if cfg!(test) {
    LONG
} else {
    CHECKPOINT_PAGES.unsigned_abs() * (4096 + 24)
};
/// Bytes that are added at a time: a commit waits for them.
const AHEAD: usize = 1 << 20;
/// Batches between two additions. Who writes less than that keeps a small file.
const ADD: u32 = 16;
/// The time between two tries while it is long.
const AGAIN: Duration = Duration::from_secs(1);
const A_MOMENT: Duration = Duration::from_millis(100);
const ONE_TRY: Duration = Duration::from_millis(20);
/// No reader of ours takes longer.
const ALL_READERS: Duration = Duration::from_secs(6);

/// How far to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Move {
    /// As far as nobody has to wait.
    Some,
    /// All of it.
    All,
    /// All of it, and it begins anew with the next commit.
    Restart,
    /// All of it, and the log file is emptied.
    Truncate,
}

/// Moves the log into the database. Returns whether all of it was moved.
pub(super) fn move_log(connection: &Connection, how: Move) -> bool {
    let sql = match how {
        Move::Some => "PRAGMA wal_checkpoint(PASSIVE)",
        Move::All => "PRAGMA wal_checkpoint(FULL)",
        Move::Restart => "PRAGMA wal_checkpoint(RESTART)",
        Move::Truncate => "PRAGMA wal_checkpoint(TRUNCATE)",
    };
    let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(0)?, row.get(1)?, row.get(2)?));
    let moved: rusqlite::Result<(i64, i64, i64)> = connection.query_row(sql, [], read);
    moved.is_ok_and(|(busy, log, moved)| busy == 0 && log == moved)
}

/// Looks after the length of the log.
pub(super) struct Log {
    path: PathBuf,
    batches: u32,
    tried: Option<Instant>,
    /// Nothing more is added ahead.
    ready: bool,
}

impl Log {
    /// Of this database.
    pub(super) fn of(database: &Path) -> Log {
        let mut path = database.as_os_str().to_owned();
        path.push("-wal");
        Log {
            path: path.into(),
            batches: 0,
            tried: None,
            ready: false,
        }
    }

    /// Inside a transaction, when nobody else can write to the log: makes the file longer if it is
    /// still short. A file that cannot grow now is left as it is; the commit will tell.
    pub(super) fn make_ready(&mut self) {
        if self.ready || self.batches % ADD != ADD - 1 {
            return;
        }
        let add = || -> std::io::Result<bool> {
            let mut file = OpenOptions::new().write(true).open(&self.path)?;
            let length = file.seek(SeekFrom::End(0))?;
            let missing = usize::try_from(READY.saturating_sub(length)).unwrap_or(AHEAD);
            file.write_all(&vec![0; missing.min(AHEAD)])?;
            Ok(missing <= AHEAD)
        };
        self.ready = add().unwrap_or(true);
    }

    /// After a commit: shortens the log if it is long.
    pub(super) fn keep_short(&mut self, connection: &Connection, busy_timeout: Duration) {
        self.batches += 1;
        if !self.batches.is_multiple_of(LOOK) {
            return;
        }
        let length = std::fs::metadata(&self.path).map_or(0, |file| file.len());
        let recently = self.tried.is_some_and(|at| at.elapsed() < AGAIN);
        if length <= LONG || (recently && length <= TOO_LONG) {
            return;
        }
        let patience = if length > TOO_LONG {
            ALL_READERS
        } else {
            A_MOMENT
        };
        // Often and briefly: while SQLite waits for a reader to leave its place, the next one may
        // take it, and one try would wait for both.
        let _ = connection.busy_timeout(ONE_TRY);
        let until = Instant::now() + patience;
        let mut moved = false;
        while !moved && Instant::now() < until {
            moved = move_log(connection, Move::Restart);
        }
        if !moved {
            tracing::warn!(
                length,
                "somebody reads for so long that the log cannot be shortened"
            );
        }
        let _ = connection.busy_timeout(busy_timeout);
        self.tried = Some(Instant::now());
    }
}
