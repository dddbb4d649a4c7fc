//! The store's clock. Leases and timers use it and nothing else; it never goes back.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::{Poll, Waker};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use roundel_core::Timestamp;

use crate::Boxed;

/// Tells the time and waits for it.
pub trait Clock: Send + Sync {
    /// The time; never earlier than it was.
    fn now(&self) -> Timestamp;

    /// Waits until the clock shows this time.
    fn sleep_until(&self, at: Timestamp) -> Boxed<'_, ()>;
}

/// The machine's clock, held when it is set back.
#[derive(Debug, Default)]
pub struct SystemClock {
    latest: AtomicI64,
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let micros = i64::try_from(since.as_micros()).unwrap_or(i64::MAX);
        Timestamp(self.latest.fetch_max(micros, Ordering::Relaxed).max(micros))
    }

    fn sleep_until(&self, at: Timestamp) -> Boxed<'_, ()> {
        Box::pin(async move {
            loop {
                let left = at.since(self.now());
                if left.is_zero() {
                    return;
                }
                tokio::time::sleep(left.min(Duration::from_secs(3600))).await;
            }
        })
    }
}

/// A clock that moves when it is told to.
#[derive(Debug)]
pub struct ManualClock {
    state: Mutex<Manual>,
}

#[derive(Debug)]
struct Manual {
    now: Timestamp,
    number: u64,
    sleepers: BTreeMap<(Timestamp, u64), Waker>,
}

impl ManualClock {
    /// A clock that shows this time.
    #[must_use]
    pub fn at(now: Timestamp) -> ManualClock {
        ManualClock {
            state: Mutex::new(Manual {
                now,
                number: 0,
                sleepers: BTreeMap::new(),
            }),
        }
    }

    /// Moves it forward and wakes those whose time has come.
    pub fn advance(&self, span: Duration) {
        let mut state = self.state.lock().expect("clock");
        state.now = state.now.after(span);
        let first_later = (Timestamp(state.now.0.saturating_add(1)), 0);
        let later = state.sleepers.split_off(&first_later);
        let due = std::mem::replace(&mut state.sleepers, later);
        drop(state);
        due.into_values().for_each(Waker::wake);
    }

    /// When the first sleeper is due.
    #[must_use]
    pub fn next_sleeper(&self) -> Option<Timestamp> {
        let state = self.state.lock().expect("clock");
        state.sleepers.keys().next().map(|(at, _)| *at)
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        self.state.lock().expect("clock").now
    }

    fn sleep_until(&self, at: Timestamp) -> Boxed<'_, ()> {
        let mut place = Place {
            clock: self,
            key: None,
        };
        Box::pin(std::future::poll_fn(move |context| {
            let mut state = self.state.lock().expect("clock");
            if let Some(key) = place.key.take() {
                state.sleepers.remove(&key);
            }
            if state.now >= at {
                return Poll::Ready(());
            }
            state.number += 1;
            let key = (at, state.number);
            state.sleepers.insert(key, context.waker().clone());
            place.key = Some(key);
            Poll::Pending
        }))
    }
}

/// A sleeper's place, given up when its future is dropped.
struct Place<'a> {
    clock: &'a ManualClock,
    key: Option<(Timestamp, u64)>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let (Some(key), Ok(mut state)) = (self.key.take(), self.clock.state.lock()) {
            state.sleepers.remove(&key);
        }
    }
}
