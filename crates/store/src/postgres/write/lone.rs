//! A round that is alone in its batch and rests on nothing but its run: one statement in which each
//! part reads from the one before, so that it writes everything or, if the run is no longer as it
//! was, nothing and answers nothing. That is half of what the server does for a statement that
//! counts what its parts wrote (`rounds`), and with one run at a time it is most of a round.
//!
//! | what becomes of the run | what it rests on | is its batch noted |
//! |---|---|---|
//! | it is born | that the process has its row; its own key | yes: it says how a commit came out |
//! | it goes on | who wrote it last | no: nobody else wants to know of it |
//! | it ends, waits, moves | who wrote it last | yes: for those who look instead of listening |
//!
//! All rest on the number of lanes. How the commit of a run that was there came out, its journal
//! says, as for a step.

use std::sync::OnceLock;

use roundel_core::{Changes, JournalRow, RunChange, RunRow};
use sqlx::postgres::PgArguments;

use super::rounds::{self, Guess, Parted, Written};
use super::text::{self as texts, Own};
use crate::cells::number;
use crate::postgres::link::{Link, values};
use crate::postgres::trouble::Trouble;
use crate::postgres::values::Id;

/// What becomes of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::postgres) enum Kind {
    Born,
    Advanced,
    Moved,
}

/// One run and one row of its journal.
pub(in crate::postgres) struct Lone<'a> {
    pub(in crate::postgres) kind: Kind,
    run: &'a RunRow,
    journal: &'a JournalRow,
}

impl<'a> Lone<'a> {
    /// If that is all that there is to write.
    pub(in crate::postgres) fn of(changes: &'a Changes) -> Option<Lone<'a>> {
        let ([run], [journal]) = (changes.runs.as_slice(), changes.journal.as_slice()) else {
            return None;
        };
        let parted = Parted::of(std::slice::from_ref(run));
        let kind = match (parted.born.len(), parted.advanced.len()) {
            (1, _) => Kind::Born,
            (_, 1) => Kind::Advanced,
            _ => Kind::Moved,
        };
        let (RunChange::Insert(run) | RunChange::Update { row: run, .. }) = run;
        Some(Lone { kind, run, journal })
    }

    /// The values of its statement.
    pub(in crate::postgres) fn values(
        &self,
        (incarnation, batch): (Id, u64),
        guess: &Guess<'_>,
    ) -> Result<PgArguments, Trouble> {
        let mut values = values![guess.lanes];
        if self.kind != Kind::Advanced {
            rounds::add(&mut values, incarnation)?;
            rounds::add(&mut values, number(batch))?;
        }
        self.add_run(&mut values, guess)?;
        rounds::add_told(&mut values, Own::NONE, std::slice::from_ref(self.journal))?;
        Ok(values)
    }

    fn add_run(&self, values: &mut PgArguments, guess: &Guess<'_>) -> Result<(), Trouble> {
        let run = [self.run];
        match self.kind {
            Kind::Born => return rounds::add_born(values, Own::NONE, &run),
            Kind::Advanced => rounds::add_advanced(values, Own::NONE, &run)?,
            Kind::Moved => {
                rounds::add_advanced(values, Own::NONE, &run)?;
                rounds::add_moved(values, Own::NONE, &run)?;
            }
        }
        rounds::add(values, (guess.seen)(self.run.id))
    }
}

/// Writes them, and commits. What was decided does not hold if nothing is answered.
pub(in crate::postgres) async fn write(
    link: &mut Link,
    kind: Kind,
    values: PgArguments,
) -> Result<Written, Trouble> {
    let written = link.guess(text(kind), values).await?;
    let row = written.first().ok_or(Trouble::Stale)?;
    rounds::written_by(Some(row), 0)
}

fn text(kind: Kind) -> &'static str {
    static TEXTS: [OnceLock<String>; 3] = [const { OnceLock::new() }; 3];
    TEXTS[kind as usize].get_or_init(|| made(kind))
}

const NO_NEW_LANE: &str = " AND NOT EXISTS (SELECT FROM roundel_lane WHERE id > $1::integer)";
const TOLD: &str = " INSERT INTO roundel_journal \
     (run, execution, first, count, epoch, at, entries) SELECT ";
const RETURNED: &str = " RETURNING pg_current_xact_id()::xid::text::bigint, \
     (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

/// Sets the row of the process.
const NOTED: &str = "noted AS (UPDATE roundel_committer SET batch = $3::bigint, \
     at = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
const ITS_OWN: &str = " WHERE incarnation = $2::uuid";

/// The number of lanes comes first, then process and batch if they are noted, then the run, who
/// wrote it last if it was there, and its journal.
fn made(kind: Kind) -> String {
    let mut next = if kind == Kind::Advanced { 2 } else { 4 };
    let mut take = |kind: &&str| {
        next += 1;
        format!("${}::{kind}", next - 1)
    };
    let (columns, types) = texts::columns(kind);
    let places: Vec<String> = types.iter().map(&mut take).collect();
    let seen = (kind != Kind::Born).then(|| take(&"xid"));
    let told: Vec<String> = texts::told_types().iter().map(&mut take).collect();
    let told = told.join(", ");
    let Some(seen) = seen else {
        let (columns, places) = (columns.join(", "), places.join(", "));
        let noted = ["WITH ", NOTED, ITS_OWN, NO_NEW_LANE, " RETURNING 1), "];
        let born = ["born AS (INSERT INTO roundel_run (", &columns, ") SELECT "];
        let rest = [
            &places,
            " FROM noted)",
            TOLD,
            &told,
            " FROM noted",
            RETURNED,
        ];
        return [noted.concat(), born.concat(), rest.concat()].concat();
    };
    let pairs = columns.iter().zip(&places).skip(1);
    let sets: Vec<String> = pairs.map(|(name, at)| format!("{name} = {at}")).collect();
    let (sets, id) = (sets.join(", "), &places[0]);
    let run = [
        "WITH run AS (UPDATE roundel_run SET ",
        &sets,
        " WHERE id = ",
        id,
    ];
    let seen = [" AND xmin = ", &seen, NO_NEW_LANE, " RETURNING 1)"];
    let noted = match kind {
        Kind::Advanced => String::new(),
        _ => [", ", NOTED, " FROM run", ITS_OWN, ")"].concat(),
    };
    let rest = [TOLD, &told, " FROM run", RETURNED];
    [run.concat(), seen.concat(), noted, rest.concat()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_that_goes_on_touches_its_run_and_its_journal_alone() {
        let text = text(Kind::Advanced);
        assert!(text.starts_with("WITH run AS (UPDATE roundel_run SET execution = $3::bigint"));
        assert!(text.contains(" WHERE id = $2::uuid AND xmin = $19::xid AND NOT EXISTS"));
        assert!(!text.contains("roundel_committer") && !text.contains("ready_at ="));
        assert!(text.contains("$26::bytea FROM run RETURNING"));
    }

    #[test]
    fn what_others_may_wait_for_is_noted() {
        for kind in [Kind::Born, Kind::Moved] {
            assert!(text(kind).contains("UPDATE roundel_committer SET batch = $3::bigint"));
        }
    }
}
