//! Opening the file: what is refused, what is set, and what is checked to be set.
//!
//! Nothing that is not a database of Roundel's, or a database that may become one, is ever
//! written to.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::migrate::{self, NEWEST};
use super::shared::Identity;
use super::trouble::is_busy;
use super::{Options, Synchronous, guard, place};
use crate::Error;

/// Before this one, resetting the log could corrupt the file.
const OLDEST_SQLITE: i32 = 3_051_003;
/// `Rndl`: what `file` shows for a file that is Roundel's alone.
const APPLICATION_ID: i64 = 0x526E_646C;
/// Pages in the log after which it is moved into the database.
pub(super) const CHECKPOINT_PAGES: i64 = 4_000;
/// Bytes to which a longer log file is cut when it begins anew.
const LOG_BYTES: u64 = super::log::LONG;
/// Kilobytes of pages that the writer keeps. More costs time: after every commit in which a page
/// was split, SQLite walks through all of them.
const WRITER_CACHE: i64 = 4 << 10;

/// Rows of processes, beyond which old ones are removed.
const COMMITTERS: i64 = 64;

/// Statements kept per connection: ours for reading, or those of the user's steps.
const STATEMENTS: usize = 128;
/// Tries to put a file into WAL mode.
const WAL_TRIES: u32 = 100;

/// Refuses a library that can corrupt the file.
pub(super) fn check_library(version: i32) -> Result<(), Error> {
    if version >= OLDEST_SQLITE {
        return Ok(());
    }
    let shown = |number: i32| {
        let (major, minor) = (number / 1_000_000, number / 1_000 % 1_000);
        format!("{major}.{minor}.{}", number % 1_000)
    };
    Err(Error::Unusable(format!(
        "this program is linked with SQLite {}, which can corrupt a database in WAL mode; \
         link {} or later (the bundled one is)",
        shown(version),
        shown(OLDEST_SQLITE)
    )))
}

/// Makes or checks the file, and brings it to this version's schema.
pub(super) fn prepare(path: &Path, options: &Options) -> Result<(Connection, Identity), Error> {
    check_library(rusqlite::version_number())?;
    let shown = path.display();
    if !options.allow_network_fs {
        place::check(path)?;
    }
    make_file(path, options)?;
    let found = std::fs::metadata(path);
    let found = found.map_err(|error| unusable(path, "cannot be looked at", &error))?;
    let connection = connect(path, options, OpenFlags::SQLITE_OPEN_READ_WRITE)
        .map_err(|error| failed(path, &error))?;
    check_header(&connection, path)?;
    if connection.is_readonly(rusqlite::MAIN_DB).unwrap_or(true) {
        return Err(Error::Unusable(format!(
            "the database {shown} cannot be written to; \
             give this user the right to write to the file and its folder"
        )));
    }
    check_contents(&connection, path, options)?;
    let adopted = migrate::version(&connection).map_err(|error| failed(path, &error))? == 0;
    set_wal(&connection, path)?;
    if adopted {
        sign(&connection).map_err(|error| failed(path, &error))?;
    }
    migrate::apply(&connection).map_err(|error| failed(path, &error))?;
    if options.create {
        forget_committers(&connection, options).map_err(|error| failed(path, &error))?;
    }
    Ok((connection, Identity::of(&found)))
}

/// Every process leaves a row behind; those that have long been gone are removed now and then.
fn forget_committers(connection: &Connection, options: &Options) -> rusqlite::Result<()> {
    let sql = "SELECT count(*) FROM roundel_committer";
    let known: i64 = connection.query_row(sql, [], |row| row.get(0))?;
    if known > COMMITTERS {
        let day = 24 * 3600 * 1_000_000;
        let before = options.clock.now().0.saturating_sub(day);
        connection.execute("DELETE FROM roundel_committer WHERE at < ?1", [before])?;
    }
    Ok(())
}

fn unusable(path: &Path, what: &str, error: &std::io::Error) -> Error {
    Error::Unusable(format!("the database {} {what}: {error}", path.display()))
}

/// Makes an empty file that only its owner may read, unless there is one.
pub(super) fn make_file(path: &Path, options: &Options) -> Result<(), Error> {
    if path.is_dir() {
        return Err(Error::Unusable(format!(
            "{} is a folder, not a database",
            path.display()
        )));
    }
    if path.exists() {
        return Ok(());
    }
    if !options.create {
        return Err(Error::Unusable(format!(
            "there is no database {}, and none was made; check the path",
            path.display()
        )));
    }
    let mut new = OpenOptions::new();
    new.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut new, 0o600);
    match new.open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(unusable(path, "cannot be created", &error)),
    }
}

