//! What was submitted and not yet taken by the one who commits.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
#[cfg(feature = "postgres")]
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use roundel_core::{Op, Reply};

use crate::{Ask, Error, Request};

/// Requests in one transaction.
pub(crate) const BATCH: usize = 512;
/// Bytes of entries and payloads in one transaction; one request alone may have more.
pub(crate) const BATCH_BYTES: usize = 4 << 20;

/// Who has not come in this time is not waited for.
#[cfg(feature = "postgres")]
const MOMENT: Duration = Duration::from_micros(100);

/// One request on its way.
pub(crate) struct Item {
    pub(crate) request: Request,
    /// When it was submitted.
    pub(crate) since: Instant,
    #[cfg_attr(not(feature = "postgres"), allow(dead_code))]
    /// How often it was set aside because somebody else had what it needs.
    pub(crate) misses: u8,
    /// The round that a step came to, or that says why it was refused: decided in its place.
    pub(crate) instead: Option<Box<Op>>,
    /// What was decided; of no meaning before the commit.
    pub(crate) result: Option<Result<Reply, Error>>,
}

#[cfg(feature = "postgres")]
impl Item {
    /// The operation that it comes to. A step comes to one when it has run.
    pub(crate) fn op(&self) -> &Op {
        match (&*self.request.ask, &self.instead) {
            (Ask::Op(op), _) => op,
            (Ask::Work(_), Some(op)) => op,
            (Ask::Work(_), None) => unreachable!("a step that has not run is no operation"),
        }
    }
}

#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    items: VecDeque<Item>,
    closed: bool,
    /// The writer sleeps and has to be woken.
    waiting: bool,
    /// And when there are so many, whoever this wakes.
    #[cfg(feature = "postgres")]
    awaited: Option<(usize, Waker)>,
}

/// What ended a wait.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    /// There is something to do.
    Work,
    /// Nothing came in that time.
    Idle,
    /// The queue is closed and empty.
    Closed,
}

#[cfg(feature = "postgres")]
impl State {
    /// Whoever waits for as many as there are.
    fn take_awaited(&mut self) -> Option<Waker> {
        let there = self.items.len();
        let awaited = self.awaited.take_if(|(count, _)| there >= *count);
        awaited.map(|(_, waker)| waker)
    }
}

impl Queue {
    /// Adds requests; gives them back if the queue is closed.
    pub(crate) fn push(&self, requests: Vec<Request>) -> Result<(), Vec<Request>> {
        let since = Instant::now();
        let mut state = self.lock();
        if state.closed {
            return Err(requests);
        }
        state.items.extend(requests.into_iter().map(|request| Item {
            request,
            since,
            misses: 0,
            instead: None,
            result: None,
        }));
        let asleep = std::mem::take(&mut state.waiting);
        #[cfg(feature = "postgres")]
        let awaited = state.take_awaited();
        // Whoever wakes up wants the lock.
        drop(state);
        #[cfg(feature = "postgres")]
        awaited.into_iter().for_each(Waker::wake);
        if asleep {
            self.changed.notify_all();
        }
        Ok(())
    }

    /// Moves what fits into the batch. Returns whether anything was there.
    pub(crate) fn take(&self, batch: &mut Vec<Item>) -> bool {
        let mut bytes = bytes(batch);
        let before = batch.len();
        let mut state = self.lock();
        while batch.len() < BATCH && (bytes < BATCH_BYTES || batch.is_empty()) {
            let Some(item) = state.items.pop_front() else {
                break;
            };
            bytes += size(&item.request.ask);
            batch.push(item);
        }
        batch.len() > before
    }

