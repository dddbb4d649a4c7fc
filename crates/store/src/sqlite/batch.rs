//! One transaction: for each request load, decide, and write what changed.
//!
//! Rows stay in memory from one transaction to the next, as long as nobody else wrote to the file;
//! so a round of a live run reads nothing.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use roundel_core::{
    Hint, Need, Op, Refusal, Reply, Rows, RunChange, RunId, Stage, Timestamp, decide, may_step,
    needs,
};
use rusqlite::{Connection, PrepFlags, Statement};

use super::load::{Loads, is_search};
use super::trouble::Trouble;
use super::write::Writes;
use super::{backup, moving};
use crate::queue::Item;
use crate::{Ask, Clock, Error, TxError, Work, Worked, tx};

/// Runs kept in memory that nobody has leased.
const RUNS_KEPT: usize = 20_000;

/// A connection's statements and the rows they loaded.
pub(super) struct Session<'c> {
    connection: &'c Rc<Connection>,
    control: Control<'c>,
    loads: Loads<'c>,
    writes: Writes<'c>,
    clock: Arc<dyn Clock>,
    now: Timestamp,
    rows: Rows,
    /// The version of the file that the rows in memory belong to.
    version: Option<i64>,
    /// In which words it says that it was moved.
    moved: Option<String>,
    /// When it was last restored.
    restored: Option<i64>,
    /// Something was decided since the last write.
    decided: bool,
    /// Something was written in this transaction.
    written: bool,
    needs: Vec<Need>,
    /// Runs that ended in this transaction.
    ended: Vec<RunId>,
}

/// The statements that begin and end transactions.
struct Control<'c> {
    begin: Statement<'c>,
    commit: Statement<'c>,
    rollback: Statement<'c>,
    savepoint: Statement<'c>,
    undo: Statement<'c>,
    release: Statement<'c>,
    version: Statement<'c>,
}

/// A statement that lives as long as its connection: it stays out of the memory that statements
/// use while they run.
pub(super) fn keep<'c>(connection: &'c Connection, sql: &str) -> rusqlite::Result<Statement<'c>> {
    connection.prepare_with_flags(sql, PrepFlags::SQLITE_PREPARE_PERSISTENT)
}

impl<'c> Control<'c> {
    fn new(connection: &'c Connection) -> rusqlite::Result<Control<'c>> {
        let prepare = |sql| keep(connection, sql);
        Ok(Control {
            begin: prepare("BEGIN IMMEDIATE")?,
            commit: prepare("COMMIT")?,
            rollback: prepare("ROLLBACK")?,
            savepoint: prepare("SAVEPOINT roundel_step")?,
            undo: prepare("ROLLBACK TO roundel_step")?,
            release: prepare("RELEASE roundel_step")?,
            version: prepare("PRAGMA data_version")?,
        })
    }
}

impl<'c> Session<'c> {
    pub(super) fn new(
        connection: &'c Rc<Connection>,
        clock: Arc<dyn Clock>,
    ) -> rusqlite::Result<Session<'c>> {
        Ok(Session {
            connection,
            control: Control::new(connection)?,
            loads: Loads::new(connection, clock.now())?,
            writes: Writes::new(connection)?,
            now: clock.now(),
            clock,
            rows: Rows::default(),
            version: None,
            moved: None,
            restored: None,
            decided: false,
            written: false,
            needs: Vec::new(),
            ended: Vec::new(),
        })
    }

    /// Takes the write lock, and drops the rows in memory if somebody else wrote meanwhile.
    pub(super) fn begin(&mut self) -> rusqlite::Result<()> {
        self.control.begin.execute([])?;
        let version: i64 = self.control.version.query_row([], |row| row.get(0))?;
        if self.version != Some(version) {
            self.forget();
            self.rows.load_lanes(self.loads.lanes()?);
            self.moved = moving::moved(self.connection)?;
            self.restored = backup::restored(self.connection)?;
            self.version = Some(version);
        }
        self.written = false;
        self.now = self.clock.now();
        Ok(())
    }

    /// In which words the file says that it was moved, if it was.
    pub(super) fn moved(&self) -> Option<&str> {
        self.moved.as_deref()
    }

    /// When the file was last restored.
    pub(super) fn restored(&self) -> Option<i64> {
        self.restored
    }

    /// Decides these requests, in order; renewals before steps, which may take their time.
    /// `first` is the place of the first of them in its batch.
    pub(super) fn decide(&mut self, items: &mut [Item], first: usize) -> Result<(), Trouble> {
        let steps = items
            .iter()
            .any(|item| matches!(*item.request.ask, Ask::Work(_)));
        let renews = |item: &Item| matches!(*item.request.ask, Ask::Op(Op::Renew(_)));
        if steps {
            for (at, item) in items
                .iter_mut()
                .enumerate()
                .filter(|(_, item)| renews(item))
            {
                self.one(item, first + at)?;
            }
        }
        for (at, item) in items.iter_mut().enumerate() {
            if !(steps && renews(item)) {
                self.one(item, first + at)?;
            }
        }
        Ok(())
    }

