//! Time, as a number that comes in with the operation. Arithmetic never overflows.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Microseconds since 1970, UTC, by the store's clock.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// The end of time: what a sum that would overflow becomes.
    pub const MAX: Timestamp = Timestamp(i64::MAX);

    /// This long after.
    #[must_use]
    pub fn after(self, span: Duration) -> Timestamp {
        Timestamp(self.0.saturating_add(micros(span)))
    }

    /// So long ago.
    #[must_use]
    pub fn before(self, span: Duration) -> Timestamp {
        Timestamp(self.0.saturating_sub(micros(span)))
    }

    /// How long from `earlier` to here; zero if it lies ahead.
    #[must_use]
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

/// Without `as_micros`, which counts in 128 bits.
fn micros(span: Duration) -> i64 {
    let micros = span.as_secs().saturating_mul(1_000_000);
    let micros = micros.saturating_add(span.subsec_micros().into());
    i64::try_from(micros).unwrap_or(i64::MAX)
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}.{:06}",
            self.0.div_euclid(1_000_000),
            self.0.rem_euclid(1_000_000)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c11_sums_saturate_and_differences_are_never_negative() {
        assert_eq!(Timestamp(5).after(Duration::MAX), Timestamp::MAX);
        assert_eq!(Timestamp::MAX.after(Duration::from_secs(1)), Timestamp::MAX);
        assert_eq!(Timestamp(5).since(Timestamp(7)), Duration::ZERO);
        assert_eq!(
            Timestamp(i64::MAX).since(Timestamp(i64::MIN)),
            Duration::from_micros(i64::MAX as u64)
        );
    }
}
