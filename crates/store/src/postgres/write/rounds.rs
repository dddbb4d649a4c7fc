//! What every round writes: runs, journals, and which batch it was, in one statement, since each
//! flight to the server and back costs as much as writing dozens of rows.
//!
//! The statement is made of the parts that there is something for; each text is made once and kept.
//! The parts of a statement see the same rows, so no row may stand in two of them.
//!
//! What was decided over rows that were not locked (`kept.rs`) is written only if they are still as
//! they were: otherwise the statement divides by zero, and nothing has happened.

use std::sync::OnceLock;

use roundel_core::{Deadline, JournalRow, RunChange, RunId, RunRow, Timestamp};
use sqlx::postgres::PgArguments;

use super::encoded;
use super::lone::Kind;
use crate::cells::{Cells, cancel_number, due, number, run_columns, told_numbers};
use crate::postgres::link::{Link, add_columns};
use crate::postgres::search::lane_number;
use crate::postgres::trouble::Trouble;
use crate::postgres::values::{Id, Xid};

/// A part: what stands before the rows, the types of their columns, and what stands behind them;
/// there, with one more column if it is to be checked what was seen before. The rows are arrays, or
/// values if there is one of each: what the server need not unpack and join is half of its work.
struct Part {
    before: &'static str,
    types: &'static [&'static str],
    behind: &'static str,
    checked: &'static str,
}

const BORN: Part = Part {
    before: concat!(
        "born AS (INSERT INTO roundel_run (",
        run_columns!(),
        ") SELECT * FROM "
    ),
    types: &[
        "uuid", "integer", "text", "integer", "bigint", "bigint", "uuid", "bigint", "bigint",
        "bigint", "bigint", "bigint", "bigint", "bigint", "bigint", "bigint", "bigint", "boolean",
        "bigint", "smallint", "uuid", "uuid", "bigint", "bigint", "uuid", "integer", "text",
        "bigint", "bigint", "bytea", "bigint", "bigint", "bigint", "bigint", "uuid", "smallint",
        "bigint", "uuid", "bigint", "uuid", "smallint", "text", "bigint",
    ],
    behind: " AS new)",
    checked: "",
};

/// What changes in a round that continues: no column of an index.
macro_rules! advances {
    () => {
        "execution = new.execution, epoch = new.epoch, owner = new.owner, \
         lease_until = new.lease_until, news_at = new.news_at, timer_at = new.timer_at, \
         head = new.head, mail_last = new.mail_last, mail = new.mail, matched = new.matched, \
         waits = new.waits, watchers = new.watchers, crashes = new.crashes, cancel = new.cancel, \
         holder = new.holder, changed_at = new.changed_at"
    };
}
macro_rules! advanced_columns {
    () => {
        "id, execution, epoch, owner, lease_until, news_at, timer_at, head, mail_last, mail, \
         matched, waits, watchers, crashes, cancel, holder, changed_at"
    };
}

macro_rules! moved_columns {
    () => {
        ", lane, state, priority, ready_at, suspect, outcome, told_part, told_execution, \
         told_call, undo, forward_by, forward_set_by, rollback_by, rollback_set_by, flow, \
         keyed_at"
    };
}

const ADVANCED: Part = Part {
    before: concat!(
        "advanced AS (UPDATE roundel_run AS run SET ",
        advances!(),
        " FROM "
    ),
    types: &[
        "uuid", "bigint", "bigint", "uuid", "bigint", "bigint", "bigint", "bigint", "bigint",
        "bigint", "bigint", "bigint", "bigint", "bigint", "smallint", "uuid", "bigint",
    ],
    behind: concat!(
        " AS new (",
        advanced_columns!(),
        ") WHERE run.id = new.id RETURNING 1)"
    ),
    checked: concat!(
        " AS new (",
        advanced_columns!(),
        ", seen) WHERE run.id = new.id AND run.xmin = new.seen RETURNING 1)"
    ),
};

const MOVED: Part = Part {
    before: concat!(
        "moved AS (UPDATE roundel_run AS run SET ",
        advances!(),
        ", lane = new.lane, state = new.state, priority = new.priority, \
         ready_at = new.ready_at, suspect = new.suspect, outcome = new.outcome, \
         told_part = new.told_part, told_execution = new.told_execution, \
         told_call = new.told_call, undo = new.undo, forward_by = new.forward_by, \
         forward_set_by = new.forward_set_by, rollback_by = new.rollback_by, \
         rollback_set_by = new.rollback_set_by, flow = new.flow, \
         keyed_at = new.keyed_at FROM "
    ),
    types: &[
        "uuid", "bigint", "bigint", "uuid", "bigint", "bigint", "bigint", "bigint", "bigint",
        "bigint", "bigint", "bigint", "bigint", "bigint", "smallint", "uuid", "bigint", "integer",
        "text", "integer", "bigint", "boolean", "bytea", "bigint", "bigint", "bigint", "smallint",
        "bigint", "uuid", "bigint", "uuid", "smallint", "bigint",
    ],
    behind: concat!(
        " AS new (",
        advanced_columns!(),
        moved_columns!(),
        ") WHERE run.id = new.id RETURNING 1)"
    ),
    checked: concat!(
        " AS new (",
        advanced_columns!(),
        moved_columns!(),
        ", seen) WHERE run.id = new.id AND run.xmin = new.seen RETURNING 1)"
    ),
};

