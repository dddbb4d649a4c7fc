//! The pure rules of Roundel: what an operation changes, given the rows it touches and the time.
//!
//! Nothing here does I/O, reads a clock, draws a random number or waits. A store loads rows, hands
//! them to [`decide`], and writes what changed; the simulator does the same in memory. So every
//! rule exists once, and is tested without a database.
//!
//! Absent on purpose: SQL, threads, logging, user code.

mod audit;
mod batch;
mod changes;
pub mod check;
mod context;
mod deadline;
mod decide;
mod decider;
mod dedupe;
mod fact;
mod failure;
mod id;
mod incoming;
mod journal;
pub mod limits;
mod message;
#[doc(hidden)]
pub mod mutant;
mod name;
mod needs;
mod op;
mod payload;
mod projection;
mod queue;
mod refusal;
mod reply;
mod retention;
mod retry;
mod rows;
mod run;
mod schedule;
mod scope;
#[cfg(feature = "testkit")]
pub mod testkit;
mod time;

pub use audit::{AuditId, AuditReader, AuditRow, Seal};
pub use batch::{BATCH, Batch, BatchEnd};
pub use changes::{Changes, RunChange, Write};
pub use context::Context;
pub use deadline::{Deadline, Deadlines};
pub use decide::{decide, may_step, undone};
pub use decider::{Infrastructure, QueueKind, Verdict};
pub use dedupe::Dedupe;
pub use fact::{
    Cause, DocumentId, DocumentRow, FactId, FactReader, FactRow, Fold, LockId, Projection, Seen,
    StreamId, StreamRow,
};
pub use failure::{Attempted, Class, Divergence, Failure, Origin, Remainder, Remaining};
pub use id::{PublicationId, RunId, WorkerId};
pub use incoming::{Envelope, INCOMING};
pub use journal::{Call, Entry, JournalRow, Outcome, UndoBy, Why, decode_entries, encode_entries};
pub use message::{
    Delivery, GateId, GateRow, KeyId, KeyKind, KeyRow, MailId, MailRow, OfferId, OfferRow, Policy,
    STATE_CHANGED, Sent, Source, Taken, WaitId, WaitRow, WatchId, digest,
};
pub use name::{BadName, Name};
pub use needs::{Due, Keyed, Need, Stage, needs};
pub use op::{
    Accept, Anew, Audited, Cancel, Caused, Claim, Claimant, Complete, Consumed, Declare, Delete,
    Destination, Follow, Forget, IfParked, Item, Join, NewFact, Offer, Op, OpenWait, Park, Patch,
    Publish, Rebuild, Receive, Record, Redirect, Register, Release, Renew, Resume, Round, Scope,
    Signal, SkipFact, Start, StateChange, Subscribe, Take, Target, Then, Undo,
};
pub use payload::{Payload, SEALED};
pub use projection::{
    ANY_KIND, Build, Folded, Folds, Passing, Position, ProjectionId, ProjectionRow, Stuck, Tail,
};
pub use queue::{Flow, Limit, QueueId, QueueRow, Rate};
pub use refusal::Refusal;
pub use reply::{
    Cancelled, Claimed, Committed, Followed, Hint, Joined, Lease, Owner, Patched, Published,
    Received, RecordedFact, Renewed, Reply, Started, Undone,
};
pub use retention::{Keep, RETENTION, Retention};
pub use retry::{Backoff, Retry};
pub use rows::{Accepted, Rows, Table};
pub use run::{
    CancelMark, Fence, Lane, LaneId, Parent, RunRow, RunState, StateRow, Told, UndoMark, WorkerRow,
};
pub use schedule::{
    Asked, Begun, Calendar, CatchUp, Done, Overlap, Pass, Reason, Remembered, SCHEDULE,
    ScheduleState, Tick, Times, Timetable, What, instant, pass, read_instant,
};
pub use scope::{
    Emitted, LatchId, LatchRow, PublicationRow, ScopeEnd, SubscriptionId, SubscriptionRow,
    subscriber_run,
};
pub use time::Timestamp;
