//! What a schedule does next: a function of its state and the time.
//!
//! | a time that | is |
//! |---|---|
//! | came, at most `grace` ago | due |
//! | came longer ago | missed: made up for as `catch_up` says, and else noted |
//! | is due, while what was started last runs | skipped, waiting or started, as `overlap` says |
//! | is made up for or was asked for | waiting behind what runs; started, if runs may overlap |
//!
//! Whatever it does, all times up to now are settled by it.

use super::{
    Asked, CatchUp, Done, Overlap, Reason, Remembered, ScheduleState, Tick, Times, Timetable, What,
};
use crate::mutant::{self, Mutant};
use crate::{RunId, Timestamp, limits};

/// What is to be done now.
#[derive(Clone, PartialEq, Debug)]
pub struct Pass {
    /// For these times something is started, in one commit with what follows.
    pub starts: Vec<Tick>,
    /// What the run then says of itself.
    pub done: Done,
    /// Requests that this answers.
    pub answered: Vec<String>,
}

/// What came of a start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Begun {
    /// This run began.
    New(RunId),
    /// This run was there.
    Old(RunId),
    /// It was refused.
    Refused,
}

/// What a schedule does now.
///
/// # Errors
/// When its calendar cannot be understood.
pub fn pass(table: &Timetable, state: &ScheduleState, now: Timestamp) -> Result<Pass, String> {
    let times = table.times()?;
    let mut pass = Pass {
        starts: Vec::new(),
        done: state.done.clone(),
        answered: state.asked.keys().cloned().collect(),
    };
    let owed_from = match mutant::on(Mutant::OwedAfterPause) {
        true => Timestamp(0),
        false => state.owed_from,
    };
    let from = state.done.until.max(owed_from).max(table.since);
    if !state.paused || mutant::on(Mutant::PauseIgnored) {
        pass.take_due(table, &times, (from, now));
    }
    pass.take_asked(table, &times, state);
    pass.start_waiting(table);
    let settled = pass.starts.is_empty() || !mutant::on(Mutant::TickFiredTwice);
    pass.done.until = if settled { from.max(now) } else { from };
    let next = times.next(pass.done.until);
    pass.done.next = next.filter(|_| !state.paused);
    Ok(pass)
}

impl Pass {
    fn take_due(&mut self, table: &Timetable, times: &Times, (from, now): (Timestamp, Timestamp)) {
        let late = now.before(table.grace);
        let (due, more) = times.latest((late.max(from), now), limits::MADE_UP);
        let missed = match (late > from, table.catch_up) {
            (false, _) => (Vec::new(), false),
            (true, CatchUp::All) => times.latest((from, late), limits::MADE_UP),
            (true, CatchUp::One | CatchUp::None) => times.latest((from, late), 1),
        };
        let (mut made_up, mut lost) = (missed.0, missed.1 || more);
        let replaced = table.catch_up == CatchUp::One && !due.is_empty();
        if table.catch_up == CatchUp::None || replaced || mutant::on(Mutant::LateTickLost) {
            lost |= !made_up.is_empty();
            made_up.clear();
        }
        if lost {
            let before = made_up.first().or(due.first()).copied();
            let last = times.latest((from, before.unwrap_or(now)), 2).0;
            let last = last.into_iter().rfind(|at| Some(*at) != before);
            self.note(last.unwrap_or(from), What::Missed);
        }
        for at in made_up {
            self.take(table, at, Reason::Missed, None);
        }
        for at in due {
            self.take(table, at, Reason::Due, None);
        }
    }

    fn take_asked(&mut self, table: &Timetable, times: &Times, state: &ScheduleState) {
        for (id, asked) in &state.asked {
            match *asked {
                Asked::Now(at) => self.take(table, at, Reason::Asked, Some(id.clone())),
                Asked::Range(first, last) => {
                    let range = times.following(Timestamp(first.0.saturating_sub(1)));
                    let range = range.take_while(|at| *at <= last);
                    for at in range.take(limits::MADE_UP) {
                        self.take(table, at, Reason::Asked, None);
                    }
                }
            }
        }
    }

    /// A time has come, or was asked for.
    fn take(&mut self, table: &Timetable, at: Timestamp, cause: Reason, id: Option<String>) {
        let waiting = &self.done.waiting;
        let busy = self.done.running.is_some() || !waiting.is_empty();
        let due_waits = waiting.iter().any(|tick| tick.cause == Reason::Due);
        let skipped = match (cause, table.overlap) {
            (_, Overlap::Allow) => false,
            (Reason::Due, Overlap::Skip) => busy && !mutant::on(Mutant::OverlapIgnored),
            (Reason::Due, Overlap::Queue) => due_waits,
            (Reason::Asked, _) => busy && mutant::on(Mutant::AskedLost),
            _ => false,
        };
        if skipped || waiting.len() >= limits::TICKS_WAITING {
            self.note(at, What::Skipped);
            return;
        }
        self.done.waiting.push(Tick { at, cause, id });
    }

    /// What need not wait any more is started.
    fn start_waiting(&mut self, table: &Timetable) {
        let alone = table.overlap != Overlap::Allow && !mutant::on(Mutant::OverlapIgnored);
        let many = match (alone, self.done.running) {
            (true, Some(_)) => 0,
            (true, None) => 1,
            (false, _) => limits::MADE_UP,
        };
        let many = many.min(self.done.waiting.len());
        self.starts = self.done.waiting.drain(..many).collect();
        if mutant::on(Mutant::WaitingForgotten) && !self.starts.is_empty() {
            self.done.waiting.clear();
        }
    }

    fn note(&mut self, at: Timestamp, what: What) {
        match what {
            What::Skipped => self.done.skipped += 1,
            _ => self.done.missed += 1,
        }
        let run = None;
        self.done.remember(Remembered { at, what, run });
    }

    /// What the run says of itself once it knows what came of these starts, in their order.
    #[must_use]
    pub fn begun(&self, begun: &[Begun]) -> Done {
        let mut done = self.done.clone();
        for (tick, begun) in self.starts.iter().zip(begun) {
            let (what, run) = match *begun {
                Begun::New(run) => {
                    done.started += 1;
                    (What::Started, Some(run))
                }
                Begun::Old(run) => (What::Repeated, Some(run)),
                Begun::Refused => (What::Refused, None),
            };
            done.running = run.or(done.running);
            let at = tick.at;
            done.remember(Remembered { at, what, run });
        }
        done
    }
}
