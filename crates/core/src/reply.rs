//! What operations answer, and the hints that follow a commit.

use crate::{
    CancelMark, Deadlines, Delivery, Failure, Fence, LaneId, Name, Outcome, Parent, ProjectionRow,
    PublicationId, QueueRow, Refusal, RunId, RunState, Sent, StateRow, Timestamp, WorkerId,
};

/// The answer to an operation.
#[derive(Clone, PartialEq, Debug)]
pub enum Reply {
    /// To a start.
    Started(Started),
    /// To a commit.
    Committed(Committed),
    /// To a signal or an offer; with the run, if the sender took it at once.
    Sent(Sent, Vec<Claimed>),
    /// To a cancel.
    Cancelled(Cancelled, Vec<Claimed>),
    /// To a patch.
    Patched(Patched),
    /// To a claim.
    Claimed {
        /// The runs.
        runs: Vec<Claimed>,
        /// When the next may be due.
        next: Option<Timestamp>,
    },
    /// To a renewal, one for each run.
    Renewed(Vec<Renewed>),
    /// To a release: how many were given up.
    Released(usize),
    /// To a registration: the lanes, in the order asked for.
    Registered(Vec<LaneId>),
    /// To a publication.
    Published(Published),
    /// To a subscription: whether that is new.
    Subscribed(bool),
    /// To a join.
    Joined(Joined),
    /// To a completion.
    Completed,
    /// To a request to undo.
    Undone(Undone),
    /// To an acceptance.
    Accepted,
    /// To a request to park a run.
    Parked,
    /// To a resume.
    Resumed,
    /// To a delete: how many runs went; whether there are more.
    Deleted {
        /// How many.
        runs: usize,
        /// Ask again.
        more: bool,
    },
    /// To a request to forget: whether the publication went.
    Forgotten(bool),
    /// To a record, one for each fact.
    Recorded(Vec<RecordedFact>),
    /// To facts that came in, one for each.
    Received(Vec<Received>),
    /// To whoever declared a projection, has it built anew, or skips a fact: as it is now.
    Projected(ProjectionRow),
    /// To whoever brought a projection further.
    Followed(Followed),
    /// To a change of a queue's limits: as they are now.
    Limited(QueueRow),
}

/// What became of a fact.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordedFact {
    /// Was it new?
    pub new: bool,
    /// Which of its stream's facts it is, from 1.
    pub stream_version: Option<u64>,
    /// How many facts waited for it, and are in their queue again.
    pub let_go: u32,
}

/// What became of a fact that came in.
#[derive(Clone, PartialEq, Debug)]
pub enum Received {
    /// It is recorded, and no longer in the queue.
    Recorded(RecordedFact),
    /// It is in the queue, as this run.
    Queued(RunId),
    /// It waits for a fact that it needs.
    Waiting {
        /// As this run.
        run: RunId,
        /// Which fact.
        on: Name,
    },
    /// It could not be recorded and waits for an operator.
    Parked {
        /// As this run.
        run: RunId,
        /// Why.
        failure: Box<Failure>,
    },
    /// It was in the queue and is not any more, or somebody has changed it: nothing was done.
    Gone,
    /// It could neither be recorded nor kept: nothing was done.
    Refused(Box<Refusal>),
}

/// How far a projection came.
#[derive(Clone, PartialEq, Debug)]
pub struct Followed {
    /// As it is now.
    pub row: ProjectionRow,
    /// How many facts it has passed.
    pub passed: usize,
    /// There is more to do at once.
    pub more: bool,
    /// There are facts before which others may still come: ask again soon.
    pub unsettled: bool,
}

/// What a start did.
#[derive(Clone, PartialEq, Debug)]
pub struct Started {
    /// The run: the new one, or the one that has the key.
    pub run: RunId,
    /// Was it new?
    pub new: bool,
    /// The first round's reply, if it came with one. Boxed, or it would make every reply large.
    pub first: Option<Box<Result<Committed, Refusal>>>,
    /// What became of the signal that came with it.
    pub sent: Option<Sent>,
    /// Runs that the worker took.
    pub claimed: Vec<Claimed>,
}

/// What a publication did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Published {
    /// Which.
    pub id: PublicationId,
    /// Was it new?
    pub new: bool,
    /// How many runs it set off: none if nobody subscribes.
    pub heard: u32,
}

