//! Why something could not be measured.

use crate::limit;

/// Each variant names what failed: the raw limit, the engine, the folder, the server, or another
/// worker process.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The raw limit.
    #[error(transparent)]
    Limit(#[from] limit::Error),
    /// The engine.
    #[error(transparent)]
    Engine(#[from] roundel::Error),
    /// The folder.
    #[error("a folder for the measurement could not be made: {0}")]
    Folder(#[from] std::io::Error),
    /// The server, or a table that is made there only to be measured.
    #[error(
        "the server failed: {0}; the user needs the right to create schemas, and those that are \
         left have names that begin with roundel_bench_"
    )]
    Server(#[from] sqlx::Error),
    /// Another worker process.
    #[error("another worker process {0}")]
    Process(String),
    /// Several processes on one file would only wait for each other.
    #[error("several worker processes need a server: say --db postgres://...")]
    Alone,
    /// On a file nobody else's transaction is in the way.
    #[error("this is measured on a server: say --db postgres://...")]
    NoServer,
}
