//! Operations: every state change that exists, as data. They can be logged, counted, fused,
//! replayed and simulated.

mod facts;
mod incoming;
mod operators;
mod projections;
mod topics;

use std::time::Duration;

pub use facts::{NewFact, Record};
pub use incoming::{Item, Receive, Take};
pub use operators::{
    Accept, Anew, Audited, Cancel, Complete, Delete, Destination, Forget, IfParked, Park, Patch,
    Redirect, Resume, Undo,
};

pub use projections::{Declare, Follow, Rebuild, SkipFact};
pub use topics::{Join, Publish, Subscribe};

use crate::{
    Batch, Context, Deadlines, Dedupe, Failure, Fence, GateId, LaneId, Limit, Name, Outcome,
    Parent, Payload, Policy, RunId, RunState, Timestamp, UndoMark, WorkerId,
};

/// One state change.
#[derive(Clone, PartialEq, Debug)]
pub enum Op {
    /// Start a run.
    Start(Start),
    /// Commit a round.
    Commit(Round),
    /// Send a signal to a run.
    Signal(Signal),
    /// Offer a signal to one waiter.
    Offer(Offer),
    /// Remove a parked signal, or pass it on.
    Redirect(Redirect),
    /// Ask a run to end.
    Cancel(Cancel),
    /// Patch a run's state.
    Patch(Patch),
    /// Lease runs that are due.
    Claim(Claim),
    /// Keep leases.
    Renew(Renew),
    /// Give leases up.
    Release(Release),
    /// Make a worker and what it can run known.
    Register(Register),
    /// Publish to a topic: each workflow that subscribes starts one run.
    Publish(Publish),
    /// Make a workflow's interest in a topic known, or end it.
    Subscribe(Subscribe),
    /// Let a workflow join a publication whose window is open.
    Join(Join),
    /// End a run that nobody has begun, with this value.
    Complete(Complete),
    /// Undo what a run did, and all below it.
    Undo(Undo),
    /// Park a run that nobody works on.
    Park(Box<Park>),
    /// Let a parked run go on, or a rollback that failed.
    Resume(Resume),
    /// Accept what a failed rollback left undone.
    Accept(Accept),
    /// Remove a run and all below it.
    Delete(Delete),
    /// Remove what a client published, once nothing that it set off is left.
    Forget(Forget),
    /// Something of the above, if the run that it is about waits for an operator.
    IfParked(Box<IfParked>),
    /// Record facts.
    Record(Record),
    /// Take facts in.
    Receive(Receive),
    /// Make a projection known.
    Declare(Declare),
    /// Make the documents of a projection anew.
    Rebuild(Rebuild),
    /// Pass over a fact that a projection cannot fold in.
    SkipFact(SkipFact),
    /// Let a projection take up the facts that come next.
    Follow(Follow),
    /// Change the limits of a queue.
    Limit(Limit),
    /// Something of the above, in somebody's name: it is audited.
    Audited(Box<Audited>),
}

impl Op {
    /// What is asked for, in whosever name and on whatever condition.
    #[must_use]
    pub fn asked(&self) -> &Op {
        match self {
            Op::Audited(audited) => audited.op.asked(),
            Op::IfParked(parked) => parked.op.asked(),
            op => op,
        }
    }
}

/// A worker that takes what it wakes, in the same commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claimant {
    /// Who.
    pub worker: WorkerId,
    /// For how long.
    pub lease: Duration,
}

/// Start a run.
#[derive(Clone, PartialEq, Debug)]
pub struct Start {
    /// The tenant.
    pub namespace: Name,
    /// The new run.
    pub run: RunId,
    /// What runs.
    pub workflow: Name,
    /// Which version; the highest known one if none is said.
    pub version: Option<u32>,
    /// The user's own id for it: starting twice gives the first.
    pub key: Option<Name>,
    /// With what.
    pub input: Payload,
    /// For search.
    pub labels: Vec<(Name, String)>,
    /// Lower is claimed first.
    pub priority: i32,
    /// On whose behalf: those of a queue take turns, and can be limited each.
    pub flow_key: Option<Name>,
    /// Of several that are alike, one is started.
    pub dedupe: Option<Dedupe>,
    /// Not before.
    pub at: Option<Timestamp>,
    /// Who set it off and waits for it.
    pub parent: Option<Parent>,
    /// Until when it must have ended, beside what its parent's say.
    pub deadlines: Deadlines,
    /// What flows down to it.
    pub context: Context,
    /// Leased at once to this worker.
    pub claimant: Option<Claimant>,
    /// The first round, if the worker has already run the code up to its first call.
    pub first: Option<Box<Round>>,
    /// Delivered with the start, also if the run exists.
    pub signal: Option<Box<Signal>>,
    /// Sent together with the run, which stands for all of it.
    pub batch: Option<Box<Batch>>,
}

