//! What was submitted and not yet taken by the writer.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use roundel_core::{Op, Reply, Round};

use crate::{Ask, Error, Request};

/// Requests in one transaction.
pub(super) const BATCH: usize = 512;
/// Bytes of entries and payloads in one transaction; one request alone may have more.
pub(super) const BATCH_BYTES: usize = 4 << 20;

/// One request on its way.
pub(super) struct Item {
    pub(super) request: Request,
    /// When it was submitted.
    pub(super) since: Instant,
    /// The round that says why its step was refused.
    pub(super) refused: Option<Box<Round>>,
    /// What was decided; of no meaning before the commit.
    pub(super) result: Option<Result<Reply, Error>>,
}

#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    items: VecDeque<Item>,
    closed: bool,
    /// The writer sleeps and has to be woken.
    waiting: bool,
}

/// What ended a wait.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Woken {
    /// There is something to do.
    Work,
    /// Nothing came in that time.
    Idle,
    /// The queue is closed and empty.
    Closed,
}

impl Queue {
    /// Adds requests; gives them back if the queue is closed.
    pub(super) fn push(&self, requests: Vec<Request>) -> Result<(), Vec<Request>> {
        let since = Instant::now();
        let mut state = self.lock();
        if state.closed {
            return Err(requests);
        }
        state.items.extend(requests.into_iter().map(|request| Item {
            request,
            since,
            refused: None,
            result: None,
        }));
        if std::mem::take(&mut state.waiting) {
            self.changed.notify_all();
        }
        Ok(())
    }

    /// Moves what fits into the batch. Returns whether anything was there.
    pub(super) fn take(&self, batch: &mut Vec<Item>) -> bool {
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
    pub(super) fn wait(&self, most: Option<Duration>) -> Woken {
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

    /// Takes out what was submitted before this time.
    pub(super) fn take_older(&self, than: Instant) -> Vec<Item> {
        let mut state = self.lock();
        let old = state
            .items
            .iter()
            .take_while(|item| item.since < than)
            .count();
        state.items.drain(..old).collect()
    }

    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// About how much these requests bring.
pub(super) fn bytes(batch: &[Item]) -> usize {
    batch.iter().map(|item| size(&item.request.ask)).sum()
}

fn size(ask: &Ask) -> usize {
    match ask {
        Ask::Work(_) => 0,
        Ask::Op(Op::Commit(round)) => round.entries.len(),
        Ask::Op(Op::Start(start)) => start.input.size(),
        Ask::Op(Op::Signal(signal)) => signal.payload.size(),
        Ask::Op(Op::Offer(offer)) => offer.payload.size(),
        Ask::Op(Op::Patch(patch)) => patch.patch.size(),
        Ask::Op(_) => 0,
    }
}
