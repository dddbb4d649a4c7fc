//! What must be true in the end: everything happened, and once.

use roundel::{Checked, RunState, Violation};
use roundel_core::Outcome;
use roundel_store::Sqlite;

use crate::ground::Ground;
use crate::harness::{Harness, Tally};
use crate::walk::{STEPS, expected};

/// With so many kills there are zombies, some of which were about to commit.
const ENOUGH: u32 = 100;

/// What was found, and what should not have been.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) wrong: Vec<String>,
    pub(crate) completed: u32,
    pub(crate) rows: i64,
    pub(crate) duplicates: i64,
}

/// Looks at the runs, at every row of the engine, at the file and at the user's own table.
pub(crate) async fn audit(harness: &Harness) -> Findings {
    let mut found = Findings::default();
    results(harness, &mut found).await;
    unsound(harness, &mut found).await;
    harness.engine.shutdown().await;
    match &harness.ground {
        Ground::File(file) => {
            let torn = Sqlite::integrity(file, || ());
            found.wrong.extend(torn.expect("the file opens"));
        }
        #[cfg(feature = "postgres")]
        Ground::Server(_) => {}
    }
    ledger(&harness.ground, harness.started, &mut found).await;
    found
}

/// Runs that did not complete, or not with what they should have; and how many did.
async fn results(harness: &Harness, found: &mut Findings) {
    for number in 1..=harness.started {
        let run = harness.engine.run(number.to_string()).await;
        let row = run.expect("a run").row;
        match (row.state, row.outcome) {
            (RunState::Completed, Some(Outcome::Value(value)))
                if value.decode::<u32>().ok() == Some(expected(number)) =>
            {
                found.completed += 1;
            }
            (state, outcome) => {
                let said = match outcome {
                    Some(Outcome::Value(value)) => value.as_str().to_owned(),
                    Some(Outcome::Failure(failure)) => failure.to_string(),
                    None => "nothing".into(),
                };
                let what = format!("run {number} is {}: {said}", state.as_str());
                found.wrong.push(what);
            }
        }
    }
}

/// What the checker finds, and what is left over when all is done.
async fn unsound(harness: &Harness, found: &mut Findings) {
    let told = |_: &Checked, violations: Vec<Violation>| {
        let told = violations.iter().map(ToString::to_string);
        found.wrong.extend(told);
    };
    let checked = harness.engine.verify(told).await;
    let checked = checked.expect("rows that can be read");
    if (checked.messages, checked.offers) != (0, 0) {
        let what = format!("{checked:?}: messages are left");
        found.wrong.push(what);
    }
}

async fn ledger(ground: &Ground, started: u32, found: &mut Findings) {
    let rows = ground.count("SELECT count(*) FROM ledger").await;
    let distinct = "SELECT count(*) FROM (SELECT DISTINCT run, step FROM ledger) AS noted";
    let duplicates = rows - ground.count(distinct).await;
    let walks = i64::from(started);
    let done = "SELECT count(*) FROM roundel_run WHERE state = 'completed'";
    let checks = [
        ("steps that happened twice", duplicates, 0),
        ("rows that steps wrote", rows, walks * i64::from(STEPS + 1)),
        (
            "runs that completed, with children",
            ground.count(done).await,
            2 * walks,
        ),
    ];
    let wrong = checks.iter().filter(|(_, found, wanted)| found != wanted);
    let wrong = wrong.map(|(what, found, wanted)| format!("{what}: {found} instead of {wanted}"));
    found.wrong.extend(wrong);
    (found.rows, found.duplicates) = (rows, duplicates);
}

/// Kills that found nothing to interrupt, and zombies that nobody had to refuse, prove nothing.
/// Every zombie that lost runs must have been told so.
pub(crate) fn missed(tally: &Tally) -> Vec<String> {
    let Tally {
        kills,
        in_flight,
        zombies,
        refused,
        fenced,
        ..
    } = *tally;
    let mut wrong = Vec::new();
    if in_flight * 3 <= kills {
        wrong.push(format!("only {in_flight} of {kills} kills hit work"));
    }
    if refused < zombies {
        wrong.push(format!("only {refused} of {zombies} zombies were refused"));
    }
    if kills >= ENOUGH && (zombies == 0 || fenced * 4 < zombies) {
        let what = format!("only {fenced} of {zombies} zombies tried to commit and were refused");
        wrong.push(what);
    }
    wrong
}
