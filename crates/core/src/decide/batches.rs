//! Batches: all of their commands are sent or none; the last that ends, ends the batch.

use std::collections::BTreeSet;

use super::{ends, scopes, starts, undos};
use crate::mutant::{self, Mutant};
use crate::{
    BATCH, Batch, BatchEnd, Call, CancelMark, Claimant, Entry, Hint, LatchId, Name, Outcome,
    Payload, Refusal, Rows, RunId, RunRow, RunState, Start, Timestamp, UndoMark, limits,
};

/// Is this run one?
pub(crate) fn is_batch(rows: &Rows, row: &RunRow) -> bool {
    rows.lane(row.lane).workflow == BATCH
}

/// What can be said of a batch without looking whether its commands are there already.
pub(super) fn check(start: &Start) -> Result<(), Refusal> {
    let Some(batch) = &start.batch else {
        return match start.workflow == BATCH {
            true => Err(Refusal::EmptyBatch),
            false => Ok(()),
        };
    };
    let large = |what, limit, found| match found > limit {
        true => Err(Refusal::LargeBatch { what, limit, found }),
        false => Ok(()),
    };
    if batch.members.is_empty() {
        return Err(Refusal::EmptyBatch);
    }
    large("commands", limits::BATCH, batch.members.len())?;
    large("bytes of payloads", limits::BATCH_BYTES, batch.bytes())?;
    let alone = |its: &Start| {
        let goes = its.claimant.is_none() && its.first.is_none() && its.signal.is_none();
        goes && its.dedupe.is_none()
    };
    let plain = |its: &Start| alone(its) && its.batch.is_none() && its.workflow != BATCH;
    let parent = Some(Batch::parent(start.run));
    let fits = (start.workflow == BATCH && alone(start))
        && batch.starts().all(plain)
        && batch.starts().all(|its| its.namespace == start.namespace)
        && batch.members.iter().all(|its| its.parent == parent)
        && batch.then.iter().all(|its| its.parent.is_none());
    if !fits {
        let what = "its batch has what no batch has";
        return Err(Refusal::Inconsistent {
            run: start.run,
            what,
        });
    }
    batch.starts().try_for_each(starts::check)
}

/// May all of it be sent? Everything must be new, and nothing there twice: also not among what is
/// sent together with it.
pub(super) fn may_open<'s>(
    start: &'s Start,
    together: &mut Together<'s>,
    rows: &Rows,
) -> Result<(), Refusal> {
    let Some(batch) = &start.batch else {
        return Ok(());
    };
    let depth = starts::depth(start, rows)? + 1;
    Refusal::over("a tree's depth", limits::DEPTH as usize, depth as usize)?;
    for its in batch.starts() {
        let new = starts::is_new(its, rows)? && together.add(its);
        if !new {
            return Err(starts::in_use(its));
        }
    }
    Ok(())
}

/// What is sent together, by what it may share with nothing else.
#[derive(Default)]
pub(super) struct Together<'s> {
    keys: BTreeSet<&'s Name>,
    runs: BTreeSet<RunId>,
}

impl<'s> Together<'s> {
    /// Adds this. Returns whether it shares nothing with what was added before.
    pub(super) fn add(&mut self, start: &'s Start) -> bool {
        let key = start.key.as_ref().is_none_or(|key| self.keys.insert(key));
        self.runs.insert(start.run) && key
    }
}

/// Sends the commands of a batch that has just been put there.
pub(super) fn open(start: &Start, rows: &mut Rows, now: Timestamp) {
    let Some(batch) = &start.batch else { return };
    let (run, call, workflow) = (start.run, Batch::CALL, BATCH);
    let what = Call::Batch { workflow };
    undos::append(rows, run, &[Entry::Begun { call, what }], now);
    let row = rows.run_mut(run).expect("just made");
    row.news_at = None;
    row.settle(now);
    let by = Some(Batch::parent(run));
    scopes::open(&batch.members, by, rows, now).expect("checked");
    if let Some(then) = &batch.then {
        starts::start(then, rows, now).expect("checked");
        hold(rows, then.run, run, now);
        if mutant::on(Mutant::CallbackTwice) {
            let mut bytes = *then.run.as_bytes();
            bytes[15] ^= 1;
            let (run, key) = (RunId::from_bytes(bytes), None);
            let again = Start {
                run,
                key,
                ..then.clone()
            };
            let _ = starts::start(&again, rows, now);
            hold(rows, again.run, start.run, now);
        }
    }
}

/// What was just started begins when the batch has ended.
fn hold(rows: &mut Rows, run: RunId, batch: RunId, now: Timestamp) {
    let row = rows.run_mut(run).expect("just made");
    row.news_at = None;
    row.settle(now);
    rows.watches.put((batch, run, 1, Batch::HELD), ());
    rows.run_mut(batch).expect("just made").watchers += 1;
}

/// What a batch was followed by begins, unless somebody has ended it meanwhile.
pub(super) fn release(rows: &mut Rows, run: RunId, now: Timestamp) {
    let held = |row: &&mut RunRow| {
        let rests = row.state.has_ended() || row.state == RunState::Parked;
        !rests && row.owner.is_none() && row.head == 1
    };
    let Some(row) = rows.run_mut(run).filter(held) else {
        return;
    };
    row.news_at = Some(now);
    row.settle(now);
    let (lane, at) = (row.lane, row.ready_at.unwrap_or(now));
    rows.hints.push(Hint::Ready(lane, at));
}

/// The last command has ended: so has the batch, unless a worker sees to its end. Returns whether
/// this was a batch that has ended.
pub(super) fn end(
    rows: &mut Rows,
    id: LatchId,
    (commands, failed): (u32, u32),
    claimant: Option<Claimant>,
    now: Timestamp,
) -> bool {
    let waits = |row: &&RunRow| {
        let asked = row.cancel != CancelMark::None || row.undo == UndoMark::Underway;
        let free = row.owner.is_none() && row.state == RunState::Waiting;
        free && !asked && row.missed(now).is_none()
    };
    let row = rows.run(id.run).filter(waits);
    if !row.is_some_and(|row| is_batch(rows, row)) {
        return false;
    }
    let counted = Payload::encode(&failed).expect("a number has a JSON form");
    let done = Entry::Done {
        call: id.call,
        outcome: Outcome::Value(counted),
    };
    let state = RunState::Completed;
    undos::append(rows, id.run, &[done, Entry::Ended { state }], now);
    let end = Payload::encode(&BatchEnd { commands, failed }).expect("two numbers");
    let claimant = claimant.unwrap_or(super::operators::NOBODY);
    ends::end(rows, id.run, (state, &Outcome::Value(end)), claimant, now);
    true
}
