//! Verified deploys: every run in flight is replayed by the code that is registered here, before
//! that code takes work, and each gets a verdict.
//!
//! Nothing is committed by looking, and nothing outside is touched: it is the replay of the worker
//! that runs, in a rehearsal. A run that others work on meanwhile is judged by what its journal
//! said when it was read. Runs are read page by page, so that a million of them need no more memory
//! than a hundred.
//!
//! Absent on purpose: runs that have ended. Their code is needed only if they are undone, and a
//! rollback that lacks it is parked, not lost.

use std::collections::BTreeMap;
use std::sync::Arc;

use roundel_core::{
    Claimed, Context, Divergence, Failure, JournalRow, Name, RunId, RunState, WorkerId,
};
use roundel_store::RunView;

use crate::cx::shared::RunInfo;
use crate::flag::Flag;
use crate::live::{Driver, Handler, Journal, LiveRun};
use crate::metrics::Counters;
use crate::worker::{Config, Handlers};

/// What becomes of runs in flight that do not go on with this code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unfit {
    /// The engine does not start, and nothing is changed.
    Refuse,
    /// They are parked, so that an operator sees them at once; the engine starts.
    Park,
    /// They are told to the log, and parked when their turn comes; the engine starts.
    Go,
}

/// What would become of a run with this code.
#[derive(Clone, PartialEq, Debug)]
pub enum Verdict {
    /// It goes on from where it stands.
    Compatible,
    /// What could be replayed fits. From this entry on nobody knows: there the function opens a
    /// resource, which a check does not, or never comes to rest.
    UpTo(u64),
    /// Its version is not registered here: it waits for a worker that has it.
    Pinned,
    /// The code asks for something else than its journal has: it would be parked.
    Diverges(Divergence),
    /// It would be parked for another reason: its journal cannot be read, or what it recorded does
    /// not fit the types of the code, or how it is undone is not known here.
    Stuck(Failure),
}

impl Verdict {
    /// One word for it.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Verdict::Compatible => "compatible",
            Verdict::UpTo(_) => "up_to",
            Verdict::Pinned => "pin",
            Verdict::Diverges(_) => "diverges",
            Verdict::Stuck(_) => "stuck",
        }
    }

    /// Does the run not go on with this code?
    #[must_use]
    pub fn is_unfit(&self) -> bool {
        matches!(self, Verdict::Diverges(_) | Verdict::Stuck(_))
    }

    pub(crate) fn of(failure: Failure) -> Verdict {
        match Divergence::told_by(&failure) {
            Some(divergence) => Verdict::Diverges(divergence),
            None => Verdict::Stuck(failure),
        }
    }
}

/// A run, and what would become of it.
#[derive(Clone, PartialEq, Debug)]
pub struct Judged {
    /// Which run.
    pub run: RunId,
    /// The user's own id for it.
    pub key: Option<Name>,
    /// Of which workflow.
    pub workflow: Name,
    /// Of which version.
    pub version: u32,
    /// Where it stands.
    pub state: RunState,
    /// What would become of it.
    pub verdict: Verdict,
    /// Its epoch when it was looked at.
    pub(crate) epoch: u64,
    /// What it would be parked with.
    pub(crate) failure: Option<Box<Failure>>,
}

impl Judged {
    /// Does it not go on with this code, and is not parked?
    #[must_use]
    pub fn is_left(&self) -> bool {
        self.verdict.is_unfit() && self.state != RunState::Parked
    }

    /// The verdict, in a sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        match &self.verdict {
            Verdict::Compatible => "it goes on".into(),
            Verdict::UpTo(entry) => format!("it fits as far as entry {entry}, which is not known"),
            Verdict::Pinned => format!("version {} is not registered here", self.version),
            Verdict::Diverges(at) => format!(
                "it diverges at entry {}: the journal has {}, the code asks for {}",
                at.entry, at.recorded, at.asked
            ),
            Verdict::Stuck(failure) => failure.message.clone(),
        }
    }
}

