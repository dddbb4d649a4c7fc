//! How far long work is: a bar on a terminal; elsewhere a line for each phase, and now and then.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use serde_json::json;

use super::Progress;

/// Lines are this far apart, where nobody sits.
const LINES: Duration = Duration::from_secs(5);
/// Characters of the bar.
const BAR: u64 = 24;

/// On standard error.
pub(crate) struct Far {
    bar: Option<Progress>,
    json: bool,
    last: Option<(&'static str, Instant)>,
}

impl Far {
    pub(crate) fn new(json: bool) -> Far {
        Far {
            bar: io::stderr().is_terminal().then(Progress::new),
            json,
            last: None,
        }
    }

    /// What is done with so many of these things, of so many.
    pub(crate) fn say(&mut self, (phase, things): (&'static str, &str), done: u64, of: u64) {
        if let Some(bar) = &mut self.bar {
            bar.say(&format!(
                "{} {phase}: {done} of {of} {things}",
                full(done, of)
            ));
            return;
        }
        let is_due = |(last, at): (&str, Instant)| last != phase || at.elapsed() >= LINES;
        if self.last.is_none_or(is_due) {
            self.last = Some((phase, Instant::now()));
            let line = match self.json {
                true => json!({"phase": phase, things: done, "of": of}).to_string(),
                false => format!("{phase}: {done} of {of} {things}"),
            };
            let _ = writeln!(io::stderr(), "{line}");
        }
    }

    /// What is done, of which nobody knows how long it takes.
    pub(crate) fn work(&mut self, (phase, things): (&'static str, &str), done: u64) {
        if let Some(bar) = &mut self.bar {
            bar.say(&format!("{phase}: {done} {things} ..."));
        } else if self
            .last
            .is_none_or(|(last, at)| last != phase || at.elapsed() >= LINES)
        {
            self.last = Some((phase, Instant::now()));
            let line = match self.json {
                true => json!({"phase": phase, things: done}).to_string(),
                false => format!("{phase}: {done} {things}"),
            };
            let _ = writeln!(io::stderr(), "{line}");
        }
    }
}

fn full(done: u64, of: u64) -> String {
    let full = (done * BAR).checked_div(of).unwrap_or(BAR).min(BAR);
    let full = usize::try_from(full).unwrap_or_default();
    let rest = usize::try_from(BAR).unwrap_or_default() - full;
    "█".repeat(full) + &"░".repeat(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_long_as_what_is_done() {
        let length = |done, of| full(done, of).matches('█').count();
        assert_eq!(length(0, 10), 0);
        assert_eq!(length(5, 10), 12);
        assert_eq!(length(10, 10), 24);
        assert_eq!(length(11, 10), 24);
        assert_eq!(length(0, 0), 24);
    }
}
