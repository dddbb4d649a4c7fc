//! Copies of a file: made while others work on it, and put back.
//!
//! A copy is made page by page inside one reading transaction, so that it is the file as it was at
//! one moment, with what is still in the log; writers go on beside it. It is written under another
//! name first, checked, and gets its own name last, which must be free: nothing is ever replaced.
//! From then on it says that it is a backup, and is refused by whoever would work on it: its runs
//! would go on in both.
//!
//! Put back, it is another database than the one before: those who worked on that one are fenced
//! (`fence`), and what they had in hand is free.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags, OptionalExtension};

use super::file::look_at;
use super::log::{Move, move_log};
use super::open::{connect, failed, make_file};
use super::{Options, Sqlite, moving, place};
use crate::Error;
use crate::backup::{FIND_RESTORED, FORGET, RAISE, Stage};

/// Pages that are copied between two signs of life: 8 MB.
const PAGES: i32 = 2048;
/// How long to wait for a lock that nobody should have.
const WAIT: Duration = Duration::from_millis(20);
/// How often, at most.
const WAITS: u32 = 500;
/// What is left free on a disk, beside the copy.
const SPARE: u64 = 16 << 20;

const MARK: &str = "INSERT INTO roundel_meta (name, value) VALUES (?1, ?2) \
     ON CONFLICT DO UPDATE SET value = ?2";
const UNMARK: &str = "DELETE FROM roundel_meta WHERE name LIKE 'backup of %'";

/// A file beside its later name, which goes if nothing comes of it.
pub(crate) struct Part {
    path: PathBuf,
    to: PathBuf,
    kept: bool,
}

