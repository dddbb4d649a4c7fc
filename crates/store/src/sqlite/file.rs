//! What can be asked of a file without working on it: which schema it has, and whether it is sound.

use std::path::Path;

use rusqlite::{Connection, ErrorCode, OpenFlags, Row};

use super::migrate::{self, NEWEST};
use super::open::{check_header, connect, failed, make_file, newer, pragma};
use super::{Options, Sqlite, place};
use crate::Error;

/// Steps of the database's machine between two signs of life.
const STEPS: i32 = 1_000_000;

/// Which schema a file has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    /// The version that is there.
    pub found: i64,
    /// The version that this program writes.
    pub known: i64,
    /// The migrations that lie between, by name.
    pub missing: Vec<&'static str>,
}

/// What a file is like, from outside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Its bytes.
    pub bytes: u64,
    /// Bytes of its log.
    pub log_bytes: u64,
    /// Bytes of it that nothing is in.
    pub unused_bytes: u64,
    /// Bytes that are free on its disk, if that is known.
    pub free_bytes: Option<u64>,
    /// The file system, if processes cannot share memory there.
    pub remote: Option<&'static str>,
    /// What a quick check finds wrong.
    pub damage: Vec<String>,
}

impl Sqlite {
    /// What the file is like. Every page is read, and nothing is changed.
    ///
    /// # Errors
    /// When it is not there, or no database.
    pub fn health(path: &Path) -> Result<Health, Error> {
        let connection = look_at(path)?;
        let wrong = |error| failed(path, &error);
        let length = |end: &str| {
            let mut path = path.as_os_str().to_owned();
            path.push(end);
            std::fs::metadata(path).map_or(0, |file| file.len())
        };
        let unused = pragma(&connection, "freelist_count").map_err(wrong)?;
        let size = pragma(&connection, "page_size").map_err(wrong)?;
        let mut damage = rows(&connection, "PRAGMA quick_check(20)", |row| row.get(0))
            .or_else(|error| damage(path, &error))?;
        damage.retain(|line| line != "ok");
        Ok(Health {
            bytes: length(""),
            log_bytes: length("-wal"),
            unused_bytes: unused.unsigned_abs() * size.unsigned_abs(),
            free_bytes: place::free(path),
            remote: place::remote(path),
            damage,
        })
    }

    /// Which schema the file has. Nothing is changed.
    ///
    /// # Errors
    /// When it is not there, has no tables of Roundel's, or those of a newer version.
    pub fn schema(path: &Path) -> Result<Schema, Error> {
        let connection = look_at(path)?;
        let found = migrate::version(&connection).map_err(|error| failed(path, &error))?;
        if found == 0 {
            return Err(Error::Unusable(format!(
                "the database {} has no tables of roundel, and none were made; check the path",
                path.display()
            )));
        }
        if found > NEWEST {
            return Err(newer(path, found));
        }
        Ok(Schema {
            found,
            known: NEWEST,
            missing: migrate::missing(found).map(|(name, _)| *name).collect(),
        })
    }

    /// Brings a file that has tables of Roundel's to this program's schema. Returns what it had.
    ///
    /// # Errors
    /// As [`Sqlite::schema`], and when the file cannot be written.
    pub fn migrate(path: &Path) -> Result<Schema, Error> {
        let schema = Sqlite::schema(path)?;
        if !schema.missing.is_empty() {
            let flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
            let connection = connect(path, &Options::default(), flags);
            let connection = connection.map_err(|error| failed(path, &error))?;
            migrate::apply(&connection).map_err(|error| failed(path, &error))?;
        }
        Ok(schema)
    }

    /// What the database itself finds wrong with the file: pages, indexes, foreign keys, those of
    /// the user's own tables too. Says now and then that it goes on.
    ///
    /// # Errors
    /// When it cannot be opened at all.
    pub fn integrity(
        path: &Path,
        mut going_on: impl FnMut() + Send + 'static,
    ) -> Result<Vec<String>, Error> {
        let mut connection = look_at(path)?;
        let handler = move || {
            going_on();
            false
        };
        let set = connection.progress_handler(STEPS, Some(handler));
        set.map_err(|error| failed(path, &error))?;
        let mut found = rows(&connection, "PRAGMA integrity_check", |row| row.get(0))
            .or_else(|error| damage(path, &error))?;
        found.retain(|line| line != "ok");
        let keys = rows(&connection, "PRAGMA foreign_key_check", |row| {
            let (table, to): (String, String) = (row.get(0)?, row.get(2)?);
            let id = row.get::<_, Option<i64>>(1)?;
            let id = id.map_or_else(String::new, |id| format!(" {id}"));
            Ok(format!(
                "row{id} of {table} refers to a row of {to} that is not there"
            ))
        });
        found.extend(keys.or_else(|error| damage(path, &error))?);
        Ok(found)
    }
}

/// A connection that cannot write, to a file that is there.
pub(super) fn look_at(path: &Path) -> Result<Connection, Error> {
    let options = Options {
        create: false,
        ..Options::default()
    };
    make_file(path, &options)?;
    let connection = connect(path, &options, OpenFlags::SQLITE_OPEN_READ_ONLY);
    let connection = connection.map_err(|error| failed(path, &error))?;
    check_header(&connection, path)?;
    Ok(connection)
}

fn rows(
    connection: &Connection,
    sql: &str,
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<String>,
) -> rusqlite::Result<Vec<String>> {
    connection.prepare(sql)?.query_map([], read)?.collect()
}

/// A file so damaged that the check itself fails.
fn damage(path: &Path, error: &rusqlite::Error) -> Result<Vec<String>, Error> {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt) => Ok(vec![error.to_string()]),
        _ => Err(failed(path, error)),
    }
}
