//! Runs that this process has leased, as it last wrote them: so that a round of such a run is
//! decided without asking, and one flight to the server writes it and commits.
//!
//! Other processes may have written such a row meanwhile. So it is kept with the number of the
//! transaction that wrote it, which every writer changes, and the statement that writes the next
//! version also checks that number; if one is another, nothing is written, the rows are forgotten,
//! and all is decided again over rows that are locked. The same goes for a run that is started:
//! that there is none yet is checked by the database when it is inserted.
//!
//! Invariant: whatever was decided here rests on nothing but rows that are written by the same
//! statement. A refusal writes nothing, so it is never decided here.

use std::collections::BTreeSet;

use roundel_core::{
    Changes, Hint, Lane, Need, Op, Reply, Round, Rows, RunChange, RunId, RunRow, Stage, Timestamp,
    WorkerId, decide, needs,
};
use rustc_hash::{FxHashMap, FxHashSet};

use super::values::Xid;

/// So many are kept at most; then it is begun anew.
const MOST: usize = 50_000;

/// The runs that are kept.
#[derive(Default)]
pub(super) struct Kept {
    runs: FxHashMap<RunId, (RunRow, Xid)>,
}

/// What was decided over rows that are kept.
pub(super) struct Decided {
    /// To the first so many operations.
    pub(super) replies: Vec<Reply>,
    pub(super) changes: Changes,
    pub(super) hints: Vec<Hint>,
    /// The runs that they are about.
    runs: FxHashSet<RunId>,
}

impl Kept {
    /// What this transaction has written, as far as these workers, of this process, have it. Not
    /// before it is committed.
    pub(super) fn keep(&mut self, written: Vec<RunChange>, by: Xid, workers: &BTreeSet<WorkerId>) {
        if self.runs.len() > MOST {
            self.runs.clear();
        }
        for change in written {
            let (RunChange::Insert(row) | RunChange::Update { row, .. }) = change;
            let ours = row.owner.is_some_and(|owner| workers.contains(&owner));
            match ours {
                true => drop(self.runs.insert(row.id, (row, by))),
                false => drop(self.runs.remove(&row.id)),
            }
        }
    }

    pub(super) fn forget(&mut self, run: RunId) {
        self.runs.remove(&run);
    }

    pub(super) fn forget_all(&mut self) {
        self.runs.clear();
    }

    /// The transaction that wrote a run that is kept.
    pub(super) fn seen(&self, run: RunId) -> Xid {
        self.runs.get(&run).expect("only what is kept is decided").1
    }

    /// Has a worker of this process the run, as far as is known?
    pub(super) fn has(&self, run: RunId) -> bool {
        self.runs.contains_key(&run)
    }

    /// May an operation well be one that is decided here? A start that asks for a permit is not.
    pub(super) fn is_likely(&self, op: &Op, lanes: &[Lane]) -> bool {
        if let Op::Start(start) = op
            && start.claimant.is_some()
            && start.has_limits(lanes)
        {
            return false;
        }
        own_run(op).is_some_and(|(run, is_new)| is_new != self.runs.contains_key(&run))
    }

    /// Has an operation to do with nothing but its own run, as it is kept, or as a new one?
    pub(super) fn stands_alone(&self, op: &Op, lanes: &[Lane]) -> bool {
        let mut rows = Rows::default();
        rows.load_lanes(lanes.to_vec());
        own_run(op).is_some_and(|(run, is_new)| {
            let here = self.load(&mut rows, run, is_new);
            here && needs_only(op, run, &rows, &mut Vec::new())
        })
    }

    /// Decides these operations in order, up to the first that needs more than what is kept: what
    /// comes behind it may depend on it.
    pub(super) fn decide(&self, ops: &[&Op], lanes: &[Lane], now: Timestamp) -> Decided {
        let mut rows = Rows::default();
        rows.load_lanes(lanes.to_vec());
        let mut runs = FxHashSet::default();
        let mut replies = Vec::with_capacity(ops.len());
        let mut found = Vec::new();
        for op in ops {
            let Some((run, is_new)) = own_run(op) else {
                break;
            };
            let here = self.load(&mut rows, run, is_new);
            if !here || !needs_only(op, run, &rows, &mut found) {
                break;
            }
            let Ok(reply) = decide(op, &mut rows, now) else {
                break;
            };
            runs.insert(run);
            replies.push(reply);
        }
        let hints = rows.take_hints();
        Decided {
            replies,
            changes: rows.take_changes(),
            hints,
            runs,
        }
    }

    /// Has the run been loaded as it is kept, or as one that is not there yet?
    fn load(&self, rows: &mut Rows, run: RunId, is_new: bool) -> bool {
        if rows.run_is_loaded(run) {
            return true;
        }
        let kept = self.runs.get(&run);
        if kept.is_some() == is_new {
            return false;
        }
        rows.load_run(run, kept.map(|(row, _)| row.clone()));
        true
    }
}

impl Decided {
    /// Is there anything, can it be written by one statement, and does that write every row on
    /// which it rests?
    pub(super) fn is_simple(&self) -> bool {
        let written = &self.changes.runs;
        !written.is_empty() && written.len() == self.runs.len() && self.changes.is_plain()
    }
}

/// Who works in this process, as an operation shows.
pub(super) fn worker_of(op: &Op) -> Option<WorkerId> {
    match op {
        Op::Claim(claim) => Some(claim.worker),
        Op::Start(start) => start.claimant.map(|claimant| claimant.worker),
        Op::Commit(round) => Some(round.worker),
        _ => None,
    }
}

/// The run that an operation is about and whether it makes it, if it writes nothing else.
fn own_run(op: &Op) -> Option<(RunId, bool)> {
    match op {
        Op::Commit(round) => is_plain(round).then_some((round.run, false)),
        Op::Start(start) => {
            let plain = start.key.is_none()
                && start.labels.is_empty()
                && start.signal.is_none()
                && start.batch.is_none()
                && start.first.as_deref().is_none_or(is_plain);
            plain.then_some((start.run, true))
        }
        _ => None,
    }
}

fn is_plain(round: &Round) -> bool {
    round.caused.is_empty()
        && round.gates.is_empty()
        && round.consumed.is_empty()
        && round.opened.is_empty()
        && round.closed.is_empty()
        && round.state.is_empty()
}

/// Does it need no other row than its own run's?
fn needs_only(op: &Op, run: RunId, rows: &Rows, found: &mut Vec<Need>) -> bool {
    found.clear();
    for stage in Stage::ALL {
        needs(op, rows, stage, found);
    }
    found.iter().all(|need| *need == Need::Run(run))
}
