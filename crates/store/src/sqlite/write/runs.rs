//! Writes runs: the hot rows. A run that was set off alone, without a deadline, has nothing in many
//! columns, and nothing is bound for those.

use roundel_core::{Deadline, Outcome, RunChange, RunRow, Timestamp};
use rusqlite::{Connection, Result, Statement, ToSql};

use super::encoded;
use crate::cells::due;
use crate::sqlite::batch::keep;
use crate::sqlite::columns::{
    RUN_COLUMNS, cancel_number, number, plain_run_columns, run_columns, told_numbers,
};

const RUN_INSERT: &str = concat!(
    "INSERT INTO roundel_run (",
    run_columns!(),
    ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, \
     ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26, ?27, ?28, ?29, ?30, ?31, ?32, ?33, ?34, \
     ?35, ?36, ?37, ?38, ?39, ?40, ?41, ?42, ?43)"
);
/// A run that has nothing in the columns that most have nothing in.
const RUN_INSERT_PLAIN: &str = concat!(
    "INSERT INTO roundel_run (",
    plain_run_columns!(),
    ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, \
     ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26, ?27, ?28, ?29, ?30)"
);
/// What changes in a round that continues: no column of an index, none with a check.
const RUN_ADVANCE: &str = "UPDATE roundel_run SET execution = ?2, epoch = ?3, owner = ?4, \
     lease_until = ?5, news_at = ?6, timer_at = ?7, head = ?8, mail_last = ?9, mail = ?10, \
     matched = ?11, waits = ?12, watchers = ?13, crashes = ?14, cancel = ?15, holder = ?16, \
     changed_at = ?17 WHERE id = ?1";
const RUN_MOVE: &str = "UPDATE roundel_run SET execution = ?2, epoch = ?3, owner = ?4, \
     lease_until = ?5, news_at = ?6, timer_at = ?7, head = ?8, mail_last = ?9, mail = ?10, \
     matched = ?11, waits = ?12, watchers = ?13, crashes = ?14, cancel = ?15, holder = ?16, \
     changed_at = ?17, lane = ?18, state = ?19, priority = ?20, ready_at = ?21, suspect = ?22, \
     outcome = ?23, flow = ?24 WHERE id = ?1";
const RUN_KEYED: &str = "UPDATE roundel_run SET keyed_at = ?2 WHERE id = ?1";
const RUN_MARKS: &str = "UPDATE roundel_run SET told_part = ?2, told_execution = ?3, \
     told_call = ?4, undo = ?5, forward_by = ?6, forward_set_by = ?7, rollback_by = ?8, \
     rollback_set_by = ?9 WHERE id = ?1";

/// The statements, of one connection.
pub(super) struct Runs<'c> {
    run_insert: Statement<'c>,
    run_insert_plain: Statement<'c>,
    run_marks: Statement<'c>,
    run_advance: Statement<'c>,
    run_move: Statement<'c>,
    run_keyed: Statement<'c>,
}

