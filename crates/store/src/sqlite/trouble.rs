//! What went wrong in a batch, by what the writer must do about it. Told apart by SQLite's result
//! codes, never by text.

use rusqlite::ErrorCode;

/// Why a batch was not committed.
#[derive(Debug)]
pub(super) enum Trouble {
    /// Nothing happened, and it may pass: everybody may try again.
    Passing(String),
    /// The same, and the connection is not to be trusted any more.
    Broken(String),
    /// A statement failed for a reason of its own: find out whose it was.
    Culprit(String),
    /// Something panicked: find out whose it was.
    Panic(String),
    /// The database was moved: nothing is ever committed here again.
    Moved(String),
    /// The step of this request ended the transaction.
    Ended(usize),
    /// The commit failed in a way that leaves its outcome open.
    Doubt(String),
}

impl From<rusqlite::Error> for Trouble {
    /// For statements before the commit: whatever happened, nothing is committed.
    fn from(error: rusqlite::Error) -> Trouble {
        let message = error.to_string();
        match error.sqlite_error_code() {
            Some(
                ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::DiskFull
                | ErrorCode::OutOfMemory
                | ErrorCode::ReadOnly
                | ErrorCode::OperationInterrupted,
            ) => Trouble::Passing(message),
            Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen) => Trouble::Broken(message),
            _ => Trouble::Culprit(message),
        }
    }
}

impl Trouble {
    /// For the commit itself: unless the database says that it rolled back, the rows may be there
    /// after a restart.
    pub(super) fn of_commit(error: &rusqlite::Error) -> Trouble {
        let message = error.to_string();
        match error.sqlite_error_code() {
            Some(
                ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::DiskFull
                | ErrorCode::ReadOnly,
            ) => Trouble::Passing(message),
            // Deferred foreign keys of the user's own tables are checked here.
            Some(ErrorCode::ConstraintViolation) => Trouble::Culprit(message),
            _ => Trouble::Doubt(message),
        }
    }
}

/// Is the database merely in use?
pub(super) fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
    )
}
