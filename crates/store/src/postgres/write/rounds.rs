//! What every round writes: runs, journals, and which batch it was, in one statement, since each
//! flight to the server and back costs as much as writing dozens of rows.
//!
//! What was decided over rows that were not locked (`kept.rs`) is written only if they are still as
//! they were: otherwise the statement divides by zero, and nothing has happened.

use roundel_core::{Deadline, JournalRow, QueueId, RunChange, RunId, RunRow, Timestamp};
use sqlx::postgres::{PgArguments, PgRow};

use super::encoded;
use super::text::{ADVANCED, Checks, Own, PARTS, Shape, Which};
use crate::cells::{Cells, cancel_number, due, number, told_numbers};
use crate::postgres::link::{Link, add_arrays, add_columns};
use crate::postgres::search::lane_number;
use crate::postgres::trouble::Trouble;
use crate::postgres::values::{Id, Xid};

/// What was decided without looking: over runs that these transactions wrote last, so many lanes,
/// and queues, if there are any.
pub(crate) struct Guess<'a> {
    pub(crate) seen: &'a dyn Fn(RunId) -> Xid,
    pub(crate) lanes: i32,
    pub(crate) queues: bool,
}

/// A queue on whose limits a guess rests: up to when its rate is used up, and which transaction
/// wrote it last. Known only when all before it is committed.
pub(crate) type Spent = (QueueId, Timestamp, Xid);

/// Which transaction wrote it, and when.
#[derive(Clone, Copy)]
pub(crate) struct Written {
    pub(crate) by: Xid,
    pub(crate) at: Timestamp,
}

/// Runs by what becomes of them.
#[derive(Default)]
pub(super) struct Parted<'a> {
    pub(super) born: Vec<&'a RunRow>,
    pub(super) advanced: Vec<&'a RunRow>,
    moved: Vec<&'a RunRow>,
}

