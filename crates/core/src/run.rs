//! A run, as one row, and what stands beside it.
//!
//! | from | to | by |
//! |---|---|---|
//! | ready | running | a claim |
//! | running | running | a round that continues |
//! | running | waiting, ready | a round that suspends; a release; ready if something is there |
//! | waiting | ready, running | a message, a timer, a cancel; running if claimed at once |
//! | running | completed, failed, cancelled | the last round; terminal is terminal |
//! | running | rolling back | a round that begins to undo what the run did |
//! | completed, parked | rolling back | a request to undo it |
//! | rolling back | rolled back, cancelled, rollback failed | the last round of that phase |
//! | rollback failed | rolling back | an operator's retry or skip |
//! | running, ready | parked | a failure only an operator can judge; too many crashes |
//! | parked | ready | an operator's resume; a cancel |
//! | running, waiting, parked | ready | a cancel without undo, which ends the lease |
//!
//! `ready_at` and `state` are derived from the other columns in one place, [`RunRow::settle`].

use crate::mutant::{self, Mutant};
use crate::{
    Deadline, Deadlines, Flow, Name, Outcome, PublicationId, RunId, Timestamp, WorkerId, limits,
};

/// Where a run stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// May be claimed.
    Ready,
    /// Leased to a worker.
    Running,
    /// For a message or a time.
    Waiting,
    /// Undoing what it did.
    RollingBack,
    /// For an operator.
    Parked,
    /// Ended with a value.
    Completed,
    /// Ended with a failure; nothing had to be undone.
    Failed,
    /// Ended, all undone.
    RolledBack,
    /// Ended, an undo failed.
    RollbackFailed,
    /// Ended on request.
    Cancelled,
}

impl RunState {
    /// All of them.
    pub const ALL: [RunState; 10] = [
        RunState::Ready,
        RunState::Running,
        RunState::Waiting,
        RunState::RollingBack,
        RunState::Parked,
        RunState::Completed,
        RunState::Failed,
        RunState::RolledBack,
        RunState::RollbackFailed,
        RunState::Cancelled,
    ];

    /// The word that is stored and shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            RunState::Ready => "ready",
            RunState::Running => "running",
            RunState::Waiting => "waiting",
            RunState::RollingBack => "rolling_back",
            RunState::Parked => "parked",
            RunState::Completed => "completed",
            RunState::Failed => "failed",
            RunState::RolledBack => "rolled_back",
            RunState::RollbackFailed => "rollback_failed",
            RunState::Cancelled => "cancelled",
        }
    }

    /// The state of this word.
    #[must_use]
    pub fn parse(word: &str) -> Option<RunState> {
        RunState::ALL
            .into_iter()
            .find(|state| state.as_str() == word)
    }

    /// Terminal is terminal.
    #[must_use]
    pub fn has_ended(self) -> bool {
        matches!(
            self,
            RunState::Completed
                | RunState::Failed
                | RunState::RolledBack
                | RunState::RollbackFailed
                | RunState::Cancelled
        )
    }
}

/// How far a request to end has come.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Debug,
    Default,
    serde::Serialize,
    serde::Deserialize,
)]
pub enum CancelMark {
    /// Nobody asked.
    #[default]
    None,
    /// Asked; the run has not taken it up.
    Requested,
    /// Taken up: no user code runs any more; what is below is asked to end.
    Seen,
}

/// What there is to undo, and whether that is under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub enum UndoMark {
    /// Nothing.
    #[default]
    Nothing,
    /// Something was done that can be undone, or set off.
    Possible,
    /// It is being undone.
    Underway,
    /// An undo failed, and an operator has accepted what remains.
    Accepted,
    /// It was cancelled without undo: what it did is kept.
    Kept,
}

impl UndoMark {
    /// All of them, each at the place of its stored number.
    pub const ALL: [UndoMark; 5] = [
        UndoMark::Nothing,
        UndoMark::Possible,
        UndoMark::Underway,
        UndoMark::Accepted,
        UndoMark::Kept,
    ];

    /// The number that is stored.
    #[must_use]
    pub fn number(self) -> u8 {
        self as u8
    }
}

/// How a run's end is told to its parent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub enum Told {
    /// By a message to the call that set it off, with how it ended.
    #[default]
    Message,
    /// By lowering the latch of a call: its run is told when all have ended.
    Latch {
        /// Of which of the parent's executions.
        execution: u32,
        /// Of which of its calls.
        call: u32,
        /// Which part of the latch.
        part: u8,
    },
    /// Not at all: an operator asked, and the parent has long gone on.
    Nobody,
}

