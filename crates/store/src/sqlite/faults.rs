//! Commits that go wrong, for tests: what a disk does seldom, done on demand.

use std::sync::mpsc::{Receiver, Sender};

use super::batch::Session;

/// What happens to a commit.
pub(super) enum Fault {
    /// It happens, and an error is reported.
    LoseReply,
    /// It does not happen, and an error is reported.
    Fail,
    /// It says that it has begun, and goes on when it is told to.
    Hang(Sender<()>, Receiver<()>),
}

impl Fault {
    pub(super) fn strike(self, session: &mut Session<'_>) -> rusqlite::Result<()> {
        let code = rusqlite::ffi::SQLITE_IOERR_FSYNC;
        let error = rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None);
        match self {
            Fault::Fail => Err(error),
            Fault::LoseReply => session.commit().and(Err(error)),
            Fault::Hang(begun, go_on) => {
                let _ = begun.send(());
                let _ = go_on.recv();
                session.commit()
            }
        }
    }
}
