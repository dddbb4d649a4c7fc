//! Backups, and what is done when one is put back.
//!
//! | it ends | there is |
//! |---|---|
//! | while it is copied or checked | a file that ends in `.part`, if it was killed; or nothing |
//! | afterwards | the whole copy, checked, under its name |
//!
//! A database that was put back is another than the one before, though it has the same runs.
//! Workers of that one may live on: they hold leases, and have runs in memory whose later rounds
//! are lost. So every run's epoch is raised by more than the lost rounds can have raised it, the
//! rows of committers go, and the time of the restore is noted: a process that had the database
//! open before finds another time there when it is about to commit, and commits nothing.
//!
//! Absent on purpose: backups of a server. A copy of the engine's tables alone would part them from
//! the user's, which commit with them; a server's own tools take both. What they put back is fenced
//! in place.

use std::path::Path;

use roundel_core::check::Violation;
use roundel_core::{Op, Release, RunId, RunState, WorkerId};

use crate::moving::Place;
use crate::sqlite::backup::{self, Part};
use crate::verify::{Depth, Verifying};
use crate::{Answer, Checked, Clock, Error, Query, RunFilter, Sqlite, Store, SystemClock, ask};

/// When the database was last put back.
pub(crate) const FIND_RESTORED: &str = "SELECT value FROM roundel_meta WHERE name = 'restored'";
/// Whoever has it open must make a row again to commit anything, and is told then.
pub(crate) const FORGET: &str = "DELETE FROM roundel_committer";
/// No worker of the database before has an epoch that counts in this one: 2 to the power of 32.
pub(crate) const RAISE: &str = "UPDATE roundel_run SET epoch = epoch + 4294967296";

/// Runs in a page, and leases that are given up at once.
const PAGE: usize = 500;

/// How far it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Pages that were copied, of so many.
    Copying(u64, u64),
    /// The file itself is read and checked.
    Reading,
    /// Runs that were checked.
    Checking(u64),
}

/// A copy that was made.
#[derive(Debug)]
pub struct Copied {
    /// Its bytes.
    pub bytes: u64,
    /// What was looked at; nothing if its schema is older than this program's.
    pub checked: Option<Checked>,
    /// What is wrong with the file, or the first thing that is wrong with its rows.
    pub wrong: Vec<String>,
    /// Leases that were given up: of a database that was put back.
    pub freed: usize,
}

/// Copies a file that others may be working on, and checks the copy.
///
/// # Errors
/// When there is no such database, when something has the name of the copy, or when it cannot be
/// written.
pub fn back_up(from: &Path, to: &Path, told: &mut dyn FnMut(Stage)) -> Result<Copied, Error> {
    let schema = Sqlite::schema(from)?;
    let here = crate::sqlite::Side::address(from)?;
    crate::sqlite::check_unmarked(from)?;
    let part = Part::of(to)?;
    let bytes = backup::copy(from, &part, told)?;
    let wrong = file(&part, told)?;
    let mut copied = Copied {
        bytes,
        checked: None,
        wrong,
        freed: 0,
    };
    if schema.missing.is_empty() && copied.wrong.is_empty() {
        let store = Sqlite::copy_at(part.path())?;
        rows(&store, &mut copied, told)?;
        store.close();
    }
    backup::mark(part.path(), &here, SystemClock::default().now().0)?;
    part.put_in_place()?;
    Ok(copied)
}

/// Makes a database of a backup, under a name that is free. Those who worked on the database that
/// it is a backup of, and live on, can commit nothing to it.
///
/// # Errors
/// When it is no backup, when something has the name, or when it cannot be written.
pub fn restore(from: &Path, to: &Path, told: &mut dyn FnMut(Stage)) -> Result<Copied, Error> {
    Sqlite::schema(from)?;
    if !backup::is_backup(from)? {
        return Err(Error::Unusable(format!(
            "{} is not a backup that `roundel backup` has made: if it is in use, its runs would go \
             on twice. A copy that was made otherwise is put in its place by hand; then `roundel \
             restore --in-place` fences those who worked on the one before",
            from.display()
        )));
    }
    let part = Part::of(to)?;
    let bytes = backup::copy(from, &part, told)?;
    let wrong = file(&part, told)?;
    let mut copied = Copied {
        bytes,
        checked: None,
        wrong,
        freed: 0,
    };
    if copied.wrong.is_empty() {
        Sqlite::migrate(part.path())?;
        backup::fence(part.path(), SystemClock::default().now().0)?;
        let store = Sqlite::copy_at(part.path())?;
        copied.freed = free(&store)?;
        rows(&store, &mut copied, told)?;
        store.close();
    } else {
        return Err(Error::Unusable(format!(
            "{} is damaged, and nothing was made of it: {}; take another backup",
            from.display(),
            copied.wrong.join("; ")
        )));
    }
    part.put_in_place()?;
    Ok(copied)
}

