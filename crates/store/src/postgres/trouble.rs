//! What can go wrong with a transaction, by what is to be done about it: read from the database's
//! own codes, never from texts.

use crate::cells::Strange;

/// Why a transaction was not committed.
#[derive(Debug)]
pub(super) enum Trouble {
    /// Somebody else was in the way, and nothing happened: tried again.
    Again(String),
    /// Others have made lanes meanwhile: decided again, with theirs.
    Lanes,
    /// This process was idle for so long that its row was taken for one of a process that is gone:
    /// a new one is made, and committed, before anything depends on it.
    Forgotten,
    /// The connection is gone, or the server is; nothing happened.
    Broken(String),
    /// What was decided over rows that were kept does not hold: decided again over locked ones.
    Stale,
    /// Nothing happened, and trying again helps only later: no room, no memory.
    Passing(String),
    /// A statement fails, whoever asked for it.
    Culprit(String),
    /// The commit failed in a way that leaves the outcome open.
    Doubt(String),
}

/// Kinds of codes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Contention,
    Connection,
    Resources,
    Other,
}

fn class(code: &str) -> Class {
    match code {
        // Serialisation, deadlock, lock not available, a plan that a migration made invalid.
        "40001" | "40P01" | "55P03" => Class::Contention,
        // A cached plan that no longer fits, a transaction that timed out, a server that has
        // become a replica: a new connection helps, or tells.
        "0A000" | "25P02" | "25P03" | "25P04" | "25006" => Class::Connection,
        _ => match code.get(..2) {
            Some("08" | "57" | "28" | "3D") => Class::Connection,
            Some("53" | "58") => Class::Resources,
            _ => Class::Other,
        },
    }
}

impl From<sqlx::Error> for Trouble {
    fn from(error: sqlx::Error) -> Trouble {
        let message = error.to_string();
        let code = error.as_database_error().map(|error| error.code());
        let Some(code) = code else {
            return match error {
                sqlx::Error::Encode(_)
                | sqlx::Error::Decode(_)
                | sqlx::Error::ColumnDecode { .. } => Trouble::Culprit(message),
                _ => Trouble::Broken(message),
            };
        };
        match class(&code.unwrap_or_default()) {
            Class::Contention => Trouble::Again(message),
            Class::Connection => Trouble::Broken(message),
            Class::Resources => Trouble::Passing(message),
            Class::Other => Trouble::Culprit(message),
        }
    }
}

impl From<Strange> for Trouble {
    fn from(error: Strange) -> Trouble {
        Trouble::Culprit(error.to_string())
    }
}

impl Trouble {
    /// What an error of the commit itself means: if the server says that it refused, it did.
    pub(super) fn of_commit(error: sqlx::Error) -> Trouble {
        match Trouble::from(error) {
            Trouble::Broken(message) => Trouble::Doubt(message),
            other => other,
        }
    }

    /// What an error of a statement means that writes what was decided over kept rows, and that
    /// commits: a division by zero, or a run that is there already, says that they are old.
    pub(super) fn of_guess(error: sqlx::Error) -> Trouble {
        let code = error.as_database_error().and_then(|error| error.code());
        match code.as_deref() {
            Some("22012" | "23505") => Trouble::Stale,
            _ => Trouble::of_commit(error),
        }
    }

    pub(super) fn message(self) -> String {
        match self {
            Trouble::Again(message)
            | Trouble::Broken(message)
            | Trouble::Passing(message)
            | Trouble::Culprit(message)
            | Trouble::Doubt(message) => message,
            Trouble::Lanes => "another process has made lanes".into(),
            Trouble::Stale => "others have written what was kept".into(),
            Trouble::Forgotten => "this process's row in roundel_committer is gone".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h6_codes_say_what_to_do() {
        assert!(class("40001") == Class::Contention && class("40P01") == Class::Contention);
        assert!(class("57P01") == Class::Connection && class("08006") == Class::Connection);
        assert!(class("25006") == Class::Connection && class("0A000") == Class::Connection);
        assert!(class("53100") == Class::Resources && class("53300") == Class::Resources);
        assert!(class("23505") == Class::Other && class("") == Class::Other);
    }
}
