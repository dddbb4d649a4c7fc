//! Batches: commands that are sent together, and counted until all of them have ended.
//!
//! A batch is a run whose one call set its commands off. Nobody works on it: the commit in which
//! the last of them ends also ends the batch, and lets what comes after it begin. Only to be
//! cancelled, or to miss its deadline, does it need a worker.

use serde::{Deserialize, Serialize};

use crate::{Caused, Name, Parent, RunId, Start, Timestamp};

/// What runs: nothing of the user's.
pub const BATCH: Name = Name::constant("roundel.batch");

/// What is sent together with the run that stands for all of it.
#[derive(Clone, PartialEq, Debug)]
pub struct Batch {
    /// The commands. Their parent is the batch.
    pub members: Vec<Start>,
    /// Begins when the batch has ended.
    pub then: Option<Start>,
}

/// What a batch comes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BatchEnd {
    /// How many commands it had.
    pub commands: u32,
    /// How many of them ended otherwise than with a reply: failed, or cancelled.
    pub failed: u32,
}

impl Batch {
    /// The one call that a batch makes.
    pub const CALL: u32 = 1;
    /// The call by which what comes after a batch waits for it: it has made none.
    pub const HELD: u32 = 0;

    /// The label of what comes after a batch, whose value is the batch: it can be found by it, and
    /// says for what it waits while it is held.
    pub const FOLLOWS: Name = Name::constant("roundel.follows");

    /// Who waits for the commands of the batch that is this run.
    #[must_use]
    pub fn parent(run: RunId) -> Parent {
        Parent {
            run,
            execution: 1,
            call: Batch::CALL,
        }
    }

    /// All that it starts, beside the batch itself.
    pub fn starts(&self) -> impl Iterator<Item = &Start> {
        self.members.iter().chain(&self.then)
    }

    /// All that it starts, to be changed.
    pub fn starts_mut(&mut self) -> impl Iterator<Item = &mut Start> {
        self.members.iter_mut().chain(&mut self.then)
    }

    /// It is sent at this time: until then, the times of its commands are counted from zero.
    pub fn sent_at(&mut self, now: Timestamp) {
        for start in self.starts_mut() {
            start.at = start.at.map(|at| now.after(at.since(Timestamp(0))));
        }
    }

    /// How much its commands were given.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.starts().map(|start| start.input.size()).sum()
    }
}

impl Caused {
    /// The batch that it sends, if it does.
    #[must_use]
    pub fn batch(&self) -> Option<&Batch> {
        match self {
            Caused::Child(_, start) | Caused::Spawn(_, start) | Caused::Send(start) => {
                start.batch.as_deref()
            }
            _ => None,
        }
    }
}