/// What became of a request to join a publication.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Joined {
    /// This run was started.
    New(RunId),
    /// It had been.
    Already(RunId),
    /// The window is closed, or whoever published has gone on.
    Late,
    /// There is no such publication.
    Unknown,
}

/// What became of a request to undo.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Undone {
    /// It has begun. Is the run part of a larger tree, the rest of which stays?
    Begun {
        /// That is so.
        partial: bool,
    },
    /// It is under way, or done, or there was nothing to do.
    Already(RunState),
}

/// What a commit did.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Committed {
    /// The fence for the next round.
    pub epoch: u64,
    /// When the run was started, which is part of it.
    pub created_at: Timestamp,
    /// When.
    pub at: Timestamp,
    /// Is the lease kept? Also when the round gave it up, but something was there already.
    pub kept: bool,
    /// The run was asked to end and has not taken it up.
    pub cancel: bool,
    /// Messages matched to calls and not consumed yet.
    pub inbox: Vec<Delivery>,
    /// Other runs that the worker took because this round woke them.
    pub claimed: Vec<Claimed>,
    /// The worker's place for suspects is free again.
    pub slot_freed: bool,
}

/// A run that a worker now has.
#[derive(Clone, PartialEq, Debug)]
pub struct Claimed {
    /// Which.
    pub run: RunId,
    /// The fence.
    pub epoch: u64,
    /// When it was started, which is part of it.
    pub created_at: Timestamp,
    /// What it is.
    pub lane: LaneId,
    /// Which execution.
    pub execution: u32,
    /// Entries in its journal.
    pub head: u64,
    /// Who waits for it.
    pub parent: Option<Parent>,
    /// The user's own id for it.
    pub key: Option<Name>,
    /// Asked to end.
    pub cancel: CancelMark,
    /// Until when it must have ended.
    pub deadlines: Deadlines,
    /// In the place for suspects.
    pub suspect: bool,
    /// Messages matched to calls and not consumed yet.
    pub inbox: Vec<Delivery>,
    /// When it was claimed.
    pub at: Timestamp,
}

impl Claimed {
    /// Under which it was claimed.
    #[must_use]
    pub fn fence(&self) -> Fence {
        Fence {
            created_at: Some(self.created_at),
            epoch: self.epoch,
        }
    }
}

/// What became of one lease.
#[derive(Clone, PartialEq, Debug)]
pub struct Renewed {
    /// Of which run.
    pub run: RunId,
    /// Kept, with what came meanwhile; or lost.
    pub lease: Lease,
}

/// A lease, after a renewal.
#[derive(Clone, PartialEq, Debug)]
pub enum Lease {
    /// It goes on.
    Kept {
        /// Under which fence.
        fence: Fence,
        /// Asked to end.
        cancel: bool,
        /// Messages matched to calls and not consumed yet.
        inbox: Vec<Delivery>,
    },
    /// It ended by time, or somebody else has it.
    Lost,
}

/// What became of a request to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cancelled {
    /// It is marked; it ends at its next boundary.
    Requested,
    /// It had ended.
    AlreadyEnded(RunState),
    /// It undoes what it did, and that cannot be cancelled.
    RollingBack,
    /// There is no such run.
    TargetUnknown,
}

/// What became of a patch.
#[derive(Clone, PartialEq, Debug)]
pub enum Patched {
    /// The state is now this.
    Changed(StateRow),
    /// It has another version than expected; nothing changed.
    VersionIs(u64),
    /// The run has ended; nothing changed.
    TargetEnded(RunState),
    /// There is no such run.
    TargetUnknown,
}

/// Who has a run. What is told to it under an epoch that has passed is known to it: the commit or
/// claim that raised the epoch has said the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner {
    /// Which worker.
    pub worker: WorkerId,
    /// The fence under which it has it.
    pub fence: Fence,
}

/// Told to the processes around after a commit. Losing one costs time only; it may come late, and
/// more than once.
#[derive(Clone, PartialEq, Debug)]
pub enum Hint {
    /// A run of this lane may be claimed from then on.
    Ready(LaneId, Timestamp),
    /// A message came for a run that somebody has.
    Mail(RunId, Owner, Delivery),
    /// A run that somebody has was asked to end.
    Cancel(RunId, Owner),
    /// Facts were recorded that projections of this tenant take up afterwards, or there is one that
    /// is to be built.
    Facts(Name),
    /// A run has ended, or is parked: with its result or the reason; none if it was deleted.
    AtRest(RunId, RunState, Option<Outcome>),
}
