//! What the store tells without being asked.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use roundel_core::{Hint, Timestamp};
use roundel_store::{Listener, News};
use tokio::sync::Notify;

use super::{Note, Worker};
use crate::rests::Rests;

/// Passes hints on. The store holds it, so that it must not hold the store in turn: an engine that
/// is dropped without a shutdown would never let go of its database.
pub(crate) struct Ear {
    worker: Weak<Worker>,
    rests: Arc<Rests>,
    /// There may be facts for projections that follow.
    facts: Arc<Notify>,
    idlers: Arc<Idlers>,
}

/// Workers elsewhere that wait for something to do.
#[derive(Default)]
pub(crate) struct Idlers {
    waiting: AtomicUsize,
    ready: Notify,
}

/// One of them.
pub(crate) struct Idler<'a>(&'a Idlers);

impl Idlers {
    /// One more. What is committed from now on is told.
    pub(crate) fn join(&self) -> Idler<'_> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        Idler(self)
    }

    fn wake(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.ready.notify_waiters();
        }
    }
}

impl Idler<'_> {
    /// Something may be ready after this was asked.
    pub(crate) fn ready(&self) -> tokio::sync::futures::Notified<'_> {
        self.0.ready.notified()
    }
}

impl Drop for Idler<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Ear {
    /// Of a worker, and of those who wait for results, facts or work; these also without a worker.
    pub(crate) fn new(worker: &Arc<Worker>, (facts, idlers): (Arc<Notify>, Arc<Idlers>)) -> Ear {
        Ear {
            worker: Arc::downgrade(worker),
            rests: worker.rests.clone(),
            facts,
            idlers,
        }
    }
}

impl Listener for Ear {
    fn hints(&self, hints: Vec<Hint>) {
        let worker = self.worker.upgrade();
        for hint in hints {
            if matches!(hint, Hint::Ready(..)) {
                self.idlers.wake();
            }
            match (hint, &worker) {
                (Hint::AtRest(run, state, outcome), _) => {
                    self.rests.at_rest(run, state, outcome.as_ref());
                }
                (Hint::Facts(_), _) => self.facts.notify_one(),
                (hint, Some(worker)) => worker.hear(hint),
                (Hint::Ready(..) | Hint::Mail(..) | Hint::Cancel(..), None) => {}
            }
        }
    }

    fn others_committed(&self) {
        self.rests.look_again();
        self.facts.notify_one();
        self.idlers.wake();
        let Some(worker) = self.worker.upgrade() else {
            return;
        };
        worker.claim_at(Timestamp(0));
        worker.look_for_mail();
    }

    fn others_brought(&self, news: &News) {
        if self.rests.waits_for_any(&news.at_rest) {
            self.rests.look_again();
        }
        if news.facts {
            self.facts.notify_one();
        }
        if news.ready.is_some() {
            self.idlers.wake();
        }
        let Some(worker) = self.worker.upgrade() else {
            return;
        };
        if let Some(at) = news.ready {
            worker.claim_at(at);
        }
        if news.mail {
            worker.look_for_mail();
        }
    }
}

impl Worker {
    /// Others may have sent something to runs that are here.
    fn look_for_mail(&self) {
        if !self.ports().is_empty() {
            self.renewals.look();
        }
    }

    fn hear(&self, hint: Hint) {
        match hint {
            Hint::Ready(lane, at) if self.workflow_of(lane).is_some() => self.claim_at(at),
            Hint::Mail(run, owner, delivery) if owner.worker == self.id => {
                if let Some(port) = self.port(run) {
                    port.post(Note::Mail(owner.fence, delivery));
                }
            }
            Hint::Cancel(run, owner) if owner.worker == self.id => {
                if let Some(port) = self.port(run) {
                    port.post(Note::Cancel(owner.fence));
                }
            }
            Hint::Ready(..)
            | Hint::Mail(..)
            | Hint::Cancel(..)
            | Hint::Facts(_)
            | Hint::AtRest(..) => {}
        }
    }
}
