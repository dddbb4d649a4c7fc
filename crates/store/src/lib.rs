//! Where Roundel keeps its rows. A store does three things inside one database transaction: load
//! the rows that operations touch, hand them to `roundel_core::decide`, write what changed.
//!
//! Requests are taken in order and fused: many are decided over the same rows and written in one
//! transaction. One that is refused is refused alone.
//!
//! Absent on purpose: decisions. If a rule seems to belong here, it belongs into the core.

#[cfg(test)]
extern crate self as roundel_store;

mod answers;
mod backup;
mod cells;
mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
mod memory;
mod moving;
mod peeklock;
#[cfg(feature = "postgres")]
mod postgres;
mod query;
mod queue;
mod sqlite;
mod turns;
mod tx;
mod verify;

use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use roundel_core::{Fence, Hint, Op, Refusal, Reply, Round, RunId, Timestamp, WorkerId};

pub use backup::{Copied, Stage, back_up, fence, restore};
pub use clock::{Clock, ManualClock, SystemClock};
#[cfg(feature = "sim")]
#[doc(hidden)]
pub use memory::Model;
pub use memory::{Fate, Faults, Memory, Point, Snapshot};
pub use moving::{Moved, Moving, Phase, Place, move_database};
pub use peeklock::{Folder, Objects, PeekLock, PeekLockOptions};
#[cfg(feature = "postgres")]
pub use postgres::{Postgres, PostgresOptions};
pub(crate) use query::topic_of;
pub use query::{
    Answer, AuditFilter, AuditOrder, AuditView, DocumentFilter, DocumentView, DueFilter, Dump,
    FactFilter, FactView, JournalPage, LOOK, MailView, Page, Permits, Position, Projected,
    ProjectionView, PublicationView, Query, QueueView, RunFilter, RunView, SignalFilter,
    SignalView, StateView, Statement, Stats, Stretch, SubscriptionView, Table, TopicView,
};
pub use sqlite::{Health, Metrics, Options, Schema, Sqlite, Synchronous};
#[doc(hidden)]
pub use tx::Driven;
#[cfg(feature = "postgres")]
pub use tx::postgres::Lent;
pub use tx::{Column, FromValue, Params, Row, Tx, TxError, Value};
pub use verify::{Checked, Depth, verify};

/// A future that owns or borrows what it needs and can be sent to another thread.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The narrow port to a database.
pub trait Store: Send + Sync + 'static {
    /// Takes requests, in order. Each is answered through its sink, after the commit.
    fn submit(&self, requests: Vec<Request>);

    /// Reads; never waits for writers.
    fn read(&self, query: Query) -> Boxed<'_, Result<Answer, Error>>;

    /// The store's clock, which never goes back.
    fn clock(&self) -> &Arc<dyn Clock>;

    /// The store's time.
    fn now(&self) -> Timestamp {
        self.clock().now()
    }

    /// From now on, tells the listener what commits brought. Losing a hint costs time only.
    fn listen(&self, listener: Arc<dyn Listener>);

    /// Says how closely to look for commits of other processes: closely while somebody waits.
    fn watch_closely(&self, closely: bool);

    /// Finishes what was submitted, then lets go of the database. Twice is fine.
    fn close(&self);
}

/// Hears of commits, on the store's own thread: must return at once.
pub trait Listener: Send + Sync {
    /// What commits of this process brought.
    fn hints(&self, hints: Vec<Hint>);

    /// Another process committed something.
    fn others_committed(&self);

    /// Another process committed something, of which this is known.
    fn others_brought(&self, news: &News) {
        let _ = news;
        self.others_committed();
    }
}

/// What another process committed, as far as it concerns others.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct News {
    /// From then on, a run may be claimed.
    pub ready: Option<Timestamp>,
    /// There is a message for a run that somebody else has, or it is asked to end.
    pub mail: bool,
    /// There are facts that projections take up afterwards.
    pub facts: bool,
    /// Runs that have come to rest.
    pub at_rest: Vec<RunId>,
}

/// One thing asked of a store.
pub struct Request {
    /// What. It changes hands a few times, so it stays where it is.
    pub ask: Box<Ask>,
    /// Comes back with the answer.
    pub tag: u64,
    /// Where the answer goes.
    pub sink: Arc<dyn Sink>,
}

// Nearly all are operations.
#[allow(clippy::large_enum_variant)]
/// What is asked: an operation, or user code to be run inside the transaction first.
pub enum Ask {
    /// An operation.
    Op(Op),
    /// A step, whose round is known once it has run.
    Work(Box<dyn Work>),
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Request");
        shown
            .field("tag", &self.tag)
            .field("ask", &self.ask)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Ask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Ask::Op(op) => op.fmt(f),
            Ask::Work(work) => write!(f, "step of {}", work.lease().0),
        }
    }
}

/// User code for the round's transaction. It may be called again, if the transaction was lost for
/// a reason that was not its own.
pub trait Work: Send {
    /// Whose step: run, worker, fence. Checked before the code runs.
    fn lease(&self) -> (RunId, WorkerId, Fence);

    /// Runs the code. Must not wait for anything but the transaction.
    fn run(&mut self, tx: Tx) -> Worked;

    /// Its transaction was refused: the code broke the rules (it ended the transaction). The round
    /// that says so.
    fn refused(&mut self, error: TxError) -> Round;

    /// Back to what it was.
    fn into_any(self: Box<Self>) -> Box<dyn Any + Send>;
}

/// What a step came to.
#[derive(Debug)]
pub struct Worked {
    /// The round that records it.
    pub round: Round,
    /// Does what it wrote stay? Otherwise it is rolled back and the round is committed without.
    pub keep: bool,
}

/// Takes answers, on the store's own thread: must return at once.
pub trait Sink: Send + Sync {
    /// The answers of one batch that go to this sink, in order.
    fn deliver(&self, answers: Vec<Answered>);
}

/// An answer.
#[derive(Debug)]
pub struct Answered {
    /// Of which request.
    pub tag: u64,
    /// What came of it.
    pub result: Result<Reply, Error>,
    /// What was asked, back again.
    pub ask: Box<Ask>,
}

/// Why there is no reply. Each variant is one thing for the caller to do.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// Read it: the operation was understood, and refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Try again later: nothing happened.
    #[error("the database cannot be used now, and nothing was changed: {0}; trying again helps")]
    Unavailable(String),
    /// Ask before repeating: it may have happened.
    #[error("the outcome is unknown: {0}; repeat with the same key to learn it")]
    Unknown(String),
    /// Stop: this database cannot be used as it is.
    #[error("{0}")]
    Unusable(String),
    /// Correct the statement: an operator's own, of which nothing was run, or not to its end.
    #[error("{0}")]
    Statement(String),
    /// Stop: it was closed.
    #[error("the store is closed")]
    Closed,
}

impl Error {
    /// Not the run's fault, and passing.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        matches!(self, Error::Unavailable(_) | Error::Unknown(_))
    }
}

/// Answers one request at a time: for tests and for callers without an engine.
pub fn ask(store: &dyn Store, op: Op) -> Result<Reply, Error> {
    struct Once(std::sync::mpsc::SyncSender<Answered>);
    impl Sink for Once {
        fn deliver(&self, answers: Vec<Answered>) {
            for answer in answers {
                let _ = self.0.send(answer);
            }
        }
    }
    let (sender, receiver) = std::sync::mpsc::sync_channel(1);
    store.submit(vec![Request {
        ask: Box::new(Ask::Op(op)),
        tag: 0,
        sink: Arc::new(Once(sender)),
    }]);
    receiver.recv().map_err(|_| Error::Closed)?.result
}
