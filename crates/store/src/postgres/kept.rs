//! Runs that this process has leased, as it last wrote them: so that a round of such a run is
//! decided without asking, and one flight to the server writes it and commits.
//!
//! Other processes may have written such a row meanwhile. So it is kept with the number of the
//! transaction that wrote it, which every writer changes, and the statement that writes the next
//! version also checks that number; if one is another, nothing is written, the rows are forgotten,
//! and all is decided again over rows that are locked. The same goes for a run that is started:
//! that there is none yet is checked by the database when it is inserted.
//!
//! So are the limits of queues, with how many permits they have given: a start that finds room to
//! spare takes one here, and a run that ends gives it back. Whoever gives a permit writes the
//! queue's row, so that the same number tells of it; whoever gives one back need not, and is
//! counted here until the permits are counted again. Where others write the row all the time,
//! nothing of it is kept.
//!
//! Invariant: whatever was decided here rests on nothing but rows that are written by the same
//! statement. A refusal writes nothing, so it is never decided here.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use roundel_core::{
    Changes, Flow, Hint, Lane, Need, Op, QueueId, QueueRow, Reply, Round, Rows, RunChange, RunId,
    RunRow, Stage, Then, Timestamp, WorkerId, decide, needs,
};
use rustc_hash::{FxHashMap, FxHashSet};

use super::values::Xid;
use crate::Permits;

/// So many are kept at most; then it is begun anew.
const MOST: usize = 50_000;

/// A queue that others have written is left to locked rows for so long.
const OTHERS: Duration = Duration::from_millis(100);

/// The runs that are kept, and the queues.
#[derive(Default)]
pub(super) struct Kept {
    runs: FxHashMap<RunId, (RunRow, Xid)>,
    queues: BTreeMap<QueueId, (Limits, Xid)>,
    under_way: UnderWay,
    /// When somebody else was last seen to write these.
    others: BTreeMap<QueueId, Instant>,
}

/// What is being written. What comes next is decided meanwhile, as if that had succeeded: over the
/// limits that it leaves, and not over its runs.
#[derive(Default)]
struct UnderWay {
    runs: FxHashSet<RunId>,
    queues: Vec<(QueueId, Limits)>,
}

/// The permits of a queue are counted again so often: what was leased before the queue had limits
/// counts from some renewal on, which does not write the queue's row.
const RECOUNT: Duration = Duration::from_secs(1);

/// What is known of a queue's limits, and how many permits it has given, at most.
#[derive(Clone, Debug)]
pub(super) struct Limits {
    row: QueueRow,
    permits: Permits,
    /// When they were.
    counted: Instant,
}

impl Limits {
    /// Those of a queue, if they are in memory with its permits, which have just been counted.
    pub(super) fn of(queue: &QueueId, rows: &Rows) -> Option<Limits> {
        let (row, permits) = (rows.queues.get(queue)?, rows.permits.get(queue)?);
        Some(Limits {
            row: row.clone(),
            permits: permits.clone(),
            counted: Instant::now(),
        })
    }

    /// Up to when the rate is used up.
    pub(super) fn spent_until(&self) -> Timestamp {
        self.row.spent_until
    }
}

/// What was decided over rows that are kept.
pub(super) struct Decided {
    /// To the first so many operations.
    pub(super) replies: Vec<Reply>,
    pub(super) changes: Changes,
    pub(super) hints: Vec<Hint>,
    /// The queues on whose limits they rest, as they are from now on.
    pub(super) queues: Vec<(QueueId, Limits)>,
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

    /// What was decided is sent to be written.
    pub(super) fn is_sent(&mut self, decided: &mut Decided) {
        self.under_way = UnderWay {
            runs: std::mem::take(&mut decided.runs),
            queues: decided.queues.clone(),
        };
    }

    /// How it came out is known.
    pub(super) fn is_back(&mut self) {
        self.under_way = UnderWay::default();
    }

    pub(super) fn forget(&mut self, run: RunId) {
        self.runs.remove(&run);
    }

    pub(super) fn forget_all(&mut self) {
        self.runs.clear();
        self.queues.clear();
    }

    /// What this transaction has written of queues, as far as their permits are counted. Not before
    /// it is committed.
    pub(super) fn keep_queues(&mut self, written: Vec<(QueueId, Option<Limits>)>, by: Xid) {
        for (queue, limits) in written {
            let others = self.others.get(&queue);
            let others = others.is_some_and(|since| since.elapsed() < OTHERS);
            match limits.filter(|_| !others) {
                Some(limits) => drop(self.queues.insert(queue, (limits, by))),
                None => drop(self.queues.remove(&queue)),
            }
        }
    }

