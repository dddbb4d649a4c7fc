//! Schedules as they are, for people and for programs.

use roundel::{Calendar, Client, Overlap, ScheduleView, Timestamp, What, instant};
use roundel_server::view::time::words;
use roundel_server::view::{Schedule as Shown, next_of as next, schedule_state as state};
use serde_json::Value;

use super::{List, Named, known};
use crate::exit::{Exit, Result};
use crate::show::table::{self, fixed, flexible, plain};
use crate::show::{Style, as_value, clean, time};

/// The next time, and how long until then.
pub(super) fn next_of(view: &ScheduleView, now: Timestamp) -> String {
    next(view, now).map_or_else(|| "none".to_owned(), |at| time::both(at, now))
}

fn what(what: What) -> &'static str {
    match what {
        What::Started => "started",
        What::Repeated => "was there",
        What::Skipped => "skipped",
        What::Missed => "missed",
        What::Refused => "refused",
    }
}

pub(super) fn as_json(view: &ScheduleView, now: Timestamp) -> Value {
    as_value(&Shown::of(view, now))
}

pub(super) async fn list(args: &List, client: &Client) -> Result<Exit> {
    let (after, limit) = (args.paging.after, args.paging.limit());
    let page = client.schedules(after, limit).await?;
    let (mut screen, now) = (args.output.screen(), client.now());
    if args.output.json {
        page.items
            .iter()
            .for_each(|view| screen.json(&as_json(view, now)));
        screen.flush()?;
        return Ok(Exit::Done);
    }
    if page.items.is_empty() {
        let namespace = client.namespace();
        args.output
            .note(&format!("no schedules in namespace `{namespace}`"));
        return Ok(Exit::Done);
    }
    let columns = [
        flexible("schedule"),
        fixed("state"),
        flexible("when"),
        flexible("starts"),
        fixed("next"),
        fixed("started"),
        fixed("skipped"),
        fixed("missed"),
    ];
    let row = |view: &ScheduleView| {
        let (style, state) = state(view, now);
        let done = &view.state.done;
        let next = next(view, now).map(|at| time::from_now(at, now));
        vec![
            plain(view.name.clone()),
            (style, state.to_owned()),
            plain(words(&view.timetable)),
            plain(view.timetable.workflow.as_str()),
            plain(next.unwrap_or_default()),
            plain(done.started.to_string()),
            plain(done.skipped.to_string()),
            plain(done.missed.to_string()),
        ]
    };
    let rows: Vec<_> = page.items.iter().map(row).collect();
    table::show(&mut screen, &columns, &rows);
    screen.flush()?;
    if let Some(last) = page.items.last().filter(|_| page.more) {
        let last = last.run;
        args.output.note(&format!("there are more: --after {last}"));
    }
    Ok(Exit::Done)
}

pub(super) async fn show(args: &Named, client: &Client) -> Result<Exit> {
    let view = known(args.schedule(client).show().await)?;
    let (mut screen, now) = (args.output.screen(), client.now());
    if args.output.json {
        screen.json(&as_json(&view, now));
        screen.flush()?;
        return Ok(Exit::Done);
    }
    let (table, done) = (&view.timetable, &view.state.done);
    let mut say = |name: &str, style: Style, text: &str| {
        let name = screen.paint(Style::Dim, &format!("{name:<10}"));
        let text = screen.paint(style, &clean(text));
        screen.line(&format!("{name}{text}"));
    };
    let (style, state) = state(&view, now);
    say("schedule", Style::Head, &view.name);
    say("state", style, state);
    say("when", Style::Plain, &words(table));
    if let Calendar::Cron { expression, .. } = &table.calendar {
        say("cron", Style::Plain, expression);
    }
    let kind = if table.command { "sends" } else { "starts" };
    say(kind, Style::Plain, table.workflow.as_str());
    say("input", Style::Plain, table.input.as_str());
    let busy = match table.overlap {
        Overlap::Skip => "a time is skipped while the last run goes on",
        Overlap::Queue => "one time waits while the last run goes on",
        Overlap::Allow => "runs may overlap",
    };
    say("overlap", Style::Plain, busy);
    say("next", Style::Plain, &next_of(&view, now));
    let (started, skipped, missed) = (done.started, done.skipped, done.missed);
    let counts = format!("{started} started, {skipped} skipped, {missed} missed");
    say("so far", Style::Plain, &counts);
    if let Some(running) = done.running {
        say("last run", Style::Plain, &running.to_string());
    }
    if !done.waiting.is_empty() {
        say("waiting", Style::Look, &done.waiting.len().to_string());
    }
    for did in done.recent.iter().rev() {
        let run = did.run.map(|run| run.to_string()).unwrap_or_default();
        let text = format!("{:<10}{run}", what(did.what));
        let name = screen.paint(Style::Dim, &instant(did.at));
        screen.line(&format!("{name}  {}", text.trim_end()));
    }
    screen.flush()?;
    Ok(Exit::Done)
}
