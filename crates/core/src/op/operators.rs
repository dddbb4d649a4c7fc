//! What people and programs ask of a run from outside.

use super::{Claimant, Op, Target};
use crate::{Failure, MailId, Name, Payload, PublicationId, RunId};

/// Something, if the run that it is about waits for an operator.
#[derive(Clone, PartialEq, Debug)]
pub struct IfParked {
    /// What.
    pub op: Op,
    /// The run's epoch when somebody looked at it: what has gone on since is left alone, also if it
    /// is parked again.
    pub seen: Option<u64>,
}

/// An operation in somebody's name: who asked, and why, is written down in the commit of what is
/// done.
#[derive(Clone, PartialEq, Debug)]
pub struct Audited {
    /// By whom.
    pub operator: Name,
    /// Why; may be empty.
    pub reason: String,
    /// What.
    pub op: Op,
}

/// Ask a run to end.
#[derive(Clone, PartialEq, Debug)]
pub struct Cancel {
    /// The tenant.
    pub namespace: Name,
    /// Which run.
    pub target: Target,
    /// What it did is kept, and so is what it set off: nothing of it is undone.
    pub keep: bool,
    /// Takes the run if it has it in memory.
    pub claimant: Option<Claimant>,
}

/// Remove a parked signal, or pass it on.
#[derive(Clone, PartialEq, Debug)]
pub struct Redirect {
    /// The tenant.
    pub namespace: Name,
    /// The run that ended without it.
    pub run: RunId,
    /// Which signal.
    pub name: Name,
    /// Its number in the mailbox of that run.
    pub number: u64,
    /// Where it goes. If it cannot go there, it stays parked.
    pub to: Destination,
    /// Takes the run if it has it in memory.
    pub claimant: Option<Claimant>,
}

/// Where a parked signal goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Destination {
    /// Nowhere: it is removed.
    Out,
    /// To this run.
    Run(Target),
    /// To the one who waits longest for an offer of it.
    Offer,
}

impl Redirect {
    /// Where it lies.
    #[must_use]
    pub fn mail(&self) -> MailId {
        MailId {
            run: self.run,
            name: Some(self.name.clone()),
            number: self.number,
        }
    }
}

/// Patch a run's state from outside (RFC 7396).
#[derive(Clone, PartialEq, Debug)]
pub struct Patch {
    /// The tenant.
    pub namespace: Name,
    /// Which run.
    pub target: Target,
    /// What to merge.
    pub patch: Payload,
    /// Only if the state has this version.
    pub expected: Option<u64>,
}

/// Park a run that nobody works on: it waits for an operator, as it would once its worker had found
/// out the same.
#[derive(Clone, PartialEq, Debug)]
pub struct Park {
    /// The tenant.
    pub namespace: Name,
    /// Which run.
    pub target: Target,
    /// Its epoch when somebody looked at it: what has gone on since is left alone.
    pub seen: u64,
    /// Why.
    pub failure: Failure,
}

/// Let a parked run go on, or a rollback that failed.
#[derive(Clone, PartialEq, Debug)]
pub struct Resume {
    /// The tenant.
    pub namespace: Name,
    /// Which run.
    pub target: Target,
    /// Without the undo that failed. Only for a rollback.
    pub skip: bool,
    /// From the beginning, with another input. Only for a parked run.
    pub anew: Option<Anew>,
}

/// A new beginning that an operator gives a parked run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Anew {
    /// The execution that was looked at: it must be the run's last.
    pub execution: u32,
    /// The first entry of the next, encoded.
    pub started: Vec<u8>,
}

/// Accept what a failed rollback left undone: nobody need look any more.
#[derive(Clone, PartialEq, Debug)]
pub struct Accept {
    /// The tenant.
    pub namespace: Name,
    /// Which run.
    pub target: Target,
}

/// End a run that nobody has begun, or that is parked: what it should have done was done otherwise.
#[derive(Clone, PartialEq, Debug)]
pub struct Complete {
    /// The tenant.
    pub namespace: Name,
    /// Which run.
    pub target: Target,
    /// With what.
    pub value: Payload,
}

/// Undo what a run did, and all below it. It must be at rest: completed, or parked.
#[derive(Clone, PartialEq, Debug)]
pub struct Undo {
    /// The tenant.
    pub namespace: Name,
    /// Which run.
    pub target: Target,
}

/// Remove a run, its journal and messages, and all runs below it.
#[derive(Clone, PartialEq, Debug)]
pub struct Delete {
    /// The tenant.
    pub namespace: Name,
    /// Which run.
    pub target: Target,
    /// Also if it has not ended, or is part of a tree that has not.
    pub force: bool,
}

/// Remove what a client published, unless its window is open or a run that it set off is left.
/// What a run published goes with that run.
#[derive(Clone, PartialEq, Debug)]
pub struct Forget {
    /// The tenant.
    pub namespace: Name,
    /// Which publication.
    pub publication: PublicationId,
}
