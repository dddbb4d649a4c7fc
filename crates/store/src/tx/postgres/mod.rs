//! Steps on PostgreSQL: the same handle, over a connection that really has to be waited for.
//!
//! The step's code runs on a thread of its own and is polled there to its end ([`Tx::drive`]).
//! While a call of the transaction is under way the thread sleeps; code that waits while none is
//! waits for something else, and is refused. Around each statement stands a savepoint, because a
//! statement that fails would otherwise take the whole transaction with it.
//!
//! [`begin`], [`run`] and [`settle`] are the store's side, in this order.

mod guard;
#[cfg(test)]
mod tests;
mod values;

pub(crate) use values::of_row as values_of;

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use sqlx::postgres::{PgConnection, PgRow, PgStatement};
use sqlx::{Executor, Row as _, Statement as _};
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::{Row, Tx, TxError, Value, noted};
use crate::{Boxed, Work, Worked, tx};

/// The longest that a step may take, with all its statements.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// Opens the transaction of a step. The setting is gone once the transaction has ended, however.
/// A lease has two thirds of its time left, at least, when its process dies: by its end no
/// statement is left that could hold locks which the next attempt needs. Who waits for a lock for
/// long is tried again at no charge; who takes long is not. What a machine leaves behind that is
/// gone is ended by the server, as the step would have been.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; \
     SET LOCAL roundel.step = 'open'; SET LOCAL statement_timeout = '20s'; \
     SET LOCAL lock_timeout = '10s'; SET LOCAL idle_in_transaction_session_timeout = '60s'; \
     SAVEPOINT roundel_step";
/// For a connection that others had before, who gave their statements the names that the driver
/// will give to those of the step.
const FORGET: &str = "DEALLOCATE ALL";
const NEXT: &str = "RELEASE SAVEPOINT roundel_step; SAVEPOINT roundel_step";
const BACK: &str = "ROLLBACK TO SAVEPOINT roundel_step";
const CHECK: &str = "SET CONSTRAINTS ALL IMMEDIATE; SET LOCAL statement_timeout TO DEFAULT; \
     SELECT current_setting('roundel.step', true) = 'open'";

/// The connection of a step, shared by the handles to it.
pub(super) struct Line {
    /// None once the step has ended.
    connection: Arc<Mutex<Option<PgConnection>>>,
    /// Calls that are under way.
    calls: AtomicUsize,
    /// Does the code have the connection in its own hands?
    lent: AtomicBool,
    /// Has nothing happened since the savepoint?
    fresh: AtomicBool,
    end: Instant,
}

/// The connection itself, as sqlx knows it, until this is dropped. What is done through it is part
/// of the step; a statement that fails fails the step, unless it stands in a savepoint of its own.
pub struct Lent {
    connection: OwnedMutexGuard<Option<PgConnection>>,
    line: Arc<Line>,
}

/// What came of a step's code, and the connection, if it can be used further.
pub(crate) struct Ran {
    pub(crate) connection: Option<PgConnection>,
    pub(crate) worked: Result<Worked, Broken>,
}

/// Why a step has nothing to commit.
#[derive(Debug)]
pub(crate) enum Broken {
    /// Its own fault: the round that says so is asked of the work.
    Refused(TxError),
    /// The database's: the step is to be run again.
    Failed(String),
}

/// Opens a step's transaction, in one flight. Is the server's connection its `own`, and not one of
/// a pooler's?
pub(crate) async fn begin(connection: &mut PgConnection, own: bool) -> Result<(), sqlx::Error> {
    let begun = if own {
        connection.execute(sqlx::raw_sql(BEGIN)).await
    } else {
        let both = [BEGIN, FORGET].join("; ");
        connection.execute(sqlx::raw_sql(&both)).await
    };
    begun.map(|_| ())
}

/// Runs a step's code on this thread, which may sleep: not one of a runtime's own. The runtime that
/// the connection was made on has to run on other threads.
pub(crate) fn run(connection: PgConnection, work: &mut dyn Work) -> Ran {
    let line = Arc::new(Line {
        connection: Arc::new(Mutex::new(Some(connection))),
        calls: AtomicUsize::new(0),
        lent: AtomicBool::new(false),
        fresh: AtomicBool::new(true),
        end: Instant::now() + LIMIT,
    });
    let entered = tx::enter_line(Arc::clone(&line));
    let worked = catch_unwind(AssertUnwindSafe(|| work.run(entered.tx())));
    drop(entered);
    let late = line.is_late();
    let connection = line.connection.try_lock().ok();
    let connection = connection.and_then(|mut connection| connection.take());
    let worked = match (worked, tx::failed()) {
        (Err(_), _) => Err(Broken::Refused(TxError::Database("it panicked".into()))),
        (Ok(_), Some(message)) => Err(Broken::Failed(message)),
        (Ok(worked), None) if connection.is_some() || !worked.keep => Ok(worked),
        (Ok(_), None) => Err(Broken::Refused(TxError::Refused(
            "keep the connection beyond its end".into(),
        ))),
    };
    // A call that nobody waited for to its end is still under way.
    let connection = connection.filter(|_| !late && line.calls.load(Ordering::Relaxed) == 0);
    Ran { connection, worked }
}

