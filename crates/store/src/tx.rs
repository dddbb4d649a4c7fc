//! The transaction that a step is given: the user's own SQL, in the round's own transaction.
//!
//! A `Tx` is a number, that of the step which runs on this thread; so a handle that escapes its
//! step, or goes to another thread, is refused instead of writing into somebody else's transaction.
//! On SQLite the connection itself lies in a thread-local beside it, and the futures never wait; on
//! PostgreSQL they do, and the handle shares the connection (`postgres`).

#[cfg(feature = "postgres")]
pub(crate) mod postgres;
mod value;

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
#[cfg(feature = "postgres")]
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use rusqlite::{CachedStatement, Connection, ErrorCode};

pub use value::{Column, FromValue, Params, Row, Value};

thread_local! {
    static CURRENT: RefCell<Option<Rc<Connection>>> = const { RefCell::new(None) };
    /// The number of the step that runs on this thread; 0 if none does.
    static STEP: Cell<u64> = const { Cell::new(0) };
    /// That step ran a statement that no step may run.
    static BROKE: Cell<bool> = const { Cell::new(false) };
    /// What the database could not do for that step, through no fault of its own.
    static FAILED: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// The number of the next step: handles of two threads never have the same.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// A step's transaction. Cloning is cheap; it is of no use outside the step.
#[derive(Clone)]
pub struct Tx {
    /// Of the step; 0 belongs to none.
    number: u64,
    #[cfg(feature = "postgres")]
    line: Option<Arc<postgres::Line>>,
}

/// What came of a step's code.
#[derive(Debug)]
pub enum Driven<T> {
    /// It ran to its end.
    Ended(T),
    /// It waits for something other than its transaction.
    Foreign,
    /// It took longer than a step may.
    Late,
}

impl fmt::Debug for Tx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tx({})", self.number)
    }
}

/// Why a statement of a step failed. Each variant is one thing to do.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TxError {
    /// Change the code: a step may not do this.
    #[error("a step may not do this: {0}")]
    Refused(String),
    /// The data says no: a duplicate, a missing parent, a check.
    #[error("the database refused the values: {0}")]
    Constraint(String),
    /// Not the step's fault, and passing: it is tried again.
    #[error("the database cannot do this now: {0}; the step is tried again")]
    Busy(String),
    /// Change the code: the handle was used after its step, or on another thread.
    #[error(
        "the transaction of this step has ended or belongs to another thread; \
         use it inside the step that it was given to, without spawning"
    )]
    Outside,
    /// Change the types: the column holds something else, or there is no such column.
    #[error("column {column} holds {found}, and {wanted} was asked for")]
    Type {
        /// Which column, as asked for.
        column: String,
        /// What is there.
        found: &'static str,
        /// What was wanted.
        wanted: &'static str,
    },
    /// There is no row where one was asked for, or more than one.
    #[error("the query gave {0} rows, and exactly one was asked for")]
    Rows(usize),
    /// Change the statement.
    #[error("{0}")]
    Database(String),
}

impl Tx {
    /// The handle of no step: whatever is asked of it is refused. Steps of the simulator get it.
    #[cfg(feature = "sim")]
    #[doc(hidden)]
    #[must_use]
    pub fn of_no_step() -> Tx {
        Tx::on_this_thread(0)
    }

    /// The handle of this step, whose connection is that of the thread.
    fn on_this_thread(number: u64) -> Tx {
        Tx {
            number,
            #[cfg(feature = "postgres")]
            line: None,
        }
    }

    /// Polls a step's code to its end, on this thread, which sleeps while the database works.
    #[doc(hidden)]
    pub fn drive<F: Future>(&self, code: F) -> Driven<F::Output> {
        let mut code = pin!(code);
        let waker = self.waker();
        let mut context = Context::from_waker(&waker);
        loop {
            if let Poll::Ready(value) = code.as_mut().poll(&mut context) {
                return Driven::Ended(value);
            }
            match self.patience() {
                None => return Driven::Foreign,
                Some(Duration::ZERO) => return Driven::Late,
                Some(left) => thread::park_timeout(left),
            }
        }
    }

