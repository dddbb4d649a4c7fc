//! Virtual time: that of a paused tokio runtime, which moves on by itself to the next timer when
//! nothing is left to run, and otherwise stands still. So the timers of the engine and those of
//! tokio pass together, in order, without waiting.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::Duration;

use roundel_core::Timestamp;
use roundel_store::{Answer, Boxed, Clock, Memory, Query, Store};
use tokio::time::Instant;

use super::timeline::Timeline;

/// Tokio's timers know milliseconds and round up; one that is asked for this much early ends in
/// the millisecond that was meant, wherever in a millisecond the runtime began.
const ROUNDED_UP: Duration = Duration::from_nanos(999_999);
/// Tokio's timers go up to two years.
const LONGEST_TIMER: Duration = Duration::from_secs(365 * 24 * 3600);
/// Whoever waits this long waits in vain.
pub(super) const IN_VAIN: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Runs that are shown to whoever waits in vain.
const SHOWN: usize = 3;

pub(crate) struct VirtualClock {
    /// The database whose clock it is.
    memory: OnceLock<Weak<Memory>>,
    beginning: Timestamp,
    instant: Instant,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Time that passed for tokio only.
    skipped: Duration,
    /// How many hold the clock, and what it shows meanwhile.
    held: Option<(u32, Duration)>,
}

impl VirtualClock {
    /// A clock that shows this time now. Tokio's time must be paused.
    pub(super) fn at(beginning: Timestamp) -> VirtualClock {
        VirtualClock {
            memory: OnceLock::new(),
            beginning,
            instant: Instant::now(),
            state: Mutex::default(),
        }
    }

    /// The database whose clock it is, to be shown to whoever waits in vain.
    pub(super) fn of(&self, memory: &Arc<Memory>) {
        let _ = self.memory.set(Arc::downgrade(memory));
    }

    /// What happened in the first few runs that have not ended.
    async fn unended(&self) -> String {
        let Some(memory) = self.memory.get().and_then(Weak::upgrade) else {
            return String::new();
        };
        let Ok(Answer::Dump(dump)) = memory.read(Query::Dump).await else {
            return String::new();
        };
        let open = dump.runs.iter().filter(|run| !run.state.has_ended());
        open.take(SHOWN)
            .filter_map(|run| Timeline::of(run, &dump))
            .map(|timeline| timeline.to_string())
            .collect()
    }

    /// How long it has run.
    pub(super) fn elapsed(&self) -> Duration {
        self.shown(&self.state())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn shown(&self, state: &State) -> Duration {
        match state.held {
            Some((_, shown)) => shown,
            None => self.instant.elapsed() - state.skipped,
        }
    }

    /// Lets everything run that can, while the clock stands still: tokio's moves on when nothing
    /// is left, and that millisecond is skipped here.
    pub(super) async fn settle(&self) {
        let _held = self.hold();
        tokio::time::sleep(Duration::from_nanos(1)).await;
    }

    fn hold(&self) -> Held<'_> {
        let mut state = self.state();
        let shown = self.shown(&state);
        let holders = state.held.map_or(0, |(holders, _)| holders);
        state.held = Some((holders + 1, shown));
        Held(self)
    }
}

/// Somebody holds the clock.
struct Held<'a>(&'a VirtualClock);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        let Some((holders, shown)) = state.held.take() else {
            return;
        };
        if holders > 1 {
            state.held = Some((holders - 1, shown));
        } else {
            state.skipped = self.0.instant.elapsed() - shown;
        }
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        self.beginning.after(self.elapsed())
    }

    fn sleep_until(&self, at: Timestamp) -> Boxed<'_, ()> {
        Box::pin(async move {
            if at == Timestamp::MAX {
                return std::future::pending().await;
            }
            loop {
                let left = at.since(self.now());
                if left.is_zero() {
                    return;
                }
                if self.elapsed() >= IN_VAIN {
                    panic!(
                        "a hundred years have passed, and what the test waits for has not \
                         happened; does a run wait for a signal that nobody sends, or for an \
                         effect that hangs? these have not ended:\n{}",
                        self.unended().await
                    );
                }
                let rounded = if left > ROUNDED_UP {
                    left - ROUNDED_UP
                } else {
                    left
                };
                tokio::time::sleep(rounded.min(LONGEST_TIMER)).await;
            }
        })
    }
}

/// Pauses tokio's time, unless it is.
///
/// # Panics
/// When the runtime has more than one thread: its time cannot be paused.
pub(super) fn pause() {
    let flavor = tokio::runtime::Handle::current().runtime_flavor();
    assert!(
        flavor == tokio::runtime::RuntimeFlavor::CurrentThread,
        "the test kit needs a runtime with one thread: use `#[tokio::test]` without a flavor"
    );
    let (shown, real) = (Instant::now(), std::time::Instant::now());
    while real.elapsed().is_zero() {
        std::hint::spin_loop();
    }
    // A paused clock shows the same time however long one looks at it.
    if Instant::now() != shown {
        tokio::time::pause();
    }
}
