//! A run's journal, for people: what happened when, and assertions whose messages show it.

use std::fmt;
use std::time::Duration;

use roundel_core::{Context, Entry, Failure, Outcome, RunRow, Why, decode_entries};
use roundel_store::Dump;

/// What happened in a run, in order, with the time since it was started.
#[derive(Clone, PartialEq, Debug)]
pub struct Timeline {
    title: String,
    events: Vec<(Duration, Entry)>,
}

impl Timeline {
    /// Of this run's current execution.
    pub(super) fn of(run: &RunRow, dump: &Dump) -> Option<Timeline> {
        let mut events = Vec::new();
        let rows = dump.journal.iter();
        for row in rows.filter(|row| (row.run, row.execution) == (run.id, run.execution)) {
            let after = row.at.since(run.created_at);
            let entries = decode_entries(&row.entries).ok()?;
            events.extend(entries.into_iter().map(|entry| (after, entry)));
        }
        let Some((_, Entry::Started { workflow, .. })) = events.first() else {
            return None;
        };
        let (id, state) = (run.id, run.state.as_str());
        let title = format!("run {id} of workflow `{workflow}`, {state}");
        Some(Timeline { title, events })
    }

    /// Each entry of the journal, and how long after the start it was committed.
    pub fn events(&self) -> impl Iterator<Item = (Duration, &Entry)> {
        self.events.iter().map(|(after, entry)| (*after, entry))
    }

    /// The durable calls, in the order in which they began: `effect charge`, `wait signed`,
    /// `sleep`.
    #[must_use]
    pub fn calls(&self) -> Vec<String> {
        let mut seen = std::collections::BTreeSet::new();
        let mut calls = Vec::new();
        for (_, entry) in &self.events {
            let (Entry::Begun { call, what }
            | Entry::Did { call, what, .. }
            | Entry::Attempted { call, what, .. }) = entry
            else {
                continue;
            };
            if seen.insert(*call) {
                calls.push(spelled(what));
            }
        }
        calls
    }

    /// Asserts that exactly these calls were made, in this order.
    ///
    /// # Panics
    /// When they were not: the message shows both sides and the timeline.
    #[track_caller]
    pub fn assert_calls<'a>(&self, expected: impl IntoIterator<Item = &'a str>) -> &Self {
        let (expected, found): (Vec<&str>, _) = (expected.into_iter().collect(), self.calls());
        if expected == found {
            return self;
        }
        let mut lines = String::new();
        for number in 0..expected.len().max(found.len()) {
            let left = expected.get(number).copied().unwrap_or("(nothing)");
            let right = found.get(number).map_or("(nothing)", String::as_str);
            let mark = if left == right { ' ' } else { '>' };
            lines += &format!("{mark} {left:<30} {right}\n");
        }
        let (left, right) = ("expected", "found");
        panic!("these are not the calls that were made\n  {left:<30} {right}\n{lines}\n{self}");
    }

    /// Asserts that these calls were made, in this order, whatever else was between them.
    ///
    /// # Panics
    /// When one of them is missing at its place: the message names it and shows the timeline.
    #[track_caller]
    pub fn assert_in_order<'a>(&self, expected: impl IntoIterator<Item = &'a str>) -> &Self {
        let found = self.calls();
        let mut left = found.iter();
        let mut before = None;
        for call in expected {
            if !left.any(|found| found == call) {
                let place = before.map_or(String::new(), |call| format!(" after `{call}`"));
                panic!("expected the call `{call}`{place}, found none\n{self}");
            }
            before = Some(call);
        }
        self
    }

    /// Asserts that no such call was made.
    ///
    /// # Panics
    /// When there was one: the message shows the timeline.
    #[track_caller]
    pub fn assert_never(&self, call: &str) -> &Self {
        assert!(
            !self.calls().iter().any(|found| found == call),
            "expected no call `{call}`, found one\n{self}"
        );
        self
    }
}

/// Kind and name.
fn spelled(what: &roundel_core::Call) -> String {
    let (kind, name) = what.signature();
    format!("{kind} {name}").trim_end().to_owned()
}

