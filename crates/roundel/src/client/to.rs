//! Which run is meant.

use roundel_core::{Failure, Name, RunId, Target};

use super::Handle;
use crate::Error;

/// Which run is meant: by its id, or by the user's own key for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum To {
    /// By id.
    Run(RunId),
    /// By key.
    Key(String),
}

impl To {
    pub(crate) fn target(self) -> Result<Target, Failure> {
        match self {
            To::Run(run) => Ok(Target::Run(run)),
            To::Key(key) => crate::cx::name(key).map(Target::Key),
        }
    }

    pub(super) fn checked(self) -> Result<Target, Error> {
        match self {
            To::Run(run) => Ok(Target::Run(run)),
            To::Key(key) => Ok(Target::Key(Name::new(key)?)),
        }
    }
}

impl From<RunId> for To {
    fn from(run: RunId) -> To {
        To::Run(run)
    }
}

impl From<&str> for To {
    fn from(key: &str) -> To {
        To::Key(key.to_owned())
    }
}

impl From<String> for To {
    fn from(key: String) -> To {
        To::Key(key)
    }
}

impl<O> From<&Handle<O>> for To {
    fn from(handle: &Handle<O>) -> To {
        To::Run(handle.id())
    }
}

impl std::fmt::Display for To {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            To::Run(run) => run.fmt(f),
            To::Key(key) => write!(f, "`{key}`"),
        }
    }
}
