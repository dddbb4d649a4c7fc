//! Schedules from outside: set them, look at them, and ask things of them.

use std::borrow::Cow;

use roundel_core::{
    Asked, Delete, Entry, Name, Op, Patch, Patched, Payload, Refusal, Reply, RunState, SCHEDULE,
    ScheduleState, Target, Tick, Timestamp, Timetable, decode_entries, limits,
};
use roundel_store::{Answer, Page, Query, RunView};
use serde_json::{Value, json};

use super::{Client, open_state};
use crate::cx::{decode, encode, new_start};
use crate::ids::new_run;
use crate::schedule::{schedule_key, schedule_of};
use crate::{Error, RunId, Timed};

/// A schedule, by its name.
#[must_use = "it does nothing unless something is asked of it"]
#[derive(Clone, Debug)]
pub struct Schedule {
    client: Client,
    name: String,
}

/// What setting a schedule came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScheduleSet {
    /// There was none of that name.
    New,
    /// There was one, which is otherwise now.
    Changed,
    /// There was one that says the same: nothing was done.
    Same,
}

/// A schedule, as it is.
#[derive(Clone, PartialEq, Debug)]
pub struct ScheduleView {
    /// Its name.
    pub name: String,
    /// The run that it is.
    pub run: RunId,
    /// The state of that run. Parked, it starts nothing; if it has ended, somebody ended it.
    pub run_state: RunState,
    /// What it starts and when.
    pub timetable: Timetable,
    /// What is known of it beside.
    pub state: ScheduleState,
}

impl ScheduleView {
    /// The next times after this one, so many at most; none while it is paused.
    ///
    /// # Errors
    /// When its calendar cannot be understood.
    pub fn next(&self, after: Timestamp, many: usize) -> Result<Vec<Timestamp>, Error> {
        if self.state.paused || self.run_state.has_ended() {
            return Ok(Vec::new());
        }
        let times = self.timetable.times().map_err(Error::Value)?;
        let after = after.max(self.timetable.since).max(self.state.done.until);
        let next = times.following(after).take(many);
        Ok(next.collect())
    }
}

impl Client {
    /// The schedule of this name. It is kept in the database until it is removed, whoever set it,
    /// and any worker of the namespace keeps it.
    ///
    /// ```
    /// # async fn nightly(client: roundel::Client) -> Result<(), roundel::Error> {
    /// use roundel::{CatchUp, Overlap, Workflow};
    /// const REPORT: Workflow<String, ()> = Workflow::named("report");
    /// let report = REPORT.timed(&"sales".to_owned()).cron("30 3 * * mon-fri");
    /// let report = report.zone("Europe/Zurich").overlap(Overlap::Queue).catch_up(CatchUp::All);
    /// client.schedule("nightly").set(report).await?;
    /// client.operator("ada")?.reason("inventory").schedule("nightly").pause().await?;
    /// # Ok(()) }
    /// ```
    pub fn schedule(&self, name: impl Into<Cow<'static, str>>) -> Schedule {
        Schedule {
            client: self.clone(),
            name: name.into().into_owned(),
        }
    }

