//! The statement that writes runs and journals. It is made of the parts that there is something
//! for; each text is made once and kept. The parts of a statement see the same rows, so no row may
//! stand in two of them.

use std::sync::OnceLock;

use super::lone::Kind;
use crate::cells::run_columns;

/// Rows of one table. They are arrays, or values if there is one of each: what the server need not
/// unpack and join is half of its work. So is a column of which all rows have the same, which is a
/// value for all of them.
pub(super) struct Part {
    name: &'static str,
    columns: &'static str,
    pub(super) types: &'static [&'static str],
    /// What rarely is the same in all rows; the first of these says which row it is.
    own: &'static str,
}

const BORN: Part = Part {
    name: "born",
    columns: run_columns!(),
    types: &[
        "uuid", "integer", "text", "integer", "bigint", "bigint", "uuid", "bigint", "bigint",
        "bigint", "bigint", "bigint", "bigint", "bigint", "bigint", "bigint", "bigint", "boolean",
        "bigint", "smallint", "uuid", "uuid", "bigint", "bigint", "uuid", "integer", "text",
        "bigint", "bigint", "bytea", "bigint", "bigint", "bigint", "bigint", "uuid", "smallint",
        "bigint", "uuid", "bigint", "uuid", "smallint", "text", "bigint",
    ],
    own: "id, lane, state, epoch, owner, lease_until, ready_at, news_at, parent_call, root, key, \
          created_at, changed_at, number",
};

/// What changes in a round that continues: no column of an index.
macro_rules! advanced_columns {
    () => {
        "id, execution, epoch, owner, lease_until, news_at, timer_at, head, mail_last, mail, \
         matched, waits, watchers, crashes, cancel, holder, changed_at"
    };
}
macro_rules! advanced_own {
    () => {
        "id, epoch, owner, lease_until, news_at, timer_at, head, changed_at"
    };
}

pub(super) const ADVANCED: Part = Part {
    name: "advanced",
    columns: advanced_columns!(),
    types: &[
        "uuid", "bigint", "bigint", "uuid", "bigint", "bigint", "bigint", "bigint", "bigint",
        "bigint", "bigint", "bigint", "bigint", "bigint", "smallint", "uuid", "bigint",
    ],
    own: advanced_own!(),
};

const MOVED: Part = Part {
    name: "moved",
    columns: concat!(
        advanced_columns!(),
        ", lane, state, priority, ready_at, suspect, outcome, told_part, told_execution, \
         told_call, undo, forward_by, forward_set_by, rollback_by, rollback_set_by, flow, \
         keyed_at"
    ),
    types: &[
        "uuid", "bigint", "bigint", "uuid", "bigint", "bigint", "bigint", "bigint", "bigint",
        "bigint", "bigint", "bigint", "bigint", "bigint", "smallint", "uuid", "bigint", "integer",
        "text", "integer", "bigint", "boolean", "bytea", "bigint", "bigint", "bigint", "smallint",
        "bigint", "uuid", "bigint", "uuid", "smallint", "bigint",
    ],
    own: concat!(advanced_own!(), ", lane, state, ready_at, outcome"),
};

const TOLD: Part = Part {
    name: "told",
    columns: "run, execution, first, count, epoch, at, entries",
    types: &[
        "uuid", "bigint", "bigint", "bigint", "bigint", "bigint", "bytea",
    ],
    own: "run, execution, first, count, epoch, at, entries",
};

const NOTED: Part = Part {
    name: "noted",
    columns: "incarnation, batch",
    types: &["uuid", "bigint"],
    own: "incarnation, batch",
};

pub(super) const PARTS: [Part; 5] = [BORN, ADVANCED, MOVED, TOLD, NOTED];

/// Where it matters how many rows a part wrote.
const COUNTED: [(usize, &str); 3] = [
    (1, "(SELECT count(*) FROM advanced)"),
    (2, "(SELECT count(*) FROM moved)"),
    (4, "(SELECT count(*) FROM noted)"),
];
const WRITTEN: &str = ", pg_current_xact_id()::xid::text::bigint, \
     (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

/// How the rows of a part are given.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// There is one: its values.
    Alone,
    /// An array for each column.
    Arrays,
    /// An array for each column of their own, a value for each of the others.
    Alike,
}

/// Which columns of a part are arrays, a bit for each; the others are values, of the first row.
#[derive(Clone, Copy)]
pub(crate) struct Own(u64);

impl Own {
    pub(super) const NONE: Own = Own(0);

    pub(crate) fn has_first(self) -> bool {
        self.0 & 1 == 1
    }

    pub(crate) fn behind(self, columns: usize) -> Own {
        Own(self.0 >> columns)
    }
}

/// Which statement.
#[derive(Clone, Copy)]
pub(super) struct Which {
    /// Of the parts that there is something for.
    pub(super) shapes: [Option<Shape>; 5],
    pub(super) checks: Checks,
}

