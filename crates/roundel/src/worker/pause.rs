//! How long to wait before the store is asked again for what it could not do.
//!
//! A part of each pause differs from one process to the next, and from try to try: after an outage
//! they do not all come at the same moment, again and again. It is drawn from who waits, so that a
//! test that is played again waits as long.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use roundel_core::Retry;
use uuid::Uuid;

/// The longest pause between two tries of what a store could not do: so long after it is well
/// again, work goes on.
const LONGEST: Duration = Duration::from_secs(1);

/// Pauses of one who waits.
#[derive(Debug)]
pub(super) struct Pauses {
    retry: Retry,
    who: Uuid,
    times: u32,
}

impl Pauses {
    /// Of this process or run, with this first one.
    pub(super) fn of(who: Uuid, first: Duration) -> Pauses {
        Pauses::after(0, who, first)
    }

    /// The same, after so many.
    pub(super) fn after(times: u32, who: Uuid, first: Duration) -> Pauses {
        let retry = Retry::exponential(u32::MAX).first(first).cap(LONGEST);
        Pauses { retry, who, times }
    }

    /// The next.
    pub(super) fn next(&mut self) -> Duration {
        self.times = self.times.saturating_add(1);
        let mut hasher = DefaultHasher::new();
        (self.who, self.times).hash(&mut hasher);
        let draw = u32::try_from(hasher.finish() >> 32).expect("32 bits");
        self.retry
            .pause(self.times, f64::from(draw) / f64::from(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn co_06_k8_pauses_grow_to_a_limit_and_no_two_processes_have_the_same() {
        let first = Duration::from_millis(10);
        let of = |who: u128| {
            let mut pauses = Pauses::of(Uuid::from_u128(who), first);
            (0..40).map(|_| pauses.next()).collect::<Vec<_>>()
        };
        let (one, two) = (of(1), of(2));
        assert_eq!(one, of(1), "played again, they are the same");
        assert!(one.iter().zip(&two).all(|(one, two)| one != two));
        for (times, pause) in (0..).zip(&one) {
            let whole = (first * (1 << u32::min(times, 7))).min(LONGEST);
            assert!(*pause >= whole / 2 && *pause <= whole, "{times}: {pause:?}");
        }
        let late: Vec<_> = one.iter().skip(10).collect();
        assert!(late.windows(2).all(|two| two[0] != two[1]), "{late:?}");
    }
}
