//! Limits of queues: what an operator says about them, and the permits that a claim gives.

use std::collections::{BTreeMap, VecDeque};

use crate::mutant::{self, Mutant};
use crate::{
    Flow, Hint, LaneId, Limit, Name, QueueId, QueueRow, Refusal, Rows, RunId, RunRow, Start,
    Timestamp, limits,
};

/// Changes the limits of a queue. What is leased goes on.
pub(super) fn limit(limit: &Limit, rows: &mut Rows, now: Timestamp) -> Result<QueueRow, Refusal> {
    limit.check()?;
    let queue = &limit.queue;
    let mut row = rows.queues.get(queue).cloned().unwrap_or_default();
    row.paused = limit.paused.unwrap_or(row.paused);
    row.concurrency = limit.concurrency.unwrap_or(row.concurrency);
    row.per_key = limit.per_key.unwrap_or(row.per_key);
    if let Some(rate) = limit.rate.filter(|rate| *rate != row.rate) {
        row.rate = rate;
        row.spent_until = now;
    }
    row.changed_at = now;
    rows.make_lane(&queue.marker());
    rows.queues.put(queue.clone(), row.clone());
    tell_of_room(rows, queue, now);
    Ok(row)
}

/// Whoever can run something of this queue is told that there may be room.
fn tell_of_room(rows: &mut Rows, queue: &QueueId, now: Timestamp) {
    let lanes: Vec<LaneId> = rows.lanes_of(queue).collect();
    let hints = lanes.into_iter().map(|lane| Hint::Ready(lane, now));
    rows.hints.extend(hints);
}

/// A lease that counts: in which lane, and for which flow key.
pub(super) type Held = Option<(LaneId, Option<Name>)>;

/// What a run holds as it is.
pub(super) fn held(row: &RunRow) -> Held {
    let counts = row.flow == Flow::Permit;
    counts.then(|| (row.lane, row.flow_key.clone()))
}

/// A lease that counted is over, if it was one: another may begin.
pub(super) fn give_back(rows: &mut Rows, held: Held, now: Timestamp) {
    let Some((lane, key)) = held else { return };
    let Some(queue) = rows.limited(lane) else {
        return;
    };
    let awaited = is_awaited(rows, &queue, key.as_ref());
    if let Some(given) = rows.permits.get_mut(&queue) {
        let count = given.entry(key).or_default();
        *count = count.saturating_sub(1);
    }
    if awaited {
        tell_of_room(rows, &queue, now);
    }
}

/// May somebody wait for the room of one of this flow key? Who has not counted does not know.
fn is_awaited(rows: &Rows, queue: &QueueId, key: Option<&Name>) -> bool {
    let Some(held) = rows.permits.get(queue) else {
        return true;
    };
    let of_key = key.map(|key| held.get(&Some(key.clone())).copied().unwrap_or_default());
    let leased = held.values().sum();
    rows.limits_of(queue).is_awaited(leased, of_key)
}

/// One more is leased under the limits of its queue, whose permits are loaded.
fn count(rows: &mut Rows, queue: &QueueId, key: Option<Name>) {
    if let Some(given) = rows.permits.get_mut(queue) {
        *given.entry(key).or_default() += 1;
    }
}

/// A run that is leased counts from now on.
pub(super) fn counts(rows: &mut Rows, run: RunId) {
    let row = rows.run(run).expect("found");
    let (lane, key) = (row.lane, row.flow_key.clone());
    if let Some(queue) = rows.limited(lane) {
        count(rows, &queue, key);
    }
}

/// May what is started be leased in the same commit? Then its permit is given. Half of what the
/// limits allow is left to claims, so that whatever comes does not overtake what waits for ever.
pub(super) fn admit(start: &Start, rows: &mut Rows, now: Timestamp) -> Admission {
    let Some(queue) = start.queue_with_limits(rows) else {
        return Admission::Free;
    };
    // A store that could not have the queue's row has not counted its permits.
    if !start.finds_room(&queue, rows, now) {
        return Admission::Waits;
    }
    // The row is written with every permit, so that whoever looked at it before sees that.
    if let Some(row) = rows.queues.get_mut(&queue) {
        row.spend(1, now);
    }
    count(rows, &queue, None);
    Admission::Permit
}

/// How what is started stands to the limits of its queue.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    /// It has none.
    Free,
    /// It has been given a permit.
    Permit,
    /// Claims begin it.
    Waits,
}

/// The permits that one claim may give.
#[derive(Default)]
pub(super) struct Permits {
    /// By lane, the place of its queue.
    lanes: BTreeMap<LaneId, usize>,
    queues: Vec<Room>,
}

struct Room {
    queue: QueueId,
    limits: QueueRow,
    free: u32,
    given: u32,
    /// How many are leased, by flow key.
    held: BTreeMap<Option<Name>, u32>,
    /// Whose turn it was last.
    last: Option<Option<Name>>,
    /// Something was looked at instead of another that there is room for: it had its permit
    /// already, or its key became full.
    instead: bool,
}

impl Room {
    fn new(queue: QueueId, free: u32, rows: &Rows) -> Room {
        Room {
            limits: rows.limits_of(&queue).clone(),
            free,
            given: 0,
            held: rows.permits.get(&queue).cloned().unwrap_or_default(),
            last: None,
            instead: false,
            queue,
        }
    }

