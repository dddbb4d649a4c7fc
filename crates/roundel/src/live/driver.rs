//! Who drives a run, and how.

use std::sync::Arc;
use std::time::Duration;

use roundel_core::{Claimant, Name, WorkerId};
use rustc_hash::FxHashMap;

use super::{Flag, Handler, LiveRun};
use crate::cx::NamedUndos;
use crate::metrics::Counters;
use crate::projections::Projections;

/// The functions of workflows, by name and version.
pub(crate) type Handlers = FxHashMap<(Name, u32), Handler>;

/// Which worker drives it, and how.
#[derive(Clone)]
pub(crate) struct Driver {
    pub(crate) worker: WorkerId,
    /// For people, where failures say who met them.
    pub(crate) name: Arc<str>,
    pub(crate) lease: Duration,
    /// How long effects that were asked to end may go on.
    pub(crate) grace: Duration,
    /// Raised when there is something to do for the run.
    pub(crate) flag: Arc<Flag>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) undos: Arc<NamedUndos>,
    pub(crate) projections: Arc<Projections>,
}

impl LiveRun {
    /// Takes what this run wakes.
    pub(crate) fn claimant(&self) -> Claimant {
        Claimant {
            worker: self.driver.worker,
            lease: self.driver.lease,
        }
    }
}
