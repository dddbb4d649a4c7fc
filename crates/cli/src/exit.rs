//! How a command ends: its code, and what is said about it.

use std::process::ExitCode;

/// How a command ended. The numbers are part of the interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// 0: done.
    Done = 0,
    /// 1: done, and the answer is no. `verify` found something; the run that was waited for did
    /// not complete; the request was refused.
    No = 1,
    /// 2: the command was not understood. Nothing was tried.
    Usage = 2,
    /// 3: there is no such run, fact or document.
    NotFound = 3,
    /// 4: the database cannot be used: it is missing, foreign, damaged or of a newer version.
    Database = 4,
    /// 5: not now: the database is busy, or the time is up. Trying again helps.
    NotNow = 5,
}

impl Exit {
    /// What `--help` says of them.
    pub const HELP: &'static str = "Exit codes:
  0  done
  1  done, and the answer is no: a violation, a run that failed, a refused request
  2  the command was not understood
  3  there is no such run
  4  the database cannot be used: missing, foreign, damaged, or of another version
  5  not now: the database is busy, or the time is up";
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// Why a command did not do what it was asked.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) exit: Exit,
    pub(crate) message: String,
}

pub(crate) type Result<T> = std::result::Result<T, Failed>;

impl Failed {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Failed {
        let message = message.into();
        Failed { exit, message }
    }

    /// What was asked for makes no sense.
    pub(crate) fn usage(message: impl Into<String>) -> Failed {
        Failed::new(Exit::Usage, message)
    }
}

impl From<roundel::Error> for Failed {
    fn from(error: roundel::Error) -> Failed {
        use roundel::{Error, Refusal};
        let exit = match &error {
            Error::NoSuchRun(_)
            | Error::Refused(
                Refusal::UnknownRun { .. }
                | Refusal::UnknownKey { .. }
                | Refusal::UnknownProjection { .. },
            ) => Exit::NotFound,
            Error::Failed { .. } | Error::Parked { .. } | Error::Refused(_) | Error::Unfit(_) => {
                Exit::No
            }
            Error::BadName(_) | Error::Value(_) | Error::Setup(_) | Error::Statement(_) => {
                Exit::Usage
            }
            Error::Unavailable(_) | Error::Unknown(_) => Exit::NotNow,
            Error::Unusable(_) | Error::Closed => Exit::Database,
        };
        Failed::new(exit, error.to_string())
    }
}

impl From<roundel::BadName> for Failed {
    fn from(error: roundel::BadName) -> Failed {
        Failed::usage(error.to_string())
    }
}

impl From<std::io::Error> for Failed {
    fn from(error: std::io::Error) -> Failed {
        Failed::new(
            Exit::No,
            format!("the output could not be written: {error}"),
        )
    }
}