    /// May one more of this flow key begin? What has none is not limited by it.
    fn has_room_for(&mut self, key: Option<&Name>) -> bool {
        let most = self.limits.per_key.filter(|_| key.is_some());
        let held = self.held.get(&key.cloned()).copied().unwrap_or_default();
        let full = most.is_some_and(|most| held >= most) && !mutant::on(Mutant::KeyOverdrawn);
        self.instead |= full && self.given > 0;
        self.free > 0 && !full
    }

    /// Those that this claim looks at, one of each flow key in turn, from the one after the last.
    fn in_turn(&self, waiting: BTreeMap<Option<Name>, VecDeque<RunId>>) -> Vec<RunId> {
        let mut keys: Vec<_> = waiting.into_iter().collect();
        let first = keys.partition_point(|(key, _)| *key <= self.limits.turn);
        keys.rotate_left(first);
        let mut order = Vec::new();
        while !keys.is_empty() {
            order.extend(keys.iter_mut().filter_map(|(_, runs)| runs.pop_front()));
            keys.retain(|(_, runs)| !runs.is_empty());
        }
        order
    }
}

impl Permits {
    /// Of these lanes, whose queues' rows are locked.
    pub(super) fn of(lanes: &[LaneId], rows: &Rows, now: Timestamp) -> Permits {
        let mut permits = Permits::default();
        if !rows.has_limits() {
            return permits;
        }
        for lane in lanes {
            let (Some(free), Some(queue)) = (rows.room_in(*lane, now), rows.limited(*lane)) else {
                continue;
            };
            let known = permits.queues.iter().position(|room| room.queue == queue);
            let at = known.unwrap_or(permits.queues.len());
            if known.is_none() {
                permits.queues.push(Room::new(queue, free, rows));
            }
            permits.lanes.insert(*lane, at);
        }
        permits
    }

    fn room(&mut self, lane: LaneId) -> Option<&mut Room> {
        let at = self.lanes.get(&lane)?;
        self.queues.get_mut(*at)
    }

    /// What was found, in the same places, but the flow keys of each queue in turn.
    pub(super) fn in_turn(&self, mut found: Vec<RunId>, rows: &Rows) -> Vec<RunId> {
        for (at, room) in self.queues.iter().enumerate() {
            let mut waiting: BTreeMap<Option<Name>, VecDeque<RunId>> = BTreeMap::new();
            let mut places = Vec::new();
            for (place, id) in found.iter().enumerate() {
                let row = rows
                    .run(*id)
                    .filter(|row| self.lanes.get(&row.lane) == Some(&at));
                let Some(row) = row.filter(|row| row.flow == Flow::Free && !row.suspect) else {
                    continue;
                };
                places.push(place);
                waiting
                    .entry(row.flow_key.clone())
                    .or_default()
                    .push_back(*id);
            }
            for (place, id) in places.into_iter().zip(room.in_turn(waiting)) {
                found[place] = id;
            }
        }
        found
    }

    /// May this run be leased? One whose lease has ended by time still has its permit.
    pub(super) fn may(&mut self, row: &RunRow) -> bool {
        let exempt = row.flow != Flow::Free || row.goes_ahead();
        let room = self.room(row.lane);
        exempt || room.is_none_or(|room| room.has_room_for(row.flow_key.as_ref()))
    }

    /// The run that stood like this before is leased now: does it count?
    pub(super) fn give(&mut self, rows: &mut Rows, id: RunId, before: Flow) {
        let row = rows.run(id).expect("just leased");
        let (lane, ahead, key) = (row.lane, row.goes_ahead(), row.flow_key.clone());
        let Some(room) = self.room(lane) else { return };
        let flow = if ahead { Flow::Pass } else { Flow::Permit };
        if flow == Flow::Permit && before == Flow::Free {
            room.free = room.free.saturating_sub(1);
            room.given += 1;
            *room.held.entry(key.clone()).or_default() += 1;
            room.last = Some(key);
        } else {
            room.instead = true;
        }
        let queue = room.queue.clone();
        let row = rows.run_mut(id).expect("just leased");
        row.flow = flow;
        if flow == Flow::Permit {
            // One whose lease had ended by time has given it back before.
            let key = row.flow_key.clone();
            count(rows, &queue, key);
        }
    }

    /// What was given is used up. Returns when it is to be asked again: when the first of them
    /// may give more because time passes, or now if there may be more to find.
    pub(super) fn close(self, rows: &mut Rows, now: Timestamp) -> Option<Timestamp> {
        let mut next: Option<Timestamp> = None;
        let looked_at = std::mem::take(&mut rows.looked_at);
        for (at, room) in self.queues.into_iter().enumerate() {
            let mut its = looked_at
                .iter()
                .filter(|(lane, _)| self.lanes.get(lane) == Some(&at));
            // Nothing was due among so many keys: the next claim goes on behind them.
            let behind = its.next().map(|(_, key)| Some(key.clone()));
            let behind = behind.filter(|_| room.given == 0 && room.free > 0);
            let soon = behind.as_ref().map(|_| now.after(limits::HEAD_START));
            let again = (room.instead && room.free > 0).then_some(now);
            let mut row = room.limits.clone();
            row.spend(room.given, now);
            row.turn = room.last.or(behind).unwrap_or(row.turn);
            let opens = row.opens_at(now);
            next = next.into_iter().chain(opens).chain(again).chain(soon).min();
            let has_row = rows.queues.get(&room.queue).is_some();
            if row != room.limits || has_row && room.given > 0 {
                rows.queues.put(room.queue, row);
            }
        }
        next
    }
}
