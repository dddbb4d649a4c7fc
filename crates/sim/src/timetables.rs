//! Schedules, which start runs at their times. Clients set them, pause and resume them, ask for
//! starts and for ranges of times, set them otherwise and remove them, by the patches that the real
//! client sends. Whatever breaks, each time comes once, and none is forgotten.
//!
//! What a schedule may do with a time depends on when it looked. So what is judged here is what
//! must be true whenever that was.

use std::collections::BTreeMap;
use std::time::Duration;

use roundel_core::{
    Asked, Calendar, CatchUp, Caused, Delete, Name, Op, Overlap, Patch, Patched, Payload, Reply,
    Round, Rows, RunId, SCHEDULE, ScheduleState, Start, Target, Timestamp, Timetable,
};
use serde_json::{Value, json};

use crate::book::Book;
use crate::flows::Tally;
use crate::marks::Mark;
use crate::random::Random;
use crate::world::{NAMESPACE, World};

/// The schedules of a play. Few: there is much to ask of each.
static NAMES: [&str; 2] = ["tick", "tock"];

/// The time for which a run was started, in its context.
const AT: Name = Name::constant("roundel.scheduled_at");

/// The command that schedules send.
const ORDER: &str = "order";

/// Later than any play takes: all is in time.
pub(crate) const LONG: Duration = Duration::from_secs(1_000_000);

/// How far times are apart: further where the clock leaps, or there would be thousands of them.
pub(crate) fn unit(clock_leaps: bool) -> Duration {
    Duration::from_secs(if clock_leaps { 600 } else { 1 })
}

/// What is known of schedules, apart from what they say themselves.
#[derive(Debug, Default)]
pub(crate) struct Timetables {
    /// By the runs that they are.
    pub(crate) known: BTreeMap<RunId, Known>,
    /// What they started, by name and time, or by what was asked for.
    pub(crate) started: BTreeMap<String, RunId>,
}

#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) name: String,
    pub(crate) table: Timetable,
    /// It was set to something else since.
    pub(crate) changed: bool,
    /// All that it started.
    pub(crate) runs: Vec<RunId>,
    pub(crate) pauses: Vec<Pause>,
    pub(crate) asked: BTreeMap<String, Asked>,
    /// Its state, as of the version that was last read.
    state: (u64, ScheduleState),
}

/// A time in which a schedule starts nothing by itself.
#[derive(Debug)]
pub(crate) struct Pause {
    /// All up to then had been settled when it began.
    from: Timestamp,
    until: Option<Timestamp>,
    /// Up to when all was settled by the schedule when it last looked meanwhile, if it has.
    seen: Option<Timestamp>,
}

impl Known {
    /// Did this time come while it was paused?
    pub(crate) fn is_excused(&self, at: Timestamp) -> bool {
        let mut pauses = self.pauses.iter();
        // Who resumed it may have a clock that is behind that of who looked meanwhile.
        pauses.any(|pause| {
            let ended = pause
                .until
                .is_some_and(|until| Some(until).max(pause.seen) < Some(at));
            pause.from < at && !ended
        })
    }

    fn goes_on_after(&self, at: Timestamp) -> bool {
        let times = self.table.times();
        times.is_ok_and(|times| times.next(at).is_some())
    }

    fn was_asked_for(&self, at: Timestamp) -> bool {
        let covers = |asked: &Asked| match *asked {
            Asked::Now(_) => false,
            Asked::Range(first, last) => first <= at && at <= last,
        };
        self.asked.values().any(covers)
    }
}

/// A schedule as it was before something was done to it.
pub(crate) struct Before {
    run: RunId,
    state: ScheduleState,
}

impl Before {
    /// Before this, if it is about a schedule.
    pub(crate) fn of(op: &Op, book: &mut Book, rows: &Rows) -> Option<Before> {
        let run = match op {
            Op::Commit(round) => round.run,
            Op::Patch(patch) => run_of(&patch.target, rows)?,
            _ => return None,
        };
        let state = book.times.read(run, rows)?.clone();
        Some(Before { run, state })
    }
}

pub(crate) fn state_of(run: RunId, rows: &Rows) -> ScheduleState {
    let row = rows.states.get(&run);
    let state = row.map(|row| row.value.decode());
    state.transpose().ok().flatten().unwrap_or_default()
}

