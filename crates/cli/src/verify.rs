//! `verify`: is the file sound, and does everything hold that must?

use std::path::PathBuf;

use clap::Args;
use roundel::{Checked, Invariant, Violation};
use roundel_store::{Depth, Options, Sqlite, Store};
use serde_json::{Value, json};

use crate::database::Database;
use crate::exit::{Exit, Failed, Result};
use crate::show::{Output, Progress, Screen, Style, clean};

/// Violations that are shown; all are counted.
const MOST: usize = 1000;

/// Check the file, and that what must be true of every run is.
#[derive(Args, Debug)]
pub struct Verify {
    /// Leave out the file's own check, which reads every page.
    #[arg(long)]
    rows_only: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// What was found.
#[derive(Default)]
struct Found {
    checked: Checked,
    /// The file itself was looked at.
    file: bool,
    violations: Vec<Violation>,
    count: u64,
}

impl Found {
    fn add(&mut self, violations: Vec<Violation>) {
        self.count += violations.len() as u64;
        let room = MOST.saturating_sub(self.violations.len());
        self.violations.extend(violations.into_iter().take(room));
    }

    fn take(&mut self, checked: std::result::Result<Checked, roundel::Error>) -> Result<()> {
        match checked {
            Ok(checked) => self.checked = checked,
            // A row that cannot even be read is a finding too.
            Err(roundel::Error::Unusable(message)) => self.add(vec![damage(message)]),
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

pub(crate) async fn run(args: &Verify, database: &Database) -> Result<Exit> {
    let mut found = Found::default();
    if let Some(path) = database.path().filter(|_| !args.rows_only) {
        let path = path.to_owned();
        let check = tokio::task::spawn_blocking(move || {
            let mut progress = Progress::new();
            let mut signs = 0_u64;
            Sqlite::integrity(&path, move || {
                signs += 1;
                progress.say(&format!(
                    "checking the file{}",
                    ".".repeat((signs % 4) as usize)
                ));
            })
        });
        let lines = check
            .await
            .map_err(|error| Failed::new(Exit::NotNow, error.to_string()))?;
        let lines = lines.map_err(|error| database.explain(roundel::Error::from(error).into()))?;
        found.file = true;
        found.add(lines.into_iter().map(damage).collect());
    }
    let damaged = found.count > 0;
    match rows(database, &mut found).await {
        // What is damaged may not open: that is what was found, not a failure to look.
        Err(failed) if damaged && failed.exit == Exit::Database => {
            found.add(vec![damage(failed.message)]);
        }
        other => other?,
    }
    let mut screen = args.output.screen();
    if args.output.json {
        screen.json(&found.json());
    } else {
        found.show(&mut screen);
    }
    screen.flush()?;
    Ok(if found.count == 0 {
        Exit::Done
    } else {
        Exit::No
    })
}

async fn rows(database: &Database, found: &mut Found) -> Result<()> {
    if let Some(path) = database.path() {
        return rows_of(path.to_owned(), database, found).await;
    }
    let connected = database.connect().await?;
    let mut progress = Progress::new();
    let told = |checked: &Checked, violations: Vec<Violation>| {
        let (runs, offers) = (checked.runs, checked.offers);
        progress.say(&format!("{runs} runs, {offers} offers checked ..."));
        found.add(violations);
    };
    let checked = connected.client.verify(told).await;
    drop(progress);
    connected.close().await;
    found.take(checked)
}

/// Those of a file: also of a backup, and of one that was moved, which nobody else opens.
async fn rows_of(path: PathBuf, database: &Database, found: &mut Found) -> Result<()> {
    let options = Options {
        create: false,
        also_marked: true,
        ..Options::default()
    };
    let opened = tokio::task::spawn_blocking(move || Sqlite::open(&path, options)).await;
    let opened = opened.map_err(|error| Failed::new(Exit::NotNow, error.to_string()))?;
    let store = opened.map_err(|error| database.explain(roundel::Error::from(error).into()))?;
    let mut progress = Progress::new();
    let told = |checked: &Checked, violations: Vec<Violation>| {
        let (runs, offers) = (checked.runs, checked.offers);
        progress.say(&format!("{runs} runs, {offers} offers checked ..."));
        found.add(violations);
    };
    let checked = roundel_store::verify(&store, Depth::Entries, told).await;
    drop(progress);
    let _ = tokio::task::spawn_blocking(move || store.close()).await;
    found.take(checked.map_err(roundel::Error::from))
}

fn damage(found: String) -> Violation {
    Violation {
        invariant: Invariant::Storage,
        run: None,
        found,
        expected: "a sound file".into(),
    }
}

impl Found {
    fn json(&self) -> Value {
        let violations = self.violations.iter().map(|violation| {
            json!({
                "invariant": violation.invariant.as_str(),
                "run": violation.run,
                "found": violation.found,
                "expected": violation.expected,
            })
        });
        json!({
            "sound": self.count == 0,
            "file_checked": self.file,
            "runs": self.checked.runs,
            "rounds": self.checked.rounds,
            "messages": self.checked.messages,
            "offers": self.checked.offers,
            "audited": self.checked.audited,
            "facts": self.checked.facts,
            "violations": violations.collect::<Vec<_>>(),
            "violations_found": self.count,
        })
    }

    fn show(&self, screen: &mut Screen) {
        for violation in &self.violations {
            let name = screen.paint(Style::Bad, violation.invariant.as_str());
            let run = violation
                .run
                .map_or_else(String::new, |run| format!("  run {run}"));
            screen.line(&format!("{name}{run}"));
            screen.line(&format!("  found     {}", clean(&violation.found)));
            screen.line(&format!("  expected  {}", clean(&violation.expected)));
        }
        let hidden = self.count - self.violations.len() as u64;
        if hidden > 0 {
            screen.line(&format!("… and {hidden} more"));
        }
        let Checked {
            runs,
            rounds,
            messages,
            offers,
            audited,
            facts,
            ..
        } = self.checked;
        let file = if self.file { "the file, " } else { "" };
        screen.line(&format!(
            "checked {file}{runs} runs, {rounds} rounds, {messages} messages, {offers} offers, \
             {audited} audited, {facts} facts"
        ));
        let verdict = match self.count {
            0 => screen.paint(Style::Good, "sound: everything that must hold does"),
            1 => screen.paint(
                Style::Bad,
                "1 violation; keep a copy of the file before you act",
            ),
            many => {
                let text = format!("{many} violations; keep a copy of the file before you act");
                screen.paint(Style::Bad, &text)
            }
        };
        screen.line(&verdict);
    }
}