const TOLD: Part = Part {
    before: "told AS (INSERT INTO roundel_journal \
         (run, execution, first, count, epoch, at, entries) SELECT * FROM ",
    types: &[
        "uuid", "bigint", "bigint", "bigint", "bigint", "bigint", "bytea",
    ],
    behind: " AS new)",
    checked: "",
};

/// By the server's own clock, which those who forget old rows go by.
const NOTED: Part = Part {
    before: "noted AS (UPDATE roundel_committer AS committer SET batch = new.batch, \
         at = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint FROM ",
    types: &["uuid", "bigint"],
    behind: " AS new (incarnation, batch) \
         WHERE committer.incarnation = new.incarnation RETURNING 1)",
    checked: "",
};

const PARTS: [Part; 5] = [BORN, ADVANCED, MOVED, TOLD, NOTED];

/// Where it matters how many rows a part wrote.
const COUNTED: [(usize, &str); 3] = [
    (1, "(SELECT count(*) FROM advanced)"),
    (2, "(SELECT count(*) FROM moved)"),
    (4, "(SELECT count(*) FROM noted)"),
];
const WRITTEN: &str = ", pg_current_xact_id()::xid::text::bigint, \
     (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

/// Which statement.
#[derive(Clone, Copy)]
struct Which {
    present: [bool; 5],
    /// It checks what was seen before.
    checks: bool,
    /// There is one row of each part.
    alone: bool,
}

fn text(which: Which) -> &'static str {
    static TEXTS: [OnceLock<String>; 128] = [const { OnceLock::new() }; 128];
    let bit = |at: usize| usize::from(which.present[at]) << at;
    let flags = (usize::from(which.checks) << 5) + (usize::from(which.alone) << 6);
    let number = (0..5).map(bit).sum::<usize>() + flags;
    TEXTS[number].get_or_init(|| made(which))
}

fn made(which: Which) -> String {
    let Which {
        present,
        checks,
        alone,
    } = which;
    let (open, of, close) = match alone {
        true => ("(VALUES (", "", "))"),
        false => ("unnest(", "[]", ")"),
    };
    let mut text = String::from("WITH ");
    let (mut next, mut right) = (1, Vec::new());
    for (at, part) in PARTS.iter().enumerate().filter(|(at, _)| present[*at]) {
        if next > 1 {
            text.push_str(", ");
        }
        if let Some((_, count)) = COUNTED.iter().find(|(part, _)| *part == at) {
            right.push(match alone {
                true => format!("{count} = 1"),
                false => format!("{count} = cardinality(${next})"),
            });
        }
        text.push_str(part.before);
        text.push_str(open);
        let checked = checks && !part.checked.is_empty();
        let seen = checked.then_some(&"xid");
        for (place, kind) in part.types.iter().chain(seen).enumerate() {
            let comma = if place > 0 { ", " } else { "" };
            text.push_str(&format!("{comma}${next}::{kind}{of}"));
            next += 1;
        }
        text.push_str(close);
        text.push_str(if checked { part.checked } else { part.behind });
    }
    text.push_str(" SELECT ");
    if checks {
        right.push(format!("{LANES} = ${next}"));
        text.push_str("1 / (");
        text.push_str(&right.join(" AND "));
        text.push_str(")::integer, 0, 0");
    } else {
        let counts = COUNTED.map(|(part, count)| if present[part] { count } else { "0" });
        text.push_str(&counts.join(", "));
    }
    text.push_str(WRITTEN);
    text
}

/// How many lanes there are.
const LANES: &str = "(SELECT coalesce(max(id), 0) FROM roundel_lane)";

/// The columns of a run that are written, in order, and their types.
pub(super) fn columns(kind: Kind) -> (Vec<&'static str>, &'static [&'static str]) {
    let (names, part) = match kind {
        Kind::Born => (run_columns!(), &BORN),
        Kind::Advanced => (advanced_columns!(), &ADVANCED),
        Kind::Moved => (concat!(advanced_columns!(), moved_columns!()), &MOVED),
    };
    (names.split(", ").map(str::trim).collect(), part.types)
}

pub(super) fn told_types() -> &'static [&'static str] {
    TOLD.types
}