fn run_of(target: &Target, rows: &Rows) -> Option<RunId> {
    match target {
        Target::Run(run) => Some(*run),
        Target::Key(key) => {
            let its = rows.runs().find(|row| row.key.as_ref() == Some(key));
            its.map(|row| row.id)
        }
    }
}

/// A time of a schedule, by what it starts: a command that a schedule is set to later has keys of
/// its own.
pub(crate) fn time_of(name: &str, workflow: &Name, at: Timestamp) -> String {
    let command = workflow.as_str() == ORDER;
    format!("{name}@{}{}", at.0, if command { ", sent" } else { "" })
}

fn key_of(name: &str) -> Name {
    Name::new(format!("{SCHEDULE}:{name}")).expect("a name")
}

impl World<'_> {
    /// Something that is asked of a schedule.
    pub(crate) fn about_times(&mut self, index: usize) -> Op {
        let name = NAMES[self.random.below(2)];
        let target = Target::Key(key_of(name));
        let Some(run) = run_of(&target, self.model.rows()) else {
            return self.set(name, index);
        };
        let state = state_of(run, self.model.rows());
        let patch = match self.random.below(10) {
            0 if self.faults.operators => {
                return Op::Delete(Delete {
                    namespace: NAMESPACE,
                    target,
                    force: true,
                });
            }
            1 => json!({ "timetable": [self.timetable()] }),
            _ if state.paused && self.random.once_in(2) => {
                json!({ "paused": null, "owed_from": self.now })
            }
            2..5 => json!({ "paused": true }),
            5..8 => self.asks(Asked::Now(self.now)),
            _ => {
                let back = self.unit() * (1 + Random::scaled(self.random.next(), 4) as u32);
                let last = self.now.after(self.unit() * (self.random.below(2) as u32));
                self.asks(Asked::Range(self.now.before(back), last))
            }
        };
        let patch = World::payload(&patch);
        let (namespace, expected) = (NAMESPACE, None);
        let op = Op::Patch(Patch {
            namespace,
            target,
            patch,
            expected,
        });
        self.signed(op)
    }

    fn asks(&mut self, asked: Asked) -> Value {
        let id = self.fresh_key();
        json!({ "asked": { id.as_str(): asked } })
    }

    fn unit(&self) -> Duration {
        self.times.expect("there are schedules")
    }

    fn set(&mut self, name: &str, index: usize) -> Op {
        let (run, table) = (RunId(self.random.id()), self.timetable());
        Op::Start(Start {
            version: Some(1),
            key: Some(key_of(name)),
            claimant: self.claimant(index),
            ..Start::new(NAMESPACE, run, SCHEDULE, World::payload(&table))
        })
    }

    fn timetable(&mut self) -> Timetable {
        let unit = self.unit();
        let calendar = match self.random.below(8) {
            0 => Calendar::Once(self.now.after(unit / 2)),
            1 => Calendar::Cron {
                expression: if unit.as_secs() > 1 {
                    "*/10 * * * *"
                } else {
                    "* * * * * *"
                }
                .into(),
                zone: "Europe/Zurich".into(),
            },
            _ => Calendar::Every(unit * (1 + self.random.below(2) as u32)),
        };
        let command = self.random.once_in(3);
        let workflow = match command {
            true => ORDER,
            false => ["steps", "calls", "anew"][self.random.below(3)],
        };
        let pick = self.random.below(12);
        Timetable {
            calendar,
            workflow: Name::constant(workflow),
            command,
            input: World::payload(&Tally::default()),
            overlap: [Overlap::Skip, Overlap::Queue, Overlap::Allow][pick % 3],
            catch_up: [CatchUp::All, CatchUp::One, CatchUp::All, CatchUp::None][pick / 3],
            grace: [Duration::ZERO, unit / 4, LONG][self.random.below(3)],
            since: self.now,
        }
    }

    /// Something was done. Was a schedule set, asked for something, or did it do something?
    pub(crate) fn times_after(&mut self, before: Option<Before>, op: &Op, reply: &Reply) {
        match (op, reply) {
            (Op::Start(start), Reply::Started(started))
                if started.new && start.workflow == SCHEDULE =>
            {
                self.book.times.set(start);
            }
            (Op::Patch(patch), Reply::Patched(Patched::Changed(_))) => {
                if let Some(before) = before {
                    self.asked_of(&before, &patch.patch);
                }
            }
            (Op::Commit(round), _) => {
                if let Some(before) = before {
                    self.looked(&before, round);
                }
            }
            _ => {}
        }
    }

    /// People ask something of a schedule.
    fn asked_of(&mut self, before: &Before, patch: &Payload) {
        let Some(known) = self.book.times.known.get_mut(&before.run) else {
            return;
        };
        let patch: Value = patch.decode().unwrap_or_default();
        known.changed |= patch.get("timetable").is_some();
        match patch.get("paused") {
            Some(Value::Bool(true)) if !before.state.paused => {
                self.marks.hit(Mark::SchedulePaused);
                known.pauses.push(Pause {
                    from: before.state.done.until,
                    until: None,
                    seen: None,
                });
            }
            Some(Value::Null) => {
                let owed_from = patch.get("owed_from").cloned().unwrap_or_default();
                let owed_from = serde_json::from_value(owed_from).unwrap_or_default();
                // Resumed a second time, by one who asks again, it is owed less.
                if let Some(pause) = known.pauses.last_mut() {
                    let until = pause.until.map_or(owed_from, |until| until.max(owed_from));
                    pause.until = Some(until);
                }
            }
            _ => {}
        }
        let asked = patch.get("asked").cloned().unwrap_or_default();
        let asked: BTreeMap<String, Asked> = serde_json::from_value(asked).unwrap_or_default();
        if !asked.is_empty() {
            self.marks.hit(Mark::AskedOfSchedule);
        }
        known.asked.extend(asked);
    }

    /// A schedule's run has committed a round.
    fn looked(&mut self, before: &Before, round: &Round) {
        let rows = self.model.rows();
        for caused in &round.caused {
            if let Caused::Spawn(_, start) = caused {
                self.book.time_came(before, start, rows);
            }
        }
        let Some(state) = self.book.times.read(round.run, rows) else {
            return;
        };
        let (was, done) = (&before.state.done, &state.done);
        let marks = [
            (done.started > was.started, Mark::TimeStarted),
            (done.skipped > was.skipped, Mark::TimeSkipped),
            (done.missed > was.missed, Mark::TimeMissed),
            (done.waiting.len() > was.waiting.len(), Mark::TimeWaits),
            (
                before.state.paused && was.next.is_none(),
                Mark::LookedWhilePaused,
            ),
        ];
        for (_, mark) in marks.into_iter().filter(|(hit, _)| *hit) {
            self.marks.hit(mark);
        }
        // One that has never looked has not seen it.
        let none_next = done.next.is_none() && done.until > Timestamp(0);
        let (until, paused, moved) = (done.until, state.paused, done.until > was.until);
        let Some(known) = self.book.times.known.get_mut(&round.run) else {
            return;
        };
        // Who is resumed between its look and its commit has found itself paused all the same.
        let sees_it = none_next && (paused || moved && known.goes_on_after(until));
        if let Some(pause) = known.pauses.last_mut().filter(|_| sees_it) {
            pause.seen = Some(until);
        }
    }

    /// The faults have ended. Nobody was there for a while; what was paused goes on and owes
    /// nothing, or is asked for one start and owes no other.
    pub(crate) fn let_time_pass(&mut self) {
        let Some(unit) = self.times else { return };
        self.now = self.now.after(unit * 2);
        let (rows, times) = (self.model.rows(), &mut self.book.times);
        let all: Vec<RunId> = times.known.keys().copied().collect();
        let is_paused = |run: &RunId| times.read(*run, rows).is_some_and(|state| state.paused);
        let paused: Vec<RunId> = all.into_iter().filter(is_paused).collect();
        for run in paused {
            let patch = match self.random.once_in(2) {
                true => json!({ "paused": null, "owed_from": self.now }),
                false => self.asks(Asked::Now(self.now)),
            };
            self.patch_schedule(run, &patch);
        }
    }

    fn patch_schedule(&mut self, run: RunId, patch: &Value) {
        let op = Op::Patch(Patch {
            namespace: NAMESPACE,
            target: Target::Run(run),
            patch: World::payload(patch),
            expected: None,
        });
        let _ = self.transact(&op, Vec::new(), None);
    }

    /// The faults have ended, at that time: a schedule that has done all it owes is paused, or
    /// there would be no rest.
    pub(crate) fn pause_schedules(&mut self, end: Timestamp) {
        if self.times.is_none() {
            return;
        }
        let (rows, times) = (self.model.rows(), &mut self.book.times);
        let all: Vec<RunId> = times.known.keys().copied().collect();
        let mut runs = Vec::new();
        for run in all {
            let Some(row) = rows.run(run) else { continue };
            let state = times.read(run, rows);
            let done = state.is_some_and(|state| {
                // It may have none because it was paused, and has not looked since.
                let until = state.done.until;
                let next = state.done.next.map_or(until >= end, |next| next > end);
                until > Timestamp(0) && next && !state.paused
            });
            if done && !row.state.has_ended() {
                runs.push(run);
            }
        }
        for run in runs {
            self.patch_schedule(run, &json!({ "paused": true }));
        }
    }
}

