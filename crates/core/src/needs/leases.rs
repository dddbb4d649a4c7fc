//! What registering, claiming, renewing and giving up need.

use super::{Need, Stage};
use crate::mutant::{self, Mutant};
use crate::{Claim, LaneId, Name, QueueId, Rows, RunId, Start, WorkerId, limits};

pub(super) fn of_register(worker: WorkerId, rows: &Rows, stage: Stage, out: &mut Vec<Need>) {
    match stage {
        Stage::Runs => {
            out.push(Need::Worker(worker));
            out.push(Need::Unseen(limits::FORGOTTEN));
        }
        Stage::Rest => {
            let unseen = rows.unseen.iter().filter_map(|id| rows.workers.get(id));
            out.extend(unseen.filter_map(|row| row.suspect).map(Need::Run));
        }
        Stage::Keys | Stage::Gates | Stage::Found => {}
    }
}

/// In which lanes to look for what is due.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Due {
    /// These, each with how many of it at most.
    pub lanes: Vec<(LaneId, usize)>,
    /// In these, those that no limit holds back, this many beside: their lease was counted and has
    /// ended, or they were asked to end.
    pub ahead: Vec<LaneId>,
    /// And of these, beside, what has a flow key: the keys take turns.
    pub keyed: Vec<Keyed>,
    /// How many at most.
    pub limit: usize,
}

/// Of which flow keys of a lane to look for what is due. The keys are looked at in order from the
/// one after the last whose turn it was, and then from the first, until `limit` of them have
/// something due that is no suspect, and not more than [`limits::TURNS`]: then the last goes into
/// `looked_at` if there are more. Of each comes the first, by priority, then oldest due first; then
/// the second of each, and so on.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Keyed {
    /// In this lane.
    pub lane: LaneId,
    /// Whose turn it was last.
    pub after: Option<Name>,
    /// Not these.
    pub full: Vec<Name>,
    /// So many at most; and of each key the first suspect, to be taken with those of other lanes.
    pub limit: usize,
}

pub(super) fn of_claim(claim: &Claim, rows: &Rows, stage: Stage, out: &mut Vec<Need>) {
    if stage == Stage::Gates && rows.has_limits() {
        let mut queues: Vec<QueueId> = Vec::new();
        queues.extend(claim.lanes.iter().filter_map(|lane| rows.limited(*lane)));
        queues.sort();
        queues.dedup();
        out.extend(queues.iter().cloned().map(Need::Queue));
        out.extend(queues.into_iter().map(Need::Permits));
    }
    if stage == Stage::Runs {
        out.push(Need::Worker(claim.worker));
        out.push(Need::Due(Due::of(claim, rows)));
    }
    if stage == Stage::Rest {
        let worker = rows.workers.get(&claim.worker);
        out.extend(worker.and_then(|worker| worker.suspect).map(Need::Run));
        for run in rows.found.iter().filter_map(|id| rows.run(*id)) {
            out.extend(run.owner.map(Need::Worker));
            if run.matched > 0 {
                out.push(Need::Inbox(run.id));
            }
        }
    }
}

/// Whoever would take what it starts may need a permit for it.
pub(super) fn of_permit(start: &Start, rows: &Rows, out: &mut Vec<Need>) {
    let queue = start.queue_with_limits(rows);
    if let Some(queue) = queue.filter(|_| start.takes_permit()) {
        out.push(Need::Queue(queue.clone()));
        out.push(Need::Permits(queue));
    }
}

impl Due {
    /// Where a claim looks. A queue that has no room is not looked at, however much waits there.
    #[must_use]
    pub fn of(claim: &Claim, rows: &Rows) -> Due {
        let limit = claim.limit.min(limits::CLAIM) + limits::LOOK_PAST + 1;
        let any_version = mutant::on(Mutant::AnyVersionClaimed);
        if !rows.has_limits() && !any_version {
            return Due {
                lanes: claim.lanes.iter().map(|lane| (*lane, limit)).collect(),
                ahead: Vec::new(),
                keyed: Vec::new(),
                limit,
            };
        }
        let mut asked = claim.lanes.clone();
        if any_version {
            asked = (1..).map(LaneId).take(rows.lanes().len()).collect();
        }
        let ahead = asked.iter().copied().filter(|lane| rows.is_limited(*lane));
        let ahead = ahead.collect();
        let of = |lane: LaneId| match rows.room_in(lane, rows.searched_at) {
            None => Some((lane, limit)),
            Some(0) => None,
            Some(room) => Some((lane, limit.min(room as usize))),
        };
        let lanes: Vec<(LaneId, usize)> = asked.into_iter().filter_map(of).collect();
        let keyed = |(lane, limit): &(LaneId, usize)| {
            let queue = rows.limited(*lane)?;
            Some(Keyed {
                lane: *lane,
                after: rows.limits_of(&queue).turn.clone(),
                full: rows.full_keys(&queue),
                // One more than is taken tells that there is more.
                limit: (*limit).min(claim.limit.min(limits::CLAIM) + 1),
            })
        };
        Due {
            keyed: lanes.iter().filter_map(keyed).collect(),
            lanes,
            ahead,
            limit,
        }
    }
}

pub(super) fn of_leases(
    worker: WorkerId,
    runs: &[RunId],
    rows: &Rows,
    stage: Stage,
    out: &mut Vec<Need>,
) {
    match stage {
        Stage::Runs => {
            out.push(Need::Worker(worker));
            out.extend(runs.iter().map(|run| Need::Run(*run)));
        }
        Stage::Rest => {
            let due = runs.iter().filter_map(|id| rows.run(*id));
            out.extend(
                due.filter(|run| run.matched > 0)
                    .map(|run| Need::Inbox(run.id)),
            );
        }
        _ => {}
    }
}
