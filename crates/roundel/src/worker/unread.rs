//! Runs that need a value that is sealed and does not open here. If the key is missing, that is not
//! the run's fault: it is given back, after a while, to whoever has the key. If the key is here,
//! the value was changed or moved, and an operator must look.

use std::sync::Arc;
use std::time::Duration;

use roundel_core::{Claimed, Op, RunId, ScopeEnd};
use roundel_store::Ask;

use super::Worker;
use super::drive::After;
use crate::live::{LiveRun, Turn};
use crate::seal::{Unread, sealed_outcome};

/// So long a run that cannot be read here is kept from being claimed here again.
const PUT_OFF: Duration = Duration::from_secs(5);

impl Worker {
    /// What a run that is in memory needs is sealed.
    pub(super) async fn unread(self: &Arc<Self>, mut live: Box<LiveRun>, sealed: &str) -> After {
        let run = live.run();
        let unread = Unread::of(sealed, self.post.keys());
        match unread {
            Unread::NoKey(_) => {
                drop(live);
                self.put_off(run, &unread).await;
            }
            Unread::Broken(_) => {
                let Turn::Commit(round) = live.park(unread.failure(run)) else {
                    unreachable!("it parks")
                };
                let ask = Ask::Op(Op::Commit(*round));
                if self.insist(Box::new(ask)).await.is_ok() {
                    self.counters.runs_parked.one();
                }
                drop(live);
            }
        }
        self.forget(run);
        After::Lost
    }

    /// What the journal of a run says is sealed.
    pub(super) async fn unread_journal(&self, claimed: &Claimed, sealed: &str) {
        let unread = Unread::of(sealed, self.post.keys());
        match unread {
            Unread::NoKey(_) => self.put_off(claimed.run, &unread).await,
            Unread::Broken(_) => self.park_unread(claimed, unread.failure(claimed.run)).await,
        }
    }

    async fn put_off(&self, run: RunId, unread: &Unread) {
        let until = self.store().now().after(PUT_OFF);
        tracing::error!(%run, %unread, "a run is given back that cannot be read here");
        self.counters.runs_unread.one();
        if !self.is_stopping() {
            self.store().clock().sleep_until(until).await;
        }
        self.give_back(run).await;
    }
}

/// What is sealed of how these ended.
pub(super) fn sealed_ends(ends: &[ScopeEnd]) -> Option<String> {
    let sealed = ends.iter().find_map(|end| sealed_outcome(&end.outcome));
    sealed.map(str::to_owned)
}
