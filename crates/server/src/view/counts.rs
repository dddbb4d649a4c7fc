//! How many runs there are, and who works on them.

use roundel::{Name, RunId, RunState, Stats, Timestamp};
use roundel_core::{Lane, LaneId, WorkerRow};

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
        /// Its id.
        id: String,
        /// What it is called.
        name: String,
        /// When it began.
        started_at: Timestamp,
        /// When it was last heard of.
        seen_at: Timestamp,
        /// The run that it tries alone, because others stopped with it.
        suspect: Option<RunId>,
        /// How many runs of this namespace it has leased.
        leases: u64,
        /// What it can run in this namespace.
        can_run: Vec<CanRun>,
    }
}

output! {
    /// A version of a workflow, or of what a queue's commands are handled by.
    pub struct CanRun {
        /// Which.
        workflow: Name,
        /// In which version.
        version: u32,
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

impl Worker {
    /// This one, as it is seen from a namespace: what it can run, of all that can be run, and what
    /// it has in hand.
    #[must_use]
    pub fn of(worker: &WorkerRow, namespace: &Name, (lanes, stats): (&[Lane], &Stats)) -> Worker {
        let lane = |id: &LaneId| lanes.get((id.0 as usize).checked_sub(1)?);
        let here = worker.lanes.iter().filter_map(lane);
        let here = here.filter(|lane| lane.namespace == *namespace);
        let can_run = here.map(|lane| CanRun {
            workflow: lane.workflow.clone(),
            version: lane.version,
        });
        let held = stats.leases.iter().find(|(owner, _)| *owner == worker.id);
        Worker {
            id: worker.id.to_string(),
            name: worker.name.clone(),
            started_at: worker.started_at,
            seen_at: worker.seen_at,
            suspect: worker.suspect,
            leases: held.map_or(0, |(_, count)| *count),
            can_run: can_run.collect(),
        }
    }
}
