//! Schedules: what is started again and again, and changing that.

use std::time::Duration;

use roundel::{CatchUp, Name, Overlap, Payload, RunId, ScheduleSet, Timed, instant, read_instant};

use super::submit::or_null;
use super::{Because, Operate, Paged, See, limit};
use crate::cursor;
use crate::problem::Problem;
use crate::route::{Ask, Json};
use crate::shape::{Listing, Nothing, input, output};
use crate::view::Schedule;

pub(crate) async fn list(cap: See, ask: Ask<Paged>) -> Result<Json<Listing<Schedule>>, Problem> {
    let (client, limit) = (cap.client(), limit(&cap, ask.query.limit)?);
    let after = match &ask.query.cursor {
        Some(word) => Some(cursor::read::<RunId>("schedules", word)?),
        None => None,
    };
    let page = client.schedules(after, limit).await?;
    let last = page.items.last().filter(|_| page.more);
    let now = client.now();
    Ok(Json(Listing {
        next: last.map(|last| cursor::write("schedules", &last.run)),
        items: page
            .items
            .iter()
            .map(|view| Schedule::of(view, now))
            .collect(),
    }))
}

/// Of a schedule's next times, at most.
const TIMES: u16 = 1000;

input! {
    /// How much of it.
    pub(crate) struct ShowAsked {
        /// So many of its next times, up to 1,000; a few unless said.
        times: Option<u16>,
    }
}

pub(crate) async fn show(cap: See, ask: Ask<ShowAsked>) -> Result<Json<Schedule>, Problem> {
    let (client, times) = (cap.client(), ask.query.times);
    if times.is_some_and(|times| !(1..=TIMES).contains(&times)) {
        let text = format!("a schedule is shown with 1 to {TIMES} of its next times");
        return Err(Problem::bad(text));
    }
    let view = client.schedule(ask.name().to_owned()).show().await?;
    let (mut shown, now) = (Schedule::of(&view, client.now()), client.now());
    if let Some(times) = times {
        let times = view.next(now, times.into())?;
        shown.times = times.into_iter().map(instant).collect();
    }
    Ok(Json(shown))
}

input! {
    /// What is started, and when: one of `cron`, `every_ms` and `once`.
    pub(crate) struct ScheduleAsked {
        /// The workflow that is started.
        workflow: Option<Name>,
        /// Or the queue to which a command is sent.
        command: Option<Name>,
        /// With what; null unless said.
        input: Option<Payload>,
        /// Minute, hour, day of month, month, day of week; or the second before them.
        cron: Option<String>,
        /// By the clocks of this time zone; of UTC unless said.
        zone: Option<String>,
        /// Every so many milliseconds.
        every_ms: Option<u64>,
        /// Once, at this time.
        once: Option<String>,
        /// While the last goes on: `skip`, `queue` or `allow`.
        overlap: Option<String>,
        /// Of times at which nobody was there, start: `none`, `one` or `all`.
        catch_up: Option<String>,
        /// So late is still in time, in milliseconds.
        grace_ms: Option<u64>,
        /// Why, for the audit.
        reason: Option<String>,
    }
}

fn timed(asked: &ScheduleAsked) -> Result<Timed, Problem> {
    let input = or_null(asked.input.clone());
    let mut timed = match (&asked.workflow, &asked.command) {
        (Some(workflow), None) => Timed::workflow(workflow.clone(), input),
        (None, Some(queue)) => Timed::command(queue.clone(), input),
        _ => return Err(Problem::bad("say one of `workflow` and `command`")),
    };
    timed = match (&asked.cron, asked.every_ms, &asked.once) {
        (Some(cron), None, None) => timed.cron(cron.clone()),
        (None, Some(ms), None) => timed.every(Duration::from_millis(ms)),
        (None, None, Some(at)) => timed.once(read_instant(at).map_err(Problem::bad)?),
        _ => return Err(Problem::bad("say one of `cron`, `every_ms` and `once`")),
    };
    if let Some(grace) = asked.grace_ms {
        timed = timed.grace(Duration::from_millis(grace));
    }
    if let Some(zone) = &asked.zone {
        timed = timed.zone(zone.clone());
    }
    timed = match asked.overlap.as_deref() {
        None => timed,
        Some("skip") => timed.overlap(Overlap::Skip),
        Some("queue") => timed.overlap(Overlap::Queue),
        Some("allow") => timed.overlap(Overlap::Allow),
        Some(_) => return Err(Problem::bad("`overlap` is skip, queue or allow")),
    };
    Ok(match asked.catch_up.as_deref() {
        None => timed,
        Some("none") => timed.catch_up(CatchUp::None),
        Some("one") => timed.catch_up(CatchUp::One),
        Some("all") => timed.catch_up(CatchUp::All),
        Some(_) => return Err(Problem::bad("`catch_up` is none, one or all")),
    })
}

