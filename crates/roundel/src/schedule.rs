//! Schedules: what is started again and again, by itself.
//!
//! A schedule is a run of a workflow of the engine's own, which any worker works on. What it does
//! is decided by [`roundel_core::pass`]; here it reads its state, starts what is due under keys
//! made of its name and the time, says in the same commit that those times are settled, and waits:
//! for the next time, for somebody who asks something of it, or for the end of what it started.

use std::collections::BTreeMap;
use std::future::{Future, pending, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::{join, join_all, select};
use roundel_core::mutant::{self, Mutant};
use roundel_core::{
    Begun, Calendar, CatchUp, Done, Failure, Name, Overlap, Pass, Payload, RunId, SCHEDULE,
    ScheduleState, Start, Tick, Timestamp, Timetable, limits,
};
use serde::Serialize;

use crate::command::key_in;
use crate::cx::{Cx, Spawn, WaitForRun, encode, name, new_start, one_value};
use crate::{Command, Error, Key, Workflow};

/// The time for which a schedule started a run, in the context of that run and all below it.
///
/// ```
/// use roundel::{Cx, Result, SCHEDULED_AT};
/// async fn report(cx: Cx, _: ()) -> Result<()> {
///     let day = cx.context(SCHEDULED_AT)?; // none if it was started otherwise
///     # let _ = day;
///     Ok(())
/// }
/// ```
pub const SCHEDULED_AT: Key<Timestamp> = Key::named("roundel.scheduled_at");

/// The label of runs that a schedule started, with its name.
pub(crate) const LABEL: Name = Name::constant("schedule");

/// So often one execution looks; then it begins anew with an empty journal.
const PASSES: usize = 50;

/// A workflow or a command with the times at which it is started; see
/// [`Schedule::set`](crate::Schedule::set).
#[derive(Clone, Debug)]
#[must_use = "it does nothing unless a schedule is set to it"]
pub struct Timed {
    workflow: Name,
    command: bool,
    input: Result<Payload, Failure>,
    calendar: Option<Calendar>,
    zone: Option<String>,
    overlap: Overlap,
    catch_up: CatchUp,
    grace: Duration,
}

impl<I: Serialize, O> Workflow<I, O> {
    /// It, started by a schedule with this input.
    pub fn timed(self, input: &I) -> Timed {
        Timed::of(self.name(), false, encode(input))
    }
}

impl<I: Serialize, O> Command<I, O> {
    /// It, sent by a schedule with this payload.
    pub fn timed(self, payload: &I) -> Timed {
        Timed::of(self.queue(), true, encode(payload))
    }
}

impl Timed {
    fn of(workflow: Name, command: bool, input: Result<Payload, Failure>) -> Timed {
        Timed {
            workflow,
            command,
            input,
            calendar: None,
            zone: None,
            overlap: Overlap::default(),
            catch_up: CatchUp::default(),
            grace: Timetable::GRACE,
        }
    }

    /// The workflow of this name, with any JSON.
    pub fn workflow(workflow: Name, input: Payload) -> Timed {
        Timed::of(workflow, false, Ok(input))
    }

    /// The command of this name, with any JSON.
    pub fn command(queue: Name, payload: Payload) -> Timed {
        Timed::of(queue, true, Ok(payload))
    }

    /// At the times that this cron expression names: minute, hour, day of month, month and day of
    /// week, or the second before them. By the clocks of UTC, unless a [zone](Self::zone) is said.
    pub fn cron(mut self, expression: impl Into<String>) -> Self {
        self.calendar = Some(Calendar::Cron {
            expression: expression.into(),
            zone: "UTC".to_owned(),
        });
        self
    }

    /// By the clocks of this time zone, such as `Europe/Zurich`. A time that they do not show
    /// because they are set forward is when that happens; one that they show twice is the first of
    /// the two, unless the expression names every hour.
    pub fn zone(mut self, zone: impl Into<String>) -> Self {
        self.zone = Some(zone.into());
        self
    }

    /// Every so often, counted from when the schedule is set.
    pub fn every(mut self, span: Duration) -> Self {
        self.calendar = Some(Calendar::Every(span));
        self
    }

    /// Once, at this time.
    pub fn once(mut self, at: Timestamp) -> Self {
        self.calendar = Some(Calendar::Once(at));
        self
    }

    /// What to do while the last run goes on; it is skipped unless said.
    pub fn overlap(mut self, overlap: Overlap) -> Self {
        self.overlap = overlap;
        self
    }

    /// What to do about times that passed while nobody was there; one is made up for unless said.
    pub fn catch_up(mut self, catch_up: CatchUp) -> Self {
        self.catch_up = catch_up;
        self
    }

    /// So late is still in time; a minute unless said.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// As it is stored, if it has a time after this one.
    pub(crate) fn table(self, since: Timestamp) -> Result<Timetable, Error> {
        let wrong = |text: &str| Err(Error::Value(text.to_owned()));
        let calendar = match (self.calendar, self.zone) {
            (None, _) => return wrong("a schedule needs its times: say cron, every or once"),
            (Some(Calendar::Cron { expression, .. }), Some(zone)) => {
                Calendar::Cron { expression, zone }
            }
            (Some(calendar), None) => calendar,
            (Some(_), Some(_)) => return wrong("a time zone is for cron expressions only"),
        };
        let table = Timetable {
            calendar,
            workflow: self.workflow,
            command: self.command,
            input: self.input?,
            overlap: self.overlap,
            catch_up: self.catch_up,
            grace: self.grace,
            since,
        };
        if table.times().map_err(Error::Value)?.next(since).is_none() {
            let calendar = &table.calendar;
            return Err(Error::Value(format!("{calendar}: no such time is ahead")));
        }
        Ok(table)
    }
}

/// The key of the run that is the schedule of this name.
pub(crate) fn schedule_key(schedule: &str) -> Result<Name, Error> {
    if schedule.len() > limits::SCHEDULE_BYTES {
        let (limit, found) = (limits::SCHEDULE_BYTES, schedule.len());
        let text = format!("a schedule's name has {found} bytes; at most {limit} are allowed");
        return Err(Error::Value(text));
    }
    Name::new(schedule.to_owned())?;
    Ok(Name::new(key_in(&SCHEDULE, schedule))?)
}

/// The name of the schedule whose run has this key.
pub(crate) fn schedule_of(key: &str) -> Option<&str> {
    key.strip_prefix(SCHEDULE.as_str())?.strip_prefix(':')
}

/// What the run says of itself, to be merged into its state.
#[derive(Serialize)]
struct Says<'d> {
    done: &'d Done,
    /// Nothing instead of each: it is removed.
    asked: BTreeMap<&'d str, ()>,
}

