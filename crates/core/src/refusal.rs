//! Why operations are refused.

use crate::{BadName, Deadline, Failure, Name, RunId, RunState, STATE_CHANGED, WorkerId, limits};

/// Why an operation changed nothing. Each variant is one thing for the caller to do.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum Refusal {
    /// Drop what is in memory: it belongs to somebody else now.
    #[error(
        "run {run} was committed under epoch {epoch}, which has ended (now {current}); \
         another worker has it or it was released; drop it"
    )]
    Fenced {
        /// Which run.
        run: RunId,
        /// The epoch of the round.
        epoch: u64,
        /// The current one.
        current: u64,
    },
    /// End it.
    #[error("run {run} was asked to end and takes no further step")]
    CancelRequested {
        /// Which run.
        run: RunId,
    },
    /// End it.
    #[error("run {run} has missed its deadline {}, which run {} set", deadline.at, deadline.set_by)]
    DeadlineMissed {
        /// Which run.
        run: RunId,
        /// Which deadline.
        deadline: Deadline,
    },
    /// Drop what is in memory.
    #[error("run {run} does not exist; it may have been deleted")]
    UnknownRun {
        /// Which run.
        run: RunId,
    },
    /// Ask for another.
    #[error("there is no run with the key `{key}`")]
    UnknownKey {
        /// Which key.
        key: Name,
    },
    /// Use another key, or the same request.
    #[error(
        "the key `{key}` was used for another request; \
         repeat that request to get its answer, or choose another key"
    )]
    Conflict {
        /// Which key.
        key: Name,
    },
    /// Leave one of them out.
    #[error(
        "under the key `{key}` there is one run for good, and one that stands for others like it \
         only for a time; leave out the key, or dedupe and debounce"
    )]
    KeyOfSeveral {
        /// Which key.
        key: Name,
    },
    /// Ask for less.
    #[error("{what} is limited to {limit}, and this has {found}")]
    Limit {
        /// Of what.
        what: &'static str,
        /// How much is allowed.
        limit: u64,
        /// How much was asked for.
        found: u64,
    },
    /// Ask for more, or for something else.
    #[error("{what} must be at least 1; leave it out for no limit, or pause the queue")]
    Zero {
        /// Of what.
        what: &'static str,
    },
    /// Choose another.
    #[error("the signal `{name}` is the engine's own; choose another name, or patch the state")]
    Reserved {
        /// Which name.
        name: Name,
    },
    /// Add to it, or send nothing.
    #[error("a batch has no commands; add at least one")]
    EmptyBatch,
    /// Split it.
    #[error(
        "a batch has at most {limit} {what}, and this has {found}; split it into several batches, \
         which may have one workflow that waits for all of them"
    )]
    LargeBatch {
        /// Of what.
        what: &'static str,
        /// How much is allowed.
        limit: usize,
        /// How much was asked for.
        found: usize,
    },
    /// Record that one, or choose another id.
    #[error("another fact has the id `{id}`; each fact needs an id of its own")]
    AnotherFact {
        /// Which id.
        id: Name,
    },
    /// Read again, and decide again.
    #[error(
        "the stream `{stream}` has {found} facts, not {expected}; read it again and decide again"
    )]
    StreamMoved {
        /// Which stream.
        stream: Name,
        /// What was expected.
        expected: u64,
        /// How many it has.
        found: u64,
    },
    /// Read again, and decide again.
    #[error("the document `{path}` has changed since it was read; read it and decide again")]
    Stale {
        /// Which document.
        path: Name,
    },
    /// Record that one first, or let it wait.
    #[error(
        "the fact `{fact}` needs the fact `{needs}`, which is not there; record that one first, \
         or hand this one in as one that may wait for it"
    )]
    FactMissing {
        /// Which fact.
        fact: Name,
        /// What it needs.
        needs: Name,
    },
    /// Mend the projection or the fact.
    #[error("the projection `{projection}` of the fact `{fact}` into `{path}` failed: {failure}")]
    NotFolded {
        /// Which fact.
        fact: Name,
        /// Which projection.
        projection: Name,
        /// Into which document.
        path: Name,
        /// Why.
        failure: Box<Failure>,
    },
    /// Answer with a fact instead.
    #[error(
        "the decider `{decider}` writes the document `{path}`; documents change by facts alone: \
         answer with a fact, and fold it by a projection (it may write the queues `{queues}`)"
    )]
    DocumentWritten {
        /// Which decider.
        decider: Name,
        /// Which document.
        path: Name,
        /// What it may write.
        queues: String,
    },
    /// Write a list.
    #[error("the decider `{decider}` writes the queue `{path}` with what is no list of items")]
    NoList {
        /// Which decider.
        decider: Name,
        /// Which queue.
        path: Name,
    },
    /// Give the process this projection, of this version.
    #[error(
        "facts of the kind `{kind}` are folded by the projection `{projection}`, version \
         {version}, in the commit that records them, and this process does not have it; give it \
         that version, or let another process record them"
    )]
    LacksProjection {
        /// Which kind of fact.
        kind: Name,
        /// Which projection.
        projection: Name,
        /// Of which version.
        version: u32,
    },
    /// Take the version that others have, or a higher one.
    #[error(
        "the projection `{projection}` is known with version {known}, and this process has \
         version {found}, or one that folds other facts, or at another time; take the code that \
         others have, or give this one a higher version"
    )]
    OtherProjection {
        /// Which.
        projection: Name,
        /// The version that is known.
        known: u32,
        /// The version that was declared.
        found: u32,
    },
    /// Declare it, or look how it is now.
    #[error("the projection `{projection}` has no such building, or is not known; look again")]
    UnknownProjection {
        /// Which.
        projection: Name,
    },
    /// Look what it cannot fold in.
    #[error("the projection `{projection}` can fold in the fact `{fact}`, or has passed it")]
    NotStuck {
        /// Which.
        projection: Name,
        /// Which fact.
        fact: Name,
    },
    /// Register first.
    #[error("worker {worker} is not registered; register it before it claims")]
    UnknownWorker {
        /// Which worker.
        worker: WorkerId,
    },
    /// Wait until it has ended, or force it.
    #[error("run {run} is {}; wait until it has ended, or force it", state.as_str())]
    NotEnded {
        /// Which run.
        run: RunId,
        /// Where it stands.
        state: RunState,
    },
    /// Nothing to do.
    #[error("run {run} is {}, not parked", state.as_str())]
    NotParked {
        /// Which run.
        run: RunId,
        /// Where it stands.
        state: RunState,
    },
    /// Nothing to do: whoever has it finds out, or nobody need.
    #[error(
        "run {run} is {}; only a run that nobody works on, and that has not ended, is parked by \
         request",
        state.as_str()
    )]
    NotWaiting {
        /// Which run.
        run: RunId,
        /// Where it stands.
        state: RunState,
    },
    /// Look again, and decide again.
    #[error(
        "run {run} has gone on since it was looked at (at epoch {seen}, and it is at {epoch}); \
         look again, and decide again"
    )]
    MovedOn {
        /// Which run.
        run: RunId,
        /// Its epoch then.
        seen: u64,
        /// Its epoch.
        epoch: u64,
    },
    /// Nothing to do.
    #[error("run {run} has no parked signal of number {number}; somebody may have been faster")]
    SignalNotParked {
        /// Which run.
        run: RunId,
        /// Which of its messages.
        number: u64,
    },
    /// Wait until it is at rest, or cancel it.
    #[error(
        "run {run} is {}; only what has completed or is parked can be undone; \
         wait for it, or cancel it",
        state.as_str()
    )]
    NotAtRest {
        /// Which run.
        run: RunId,
        /// Where it stands.
        state: RunState,
    },
    /// Let it end by itself, or cancel it.
    #[error(
        "run {run} is {} and has begun; only a run that nobody has begun, or that is parked and \
         waits for nothing else, can be completed or begun anew by hand; wait for it, or cancel it",
        state.as_str()
    )]
    HasBegun {
        /// Which run.
        run: RunId,
        /// Where it stands.
        state: RunState,
    },
    /// Nothing to do.
    #[error("run {run} is {}; no rollback of it has failed", state.as_str())]
    RollbackDidNotFail {
        /// Which run.
        run: RunId,
        /// Where it stands.
        state: RunState,
    },
    /// Report a bug: what workers do is nobody's request.
    #[error("only what somebody can ask for is audited; this is a bug in the client")]
    NotAudited,
    /// Fix the text.
    #[error(transparent)]
    BadName(#[from] BadName),
    /// Fix the text.
    #[error("{what} has a NUL character at byte {at}, which not every database keeps; take it out")]
    Nul {
        /// Which text.
        what: &'static str,
        /// Where in it.
        at: usize,
    },
    /// Report a bug: a worker sent what cannot be.
    #[error("run {run}: {what}; this is a bug in the worker that sent it")]
    Inconsistent {
        /// Which run.
        run: RunId,
        /// What cannot be.
        what: &'static str,
    },
}