output! {
    /// What came of it.
    pub(crate) struct ScheduleAnswer {
        /// `new`, `changed` or `same`.
        set: &'static str,
        /// The schedule as it is now.
        schedule: Schedule,
    }
}

pub(crate) async fn set(
    cap: Operate,
    ask: Ask<Nothing, ScheduleAsked>,
) -> Result<Json<ScheduleAnswer>, Problem> {
    let client = cap.because(ask.body.reason.as_deref());
    let schedule = client.schedule(ask.name().to_owned());
    let set = match schedule.set(timed(&ask.body)?).await? {
        ScheduleSet::New => "new",
        ScheduleSet::Changed => "changed",
        ScheduleSet::Same => "same",
    };
    let schedule = Schedule::of(&schedule.show().await?, client.now());
    Ok(Json(ScheduleAnswer { set, schedule }))
}

output! {
    /// What came of it.
    pub(crate) struct ScheduleDone {
        /// The key of the run that was started, if one was.
        key: Option<String>,
    }
}

/// Pause, resume or run.
pub(crate) async fn ask(
    cap: Operate,
    ask: Ask<Nothing, Because>,
) -> Result<Json<ScheduleDone>, Problem> {
    let client = cap.because(ask.body.reason.as_deref());
    let [name, verb] = ask.named.as_slice() else {
        return Err(Problem::missing("say what to ask of which schedule"));
    };
    let schedule = client.schedule(name.clone());
    let key = match verb.as_str() {
        "pause" => schedule.pause().await.map(|()| None)?,
        "resume" => schedule.resume().await.map(|()| None)?,
        "run" => Some(schedule.run_now().await?),
        _ => {
            return Err(Problem::missing(
                "a schedule is asked to pause, resume or run",
            ));
        }
    };
    Ok(Json(ScheduleDone { key }))
}

pub(crate) async fn remove(cap: Operate, ask: Ask<Because>) -> Result<Json<ScheduleDone>, Problem> {
    let client = cap.because(ask.query.reason.as_deref());
    client.schedule(ask.name().to_owned()).remove().await?;
    Ok(Json(ScheduleDone { key: None }))
}

input! {
    /// Which times of the past.
    pub(crate) struct BackfillAsked {
        /// The first, such as `2026-11-16T03:00:00Z`.
        first: String,
        /// The last.
        last: String,
        /// Why, for the audit.
        reason: Option<String>,
    }
}

output! {
    /// What came of it.
    pub(crate) struct BackfillAnswer {
        /// How many times there are between them.
        times: usize,
    }
}

/// Starts it for times of the past for which it was not started.
pub(crate) async fn backfill(
    cap: Operate,
    ask: Ask<Nothing, BackfillAsked>,
) -> Result<Json<BackfillAnswer>, Problem> {
    let client = cap.because(ask.body.reason.as_deref());
    let read = |text: &str| read_instant(text).map_err(Problem::bad);
    let (first, last) = (read(&ask.body.first)?, read(&ask.body.last)?);
    let schedule = client.schedule(ask.name().to_owned());
    let times = schedule.backfill(first, last).await?;
    Ok(Json(BackfillAnswer { times }))
}
