//! Queues with limits. A queue is what is sent under one name, in all versions: the commands of
//! that name, or the runs of that workflow.
//!
//! A permit is a run's own lease, marked as such in its row ([`Flow::Permit`]): what is counted is
//! what is leased, so that none can be lost and none doubled. Permits are given by claims, which
//! lock the queue's row first, and by starts while there is plenty. That a queue has limits at all
//! is known from its lanes ([`Lane::LIMITS`]), which everybody has in memory: other queues cost
//! nothing.

use std::time::Duration;

use crate::mutant::{self, Mutant};
use crate::{Lane, LaneId, Name, Refusal, Rows, Start, Timestamp, limits};

/// How a run stands to the limits of its queue. Derived, as `ready_at` is.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Debug,
    Default,
    serde::Serialize,
    serde::Deserialize,
)]
pub enum Flow {
    /// It is not counted.
    #[default]
    Free,
    /// It is leased, and counts.
    Permit,
    /// It goes on whatever the limits say, and does not count: it was asked to end, or is undone.
    Pass,
}

impl Flow {
    /// All of them, each at the place of its stored number.
    pub const ALL: [Flow; 3] = [Flow::Free, Flow::Permit, Flow::Pass];

    /// The number that is stored; nothing for most.
    #[must_use]
    pub fn number(self) -> Option<u8> {
        (self != Flow::Free).then_some(self as u8)
    }
}

impl Lane {
    /// Nothing runs in a lane of this version. If there is one, its queue has limits. Lanes are
    /// only ever added, and whoever decides has all of them.
    pub const LIMITS: u32 = u32::MAX;
}

/// Which queue.
#[derive(
    Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize,
)]
pub struct QueueId {
    /// The tenant.
    pub namespace: Name,
    /// The name of the command, or of the workflow.
    pub queue: Name,
}

impl QueueId {
    /// The lane that says that it has limits.
    pub(crate) fn marker(&self) -> Lane {
        Lane {
            namespace: self.namespace.clone(),
            workflow: self.queue.clone(),
            version: Lane::LIMITS,
        }
    }
}

/// So many in so long: as many may begin at once, and one more whenever its share of the time has
/// passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Rate {
    /// How many.
    pub count: u32,
    /// In how long.
    pub per: Duration,
}

impl Rate {
    /// The part of the time that one takes, in microseconds.
    fn share(self) -> i64 {
        self.per_micros() / i64::from(self.count.max(1))
    }

    fn per_micros(self) -> i64 {
        i64::try_from(self.per.as_micros()).unwrap_or(i64::MAX)
    }
}

/// The limits of a queue.
#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct QueueRow {
    /// Nothing begins.
    pub paused: bool,
    /// So many are leased at once, at most.
    pub concurrency: Option<u32>,
    /// So many begin in so long, at most.
    pub rate: Option<Rate>,
    /// So many of one flow key are leased at once, at most.
    pub per_key: Option<u32>,
    /// Whose turn it was last; nobody's if it was that of those without a flow key.
    pub turn: Option<Name>,
    /// Up to when the rate is used up.
    pub spent_until: Timestamp,
    /// When the limits were last changed.
    pub changed_at: Timestamp,
}

impl QueueRow {
    const UNLIMITED: QueueRow = QueueRow {
        paused: false,
        concurrency: None,
        rate: None,
        per_key: None,
        turn: None,
        spent_until: Timestamp(0),
        changed_at: Timestamp(0),
    };

    /// How many more may begin now, while so many are leased.
    #[must_use]
    pub fn free(&self, leased: u32, now: Timestamp) -> u32 {
        if self.paused {
            return 0;
        }
        let leased = match mutant::on(Mutant::PermitDoubled) {
            true => 0,
            false => leased,
        };
        let room = self
            .concurrency
            .map_or(u32::MAX, |most| most.saturating_sub(leased));
        room.min(self.rate.map_or(u32::MAX, |rate| self.left(rate, now)))
    }

