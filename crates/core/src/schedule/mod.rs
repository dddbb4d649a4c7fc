//! Schedules: what is started again and again, by itself.
//!
//! A schedule is a run of the engine's own workflow, [`SCHEDULE`]. So it is leased, fenced, woken
//! by a timer and moved as any run is, and what one commit of it says happens once: a start for a
//! time, and that this time is settled. Its state is a document that people patch
//! ([`ScheduleState`]) and that the run merges its own part into. What it does next is decided
//! here, as a function of that document and the time: [`pass`].

mod calendar;
mod cron;
mod pass;
#[cfg(test)]
mod tests;
mod words;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use calendar::{Calendar, Times, instant, read_instant};
pub use pass::{Begun, Pass, pass};

use crate::{Name, Payload, RunId, Timestamp, limits};

/// What runs: nothing of the user's.
pub const SCHEDULE: Name = Name::constant("roundel.schedule");

/// What a schedule starts, and when.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Timetable {
    /// When.
    pub calendar: Calendar,
    /// Which workflow, or which command's queue.
    pub workflow: Name,
    /// Is it a command? Then its key is its queue's.
    pub command: bool,
    /// With what.
    pub input: Payload,
    /// If what it started last has not ended.
    pub overlap: Overlap,
    /// If nobody was there at the time.
    pub catch_up: CatchUp,
    /// So late is still in time.
    pub grace: Duration,
    /// When this was set: earlier times are none of its, and intervals are counted from here.
    pub since: Timestamp,
}

impl Timetable {
    /// Late by this much is in time, unless said otherwise.
    pub const GRACE: Duration = Duration::from_secs(60);

    /// The times that it names.
    ///
    /// # Errors
    /// When its calendar cannot be understood.
    pub fn times(&self) -> Result<Times, String> {
        self.calendar.times(self.since)
    }

    /// Do both say the same, whenever they were set?
    #[must_use]
    pub fn says_as(&self, other: &Timetable) -> bool {
        let since = self.since;
        *self
            == Timetable {
                since,
                ..other.clone()
            }
    }
}

/// What happens at a time if the run that the schedule started last has not ended. One that is
/// parked has not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// Nothing is started for that time.
    #[default]
    Skip,
    /// It is started once the other has ended. One time waits; those that come meanwhile are
    /// skipped.
    Queue,
    /// Both run.
    Allow,
}

/// What happens to times that passed while nobody was there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CatchUp {
    /// They are not made up for.
    None,
    /// The latest is, unless another is in time.
    #[default]
    One,
    /// All are, one after the other unless they may overlap; the latest thousand.
    All,
}

/// What is known of a schedule: its run's state.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ScheduleState {
    /// What it was last set to, if that is not what its run was started with. In a list, because a
    /// patch merges objects, and one timetable must replace another.
    pub timetable: Vec<Timetable>,
    /// Does it start nothing by itself?
    pub paused: bool,
    /// No time up to this one is owed: it was resumed then.
    pub owed_from: Timestamp,
    /// What it was asked for beside, by ids of those who ask.
    pub asked: BTreeMap<String, Asked>,
    /// What its run says.
    pub done: Done,
}

impl ScheduleState {
    /// What it starts and when; `first` is what its run was started with.
    #[must_use]
    pub fn timetable<'t>(&'t self, first: &'t Timetable) -> &'t Timetable {
        self.timetable.first().unwrap_or(first)
    }

    /// Do people ask the same of it as they did then?
    #[must_use]
    pub fn asks_as(&self, other: &ScheduleState) -> bool {
        self.timetable == other.timetable
            && self.paused == other.paused
            && self.owed_from == other.owed_from
            && self.asked == other.asked
    }
}

/// What a schedule is asked for beside its times.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Asked {
    /// One start, now.
    Now(Timestamp),
    /// A start for each of its times from the first of these up to the second, both among them.
    Range(Timestamp, Timestamp),
}

/// What a schedule's run says of it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Done {
    /// All times up to this one are settled: started, waiting, skipped or missed.
    pub until: Timestamp,
    /// The next time.
    pub next: Option<Timestamp>,
    /// What it started last, until it hears that this has ended.
    pub running: Option<RunId>,
    /// Times that wait for that, in order.
    pub waiting: Vec<Tick>,
    /// How often it started something.
    pub started: u64,
    /// How often it did not, because of what it had started before.
    pub skipped: u64,
    /// How often it did not, because nobody had been there: each gap counts once.
    pub missed: u64,
    /// What it did last, oldest first.
    pub recent: Vec<Remembered>,
}

impl Done {
    fn remember(&mut self, what: Remembered) {
        self.recent.push(what);
        let over = self.recent.len().saturating_sub(limits::REMEMBERED);
        self.recent.drain(..over);
    }
}

/// A time for which something is to be started.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Tick {
    /// Which.
    pub at: Timestamp,
    /// Why.
    pub cause: Reason,
    /// Of a start that somebody asked for, the id of that.
    pub id: Option<String>,
}

impl Tick {
    /// The key of what is started for it: what is started twice is started once.
    #[must_use]
    pub fn key(&self, schedule: &str) -> String {
        match &self.id {
            None => format!("{schedule}@{}", instant(self.at)),
            Some(id) => format!("{schedule}!{id}"),
        }
    }
}

/// Why something is started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// It is time.
    Due,
    /// It was time while nobody was there.
    Missed,
    /// Somebody asked for it.
    Asked,
}

/// Something that a schedule did, or did not do.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Remembered {
    /// For which time; of several that were missed, the last.
    pub at: Timestamp,
    /// What.
    pub what: What,
    /// The run that was started, or that was there already.
    pub run: Option<RunId>,
}

/// What a schedule did at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// It started a run.
    Started,
    /// It found that this had been started before.
    Repeated,
    /// It started nothing: what it had started before had not ended.
    Skipped,
    /// It started nothing for these: nobody had been there.
    Missed,
    /// What it tried to start was refused.
    Refused,
}
