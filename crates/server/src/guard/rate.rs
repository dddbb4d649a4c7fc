//! How often one token may ask: so many in a second on average, with a burst.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::limits::Limits;
use crate::problem::{Code, Problem};

/// Names that are counted at a time; those that have not asked for longest are forgotten.
const MOST: usize = 10_000;

#[derive(Debug)]
pub(crate) struct Rates {
    per_second: f64,
    burst: f64,
    left: Mutex<HashMap<String, (f64, Instant)>>,
}

impl Rates {
    pub(crate) fn new(limits: &Limits) -> Rates {
        Rates {
            per_second: f64::from(limits.per_second.max(1)),
            burst: f64::from(limits.burst.max(1)),
            left: Mutex::default(),
        }
    }

    /// Counts a request in this name.
    pub(crate) fn take(&self, name: &str, now: Instant) -> Result<(), Problem> {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        if left.len() >= MOST && !left.contains_key(name) {
            left.retain(|_, (_, last)| now.duration_since(*last).as_secs_f64() < 60.0);
        }
        if left.len() >= MOST && !left.contains_key(name) {
            return Err(too_many());
        }
        let (tokens, last) = left.entry(name.to_owned()).or_insert((self.burst, now));
        let since = now.saturating_duration_since(*last).as_secs_f64();
        *tokens = (*tokens + since * self.per_second).min(self.burst);
        *last = now;
        if *tokens < 1.0 {
            return Err(too_many());
        }
        *tokens -= 1.0;
        Ok(())
    }
}

fn too_many() -> Problem {
    Problem::new(Code::TooMany, "too many requests; wait a second")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn m2_one_that_asks_too_often_does_not_slow_others() {
        let limits = Limits {
            per_second: 10,
            burst: 3,
            ..Limits::default()
        };
        let (rates, begin) = (Rates::new(&limits), Instant::now());
        let ask = |name: &str, millis| {
            let now = begin + Duration::from_millis(millis);
            rates.take(name, now).is_ok()
        };
        let first: Vec<bool> = (0..5).map(|_| ask("ada", 0)).collect();
        assert_eq!(first, [true, true, true, false, false]);
        assert!(ask("bob", 0));
        assert!(!ask("ada", 50) && ask("ada", 100) && !ask("ada", 100));
        let later: Vec<bool> = (0..4).map(|_| ask("ada", 60_000)).collect();
        assert_eq!(later, [true, true, true, false]);
    }
}