impl Start {
    /// A start that says nothing special, to be filled in.
    #[must_use]
    pub fn new(namespace: Name, run: RunId, workflow: Name, input: Payload) -> Start {
        Start {
            namespace,
            run,
            workflow,
            version: None,
            key: None,
            input,
            labels: Vec::new(),
            priority: 0,
            flow_key: None,
            dedupe: None,
            at: None,
            parent: None,
            deadlines: Deadlines::default(),
            context: Context::default(),
            claimant: None,
            first: None,
            signal: None,
            batch: None,
        }
    }
}

/// Which run is meant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// By id.
    Run(RunId),
    /// By the user's own id.
    Key(Name),
}

/// Send a signal to a run.
#[derive(Clone, PartialEq, Debug)]
pub struct Signal {
    /// The tenant.
    pub namespace: Name,
    /// To whom.
    pub target: Target,
    /// Which signal.
    pub name: Name,
    /// What it says.
    pub payload: Payload,
    /// If nobody waits for it.
    pub policy: Policy,
    /// After this long, nobody gets it.
    pub expires: Option<Duration>,
    /// The same key again does nothing and gives the first answer.
    pub key: Option<Name>,
    /// Takes the run if it has it in memory.
    pub claimant: Option<Claimant>,
}

/// Offer a signal to the one who waits longest.
#[derive(Clone, PartialEq, Debug)]
pub struct Offer {
    /// The tenant.
    pub namespace: Name,
    /// Which signal.
    pub name: Name,
    /// What it says.
    pub payload: Payload,
    /// The same key again does nothing and gives the first answer.
    pub key: Option<Name>,
    /// Takes the run if it has it in memory.
    pub claimant: Option<Claimant>,
}

/// Lease runs that are due, oldest first within priority.
#[derive(Clone, PartialEq, Debug)]
pub struct Claim {
    /// For whom.
    pub worker: WorkerId,
    /// What it can run.
    pub lanes: Vec<LaneId>,
    /// How many at most.
    pub limit: usize,
    /// For how long.
    pub lease: Duration,
}

/// Keep leases; hear what came meanwhile.
#[derive(Clone, PartialEq, Debug)]
pub struct Renew {
    /// Whose.
    pub worker: WorkerId,
    /// Of which runs.
    pub runs: Vec<RunId>,
    /// For how long from now.
    pub lease: Duration,
}

/// Give leases up: no fault of the runs.
#[derive(Clone, PartialEq, Debug)]
pub struct Release {
    /// Whose.
    pub worker: WorkerId,
    /// Of which runs.
    pub runs: Vec<RunId>,
    /// The worker stops: it is no longer listed.
    pub leave: bool,
}

/// Make a worker known.
#[derive(Clone, PartialEq, Debug)]
pub struct Register {
    /// The worker.
    pub worker: WorkerId,
    /// For people.
    pub name: String,
    /// What it can run: namespace, workflow, version.
    pub lanes: Vec<crate::Lane>,
}

/// One round of one run: what it took, what happened, what it caused, and what comes next.
#[derive(Clone, PartialEq, Debug)]
pub struct Round {
    /// Whose.
    pub run: RunId,
    /// By whom.
    pub worker: WorkerId,
    /// Under which fence.
    pub epoch: u64,
    /// When the run was started, which is part of the fence. Only whoever just began it does not
    /// know.
    pub created_at: Option<Timestamp>,
    /// The run's parent, which is locked with it when it ends.
    pub parent: Option<RunId>,
    /// Gates of offerable waits that open or close, locked before the run.
    pub gates: Vec<GateId>,
    /// The entries, encoded.
    pub entries: Vec<u8>,
    /// How many.
    pub count: u32,
    /// Messages consumed.
    pub consumed: Vec<Consumed>,
    /// Waits that nobody waits for any more: (signal, call).
    pub closed: Vec<(Name, u32)>,
    /// Waits that began.
    pub opened: Vec<OpenWait>,
    /// What it set off. What became of each comes back as a message to its call.
    pub caused: Vec<Caused>,
    /// The run has taken up the request to end.
    pub cancel_seen: bool,
    /// What there is to undo, if that changes.
    pub undo: Option<UndoMark>,
    /// The run's state, changed by itself.
    pub state: Vec<StateChange>,
    /// The state's version that was seen by those who wait, from this round on, for the next.
    pub state_seen: Option<u64>,
    /// The earliest of the run's timers after this round.
    pub timer_at: Option<Timestamp>,
    /// The lease of what this round wakes and its worker holds.
    pub lease: Duration,
    /// What comes next.
    pub then: Then,
}

