//! Runs that wait for a condition on their own state, and clients that patch it.

use roundel_core::{Committed, Op, Patch, Round, RunId, STATE_CHANGED, Source, Target};

use crate::flows::LAST;
use crate::marks::Mark;
use crate::world::{NAMESPACE, World};

impl World<'_> {
    /// Patches the state of a run: mostly one that waits for that, or soon will.
    pub(crate) fn patch(&mut self, run: RunId) -> Op {
        let waiting = match self.random.once_in(4) {
            true => None,
            false => self.has_a_state(),
        };
        let patch = match self.random.below(4) {
            0 => serde_json::json!({ "other": self.random.below(9) }),
            1 => serde_json::json!({ "first": 1 }),
            _ => serde_json::json!({ LAST: 1 }),
        };
        Op::Patch(Patch {
            namespace: NAMESPACE,
            target: Target::Run(waiting.unwrap_or(run)),
            patch: World::payload(&patch),
            expected: None,
        })
    }

    fn has_a_state(&mut self) -> Option<RunId> {
        let (drawn, rows) = (self.random.next(), self.model.rows());
        let open = |run: &RunId| rows.run(*run).is_some_and(|row| !row.state.has_ended());
        let runs = rows.states.iter().map(|(run, _)| *run).filter(open);
        runs.min_by_key(|run| run.0.as_u64_pair().1 ^ drawn)
    }

    /// A patch was answered.
    pub(crate) fn note_patched(&mut self, target: &Target) {
        let mut waits = self.model.rows().waits.iter();
        let told = waits.any(|(wait, row)| {
            let its = Target::Run(wait.run) == *target && wait.name == STATE_CHANGED;
            its && row.taken.is_some()
        });
        if told {
            self.marks.hit(Mark::PatchTold);
        }
    }

    /// A round was committed: what had it overlooked, if it were not told?
    pub(crate) fn note_conditions(&mut self, committed: &Committed, round: &Round) {
        let opened = |call| round.opened.iter().any(|open| open.call == call);
        let mut inbox = committed.inbox.iter();
        let told = inbox.any(|delivery| {
            delivery.source == Source::Wait(STATE_CHANGED) && opened(delivery.call)
        });
        if told {
            self.marks.hit(Mark::PatchedMeanwhile);
        }
    }
}
