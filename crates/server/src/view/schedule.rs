//! What is started again and again.

use roundel::{Name, Payload, Remembered, RunId, RunState, ScheduleView, Timestamp, instant};
use serde_json::Value;

use super::Style;
use crate::shape::output;

output! {
    /// Something that a schedule did.
    pub struct Recent {
        /// For which time.
        at: String,
        /// What.
        what: Value,
        /// The run that was started.
        run: Option<RunId>,
    }
}

output! {
    /// A schedule.
    pub struct Schedule {
        /// Its name.
        name: String,
        /// The run that it is.
        run: RunId,
        /// On, paused, over, parked or ended.
        state: &'static str,
        /// When.
        calendar: Value,
        /// When, in words.
        words: String,
        /// The workflow that it starts.
        workflow: Option<Name>,
        /// The queue to which it sends a command.
        command: Option<Name>,
        /// With what.
        input: Payload,
        /// What becomes of a time while what was started last goes on.
        overlap: Value,
        /// What becomes of times at which nobody was there.
        catch_up: Value,
        /// So late is still in time.
        grace_ms: u64,
        /// The next time.
        next: Option<String>,
        /// The next few times.
        times: Vec<String>,
        /// What it started last, if that goes on.
        running: Option<RunId>,
        /// Times that wait for that.
        waiting: usize,
        /// How often it started something.
        started: u64,
        /// How often it did not, because the last went on.
        skipped: u64,
        /// How often it did not, because nobody was there.
        missed: u64,
        /// What it did last.
        recent: Vec<Recent>,
    }
}

/// Its state, for people.
#[must_use]
pub fn schedule_state(view: &ScheduleView, now: Timestamp) -> (Style, &'static str) {
    match view.run_state {
        RunState::Parked => (Style::Look, "parked"),
        state if state.has_ended() => (Style::Dim, "ended"),
        _ if view.state.paused => (Style::Look, "paused"),
        _ if next_of(view, now).is_none() => (Style::Dim, "over"),
        _ => (Style::Plain, "on"),
    }
}

/// The next time.
#[must_use]
pub fn next_of(view: &ScheduleView, now: Timestamp) -> Option<Timestamp> {
    let next = view.next(now, 1).ok()?;
    next.first().copied()
}

/// How many of the next times are told.
const TIMES: usize = 3;

fn times(view: &ScheduleView, now: Timestamp) -> Vec<String> {
    let next = view.next(now, TIMES).unwrap_or_default();
    next.into_iter().map(instant).collect()
}

impl Schedule {
    /// As it is at this time.
    #[must_use]
    pub fn of(view: &ScheduleView, now: Timestamp) -> Schedule {
        let (table, done) = (&view.timetable, &view.state.done);
        let recent = |did: &Remembered| Recent {
            at: instant(did.at),
            what: plain(&did.what),
            run: did.run,
        };
        let name = || Some(table.workflow.clone());
        Schedule {
            name: view.name.clone(),
            run: view.run,
            state: schedule_state(view, now).1,
            calendar: plain(&table.calendar),
            words: super::time::words(table),
            workflow: name().filter(|_| !table.command),
            command: name().filter(|_| table.command),
            input: table.input.clone(),
            overlap: plain(&table.overlap),
            catch_up: plain(&table.catch_up),
            grace_ms: u64::try_from(table.grace.as_millis()).unwrap_or(u64::MAX),
            next: next_of(view, now).map(instant),
            times: times(view, now),
            running: done.running,
            waiting: done.waiting.len(),
            started: done.started,
            skipped: done.skipped,
            missed: done.missed,
            recent: done.recent.iter().map(recent).collect(),
        }
    }
}

fn plain(value: &impl serde::Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}