    /// May one more begin, while so many are leased, and half of everything is left?
    pub(crate) fn has_room_to_spare(&self, leased: u32, now: Timestamp) -> bool {
        let spare = |free: u32, most: u32| u64::from(free.saturating_sub(1)) * 2 >= most.into();
        let free = self.free(leased, now);
        let rate = self.rate.map(|rate| (self.left(rate, now), rate.count));
        let at_once = self.concurrency.map(|most| (free, most));
        free > 0
            && rate
                .into_iter()
                .chain(at_once)
                .all(|(free, most)| spare(free, most))
    }

    /// May somebody wait for the room of one of these, while so many are leased, and so many of its
    /// flow key? Nobody does while more than half of what the limits allow is left: who counted
    /// otherwise counted others, and the end of those says so. What the rate holds back waits for
    /// a time.
    pub(crate) fn is_awaited(&self, leased: u32, of_key: Option<u32>) -> bool {
        let half = |held: u32, most: u32| u64::from(held) * 2 >= most.into();
        let at_once = self.concurrency.map(|most| half(leased, most));
        let per_key = self
            .per_key
            .zip(of_key)
            .map(|(most, held)| half(held, most));
        at_once.into_iter().chain(per_key).any(|awaited| awaited)
    }

    /// What is left of the rate.
    fn left(&self, rate: Rate, now: Timestamp) -> u32 {
        let used = self.spent(rate, now).0.saturating_sub(now.0);
        let left = rate.per_micros().saturating_sub(used).max(0) / rate.share().max(1);
        u32::try_from(left).unwrap_or(u32::MAX).min(rate.count)
    }

    /// Up to when the rate is used up. What lies further ahead than its time was spent by a clock
    /// that has since been set back, and does not count.
    fn spent(&self, rate: Rate, now: Timestamp) -> Timestamp {
        match self.spent_until > now.after(rate.per) {
            true => now,
            false => self.spent_until.max(now),
        }
    }

    /// So many begin now.
    pub(crate) fn spend(&mut self, count: u32, now: Timestamp) {
        let Some(rate) = self.rate.filter(|_| count > 0) else {
            return;
        };
        let from = self.spent(rate, now);
        let used = rate.share().saturating_mul(count.into());
        self.spent_until = Timestamp(from.0.saturating_add(used));
    }

    /// When one more may begin by the rate, if none may now.
    #[must_use]
    pub fn opens_at(&self, now: Timestamp) -> Option<Timestamp> {
        let rate = self
            .rate
            .filter(|rate| !self.paused && self.left(*rate, now) == 0)?;
        let at = self.spent_until.0.saturating_sub(rate.per_micros());
        Some(Timestamp(at.saturating_add(rate.share())))
    }
}

impl std::fmt::Display for QueueRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut parts = Vec::new();
        parts.extend(self.paused.then(|| "paused".to_owned()));
        parts.extend(self.concurrency.map(|most| format!("{most} at once")));
        parts.extend(self.per_key.map(|most| format!("{most} of a key")));
        let rate = |rate: Rate| format!("{} in {:?}", rate.count, rate.per);
        parts.extend(self.rate.map(rate));
        match parts.is_empty() {
            true => f.write_str("no limits"),
            false => f.write_str(&parts.join(", ")),
        }
    }
}

/// What an operator says about a queue; what is not said stays.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limit {
    /// Which queue.
    pub queue: QueueId,
    /// Does nothing begin any more?
    pub paused: Option<bool>,
    /// How many are leased at once; no limit if none is given.
    pub concurrency: Option<Option<u32>>,
    /// How many of one flow key are leased at once; no limit if none is given.
    pub per_key: Option<Option<u32>>,
    /// How many begin in how long; no limit if none is given.
    pub rate: Option<Option<Rate>>,
}

impl Limit {
    /// The limits stay as they are.
    #[must_use]
    pub fn of(queue: QueueId) -> Limit {
        Limit {
            queue,
            paused: None,
            concurrency: None,
            per_key: None,
            rate: None,
        }
    }

