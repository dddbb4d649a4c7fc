//! Looks for commits of other processes, closely while somebody waits for them.
//!
//! The file's version changes with every commit, also with our own; so when it has changed, the
//! committer rows say whether another process was among those who committed.

use std::sync::atomic::Ordering;
use std::time::Duration;

use rusqlite::{Connection, Statement};

use super::open;
use super::shared::Shared;

const CLOSELY: Duration = Duration::from_millis(10);
const AT_REST: Duration = Duration::from_millis(100);
/// After an error, so that a file that cannot be read is not hammered.
const AFTER_ERROR: Duration = Duration::from_secs(1);

const OTHERS: &str = "SELECT coalesce(sum(batch), 0), count(*) FROM roundel_committer \
     WHERE incarnation <> ?1";

/// The thread.
pub(super) fn run(shared: &Shared) {
    while !shared.pause.is_closed() {
        let looked = open::reader(&shared.path, &shared.options)
            .map_err(|error| error.to_string())
            .and_then(|connection| look(shared, &connection).map_err(|error| error.to_string()));
        if let Err(error) = looked {
            tracing::warn!(%error, "cannot look for commits of other processes");
            shared.pause.wait(AFTER_ERROR);
        }
    }
}

fn look(shared: &Shared, connection: &Connection) -> rusqlite::Result<()> {
    let mut version = connection.prepare("PRAGMA data_version")?;
    let mut others = connection.prepare(OTHERS)?;
    let (mut seen, mut known) = (None, count(&mut others, &shared.incarnation)?);
    loop {
        let now: i64 = version.query_row([], |row| row.get(0))?;
        if seen.replace(now) != Some(now) {
            let found = count(&mut others, &shared.incarnation)?;
            if std::mem::replace(&mut known, found) != found {
                shared.listeners.others_committed();
            }
        }
        let closely = shared.closely.load(Ordering::Relaxed);
        if shared.pause.wait(if closely { CLOSELY } else { AT_REST }) {
            return Ok(());
        }
    }
}

/// Changes whenever another process commits.
fn count(others: &mut Statement<'_>, own: &[u8; 16]) -> rusqlite::Result<(i64, i64)> {
    others.query_row([own], |row| Ok((row.get(0)?, row.get(1)?)))
}