    /// Schedules, newest first, those after this run, so many at most.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn schedules(
        &self,
        after: Option<RunId>,
        limit: usize,
    ) -> Result<Page<ScheduleView>, Error> {
        let runs = self.runs().of(SCHEDULE.as_str().to_owned())?.limit(limit);
        let runs = match after {
            Some(after) => runs.after(after),
            None => runs,
        };
        let page = runs.fetch().await?;
        let (mut items, more) = (Vec::new(), page.more);
        for run in page.items {
            items.extend(self.schedule_view(run).await?);
        }
        Ok(Page { items, more })
    }

    /// None if the run is no schedule, or was deleted meanwhile.
    async fn schedule_view(&self, run: RunView) -> Result<Option<ScheduleView>, Error> {
        let row = run.row;
        let key = row.key.as_ref().map(Name::as_str);
        let Some(name) = key.and_then(schedule_of) else {
            return Ok(None);
        };
        let state = self.own_state(row.id).await?;
        let state: Option<ScheduleState> =
            state.map(|state| open_state(&state.value)).transpose()?;
        let state = state.unwrap_or_default();
        let timetable = match state.timetable.first() {
            Some(table) => Some(table.clone()),
            None => self.first_timetable(row.id, row.execution).await?,
        };
        let view = |timetable| ScheduleView {
            name: name.to_owned(),
            run: row.id,
            run_state: row.state,
            timetable,
            state,
        };
        Ok(timetable.map(view))
    }

    /// What the run of a schedule was started with.
    async fn first_timetable(
        &self,
        run: RunId,
        execution: u32,
    ) -> Result<Option<Timetable>, Error> {
        let query = Query::Journal {
            run,
            execution,
            after: 0,
            limit: 1,
        };
        let Answer::Journal(page) = self.inner.read(query).await? else {
            unreachable!("a journal was asked for")
        };
        let first = page.items.first().map(|row| decode_entries(&row.entries));
        let first = first.transpose();
        let first = first.map_err(|error| Error::Value(error.to_string()))?;
        match first.unwrap_or_default().first() {
            Some(Entry::Started { input, .. }) => Ok(Some(decode(input)?)),
            _ => Ok(None),
        }
    }
}