    /// What it is called in the audit.
    pub(crate) fn action(&self) -> &'static str {
        match self.paused {
            Some(true) => "pause",
            Some(false) => "resume",
            None => "limit",
        }
    }

    pub(crate) fn check(&self) -> Result<(), Refusal> {
        let positive = |what, number: usize| match number {
            0 => Err(Refusal::Zero { what }),
            _ => Ok(()),
        };
        if let Some(Some(most)) = self.concurrency {
            positive("a queue's concurrency", most as usize)?;
        }
        if let Some(Some(most)) = self.per_key {
            positive("a queue's concurrency per key", most as usize)?;
        }
        let Some(Some(rate)) = self.rate else {
            return Ok(());
        };
        positive("the number of a queue's rate", rate.count as usize)?;
        let micros = usize::try_from(rate.per.as_micros()).unwrap_or(usize::MAX);
        positive("the time of a queue's rate", micros)?;
        let longest = limits::RATE_TIME.as_micros();
        let longest = usize::try_from(longest).unwrap_or(usize::MAX);
        Refusal::over(
            "the time of a queue's rate in microseconds",
            longest,
            micros,
        )?;
        Refusal::over("the number of a queue's rate", micros, rate.count as usize)
    }
}

impl Start {
    /// The queue that it is sent to, if that has limits.
    #[must_use]
    pub fn queue_with_limits(&self, rows: &Rows) -> Option<QueueId> {
        let limited = rows.has_limits() && self.has_limits(rows.lanes());
        limited.then(|| QueueId {
            namespace: self.namespace.clone(),
            queue: self.workflow.clone(),
        })
    }

    /// Has the queue that it is sent to limits, if these are all lanes?
    #[must_use]
    pub fn has_limits(&self, lanes: &[Lane]) -> bool {
        let its = |lane: &Lane| lane.workflow == self.workflow && lane.namespace == self.namespace;
        let mut lanes = lanes.iter();
        lanes.any(|lane| lane.version == Lane::LIMITS && its(lane))
    }

    /// Does it ask for a permit of its own? What is on somebody's behalf waits for its turn.
    #[must_use]
    pub fn takes_permit(&self) -> bool {
        self.claimant.is_some() && self.flow_key.is_none() && self.parent.is_none()
    }

    /// Is there a permit for it, if it asks for one? Of a queue that is loaded, with its permits.
    #[must_use]
    pub fn finds_room(&self, queue: &QueueId, rows: &Rows, now: Timestamp) -> bool {
        let held = rows.permits.get(queue).filter(|_| self.takes_permit());
        let leased = held.map(|held| held.values().sum());
        leased.is_some_and(|leased| rows.limits_of(queue).has_room_to_spare(leased, now))
    }
}

impl Rows {
    /// Has any queue limits? Mostly none has.
    #[must_use]
    pub fn has_limits(&self) -> bool {
        !self.limited.is_empty()
    }

    /// Has the queue of this lane limits?
    #[must_use]
    pub fn is_limited(&self, lane: LaneId) -> bool {
        let at = lane.0 as usize - 1;
        self.limited.get(at).copied().unwrap_or_default()
    }

    pub(crate) fn note_limits(&mut self) {
        let marked = |lane: &&Lane| lane.version == Lane::LIMITS;
        let marked: Vec<&Lane> = self.lanes().iter().filter(marked).collect();
        if marked.is_empty() {
            self.limited.clear();
            return;
        }
        let its = |lane: &Lane| {
            let same = |marker: &&Lane| {
                marker.workflow == lane.workflow && marker.namespace == lane.namespace
            };
            marked.iter().any(same)
        };
        self.limited = self.lanes().iter().map(its).collect();
    }

    /// The queue of a lane, if it has limits.
    #[must_use]
    pub fn limited(&self, lane: LaneId) -> Option<QueueId> {
        self.is_limited(lane).then(|| {
            let Lane {
                namespace,
                workflow: queue,
                ..
            } = self.lane(lane).clone();
            QueueId { namespace, queue }
        })
    }