    /// Writes what was decided. Returns whether there is anything to commit.
    pub(super) fn write(&mut self, incarnation: &[u8; 16], batch: u64) -> rusqlite::Result<bool> {
        self.decided = true;
        self.flush()?;
        if self.written {
            self.writes.committer(incarnation, batch, self.now)?;
        }
        Ok(self.written)
    }

    pub(super) fn commit(&mut self) -> rusqlite::Result<()> {
        self.control.commit.execute([])?;
        Ok(())
    }

    /// The transaction is over and the rows in memory are what the file has.
    pub(super) fn finish(&mut self) -> Vec<Hint> {
        for run in self.ended.drain(..) {
            self.rows.forget_run(run);
        }
        self.rows.forget_rest();
        self.rows.forget_runs(RUNS_KEPT);
        self.loads.forget_rest();
        self.rows.take_hints()
    }

    /// Ends the transaction without a trace. Returns whether the connection is still good.
    pub(super) fn rollback(&mut self) -> bool {
        self.forget();
        self.connection.is_autocommit() || self.control.rollback.execute([]).is_ok()
    }

    /// Ends a transaction that changed nothing.
    pub(super) fn leave(&mut self) -> rusqlite::Result<()> {
        self.control.rollback.execute([])?;
        Ok(())
    }

    fn forget(&mut self) {
        self.rows = Rows::default();
        self.loads.forget();
        self.version = None;
        self.decided = false;
        self.ended.clear();
    }

    fn one(&mut self, item: &mut Item, place: usize) -> Result<(), Trouble> {
        let result = match &mut *item.request.ask {
            Ask::Op(op) => self.op(op)?,
            Ask::Work(work) => match &item.instead {
                Some(op) => self.op(op)?,
                None => self.step(&mut **work, place)?,
            },
        };
        item.result = Some(result.map_err(Error::from));
        Ok(())
    }

    /// Loads what the operation needs, stage by stage, and decides.
    fn op(&mut self, op: &Op) -> rusqlite::Result<Result<Reply, Refusal>> {
        let mut wanted = std::mem::take(&mut self.needs);
        self.rows.searched_at = self.now;
        for stage in Stage::ALL {
            needs(op, &self.rows, stage, &mut wanted);
            for need in wanted.drain(..) {
                self.load(need)?;
            }
        }
        self.needs = wanted;
        let result = decide(op, &mut self.rows, self.now);
        self.decided |= result.is_ok();
        if self.rows.has_deleted() {
            self.flush()?;
        }
        Ok(result)
    }

    fn load(&mut self, need: Need) -> rusqlite::Result<()> {
        if self.loads.has(&need, &self.rows) {
            return Ok(());
        }
        if let Need::Watchers(run) = need
            && self.loads.is_unwatched(run, &self.rows)?
        {
            return Ok(());
        }
        if is_search(&need) {
            self.flush()?;
        }
        self.loads.load(need, &mut self.rows, self.now)
    }

    fn flush(&mut self) -> rusqlite::Result<()> {
        if !std::mem::take(&mut self.decided) {
            return Ok(());
        }
        let mut changes = self.rows.take_changes();
        if !changes.is_empty() {
            self.written = true;
            // Neighbours lie on the same pages.
            changes.runs.sort_by_key(|change| change.row().id);
            changes.journal.sort_by_key(|row| row.run);
            self.writes.all(&changes, &self.rows)?;
            let ended = changes.runs.iter().map(RunChange::row);
            let ended = ended.filter(|row| row.state.has_ended());
            self.ended.extend(ended.map(|row| row.id));
        }
        Ok(())
    }

    /// Runs a step's code and decides its round. What the code wrote stays only if both stand.
    fn step(
        &mut self,
        work: &mut dyn Work,
        place: usize,
    ) -> Result<Result<Reply, Refusal>, Trouble> {
        let (run, worker, fence) = work.lease();
        self.load(Need::Run(run))?;
        if let Err(refusal) = may_step(&self.rows, run, (worker, fence), self.now) {
            return Ok(Err(refusal));
        }
        // Nothing of the engine's is written inside the savepoint, which may be rolled back.
        self.flush()?;
        self.control.savepoint.execute([])?;
        let began = Instant::now();
        let worked = {
            let entered = tx::enter(Rc::clone(self.connection));
            catch_unwind(AssertUnwindSafe(|| work.run(entered.tx())))
        };
        if self.connection.is_autocommit() {
            // The database itself ends a transaction in which the disk failed or was full.
            return Err(tx::failed().map_or(Trouble::Ended(place), Trouble::Broken));
        }
        let worked = worked.unwrap_or_else(|_| Worked {
            round: work.refused(TxError::Database("it panicked".into())),
            keep: false,
        });
        let took = began.elapsed();
        if took > worked.round.lease / 3 {
            tracing::warn!(%run, ?took, "a step held the transaction for long; others waited");
        }
        self.now = self.clock.now();
        if !worked.keep {
            self.control.undo.execute([])?;
        }
        let result = self.op(&Op::Commit(worked.round))?;
        if result.is_err() && worked.keep {
            self.control.undo.execute([])?;
        }
        self.control.release.execute([])?;
        // What the step wrote must be committed even if the engine has nothing to add.
        self.written |= worked.keep && result.is_ok();
        Ok(result)
    }
}