    /// Somebody else may write them, too.
    pub(super) fn leave_queues<'q>(&mut self, queues: impl Iterator<Item = &'q QueueId>) {
        for queue in queues {
            self.queues.remove(queue);
            self.others.insert(queue.clone(), Instant::now());
        }
    }

    /// The transaction that wrote a run that is kept.
    pub(super) fn seen(&self, run: RunId) -> Xid {
        self.runs.get(&run).expect("only what is kept is decided").1
    }

    /// The transaction that wrote a queue that is kept.
    pub(super) fn seen_queue(&self, queue: &QueueId) -> Xid {
        let kept = self.queues.get(queue);
        kept.expect("only what is kept is decided").1
    }

    /// Has a worker of this process the run, as far as is known?
    pub(super) fn has(&self, run: RunId) -> bool {
        self.runs.contains_key(&run)
    }

    /// May an operation well be one that is decided here? Looked at beside others that are.
    pub(super) fn is_likely(&self, op: &Op, rows: &mut Rows, now: Timestamp) -> bool {
        own_run(op).is_some_and(|(run, is_new)| {
            let here = self.load(rows, run, is_new) && self.load_queue(rows, op, now);
            here && needs_only(op, run, rows, &mut Vec::new())
        })
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
            let here = self.load(&mut rows, run, is_new) && self.load_queue(&mut rows, op, now);
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
        let mut changes = rows.take_changes();
        // They are written with the others on which it rests.
        changes.queues.clear();
        let now_is = |queue: &QueueId| {
            let counted = self.limits(queue)?.counted;
            let limits = Limits::of(queue, &rows)?;
            Some((queue.clone(), Limits { counted, ..limits }))
        };
        Decided {
            replies,
            changes,
            hints,
            queues: self.queues.keys().filter_map(now_is).collect(),
            runs,
        }
    }

    /// Loads the queue that an operation takes a permit of, or gives one back to, if it is kept.
    /// Says whether the operation can be decided so: a start that finds no room may find it once
    /// the permits are counted again.
    fn load_queue(&self, rows: &mut Rows, op: &Op, now: Timestamp) -> bool {
        if !rows.has_limits() {
            return true;
        }
        let queue = match op {
            Op::Start(start) => {
                let queue = start.queue_with_limits(rows);
                queue.filter(|_| start.takes_permit())
            }
            Op::Commit(round) if !matches!(round.then, Then::Continue) => {
                let row = rows.run(round.run);
                let held = row.filter(|row| row.flow == Flow::Permit);
                held.and_then(|row| rows.limited(row.lane))
            }
            _ => None,
        };
        let Some(queue) = queue else { return true };
        if let Some(limits) = self.limits(&queue)
            && limits.counted.elapsed() < RECOUNT
            && !rows.queues.is_loaded(&queue)
        {
            rows.queues.load(queue.clone(), Some(limits.row.clone()));
            rows.permits.insert(queue.clone(), limits.permits.clone());
        }
        match op {
            Op::Start(start) => start.finds_room(&queue, rows, now),
            _ => true,
        }
    }

    /// The limits of a queue, as what is under way leaves them.
    fn limits(&self, queue: &QueueId) -> Option<&Limits> {
        let (kept, _) = self.queues.get(queue)?;
        let next = self.under_way.queues.iter().find(|(of, _)| of == queue);
        Some(next.map_or(kept, |(_, limits)| limits))
    }

    /// Has the run been loaded as it is kept, or as one that is not there yet?
    fn load(&self, rows: &mut Rows, run: RunId, is_new: bool) -> bool {
        if rows.run_is_loaded(run) {
            return true;
        }
        let kept = self.runs.get(&run);
        if kept.is_some() == is_new || self.under_way.runs.contains(&run) {
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

/// Does it need no other row than its own run's, and its queue's if that is in memory?
fn needs_only(op: &Op, run: RunId, rows: &Rows, found: &mut Vec<Need>) -> bool {
    found.clear();
    for stage in Stage::ALL {
        needs(op, rows, stage, found);
    }
    found.iter().all(|need| match need {
        Need::Queue(queue) | Need::Permits(queue) => rows.permits.contains_key(queue),
        need => *need == Need::Run(run),
    })
}

#[cfg(test)]
mod tests {
    use roundel_core::{Claimant, Name, Payload, Start};

    use super::*;

    const SPACE: Name = Name::constant("default");
    const FLOW: Name = Name::constant("flow");

    fn lane(version: u32) -> Lane {
        Lane {
            namespace: SPACE,
            workflow: FLOW,
            version,
        }
    }

    /// How many of two starts are decided over a queue of four, whose permits were counted then.
    fn decided(counted: Instant) -> usize {
        let queue = QueueId {
            namespace: SPACE,
            queue: FLOW,
        };
        let row = QueueRow {
            concurrency: Some(4),
            ..QueueRow::default()
        };
        let limits = Limits {
            row,
            permits: Permits::from([(None, 1)]),
            counted,
        };
        let mut kept = Kept::default();
        kept.keep_queues(vec![(queue, Some(limits))], Xid(7));
        let start = |number| {
            let run = RunId(uuid::Uuid::from_u128(number));
            let (worker, lease) = (WorkerId::from_bytes([1; 16]), Duration::from_secs(60));
            Op::Start(Start {
                claimant: Some(Claimant { worker, lease }),
                ..Start::new(SPACE, run, FLOW, Payload::null())
            })
        };
        let (one, two) = (start(1), start(2));
        let lanes = [lane(1), lane(Lane::LIMITS)];
        let decided = kept.decide(&[&one, &two], &lanes, Timestamp(1));
        decided.replies.len()
    }

    #[test]
    fn co_30_who_finds_no_room_or_what_was_counted_long_ago_is_counted_again() {
        let now = Instant::now();
        assert_eq!(decided(now), 1, "half is left to claims");
        let long_ago = now.checked_sub(RECOUNT).expect("the machine is older");
        assert_eq!(decided(long_ago), 0);
    }
}