impl<'a> Parted<'a> {
    pub(super) fn of(changes: &'a [RunChange]) -> Parted<'a> {
        let mut parted = Parted::default();
        for change in changes {
            match change {
                RunChange::Insert(row) => parted.born.push(row),
                // An outcome comes and goes with the state, which counts as indexed.
                RunChange::Update {
                    row,
                    reindex,
                    marks,
                } if *reindex || *marks || row.outcome.is_some() => parted.moved.push(row),
                RunChange::Update { row, .. } => parted.advanced.push(row),
            }
        }
        parted
    }
}

/// A statement with its values, as far as they are known.
pub(crate) struct Made {
    which: Which,
    values: PgArguments,
}

impl Made {
    /// Writes what was decided without looking, if it still holds, and commits.
    pub(crate) async fn guess(
        mut self,
        link: &mut Link,
        queues: &[Spent],
    ) -> Result<Written, Trouble> {
        if self.which.checks == Checks::Queues {
            add_arrays!(&mut self.values; queues; (queue, spent, seen) =>
                queue.namespace.as_str(), queue.queue.as_str(), spent.0, *seen);
        }
        let written = link.guess(self.which.text(), self.values).await?;
        written_by(written.first(), 3)
    }
}

/// Writes runs and journals, and notes that this process committed its batch of this number, if
/// that is said. None if there was nothing.
pub(crate) async fn all(
    link: &mut Link,
    rows: (&[RunChange], &[JournalRow]),
    note: Option<(Id, u64)>,
) -> Result<Option<Written>, Trouble> {
    let runs = Parted::of(rows.0);
    let Some(made) = made((&runs, rows.1), note, None)? else {
        return Ok(None);
    };
    let written = link.all(made.which.text(), made.values).await?;
    let row = written.first();
    let number = |at| row.map_or(Ok(None), |row| row.int(at));
    all_there(&runs.advanced, number(0)?);
    all_there(&runs.moved, number(1)?);
    if note.is_some() && number(2)? != Some(1) {
        return Err(Trouble::Forgotten);
    }
    written_by(row, 3).map(Some)
}

/// The statement for what was decided without looking. None if there is nothing to write.
pub(crate) fn guessed(
    (runs, journal): (&[RunChange], &[JournalRow]),
    note: (Id, u64),
    guess: &Guess<'_>,
) -> Result<Option<Made>, Trouble> {
    made((&Parted::of(runs), journal), Some(note), Some(guess))
}

fn made(
    (runs, journal): (&Parted<'_>, &[JournalRow]),
    note: Option<(Id, u64)>,
    guess: Option<&Guess<'_>>,
) -> Result<Option<Made>, Trouble> {
    let shapes = [
        shape(&runs.born, are_born_alike),
        shape(&runs.advanced, are_alike),
        shape(&runs.moved, |one, two| {
            are_alike(one, two) && are_moved_alike(one, two)
        }),
        shape(journal, |_, _| false),
        note.map(|_| Shape::Alone),
    ];
    if shapes == [None; 5] {
        return Ok(None);
    }
    let mut values = PgArguments::default();
    let own = |part: usize| shapes[part].map(|shape| PARTS[part].own(shape));
    if let Some(own) = own(0) {
        add_born(&mut values, own, &runs.born)?;
    }
    if let Some(own) = own(1) {
        add_advanced(&mut values, own, &runs.advanced)?;
        add_seen(&mut values, own, (&runs.advanced, guess))?;
    }
    if let Some(own) = own(2) {
        add_advanced(&mut values, own, &runs.moved)?;
        add_moved(&mut values, own.behind(ADVANCED.types.len()), &runs.moved)?;
        add_seen(&mut values, own, (&runs.moved, guess))?;
    }
    if let Some(own) = own(3) {
        add_told(&mut values, own, journal)?;
    }
    if let Some((incarnation, batch)) = note {
        add(&mut values, incarnation)?;
        add(&mut values, number(batch))?;
    }
    if let Some(guess) = guess {
        add(&mut values, guess.lanes)?;
    }
    let checks = match guess {
        None => Checks::Nothing,
        Some(guess) if guess.queues => Checks::Queues,
        Some(_) => Checks::Runs,
    };
    let which = Which { shapes, checks };
    Ok(Some(Made { which, values }))
}

/// What a statement answered: by whom, and when, from this column on.
pub(super) fn written_by(row: Option<&PgRow>, at: usize) -> Result<Written, Trouble> {
    let number = |at| row.map_or(Ok(None), |row| row.int(at));
    let by = u32::try_from(number(at)?.unwrap_or_default());
    let by = Xid(by.map_err(|error| Trouble::Culprit(error.to_string()))?);
    let at = Timestamp(number(at + 1)?.unwrap_or_default());
    Ok(Written { by, at })
}

/// One more value.
pub(super) fn add<'q, T>(values: &mut PgArguments, value: T) -> Result<(), Trouble>
where
    T: sqlx::Encode<'q, sqlx::Postgres> + sqlx::Type<sqlx::Postgres> + 'q,
{
    let added = sqlx::Arguments::add(values, value);
    added.map_err(|error| Trouble::Culprit(error.to_string()))
}

pub(super) fn add_told(
    values: &mut PgArguments,
    own: Own,
    journal: &[JournalRow],
) -> Result<(), Trouble> {
    add_columns!(values, own; journal; row =>
        Id::from(row.run), i64::from(row.execution), number(row.first), i64::from(row.count),
        number(row.epoch), row.at.0, row.entries.as_slice());
    Ok(())
}

fn add_seen(
    values: &mut PgArguments,
    own: Own,
    (rows, guess): (&[&RunRow], Option<&Guess<'_>>),
) -> Result<(), Trouble> {
    if let Some(guess) = guess {
        // Whose row it is, is a column of its own; so is this.
        add_columns!(values, own; rows; row => (guess.seen)(row.id));
    }
    Ok(())
}

fn all_there(rows: &[&RunRow], written: Option<i64>) {
    let Some(first) = rows.first() else { return };
    let wanted = i64::try_from(rows.len()).unwrap_or(i64::MAX);
    let what = "a run that was read and locked is gone; the first is";
    assert_eq!(written, Some(wanted), "{what} {}", first.id);
}

/// None if there are no rows.
fn shape<T>(rows: &[T], alike: impl Fn(&T, &T) -> bool) -> Option<Shape> {
    let (first, others) = rows.split_first()?;
    Some(match others {
        [] => Shape::Alone,
        _ if others.iter().all(|other| alike(first, other)) => Shape::Alike,
        _ => Shape::Arrays,
    })
}

/// Do they agree in what is not their own, of what a round that continues changes?
fn are_alike(one: &&RunRow, two: &&RunRow) -> bool {
    let rest = |row: &RunRow| {
        let counts = (row.mail, row.matched, row.waits, row.watchers, row.crashes);
        (row.execution, row.mail_last, counts, row.cancel, row.holder)
    };
    rest(one) == rest(two)
}

/// And of what is moved beside that?
fn are_moved_alike(one: &&RunRow, two: &&RunRow) -> bool {
    let rest = |row: &RunRow| {
        let marks = (row.told, row.undo, row.deadlines, flow(row), due(row).1);
        (row.priority, row.suspect, marks)
    };
    rest(one) == rest(two)
}

/// And of what is written once?
fn are_born_alike(one: &&RunRow, two: &&RunRow) -> bool {
    let rest = |row: &RunRow| {
        let parent = row.parent.map(|parent| (parent.run, parent.execution));
        (row.timer_at, row.head, row.depth, parent, row.publication)
    };
    are_alike(one, two)
        && are_moved_alike(one, two)
        && rest(one) == rest(two)
        && one.outcome == two.outcome
        && one.flow_key == two.flow_key
}

fn cancel(row: &RunRow) -> i16 {
    i16::try_from(cancel_number(row.cancel)).expect("a small number")
}

fn at(deadline: Option<Deadline>) -> Option<i64> {
    deadline.map(|due| due.at.0)
}

fn set_by(deadline: Option<Deadline>) -> Option<Id> {
    deadline.map(|due| Id::from(due.set_by))
}

pub(super) fn add_born(
    values: &mut PgArguments,
    own: Own,
    rows: &[&RunRow],
) -> Result<(), Trouble> {
    add_columns!(values, own; rows; row =>
        Id::from(row.id), lane_number(row.lane), row.state.as_str(), row.priority,
        i64::from(row.execution), number(row.epoch), row.owner.map(Id::from),
        row.lease_until.map(|at| at.0), due(row).0, row.news_at.map(|at| at.0),
        row.timer_at.map(|at| at.0), number(row.head), number(row.mail_last),
        i64::from(row.mail), i64::from(row.matched), i64::from(row.waits),
        i64::from(row.watchers), row.suspect, i64::from(row.crashes), cancel(row),
        row.holder.map(Id::from), row.parent.map(|parent| Id::from(parent.run)),
        row.parent.map(|parent| i64::from(parent.execution)),
        row.parent.map(|parent| i64::from(parent.call)), Id::from(row.root),
        i32::from(row.depth), row.key.as_ref().map(|key| key.as_str()), row.created_at.0,
        row.changed_at.0, row.outcome.as_ref().map(encoded), told_numbers(row.told).0,
        told_numbers(row.told).1.map(i64::from), told_numbers(row.told).2.map(i64::from),
        row.number.map(i64::from), row.publication.map(Id::from), i16::from(row.undo.number()),
        at(row.deadlines.forward), set_by(row.deadlines.forward),
        at(row.deadlines.rollback), set_by(row.deadlines.rollback), flow(row),
        row.flow_key.as_ref().map(|key| key.as_str().to_owned()), due(row).1);
    Ok(())
}

fn flow(row: &RunRow) -> Option<i16> {
    row.flow.number().map(i16::from)
}

pub(super) fn add_advanced(
    values: &mut PgArguments,
    own: Own,
    rows: &[&RunRow],
) -> Result<(), Trouble> {
    add_columns!(values, own; rows; row =>
        Id::from(row.id), i64::from(row.execution), number(row.epoch), row.owner.map(Id::from),
        row.lease_until.map(|at| at.0), row.news_at.map(|at| at.0),
        row.timer_at.map(|at| at.0), number(row.head), number(row.mail_last),
        i64::from(row.mail), i64::from(row.matched), i64::from(row.waits),
        i64::from(row.watchers), i64::from(row.crashes), cancel(row), row.holder.map(Id::from),
        row.changed_at.0);
    Ok(())
}

/// What is moved beside what every round changes.
pub(super) fn add_moved(
    values: &mut PgArguments,
    own: Own,
    rows: &[&RunRow],
) -> Result<(), Trouble> {
    add_columns!(values, own; rows; row =>
        lane_number(row.lane), row.state.as_str(), row.priority,
        due(row).0, row.suspect, row.outcome.as_ref().map(encoded),
        told_numbers(row.told).0, told_numbers(row.told).1.map(i64::from),
        told_numbers(row.told).2.map(i64::from), i16::from(row.undo.number()),
        at(row.deadlines.forward), set_by(row.deadlines.forward),
        at(row.deadlines.rollback), set_by(row.deadlines.rollback), flow(row), due(row).1);
    Ok(())
}
