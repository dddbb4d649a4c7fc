//! Why something could not be measured.

use crate::limit;

/// Each variant names what failed: the raw limit, the engine, or the folder.
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
}
