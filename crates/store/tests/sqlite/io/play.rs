//! The script on a disk, by a client that repeats what was not acknowledged.

use std::path::{Path, PathBuf};
use std::time::Duration;

use roundel_store::{Depth, Error, Options, Query, Request, Sqlite, Store};
use rusqlite::Connection;
use tempfile::TempDir;

use super::script::{Deed, Wish};
use crate::disk::{Disk, Mounted, Plan};
use crate::tools::{File, collector, read, wait_for};

/// Repetitions of one deed; a fault passes long before.
const TRIES: usize = 100;
const A_MOMENT: Duration = Duration::from_millis(5);

/// What a file holds: the engine's rows and the user's.
pub(crate) fn state(store: &Sqlite, path: &Path) -> Result<String, Error> {
    let dump = read(store, Query::Dump)?;
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
    let ledger = Connection::open_with_flags(path, flags).and_then(|own| {
        let tables = "SELECT count(*) FROM sqlite_schema WHERE name = 'ledger'";
        let rows = "SELECT count(*) FROM ledger";
        let count = |sql| own.query_row(sql, [], |row| row.get::<_, i64>(0));
        match count(tables)? {
            0 => Ok(None),
            _ => count(rows).map(Some),
        }
    });
    let ledger = ledger.map_err(|error| Error::Unavailable(error.to_string()))?;
    Ok(format!("{ledger:?} {dump:?}"))
}

/// The script on a disk, with two stores on one file.
pub(crate) struct Play<'a> {
    folder: TempDir,
    pub(crate) file: File,
    pub(crate) disk: Mounted,
    pub(crate) stores: Vec<Sqlite>,
    current: usize,
    /// The longest log, in bytes.
    pub(crate) longest: u64,
    /// How long a request may take.
    pub(crate) patience: Duration,
    /// The power goes when a deed is said not to have happened.
    pub(crate) cut: bool,
    /// The states before and after each deed, if they are known.
    states: &'a [String],
}

/// How a deed ended.
#[derive(PartialEq, Eq)]
pub(crate) enum Ended {
    Done,
    /// The power is gone.
    Dead,
}

/// In memory, where there is such a place.
pub(crate) fn folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