/// What a schedule started last, while it waits for the end of that.
struct Last {
    run: RunId,
    wait: WaitForRun<Payload>,
    ended: bool,
}

impl Last {
    /// Has its end come?
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if !self.ended {
            self.ended = Pin::new(&mut self.wait).poll(context).is_ready();
        }
        match self.ended {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }

    /// Has its end come by now?
    async fn has_ended(&mut self) -> bool {
        poll_fn(|context| Poll::Ready(self.poll(context).is_ready())).await
    }
}

/// A schedule's own function.
pub(crate) async fn run(cx: Cx, first: Timetable) -> Result<(), Failure> {
    look_often(cx, first, PASSES).await
}

/// The same; one execution looks so often.
pub(crate) async fn look_often(cx: Cx, first: Timetable, passes: usize) -> Result<(), Failure> {
    let mut last: Option<Last> = None;
    for _ in 0..passes {
        let mut state: ScheduleState = cx.state().await?.unwrap_or_default();
        let now = cx.now().await?;
        if let Some(ended) = &mut last
            && ended.has_ended().await
        {
            state.done.running.take_if(|running| *running == ended.run);
            last = None;
        }
        let table = state.timetable(&first);
        let pass = roundel_core::pass(table, &state, now);
        let pass = pass.map_err(|text| Failure::permanent(text).with_code("bad_schedule"))?;
        let done = act(&cx, table, &pass).await?;
        let alone = table.overlap != Overlap::Allow;
        let watched = done.running.filter(|_| alone);
        if !done.waiting.is_empty() && watched.is_none() {
            continue;
        }
        if last.as_ref().map(|last| last.run) != watched {
            last = watched.map(|run| Last {
                run,
                wait: cx.wait_for(run),
                ended: false,
            });
        }
        state.asked.clear();
        news(&cx, &state, done.next, last.as_mut()).await;
    }
    cx.continue_as_new(&first).settled().await
}

/// Starts what is due, and says so in the same commit.
async fn act(cx: &Cx, table: &Timetable, pass: &Pass) -> Result<Done, Failure> {
    let mut runs = Vec::new();
    for _ in &pass.starts {
        runs.push(RunId(cx.uuid().await?));
    }
    let starts = pass.starts.iter().zip(&runs);
    let starts = starts.map(|(tick, run)| Spawn::of(cx, start(cx, table, (tick, *run))));
    let asked = pass.answered.iter().map(|id| (id.as_str(), ())).collect();
    let done = &pass.done;
    let says = cx.merge_state(&Says { done, asked });
    let (begun, said) = join(join_all(starts), says).await;
    said?;
    if begun.is_empty() {
        return Ok(pass.done.clone());
    }
    let begun = begun.into_iter().zip(&runs);
    let begun = begun.map(|(begun, new)| match begun {
        Ok(run) if run == *new => Begun::New(run),
        Ok(run) => Begun::Old(run),
        Err(_) => Begun::Refused,
    });
    let done = &pass.begun(&begun.collect::<Vec<_>>());
    let asked = BTreeMap::new();
    cx.merge_state(&Says { done, asked }).await?;
    Ok(done.clone())
}

/// The start for a time.
fn start(cx: &Cx, table: &Timetable, (tick, run): (&Tick, RunId)) -> Result<Box<Start>, Failure> {
    let namespace = cx.shared.info.namespace.clone();
    let schedule = cx.key().and_then(schedule_of).unwrap_or_default();
    let what = (table.workflow.clone(), None);
    let mut start = new_start(namespace, run, what, table.input.clone());
    let key = tick.key(schedule);
    start.key = Some(match table.command {
        true => name(key_in(&table.workflow, &key))?,
        false => name(key)?,
    });
    if mutant::on(Mutant::TickFiredTwice) {
        start.key = None;
    }
    start.labels.push((LABEL, schedule.to_owned()));
    start.context.take(&one_value(&SCHEDULED_AT, &tick.at)?);
    Ok(Box::new(start))
}

/// Waits for the next time, for somebody who asks for something, or for the end of the last run.
async fn news(cx: &Cx, seen: &ScheduleState, next: Option<Timestamp>, last: Option<&mut Last>) {
    let due = pin!(async {
        match next {
            Some(at) => cx.sleep_until(at).await,
            None => pending().await,
        }
    });
    let asked = cx.wait_until(|state: &ScheduleState| !state.asks_as(seen));
    let ended = pin!(async {
        match last {
            Some(last) => poll_fn(|context| last.poll(context)).await,
            None => pending().await,
        }
    });
    select(select(due, asked), ended).await;
}
