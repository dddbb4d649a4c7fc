//! Moves everything from one database to another: between SQLite and PostgreSQL, both ways, and
//! between two of a kind. Runs go on there where they stood.
//!
//! Each side is one transaction, which nobody else writes beside. What is read is written page by
//! page, read again, compared and verified. Then the source says that it was moved, and that is
//! committed; then the target is.
//!
//! | it ends | the source | the target | what to do |
//! |---|---|---|---|
//! | before the first commit | as it was | as it was | move again |
//! | between the two | refuses to be opened | as it was, so empty | the same again, which goes on |
//! | after both | refuses to be opened | has everything | open the target |
//!
//! So there is no moment at which runs could go on in both. Processes that have the source open
//! find out with their next commit.
//!
//! Absent on purpose: the user's own tables, of which nothing is known here; and a way to move
//! while somebody works. A lease is a promise that its run goes on here, and lasts for seconds.

mod side;
mod tally;

use std::path::PathBuf;

use roundel_core::check::Violation;
use roundel_core::{Changes, Lane, Rows, RunChange, WorkerRow, Write};

use crate::Error;
use crate::verify::{Depth, Verifying};
use side::Side;
pub(crate) use side::{At, Step, of_records, put};
use tally::Tally;

/// How a source says that it was moved, and a copy that it is a backup: the name has where to, or
/// of what, the value when.
pub(crate) const FIND_MOVED: &str =
    "SELECT name FROM roundel_meta WHERE name LIKE 'moved to %' OR name LIKE 'backup of %'";
/// Which of the tables hold anything.
pub(crate) const HOLDS: &str = "SELECT name FROM ( \
     SELECT 'runs' AS name, EXISTS (SELECT 1 FROM roundel_run) AS there UNION ALL \
     SELECT 'journals', EXISTS (SELECT 1 FROM roundel_journal) UNION ALL \
     SELECT 'workflows', EXISTS (SELECT 1 FROM roundel_lane) UNION ALL \
     SELECT 'messages', EXISTS (SELECT 1 FROM roundel_mail) UNION ALL \
     SELECT 'offers', EXISTS (SELECT 1 FROM roundel_offer) UNION ALL \
     SELECT 'keys', EXISTS (SELECT 1 FROM roundel_key) UNION ALL \
     SELECT 'publications', EXISTS (SELECT 1 FROM roundel_publication) UNION ALL \
     SELECT 'subscriptions', EXISTS (SELECT 1 FROM roundel_subscription) UNION ALL \
     SELECT 'workers', EXISTS (SELECT 1 FROM roundel_worker) UNION ALL \
     SELECT 'facts', EXISTS (SELECT 1 FROM roundel_fact) UNION ALL \
     SELECT 'projections', EXISTS (SELECT 1 FROM roundel_projection) UNION ALL \
     SELECT 'documents', EXISTS (SELECT 1 FROM roundel_document) UNION ALL \
     SELECT 'an audit', EXISTS (SELECT 1 FROM roundel_audit)) AS tables WHERE there";

/// Which database.
#[derive(Clone)]
pub enum Place {
    /// An SQLite file.
    File(PathBuf),
    /// A schema of a PostgreSQL database.
    #[cfg(feature = "postgres")]
    Server {
        /// `postgres://user@host/database`
        url: String,
        /// The schema.
        schema: String,
    },
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::File(path) => write!(f, "Place({})", path.display()),
            #[cfg(feature = "postgres")]
            Place::Server { schema, .. } => write!(f, "Place(a server, schema {schema})"),
        }
    }
}

/// What is being done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Rows are read and written.
    Copying,
    /// They are read again, and compared with what was written.
    Comparing,
    /// What must be true of them is checked.
    Checking,
}

/// How far it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moving {
    /// What is being done.
    pub phase: Phase,
    /// Runs that it was done with.
    pub done: u64,
    /// Runs that there are.
    pub of: u64,
}

/// What was moved.
#[derive(Clone, PartialEq, Debug)]
pub struct Moved {
    /// From where, without a password.
    pub from: String,
    /// Where to.
    pub to: String,
    /// Rows of each kind.
    pub rows: Vec<(&'static str, u64)>,
    /// A digest of all of them, the same on both sides.
    pub digest: String,
    /// Workers that did not say goodbye: they crashed, or have the source open and are idle.
    pub workers: Vec<String>,
}

/// Moves everything. It takes its time, and may be killed at any moment.
///
/// # Errors
/// When either cannot be used, somebody works at the source, the target is not empty, or what was
/// written is not what was read. The message says what is to be done.
pub fn move_database(
    from: &Place,
    to: &Place,
    told: &mut dyn FnMut(&Moving),
) -> Result<Moved, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::Unavailable(error.to_string()))?;
    runtime.block_on(carry(from, to, told))
}

async fn carry(from: &Place, to: &Place, told: &mut dyn FnMut(&Moving)) -> Result<Moved, Error> {
    let (here, there) = (from.address()?, to.address()?);
    if here == there {
        let message = format!("{here} is where it is; name another database to move it to");
        return Err(Error::Unusable(message));
    }
    let mut source = Side::source(from).await?;
    let before = source.moved().await?;
    if let Some(mark) = before.as_ref().filter(|mark| **mark != marked(&there)) {
        return Err(Error::Unusable(moved_message(&here, mark)));
    }
    let workers = at_rest(&mut source, &here).await?;
    let mut target = Side::target(to).await?;
    let holds = target.holds().await?;
    if !holds.is_empty() {
        let already = match before {
            Some(_) => format!("{here} was moved there already; "),
            None => String::new(),
        };
        return Err(Error::Unusable(format!(
            "{already}{there} is not empty: it has {}; \
             a database is moved only to where there is nothing yet",
            holds.join(", ")
        )));
    }
    let mut report = Report {
        of: source.count().await?,
        told,
    };
    let tally = copy(&mut source, &mut target, &mut report).await?;
    compare(&mut target, &tally, &mut report).await?;
    check(&mut target, &here, &mut report).await?;
    source.mark(&marked(&there)).await?;
    source.commit().await?;
    let arrived = target.commit().await;
    arrived.map_err(|error| {
        Error::Unavailable(format!(
            "{error}; {here} says already that it was moved, so that nothing can go on twice: \
             run the same command again, which goes on from there"
        ))
    })?;
    Ok(Moved {
        from: here,
        to: there,
        rows: tally.rows(),
        digest: tally.digest(),
        workers,
    })
}

