//! Retry arithmetic: how long to wait before the next attempt, and whether there is one.

use std::time::Duration;

/// Longer pauses are this long: beyond it floating point would overflow.
const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// How the pause grows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backoff {
    /// At once.
    None,
    /// Always the first pause.
    Fixed,
    /// The first pause times the number of the failed attempt.
    Linear,
    /// Twice as long after each attempt.
    Exponential,
}

/// When to try again, and when to stop. `Retry::exponential(5)` is five attempts in all.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Retry {
    /// Attempts in all, the first included; at least one is made.
    pub attempts: u32,
    /// How the pause grows.
    pub backoff: Backoff,
    /// The first pause.
    pub first: Duration,
    /// No pause is longer.
    pub cap: Duration,
    /// The part of a pause, 0 to 1, that is drawn at random, so that retries do not march in step.
    pub jitter: f64,
}

impl Retry {
    /// One attempt.
    pub const NONE: Retry = Retry::new(1, Backoff::None, Duration::ZERO);

    const fn new(attempts: u32, backoff: Backoff, first: Duration) -> Retry {
        Retry {
            attempts,
            backoff,
            first,
            cap: Duration::MAX,
            jitter: 0.0,
        }
    }

    /// One attempt.
    #[must_use]
    pub const fn none() -> Retry {
        Retry::NONE
    }

    /// This many attempts, the same pause between them.
    #[must_use]
    pub const fn fixed(attempts: u32, pause: Duration) -> Retry {
        Retry::new(attempts, Backoff::Fixed, pause)
    }

    /// This many attempts, pauses of one, two, three times `step`.
    #[must_use]
    pub const fn linear(attempts: u32, step: Duration) -> Retry {
        Retry::new(attempts, Backoff::Linear, step)
    }

    /// This many attempts; pauses double from 100 ms, up to a minute, half of each at random.
    #[must_use]
    pub const fn exponential(attempts: u32) -> Retry {
        let mut retry = Retry::new(attempts, Backoff::Exponential, Duration::from_millis(100));
        retry.cap = Duration::from_secs(60);
        retry.jitter = 0.5;
        retry
    }

    /// With this first pause.
    #[must_use]
    pub const fn first(mut self, pause: Duration) -> Retry {
        self.first = pause;
        self
    }

    /// With no pause longer than this.
    #[must_use]
    pub const fn cap(mut self, pause: Duration) -> Retry {
        self.cap = pause;
        self
    }

    /// With this part of each pause at random, 0 to 1.
    #[must_use]
    pub const fn jitter(mut self, part: f64) -> Retry {
        self.jitter = part;
        self
    }

    /// Is this the last attempt (counted from 1)?
    #[must_use]
    pub fn is_last(&self, attempt: u32) -> bool {
        attempt >= self.attempts
    }

    /// The pause after the failed attempt (counted from 1). `draw`, 0 to 1, comes from outside.
    #[must_use]
    pub fn pause(&self, attempt: u32, draw: f64) -> Duration {
        let attempt = attempt.max(1);
        let full = match self.backoff {
            Backoff::None => Duration::ZERO,
            Backoff::Fixed => self.first,
            Backoff::Linear => self.first.saturating_mul(attempt),
            Backoff::Exponential => {
                let doublings = (attempt - 1).min(31);
                self.first.saturating_mul(1 << doublings)
            }
        };
        let full = full.min(self.cap).min(CENTURY);
        let random = self.jitter.clamp(0.0, 1.0) * draw.clamp(0.0, 1.0);
        full.mul_f64(1.0 - random)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ro_40_pauses_grow_as_the_policy_says() {
        let ms = Duration::from_millis;
        let exponential = Retry::exponential(9).jitter(0.0);
        for (retry, attempt, pause) in [
            (Retry::none(), 1, ms(0)),
            (Retry::fixed(3, ms(20)), 1, ms(20)),
            (Retry::fixed(3, ms(20)), 2, ms(20)),
            (Retry::fixed(3, ms(90_000)), 2, ms(90_000)),
            (Retry::linear(4, ms(20)), 3, ms(60)),
            (Retry::linear(4, ms(40_000)), 3, ms(120_000)),
            (exponential, 1, ms(100)),
            (exponential, 4, ms(800)),
            (exponential, 40, ms(60_000)),
            (exponential.cap(ms(300)), 3, ms(300)),
            (
                Retry::linear(4, Duration::MAX).cap(Duration::MAX),
                3,
                CENTURY,
            ),
        ] {
            assert_eq!(
                retry.pause(attempt, 0.0),
                pause,
                "{retry:?} after {attempt}"
            );
        }
    }

    #[test]
    fn ro_40_jitter_shortens_by_its_part_at_most() {
        let retry = Retry::fixed(2, Duration::from_millis(100)).jitter(0.5);
        assert_eq!(retry.pause(1, 1.0), Duration::from_millis(50));
        assert_eq!(retry.pause(1, 0.0), Duration::from_millis(100));
    }

    #[test]
    fn ro_40_the_last_attempt_is_known() {
        assert!(Retry::none().is_last(1));
        assert!(!Retry::exponential(3).is_last(2));
        assert!(Retry::exponential(3).is_last(3));
    }
}
