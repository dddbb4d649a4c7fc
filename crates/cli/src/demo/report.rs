//! What is said in the end: what happened, what survived, what to try next.

use std::fmt::Write;

use serde::Serialize;

use super::audit::Check;
use super::counts::Counts;
use super::day::Tally;
use super::outside::Book;

/// The summary; with `--json` this is what is printed.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// The file, or the schema and the server.
    pub(super) place: String,
    pub(super) seed: u64,
    pub(super) seconds: f64,
    pub(super) orders: usize,
    /// Cards that were declined.
    pub(super) declined: usize,
    /// Shipments that the carrier refused.
    pub(super) refused: usize,
    #[serde(flatten)]
    pub(super) counts: Counts,
    /// Requests that reached the card company or the carrier.
    pub(super) calls: u64,
    /// Of these, those that were done before: asked again under the same key.
    pub(super) calls_again: u64,
    pub(super) signals_sent: u64,
    pub(super) signals_kept: u64,
    pub(super) workers: usize,
    pub(super) kills: usize,
    /// Runs that had not ended at a kill and went on in another process.
    pub(super) resumed: usize,
    /// Of these, those that the killed worker had in hand.
    pub(super) resumed_in_hand: usize,
    /// Orders and signals accepted while there was no worker.
    pub(super) accepted_without_worker: u64,
    pub(super) checks: Vec<Check>,
    /// Commands that show more.
    pub(super) next: Vec<String>,
    /// Does all of it add up?
    pub(super) adds_up: bool,
}

/// What the report is made from.
pub(super) struct Findings<'a> {
    pub(super) place: &'a str,
    /// What commands need to look at it.
    pub(super) arguments: &'a str,
    pub(super) seed: u64,
    pub(super) orders: usize,
    pub(super) declined: usize,
    pub(super) refused: usize,
    pub(super) tally: &'a Tally,
    pub(super) book: &'a Book,
    pub(super) counts: Counts,
    pub(super) checks: Vec<Check>,
    /// The place in the plan of an order that was undone.
    pub(super) undone: Option<usize>,
}

impl Report {
    pub(super) fn new(found: Findings<'_>) -> Report {
        let (tally, book) = (found.tally, found.book);
        let adds_up = found.checks.iter().all(|check| check.holds);
        Report {
            place: found.place.to_owned(),
            seed: found.seed,
            seconds: (tally.seconds * 10.0).round() / 10.0,
            orders: found.orders,
            declined: found.declined,
            refused: found.refused,
            counts: found.counts,
            calls: book.calls,
            calls_again: book.again,
            signals_sent: tally.delivered + tally.queued + tally.late,
            signals_kept: tally.queued,
            workers: tally.workers,
            kills: tally.kills,
            resumed: tally.resumed.len(),
            resumed_in_hand: tally.in_hand.len(),
            accepted_without_worker: tally.meanwhile,
            checks: found.checks,
            next: next(found.arguments, tally.example.clone(), found.undone),
            adds_up,
        }
    }

    /// For people, in 80 columns.
    pub(super) fn text(&self) -> String {
        let mut text = format!("What happened, in {:.1} s\n", self.seconds);
        for (what, count, about) in self.happened() {
            let _ = writeln!(text, "  {what:9} {count:>5}  {about}");
        }
        let (resumed, in_hand) = (self.resumed, self.resumed_in_hand);
        let (meanwhile, again) = (self.accepted_without_worker, self.calls_again);
        let (lost, rolled_back) = (self.declined + self.refused, self.counts.rolled_back);
        let _ = write!(
            text,
            "
What survived
  {resumed} runs were under way at a kill, {in_hand} of them in the worker's hands; all
  went on in the next process, from their journals. {meanwhile} orders and signals
  came while there was no worker. {again} calls were made again, with the same
  key: they had been made, and the worker was gone before it could say so.

What was undone
  {lost} orders could not be fulfilled. What had been done for them, in
  {rolled_back} runs, was undone, newest first: pieces, charges, labels.

Does it add up? Asked of the shop's own tables
"
        );
        for check in &self.checks {
            let verdict = if check.holds { "yes" } else { "NO " };
            let _ = writeln!(text, "  {verdict}  {:38}  {}", check.what, check.found);
        }
        text.push_str("\nTry next\n");
        for command in &self.next {
            let _ = writeln!(text, "  {command}");
        }
        text
    }

    fn happened(&self) -> [(&'static str, u64, String); 8] {
        let Counts {
            steps,
            effects,
            retries,
            sleeps,
            signals,
            timeouts,
            publications,
            children,
            undone,
            rolled_back,
            ..
        } = self.counts;
        let (orders, declined, refused) = (self.orders as u64, self.declined, self.refused);
        let (workers, kills) = (self.workers as u64, self.kills);
        let sql = "SQL in the shop's tables, committed with its journal entry";
        let retried = format!("calls outside; {retries} attempts failed and were tried again");
        let came = format!("came to waiting runs; {timeouts} waits timed out instead");
        [
            (
                "orders",
                orders,
                format!("one run each; {declined} cards declined, {refused} shipments refused"),
            ),
            ("steps", steps.into(), sql.into()),
            ("effects", effects.into(), retried),
            (
                "sleeps",
                sleeps.into(),
                "timers, in the database like all else".into(),
            ),
            ("signals", signals.into(), came),
            (
                "published",
                publications.into(),
                format!("orders, to those who subscribe; {children} runs set off by others"),
            ),
            (
                "undone",
                undone.into(),
                format!("steps and effects, newest first, in {rolled_back} runs that rolled back"),
            ),
            (
                "workers",
                workers,
                format!("{kills} of them killed with SIGKILL"),
            ),
        ]
    }
}

/// Commands that work when typed as they stand, in the folder where the demo was run.
fn next(arguments: &str, example: Option<String>, undone: Option<usize>) -> Vec<String> {
    let example = example.unwrap_or_else(|| super::day::key(0));
    let tree = undone.map_or_else(|| example.clone(), super::day::key);
    let program = std::env::args().next().unwrap_or_else(|| "roundel".into());
    let program = quoted(&program);
    vec![
        format!("{program} runs list {arguments} --limit 10"),
        format!("{program} runs show {example} {arguments}"),
        format!("{program} runs tree {tree} {arguments}"),
        format!("{program} verify {arguments}"),
    ]
}

/// As one word for a shell.
pub(super) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./\\:".contains(c);
    if word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_can_be_typed_as_they_stand() {
        for (word, typed) in [
            ("target/release/roundel", "target/release/roundel"),
            ("my shop/a.db", "'my shop/a.db'"),
            ("it's", r"'it'\''s'"),
        ] {
            assert_eq!(quoted(word), typed);
        }
    }
}