/// How many runs of a workflow got which verdict.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Runs that were looked at.
    pub runs: u64,
    /// They go on.
    pub compatible: u64,
    /// They fit as far as they could be replayed.
    pub up_to: u64,
    /// They wait for a worker that has their version.
    pub pinned: u64,
    /// They would be parked as diverged.
    pub diverging: u64,
    /// They would be parked for another reason.
    pub stuck: u64,
    /// Of these two, those that are parked already.
    pub parked: u64,
}

impl Tally {
    fn add(&mut self, judged: &Judged) {
        self.runs += 1;
        let counted = match judged.verdict {
            Verdict::Compatible => &mut self.compatible,
            Verdict::UpTo(_) => &mut self.up_to,
            Verdict::Pinned => &mut self.pinned,
            Verdict::Diverges(_) => &mut self.diverging,
            Verdict::Stuck(_) => &mut self.stuck,
        };
        *counted += 1;
        let parked = judged.state == RunState::Parked && judged.verdict.is_unfit();
        self.parked += u64::from(parked);
    }

    /// How many do not go on with this code, and are not parked yet.
    #[must_use]
    pub fn unfit(&self) -> u64 {
        self.diverging + self.stuck - self.parked
    }
}

/// What a check came to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Verdicts {
    /// By workflow and version.
    pub lanes: BTreeMap<(Name, u32), Tally>,
    /// How many were parked for their verdict.
    pub parked: u64,
}

impl Verdicts {
    /// All together.
    #[must_use]
    pub fn total(&self) -> Tally {
        let mut total = Tally::default();
        for tally in self.lanes.values() {
            total.runs += tally.runs;
            total.compatible += tally.compatible;
            total.up_to += tally.up_to;
            total.pinned += tally.pinned;
            total.diverging += tally.diverging;
            total.stuck += tally.stuck;
            total.parked += tally.parked;
        }
        total
    }

    pub(crate) fn add(&mut self, judged: &Judged) {
        let lane = (judged.workflow.clone(), judged.version);
        self.lanes.entry(lane).or_default().add(judged);
    }
}

/// What is registered here.
pub(crate) struct Code {
    handlers: Arc<Handlers>,
    config: Config,
}

impl Code {
    pub(crate) fn of(handlers: Arc<Handlers>, config: &Config) -> Code {
        let config = config.clone();
        Code { handlers, config }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.handlers.is_empty()
    }

    pub(crate) fn handler(&self, workflow: &Name, version: u32) -> Option<&Handler> {
        self.handlers.get(&(workflow.clone(), version))
    }

    fn driver(&self) -> Driver {
        Driver {
            worker: WorkerId(uuid::Uuid::nil()),
            name: self.config.name.clone(),
            lease: self.config.lease,
            grace: self.config.grace,
            flag: Arc::new(Flag::default()),
            counters: Arc::new(Counters::default()),
            undos: self.config.undos.clone(),
            projections: self.config.projections.clone(),
        }
    }

    /// The run, to be rehearsed over its journal.
    pub(crate) fn rehearsal(
        &self,
        (view, handler): (&RunView, &Handler),
        rows: &[JournalRow],
    ) -> Result<Box<LiveRun>, Failure> {
        let (row, lane) = (&view.row, &view.lane);
        let journal = Journal::decode(rows)?;
        let claimed = Claimed {
            run: row.id,
            epoch: row.epoch,
            created_at: row.created_at,
            lane: row.lane,
            execution: row.execution,
            // It may have grown since the row was read.
            head: 1 + journal.entries.len() as u64,
            parent: row.parent,
            key: row.key.clone(),
            cancel: row.cancel,
            deadlines: row.deadlines,
            suspect: false,
            inbox: Vec::new(),
            at: row.changed_at,
        };
        let info = RunInfo {
            namespace: lane.namespace.clone(),
            run: row.id,
            workflow: lane.workflow.clone(),
            version: lane.version,
            execution: row.execution,
            key: row.key.clone(),
            is_root: row.parent.is_none(),
            deadlines: row.deadlines,
            context: Context::default(),
        };
        let of = (claimed, self.driver());
        Ok(LiveRun::load(info, handler, journal, of).rehearsing())
    }
}
