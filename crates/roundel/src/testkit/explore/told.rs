//! How a failure is told: what went wrong where, what then happened, what broke, and the line that
//! plays it again.

use std::fmt;

use super::play::Played;
use super::points::Line;
use super::{Report, SEED};

/// Lines that are told before and after a fault; the rest is left out.
const AROUND: usize = 8;
/// Lines that are told of what has no fault near.
const PLAIN: usize = 40;

/// A schedule that breaks a test. As text it is the whole report.
pub struct Broken {
    played: Box<Played>,
    report: Report,
    test: Option<String>,
}

impl Broken {
    pub(super) fn new(played: Box<Played>, report: Report, test: Option<String>) -> Broken {
        Broken {
            played,
            report,
            test,
        }
    }

    /// What plays it again, as `ROUNDEL_SEED` or in [`super::Exploration::only`].
    #[must_use]
    pub fn schedule(&self) -> String {
        self.played.schedule.to_string()
    }

    /// What is wrong.
    #[must_use]
    pub fn why(&self) -> &str {
        match &self.played.verdict {
            Ok(()) => "",
            Err(why) => why,
        }
    }

    /// The faults, each as a sentence.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        self.played
            .lines
            .iter()
            .filter_map(Line::sentence)
            .collect()
    }

    /// What was explored until it was found.
    #[must_use]
    pub fn explored(&self) -> Report {
        self.report
    }
}

impl fmt::Debug for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Broken({}: {})", self.schedule(), self.why())
    }
}

impl std::error::Error for Broken {}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults = self.faults();
        match (faults.is_empty(), self.report.schedules) {
            (true, _) => writeln!(f, "the test fails without any fault:")?,
            (_, 1) => writeln!(f, "this schedule breaks the test:")?,
            (_, count) => writeln!(f, "schedule {count} breaks the test:")?,
        }
        for fault in &faults {
            writeln!(f, "  - {fault}")?;
        }
        writeln!(f, "\nwhat is wrong\n  {}", self.why().replace('\n', "\n  "))?;
        writeln!(f, "\nwhat happened\n{}", shown(&self.played.lines))?;
        writeln!(f, "{}", self.played.timelines.trim_end())?;
        let test = self.test.as_deref().unwrap_or_default();
        let line = format!("{SEED}={} cargo test {test}", self.schedule());
        write!(f, "\nto play it again\n  {}", line.trim_end())
    }
}

/// The lines around what went wrong.
fn shown(lines: &[Line]) -> String {
    let struck: Vec<usize> = (0..lines.len())
        .filter(|index| lines[*index].struck.is_some())
        .collect();
    let near = |index: usize| {
        let close = |at: &usize| index.abs_diff(*at) <= AROUND;
        lines.len() <= PLAIN || struck.iter().any(close) || lines.len() - index <= AROUND
    };
    let mut text = String::new();
    let mut left_out = 0;
    for (index, line) in lines.iter().enumerate() {
        if !near(index) {
            left_out += 1;
            continue;
        }
        if left_out > 0 {
            text += &format!("{:>16}  {left_out} more\n", "");
            left_out = 0;
        }
        text += &format!("{line}\n");
    }
    text
}

/// Where two plays of one schedule differ: what they do must not depend on anything else.
pub(super) fn difference(first: &[Line], again: &[Line]) -> Option<String> {
    let longest = first.len().max(again.len());
    let at = (0..longest).find(|at| first.get(*at) != again.get(*at))?;
    let told = |line: Option<&Line>| line.map_or("nothing more".into(), Line::to_string);
    Some(format!(
        "played twice, it is not the same, so no schedule could be played again; does it depend on \
         real time, random numbers, the order of a hash map, or what an earlier play left behind?\n\
         first: {}\nthen:  {}",
        told(first.get(at)),
        told(again.get(at))
    ))
}
