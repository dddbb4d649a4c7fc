//! Who is worked on, and who is in hand and waits for that.
//!
//! As many are worked on at once as was said. Where work is short and a commit is long, that many
//! at a time leave the processor idle between two commits. So a worker takes more in hand then, as
//! many as it gets done in the time of a commit: they begin in one commit, stand in line for the
//! little while that those before them take, and end in one commit.
//!
//! Whoever has stood in line for long is given back, since another process may have room: nobody
//! knows beforehand that work becomes long. Nobody joins the line then until something is done,
//! or the same would be back at once. What comes by a message, not by a claim, does not stand in
//! line: it may be what another waits for.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::Worker;
use crate::EngineBuilder;

/// How many more than are worked on may be in hand: what fills a batch, with those that end.
const MOST: u64 = 512;
/// So many are watched before anybody is taken in hand beyond those that are worked on.
const WATCHED: u64 = 32;
/// One in so many is what a time counts for in the average.
const WEIGHT: u64 = 16;
/// Who has stood in line for so long is given back.
const PATIENCE: Duration = Duration::from_secs(1);

/// How a run comes to be worked on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Entry {
    /// It was claimed, or started here, because there was room in hand.
    InTurn,
    /// It is worked on at once, however many are.
    AtOnce,
}

/// Who is worked on, and who stands in line.
#[derive(Default)]
pub(super) struct Line {
    state: Mutex<State>,
    work: Average,
    commits: Average,
    /// Somebody was given back, and nothing has been done since.
    stuck: AtomicBool,
}

#[derive(Default)]
struct State {
    at_work: usize,
    /// Some of them have gone.
    waiting: VecDeque<oneshot::Sender<()>>,
}

/// The average of the last times, in nanoseconds. That two who note one at the same time lose one
/// of them does no harm.
#[derive(Default)]
struct Average {
    nanos: AtomicU64,
    count: AtomicU64,
}

impl Average {
    fn note(&self, time: Duration) {
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let before = self.nanos.load(Ordering::Relaxed);
        let after = match self.count.fetch_add(1, Ordering::Relaxed) {
            0 => time,
            _ => before - before / WEIGHT + time / WEIGHT,
        };
        self.nanos.store(after, Ordering::Relaxed);
    }

    /// None if too few were noted, or if time stands still.
    fn get(&self) -> Option<u64> {
        let nanos = self.nanos.load(Ordering::Relaxed);
        let known = self.count.load(Ordering::Relaxed) >= WATCHED;
        Some(nanos).filter(|nanos| known && *nanos > 0)
    }
}

impl Line {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many more may be in hand, if so many are worked on at once: what is done in the time of
    /// a commit. None if it takes about as long, or longer.
    pub(super) fn more(&self, at_once: usize) -> usize {
        let times = self.commits.get().zip(self.work.get());
        let rounds = times.map_or(0, |(commit, work)| commit / work);
        if rounds < 2 {
            return 0;
        }
        let at_once = u64::try_from(at_once).unwrap_or(u64::MAX);
        usize::try_from(rounds.saturating_mul(at_once).min(MOST)).unwrap_or_default()
    }

    /// A commit took so long.
    pub(super) fn committed(&self, since: Instant) {
        self.commits.note(since.elapsed());
    }

    /// One less is worked on. Those in line are next.
    fn leave(&self, at_once: usize) {
        let mut state = self.lock();
        state.at_work -= 1;
        while state.at_work < at_once {
            let Some(next) = state.waiting.pop_front() else {
                return;
            };
            if next.send(()).is_ok() {
                state.at_work += 1;
            }
        }
    }

    /// Joins the line, unless there is room.
    fn join(&self, at_once: usize) -> Option<oneshot::Receiver<()>> {
        let mut state = self.lock();
        if state.at_work < at_once {
            state.at_work += 1;
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        state.waiting.push_back(sender);
        Some(receiver)
    }
}

/// While this lives, a run is worked on.
pub(super) struct AtWork<'a> {
    worker: &'a Worker,
    since: Instant,
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        let line = &self.worker.line;
        line.work.note(self.since.elapsed());
        line.stuck.store(false, Ordering::Relaxed);
        line.leave(self.worker.config.max_live);
    }
}

