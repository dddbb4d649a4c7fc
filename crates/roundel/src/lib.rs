//! Durable execution for Rust, over your own database.
//!
//! A workflow is a plain `async fn` that survives crashes: what it has done is recorded in a
//! journal, in one SQLite file next to your own tables, and it goes on from there.

mod batch;
mod check;
mod client;
mod command;
mod cx;
mod decider;
mod ends;
mod engine;
mod error;
mod fact;
mod flag;
mod follow;
mod ids;
mod live;
mod many;
mod metrics;
mod names;
mod place;
mod post;
mod projections;
mod remote;
mod rests;
mod saga;
mod schedule;
mod seal;
#[cfg(feature = "sim")]
#[doc(hidden)]
pub mod sim;
#[cfg(feature = "testkit")]
pub mod testkit;
mod trace;
mod worker;

pub use batch::{Batch, BatchState, BatchView, Batches, Member, SendBatch};
pub use check::{Judged, Tally, Unfit, Verdict, Verdicts};
pub use client::{
    Arrival, Audit, Client, Decision, Document, EndedTrees, Facts, Following, Growth, Handle, Look,
    Parked, Preview, ProjectionStatus, Prune, Queue, QueueLimits, Queued, RecordFacts, Remedied,
    Remedy, Runs, Schedule, ScheduleSet, ScheduleView, SendTo, StartRun, TakenIn, Ticked, To,
    Trouble, TroubleGroup, TroubleId, WouldUndo,
};
pub use command::{Command, SendInStep};
pub use cx::{
    Attempt, Begun, By, Child, Children, ContinueAsNew, Cx, Effect, Ended, Publish, Recorded,
    Resource, SendSignal, Sleep, Spawn, Step, Undoing, Wait, WaitForRun, WaitUntil, child_failures,
};
pub use engine::{Engine, EngineBuilder};
pub use error::Error;
pub use fact::{Fact, RecordInStep};
pub use metrics::{Metrics, Waits};
pub use names::{Key, Signal, Topic, Undo, Workflow};
pub use projections::{Projection, UnknownFact};
pub use remote::{Answered, Handed, Held, RemoteWorker, Wanted};
pub use roundel_core::check::{Invariant, Violation};
pub use roundel_core::{
    AuditId, AuditReader, AuditRow, Backoff, BadName, BatchEnd, Build, Calendar, Cancelled,
    CatchUp, Class, Context, Deadline, Deadlines, Divergence, DocumentId, DocumentRow, Emitted,
    Entry, Envelope, FactId, FactRow, Failure, Infrastructure, Joined, Keep, Name, Op, Overlap,
    Patched, Payload, ProjectionRow, PublicationId, Published, QueueKind, QueueRow, Rate, Received,
    RecordedFact, Refusal, Remainder, Remaining, Remembered, Reply, Retention, Retry, RunId,
    RunState, ScheduleState, Sent, Stuck, Timestamp, Timetable, Undone, What, WorkerId, instant,
    limits, read_instant,
};
pub use roundel_store::{
    AuditView, Checked, Clock, DocumentView, FactView, Folder, FromValue, LOOK, ManualClock,
    Objects, Page, Params, PeekLock, PeekLockOptions, Position, Row, RunFilter, RunView,
    SignalView, Stats, Stretch, SystemClock, Table, Tx, TxError, Value,
};
pub use saga::{Next, Saga, SagaState, Visit};
pub use schedule::{SCHEDULED_AT, Timed};
pub use seal::{BadKeys, Keys, masked};
pub use trace::{Ends, TRACEPARENT, Trace};

/// The guide's examples, run as tests. Those that make files are run by `cargo xtask newcomer`.
#[cfg(doctest)]
mod guide {
    #[doc = include_str!("../../../docs/guide/commands.md")]
    struct Commands;
    #[doc = include_str!("../../../docs/guide/cooperation.md")]
    struct Cooperation;
    #[doc = include_str!("../../../docs/guide/cooperation-in-production.md")]
    struct CooperationInProduction;
    #[doc = include_str!("../../../docs/guide/encryption.md")]
    struct Encryption;
    #[cfg(feature = "testkit")]
    #[doc = include_str!("../../../docs/guide/exploring.md")]
    struct Exploring;
    #[doc = include_str!("../../../docs/guide/facts.md")]
    struct Facts;
    #[doc = include_str!("../../../docs/guide/guarantees.md")]
    struct Guarantees;
    #[doc = include_str!("../../../docs/guide/objects.md")]
    struct Objects;
    #[cfg(feature = "postgres")]
    #[doc = include_str!("../../../docs/guide/postgres.md")]
    struct Postgres;
    #[doc = include_str!("../../../docs/guide/schedules.md")]
    struct Schedules;
    #[doc = include_str!("../../../docs/guide/steps-and-effects.md")]
    struct StepsAndEffects;
    #[cfg(feature = "testkit")]
    #[doc = include_str!("../../../docs/guide/testing.md")]
    struct Testing;
    #[doc = include_str!("../../../docs/guide/waiting.md")]
    struct Waiting;
}

/// What workflows, steps and effects return.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

/// Combining durable calls: these poll in a fixed order, so that a workflow does the same in
/// replay. `tokio::select!` and `tokio::join!` do not.
pub mod future {
    pub use futures_util::future::{
        Either, join, join_all, join3, join4, select, select_all, try_join, try_join_all,
    };
}
