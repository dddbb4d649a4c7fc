//! Counters and gauges of one engine.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

macro_rules! metrics {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        #[derive(Default, Debug)]
        pub(crate) struct Counters {
            $(pub(crate) $name: Counter,)*
            pub(crate) store_waits: Histogram,
            pub(crate) tick_times: Histogram,
        }

        /// What an engine has counted since it started.
        #[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Metrics {
            $($(#[$doc])* pub $name: u64,)*
            /// How long requests waited for the store: for their turn, for its locks, for the disk.
            pub store_waits: Waits,
            /// How long ticks took.
            pub tick_times: Waits,
        }

        impl Counters {
            pub(crate) fn snapshot(&self) -> Metrics {
                Metrics {
                    $($name: self.$name.0.load(Ordering::Relaxed),)*
                    store_waits: self.store_waits.snapshot(),
                    tick_times: self.tick_times.snapshot(),
                }
            }
        }
    };
}

metrics! {
    /// Runs started through this engine.
    runs_started,
    /// Runs that this engine completed.
    runs_completed,
    /// Runs that this engine saw fail.
    runs_failed,
    /// Runs that this engine ended on request.
    runs_cancelled,
    /// Runs that this engine parked.
    runs_parked,
    /// Runs given back because they need a key that this process does not have.
    runs_unread,
    /// Runs that this engine removed because they ended long ago.
    runs_pruned,
    /// Rounds committed.
    rounds,
    /// Rounds refused because somebody else has the run.
    rounds_fenced,
    /// Rounds that had to be sent again because the database could not be written.
    rounds_retried,
    /// Attempts of steps and effects that failed with a business failure.
    failures_business,
    /// Attempts that failed and may pass.
    failures_transient,
    /// Attempts that failed for good, or too often.
    failures_permanent,
    /// Claims that brought at least one run.
    claims_with_runs,
    /// Claims that brought none.
    claims_empty,
    /// Claims that failed.
    claims_failed,
    /// Leases lost by time or to another worker.
    leases_lost,
    /// Runs replayed from their journal.
    replays,
    /// Runs found in memory when they were claimed again.
    found_in_memory,
    /// Facts that were recorded through this engine, other than by steps.
    facts_recorded,
    /// Times that facts could not be recorded.
    facts_failed,
    /// Facts that came in and were parked.
    facts_parked,
    /// Times that a fact that came in had to wait for another.
    facts_waiting,
    /// Ticks.
    ticks,
    /// Jobs that failed.
    jobs_failed,
    /// Gauge: runs in memory and leased.
    live,
    /// Gauge: runs in memory and waiting.
    cached,
}

#[derive(Default, Debug)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, by: u64) {
        self.0.fetch_add(by, Ordering::Relaxed);
    }

    pub(crate) fn one(&self) {
        self.add(1);
    }

    pub(crate) fn set(&self, to: usize) {
        self.0.store(to as u64, Ordering::Relaxed);
    }
}

/// Buckets double from 64 µs; the last has no bound.
const BUCKETS: usize = 20;

/// A histogram of times.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Waits {
    counts: [u64; BUCKETS],
    total: Duration,
}

impl Waits {
    /// How many there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// How long they were together.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.total
    }

    /// How many were at most this long, and longer than the bucket before; the last has no bound.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<Duration>, u64)> {
        let bound =
            |bucket| (bucket + 1 < BUCKETS).then(|| Duration::from_micros(64_u64 << bucket));
        let counts = self.counts.into_iter().enumerate();
        counts.map(move |(bucket, count)| (bound(bucket), count))
    }
}

#[derive(Default, Debug)]
pub(crate) struct Histogram {
    counts: [Counter; BUCKETS],
    micros: Counter,
}

impl Histogram {
    pub(crate) fn note(&self, wait: Duration) {
        let micros = u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
        let doublings = u64::BITS - (micros.saturating_sub(1) >> 6).leading_zeros();
        self.counts[(doublings as usize).min(BUCKETS - 1)].one();
        self.micros.add(micros);
    }

    fn snapshot(&self) -> Waits {
        let mut waits = Waits::default();
        for (count, counter) in waits.counts.iter_mut().zip(&self.counts) {
            *count = counter.0.load(Ordering::Relaxed);
        }
        waits.total = Duration::from_micros(self.micros.0.load(Ordering::Relaxed));
        waits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ro_53_a_wait_is_in_the_first_bucket_that_holds_it() {
        let histogram = Histogram::default();
        for (micros, bound) in [
            (0, Some(64)),
            (64, Some(64)),
            (65, Some(128)),
            (128, Some(128)),
            (1_000, Some(1_024)),
            (16_777_216, Some(16_777_216)),
            (16_777_217, None),
            (u64::MAX / 2, None),
        ] {
            let before = histogram.snapshot();
            histogram.note(Duration::from_micros(micros));
            let after = histogram.snapshot();
            let mut grown = before.buckets().zip(after.buckets());
            let grown = grown.find(|(before, after)| before != after);
            let (_, (found, _)) = grown.expect("a bucket grew");
            assert_eq!(found, bound.map(Duration::from_micros), "{micros}");
        }
    }
}