impl Timetables {
    /// The state of a schedule that is known. It is read once for every change.
    fn read(&mut self, run: RunId, rows: &Rows) -> Option<&ScheduleState> {
        let known = self.known.get_mut(&run)?;
        let row = rows.states.get(&run);
        if let Some(row) = row.filter(|row| row.version != known.state.0) {
            known.state = (row.version, row.value.decode().unwrap_or_default());
        }
        Some(&known.state.1)
    }

    fn set(&mut self, start: &Start) {
        let name = start.key.as_ref().map_or("", |key| key.as_str());
        let name = name.rsplit(':').next().unwrap_or_default().to_owned();
        let Ok(table) = start.input.decode() else {
            return;
        };
        let known = Known {
            name,
            table,
            changed: false,
            runs: Vec::new(),
            pauses: Vec::new(),
            asked: BTreeMap::new(),
            state: (0, ScheduleState::default()),
        };
        self.known.insert(start.run, known);
    }
}

impl Book {
    /// A schedule starts something, or finds that it was started.
    fn time_came(&mut self, before: &Before, start: &Start, rows: &Rows) {
        let at = start.context.get(&AT).and_then(|at| at.decode().ok());
        let Some(at) = at.filter(|_| rows.run(start.run).is_some()) else {
            return;
        };
        let times = &mut self.times;
        let Some(known) = times.known.get_mut(&before.run) else {
            return;
        };
        let key = start.key.as_ref().map_or("", |key| key.as_str());
        let asked = key.split_once('!').map(|(_, id)| id.to_owned());
        let by_itself = asked.is_none() && !known.was_asked_for(at);
        let what = asked.unwrap_or_else(|| time_of(&known.name, &start.workflow, at));
        let mut found = Vec::new();
        let other = times.started.insert(what.clone(), start.run);
        if other.is_some_and(|other| rows.run(other).is_some()) {
            found.push(format!("fa_20: {what} was started twice"));
        }
        let alone = known.table.overlap != Overlap::Allow && !known.changed;
        let open = |run: &&RunId| rows.run(**run).is_some_and(|row| !row.state.has_ended());
        if let Some(open) = known.runs.iter().find(open).filter(|_| alone) {
            found.push(format!("fa_20: {what} was started while {open} ran"));
        }
        known.runs.push(start.run);
        let done = &before.state.done;
        let new = by_itself && at > done.until && !known.changed;
        let mut pauses = known.pauses.iter();
        if new && pauses.any(|pause| pause.until.is_none() && pause.seen.is_some()) {
            found.push(format!("fa_20: {what} was started while it was paused"));
        }
        let owed = |pause: &Pause| {
            let came = pause.seen.is_some_and(|seen| seen < at);
            came && pause.until.is_some_and(|until| at <= until)
        };
        if new && known.pauses.iter().any(owed) {
            found.push(format!(
                "fa_20: {what} came while it was paused, and was started"
            ));
        }
        self.violations.extend(found);
    }
}