/// Is what a step did still there, and can it be committed? Asked before the round is written.
pub(crate) async fn settle(connection: &mut PgConnection) -> Result<(), Broken> {
    let checked = connection.fetch_all(sqlx::raw_sql(CHECK)).await;
    match checked {
        Ok(rows) if rows.first().is_some_and(is_true) => Ok(()),
        Ok(_) => Err(Broken::Refused(TxError::Refused(
            "it ended the transaction".into(),
        ))),
        Err(error) => Err(match trouble(&error) {
            TxError::Busy(message) => Broken::Failed(message),
            other => Broken::Refused(TxError::Database(other.to_string())),
        }),
    }
}

fn is_true(row: &PgRow) -> bool {
    row.try_get(0).unwrap_or(false)
}

impl Line {
    /// Is a call of the transaction under way?
    pub(super) fn is_awaited(&self) -> bool {
        self.calls.load(Ordering::Relaxed) > 0 || self.lent.load(Ordering::Relaxed)
    }

    /// Time left.
    pub(super) fn left(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    fn is_late(&self) -> bool {
        self.left().is_zero()
    }

    /// How many rows the statement changed or gave.
    pub(super) fn execute<'a>(
        self: &'a Arc<Line>,
        sql: &'a str,
        values: Vec<Value>,
    ) -> Boxed<'a, Result<u64, TxError>> {
        Box::pin(async move {
            let mut ready = self.ready(sql).await?;
            let connection = ready.connection()?;
            let asked = async {
                let statement = connection.prepare(sql).await?;
                let arguments = values::arguments(parameters(&statement), &values)?;
                let query = sqlx::query_with(sql, arguments);
                Ok(connection.execute(query).await?.rows_affected())
            };
            let done: Result<u64, Asked> = asked.await;
            ready.end(sql, done).await
        })
    }

    /// The rows that the query gave.
    pub(super) fn query<'a>(
        self: &'a Arc<Line>,
        sql: &'a str,
        values: Vec<Value>,
    ) -> Boxed<'a, Result<Vec<Row>, TxError>> {
        Box::pin(async move {
            let mut ready = self.ready(sql).await?;
            let connection = ready.connection()?;
            let asked = async {
                let statement = connection.prepare(sql).await?;
                let arguments = values::arguments(parameters(&statement), &values)?;
                let query = sqlx::query_with(sql, arguments);
                Ok(connection.fetch_all(query).await?)
            };
            let done: Result<Vec<PgRow>, Asked> = asked.await;
            let rows = ready.end(sql, done).await?;
            values::rows(&rows)
        })
    }

    /// Waits for the calls before this one, and puts a savepoint before it.
    async fn ready(self: &Arc<Line>, sql: &str) -> Result<Ready<'_>, TxError> {
        if let Some(rule) = guard::broken(sql) {
            return Err(TxError::Refused(rule));
        }
        self.refuse_if_lent()?;
        let call = Underway::new(self);
        let connection = self.connection.lock().await;
        let mut ready = Ready {
            connection,
            call,
            line: self,
        };
        if !self.fresh.swap(false, Ordering::Relaxed) {
            let connection = ready.connection()?;
            let saved = connection.execute(sqlx::raw_sql(NEXT)).await;
            saved.map_err(|error| trouble(&error))?;
        }
        Ok(ready)
    }

    /// The connection is needed by whoever has it: waiting for it would be for ever.
    fn refuse_if_lent(&self) -> Result<(), TxError> {
        if self.lent.load(Ordering::Relaxed) {
            return Err(TxError::Refused(
                "use the transaction while `tx.postgres()` is held; drop that first".into(),
            ));
        }
        Ok(())
    }

    pub(super) async fn lend(self: &Arc<Line>) -> Result<Lent, TxError> {
        self.refuse_if_lent()?;
        let call = Underway::new(self);
        let connection = Arc::clone(&self.connection).lock_owned().await;
        drop(call);
        if connection.is_none() {
            return Err(TxError::Outside);
        }
        self.lent.store(true, Ordering::Relaxed);
        self.fresh.store(false, Ordering::Relaxed);
        Ok(Lent {
            connection,
            line: Arc::clone(self),
        })
    }
}

fn parameters<'a>(statement: &'a PgStatement<'_>) -> &'a [sqlx::postgres::PgTypeInfo] {
    match statement.parameters() {
        Some(sqlx::Either::Left(types)) => types,
        _ => &[],
    }
}

/// Counts as a call that is under way.
struct Underway<'a>(&'a AtomicUsize);

