//! What a process is told of what was committed: at once, late, twice, or never.

use roundel_core::{Hint, RunId, Timestamp};

use crate::marks::Mark;
use crate::worker::{Note, Task, Worker};
use crate::world::World;

impl Worker {
    pub(crate) fn can_hear(&self, hint: &Hint) -> bool {
        let is_it = |task: &Task| is_about(hint, task.run);
        matches!(hint, Hint::Ready(..) | Hint::AtRest(..)) || self.tasks.iter().any(is_it)
    }

    /// What is told late may be told when its run has just been taken up again.
    pub(crate) fn hear_of(&mut self, run: RunId) {
        if let Some(at) = self.hints.iter().position(|hint| is_about(hint, run)) {
            let hint = self.hints.swap_remove(at);
            self.hint(hint);
        }
    }

    pub(crate) fn hint(&mut self, hint: Hint) {
        match hint {
            Hint::Ready(lane, at) if self.lanes.contains(&lane) => self.claim_at(at),
            Hint::Mail(run, owner, delivery) if owner.worker == self.id() => {
                if let Some(task) = self.task(run) {
                    task.notes.push(Note::Mail(owner.fence, delivery));
                }
            }
            Hint::Cancel(run, owner) if owner.worker == self.id() => {
                if let Some(task) = self.task(run) {
                    task.notes.push(Note::Cancel(owner.fence));
                }
            }
            _ => {}
        }
    }
}

fn is_about(hint: &Hint, run: RunId) -> bool {
    matches!(hint, Hint::Mail(of, ..) | Hint::Cancel(of, _) if *of == run)
}

impl World<'_> {
    /// Tells the process where it was committed, and lets the others see that something was.
    pub(crate) fn tell(&mut self, hints: &[Hint], home: Option<usize>) {
        for at in 0..self.workers.len() {
            if self.faults.lost_hints && self.random.once_in(4) {
                self.marks.hit(Mark::HintLost);
                continue;
            }
            let (late, twice) = match self.faults.late_hints {
                true => (self.random.once_in(2), self.random.once_in(3)),
                false => (false, false),
            };
            let worker = &mut self.workers[at];
            if home != Some(at) {
                worker.claim_at(Timestamp(0));
                worker.renew_at = Timestamp(0);
                continue;
            }
            for hint in hints {
                if matches!(hint, Hint::AtRest(..)) {
                    continue;
                }
                if late {
                    self.marks.hit(Mark::HintLate);
                    worker.hints.push(hint.clone());
                } else {
                    worker.hint(hint.clone());
                }
                if twice {
                    self.marks.hit(Mark::HintTwice);
                    worker.hints.push(hint.clone());
                }
            }
        }
    }
}