/// What was decided without looking: over runs that these transactions wrote last, and so many
/// lanes.
pub(crate) struct Guess<'a> {
    pub(crate) seen: &'a (dyn Fn(RunId) -> Xid + Sync),
    pub(crate) lanes: i32,
}

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

/// Writes runs and journals, and notes that this process committed its batch of this number, if
/// that is said. None if there was nothing.
pub(crate) async fn all(
    link: &mut Link,
    (runs, journal): (&[RunChange], &[JournalRow]),
    (note, guess): (Option<(Id, u64)>, Option<&Guess<'_>>),
) -> Result<Option<Written>, Trouble> {
    let runs = Parted::of(runs);
    let present = [
        !runs.born.is_empty(),
        !runs.advanced.is_empty(),
        !runs.moved.is_empty(),
        !journal.is_empty(),
        note.is_some(),
    ];
    if present == [false; 5] {
        return Ok(None);
    }
    let counts = [runs.born.len(), runs.advanced.len(), runs.moved.len()];
    let alone = journal.len() <= 1 && counts.iter().all(|count| *count <= 1);
    let mut values = PgArguments::default();
    if present[0] {
        add_born(&mut values, alone, &runs.born)?;
    }
    if present[1] {
        add_advanced(&mut values, alone, &runs.advanced)?;
        add_seen(&mut values, alone, (&runs.advanced, guess))?;
    }
    if present[2] {
        add_advanced(&mut values, alone, &runs.moved)?;
        add_moved(&mut values, alone, &runs.moved)?;
        add_seen(&mut values, alone, (&runs.moved, guess))?;
    }
    if present[3] {
        add_told(&mut values, alone, journal)?;
    }
    if let Some((incarnation, batch)) = note {
        add_columns!(&mut values, alone; [(incarnation, batch)]; (incarnation, batch) =>
            *incarnation, number(*batch));
    }
    if let Some(guess) = guess {
        add(&mut values, guess.lanes)?;
    }
    let text = text(Which {
        present,
        checks: guess.is_some(),
        alone,
    });
    let written = match guess {
        Some(_) => link.guess(text, values).await?,
        None => link.all(text, values).await?,
    };
    let row = written.first();
    let number = |at| row.map_or(Ok(None), |row| row.int(at));
    if guess.is_none() {
        all_there(&runs.advanced, number(0)?);
        all_there(&runs.moved, number(1)?);
        if note.is_some() && number(2)? != Some(1) {
            return Err(Trouble::Forgotten);
        }
    }
    let by = u32::try_from(number(3)?.unwrap_or_default());
    let by = Xid(by.map_err(|error| Trouble::Culprit(error.to_string()))?);
    let at = Timestamp(number(4)?.unwrap_or_default());
    Ok(Some(Written { by, at }))
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
    alone: bool,
    journal: &[JournalRow],
) -> Result<(), Trouble> {
    add_columns!(values, alone; journal; row =>
        Id::from(row.run), i64::from(row.execution), number(row.first), i64::from(row.count),
        number(row.epoch), row.at.0, row.entries.as_slice());
    Ok(())
}

fn add_seen(
    values: &mut PgArguments,
    alone: bool,
    (rows, guess): (&[&RunRow], Option<&Guess<'_>>),
) -> Result<(), Trouble> {
    if let Some(guess) = guess {
        add_columns!(values, alone; rows; row => (guess.seen)(row.id));
    }
    Ok(())
}

fn all_there(rows: &[&RunRow], written: Option<i64>) {
    let Some(first) = rows.first() else { return };
    let wanted = i64::try_from(rows.len()).unwrap_or(i64::MAX);
    let what = "a run that was read and locked is gone; the first is";
    assert_eq!(written, Some(wanted), "{what} {}", first.id);
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
    alone: bool,
    rows: &[&RunRow],
) -> Result<(), Trouble> {
    add_columns!(values, alone; rows; row =>
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
    alone: bool,
    rows: &[&RunRow],
) -> Result<(), Trouble> {
    add_columns!(values, alone; rows; row =>
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
    alone: bool,
    rows: &[&RunRow],
) -> Result<(), Trouble> {
    add_columns!(values, alone; rows; row =>
        lane_number(row.lane), row.state.as_str(), row.priority,
        due(row).0, row.suspect, row.outcome.as_ref().map(encoded),
        told_numbers(row.told).0, told_numbers(row.told).1.map(i64::from),
        told_numbers(row.told).2.map(i64::from), i16::from(row.undo.number()),
        at(row.deadlines.forward), set_by(row.deadlines.forward),
        at(row.deadlines.rollback), set_by(row.deadlines.rollback), flow(row), due(row).1);
    Ok(())
}
