//! Limits of queues: set by operators at any time, and held by whoever claims.

use std::collections::BTreeMap;
use std::time::Duration;

use roundel_core::{Flow, Limit, Name, Op, QueueId, Rate, Rows, RunRow, Timestamp};

use crate::marks::Mark;
use crate::world::{NAMESPACE, World};

/// The keys that runs of a schedule have.
static KEYS: [Name; 2] = [Name::constant("ada"), Name::constant("bob")];

/// How many permits queues had given before an operation, all in all and by key.
#[derive(Debug, Default)]
pub(crate) struct Permits(Vec<(QueueId, Held)>);

type Held = BTreeMap<Option<Name>, usize>;

impl Permits {
    /// Nothing but a claim or a start gives any.
    pub(crate) fn of(op: &Op, rows: &Rows) -> Permits {
        let (Op::Claim(_) | Op::Start(_)) = op else {
            return Permits::default();
        };
        let queues = rows.queues.iter().map(|(queue, _)| queue);
        Permits(
            queues
                .map(|queue| (queue.clone(), held(rows, queue)))
                .collect(),
        )
    }
}

/// How many runs of a queue are leased and count, by key.
fn held(rows: &Rows, queue: &QueueId) -> Held {
    let its = |row: &RunRow| {
        let lane = rows.lane(row.lane);
        lane.workflow == queue.queue && lane.namespace == queue.namespace
    };
    let counts = |row: &&RunRow| row.flow == Flow::Permit && its(row);
    let mut held = Held::new();
    for row in rows.runs().filter(counts) {
        *held.entry(row.flow_key.clone()).or_default() += 1;
    }
    held
}

/// Are as many of its queue, or of its key, leased as may be?
pub(crate) fn is_held_back(rows: &Rows, row: &RunRow, now: Timestamp) -> bool {
    if row.is_leased(now) || row.flow != Flow::Free || !rows.is_limited(row.lane) {
        return false;
    }
    let lane = rows.lane(row.lane);
    let queue = QueueId {
        namespace: lane.namespace.clone(),
        queue: lane.workflow.clone(),
    };
    let Some(limits) = rows.queues.get(&queue) else {
        return false;
    };
    let held = held(rows, &queue);
    let all = held.values().sum::<usize>();
    let of_key = held.get(&row.flow_key).copied().unwrap_or_default();
    let per_key = limits.per_key.filter(|_| row.flow_key.is_some());
    limits.concurrency.is_some_and(|most| all >= most as usize)
        || per_key.is_some_and(|most| of_key >= most as usize)
}

impl World<'_> {
    /// What an operator says about some queue.
    pub(crate) fn limit(&mut self) -> Op {
        let flow = self.random.below(self.flows.len());
        let mut limit = Limit::of(QueueId {
            namespace: NAMESPACE,
            queue: self.flows[flow].name.clone(),
        });
        match self.random.below(10) {
            6 => limit.per_key = Some(None),
            7..10 => limit.per_key = Some(Some(1)),
            0 => limit.concurrency = Some(None),
            1 => limit.paused = Some(self.random.once_in(2)),
            2 => {
                let (count, per) = (2, Duration::from_millis(50));
                limit.rate = Some(Some(Rate { count, per }).filter(|_| self.random.once_in(2)));
            }
            _ => limit.concurrency = Some(Some(1 + u32::from(self.random.once_in(3)))),
        }
        Op::Limit(limit)
    }

    /// On whose behalf a run is, where operators limit queues.
    pub(crate) fn flow_key(&mut self) -> Option<Name> {
        if !self.faults.limits || self.random.once_in(4) {
            return None;
        }
        Some(KEYS[usize::from(self.random.once_in(4))].clone())
    }

    /// An operation has given no more permits than there were.
    pub(crate) fn permits_given(&mut self, before: &Permits) {
        for (queue, before) in &before.0 {
            let rows = self.model.rows();
            let now = held(rows, queue);
            let (had, has) = (before.values().sum::<usize>(), now.values().sum::<usize>());
            let Some(row) = rows.queues.get(queue) else {
                continue;
            };
            let most = row.concurrency.map_or(usize::MAX, |most| most as usize);
            let queue = &queue.queue;
            if has > had && (has > most || row.paused) {
                let found = format!("co_30: {queue} had {had} permits, now {has} ({row})");
                self.book.violations.push(found);
            }
            let mut full = false;
            for (key, has) in now.iter().filter(|(key, _)| key.is_some()) {
                let had = before.get(key).copied().unwrap_or_default();
                let most = row.per_key.map_or(usize::MAX, |most| most as usize);
                full |= *has >= most;
                if *has > had && *has > most {
                    let found = format!("co_30: {key:?} of {queue} had {had}, now {has} ({row})");
                    self.book.violations.push(found);
                }
            }
            let marks = [
                (row.paused, Mark::QueuePaused),
                (has >= most, Mark::QueueFull),
                (full, Mark::KeyFull),
                (now.len() > 1, Mark::KeysInTurn),
                (row.opens_at(self.now).is_some(), Mark::RateUsedUp),
            ];
            for (_, mark) in marks.into_iter().filter(|(hit, _)| *hit) {
                self.marks.hit(mark);
            }
        }
    }

    /// In the end nothing is paused. Other limits stay: within them all must come to rest.
    pub(crate) fn resume_queues(&mut self) {
        let queues = self.model.rows().queues.iter();
        let paused = queues.filter(|(_, row)| row.paused);
        let paused: Vec<QueueId> = paused.map(|(queue, _)| queue.clone()).collect();
        for queue in paused {
            let mut limit = Limit::of(queue);
            limit.paused = Some(false);
            let resumed = self.model.decide(&Op::Limit(limit), self.now);
            assert!(resumed.is_ok(), "{resumed:?}");
        }
    }
}