impl EngineBuilder {
    /// How many more runs than are worked on may be in hand: leased, begun, and in line until one
    /// of those that are worked on is done. Unless said, as many as get done in the time of a
    /// commit; so none where work takes longer than that. What has stood in line for a second is
    /// given back, for another process to take.
    pub fn in_hand(self, more: usize) -> Self {
        self.with(|config| {
            config.in_hand = Some(more);
            Ok(())
        })
    }
}

impl Worker {
    /// How many more than are worked on may be in hand.
    pub(super) fn more_in_hand(&self) -> usize {
        if self.line.stuck.load(Ordering::Relaxed) {
            return 0;
        }
        let said = self.config.in_hand;
        said.unwrap_or_else(|| self.line.more(self.config.max_live))
    }

    /// A run is worked on from now on, however many are.
    pub(super) fn at_work(&self) -> AtWork<'_> {
        self.line.lock().at_work += 1;
        self.is_at_work()
    }

    fn is_at_work(&self) -> AtWork<'_> {
        AtWork {
            worker: self,
            since: Instant::now(),
        }
    }

    /// Waits until it is its turn to be worked on. None if that takes long.
    pub(super) async fn in_turn(&self, entry: Entry) -> Option<AtWork<'_>> {
        if entry == Entry::AtOnce {
            return Some(self.at_work());
        }
        let Some(mut turn) = self.line.join(self.config.max_live) else {
            return Some(self.is_at_work());
        };
        let clock = self.store().clock().clone();
        let late = clock.sleep_until(self.store().now().after(PATIENCE));
        tokio::select! {
            biased;
            _ = &mut turn => return Some(self.is_at_work()),
            () = late => {}
        }
        turn.close();
        // It may have come at the last moment.
        if turn.try_recv().is_ok() {
            return Some(self.is_at_work());
        }
        self.line.stuck.store(true, Ordering::Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_times(commit: Duration, work: Duration) -> Line {
        let line = Line::default();
        for _ in 0..WATCHED {
            line.commits.note(commit);
            line.work.note(work);
        }
        line
    }

    #[test]
    fn co_06_more_are_in_hand_only_where_work_is_shorter_than_a_commit() {
        let (short, commit) = (Duration::from_micros(100), Duration::from_millis(1));
        assert_eq!(Line::default().more(50), 0, "nothing is known yet");
        assert_eq!(with_times(commit, short).more(3), 30);
        assert_eq!(with_times(commit, short).more(4096), 512);
        assert_eq!(with_times(commit, commit).more(50), 0);
        assert_eq!(with_times(commit, commit * 1000).more(50), 0);
        let still = with_times(Duration::ZERO, Duration::ZERO);
        assert_eq!(still.more(50), 0, "time stands still");
    }

    #[test]
    fn co_06_a_few_that_take_long_are_enough_to_take_no_more_in_hand() {
        let line = with_times(Duration::from_millis(1), Duration::from_micros(10));
        assert!(line.more(50) > 0);
        line.work.note(Duration::from_secs(1));
        assert_eq!(line.more(50), 0);
        for _ in 0..500 {
            line.work.note(Duration::from_micros(10));
        }
        assert!(line.more(50) > 0, "that was long ago");
    }

    #[test]
    fn co_06_who_came_first_is_next_and_who_has_gone_is_passed_over() {
        let line = Line::default();
        assert!(line.join(2).is_none() && line.join(2).is_none());
        let (gone, mut first) = (line.join(2), line.join(2).expect("two are at work"));
        let mut second = line.join(2).expect("two are at work");
        drop(gone);
        line.leave(2);
        assert!(first.try_recv().is_ok() && second.try_recv().is_err());
        // More are worked on than may be, since one came by a message.
        line.lock().at_work += 1;
        line.leave(2);
        assert!(second.try_recv().is_err());
        line.leave(2);
        assert!(second.try_recv().is_ok());
        assert_eq!(line.lock().at_work, 2);
    }
}
