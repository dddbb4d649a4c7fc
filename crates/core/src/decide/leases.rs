//! Leases: claim, renew, release; and suspects.
//!
//! A lease that ended by time makes its run a suspect: it may have killed its worker, or merely
//! have been in the same process. A worker runs one suspect at a time, in a slot: it is named in
//! the worker's row, and a crash while it is named there counts against it. A commit clears it.
//!
//! A renewal frees the slot for the next, or long calls would keep all others waiting. If the lease
//! of that run ends by time all the same, it may kill its worker late: from then on only a commit
//! frees the slot.

use super::queues::{self, Permits};
use super::rounds::park;
use super::undos;
use super::wakes::{grant, inbox};
use crate::mutant::{self, Mutant};
use crate::{
    CancelMark, Claim, Claimant, Failure, Flow, Hint, Lease, Refusal, Register, Release, Renew,
    Renewed, Reply, Rows, RunId, RunRow, RunState, Timestamp, UndoMark, WorkerId, WorkerRow,
    limits,
};

/// Leases what the search found and is due.
pub(super) fn claim(claim: &Claim, rows: &mut Rows, now: Timestamp) -> Result<Reply, Refusal> {
    let worker = claim.worker;
    if rows.workers.get(&worker).is_none() {
        return Err(Refusal::UnknownWorker { worker });
    }
    let mut next = rows.found_next.take();
    if rows.found.is_empty() && !rows.has_limits() {
        let runs = Vec::new();
        return Ok(Reply::Claimed { runs, next });
    }
    let limit = claim.limit.min(limits::CLAIM);
    let mut permits = Permits::of(&claim.lanes, rows, now);
    let found = permits.in_turn(std::mem::take(&mut rows.found), rows);
    let due = |rows: &Rows, id: RunId| {
        let row = rows.run(id)?;
        let mine = claim.lanes.contains(&row.lane) || mutant::on(Mutant::AnyVersionClaimed);
        let fits = mine && !row.is_leased(now) && !is_blocked(rows, row);
        row.ready_at
            .filter(|at| fits && (*at <= now || row.owner.is_some()))
    };
    for id in found {
        let Some(since) = due(rows, id) else { continue };
        if rows.claimed.len() == limit {
            next = Some(now);
            break;
        }
        let row = rows.run(id).expect("found");
        let before = row.flow;
        if !permits.may(row) {
            continue;
        }
        let elsewhere = row.holder.is_some_and(|holder| holder != worker);
        let head_start = since.after(limits::HEAD_START);
        if row.owner.is_none() && elsewhere && row.news_at.is_some() && now < head_start {
            next = Some(next.map_or(head_start, |at| at.min(head_start)));
            continue;
        }
        if row.owner.is_some() && mutant::on(Mutant::LostWorkersRunsLost) {
            continue;
        }
        if row.owner.is_some() && expire(rows, id, now) {
            continue;
        }
        let row = rows.run(id).expect("found");
        if row.suspect {
            if !free_slot(rows, worker, now) {
                continue;
            }
            rows.workers.get_mut(&worker).expect("checked").suspect = Some(id);
        }
        grant(
            rows,
            id,
            Claimant {
                worker,
                lease: claim.lease,
            },
            now,
        );
        permits.give(rows, id, before);
    }
    let opens = permits.close(rows, now);
    next = next.into_iter().chain(opens).min();
    Ok(Reply::Claimed {
        runs: super::taken(rows),
        next,
    })
}

/// Never: a run that cannot go on is nobody's concern but its own.
fn is_blocked(rows: &Rows, row: &RunRow) -> bool {
    let blocks = |other: &RunRow| other.lane == row.lane && other.state == RunState::Parked;
    mutant::on(Mutant::ParkedBlocksOthers) && rows.runs().any(blocks)
}

/// Is the worker's place for suspects free? A lease there that has ended by time, which the search
/// may not have come to, no longer keeps the others waiting.
fn free_slot(rows: &mut Rows, worker: WorkerId, now: Timestamp) -> bool {
    let slot = rows.workers.get(&worker).expect("checked").suspect;
    let Some(row) = slot.and_then(|run| rows.run(run)) else {
        return true;
    };
    if row.owner != Some(worker) {
        return true;
    }
    if row.is_leased(now) {
        return false;
    }
    let id = row.id;
    expire(rows, id, now);
    true
}

/// A lease has ended by time. Returns whether the run was parked for it.
fn expire(rows: &mut Rows, id: RunId, now: Timestamp) -> bool {
    let row = rows.run_mut(id).expect("found");
    let owner = row.owner.expect("an expired lease has an owner");
    let held = queues::held(row);
    row.end_lease();
    let again = std::mem::replace(&mut row.suspect, true);
    row.holder = None;
    row.news_at = Some(now);
    row.settle(now);
    let (lane, undo) = (row.lane, row.undo);
    queues::give_back(rows, held, now);
    if mutant::on(Mutant::LostWorkerFails) && undo == UndoMark::Possible {
        undos::lost(rows, id, now);
        return false;
    }
    if rows
        .workers
        .get(&owner)
        .is_none_or(|worker| worker.suspect != Some(id))
    {
        if again {
            let row = rows.run_mut(id).expect("found");
            row.crashes = row.crashes.max(1);
        }
        rows.hints.push(Hint::Ready(lane, now));
        return false;
    }
    rows.workers.get_mut(&owner).expect("found").suspect = None;
    let row = rows.run_mut(id).expect("found");
    row.crashes += 1;
    if row.crashes < limits::CRASHES {
        return false;
    }
    let message = format!(
        "its worker stopped {} times while it was the only suspect; \
         look for what aborts the process, then resume it",
        row.crashes
    );
    let failure = Failure::permanent(message).with_code("crashed_worker");
    park(row, &failure, now);
    let reason = row.outcome.clone();
    rows.hints.push(Hint::AtRest(id, RunState::Parked, reason));
    true
}