/// Fences those who worked on a database before it was put back by other means, where it is.
/// Returns how many leases were given up.
///
/// # Errors
/// When it cannot be used.
pub fn fence(place: &Place) -> Result<usize, Error> {
    match place {
        Place::File(path) => {
            let options = crate::Options {
                create: false,
                ..crate::Options::default()
            };
            // It is one that can be used.
            Sqlite::open(path, options.clone())?.close();
            backup::fence(path, SystemClock::default().now().0)?;
            let store = Sqlite::open(path, options)?;
            let freed = free(&store)?;
            store.close();
            Ok(freed)
        }
        #[cfg(feature = "postgres")]
        Place::Server { url, schema } => {
            run(crate::postgres::Side::fence(url, schema))?;
            let options = crate::PostgresOptions {
                schema: schema.clone(),
                create: false,
                ..crate::PostgresOptions::default()
            };
            let store = crate::Postgres::open(url, options)?;
            let freed = free(&store)?;
            store.close();
            Ok(freed)
        }
    }
}

/// What is said to whoever had the database open before it was put back.
pub(crate) fn refusal(here: &str) -> String {
    format!(
        "{here} was restored from a backup while it was open here: what this process has in memory \
         may never have happened, and nothing more is committed; restart it"
    )
}

fn file(part: &Part, told: &mut dyn FnMut(Stage)) -> Result<Vec<String>, Error> {
    told(Stage::Reading);
    Sqlite::integrity(part.path(), || {})
}

fn rows(store: &dyn Store, copied: &mut Copied, told: &mut dyn FnMut(Stage)) -> Result<(), Error> {
    let mut first: Option<Violation> = None;
    let mut verifying = Verifying::new(Depth::Entries);
    run(async {
        while let Some(query) = verifying.next() {
            let found = verifying.take(store.read(query).await?);
            first = first.take().or(found.into_iter().next());
            told(Stage::Checking(verifying.checked.runs));
        }
        Ok(())
    })?;
    if let Some(first) = first {
        let count = verifying.checked.violations;
        copied.wrong.push(match count {
            1 => first.to_string(),
            _ => format!("{count} violations, the first is {first}"),
        });
    }
    copied.checked = Some(verifying.checked);
    Ok(())
}

/// Gives up every lease, and forgets every worker. No fault of the runs.
fn free(store: &dyn Store) -> Result<usize, Error> {
    let mut freed = 0;
    for (worker, runs) in run(leased(store))? {
        for runs in runs.chunks(PAGE) {
            let release = Release {
                worker,
                runs: runs.to_vec(),
                leave: false,
            };
            ask(store, Op::Release(release))?;
            freed += runs.len();
        }
    }
    let Answer::Workers(workers) = run(store.read(Query::Workers))? else {
        unreachable!("workers were asked for")
    };
    for worker in workers {
        let release = Release {
            worker: worker.id,
            runs: Vec::new(),
            leave: true,
        };
        ask(store, Op::Release(release))?;
    }
    Ok(freed)
}

/// The runs that workers have, or had, by worker.
async fn leased(
    store: &dyn Store,
) -> Result<std::collections::BTreeMap<WorkerId, Vec<RunId>>, Error> {
    let Answer::Lanes(lanes) = store.read(Query::Lanes).await? else {
        unreachable!("lanes were asked for")
    };
    let namespaces: std::collections::BTreeSet<_> =
        lanes.into_iter().map(|lane| lane.namespace).collect();
    let mut found = std::collections::BTreeMap::<WorkerId, Vec<RunId>>::new();
    for namespace in namespaces {
        for state in [RunState::Running, RunState::RollingBack] {
            let mut filter = RunFilter::of(namespace.clone(), PAGE);
            filter.state = Some(state);
            loop {
                let Answer::Looked(runs) = store.read(Query::Runs(filter.clone())).await? else {
                    unreachable!("runs were asked for")
                };
                for run in &runs.items {
                    if let Some(owner) = run.row.owner {
                        found.entry(owner).or_default().push(run.row.id);
                    }
                }
                filter.before = runs.next;
                if filter.before.is_none() {
                    break;
                }
            }
        }
    }
    Ok(found)
}

/// Waits for what is asked of a store, on a thread that has nothing else to do.
fn run<T>(asked: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::Unavailable(error.to_string()))?;
    runtime.block_on(asked)
}
