//! From the draft to a round, and from a round that was committed to what is in memory.

use std::task::Wake;

use roundel_core::{Committed, Entry, Fence, Payload, Round, Then};

use super::{Due, LiveRun, Turn};
use crate::cx::shared::RunInfo;

impl LiveRun {
    /// The round that the draft has become.
    pub(super) fn commit(&mut self, then: Then) -> Turn {
        let round = self.round(then);
        Turn::Commit(Box::new(round))
    }

    pub(super) fn round(&mut self, then: Then) -> Round {
        let (run, fence) = (self.run(), self.fence);
        assert!(
            fence.created_at.is_some() || self.head == 1,
            "run {run} goes on, and nobody knows when it was started"
        );
        let mut round = Round::new(run, self.driver.worker, fence.epoch);
        round.created_at = fence.created_at;
        round.parent = self.parent;
        round.lease = self.driver.lease;
        let durable = self
            .timers
            .iter()
            .find(|(_, _, due)| *due != Due::AttemptEnds);
        round.timer_at = durable.map(|(at, _, _)| *at);
        let ends = matches!(then, Then::End(..) | Then::ContinueAsNew(..));
        self.draft
            .fill(&mut round, &self.shared.info, ends.then_some(&self.waits));
        round.then = then;
        round
    }

    /// The round was committed. Returns whether the run is still this worker's.
    pub(crate) fn committed(&mut self, committed: Committed) -> bool {
        self.fence = fence_of(&committed);
        let mut draft = std::mem::take(&mut self.draft);
        self.note_committed(&draft.entries);
        // The room is used again: a round should not cost an allocation.
        draft.entries.clear();
        self.draft.entries = draft.entries;
        self.children.extend(
            draft
                .children
                .iter()
                .map(|(call, run)| (*call, (*run, false))),
        );
        self.open_windows(&draft.scopes, committed.at);
        self.scopes
            .extend(draft.scopes.iter().map(|call| (*call, false)));
        self.inbox.extend(committed.inbox);
        for call in draft.starts {
            self.start_attempt(call, committed.at);
        }
        if let Some((call, set, entry)) = self.step_entry.take() {
            if let Some(context) = set {
                self.shared.lock().context.take(&context);
                self.note_committed(&[Entry::ContextSet { context }]);
            }
            self.note_committed(std::slice::from_ref(&entry));
            self.step_done(call, entry, committed.at);
        }
        if committed.cancel {
            self.cancel(committed.at, false);
        }
        self.flag.wake_by_ref();
        committed.kept
    }

    /// The input of the next execution, once the round that ends this one is committed.
    pub(crate) fn continue_input(&self) -> Option<Payload> {
        self.draft.anew.as_ref().map(|(input, _)| input.clone())
    }

    /// The next execution of a run that was committed as beginning anew.
    pub(crate) fn after_continue(
        mut self: Box<Self>,
        before: &LiveRun,
        committed: Committed,
    ) -> Box<LiveRun> {
        self.fence = fence_of(&committed);
        self.parent = before.parent;
        self.earlier.unsettled = before.draft.anew.as_ref().and_then(|(_, first)| *first);
        self.inbox.extend(committed.inbox);
        if committed.cancel {
            self.cancel(committed.at, false);
        }
        self
    }

    /// What is fixed about the next execution.
    pub(crate) fn next_info(&self) -> RunInfo {
        let info = self.shared.info.clone();
        RunInfo {
            execution: info.execution + 1,
            context: self.shared.lock().context.clone(),
            ..info
        }
    }

    /// These entries are in the journal now.
    pub(super) fn note_committed(&mut self, entries: &[Entry]) {
        let execution = self.shared.info.execution;
        for entry in entries {
            self.head += 1;
            self.history.note(entry, self.head, execution);
        }
    }
}

/// The fence of the round after this.
fn fence_of(committed: &Committed) -> Fence {
    Fence {
        created_at: Some(committed.created_at),
        epoch: committed.epoch,
    }
}
