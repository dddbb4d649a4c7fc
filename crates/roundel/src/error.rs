//! What a client is told when something could not be done.

use roundel_core::{BadName, Failure, Refusal, RunId, RunState};

/// Why a call of the client failed. Each variant is one thing to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Look at the failure: the run ended with it.
    #[error("run {run} ended as {}: {failure}", state.as_str())]
    Failed {
        /// Which run.
        run: RunId,
        /// How it ended.
        state: RunState,
        /// Why.
        failure: Box<Failure>,
    },
    /// Let an operator look: the run is parked.
    #[error("run {run} is parked and waits for an operator: {reason}")]
    Parked {
        /// Which run.
        run: RunId,
        /// Why.
        reason: Box<Failure>,
    },
    /// Correct the request.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Correct the name.
    #[error(transparent)]
    BadName(#[from] BadName),
    /// Correct the types: a value does not fit.
    #[error("{0}")]
    Value(String),
    /// Correct the program: it cannot be set up like this.
    #[error("{0}")]
    Setup(String),
    /// Restore the old code, or give the new code a version of its own: runs in flight do not go
    /// on with it.
    #[error("{0}")]
    Unfit(String),
    /// Try again: nothing happened.
    #[error("{0}")]
    Unavailable(String),
    /// Ask before repeating: it may have happened.
    #[error("{0}")]
    Unknown(String),
    /// Stop: the database cannot be used.
    #[error("{0}")]
    Unusable(String),
    /// Correct the statement: an operator's own.
    #[error("{0}")]
    Statement(String),
    /// There is no such run.
    #[error("there is no run {0} in this namespace; it may have been deleted")]
    NoSuchRun(String),
    /// The engine was shut down.
    #[error("the engine is shut down")]
    Closed,
}

impl From<roundel_store::Error> for Error {
    fn from(error: roundel_store::Error) -> Error {
        let text = error.to_string();
        match error {
            roundel_store::Error::Refused(refusal) => Error::Refused(refusal),
            roundel_store::Error::Unavailable(_) => Error::Unavailable(text),
            roundel_store::Error::Unknown(_) => Error::Unknown(text),
            roundel_store::Error::Unusable(_) => Error::Unusable(text),
            roundel_store::Error::Statement(_) => Error::Statement(text),
            roundel_store::Error::Closed => Error::Closed,
        }
    }
}

impl From<Failure> for Error {
    /// A value that could not be encoded or decoded.
    fn from(failure: Failure) -> Error {
        Error::Value(failure.to_string())
    }
}