impl<'a> Play<'a> {
    pub(crate) fn new(plan: Plan, states: &'a [String]) -> Play<'a> {
        let folder = folder();
        let disk = Disk::mount(folder.path(), plan);
        Play {
            folder,
            file: File::new(),
            disk,
            stores: Vec::new(),
            current: 0,
            longest: 0,
            patience: Options::default().answer_within,
            cut: false,
            states,
        }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("runs.db")
    }

    pub(crate) fn open(&mut self) -> Ended {
        for _ in 0..TRIES {
            if self.disk.is_dead() {
                return Ended::Dead;
            }
            let options = Options {
                answer_within: self.patience,
                ..self.file.options()
            };
            match Sqlite::open(&self.path(), options) {
                Ok(store) => self.stores.push(store),
                Err(error) => assert!(self.disk.struck().is_some(), "on a good disk: {error}"),
            }
            if self.stores.len() == 2 {
                return Ended::Done;
            }
        }
        panic!("the file does not open any more");
    }

    pub(crate) fn close(&mut self) {
        for store in self.stores.drain(..) {
            store.close();
        }
    }

    pub(crate) fn deed(&mut self, number: usize, deed: &Deed) -> Ended {
        match deed {
            Deed::Ask(wishes) => {
                let ended = self.ask(number, wishes);
                let log = std::fs::metadata(self.folder.path().join("runs.db-wal"));
                self.longest = self.longest.max(log.map_or(0, |log| log.len()));
                ended
            }
            Deed::Reopen => {
                self.close();
                self.open()
            }
            Deed::Switch => {
                self.current = 1 - self.current;
                Ended::Done
            }
            Deed::Checkpoint => {
                // If this one fails, a later one will do.
                let sql = "PRAGMA wal_checkpoint(TRUNCATE)";
                let _ = Connection::open(self.path()).and_then(|own| own.execute_batch(sql));
                Ended::Done
            }
        }
    }

    fn ask(&mut self, number: usize, wishes: &[Wish]) -> Ended {
        let mut left = wishes.to_vec();
        let mut last = None;
        for _ in 0..TRIES {
            let Some(results) = self.submit(&left) else {
                return Ended::Dead;
            };
            let mut again = Vec::new();
            let mut unknown = false;
            for (wish, result) in left.into_iter().zip(results) {
                match result {
                    Ok(_) => {}
                    Err(error) => {
                        assert!(self.disk.struck().is_some(), "on a good disk: {error}");
                        assert!(error.is_passing(), "deed {number}, {wish:?}: {error}");
                        unknown |= matches!(error, Error::Unknown(_));
                        again.push(wish);
                        last = Some(error);
                    }
                }
            }
            if again.is_empty() || (unknown && self.happened(number)) {
                return Ended::Done;
            }
            if self.cut && !unknown && again.len() == wishes.len() {
                self.disk.cut();
                return Ended::Dead;
            }
            left = again;
        }
        panic!("deed {number} does not succeed any more: {last:?}");
    }

    /// None when the power went.
    fn submit(&self, wishes: &[Wish]) -> Option<Vec<Result<roundel_core::Reply, Error>>> {
        let (sink, answers) = collector();
        let request = |(tag, wish): (usize, &Wish)| Request {
            ask: Box::new(wish.ask()),
            tag: tag as u64,
            sink: sink.clone(),
        };
        let requests = wishes.iter().enumerate().map(request).collect();
        self.stores[self.current].submit(requests);
        let mut found = Vec::new();
        while found.len() < wishes.len() {
            match answers.recv_timeout(A_MOMENT) {
                Ok(answer) => found.push(answer),
                Err(_) if self.disk.is_dead() => return None,
                Err(_) => {}
            }
        }
        if self.disk.is_dead() && found.iter().any(|answer| answer.result.is_err()) {
            return None;
        }
        found.sort_by_key(|answer| answer.tag);
        Some(found.into_iter().map(|answer| answer.result).collect())
    }

    /// Asks the file; under the write lock, because a slow commit may still be under way.
    fn happened(&self, number: usize) -> bool {
        let path = self.path();
        let store = &self.stores[self.current];
        let look = || -> Result<String, Error> {
            let own = Connection::open(&path).and_then(|own| {
                own.execute_batch("BEGIN IMMEDIATE")?;
                Ok(own)
            });
            let _own = own.map_err(|error| Error::Unavailable(error.to_string()))?;
            state(store, &path)
        };
        let found = (0..TRIES).find_map(|_| {
            let state = look();
            state.inspect_err(|_| std::thread::sleep(A_MOMENT)).ok()
        });
        let found = found.expect("the rows can be read again");
        let place = self.states[number..=number + 1]
            .iter()
            .position(|known| *known == found);
        place.expect("an unknown deed happened wholly or not at all") == 1
    }
}

/// The state of a file that is opened on a good disk, if nothing is wrong with it.
pub(crate) fn found(path: &Path, clock: &File) -> Result<String, String> {
    let store = Sqlite::open(path, clock.options()).map_err(|error| error.to_string())?;
    let mut wrong = Vec::new();
    let checked = wait_for(roundel_store::verify(&store, Depth::Rows, |_, found| {
        wrong.extend(found.iter().map(ToString::to_string));
    }));
    let checked = checked.map_err(|error| error.to_string());
    let found = checked.and_then(|_| state(&store, path).map_err(|error| error.to_string()));
    store.close();
    drop(store);
    wrong.extend(Sqlite::integrity(path, || ()).map_err(|error| error.to_string())?);
    match wrong.is_empty() {
        true => found,
        false => Err(wrong.join("; ")),
    }
}
