//! One side of a move, as a file.

use std::path::{Path, PathBuf};

use roundel_core::{Changes, GateId, Rows, RunRow, Timestamp};
use rusqlite::{Connection, OptionalExtension};

use super::columns::{self, run_columns};
use super::log::{Move, move_log};
use super::open::{self, failed};
use super::read::{Reader, page};
use super::write::Writes;
use super::{Options, read};
use crate::moving::{At, FIND_MOVED, HOLDS, Step, moved_message, of_records, put};
use crate::{Answer, Error, Query};

/// Runs in a page, and rows of other kinds.
const PAGE: usize = 500;
/// Kilobytes of pages in memory: more than the writer of an engine has, since all is one commit.
const CACHE: i64 = 64 << 10;

const OWNED: &str = concat!(
    "SELECT ",
    run_columns!(),
    " FROM roundel_run WHERE owner IS NOT NULL ORDER BY lease_until DESC LIMIT 1000"
);
const COUNT: &str = "SELECT count(*) FROM roundel_run";
const GATES: &str = "SELECT namespace, name, waiters, offers FROM roundel_gate \
     WHERE (namespace, name) > (?1, ?2) ORDER BY namespace, name LIMIT ?3";
const KEYS: &str = "SELECT namespace, kind, key, run, digest, sent FROM roundel_key \
     WHERE (namespace, kind, key) > (?1, ?2, ?3) AND run IS NULL \
     ORDER BY namespace, kind, key LIMIT ?4";
const PUBLICATIONS: &str = "SELECT id, namespace, topic, payload, by_run, by_execution, by_call, \
     at, heard, closes_at, deadlines, context FROM roundel_publication \
     WHERE id > ?1 ORDER BY id LIMIT ?2";
const SUBSCRIPTIONS: &str = "SELECT namespace, topic, workflow, since \
     FROM roundel_subscription ORDER BY namespace, topic, workflow";
const LANES: &str = "SELECT namespace, workflow, version FROM roundel_lane ORDER BY id";
const MARK: &str = "INSERT INTO roundel_meta (name, value) VALUES (?1, ?2) \
     ON CONFLICT DO UPDATE SET value = ?2";

type Found<T> = rusqlite::Result<T>;

/// In which words this file says that it was moved, if it was.
pub(super) fn moved(connection: &Connection) -> Found<Option<String>> {
    let mut statement = connection.prepare_cached(FIND_MOVED)?;
    statement.query_row([], |row| row.get(0)).optional()
}

/// Refuses a file that was moved.
pub(super) fn check_moved(connection: &Connection, path: &Path) -> Result<(), Error> {
    match moved(connection).map_err(|error| failed(path, &error))? {
        None => Ok(()),
        Some(mark) => Err(Error::Unusable(refusal(path, &mark))),
    }
}

/// The same, of a file that is not open.
pub(crate) fn check_unmarked(path: &Path) -> Result<(), Error> {
    check_moved(&super::file::look_at(path)?, path)
}

/// What is said of a file that was moved.
pub(super) fn refusal(path: &Path, mark: &str) -> String {
    moved_message(&path.display().to_string(), mark)
}

/// A file in one transaction.
pub(crate) struct Side {
    connection: Connection,
    path: PathBuf,
    /// The file was made for this, and goes if nothing comes of it.
    made: bool,
    options: Options,
}

impl Side {
    pub(crate) fn address(path: &Path) -> Result<String, Error> {
        let path = std::path::absolute(path)
            .map_err(|error| Error::Unusable(format!("{}: {error}", path.display())))?;
        // One file has one address, also behind a link, and before it is there.
        let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
        let new = match (folder, path.file_name()) {
            (Some(folder), Some(name)) => folder.join(name),
            _ => path.clone(),
        };
        let path = path.canonicalize().unwrap_or(new);
        Ok(path.display().to_string())
    }

    pub(crate) fn source(path: &Path) -> Result<Side, Error> {
        Side::open(path, false)
    }

    pub(crate) fn target(path: &Path) -> Result<Side, Error> {
        Side::open(path, true)
    }

    fn open(path: &Path, create: bool) -> Result<Side, Error> {
        let path = PathBuf::from(Side::address(path)?);
        let options = Options {
            create,
            ..Options::default()
        };
        let made = create && !path.exists();
        let (prepared, _) = open::prepare(&path, &options)?;
        if create {
            check_moved(&prepared, &path)?;
        }
        drop(prepared);
        let connection = open::writer(&path, &options)?;
        let side = Side {
            connection,
            path,
            made,
            options,
        };
        side.sql("BEGIN IMMEDIATE")?;
        side.done(side.connection.pragma_update(None, "cache_size", -CACHE))?;
        Ok(side)
    }

    fn done<T>(&self, done: Found<T>) -> Result<T, Error> {
        done.map_err(|error| failed(&self.path, &error))
    }

    fn sql(&self, sql: &str) -> Result<(), Error> {
        self.done(self.connection.execute_batch(sql))
    }