/// The words in which a source says where it was moved to.
fn marked(there: &str) -> String {
    format!("moved to {there}")
}

/// What is said to whoever opens what was moved, or a backup.
pub(crate) fn moved_message(here: &str, mark: &str) -> String {
    if mark.starts_with("backup of ") {
        return format!(
            "{here} is a {mark}: if its runs went on here, they would go on twice; `roundel \
             restore` makes a database of it, and `roundel verify` checks it"
        );
    }
    format!(
        "{here} was {mark}, where its runs go on: open that one. If that is lost, delete the row \
         '{mark}' from roundel_meta here; what happened there since is then unknown, and effects \
         may be made again"
    )
}

/// Refuses a source that somebody works on. Returns the names of those who may have it open.
async fn at_rest(source: &mut Side, here: &str) -> Result<Vec<String>, Error> {
    let now = source.now().await?;
    let workers = source.workers().await?;
    let name = |row: &WorkerRow| row.name.clone();
    let mut busy: Vec<String> = Vec::new();
    let mut until = now;
    for row in source.owned().await? {
        if !row.is_leased(now) {
            continue;
        }
        until = until.max(row.lease_until.unwrap_or(now));
        let owner = workers.iter().find(|worker| Some(worker.id) == row.owner);
        let owner = owner.map_or_else(|| "an unknown worker".to_owned(), name);
        if !busy.contains(&owner) {
            busy.push(owner);
        }
    }
    if busy.is_empty() {
        return Ok(workers.iter().map(name).collect());
    }
    let seconds = until.since(now).as_secs() + 1;
    Err(Error::Unavailable(format!(
        "somebody works on {here}: {}; stop them, and try again. What a worker that crashed had in \
         hand is free in {seconds} s at the latest",
        busy.join(", ")
    )))
}

struct Report<'a> {
    of: u64,
    told: &'a mut dyn FnMut(&Moving),
}

impl Report<'_> {
    fn say(&mut self, phase: Phase, done: u64) {
        let of = self.of;
        (self.told)(&Moving { phase, done, of });
    }
}

async fn copy(
    source: &mut Side,
    target: &mut Side,
    report: &mut Report<'_>,
) -> Result<Tally, Error> {
    let (mut tally, mut lanes) = (Tally::default(), Vec::<Lane>::new());
    let mut at = Some(At::Lanes);
    while let Some(here) = at {
        let (changes, next) = source.page(here).await?;
        lanes.extend(changes.lanes.iter().cloned());
        tally.add(&changes);
        let mut changes = changes;
        for (_, write) in &mut changes.projections {
            if let Write::Insert(row) | Write::Update(row) = write {
                target.place(row).await?;
            }
        }
        let rows = beside(&changes, &lanes)?;
        target.write(&changes, &rows).await?;
        report.say(Phase::Copying, tally.runs());
        at = next;
    }
    Ok(tally)
}

/// The runs of the waits that are written, which say in which namespace they are.
fn beside(changes: &Changes, lanes: &[Lane]) -> Result<Rows, Error> {
    let mut rows = Rows::default();
    rows.load_lanes(lanes.to_vec());
    for row in changes.runs.iter().map(RunChange::row) {
        rows.load_run(row.id, Some(row.clone()));
    }
    let orphan = changes
        .waits
        .iter()
        .find(|(id, _)| rows.run(id.run).is_none());
    match orphan {
        None => Ok(rows),
        Some((id, _)) => Err(Error::Unusable(format!(
            "run {} waits for a signal and does not exist; nothing was moved; \
             see what `roundel verify` says of it",
            id.run
        ))),
    }
}

async fn compare(target: &mut Side, read: &Tally, report: &mut Report<'_>) -> Result<(), Error> {
    target.settle().await?;
    let mut found = Tally::default();
    let mut at = Some(At::Lanes);
    while let Some(here) = at {
        let (changes, next) = target.page(here).await?;
        found.add(&changes);
        report.say(Phase::Comparing, found.runs());
        at = next;
    }
    match found == *read {
        true => Ok(()),
        false => Err(Error::Unusable(format!(
            "what was written is not what was read, so nothing was moved: read {:?}, digest {}; \
             written {:?}, digest {}; this is a bug, or a disk that fails",
            read.rows(),
            read.digest(),
            found.rows(),
            found.digest()
        ))),
    }
}

async fn check(target: &mut Side, here: &str, report: &mut Report<'_>) -> Result<(), Error> {
    let mut first: Option<Violation> = None;
    let mut verifying = Verifying::new(Depth::Entries);
    while let Some(query) = verifying.next() {
        let found = verifying.take(target.read(query).await?);
        first = first.or(found.into_iter().next());
        report.say(Phase::Checking, verifying.checked.runs);
    }
    match first {
        None => Ok(()),
        Some(first) => Err(Error::Unusable(format!(
            "{here} is not sound: {} violations, the first is {first}; nothing was moved; \
             `roundel verify` says more",
            verifying.checked.violations
        ))),
    }
}