impl Part {
    /// Makes an empty one. Whatever is there under the name is left alone.
    pub(crate) fn of(to: &Path) -> Result<Part, Error> {
        let to = PathBuf::from(moving::Side::address(to)?);
        for end in ["", "-wal", "-shm", "-journal"] {
            let there = with_end(&to, end);
            if there.symlink_metadata().is_ok() {
                return Err(Error::Unusable(format!(
                    "{} is there already, and nothing is ever replaced: choose another name, or \
                     move it away first, with what ends in -wal and -shm, once nobody has it open",
                    there.display()
                )));
            }
        }
        let path = with_end(&to, ".part");
        if path.symlink_metadata().is_ok() {
            return Err(Error::Unusable(format!(
                "{} is there: either somebody is making this very file now, or was killed while \
                 doing so; in that case delete it",
                path.display()
            )));
        }
        make_file(&path, &Options::default())?;
        Ok(Part {
            path,
            to,
            kept: false,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives it its name, if that is still free, once it is on disk.
    pub(crate) fn put_in_place(mut self) -> Result<(), Error> {
        let (from, to) = (&self.path, &self.to);
        let failed = |error: std::io::Error| {
            let message = format!("{} cannot get its name: {error}", to.display());
            Error::Unavailable(message)
        };
        File::open(from)
            .and_then(|file| file.sync_all())
            .map_err(failed)?;
        match std::fs::hard_link(from, to) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists => return Err(failed(error)),
            // Not every file system has links.
            Err(_) if to.symlink_metadata().is_err() => {
                std::fs::rename(from, to).map_err(failed)?;
                self.kept = true;
            }
            Err(error) => return Err(failed(error)),
        }
        if let Some(folder) = to.parent() {
            let _ = File::open(folder).and_then(|folder| folder.sync_all());
        }
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        for end in ["-wal", "-shm", "-journal"] {
            let _ = std::fs::remove_file(with_end(&self.path, end));
        }
        if !self.kept {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn with_end(path: &Path, end: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(end);
    path.into()
}

/// Copies a file, as it is at one moment, into one that is empty.
pub(crate) fn copy(from: &Path, part: &Part, told: &mut dyn FnMut(Stage)) -> Result<u64, Error> {
    let source = look_at(from)?;
    let wrong = |error: rusqlite::Error| failed(from, &error);
    // A transaction that lasts: between two steps the file may change.
    source.execute_batch("BEGIN").map_err(wrong)?;
    let pages: i64 = source
        .query_row("SELECT page_count FROM pragma_page_count", [], |row| {
            row.get(0)
        })
        .map_err(wrong)?;
    let size: i64 = source
        .query_row("SELECT page_size FROM pragma_page_size", [], |row| {
            row.get(0)
        })
        .map_err(wrong)?;
    let bytes = pages.unsigned_abs() * size.unsigned_abs();
    has_room(part.path(), bytes)?;
    let wrong_there = |error: rusqlite::Error| failed(part.path(), &error);
    let mut target = writable(part.path())?;
    // Nobody has it yet; it is synced as a whole.
    let settings = "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF";
    target.execute_batch(settings).map_err(wrong_there)?;
    let backup = Backup::new(&source, &mut target).map_err(wrong_there)?;
    let mut waits = 0;
    loop {
        let step = backup.step(PAGES).map_err(wrong_there)?;
        let far = backup.progress();
        let of = u64::from(far.pagecount.unsigned_abs());
        let left = u64::from(far.remaining.unsigned_abs());
        told(Stage::Copying(of - left.min(of), of));
        match step {
            StepResult::Done => return Ok(bytes),
            StepResult::More => {}
            _ if waits < WAITS => {
                waits += 1;
                std::thread::sleep(WAIT);
            }
            _ => {
                let message = format!("the database {} is locked", from.display());
                return Err(Error::Unavailable(message));
            }
        }
    }
}

fn has_room(path: &Path, bytes: u64) -> Result<(), Error> {
    let Some(free) = place::free(path).filter(|free| *free < bytes + SPARE) else {
        return Ok(());
    };
    Err(Error::Unavailable(format!(
        "the copy needs {} MB, and where {} is to lie there are {} MB free",
        bytes >> 20,
        path.display(),
        free >> 20
    )))
}

fn writable(path: &Path) -> Result<Connection, Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
    let opened = connect(path, &Options::default(), flags);
    opened.map_err(|error| failed(path, &error))
}

/// From now on it says that it is a backup of that file.
pub(crate) fn mark(path: &Path, of: &str, now: i64) -> Result<(), Error> {
    let connection = writable(path)?;
    let marked = connection.execute(MARK, (format!("backup of {of}"), now));
    marked.map_err(|error| failed(path, &error))?;
    move_log(&connection, Move::Truncate);
    Ok(())
}

/// Is it one?
pub(crate) fn is_backup(path: &Path) -> Result<bool, Error> {
    let connection = look_at(path)?;
    let found = moving::moved(&connection).map_err(|error| failed(path, &error))?;
    Ok(found.is_some_and(|mark| mark.starts_with("backup of ")))
}

/// It is a database again, and another: whoever worked on the one before is fenced.
pub(crate) fn fence(path: &Path, now: i64) -> Result<(), Error> {
    let connection = writable(path)?;
    let fenced = || {
        connection.execute_batch("BEGIN IMMEDIATE")?;
        connection.execute(UNMARK, [])?;
        connection.execute(FORGET, [])?;
        connection.execute(RAISE, [])?;
        connection.execute(MARK, ("restored", now))?;
        connection.execute_batch("COMMIT")
    };
    fenced().map_err(|error: rusqlite::Error| failed(path, &error))?;
    move_log(&connection, Move::Truncate);
    Ok(())
}

/// When it was last restored.
pub(super) fn restored(connection: &Connection) -> rusqlite::Result<Option<i64>> {
    let mut statement = connection.prepare_cached(FIND_RESTORED)?;
    statement.query_row([], |row| row.get(0)).optional()
}

/// What is said to whoever had the one before open.
pub(super) fn refusal(path: &Path) -> String {
    crate::backup::refusal(&path.display().to_string())
}

impl Sqlite {
    /// Opens a copy to check it: nobody else has it.
    pub(crate) fn copy_at(path: &Path) -> Result<Sqlite, Error> {
        let options = Options {
            create: false,
            allow_network_fs: true,
            ..Options::default()
        };
        Sqlite::open(path, options)
    }
}