impl Schedule {
    /// Sets what it starts and when. If it says so already, nothing is done, so a program can set
    /// its schedules whenever it begins. A schedule that is paused stays so.
    ///
    /// # Errors
    /// When that cannot be understood or has no time ahead, or the database cannot be written.
    pub async fn set(&self, timed: Timed) -> Result<ScheduleSet, Error> {
        let table = timed.table(self.client.now())?;
        // Somebody else may set or remove it at the same time.
        loop {
            let view = match self.show().await {
                Ok(view) => view,
                Err(Error::NoSuchRun(_)) => match self.start(&table).await? {
                    true => return Ok(ScheduleSet::New),
                    false => continue,
                },
                Err(error) => return Err(error),
            };
            if view.run_state.has_ended() {
                self.remove().await?;
                continue;
            }
            if view.timetable.says_as(&table) {
                return Ok(ScheduleSet::Same);
            }
            match self.patch(json!({ "timetable": [table] })).await {
                Ok(()) => return Ok(ScheduleSet::Changed),
                Err(Error::NoSuchRun(_)) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns whether it was new.
    async fn start(&self, table: &Timetable) -> Result<bool, Error> {
        let namespace = self.client.inner.namespace.clone();
        let mut start = new_start(namespace, new_run(), (SCHEDULE, Some(1)), encode(table)?);
        start.key = Some(schedule_key(&self.name)?);
        start.claimant = self.client.inner.claimant();
        match self.client.act(Op::Start(start)).await {
            Ok(Reply::Started(started)) => Ok(started.new),
            Ok(_) => unreachable!("a start answers as one"),
            Err(Error::Refused(Refusal::Conflict { .. })) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// It, as it is.
    ///
    /// # Errors
    /// When there is none of that name.
    pub async fn show(&self) -> Result<ScheduleView, Error> {
        let key = schedule_key(&self.name)?;
        let run = self.client.run(key.as_str().to_owned()).await;
        let run = run.map_err(|error| match error {
            Error::NoSuchRun(_) => self.unknown(),
            error => error,
        })?;
        let view = self.client.schedule_view(run).await?;
        view.ok_or_else(|| self.unknown())
    }

    fn unknown(&self) -> Error {
        Error::NoSuchRun(format!("of a schedule `{}`", self.name))
    }

    /// Starts nothing by itself until it is resumed. What it started goes on, and what is asked of
    /// it is done.
    ///
    /// # Errors
    /// When there is none of that name.
    pub async fn pause(&self) -> Result<(), Error> {
        self.patch(json!({ "paused": true })).await
    }

    /// Starts what comes from now on. What it would have started while it was paused it does not.
    ///
    /// # Errors
    /// When there is none of that name.
    pub async fn resume(&self) -> Result<(), Error> {
        let now = self.client.now();
        match self.show().await?.state.paused {
            true => {
                self.patch(json!({ "paused": null, "owed_from": now }))
                    .await
            }
            false => Ok(()),
        }
    }

    /// Starts it once, now, also if it is paused; after the last run, if runs may not overlap.
    /// Returns the key under which it will be found.
    ///
    /// # Errors
    /// When there is none of that name.
    pub async fn run_now(&self) -> Result<String, Error> {
        let (view, id, at) = (self.show().await?, new_run().to_string(), self.client.now());
        self.ask(&view, &id, Asked::Now(at)).await?;
        let cause = roundel_core::Reason::Asked;
        let id = Some(id);
        Ok(Tick { at, cause, id }.key(&self.name))
    }

    /// Starts it for each of its times from the first of these to the last, both among them, also
    /// if it is paused: those that it has not been started for. One after the other, if runs may
    /// not overlap. Times that are yet to come are left to come. Returns how many times there are.
    ///
    /// # Errors
    /// When there is none of that name, or there are more than [`limits::MADE_UP`] times.
    pub async fn backfill(&self, first: Timestamp, last: Timestamp) -> Result<usize, Error> {
        let view = self.show().await?;
        // A time that was started ahead would not be started when it comes.
        let last = last.min(self.client.now());
        let times = view.timetable.times().map_err(Error::Value)?;
        let range = times.following(Timestamp(first.0.saturating_sub(1)));
        let many = range.take_while(|at| *at <= last).take(limits::MADE_UP + 1);
        let many = many.count();
        if many > limits::MADE_UP {
            let limit = limits::MADE_UP;
            let text = format!("there are more than {limit} times between these; take a part");
            return Err(Error::Value(text));
        }
        if many > 0 {
            let id = new_run().to_string();
            self.ask(&view, &id, Asked::Range(first, last)).await?;
        }
        Ok(many)
    }

    async fn ask(&self, view: &ScheduleView, id: &str, asked: Asked) -> Result<(), Error> {
        if view.state.asked.len() >= limits::ASKED {
            return Err(Error::Value(format!(
                "the schedule `{}` has not seen {} requests yet; is a worker there?",
                self.name,
                limits::ASKED
            )));
        }
        self.patch(json!({ "asked": { id: asked } })).await
    }

    /// Its next times, so many at most; none while it is paused.
    ///
    /// # Errors
    /// When there is none of that name.
    pub async fn next(&self, many: usize) -> Result<Vec<Timestamp>, Error> {
        self.show().await?.next(self.client.now(), many)
    }

    /// Removes it. What it started goes on.
    ///
    /// # Errors
    /// When there is none of that name.
    pub async fn remove(&self) -> Result<(), Error> {
        let op = Op::Delete(Delete {
            namespace: self.client.inner.namespace.clone(),
            target: Target::Key(schedule_key(&self.name)?),
            force: true,
        });
        match self.client.act(op).await {
            Ok(_) => Ok(()),
            Err(Error::Refused(Refusal::UnknownKey { .. })) => Err(self.unknown()),
            Err(error) => Err(error),
        }
    }

    async fn patch(&self, patch: Value) -> Result<(), Error> {
        let op = Op::Patch(Patch {
            namespace: self.client.inner.namespace.clone(),
            target: Target::Key(schedule_key(&self.name)?),
            patch: Payload::encode(&patch).map_err(|error| Error::Value(error.to_string()))?,
            expected: None,
        });
        match self.client.act(op).await? {
            Reply::Patched(Patched::Changed(_)) => Ok(()),
            _ => Err(self.unknown()),
        }
    }
}
