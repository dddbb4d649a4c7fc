//! The server's clock, as seen from here: set by every transaction, carried on between them.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use roundel_core::Timestamp;

use crate::{Boxed, Clock};

/// The server's clock. It never goes back.
#[derive(Debug)]
pub(super) struct ServerClock {
    began: Instant,
    /// The server's time when this process's own stood at its beginning.
    offset: AtomicI64,
    latest: AtomicI64,
}

impl ServerClock {
    pub(super) fn new() -> ServerClock {
        let began = Instant::now();
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let micros = since.unwrap_or_default().as_micros();
        ServerClock {
            began,
            offset: AtomicI64::new(i64::try_from(micros).unwrap_or(i64::MAX)),
            latest: AtomicI64::new(0),
        }
    }

    fn passed(&self) -> i64 {
        i64::try_from(self.began.elapsed().as_micros()).unwrap_or(i64::MAX)
    }

    /// The server has just said what time it is.
    pub(super) fn set(&self, now: Timestamp) {
        self.offset.store(now.0 - self.passed(), Ordering::Relaxed);
    }
}

impl Clock for ServerClock {
    fn now(&self) -> Timestamp {
        let micros = self
            .offset
            .load(Ordering::Relaxed)
            .saturating_add(self.passed());
        Timestamp(self.latest.fetch_max(micros, Ordering::Relaxed).max(micros))
    }

    fn sleep_until(&self, at: Timestamp) -> Boxed<'_, ()> {
        Box::pin(async move {
            loop {
                let left = at.since(self.now());
                if left.is_zero() {
                    return;
                }
                tokio::time::sleep(left.min(Duration::from_secs(60))).await;
            }
        })
    }
}