impl<'c> Runs<'c> {
    pub(super) fn new(connection: &'c Connection) -> Result<Runs<'c>> {
        let prepare = |sql| keep(connection, sql);
        Ok(Runs {
            run_insert: prepare(RUN_INSERT)?,
            run_insert_plain: prepare(RUN_INSERT_PLAIN)?,
            run_marks: prepare(RUN_MARKS)?,
            run_advance: prepare(RUN_ADVANCE)?,
            run_move: prepare(RUN_MOVE)?,
            run_keyed: prepare(RUN_KEYED)?,
        })
    }

    pub(super) fn write(&mut self, change: &RunChange) -> Result<()> {
        match change {
            RunChange::Insert(row) => self.insert(row),
            RunChange::Update {
                row,
                reindex,
                marks,
            } => {
                self.update(row, *reindex)?;
                if *marks {
                    self.marks(row)?;
                }
                Ok(())
            }
        }
    }

    fn insert(&mut self, row: &RunRow) -> Result<()> {
        let plain = row.is_plain();
        let mut bind = Bind::new(match plain {
            true => &mut self.run_insert_plain,
            false => &mut self.run_insert,
        });
        bind.next(row.id.as_bytes())?;
        bind.next(row.lane.0)?;
        bind.next(row.state.as_str())?;
        bind.next(row.priority)?;
        bind.next(row.execution)?;
        bind.next(number(row.epoch))?;
        bind.next(row.owner.as_ref().map(|owner| owner.as_bytes()))?;
        bind.time(row.lease_until)?;
        bind.next(due(row).0)?;
        bind.time(row.news_at)?;
        bind.time(row.timer_at)?;
        bind.next(number(row.head))?;
        bind.next(number(row.mail_last))?;
        bind.next(row.mail)?;
        bind.next(row.matched)?;
        bind.next(row.waits)?;
        bind.next(row.watchers)?;
        bind.next(row.suspect)?;
        bind.next(row.crashes)?;
        bind.next(cancel_number(row.cancel))?;
        bind.next(row.holder.as_ref().map(|holder| holder.as_bytes()))?;
        bind.next(row.parent.as_ref().map(|parent| parent.run.as_bytes()))?;
        bind.next(row.parent.map(|parent| parent.execution))?;
        bind.next(row.parent.map(|parent| parent.call))?;
        bind.next(row.root.as_bytes())?;
        bind.next(row.depth)?;
        bind.next(row.key.as_ref().map(|key| key.as_str()))?;
        bind.next(row.created_at.0)?;
        bind.next(row.changed_at.0)?;
        bind.next(outcome(row)?)?;
        if plain {
            bind.statement.raw_execute()?;
            return Ok(());
        }
        let (part, execution, call) = told_numbers(row.told);
        bind.next(part)?;
        bind.next(execution)?;
        bind.next(call)?;
        bind.next(row.number)?;
        bind.next(row.publication.as_ref().map(|id| id.as_bytes()))?;
        bind.next(row.undo.number())?;
        bind.deadline(row.deadlines.forward)?;
        bind.deadline(row.deadlines.rollback)?;
        bind.next(row.flow.number())?;
        bind.next(row.flow_key.as_ref().map(|key| key.as_str()))?;
        bind.next(due(row).1)?;
        assert_eq!(bind.at, RUN_COLUMNS, "a run has this many columns");
        bind.statement.raw_execute()?;
        Ok(())
    }

    fn update(&mut self, row: &RunRow, reindex: bool) -> Result<()> {
        // An outcome comes and goes with the state, which counts as indexed.
        let moved = reindex || row.outcome.is_some();
        let statement = if moved {
            &mut self.run_move
        } else {
            &mut self.run_advance
        };
        let mut bind = Bind::new(statement);
        bind.next(row.id.as_bytes())?;
        bind.next(row.execution)?;
        bind.next(number(row.epoch))?;
        bind.next(row.owner.as_ref().map(|owner| owner.as_bytes()))?;
        bind.time(row.lease_until)?;
        bind.time(row.news_at)?;
        bind.time(row.timer_at)?;
        bind.next(number(row.head))?;
        bind.next(number(row.mail_last))?;
        bind.next(row.mail)?;
        bind.next(row.matched)?;
        bind.next(row.waits)?;
        bind.next(row.watchers)?;
        bind.next(row.crashes)?;
        bind.next(cancel_number(row.cancel))?;
        bind.next(row.holder.as_ref().map(|holder| holder.as_bytes()))?;
        bind.next(row.changed_at.0)?;
        if moved {
            bind.next(row.lane.0)?;
            bind.next(row.state.as_str())?;
            bind.next(row.priority)?;
            bind.next(due(row).0)?;
            bind.next(row.suspect)?;
            bind.next(outcome(row)?)?;
            bind.next(row.flow.number())?;
        }
        let written = bind.statement.raw_execute()?;
        assert_eq!(written, 1, "run {} was read and is gone", row.id);
        if moved && row.flow_key.is_some() {
            self.run_keyed.execute((row.id.as_bytes(), due(row).1))?;
        }
        Ok(())
    }

    /// What most runs never have.
    fn marks(&mut self, row: &RunRow) -> Result<()> {
        let (part, execution, call) = told_numbers(row.told);
        let mut bind = Bind::new(&mut self.run_marks);
        bind.next(row.id.as_bytes())?;
        bind.next(part)?;
        bind.next(execution)?;
        bind.next(call)?;
        bind.next(row.undo.number())?;
        bind.deadline(row.deadlines.forward)?;
        bind.deadline(row.deadlines.rollback)?;
        bind.statement.raw_execute()?;
        Ok(())
    }
}

fn outcome(row: &RunRow) -> Result<Option<String>> {
    row.outcome.as_ref().map(encoded::<Outcome>).transpose()
}

/// Binds one parameter after the other.
struct Bind<'s, 'c> {
    statement: &'s mut Statement<'c>,
    at: usize,
}

impl<'s, 'c> Bind<'s, 'c> {
    fn new(statement: &'s mut Statement<'c>) -> Bind<'s, 'c> {
        Bind { statement, at: 0 }
    }

    fn next<T: ToSql>(&mut self, value: T) -> Result<()> {
        self.at += 1;
        self.statement.raw_bind_parameter(self.at, value)
    }

    fn time(&mut self, at: Option<Timestamp>) -> Result<()> {
        self.next(at.map(|at| at.0))
    }

    fn deadline(&mut self, due: Option<Deadline>) -> Result<()> {
        self.time(due.map(|due| due.at))?;
        self.next(due.as_ref().map(|due| due.set_by.as_bytes()))
    }
}
