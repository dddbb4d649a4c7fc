//! What the processes work on: one file, or a schema on a server.

use std::path::{Path, PathBuf};

use roundel::{Engine, EngineBuilder};
use rusqlite::{Connection, OpenFlags};

const IN_HAND: &str = "SELECT run.id, run.epoch FROM roundel_run AS run \
     JOIN roundel_worker AS worker ON worker.id = run.owner \
     WHERE run.ready_at IS NOT NULL AND run.state = 'running' AND worker.name = $1";

/// A run that is worked on, and under which epoch.
pub(crate) type InHand = (Vec<u8>, i64);

#[derive(Clone, Debug)]
pub(crate) enum Ground {
    File(PathBuf),
    #[cfg(feature = "postgres")]
    Server(crate::server::Site),
}

impl Ground {
    /// For somebody who is left alone.
    pub(crate) fn engine(&self) -> EngineBuilder {
        match self {
            Ground::File(file) => Engine::open(file),
            #[cfg(feature = "postgres")]
            Ground::Server(site) => site.engine(&site.direct),
        }
    }

    /// As arguments, for a process that is not left alone.
    pub(crate) fn arguments(&self) -> Vec<String> {
        match self {
            Ground::File(file) => vec![file.display().to_string()],
            #[cfg(feature = "postgres")]
            Ground::Server(site) => vec![
                site.beside.display().to_string(),
                site.through.clone(),
                site.schema.clone(),
            ],
        }
    }

    /// Beside this, processes leave what they have to say.
    pub(crate) fn beside(&self) -> &Path {
        match self {
            Ground::File(file) => file,
            #[cfg(feature = "postgres")]
            Ground::Server(site) => &site.beside,
        }
    }

    /// The runs that this process works on.
    pub(crate) async fn in_hand(&self, process: &str) -> Vec<InHand> {
        match self {
            Ground::File(file) => in_file(file, process),
            #[cfg(feature = "postgres")]
            Ground::Server(site) => site.in_hand(IN_HAND, process).await,
        }
    }

    /// The only number that this query gives.
    pub(crate) async fn count(&self, sql: &'static str) -> i64 {
        match self {
            Ground::File(file) => {
                let found = reader(file).query_row(sql, [], |row| row.get(0));
                found.expect("a count")
            }
            #[cfg(feature = "postgres")]
            Ground::Server(site) => site.count(sql).await,
        }
    }
}

fn reader(file: &Path) -> Connection {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
    Connection::open_with_flags(file, flags).expect("the file opens")
}

fn in_file(file: &Path, process: &str) -> Vec<InHand> {
    let own = reader(file);
    let mut rows = own.prepare(IN_HAND).expect("the engine's tables");
    let found = rows.query_map([process], |row| Ok((row.get(0)?, row.get(1)?)));
    found
        .and_then(Iterator::collect)
        .expect("rows that can be read")
}
