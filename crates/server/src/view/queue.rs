//! Queues that have limits.

use std::collections::BTreeMap;

use roundel::{Name, QueueLimits, Timestamp};

use crate::shape::output;

output! {
    /// So many in so long.
    pub struct Rate {
        /// How many.
        count: u32,
        /// In how many milliseconds.
        per_ms: u64,
    }
}

output! {
    /// A queue that has limits.
    pub struct Queue {
        /// Its name.
        queue: Name,
        /// Nothing of it is begun.
        paused: bool,
        /// So many in hand at once.
        concurrency: Option<u32>,
        /// So many with the same flow key.
        per_key: Option<u32>,
        /// So many begun in so long.
        rate: Option<Rate>,
        /// How many are in hand.
        in_hand: u32,
        /// How many of them by flow key.
        in_hand_by_key: BTreeMap<String, u32>,
        /// When the limits were changed.
        changed_at: Timestamp,
    }
}

impl From<&QueueLimits> for Queue {
    fn from(queue: &QueueLimits) -> Queue {
        let limits = &queue.limits;
        let rate = |rate: roundel::Rate| Rate {
            count: rate.count,
            per_ms: u64::try_from(rate.per.as_millis()).unwrap_or(u64::MAX),
        };
        let keys = queue.by_key.iter();
        let by_key = keys.filter_map(|(key, count)| Some((key.as_ref()?.to_string(), *count)));
        Queue {
            queue: queue.queue.clone(),
            paused: limits.paused,
            concurrency: limits.concurrency,
            per_key: limits.per_key,
            rate: limits.rate.map(rate),
            in_hand: queue.permits,
            in_hand_by_key: by_key.collect(),
            changed_at: limits.changed_at,
        }
    }
}
