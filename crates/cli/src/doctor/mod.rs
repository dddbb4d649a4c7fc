//! `doctor`: looks at a database from all sides, and says what is wrong or unwise and what to do.
//!
//! Everything is looked at once and nothing is changed; what `verify` checks, row by row, is left
//! to it.

mod file;
mod rows;
mod server;

use clap::Args;
use serde_json::json;

use crate::database::{Connected, Database};
use crate::exit::{Exit, Failed, Result};
use crate::show::{Output, Screen, Style, clean};

/// Look for what is wrong or unwise, and say what to do about it.
#[derive(Args, Debug)]
pub struct Doctor {
    #[command(flatten)]
    pub(crate) output: Output,
}

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Level {
    /// As it should be.
    Fine,
    /// It works, and may hurt one day.
    Unwise,
    /// Something does not work, or somebody has to act.
    Wrong,
}

impl Level {
    fn as_str(self) -> &'static str {
        match self {
            Level::Fine => "fine",
            Level::Unwise => "unwise",
            Level::Wrong => "wrong",
        }
    }

    fn style(self) -> Style {
        match self {
            Level::Fine => Style::Good,
            Level::Unwise => Style::Look,
            Level::Wrong => Style::Bad,
        }
    }
}

/// What was found about one thing.
#[derive(Debug)]
struct Finding {
    level: Level,
    /// Which thing: a word that stays.
    about: &'static str,
    found: String,
    /// What to do about it; nothing if it is fine.
    advice: String,
}

/// All that was found.
#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn fine(&mut self, about: &'static str, found: impl Into<String>) {
        self.0.push(Finding {
            level: Level::Fine,
            about,
            found: found.into(),
            advice: String::new(),
        });
    }

    fn unwise(&mut self, about: &'static str, found: impl Into<String>, advice: &str) {
        self.0.push(Finding {
            level: Level::Unwise,
            about,
            found: found.into(),
            advice: advice.to_owned(),
        });
    }

    fn wrong(&mut self, about: &'static str, found: impl Into<String>, advice: &str) {
        self.0.push(Finding {
            level: Level::Wrong,
            about,
            found: found.into(),
            advice: advice.to_owned(),
        });
    }

    fn count(&self, level: Level) -> usize {
        let alike = self.0.iter().filter(|finding| finding.level == level);
        alike.count()
    }
}

pub(crate) async fn run(args: &Doctor, database: &Database) -> Result<Exit> {
    let mut findings = Findings::default();
    if let Some(path) = database.path() {
        file::look(path, database, &mut findings).await?;
    }
    let connected = database.connect().await;
    match connected {
        Ok(connected) => rows_and_server(connected, database, &mut findings).await?,
        // What cannot be opened has been looked at from outside, and that it cannot is a finding.
        Err(failed) if !findings.0.is_empty() && failed.exit == Exit::Database => {
            findings.wrong("opening", failed.message, "do what the message says");
        }
        Err(failed) => return Err(failed),
    }
    let mut screen = args.output.screen();
    match args.output.json {
        true => as_json(&mut screen, &findings),
        false => show(&mut screen, &findings),
    }
    screen.flush()?;
    Ok(match findings.count(Level::Wrong) {
        0 => Exit::Done,
        _ => Exit::No,
    })
}

async fn rows_and_server(
    connected: Connected,
    database: &Database,
    findings: &mut Findings,
) -> Result<()> {
    let looked = async {
        if database.is_server() {
            server::look(&connected.client, findings).await?;
        }
        rows::look(&connected.client, findings).await
    };
    let looked: std::result::Result<(), roundel::Error> = looked.await;
    connected.close().await;
    looked.map_err(Failed::from)
}

fn as_json(screen: &mut Screen, findings: &Findings) {
    for finding in &findings.0 {
        screen.json(&json!({
            "level": finding.level.as_str(),
            "about": finding.about,
            "found": finding.found,
            "advice": finding.advice,
        }));
    }
}

fn show(screen: &mut Screen, findings: &Findings) {
    for finding in &findings.0 {
        let level = format!("{:<7}", finding.level.as_str());
        let level = screen.paint(finding.level.style(), &level);
        let about = screen.paint(Style::Head, &format!("{:<13}", finding.about));
        let lines = screen.wrapped(&finding.found, 20);
        for (number, line) in lines.iter().enumerate() {
            match number {
                0 => screen.line(&format!("{level}{about}{line}")),
                _ => screen.line(&format!("{:20}{line}", "")),
            }
        }
        if finding.advice.is_empty() {
            continue;
        }
        for line in screen.wrapped(&finding.advice, 20) {
            let line = screen.paint(Style::Dim, &clean(&line));
            screen.line(&format!("{:20}{line}", ""));
        }
    }
    let (wrong, unwise) = (findings.count(Level::Wrong), findings.count(Level::Unwise));
    let verdict = match (wrong, unwise) {
        (0, 0) => screen.paint(Style::Good, "all is well"),
        (0, _) => screen.paint(Style::Look, &format!("nothing is wrong; {unwise} unwise")),
        _ => screen.paint(Style::Bad, &format!("{wrong} wrong, {unwise} unwise")),
    };
    screen.line(&verdict);
}

/// Bytes, for people.
fn megabytes(bytes: u64) -> String {
    match bytes >> 20 {
        0 => format!("{} kB", bytes.div_ceil(1024)),
        megabytes if megabytes < 10_000 => format!("{megabytes} MB"),
        megabytes => format!("{} GB", megabytes >> 10),
    }
}