impl<'a> Underway<'a> {
    fn new(line: &'a Line) -> Underway<'a> {
        line.calls.fetch_add(1, Ordering::Relaxed);
        Underway(&line.calls)
    }
}

impl Drop for Underway<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A statement's turn.
struct Ready<'a> {
    connection: tokio::sync::MutexGuard<'a, Option<PgConnection>>,
    #[allow(dead_code)]
    call: Underway<'a>,
    line: &'a Line,
}

/// Why a statement has no result: the database says so, or its values.
enum Asked {
    Database(sqlx::Error),
    Values(TxError),
}

impl From<sqlx::Error> for Asked {
    fn from(error: sqlx::Error) -> Asked {
        Asked::Database(error)
    }
}

impl From<TxError> for Asked {
    fn from(error: TxError) -> Asked {
        Asked::Values(error)
    }
}

impl Ready<'_> {
    fn connection(&mut self) -> Result<&mut PgConnection, TxError> {
        self.connection.as_mut().ok_or(TxError::Outside)
    }

    /// Goes back to before a statement that failed, so that the step may go on.
    async fn end<T>(&mut self, sql: &str, done: Result<T, Asked>) -> Result<T, TxError> {
        let error = match done {
            Ok(value) => return Ok(value),
            Err(Asked::Values(error)) => return Err(error),
            Err(Asked::Database(error)) => error,
        };
        let said = advised(trouble(&error), sql, &error);
        // Without a word of its own from the database there is no connection either.
        if error.as_database_error().is_none() || matches!(said, TxError::Busy(_)) {
            return Err(said);
        }
        let connection = self.connection()?;
        let back = connection.execute(sqlx::raw_sql(BACK)).await;
        back.map_err(|error| trouble(&error))?;
        self.line.fresh.store(true, Ordering::Relaxed);
        Err(said)
    }
}

/// What is written otherwise elsewhere.
fn advised(said: TxError, sql: &str, error: &sqlx::Error) -> TxError {
    /// A syntax error, and no such operator.
    const UNKNOWN: [&str; 2] = ["42601", "42883"];
    let state = error.as_database_error().and_then(|error| error.code());
    let unknown = state.is_some_and(|state| UNKNOWN.contains(&&*state));
    match said {
        TxError::Database(message) if unknown && sql.contains('?') => {
            TxError::Database(format!("{message}; write parameters as `$1`, `$2`"))
        }
        said => said,
    }
}

/// Sorts the database's errors by what is to be done, by their codes.
fn trouble(error: &sqlx::Error) -> TxError {
    let message = error.to_string();
    let Some(said) = error.as_database_error() else {
        return match error {
            sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::Protocol(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed => TxError::Busy(message),
            _ => TxError::Database(message),
        };
    };
    let state = said.code().unwrap_or_default();
    match (state.get(..2).unwrap_or_default(), &*state) {
        ("23", _) => TxError::Constraint(message),
        // The same statement would take as long again, and for ever.
        (_, "57014") => TxError::Database(format!(
            "{message}; a statement of a step may take 20 s: do less in one"
        )),
        // Lost connections, contention, resources, operators, the system's errors; a lock that
        // was not to be had; a transaction that was idle for too long.
        ("08" | "40" | "53" | "57" | "58" | "XX", _) | (_, "55P03" | "25P03") => {
            TxError::Busy(message)
        }
        (_, "25P02") => TxError::Database(format!(
            "{message}; a statement before this one failed, which was made through `tx.postgres()`"
        )),
        _ => TxError::Database(message),
    }
}

impl From<sqlx::Error> for TxError {
    /// So that contention and lost connections are known for what they are, and not held against
    /// the step.
    fn from(error: sqlx::Error) -> TxError {
        noted(trouble(&error))
    }
}

impl Deref for Lent {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        self.connection.as_ref().expect("seen when it was lent")
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut PgConnection {
        self.connection.as_mut().expect("seen when it was lent")
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.line.lent.store(false, Ordering::Relaxed);
    }
}

impl fmt::Debug for Lent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lent")
    }
}

impl Tx {
    /// The connection itself, for all that sqlx can do, if the database is PostgreSQL. It is part
    /// of the step's transaction; only the database may be awaited while it is held.
    ///
    /// ```
    /// # use roundel_store::{Tx, TxError};
    /// async fn count(tx: Tx) -> Result<i64, TxError> {
    ///     let mut connection = tx.postgres().await?;
    ///     let parcels = sqlx::query_scalar("SELECT count(*) FROM parcel");
    ///     Ok(parcels.fetch_one(&mut *connection).await?)
    /// }
    /// ```
    ///
    /// # Errors
    /// When the database is another, when it is held already, or the handle is used outside its
    /// step.
    pub async fn postgres(&self) -> Result<Lent, TxError> {
        let line = self.line().map_err(noted)?;
        let Some(line) = line else {
            let why = "use a connection to PostgreSQL; this database is SQLite";
            return Err(noted(TxError::Refused(why.into())));
        };
        line.lend().await.map_err(noted)
    }
}