impl fmt::Display for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.title)?;
        let mut names = std::collections::BTreeMap::new();
        for (after, entry) in &self.events {
            write!(f, "{:>16}  ", shown(*after))?;
            match entry {
                Entry::Started { input, .. } => writeln!(f, "started with {}", input.as_str())?,
                Entry::Begun { call, what } => {
                    writeln!(f, "{call}: {what} began")?;
                    names.insert(*call, what.to_string());
                }
                Entry::Did {
                    call,
                    what,
                    outcome,
                } => writeln!(f, "{call}: {what} {}", ended(outcome))?,
                Entry::Done { call, outcome } => {
                    let what = names.get(call).map_or("", String::as_str);
                    writeln!(f, "{call}: {what} {}", ended(outcome))?;
                }
                Entry::Attempted {
                    call,
                    what,
                    attempt,
                    failure,
                    at,
                    retry_at,
                } => {
                    let pause = shown(retry_at.since(*at));
                    writeln!(
                        f,
                        "{call}: {what} failed, attempt {attempt}, next in {pause}: {failure}"
                    )?;
                }
                Entry::Dropped { call } => {
                    let what = names.get(call).map_or("", String::as_str);
                    writeln!(f, "{call}: {what} was let go")?;
                }
                Entry::Worked {
                    call, what, value, ..
                } => {
                    writeln!(
                        f,
                        "{call}: {what} returned {}, waits for what it set off",
                        value.as_str()
                    )?;
                    names.insert(*call, what.to_string());
                }
                Entry::Settled {
                    call,
                    ends,
                    failure,
                } => {
                    let what = names.get(call).map_or("", String::as_str);
                    let ended = ends.len();
                    match failure {
                        None => writeln!(f, "{call}: {what} settled, {ended} ended")?,
                        Some(failure) => writeln!(f, "{call}: {what} failed: {failure}")?,
                    }
                }
                Entry::RollingBack { why, .. } => writeln!(f, "rolls back: {}", reason(why))?,
                Entry::ContextSet { context } => writeln!(f, "set {}", keys(context))?,
                Entry::DeadlineMissed { .. } => writeln!(f, "missed its deadline")?,
                Entry::CancelSeen | Entry::Kept => writeln!(f, "{}", asked(entry))?,
                Entry::Continued => writeln!(f, "begins anew")?,
                Entry::Ended { state } => writeln!(f, "{}", state.as_str())?,
            }
        }
        Ok(())
    }
}

fn asked(entry: &Entry) -> &'static str {
    match entry {
        Entry::Kept => "asked to end without undo",
        _ => "asked to end",
    }
}

fn reason(why: &Why) -> String {
    match why {
        Why::Failed(failure) => format!("it failed: {failure}"),
        Why::Cancelled => "it was cancelled".into(),
        Why::Asked => "it is undone".into(),
        Why::Retried => "an undo that failed is tried again".into(),
        Why::Skipped => "an undo that failed is left out".into(),
    }
}

/// What was set in the context.
fn keys(context: &Context) -> String {
    let keys: Vec<&str> = context.iter().map(|(key, _)| key.as_str()).collect();
    format!("{} in its context", keys.join(", "))
}

fn ended(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Value(value) => format!("returned {}", value.as_str()),
        Outcome::Failure(failure) => {
            let failure: &Failure = failure;
            format!("failed: {failure}")
        }
    }
}

/// Days, then hours, minutes, seconds, and milliseconds if there are any.
pub(super) fn shown(span: Duration) -> String {
    let seconds = span.as_secs();
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (hours, minutes, seconds) = (rest / 3600, rest / 60 % 60, rest % 60);
    let mut text = match days {
        0 => String::new(),
        days => format!("{days}d "),
    };
    text += &format!("{hours:02}:{minutes:02}:{seconds:02}");
    match span.subsec_millis() {
        0 => text,
        millis => format!("{text}.{millis:03}"),
    }
}