/// Refuses what is plainly not a database; SQLite reads its header and leaves it alone.
///
/// The file is never opened in another way: closing it would take away the locks of every other
/// connection in this process, and a guest from outside could delete the log under them.
pub(super) fn check_header(connection: &Connection, path: &Path) -> Result<(), Error> {
    match pragma(connection, "schema_version") {
        Ok(_) => Ok(()),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::NotADatabase) => {
            Err(Error::Unusable(format!(
                "{} is not an SQLite database (it begins with other bytes) and was left alone; \
                 choose another path",
                path.display()
            )))
        }
        Err(error) => Err(failed(path, &error)),
    }
}

/// Refuses a database that belongs to somebody else, or to a newer version.
fn check_contents(connection: &Connection, path: &Path, options: &Options) -> Result<(), Error> {
    let shown = path.display();
    let version = migrate::version(connection).map_err(|error| failed(path, &error))?;
    check_version(path, (version, NEWEST), options)?;
    if version > 0 {
        return Ok(());
    }
    if !options.create {
        return Err(Error::Unusable(format!(
            "the database {shown} has no tables of roundel, and none were made; check the path"
        )));
    }
    let id = pragma(connection, "application_id").map_err(|error| failed(path, &error))?;
    if id != 0 && id != APPLICATION_ID {
        return Err(Error::Unusable(format!(
            "the database {shown} belongs to another program (application id {id:#x}) \
             and was left alone; choose another path"
        )));
    }
    Ok(())
}

/// Refuses a newer schema; and an older one, if nothing may be changed.
fn check_version(path: &Path, (found, known): (i64, i64), options: &Options) -> Result<(), Error> {
    if found > known {
        return Err(newer(path, found));
    }
    if !options.create && (1..known).contains(&found) {
        return Err(Error::Unusable(format!(
            "the database {} has schema version {found}, and this program writes {known}; \
             make a backup, then bring it up to date with `roundel migrate`",
            path.display()
        )));
    }
    Ok(())
}

/// A database that a newer version has used.
pub(super) fn newer(path: &Path, version: i64) -> Error {
    Error::Unusable(format!(
        "the database {} has schema version {version}, and this program knows {NEWEST}; \
         a newer version of roundel has used it; use that one",
        path.display()
    ))
}

/// Marks a file that holds nothing else; one with the user's own tables stays as it is.
fn sign(connection: &Connection) -> rusqlite::Result<()> {
    let sql = "SELECT count(*) FROM sqlite_schema";
    let things: i64 = connection.query_row(sql, [], |row| row.get(0))?;
    if things == 0 {
        connection.pragma_update(None, "application_id", APPLICATION_ID)?;
    }
    Ok(())
}

pub(super) fn set_wal(connection: &Connection, path: &Path) -> Result<(), Error> {
    let sql = "PRAGMA journal_mode = WAL";
    let mut tries = 0;
    let mode = loop {
        let mode: Result<String, _> = connection.query_row(sql, [], |row| row.get(0));
        // Two who do this at once may both be told that the other is at it.
        match &mode {
            Err(error) if is_busy(error) && tries < WAL_TRIES => tries += 1,
            _ => break mode,
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    match mode {
        Ok(mode) if mode == "wal" => Ok(()),
        Ok(mode) => Err(Error::Unusable(format!(
            "the database {} cannot be put into WAL mode (it stays in `{mode}`); \
             its file system has no shared memory; use a local one",
            path.display()
        ))),
        Err(error) => Err(failed(path, &error)),
    }
}

pub(super) fn pragma(connection: &Connection, name: &str) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, name, |row| row.get(0))
}

pub(super) fn connect(
    path: &Path,
    options: &Options,
    flags: OpenFlags,
) -> rusqlite::Result<Connection> {
    let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    connection.busy_timeout(options.busy_wait())?;
    Ok(connection)
}

/// What an error at opening means to whoever opens.
pub(super) fn failed(path: &Path, error: &rusqlite::Error) -> Error {
    let shown = path.display();
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            Error::Unavailable(format!("the database {shown} is in use: {error}"))
        }
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => Error::Unusable(format!(
            "the database {shown} is damaged or not a database: {error}; it was left alone; \
             restore a backup, or choose another path"
        )),
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => Error::Unusable(format!(
            "the database {shown} cannot be written to: {error}; \
             give this user the right to write to the file and its folder"
        )),
        Some(ErrorCode::CannotOpen) => Error::Unusable(format!(
            "the database {shown} cannot be opened: {error}; \
             check that this user may read and write the file and its folder"
        )),
        _ => Error::Unavailable(format!("the database {shown} cannot be used now: {error}")),
    }
}

/// The same, for a file that could be opened before: if it cannot now, something has run out (file
/// descriptors, say), and that passes.
fn failed_again(path: &Path, error: &rusqlite::Error) -> Error {
    match error.sqlite_error_code() {
        Some(ErrorCode::CannotOpen) => Error::Unavailable(format!(
            "the database {} cannot be opened: {error}",
            path.display()
        )),
        _ => failed(path, error),
    }
}