impl Refusal {
    /// Refuses what exceeds a limit.
    pub(crate) fn over(what: &'static str, limit: usize, found: usize) -> Result<(), Refusal> {
        if found <= limit {
            return Ok(());
        }
        Err(Refusal::Limit {
            what,
            limit: limit as u64,
            found: found as u64,
        })
    }

    /// Refuses a text that PostgreSQL does not take: all stores keep the same.
    pub(crate) fn nul(what: &'static str, text: &str) -> Result<(), Refusal> {
        match text.bytes().position(|byte| byte == 0) {
            None => Ok(()),
            Some(at) => Err(Refusal::Nul { what, at }),
        }
    }

    /// Refuses a signal that is the engine's own.
    pub(crate) fn reserved(name: &Name) -> Result<(), Refusal> {
        match *name == STATE_CHANGED {
            true => Err(Refusal::Reserved { name: name.clone() }),
            false => Ok(()),
        }
    }

    /// Is it refused for what facts were asked to be recorded? Then that is what it fails with.
    #[must_use]
    pub fn of_facts(&self) -> Option<Failure> {
        Some(match self {
            Refusal::NotFolded { .. } => Failure::permanent(self).with_code("not_folded"),
            Refusal::LacksProjection { .. } => {
                Failure::permanent(self).with_code("lacks_projection")
            }
            Refusal::StreamMoved { .. } => Failure::business(self).with_code("stream_moved"),
            Refusal::FactMissing { .. } => Failure::business(self).with_code("fact_missing"),
            Refusal::Conflict { .. } | Refusal::AnotherFact { .. } => {
                Failure::business(self).with_code("conflict")
            }
            _ => return None,
        })
    }

    pub(crate) fn payload(size: usize) -> Result<(), Refusal> {
        Refusal::over("a payload's size in bytes", limits::PAYLOAD_BYTES, size)
    }
}