/// Under which epoch of which run something was done or said. Epochs begin anew when a run that was
/// deleted is started again under its id; when it was started tells the two apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fence {
    /// When the run was started; none as long as whoever began it has not been told.
    pub created_at: Option<Timestamp>,
    /// Raised by every claim, commit and release.
    pub epoch: u64,
}

impl Fence {
    /// Are both of one run?
    #[must_use]
    pub fn is_same_run(self, other: Fence) -> bool {
        self.created_at == other.created_at || mutant::on(Mutant::EpochsBeginAnew)
    }

    /// Is it of the same run, and has it passed?
    #[must_use]
    pub fn is_before(self, later: Fence) -> bool {
        self.is_same_run(later) && self.epoch < later.epoch
    }
}

/// A small number for (namespace, workflow, version).
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize,
)]
pub struct LaneId(pub u32);

/// What a lane stands for.
#[derive(
    Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize,
)]
pub struct Lane {
    /// The tenant.
    pub namespace: Name,
    /// The workflow.
    pub workflow: Name,
    /// Its version.
    pub version: u32,
}

/// Who set a run off, and waits for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Parent {
    /// The parent run.
    pub run: RunId,
    /// Which of its executions.
    pub execution: u32,
    /// Which of its calls.
    pub call: u32,
}

/// One run.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct RunRow {
    /// Its id.
    pub id: RunId,
    /// Namespace, workflow and version.
    pub lane: LaneId,
    /// Where it stands.
    pub state: RunState,
    /// Lower is claimed first.
    pub priority: i32,
    /// Counts continue-as-new, from 1.
    pub execution: u32,
    /// The fence: raised by every claim, commit and release.
    pub epoch: u64,
    /// Who has the lease.
    pub owner: Option<WorkerId>,
    /// When the lease ends.
    pub lease_until: Option<Timestamp>,
    /// When it may be claimed: derived.
    pub ready_at: Option<Timestamp>,
    /// Since when something waits to be taken up: a start, a message, a cancel.
    pub news_at: Option<Timestamp>,
    /// The earliest of its timers, time-outs and back-offs.
    pub timer_at: Option<Timestamp>,
    /// Entries in the journal of this execution.
    pub head: u64,
    /// The last number given to a message.
    pub mail_last: u64,
    /// Messages in the mailbox.
    pub mail: u32,
    /// Messages that are matched to a call and not yet consumed.
    pub matched: u32,
    /// Signals it waits for.
    pub waits: u32,
    /// Runs that wait for its end.
    pub watchers: u32,
    /// Its lease ended by time, so it may have killed its worker.
    pub suspect: bool,
    /// Crashes of its worker while alone in the suspects' slot.
    pub crashes: u32,
    /// Asked to end.
    pub cancel: CancelMark,
    /// Who has it in memory.
    pub holder: Option<WorkerId>,
    /// Who waits for it.
    pub parent: Option<Parent>,
    /// The top of its tree; itself if it has no parent.
    pub root: RunId,
    /// Levels below the root.
    pub depth: u16,
    /// How its end is told to its parent.
    pub told: Told,
    /// Its place in the scope, from 0, if its parent set off several together.
    pub number: Option<u32>,
    /// The publication that set it off.
    pub publication: Option<PublicationId>,
    /// What there is to undo.
    pub undo: UndoMark,
    /// Until when it must have ended: its own, and those from above.
    pub deadlines: Deadlines,
    /// How it stands to the limits of its queue: derived.
    pub flow: Flow,
    /// On whose behalf: its turn comes among those of its queue by this.
    pub flow_key: Option<Name>,
    /// The user's own id for it.
    pub key: Option<Name>,
    /// When it was started.
    pub created_at: Timestamp,
    /// When it last changed.
    pub changed_at: Timestamp,
    /// Its result; or, while it is parked, the reason.
    pub outcome: Option<Outcome>,
}