    fn reader(&self) -> Reader<'_> {
        Reader::of(&self.connection)
    }

    pub(crate) fn moved(&self) -> Result<Option<String>, Error> {
        self.done(moved(&self.connection))
    }

    pub(crate) fn holds(&self) -> Result<Vec<String>, Error> {
        self.done(self.reader().all(HOLDS, [], |row| row.get(0)))
    }

    // As the other kind has it.
    #[allow(clippy::unnecessary_wraps)]
    pub(crate) fn now(&self) -> Result<Timestamp, Error> {
        Ok(self.options.clock.now())
    }

    pub(crate) fn count(&self) -> Result<u64, Error> {
        let count = self.connection.query_row(COUNT, [], |row| row.get(0));
        self.done(count.map(i64::unsigned_abs))
    }

    pub(crate) fn owned(&self) -> Result<Vec<RunRow>, Error> {
        self.done(self.reader().all(OWNED, [], columns::run))
    }

    pub(crate) fn read(&self, query: &Query) -> Result<Answer, Error> {
        self.done(self.reader().answer(query))
    }

    pub(crate) fn page(&self, at: &At) -> Result<Step, Error> {
        self.done(self.next_page(at))
    }

    fn next_page(&self, at: &At) -> Found<Step> {
        let (reader, mut changes, most) = (self.reader(), Changes::default(), page(PAGE));
        let found = match at {
            At::Lanes => {
                changes.first_lane = 1;
                changes.lanes = reader.all(LANES, [], |row| columns::lane(row, 0))?;
                0
            }
            At::Runs(after) => return Ok(of_records(reader.bare_records(*after, PAGE)?)),
            At::Gates(after) => {
                let (namespace, name) = gate_names(after.as_ref());
                let gates = reader.all(GATES, (namespace, name, most), |row| {
                    Ok((read::gate_id(row)?, columns::gate(row, 2)?))
                })?;
                changes.gates = put(gates).collect();
                changes.gates.len()
            }
            At::Offers(after) => {
                let offers = reader.bare_offers(after.as_ref(), most)?;
                changes.offers = put(offers).collect();
                changes.offers.len()
            }
            At::Keys(after) => {
                let after = after.as_ref();
                let (namespace, kind, key) = after.map_or(("", "", ""), |id| {
                    (id.namespace.as_str(), id.kind.as_str(), id.key.as_str())
                });
                let keys = reader.all(KEYS, (namespace, kind, key, most), |row| {
                    Ok((columns::key_id(row)?, columns::key(row, 3)?))
                })?;
                changes.keys = put(keys).collect();
                changes.keys.len()
            }
            At::Publications(after) => {
                let after = after.map_or_else(Vec::new, |id| id.as_bytes().to_vec());
                let found = reader.all(PUBLICATIONS, (after, most), columns::publication)?;
                changes.publications = put(found).collect();
                changes.publications.len()
            }
            At::Subscriptions => {
                let found = reader.all(SUBSCRIPTIONS, [], columns::subscription)?;
                changes.subscriptions = put(found).collect();
                let queues = reader.all(read::DUMP_QUEUES, [], columns::queue)?;
                changes.queues = put(queues).collect();
                0
            }
            At::Workers => {
                let workers = reader.workers()?.into_iter().map(|row| (row.id, row));
                changes.workers = put(workers).collect();
                0
            }
            At::Audit(_) | At::Facts(_) | At::Documents(_) | At::Projections => {
                unreachable!("it is asked for as everywhere")
            }
        };
        let next = at.next(&changes, found == PAGE);
        Ok((changes, next))
    }

    pub(crate) fn write(&self, changes: &Changes, rows: &Rows) -> Result<(), Error> {
        let written =
            Writes::new(&self.connection).and_then(|mut writes| writes.all(changes, rows));
        self.done(written)
    }

    // As the other kind has it.
    #[allow(clippy::unnecessary_wraps, clippy::unused_self)]
    pub(crate) fn settle(&self) -> Result<(), Error> {
        Ok(())
    }

    pub(crate) fn mark(&self, mark: &str) -> Result<(), Error> {
        let at = self.options.clock.now().0;
        self.done(self.connection.execute(MARK, (mark, at)).map(drop))
    }

    pub(crate) fn commit(mut self) -> Result<(), Error> {
        self.sql("COMMIT")?;
        self.made = false;
        move_log(&self.connection, Move::Truncate);
        Ok(())
    }
}

impl Drop for Side {
    /// Leaves no file behind that nothing came of.
    fn drop(&mut self) {
        let _ = self.connection.execute_batch("ROLLBACK");
        if self.made {
            for end in ["", "-wal", "-shm"] {
                let mut path = self.path.clone().into_os_string();
                path.push(end);
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

fn gate_names(gate: Option<&GateId>) -> (&str, &str) {
    gate.map_or(("", ""), |gate| {
        (gate.namespace.as_str(), gate.name.as_str())
    })
}
