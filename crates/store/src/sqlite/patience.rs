//! Answers for a writer that does not come back: when a commit hangs in the disk, those who wait
//! are told that the outcome is unknown, and those behind them that nothing happened.
//!
//! Also the pauses of the threads that look around from time to time: they end when the store is
//! closed.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::shared::Shared;

/// How often to look, as a part of the time within which requests are answered.
const PART: u32 = 8;
const LONGEST: Duration = Duration::from_secs(1);
const SHORTEST: Duration = Duration::from_millis(10);

/// The thread.
pub(super) fn run(shared: &Shared) {
    let pause = (shared.options.answer_within / PART).clamp(SHORTEST, LONGEST);
    while !shared.pause.wait(pause) {
        shared.lose_patience();
    }
}

/// A pause that ends early when the store is closed.
#[derive(Default)]
pub(super) struct Pause {
    state: Mutex<(bool, u64)>,
    changed: Condvar,
}

impl Pause {
    /// Waits, unless woken. Returns whether the store was closed.
    pub(super) fn wait(&self, span: Duration) -> bool {
        let state = self.lock();
        let woken = state.1;
        let same = |state: &mut (bool, u64)| !state.0 && state.1 == woken;
        let waited = self.changed.wait_timeout_while(state, span, same);
        waited.unwrap_or_else(PoisonError::into_inner).0.0
    }

    /// Ends the pauses under way.
    pub(super) fn wake(&self) {
        self.lock().1 += 1;
        self.changed.notify_all();
    }

    pub(super) fn close(&self) {
        self.lock().0 = true;
        self.changed.notify_all();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().0
    }

    fn lock(&self) -> MutexGuard<'_, (bool, u64)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
