//! Every limit, by name. What exceeds one is refused with an error that names it.

use std::time::Duration;

/// Bytes in a name or key.
pub const NAME_BYTES: usize = 256;
/// Bytes in one payload.
pub const PAYLOAD_BYTES: usize = 4 << 20;
/// Bytes in the reason that an operator gives.
pub const REASON_BYTES: usize = 1024;
/// Levels of a patch to a run's state.
pub const PATCH_DEPTH: usize = 32;
/// Bytes in the entries of one round.
pub const ROUND_BYTES: usize = 16 << 20;
/// Entries in the journal of one execution. A run that nears it continues as new.
pub const JOURNAL_ENTRIES: u64 = 100_000;
/// Entries beyond the limit that are kept for ending the run.
pub const JOURNAL_RESERVE: u64 = 1_000;
/// Unread messages of one run.
pub const MAILBOX: u32 = 10_000;
/// Runs, signals and the like that one round sets off.
pub const FAN_OUT: usize = 10_000;
/// Commands in one batch.
pub const BATCH: usize = 10_000;
/// Bytes in the payloads of one batch.
pub const BATCH_BYTES: usize = 16 << 20;
/// Facts recorded, or documents read, in one operation.
pub const FACTS: usize = 1_000;
/// Facts that a projection passes in one operation.
pub const FOLLOWED: usize = 5_000;
/// The same, of the operation that ends a rebuild while nobody records.
pub const FOLLOWED_ALONE: usize = 50_000;
/// Documents looked at in one operation for such as are left of old buildings.
pub const SWEPT: usize = 2_000;
/// Kinds of facts that one projection folds.
pub const PROJECTION_KINDS: usize = 1_000;
/// Documents that one fact is folded into.
pub const FACT_DOCUMENTS: usize = 64;
/// Workflows that subscribe to one topic.
pub const SUBSCRIBERS: usize = 10_000;
/// Levels of runs below a root.
pub const DEPTH: u16 = 64;
/// Keys in a context.
pub const CONTEXT_KEYS: usize = 64;
/// Bytes in the keys and values of a context.
pub const CONTEXT_BYTES: usize = 64 << 10;
/// Labels of one run.
pub const LABELS: usize = 32;
/// Bytes in a label's value.
pub const LABEL_BYTES: usize = 256;
/// Bytes in a failure's message.
pub const MESSAGE_BYTES: usize = 4096;
/// Causes of a failure, and theirs: fewer than what JSON is read with may be nested.
pub const CAUSES: usize = 48;
/// Runs that one claim takes.
pub const CLAIM: usize = 1_000;
/// Runs left to those who have them in memory that one claim looks past.
pub const LOOK_PAST: usize = 32;
/// Messages handed over with one reply.
pub const INBOX: usize = 1_000;
/// Runs deleted by one operation.
pub const DELETE: usize = 1_000;
/// Crashes of its worker, while alone in the suspects' slot, after which a run is parked.
pub const CRASHES: u32 = 3;
/// The longest lease. One that ends later was made by a clock that has since gone back.
pub const LEASE: Duration = Duration::from_secs(3600);
/// A lease, unless another is asked for. No statement that writes takes as long.
pub const USUAL_LEASE: Duration = Duration::from_secs(30);
/// A worker that registers again is noted as seen so often at most.
pub const SIGN: Duration = Duration::from_secs(60);
/// How long a worker that says nothing is listed. One that is at rest says so every hour.
pub const UNSEEN: Duration = Duration::from_secs(24 * 3600);
/// Workers forgotten by one registration.
pub const FORGOTTEN: usize = 64;
/// Flow keys that one claim looks at in one lane.
pub const TURNS: usize = 1_000;
/// The longest time that a queue's rate is about.
pub const RATE_TIME: Duration = Duration::from_secs(24 * 3600);
/// How long another process leaves a woken run to the one that has it in memory.
pub const HEAD_START: Duration = Duration::from_millis(50);
/// Calls that a failed rollback names of those that it left.
pub const REMAINDER: usize = 100;
/// Visits of a saga's steps, unless it says another number.
pub const SAGA_VISITS: u32 = 1_000;
/// Bytes in the name of a schedule: the keys of what it starts hold it.
pub const SCHEDULE_BYTES: usize = 128;
/// The shortest interval of a schedule.
pub const EVERY: Duration = Duration::from_secs(1);
/// Times that a schedule makes up for, or starts for one range of the past.
pub const MADE_UP: usize = 1_000;
/// Times of a schedule that wait for what it started before.
pub const TICKS_WAITING: usize = 10_000;
/// Requests to a schedule that it has not seen yet.
pub const ASKED: usize = 100;
/// Bytes in an operator's own statement.
pub const SQL_BYTES: usize = 64 << 10;
/// Rows in the answer to it.
pub const SQL_ROWS: usize = 10_000;
/// Bytes in the values of the answer, after which no row is begun.
pub const SQL_ANSWER: usize = 8 << 20;
/// How long it may take.
pub const SQL_TIME: Duration = Duration::from_secs(2);
/// How many of them run at a time, in one process.
pub const SQL_AT_ONCE: usize = 2;
/// What a schedule remembers of what it did.
pub const REMEMBERED: usize = 20;
