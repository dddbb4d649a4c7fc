//! Counters and gauges of one engine.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! metrics {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        #[derive(Default, Debug)]
        pub(crate) struct Counters {
            $(pub(crate) $name: Counter,)*
        }

        /// What an engine has counted since it started.
        #[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Metrics {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            pub(crate) fn snapshot(&self) -> Metrics {
                Metrics { $($name: self.$name.0.load(Ordering::Relaxed),)* }
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