/// A message that a round consumed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Consumed {
    /// What this wait was matched to; the wait ends.
    Wait(Name, u32),
    /// The engine's own message of this number.
    Mail(u64),
}

/// A wait for a signal that began in this round.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenWait {
    /// In which call.
    pub call: u32,
    /// For which signal.
    pub name: Name,
    /// Takes offers too.
    pub offerable: bool,
}

/// What a round set off.
#[derive(Clone, PartialEq, Debug)]
pub enum Caused {
    /// A child run, waited for.
    Child(u32, Box<Start>),
    /// A run of its own.
    Spawn(u32, Box<Start>),
    /// A run of its own, as part of a step: it answers no call. If it cannot be started, the round
    /// is refused, and with it what the step wrote.
    Send(Box<Start>),
    /// Facts, as part of a step: they answer no call. If they cannot be recorded, the round is
    /// refused, and with it what the step wrote.
    Record(Box<Record>),
    /// A signal.
    Signal(u32, Box<Signal>),
    /// An offer.
    Offer(u32, Box<Offer>),
    /// A wait for another run's end.
    Watch(u32, Name, Target),
    /// Several child runs, waited for together.
    Children(u32, Vec<Start>),
    /// A publication, whose runs are waited for.
    Publish(u32, Box<Publish>),
    /// The window of what a call published is over.
    Close(u32),
    /// What an earlier call set off is rolled back, also what has completed; with what flows down
    /// to it.
    RollBack(u32, Scope, Context),
    /// The end of what a call set off is asked for.
    Cancel(Scope),
}

/// What one call set off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// One child run.
    Child(RunId),
    /// All runs that were set off together by this call.
    Call {
        /// In which execution.
        execution: u32,
        /// The call.
        call: u32,
    },
}

/// How a run changes its own state.
#[derive(Clone, PartialEq, Debug)]
pub enum StateChange {
    /// To this.
    Set(Payload),
    /// Merged with this (RFC 7396).
    Merge(Payload),
}

/// What a round leaves behind.
#[derive(Clone, PartialEq, Debug)]
pub enum Then {
    /// The lease is kept: something is in flight.
    Continue,
    /// The lease is given up: the run waits.
    Suspend,
    /// The run has ended.
    End(RunState, Outcome),
    /// The run begins anew: its first entries, encoded, one of them; and the version, if another.
    ContinueAsNew(Vec<u8>, Option<u32>),
    /// An operator must look.
    Park(Box<Failure>),
}

impl Round {
    /// Under which it is committed.
    #[must_use]
    pub fn fence(&self) -> Fence {
        Fence {
            created_at: self.created_at,
            epoch: self.epoch,
        }
    }

    /// A round of nothing, to be filled in.
    #[must_use]
    pub fn new(run: RunId, worker: WorkerId, epoch: u64) -> Round {
        Round {
            run,
            worker,
            epoch,
            created_at: None,
            parent: None,
            gates: Vec::new(),
            entries: Vec::new(),
            count: 0,
            consumed: Vec::new(),
            closed: Vec::new(),
            opened: Vec::new(),
            caused: Vec::new(),
            cancel_seen: false,
            undo: None,
            state: Vec::new(),
            state_seen: None,
            timer_at: None,
            lease: Duration::from_secs(30),
            then: Then::Continue,
        }
    }

    /// Does it bring the run forward? A run that was asked to end may not.
    #[must_use]
    pub fn is_forward(&self) -> bool {
        match self.then {
            Then::End(RunState::Cancelled | RunState::RollbackFailed, _) => false,
            Then::End(..) | Then::ContinueAsNew(..) => true,
            Then::Continue | Then::Suspend | Then::Park(_) => {
                !self.opened.is_empty()
                    || !self.state.is_empty()
                    || self.caused.iter().any(|caused| {
                        !matches!(
                            caused,
                            Caused::Cancel(_) | Caused::RollBack(..) | Caused::Close(_)
                        )
                    })
            }
        }
    }

    /// What a step of it sent.
    pub(crate) fn sent(&self) -> impl Iterator<Item = &Start> {
        self.caused.iter().filter_map(|caused| match caused {
            Caused::Send(start) => Some(&**start),
            _ => None,
        })
    }

    /// What a step of it recorded.
    pub(crate) fn recorded(&self) -> impl Iterator<Item = &Record> {
        self.caused.iter().filter_map(|caused| match caused {
            Caused::Record(record) => Some(&**record),
            _ => None,
        })
    }

    /// The claimant on whose behalf the round wakes other runs.
    #[must_use]
    pub fn claimant(&self) -> Claimant {
        Claimant {
            worker: self.worker,
            lease: self.lease,
        }
    }
}