/// Of what it checks that it is as it was seen before.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Checks {
    /// All was locked.
    Nothing,
    Runs,
    /// Runs, and queues, whose rows it also writes.
    Queues,
}

impl Which {
    pub(super) fn text(self) -> &'static str {
        static TEXTS: [OnceLock<String>; 3072] = [const { OnceLock::new() }; 3072];
        TEXTS[self.number()].get_or_init(|| made(self))
    }

    /// A digit for each part.
    fn number(self) -> usize {
        let digit = |shape: &Option<Shape>| shape.map_or(0, |shape| 1 + shape as usize);
        let digits = self.shapes.iter().map(digit);
        digits.fold(self.checks as usize, |sum, digit| sum * 4 + digit)
    }
}

/// The parameters of a part: what each column is, and where its rows come from.
struct Given {
    values: Vec<(&'static str, String)>,
    from: String,
    /// The parameter that has as many values as there are rows.
    first: usize,
}

impl Part {
    fn names(&self) -> impl Iterator<Item = &'static str> {
        self.columns.split(',').map(str::trim)
    }

    fn has_own(&self, name: &str, shape: Shape) -> bool {
        let mut own = self.own.split(',').map(str::trim);
        shape != Shape::Alike || own.any(|own| own == name)
    }

    /// Which columns are arrays.
    pub(super) fn own(&self, shape: Shape) -> Own {
        match shape {
            Shape::Alone => Own::NONE,
            Shape::Arrays => Own(u64::MAX),
            Shape::Alike => {
                let bit = |(at, name)| u64::from(self.has_own(name, shape)) << at;
                Own(self.names().enumerate().map(bit).sum())
            }
        }
    }

    /// With one column more if what was seen before is to be checked.
    fn given(&self, shape: Shape, seen: bool, next: &mut usize) -> Given {
        let seen = seen.then_some(("seen", "xid"));
        let columns = self.names().zip(self.types.iter().copied()).chain(seen);
        let (open, of, close) = match shape {
            Shape::Alone => ("(VALUES (", "", "))"),
            Shape::Arrays | Shape::Alike => ("unnest(", "[]", ")"),
        };
        let (first, mut values) = (*next, Vec::new());
        let (mut names, mut places) = (Vec::new(), Vec::new());
        for (name, kind) in columns {
            if name == "seen" || self.has_own(name, shape) {
                places.push(format!("${next}::{kind}{of}"));
                names.push(name);
                values.push((name, format!("new.{name}")));
            } else {
                values.push((name, format!("${next}::{kind}")));
            }
            *next += 1;
        }
        let (names, places) = (names.join(", "), places.join(", "));
        let from = format!("{open}{places}{close} AS new ({names})");
        values.retain(|(name, _)| *name != "seen");
        Given {
            values,
            from,
            first,
        }
    }

    /// The part's statement.
    fn made(&self, given: &Given, seen: bool) -> String {
        let (before, behind) = match self.name {
            "born" => (" AS (INSERT INTO roundel_run (", ")"),
            "told" => (" AS (INSERT INTO roundel_journal (", ")"),
            "noted" => (NOTE, NOTED_WHERE),
            _ if seen => (CHANGE, SEEN_WHERE),
            _ => (CHANGE, CHANGED_WHERE),
        };
        let columns = self.columns;
        let values = given.values.iter();
        let what = match self.name {
            "noted" => String::new(),
            "born" | "told" => {
                let values: Vec<&str> = values.map(|(_, value)| value.as_str()).collect();
                [columns, ") SELECT ", &values.join(", ")].concat()
            }
            _ => {
                let set = |(name, value): &(&str, String)| [name, " = ", value].concat();
                let sets: Vec<String> = values.skip(1).map(set).collect();
                sets.join(", ")
            }
        };
        [self.name, before, &what, " FROM ", &given.from, behind].concat()
    }
}

const CHANGE: &str = " AS (UPDATE roundel_run AS run SET ";
const CHANGED_WHERE: &str = " WHERE run.id = new.id RETURNING 1)";
const SEEN_WHERE: &str = " WHERE run.id = new.id AND run.xmin = new.seen RETURNING 1)";
/// By the server's own clock, which those who forget old rows go by.
const NOTE: &str = " AS (UPDATE roundel_committer AS committer SET batch = new.batch, \
     at = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
const NOTED_WHERE: &str = " WHERE committer.incarnation = new.incarnation RETURNING 1)";