    /// Waits until there is something, for this long at most.
    pub(crate) fn wait(&self, most: Option<Duration>) -> Woken {
        let until = most.map(|most| Instant::now() + most);
        let mut state = self.lock();
        loop {
            if !state.items.is_empty() {
                return Woken::Work;
            }
            if state.closed {
                return Woken::Closed;
            }
            state.waiting = true;
            state = match until {
                None => self
                    .changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Woken::Idle;
                    }
                    let waited = self.changed.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// Waits awake until there is something, for this long at most; whoever else wants the
    /// processor has it meanwhile. Says whether there is.
    #[cfg(feature = "postgres")]
    pub(crate) fn linger(&self, most: Duration) -> bool {
        let until = Instant::now() + most;
        while self.lock().items.is_empty() {
            if Instant::now() >= until {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }

    /// Are there so many? If not, the task that asks is woken when there are.
    #[cfg(feature = "postgres")]
    pub(crate) fn poll_many(&self, count: usize, context: &Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if state.items.len() >= count {
            return Poll::Ready(());
        }
        state.awaited = Some((count, context.waker().clone()));
        Poll::Pending
    }

    /// Lets those who are about to ask do so: until there are so many, or nobody has come for a
    /// moment, and for this long at most.
    #[cfg(feature = "postgres")]
    pub(crate) fn gather(&self, expected: usize, most: Duration) {
        let until = Instant::now() + most;
        let mut before = 0;
        loop {
            let there = self.lock().items.len();
            if there >= expected || there == before || Instant::now() >= until {
                return;
            }
            before = there;
            std::thread::sleep(MOMENT);
        }
    }

    /// Takes out what was submitted before this time.
    pub(crate) fn take_older(&self, than: Instant) -> Vec<Item> {
        let mut state = self.lock();
        let old = state
            .items
            .iter()
            .take_while(|item| item.since < than)
            .count();
        state.items.drain(..old).collect()
    }

    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// Puts one that was taken in front again, also when it is closed.
    #[cfg(feature = "postgres")]
    pub(crate) fn give_back(&self, item: Item) {
        let mut state = self.lock();
        state.items.push_front(item);
        if std::mem::take(&mut state.waiting) {
            self.changed.notify_all();
        }
    }

    /// Is it closed? There may be something in it.
    #[cfg(feature = "postgres")]
    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// About how much these requests bring.
pub(crate) fn bytes(batch: &[Item]) -> usize {
    batch.iter().map(|item| size(&item.request.ask)).sum()
}

fn size(ask: &Ask) -> usize {
    match ask {
        Ask::Work(_) => 0,
        Ask::Op(Op::Commit(round)) => round.entries.len(),
        Ask::Op(Op::Start(start)) => {
            let batch = start.batch.as_ref();
            start.input.size() + batch.map_or(0, |batch| batch.bytes())
        }
        Ask::Op(Op::Signal(signal)) => signal.payload.size(),
        Ask::Op(Op::Offer(offer)) => offer.payload.size(),
        Ask::Op(Op::Patch(patch)) => patch.patch.size(),
        Ask::Op(_) => 0,
    }
}

#[cfg(all(test, feature = "postgres"))]
mod tests {
    use std::sync::Arc;

    use roundel_core::{Release, RunId, WorkerId};

    use super::*;
    use crate::{Answered, Sink};

    struct Nobody;

    impl Sink for Nobody {
        fn deliver(&self, _: Vec<Answered>) {}
    }

    fn put(queue: &Queue) {
        let release = Release {
            worker: WorkerId::from_bytes([1; 16]),
            runs: vec![RunId::from_bytes([2; 16])],
            leave: false,
        };
        let request = Request {
            ask: Box::new(Ask::Op(Op::Release(release))),
            tag: 0,
            sink: Arc::new(Nobody),
        };
        assert!(queue.push(vec![request]).is_ok());
    }

    #[test]
    fn whoever_asks_alone_is_not_kept_waiting_for_others() {
        let queue = Queue::default();
        put(&queue);
        let long = Duration::from_secs(3600);
        let began = Instant::now();
        queue.gather(1 / 2, long);
        queue.gather(1, long);
        // Those who are expected and do not come are waited for a moment only.
        queue.gather(500, long);
        assert!(began.elapsed() < long / 2);
    }
}