/// The connection that writes, with its guards.
pub(super) fn writer(path: &Path, options: &Options) -> Result<Connection, Error> {
    let set = |mut connection: Connection| {
        settle(&connection, options)?;
        connection.pragma_update(None, "cache_size", -WRITER_CACHE)?;
        limit_size(&connection, options)?;
        guard::install(&mut connection)?;
        Ok(connection)
    };
    let connection = connect(path, options, OpenFlags::SQLITE_OPEN_READ_WRITE).and_then(set);
    let connection = connection.map_err(|error| failed_again(path, &error))?;
    assert_settings(&connection, path, options)?;
    Ok(connection)
}

/// A connection that reads.
pub(super) fn reader(path: &Path, options: &Options) -> Result<Connection, Error> {
    let set = |connection: Connection| {
        settle(&connection, options)?;
        connection.pragma_update(None, "query_only", true)?;
        Ok(connection)
    };
    let connection = connect(path, options, OpenFlags::SQLITE_OPEN_READ_ONLY).and_then(set);
    let connection = connection.map_err(|error| failed_again(path, &error))?;
    assert_settings(&connection, path, options)?;
    Ok(connection)
}

fn limit_size(connection: &Connection, options: &Options) -> rusqlite::Result<()> {
    let Some(most) = options.max_bytes else {
        return Ok(());
    };
    let pages = i64::try_from(most).unwrap_or(i64::MAX) / pragma(connection, "page_size")?;
    connection.pragma_update_and_check(None, "max_page_count", pages.max(1), |_| Ok(()))
}

fn settle(connection: &Connection, options: &Options) -> rusqlite::Result<()> {
    let set = |name: &str, value: i64| connection.pragma_update(None, name, value);
    set("synchronous", options.synchronous.number())?;
    set("foreign_keys", 1)?;
    set("trusted_schema", 0)?;
    set("cell_size_check", 1)?;
    set("temp_store", 2)?;
    connection.pragma_update_and_check(None, "mmap_size", 0, |_| Ok(()))?;
    let (pages, bytes) = (
        CHECKPOINT_PAGES,
        i64::try_from(LOG_BYTES).unwrap_or(i64::MAX),
    );
    connection.pragma_update_and_check(None, "wal_autocheckpoint", pages, |_| Ok(()))?;
    connection.pragma_update_and_check(None, "journal_size_limit", bytes, |_| Ok(()))?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    // Otherwise a statement with `LIMIT ?` is prepared anew for every value.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(())
}

impl Synchronous {
    fn number(self) -> i64 {
        match self {
            Synchronous::Normal => 1,
            Synchronous::Full => 2,
        }
    }
}

/// A setting that did not take would be found out only by a crash.
fn assert_settings(connection: &Connection, path: &Path, options: &Options) -> Result<(), Error> {
    let wanted = [
        ("synchronous", options.synchronous.number()),
        ("foreign_keys", 1),
        ("trusted_schema", 0),
        ("cell_size_check", 1),
        ("temp_store", 2),
        ("mmap_size", 0),
        ("wal_autocheckpoint", CHECKPOINT_PAGES),
    ];
    for (name, value) in wanted {
        let found = match pragma(connection, name) {
            Ok(found) => found,
            // Without memory mapping there is nothing to ask for.
            Err(rusqlite::Error::QueryReturnedNoRows) => 0,
            Err(error) => return Err(failed_again(path, &error)),
        };
        if found != value {
            return Err(Error::Unusable(format!(
                "the database {} does not take the setting {name} = {value} (it has {found}); \
                 link an SQLite that does",
                path.display()
            )));
        }
    }
    let defensive = connection.db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE);
    let mode = connection.pragma_query_value(None, "journal_mode", |row| row.get::<_, String>(0));
    match (mode, defensive) {
        (Ok(mode), Ok(true)) if mode == "wal" => Ok(()),
        (Err(error), _) | (_, Err(error)) => Err(failed_again(path, &error)),
        (Ok(mode), _) => Err(Error::Unusable(format!(
            "the database {} is in journal mode `{mode}`; another program has changed it; \
             stop that program and open it again",
            path.display()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l4_an_older_schema_is_left_alone_unless_it_may_be_changed() {
        for (found, create, fits) in [
            (0, false, true),
            (1, false, false),
            (1, true, true),
            (2, false, true),
            (3, true, false),
            (3, false, false),
        ] {
            let options = Options {
                create,
                ..Options::default()
            };
            let checked = check_version(Path::new("runs.db"), (found, 2), &options);
            assert_eq!(checked.is_ok(), fits, "version {found}, create {create}");
        }
    }
}