fn made(which: Which) -> String {
    let Which { shapes, checks } = which;
    let looks = checks != Checks::Nothing;
    let (mut next, mut parts, mut right) = (1, Vec::new(), Vec::new());
    for (at, part) in PARTS.iter().enumerate() {
        let Some(shape) = shapes[at] else { continue };
        let seen = looks && [ADVANCED.name, MOVED.name].contains(&part.name);
        let given = part.given(shape, seen, &mut next);
        if let Some((_, count)) = COUNTED.iter().find(|(part, _)| *part == at) {
            right.push(match shape {
                Shape::Alone => format!("{count} = 1"),
                _ => format!("{count} = cardinality(${})", given.first),
            });
        }
        parts.push(part.made(&given, seen));
    }
    if checks == Checks::Queues {
        // Theirs are the first rows to be locked, as they are everywhere.
        right.insert(0, format!("{SPENT_COUNT} = cardinality(${})", next + 1));
        let place = |at: usize, kind: &str| format!("${}::{kind}[]", next + 1 + at);
        let kinds = ["text", "text", "bigint", "xid"].into_iter().enumerate();
        let places: Vec<String> = kinds.map(|(at, kind)| place(at, kind)).collect();
        parts.push([SPENT, &places.join(", "), SPENT_WHERE].concat());
    }
    let mut text = ["WITH ", &parts.join(", "), " SELECT "].concat();
    if looks {
        right.push(format!("{LANES} = ${next}"));
        text.push_str("1 / (");
        text.push_str(&right.join(" AND "));
        text.push_str(")::integer, 0, 0");
    } else {
        let count = |(part, count): (usize, &'static str)| shapes[part].map_or("0", |_| count);
        text.push_str(&COUNTED.map(count).join(", "));
    }
    text.push_str(WRITTEN);
    text
}

/// Up to when the rates of queues are used up. A queue without a rate is written all the same: it
/// has given permits.
const SPENT: &str = "spent AS (UPDATE roundel_queue AS queue SET spent_until = new.spent_until \
     FROM unnest(";
const SPENT_WHERE: &str = ") AS new (namespace, queue, spent_until, seen) \
     WHERE queue.namespace = new.namespace AND queue.queue = new.queue \
     AND queue.xmin = new.seen RETURNING 1)";
const SPENT_COUNT: &str = "(SELECT count(*) FROM spent)";
/// How many lanes there are.
const LANES: &str = "(SELECT coalesce(max(id), 0) FROM roundel_lane)";

/// The columns of a run that are written, in order, and their types.
pub(super) fn columns(kind: Kind) -> (Vec<&'static str>, &'static [&'static str]) {
    let part = match kind {
        Kind::Born => &BORN,
        Kind::Advanced => &ADVANCED,
        Kind::Moved => &MOVED,
    };
    (part.names().collect(), part.types)
}

pub(super) fn told_types() -> &'static [&'static str] {
    TOLD.types
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved(shape: Shape, checks: Checks) -> &'static str {
        let shapes = [None, None, Some(shape), None, None];
        Which { shapes, checks }.text()
    }

    #[test]
    fn what_all_rows_have_is_a_value() {
        let text = moved(Shape::Alike, Checks::Runs);
        assert!(text.starts_with(
            "WITH moved AS (UPDATE roundel_run AS run SET execution = $2::bigint, \
             epoch = new.epoch, "
        ));
        assert!(text.contains(" FROM unnest($1::uuid[], $3::bigint[], "));
        assert!(text.contains(", $34::xid[]) AS new (id, epoch, "));
        assert!(text.contains("outcome, seen) WHERE run.id = new.id AND run.xmin = new.seen"));
        assert!(text.contains("(SELECT count(*) FROM moved) = cardinality($1) AND"));
    }

    #[test]
    fn arrays_are_of_all_columns_and_a_row_alone_has_none() {
        assert!(moved(Shape::Arrays, Checks::Nothing).contains("SET execution = new.execution, "));
        let alone = moved(Shape::Alone, Checks::Runs);
        assert!(alone.contains(" FROM (VALUES ($1::uuid, $2::bigint, ") && !alone.contains("[]"));
        assert!(alone.contains("(SELECT count(*) FROM moved) = 1 AND"));
    }

    #[test]
    fn queues_are_the_first_to_be_locked() {
        let text = moved(Shape::Alone, Checks::Queues);
        assert!(text.contains("spent AS (UPDATE roundel_queue AS queue SET spent_until"));
        assert!(text.contains("unnest($36::text[], $37::text[], $38::bigint[], $39::xid[])"));
        let first = "SELECT 1 / ((SELECT count(*) FROM spent) = cardinality($36) AND";
        assert!(text.contains(first) && text.contains("FROM roundel_lane) = $35"));
    }

    #[test]
    fn every_column_has_a_type_and_what_is_own_is_a_column() {
        for part in &PARTS {
            assert_eq!(part.names().count(), part.types.len(), "{}", part.name);
            for own in part.own.split(',').map(str::trim) {
                assert!(part.names().any(|name| name == own), "{own}");
            }
            assert!(part.own(Shape::Alike).has_first(), "{}", part.name);
        }
    }
}
