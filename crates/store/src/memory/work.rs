//! Steps: user code, run inside a transaction of a SQLite database in memory, which is opened at
//! the first step.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use roundel_core::{Op, Reply, may_step};
use rusqlite::{Connection, MAIN_DB, backup::Backup};

use super::state::Tables;
use crate::sqlite::guard;
use crate::{Clock, Error, Tx, TxError, Work, Worked, tx};

/// The database that steps write to.
#[derive(Debug, Default)]
pub(crate) struct Companion {
    connection: Option<Connection>,
}

/// A copy of it.
#[derive(Clone, Debug)]
pub(super) struct Copied(Option<Arc<Mutex<Connection>>>);

impl Companion {
    /// Runs a step and decides its round. What it wrote is visible once it is committed.
    pub(super) fn work(
        &mut self,
        work: &mut dyn Work,
        tables: &mut Tables,
        clock: &dyn Clock,
    ) -> Result<Reply, Error> {
        let (run, worker, fence) = work.lease();
        may_step(&tables.rows, run, (worker, fence), clock.now())?;
        let begun = self.begin();
        begun.map_err(|error| Error::Unavailable(error.to_string()))?;
        let (round, keep) = match self.run(work) {
            Ok(Worked { round, keep }) => (round, keep),
            Err(error) => (work.refused(error), false),
        };
        if !keep {
            self.rollback();
        }
        let before = self.has_deferred_keys().then(|| tables.clone());
        let reply = tables.decide(&Op::Commit(round), clock.now());
        if reply.is_err() {
            self.rollback();
        }
        let Some((before, error)) = before.zip(self.can_commit().err()) else {
            return Ok(reply?);
        };
        *tables = before;
        self.rollback();
        Ok(tables.decide(&Op::Commit(work.refused(error)), clock.now())?)
    }

    /// Makes what a step wrote visible, if there was one.
    pub(crate) fn commit(&mut self) {
        if self.is_open() {
            let connection = self.connection.as_ref().expect("it is open");
            connection
                .execute_batch("COMMIT")
                .expect("nothing stands against the commit");
        }
    }

    /// Forgets what a step wrote.
    pub(super) fn rollback(&mut self) {
        if self.is_open() {
            let connection = self.connection.as_ref().expect("it is open");
            connection
                .execute_batch("ROLLBACK")
                .expect("memory can be rolled back");
        }
    }

    fn is_open(&self) -> bool {
        self.connection
            .as_ref()
            .is_some_and(|connection| !connection.is_autocommit())
    }

    fn begin(&mut self) -> rusqlite::Result<()> {
        if self.connection.is_none() {
            let mut connection = Connection::open_in_memory()?;
            connection.pragma_update(None, "foreign_keys", 1)?;
            connection.pragma_update(None, "trusted_schema", 0)?;
            guard::install(&mut connection)?;
            self.connection = Some(connection);
        }
        self.connection
            .as_ref()
            .expect("just made")
            .execute_batch("BEGIN IMMEDIATE")
    }

    /// Runs this in a transaction that no round belongs to.
    pub(super) fn transact<T, E>(&mut self, work: impl FnOnce(Tx) -> Result<T, E>) -> Result<T, E>
    where
        E: From<TxError>,
    {
        self.begin().map_err(|error| E::from(error.into()))?;
        let worked = self.lend(work);
        match worked {
            Ok(Ok(value)) => {
                self.commit();
                Ok(value)
            }
            Ok(Err(error)) => {
                self.rollback();
                Err(error)
            }
            Err(error) => {
                self.rollback();
                Err(E::from(error))
            }
        }
    }

    fn run(&mut self, work: &mut dyn Work) -> Result<Worked, TxError> {
        self.lend(|tx| work.run(tx))
    }

    /// Lends the connection, on which a transaction is open, to user code.
    fn lend<T>(&mut self, work: impl FnOnce(Tx) -> T) -> Result<T, TxError> {
        let connection = Rc::new(self.connection.take().expect("begun"));
        let entered = tx::enter(Rc::clone(&connection));
        let worked = catch_unwind(AssertUnwindSafe(|| work(entered.tx())));
        drop(entered);
        let connection = Rc::into_inner(connection).expect("lent to the step only");
        let ended = connection.is_autocommit();
        self.connection = Some(connection);
        match worked {
            Ok(_) if ended => Err(TxError::Refused("it ended the transaction".into())),
            Ok(worked) => Ok(worked),
            Err(_) => Err(TxError::Database("it panicked".into())),
        }
    }

    /// Deferred foreign keys are checked by the commit, which comes after the decision.
    fn has_deferred_keys(&self) -> bool {
        let sql = "SELECT count(*) FROM sqlite_schema WHERE sql LIKE '%deferr%'";
        let connection = self.connection.as_ref().filter(|_| self.is_open());
        let count = connection.map(|connection| connection.query_row(sql, [], |row| row.get(0)));
        count.is_some_and(|count: rusqlite::Result<i64>| count.is_ok_and(|count| count > 0))
    }

    fn can_commit(&self) -> Result<(), TxError> {
        let Some(connection) = self.connection.as_ref().filter(|_| self.is_open()) else {
            return Ok(());
        };
        let mut check = connection.prepare("PRAGMA foreign_key_check")?;
        if check.exists([])? {
            return Err(TxError::Database("FOREIGN KEY constraint failed".into()));
        }
        Ok(())
    }

    /// The bytes of the database, none if there was no step yet.
    pub(crate) fn image(&mut self) -> rusqlite::Result<Vec<u8>> {
        let Some(connection) = &mut self.connection else {
            return Ok(Vec::new());
        };
        Ok(connection.serialize(MAIN_DB)?.to_vec())
    }

    /// From now on, the database is this one.
    pub(crate) fn load(&mut self, image: &[u8]) -> rusqlite::Result<()> {
        self.connection = None;
        if image.is_empty() {
            return Ok(());
        }
        self.begin()?;
        self.rollback();
        let connection = self.connection.as_mut().expect("just made");
        connection.deserialize_read_exact(MAIN_DB, image, image.len(), false)
    }

    pub(super) fn copy(&self) -> Copied {
        let copied = self.connection.as_ref().map(|from| {
            let mut to = Connection::open_in_memory().expect("memory");
            copy(from, &mut to);
            Arc::new(Mutex::new(to))
        });
        Copied(copied)
    }

    pub(super) fn restore(&mut self, copied: &Copied) {
        self.connection = None;
        if let Some(from) = &copied.0 {
            self.begin().expect("memory");
            self.rollback();
            let to = self.connection.as_mut().expect("just made");
            copy(&from.lock().expect("a copy is only read"), to);
        }
    }
}

fn copy(from: &Connection, to: &mut Connection) {
    let backup = Backup::new(from, to).expect("both are databases");
    backup.step(-1).expect("memory can be copied");
}
