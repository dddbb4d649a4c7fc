//! How many runs there are, and who works on them.

use roundel::{Name, RunId, RunState, Stats, Timestamp};
use roundel_core::WorkerRow;

use crate::shape::output;

output! {
    /// Runs that are alike.
    pub struct Count {
        /// What runs.
        workflow: Name,
        /// Which version.
        version: u32,
        /// Where they stand.
        state: RunState,
        /// How many.
        count: u64,
    }
}

output! {
    /// Counts of a namespace.
    pub struct Counts {
        /// Runs by workflow, version and state.
        runs: Vec<Count>,
        /// Offers that nobody has.
        offers: u64,
        /// Messages that wait for runs.
        mail: u64,
        /// The server's time.
        now: Timestamp,
    }
}

output! {
    /// A worker.
    pub struct Worker {
        /// What it is called.
        name: String,
        /// When it began.
        started_at: Timestamp,
        /// When it was last heard of.
        seen_at: Timestamp,
        /// The run that it tries alone, because others stopped with it.
        suspect: Option<RunId>,
        /// How many versions of workflows it can run, in all namespaces.
        lanes: usize,
    }
}

impl Counts {
    /// These, at that time.
    #[must_use]
    pub fn of(stats: &Stats, now: Timestamp) -> Counts {
        let count = |(workflow, version, state, count): &(Name, u32, RunState, u64)| Count {
            workflow: workflow.clone(),
            version: *version,
            state: *state,
            count: *count,
        };
        Counts {
            runs: stats.runs.iter().map(count).collect(),
            offers: stats.offers.iter().map(|(_, count)| count).sum(),
            mail: stats.mail,
            now,
        }
    }
}

impl From<&WorkerRow> for Worker {
    fn from(worker: &WorkerRow) -> Worker {
        Worker {
            name: worker.name.clone(),
            started_at: worker.started_at,
            seen_at: worker.seen_at,
            suspect: worker.suspect,
            lanes: worker.lanes.len(),
        }
    }
}