/// Keeps the leases that have not ended, and tells what came meanwhile. Never revives or shortens.
pub(super) fn renew(renew: &Renew, rows: &mut Rows, now: Timestamp) -> Vec<Renewed> {
    if let Some(worker) = rows.workers.get_mut(&renew.worker) {
        worker.seen_at = now;
        let suspect = worker.suspect.filter(|run| renew.runs.contains(run));
        let suspect = suspect.and_then(|run| rows.run(run));
        if let Some(lane) = suspect.filter(|row| row.crashes == 0).map(|row| row.lane) {
            let worker = rows.workers.get_mut(&renew.worker).expect("found");
            worker.suspect = None;
            rows.hints.push(Hint::Ready(lane, now));
        }
    }
    let until = now.after(renew.lease.min(limits::LEASE));
    let one = |run: &RunId| {
        let mine = rows
            .run(*run)
            .is_some_and(|row| row.owner == Some(renew.worker) && row.is_leased(now));
        if !mine {
            return Renewed {
                run: *run,
                lease: Lease::Lost,
            };
        }
        let lane = rows.run(*run).expect("found").lane;
        let counts = rows.is_limited(lane);
        let row = rows.run_mut(*run).expect("found");
        if counts && row.flow == Flow::Free {
            // Its queue has got limits since it was leased.
            row.flow = Flow::Permit;
            queues::counts(rows, *run);
        }
        let row = rows.run_mut(*run).expect("found");
        row.lease_until = row.lease_until.max(Some(until));
        let (cancel, matched) = (row.cancel == CancelMark::Requested, row.matched);
        let (changed_at, fence) = (row.changed_at, row.fence());
        row.settle(changed_at);
        let inbox = if matched > 0 {
            inbox(rows, *run)
        } else {
            Vec::new()
        };
        let lease = Lease::Kept {
            fence,
            cancel,
            inbox,
        };
        Renewed { run: *run, lease }
    };
    renew.runs.iter().map(one).collect()
}

/// Gives up the leases that the worker has. No fault of the runs.
pub(super) fn release(release: &Release, rows: &mut Rows, now: Timestamp) -> usize {
    let mut given_up = 0;
    for id in &release.runs {
        let Some(row) = rows.run(*id) else { continue };
        if row.owner != Some(release.worker) {
            continue;
        }
        let held = queues::held(row);
        let row = rows.run_mut(*id).expect("found");
        row.end_lease();
        row.holder = None;
        row.news_at = Some(now).filter(|_| !mutant::on(Mutant::ReleasedRunsLost));
        row.settle(now);
        let lane = row.lane;
        rows.hints.push(Hint::Ready(lane, now));
        queues::give_back(rows, held, now);
        given_up += 1;
        if let Some(worker) = rows.workers.get_mut(&release.worker) {
            worker.suspect = worker.suspect.filter(|suspect| suspect != id);
        }
    }
    if release.leave {
        rows.workers.remove(&release.worker);
    }
    given_up
}

/// Makes a worker and its lanes known, and forgets those that have not been seen for long.
pub(super) fn register(
    register: &Register,
    rows: &mut Rows,
    now: Timestamp,
) -> Result<Reply, Refusal> {
    let name = &register.name;
    Refusal::over("a worker's name in bytes", limits::NAME_BYTES, name.len())?;
    Refusal::nul("a worker's name", name)?;
    forget_unseen(rows, now);
    let lanes = rows.make_lanes(&register.lanes);
    let row = WorkerRow {
        id: register.worker,
        name: register.name.clone(),
        started_at: now,
        seen_at: now,
        suspect: None,
        lanes: Vec::new(),
    };
    let known = rows.workers.get(&register.worker).cloned();
    let mut row = known.clone().unwrap_or(row);
    row.lanes.extend(&lanes);
    row.lanes.sort_unstable();
    row.lanes.dedup();
    if row.seen_at.after(limits::SIGN) <= now {
        row.seen_at = now;
    }
    if known.as_ref() != Some(&row) {
        rows.workers.put(register.worker, row);
    }
    Ok(Reply::Registered(lanes))
}

/// Those that left without a word. One of them may be alive, after a jump of the clock: it
/// registers again when it is told that nobody knows it. One that was lost with a suspect is kept
/// until that is claimed, because then it counts.
fn forget_unseen(rows: &mut Rows, now: Timestamp) {
    for worker in std::mem::take(&mut rows.unseen) {
        let Some(row) = rows.workers.get(&worker) else {
            continue;
        };
        let suspect = row.suspect.and_then(|run| rows.run(run));
        let counts = suspect.is_some_and(|run| run.owner == Some(worker));
        if row.seen_at.after(limits::UNSEEN) < now && !counts {
            rows.workers.remove(&worker);
        }
    }
}

/// A parked run that may go on.
pub(super) fn unpark(rows: &mut Rows, id: RunId, now: Timestamp) {
    let row = rows.run_mut(id).expect("found");
    row.state = RunState::Waiting;
    row.outcome = None;
    row.crashes = 0;
    row.suspect = false;
    row.holder = None;
    row.news_at = Some(now).filter(|_| !mutant::on(Mutant::ResumedRunsLost));
    row.settle(now);
    let lane = row.lane;
    rows.hints.push(Hint::Ready(lane, now));
}
