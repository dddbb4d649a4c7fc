//! What the store tells without being asked.

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
}

impl Ear {
    /// Of a worker, and of those who wait for results; these also without a worker.
    pub(crate) fn new(worker: &Arc<Worker>, facts: Arc<Notify>) -> Ear {
        Ear {
            worker: Arc::downgrade(worker),
            rests: worker.rests.clone(),
            facts,
        }
    }
}

impl Listener for Ear {
    fn hints(&self, hints: Vec<Hint>) {
        let worker = self.worker.upgrade();
        for hint in hints {
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