    fn waker(&self) -> Waker {
        #[cfg(feature = "postgres")]
        if self.line.is_some() {
            return Arc::new(Sleeper(thread::current())).into();
        }
        Waker::noop().clone()
    }

    /// How long to sleep at most, if the database works on something.
    fn patience(&self) -> Option<Duration> {
        #[cfg(feature = "postgres")]
        if let Some(line) = &self.line {
            return line.is_awaited().then(|| line.left());
        }
        None
    }

    /// The connection, if it is one to PostgreSQL.
    #[cfg(feature = "postgres")]
    fn line(&self) -> Result<Option<&Arc<postgres::Line>>, TxError> {
        match &self.line {
            Some(_) if STEP.get() != self.number => Err(TxError::Outside),
            line => Ok(line.as_ref()),
        }
    }

    /// Runs one statement that changes rows. Returns how many.
    ///
    /// # Errors
    /// When the statement fails; the step may go on, what it did before stays.
    pub async fn execute(&self, sql: &str, params: impl Params) -> Result<u64, TxError> {
        let values = params.into_values();
        #[cfg(feature = "postgres")]
        if let Some(line) = self.line().map_err(noted)? {
            return line.execute(sql, values).await.map_err(noted);
        }
        let rows = self.statement(sql, &values, |connection, statement| {
            if statement.column_count() == 0 {
                let before = connection.total_changes();
                let rows = statement.raw_execute()?;
                // A statement that is not about rows leaves the count of the one before it.
                let none = connection.total_changes() == before;
                return Ok(if none { 0 } else { rows });
            }
            let mut count = 0;
            let mut rows = statement.raw_query();
            while rows.next()?.is_some() {
                count += 1;
            }
            Ok(count)
        })?;
        Ok(rows as u64)
    }

    /// All rows of a query.
    ///
    /// # Errors
    /// When the query fails.
    pub async fn query(&self, sql: &str, params: impl Params) -> Result<Vec<Row>, TxError> {
        let values = params.into_values();
        #[cfg(feature = "postgres")]
        if let Some(line) = self.line().map_err(noted)? {
            return line.query(sql, values).await.map_err(noted);
        }
        self.statement(sql, &values, |_, statement| value::read_all(statement))
    }

    /// The only row of a query.
    ///
    /// # Errors
    /// When the query fails, or has no row, or more than one.
    pub async fn query_one(&self, sql: &str, params: impl Params) -> Result<Row, TxError> {
        let mut rows = self.query(sql, params).await?;
        match rows.len() {
            1 => Ok(rows.remove(0)),
            other => Err(TxError::Rows(other)),
        }
    }

    /// The only row of a query, if there is one.
    ///
    /// # Errors
    /// When the query fails, or has more than one row.
    pub async fn query_optional(
        &self,
        sql: &str,
        params: impl Params,
    ) -> Result<Option<Row>, TxError> {
        let mut rows = self.query(sql, params).await?;
        match rows.len() {
            0 | 1 => Ok(rows.pop()),
            other => Err(TxError::Rows(other)),
        }
    }

