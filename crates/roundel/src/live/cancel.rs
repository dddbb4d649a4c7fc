//! Ending on request: no user code runs any more, but effects under way get a moment; children
//! are asked to end, and waited for.

use std::task::Wake;

use roundel_core::{
    Call, Claimed, Class, Entry, Failure, Outcome, Payload, RunState, Then, Timestamp,
};

use super::replay::Journal;
use super::{Driver, LiveRun, POLLS, Turn};
use crate::cx::shared::RunInfo;

pub(super) struct Cancelling {
    since: Timestamp,
    /// The journal says that it was taken up.
    seen: bool,
}

impl LiveRun {
    /// The run was asked to end, as was told under this epoch. Later ones say it themselves.
    pub(crate) fn asked_to_end(&mut self, epoch: u64, now: Timestamp) {
        if epoch >= self.epoch {
            self.cancel(now, false);
        }
    }

    /// The run was asked to end.
    pub(crate) fn cancel(&mut self, now: Timestamp, seen: bool) {
        if self.cancelling.is_none() {
            self.cancelling = Some(Cancelling { since: now, seen });
            self.discard();
            self.shared.lock().cancel();
            self.flag.wake_by_ref();
        }
    }

    /// A run that was asked to end and is not in memory: its journal says what is below it.
    pub(crate) fn cancelled(
        info: RunInfo,
        journal: Journal,
        (claimed, driver): (Claimed, Driver),
    ) -> LiveRun {
        let nothing: super::Handler = std::sync::Arc::new(|_, _| Box::pin(std::future::pending()));
        let mut live = LiveRun::new(info, &nothing, Payload::null(), driver);
        live.let_go();
        live.head = claimed.head;
        for (entry, _) in journal.entries {
            match entry {
                Entry::Begun {
                    call,
                    what: Call::Child { run, .. },
                } => {
                    live.children.insert(call, (run, false));
                }
                Entry::Begun {
                    call,
                    what: Call::Wait { signal, .. },
                } => {
                    live.waits.insert(call, (signal, true));
                }
                Entry::Done { call, .. } | Entry::Dropped { call } => {
                    live.waits.remove(&call);
                    if let Entry::Done { .. } = entry {
                        live.children.remove(&call);
                    }
                }
                _ => {}
            }
        }
        live.reclaimed(claimed);
        live
    }

    pub(super) fn cancel_turn(&mut self, now: Timestamp) -> Turn {
        let cancelling = self.cancelling.as_ref().expect("it was asked to end");
        let (until, seen) = (cancelling.since.after(self.driver.grace), cancelling.seen);
        if self.future.is_some() {
            let quiet = (0..POLLS).any(|_| !self.poll());
            if !quiet && now < until {
                return Turn::Yield;
            }
            if self.future.is_some() && self.shared.lock().running > 0 && now < until {
                return Turn::Wait(Some(until));
            }
            self.let_go();
        }
        self.timers.clear();
        while let Some(delivery) = self.inbox.pop_front() {
            self.take_delivery(delivery);
        }
        if !seen {
            self.draft.push(Entry::CancelSeen);
            self.draft.cancel_seen = true;
            if let Some(cancelling) = &mut self.cancelling {
                cancelling.seen = true;
            }
        }
        if !self.children.is_empty() {
            return self.end_children();
        }
        let failure =
            Failure::new(Class::Cancelled, "the run was cancelled").with_code("cancelled");
        self.draft.push(Entry::Ended {
            state: RunState::Cancelled,
        });
        let outcome = Outcome::Failure(Box::new(failure));
        self.commit(Then::End(RunState::Cancelled, outcome))
    }
}
