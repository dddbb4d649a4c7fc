//! Ending on request: no user code runs any more, but effects under way get a moment; children
//! are asked to end, and waited for.

use std::task::Wake;

use roundel_core::{
    Call, Claimed, Class, Entry, Failure, Fence, Outcome, Payload, RunState, Scope, Then,
    Timestamp, UndoMark, Why,
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
    /// The run was asked to end, as was told under this fence.
    pub(crate) fn asked_to_end(&mut self, fence: Fence, now: Timestamp) {
        if self.is_news(fence) {
            self.cancel(now, false);
        }
    }

    /// The run was asked to end.
    pub(crate) fn cancel(&mut self, now: Timestamp, seen: bool) {
        // What a run did is undone, whoever asks it to end.
        if self.cancelling.is_none() && !self.is_rolling_back() {
            // One that the journal does not know of is none.
            if self.rolling.take().is_some() {
                self.let_go();
            }
            self.cancelling = Some(Cancelling { since: now, seen });
            self.discard();
            self.shared.lock().cancel();
            self.flag.wake_by_ref();
        }
    }

    /// Does its journal say that it undoes what it did?
    pub(super) fn is_rolling_back(&self) -> bool {
        let enters = |(entry, _): &(Entry, Timestamp)| matches!(entry, Entry::RollingBack { .. });
        self.history.why.is_some() || self.replay.iter().any(enters)
    }

    /// A run whose function is not needed any more, and that is not in memory: its journal says
    /// what is below it, and what of it has been undone.
    pub(crate) fn without_code(
        info: RunInfo,
        journal: Journal,
        (claimed, driver): (Claimed, Driver),
    ) -> Box<LiveRun> {
        let info = RunInfo {
            context: journal.context,
            ..info
        };
        let nothing: super::Handler = std::sync::Arc::new(|_, _| Box::pin(std::future::pending()));
        let mut live = LiveRun::new(info, &nothing, Payload::null(), driver);
        live.earlier.unsettled = journal.unsettled;
        live.let_go();
        live.head = claimed.head;
        let mut entries = journal.entries.into_iter();
        let (mut at, execution) = (1, live.shared.info.execution);
        let back = |(entry, _): &(Entry, Timestamp)| matches!(entry, Entry::RollingBack { .. });
        let forward = entries.as_slice().iter().position(back);
        let forward = forward.unwrap_or(entries.len());
        for (entry, time) in entries.by_ref().take(forward) {
            at += 1;
            live.history.note(&entry, at, execution);
            live.pass(entry);
            // A claim that is older than the journal may not know of it.
            if live.kept {
                live.cancel(time, true);
            }
        }
        live.replay = entries.collect();
        live.reclaimed(claimed);
        live
    }

    /// One entry of a function that does not run any more.
    fn pass(&mut self, entry: Entry) {
        match entry {
            Entry::Begun {
                call,
                what: Call::Child { run, .. },
            } => {
                self.children.insert(call, (run, false));
            }
            Entry::Begun {
                call,
                what: Call::Children { .. } | Call::Batch { .. } | Call::Publish { .. },
            }
            | Entry::Worked { call, .. } => {
                self.scopes.insert(call, false);
            }
            Entry::Begun {
                call,
                what: Call::Wait { signal, .. },
            } => {
                self.waits.insert(call, (signal, true));
            }
            Entry::Done { call, .. } => {
                self.waits.remove(&call);
                self.children.remove(&call);
                self.scopes.remove(&call);
            }
            Entry::Settled { call, .. } => {
                self.scopes.remove(&call);
            }
            Entry::Dropped { call } => {
                self.waits.remove(&call);
            }
            Entry::ContextSet { context } => self.shared.lock().context.take(&context),
            Entry::DeadlineMissed { deadline, kept } => {
                self.missed = Some(deadline);
                self.kept |= kept;
            }
            Entry::Kept => self.kept = true,
            _ => {}
        }
    }

    /// Asks the children that are left to end, and waits for them.
    pub(super) fn end_children(&mut self) -> Turn {
        for (run, asked) in self.children.values_mut() {
            if !std::mem::replace(asked, true) {
                self.draft.cancels.push(Scope::Child(*run));
            }
        }
        let execution = self.shared.info.execution;
        for (call, asked) in &mut self.scopes {
            if !std::mem::replace(asked, true) {
                let call = *call;
                self.draft.cancels.push(Scope::Call { execution, call });
            }
        }
        self.timers.clear();
        self.close_waits();
        self.commit(Then::Suspend)
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
        if !seen {
            self.draft.push(match self.missed {
                Some(deadline) => Entry::DeadlineMissed {
                    deadline,
                    kept: self.kept,
                },
                None => Entry::CancelSeen,
            });
            self.draft.undo = self.kept.then_some(UndoMark::Kept);
            self.draft.cancel_seen = true;
            if let Some(cancelling) = &mut self.cancelling {
                cancelling.seen = true;
            }
        }
        // After the request, so that replay does not show it to a function that never saw it.
        while let Some(delivery) = self.inbox.pop_front() {
            self.take_delivery(delivery);
        }
        self.settle_unread();
        if !self.children.is_empty() || !self.scopes.is_empty() {
            return self.end_children();
        }
        if self.has_something_to_undo() && !self.kept {
            let late = self.missed_failure();
            self.roll_back(late.map_or(Why::Cancelled, |late| Why::Failed(Box::new(late))));
            return self.turn(now);
        }
        if let Some(late) = self.missed_failure() {
            return self.end(RunState::Failed, Outcome::Failure(Box::new(late)));
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