impl RunRow {
    /// Was it set off alone, without a deadline, and has it nothing to undo? Most are.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.told == Told::Message
            && self.number.is_none()
            && self.publication.is_none()
            && self.undo == UndoMark::Nothing
            && self.deadlines == Deadlines::default()
            && self.flow == Flow::Free
            && self.flow_key.is_none()
    }

    /// Is somebody working on it? A lease that ends too far ahead was made by a clock that has
    /// since been set back, and does not count.
    #[must_use]
    pub fn is_leased(&self, now: Timestamp) -> bool {
        self.owner.is_some()
            && self
                .lease_until
                .is_some_and(|end| end > now && end <= now.after(limits::LEASE))
    }

    /// Does it wait for an operator? It is parked, or its rollback failed and nobody has accepted
    /// what is left.
    #[must_use]
    pub fn awaits_operator(&self) -> bool {
        let stuck = self.state == RunState::RollbackFailed && self.undo == UndoMark::Possible;
        self.state == RunState::Parked || stuck
    }

    /// Its fence at the moment.
    pub(crate) fn fence(&self) -> Fence {
        Fence {
            created_at: Some(self.created_at),
            epoch: self.epoch,
        }
    }

    /// Who has it, and under which fence.
    pub(crate) fn has_it(&self) -> Option<crate::Owner> {
        let fence = self.fence();
        self.owner.map(|worker| crate::Owner { worker, fence })
    }

    /// The deadline that it has missed by now and not taken up. An operator's matters more: who was
    /// asked to end has no other deadline.
    #[must_use]
    pub fn missed(&self, now: Timestamp) -> Option<Deadline> {
        let due = match (self.undo, self.cancel) {
            (UndoMark::Underway, _) => self.deadlines.rollback,
            (_, CancelMark::None) => self.deadlines.forward,
            _ => None,
        };
        due.filter(|due| due.has_passed(now) && !mutant::on(Mutant::DeadlineIgnored))
    }

    /// Derives `state`, `ready_at` and `flow`. Nothing else writes them, but that a lease is under
    /// limits is said by whoever grants it.
    pub(crate) fn settle(&mut self, now: Timestamp) {
        self.changed_at = now;
        self.flow = self.flow_now();
        if self.state.has_ended() || self.state == RunState::Parked {
            assert!(
                self.owner.is_none(),
                "run {} is at rest and leased",
                self.id
            );
            self.ready_at = None;
            return;
        }
        (self.state, self.ready_at) = match (self.owner, self.news_at, self.timer_at) {
            (Some(_), _, _) => (RunState::Running, self.lease_until),
            (None, Some(news), None) => (RunState::Ready, Some(news)),
            (None, Some(news), Some(timer)) => (RunState::Ready, Some(news.min(timer))),
            (None, None, timer) => (RunState::Waiting, timer),
        };
        if self.undo == UndoMark::Underway {
            self.state = RunState::RollingBack;
        }
    }

    fn flow_now(&self) -> Flow {
        let leaks = mutant::on(Mutant::PermitLeaked) && self.flow == Flow::Permit;
        let rests = self.state.has_ended() || self.state == RunState::Parked;
        match self.flow {
            flow if leaks || self.owner.is_some() => flow,
            _ if self.goes_ahead() && !rests => Flow::Pass,
            _ => Flow::Free,
        }
    }

    /// Does no limit hold it back? Whoever was asked to end, or is undone, is to come to its end.
    pub(crate) fn goes_ahead(&self) -> bool {
        self.cancel != CancelMark::None || self.undo == UndoMark::Underway
    }

    /// Gives the lease up and raises the fence, so that what the owner still sends is refused.
    pub(crate) fn end_lease(&mut self) {
        self.owner = None;
        self.lease_until = None;
        self.epoch += 1;
    }
}

/// The run's own state, which others may read and patch.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct StateRow {
    /// Counts changes, from 1.
    pub version: u64,
    /// One JSON value.
    pub value: crate::Payload,
}

/// One start of one worker process.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct WorkerRow {
    /// Its id.
    pub id: WorkerId,
    /// For people: host and process.
    pub name: String,
    /// When it registered.
    pub started_at: Timestamp,
    /// When it last renewed.
    pub seen_at: Timestamp,
    /// The suspect it runs.
    pub suspect: Option<RunId>,
    /// What it can run, in order; none if it was registered before that was kept.
    pub lanes: Vec<LaneId>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_is_found_by_its_word() {
        for state in RunState::ALL {
            assert_eq!(RunState::parse(state.as_str()), Some(state));
        }
        assert_eq!(RunState::parse("gone"), None);
    }
}
