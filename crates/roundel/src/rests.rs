//! Who waits for a run to come to rest: to end, or to be parked.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use roundel_core::{Outcome, RunId, RunState};
use rustc_hash::FxHashMap;
use tokio::sync::{oneshot, watch};

use crate::seal::sealed_outcome;
use crate::trace::Feed;

/// How a run came to rest; no outcome if it was deleted.
pub(crate) type Rest = (RunState, Option<Outcome>);

pub(crate) struct Rests {
    waiting: Mutex<Waiting>,
    others: watch::Sender<u64>,
    /// Who is told of every run that ends.
    feeds: RwLock<Vec<Arc<Feed>>>,
}

#[derive(Default)]
struct Waiting {
    number: u64,
    runs: FxHashMap<RunId, Vec<(u64, oneshot::Sender<Rest>)>>,
}

impl Default for Rests {
    fn default() -> Rests {
        Rests {
            waiting: Mutex::default(),
            others: watch::Sender::new(0),
            feeds: RwLock::default(),
        }
    }
}

impl Rests {
    fn lock(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.waiting
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// From now on, waits for this run to come to rest.
    pub(crate) fn await_rest(self: &Arc<Self>, run: RunId) -> Resting {
        let (sender, receiver) = oneshot::channel();
        let mut waiting = self.lock();
        waiting.number += 1;
        let number = waiting.number;
        waiting.runs.entry(run).or_default().push((number, sender));
        drop(waiting);
        Resting {
            rests: self.clone(),
            run,
            number,
            receiver,
            others: self.others.subscribe(),
        }
    }

    /// A run has come to rest.
    pub(crate) fn at_rest(&self, run: RunId, state: RunState, outcome: Option<&Outcome>) {
        if state.has_ended() {
            self.tell_feeds(run);
        }
        if outcome.and_then(sealed_outcome).is_some() {
            // Of another namespace, or under a key that is not here: who waits for it looks.
            return self.look_again();
        }
        let waiting = self.lock().runs.remove(&run);
        for (_, sender) in waiting.into_iter().flatten() {
            let _ = sender.send((state, outcome.cloned()));
        }
    }

    /// From now on this one is told of every run that ends.
    pub(crate) fn feed(&self, feed: Arc<Feed>) {
        let feeds = self.feeds.write();
        feeds.unwrap_or_else(PoisonError::into_inner).push(feed);
    }

    fn tell_feeds(&self, run: RunId) {
        let feeds = self.feeds.read().unwrap_or_else(PoisonError::into_inner);
        if feeds.is_empty() {
            return;
        }
        let gone = feeds.iter().filter(|feed| !feed.tell(run)).count();
        drop(feeds);
        if gone > 0 {
            let mut feeds = self.feeds.write().unwrap_or_else(PoisonError::into_inner);
            feeds.retain(|feed| feed.is_heard());
        }
    }

    /// Another process committed something: whoever waits should look again.
    pub(crate) fn look_again(&self) {
        self.others.send_modify(|times| *times += 1);
    }

    /// Does anybody wait for one of these?
    pub(crate) fn waits_for_any(&self, runs: &[RunId]) -> bool {
        let waiting = self.lock();
        runs.iter().any(|run| waiting.runs.contains_key(run))
    }

    pub(crate) fn anybody_waits(&self) -> bool {
        !self.lock().runs.is_empty()
    }
}

/// A place among those who wait.
pub(crate) struct Resting {
    rests: Arc<Rests>,
    run: RunId,
    number: u64,
    receiver: oneshot::Receiver<Rest>,
    others: watch::Receiver<u64>,
}

impl Resting {
    /// The run's rest; or none, when it is time to look into the database.
    pub(crate) async fn next(&mut self) -> Option<Rest> {
        tokio::select! {
            biased;
            rest = &mut self.receiver => rest.ok(),
            _ = self.others.changed() => None,
        }
    }
}

impl Drop for Resting {
    fn drop(&mut self) {
        let mut waiting = self.rests.lock();
        if let Some(places) = waiting.runs.get_mut(&self.run) {
            places.retain(|(number, _)| *number != self.number);
            if places.is_empty() {
                waiting.runs.remove(&self.run);
            }
        }
    }
}