    /// The lanes of a queue that has limits in which something can run.
    pub fn lanes_of<'r>(&'r self, queue: &'r QueueId) -> impl Iterator<Item = LaneId> + 'r {
        let lanes = (1..).map(LaneId).zip(self.lanes());
        let lanes = lanes.filter(|(id, _)| self.is_limited(*id));
        let its = |lane: &Lane| lane.workflow == queue.queue && lane.namespace == queue.namespace;
        let lanes = lanes.filter(move |(_, lane)| its(lane) && lane.version != Lane::LIMITS);
        lanes.map(|(id, _)| id)
    }

    /// How many runs of a lane may begin at this time; none if it has no limits. The queue's row
    /// and its permits are loaded.
    pub(crate) fn room_in(&self, lane: LaneId, now: Timestamp) -> Option<u32> {
        let queue = self.limited(lane)?;
        let leased = self.permits.get(&queue);
        let leased = leased.map_or(0, |held| held.values().sum());
        Some(self.limits_of(&queue).free(leased, now))
    }

    /// The limits of a queue; none if nobody has set any: then its flow keys merely take turns.
    pub(crate) fn limits_of(&self, queue: &QueueId) -> &QueueRow {
        self.queues.get(queue).unwrap_or(&QueueRow::UNLIMITED)
    }

    /// The flow keys of which as many are leased as may be.
    pub(crate) fn full_keys(&self, queue: &QueueId) -> Vec<Name> {
        let Some(most) = self.limits_of(queue).per_key else {
            return Vec::new();
        };
        let held = self.permits.get(queue).into_iter().flatten();
        let full = held.filter(|(_, held)| **held >= most && !mutant::on(Mutant::KeyOverdrawn));
        full.filter_map(|(key, _)| key.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ten_a_second() -> QueueRow {
        QueueRow {
            rate: Some(Rate {
                count: 10,
                per: Duration::from_secs(1),
            }),
            ..QueueRow::default()
        }
    }

    #[test]
    fn co_30_a_rate_gives_its_number_at_once_and_then_one_for_each_share() {
        let (mut row, start) = (ten_a_second(), Timestamp(5_000_000));
        assert_eq!(row.free(0, start), 10);
        row.spend(10, start);
        assert_eq!(row.free(0, start), 0);
        let opens = row.opens_at(start).expect("it is used up");
        assert_eq!(opens, start.after(Duration::from_millis(100)));
        assert_eq!(row.free(0, Timestamp(opens.0 - 1)), 0);
        assert_eq!(row.free(0, opens), 1);
        assert_eq!(row.opens_at(opens), None);
        row.spend(1, opens);
        assert_eq!(row.free(0, opens), 0);
        let later = opens.after(Duration::from_secs(3600));
        assert_eq!(row.free(0, later), 10, "no more is saved up");
    }

    #[test]
    fn co_30_b14_what_was_spent_by_a_clock_that_was_set_back_does_not_count() {
        let (mut row, late) = (ten_a_second(), Timestamp(9_000_000_000));
        row.spend(10, late);
        let now = late.before(Duration::from_secs(3600));
        assert_eq!((row.free(0, now), row.opens_at(now)), (10, None));
        row.spend(10, now);
        assert_eq!(row.free(0, now), 0);
    }

    #[test]
    fn co_30_the_least_of_all_limits_counts() {
        let (row, now) = (ten_a_second(), Timestamp(7));
        let both = QueueRow {
            concurrency: Some(4),
            ..row.clone()
        };
        assert_eq!((both.free(0, now), both.free(3, now)), (4, 1));
        assert_eq!((both.free(4, now), both.free(9, now)), (0, 0));
        let paused = QueueRow {
            paused: true,
            ..both
        };
        assert_eq!((paused.free(0, now), paused.opens_at(now)), (0, None));
        assert_eq!(QueueRow::default().free(9, now), u32::MAX);
    }
}