    /// The connection itself, for what the other methods do not cover, if the database is SQLite.
    ///
    /// # Errors
    /// When the closure fails, the database is another, or the handle is used outside its step.
    pub fn sqlite<T>(
        &self,
        f: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, TxError> {
        let connection = self.connection().map_err(noted)?;
        f(&connection).map_err(|error| noted(error.into()))
    }

    /// Was a statement of this step one that no step may run? Trying it again is of no use.
    #[must_use]
    pub fn broke_a_rule(&self) -> bool {
        STEP.get() == self.number && BROKE.get()
    }

    fn connection(&self) -> Result<Rc<Connection>, TxError> {
        if STEP.get() != self.number || self.number == 0 {
            return Err(TxError::Outside);
        }
        #[cfg(feature = "postgres")]
        if self.line.is_some() {
            let why = "use a connection to SQLite; this database is PostgreSQL";
            return Err(TxError::Refused(why.into()));
        }
        let current = CURRENT.with_borrow(Clone::clone);
        let connection = current.ok_or(TxError::Outside)?;
        if connection.is_autocommit() {
            return Err(TxError::Refused(
                "an earlier statement ended the transaction (such as INSERT OR ROLLBACK)".into(),
            ));
        }
        Ok(connection)
    }

    fn statement<T>(
        &self,
        sql: &str,
        values: &[Value],
        f: impl FnOnce(&Connection, &mut CachedStatement<'_>) -> Result<T, TxError>,
    ) -> Result<T, TxError> {
        let run = || {
            let connection = self.connection()?;
            let mut statement = connection.prepare_cached(sql)?;
            value::bind(&mut statement, values)?;
            f(&connection, &mut statement)
        };
        run().map_err(noted)
    }
}

/// Remembers a broken rule, or a database that failed, until the step has ended.
fn noted(error: TxError) -> TxError {
    match &error {
        TxError::Busy(message) => FAILED.set(Some(message.clone())),
        // The transaction may have been ended by the failure before.
        TxError::Refused(_) if FAILED.with_borrow(Option::is_none) => BROKE.set(true),
        _ => {}
    }
    error
}

/// What the database could not do for the last step on this thread.
pub(crate) fn failed() -> Option<String> {
    FAILED.take()
}

/// Is user code running on this thread? Then the connection's guards are up.
pub(crate) fn is_entered() -> bool {
    STEP.get() != 0
}

/// While this lives, the step's `Tx` works on this thread.
pub(crate) struct Entered {
    tx: Tx,
}

impl Entered {
    /// The handle for the step.
    pub(crate) fn tx(&self) -> Tx {
        self.tx.clone()
    }
}

/// Lends the connection to a step.
pub(crate) fn enter(connection: Rc<Connection>) -> Entered {
    let number = enter_step();
    CURRENT.set(Some(connection));
    let tx = Tx::on_this_thread(number);
    Entered { tx }
}

/// Lends a connection to PostgreSQL to a step.
#[cfg(feature = "postgres")]
fn enter_line(line: Arc<postgres::Line>) -> Entered {
    let number = enter_step();
    let line = Some(line);
    let tx = Tx { number, line };
    Entered { tx }
}

fn enter_step() -> u64 {
    assert_eq!(STEP.get(), 0, "a step runs inside another");
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    BROKE.set(false);
    FAILED.set(None);
    STEP.set(number);
    number
}

/// Wakes a thread that sleeps while the database works.
#[cfg(feature = "postgres")]
struct Sleeper(thread::Thread);

#[cfg(feature = "postgres")]
impl std::task::Wake for Sleeper {
    fn wake(self: Arc<Sleeper>) {
        self.0.unpark();
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        STEP.set(0);
        CURRENT.set(None);
    }
}

impl From<rusqlite::Error> for TxError {
    fn from(error: rusqlite::Error) -> TxError {
        let message = error.to_string();
        let Some(failure) = error.sqlite_error() else {
            return TxError::Database(message);
        };
        match failure.code {
            _ if failure.extended_code == rusqlite::ffi::SQLITE_CONSTRAINT_COMMITHOOK => {
                TxError::Refused(format!("end the transaction ({message})"))
            }
            ErrorCode::ConstraintViolation => TxError::Constraint(message),
            ErrorCode::AuthorizationForStatementDenied => TxError::Refused(format!(
                "{message}; transactions, other databases, settings and the tables \
                 roundel_* belong to the engine"
            )),
            ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::OutOfMemory
            | ErrorCode::OperationInterrupted
            | ErrorCode::SystemIoFailure
            | ErrorCode::DiskFull
            | ErrorCode::ReadOnly => TxError::Busy(message),
            _ => TxError::Database(message),
        }
    }
}
