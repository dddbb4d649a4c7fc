//! `schedules`: what is started again and again, by itself.

mod add;
mod view;

use clap::{Args, Subcommand};
use roundel::{Client, Error, RunId, Schedule, Timestamp, instant, read_instant};
use serde_json::json;

use crate::exit::{Exit, Failed, Result};
use crate::many::Paging;
use crate::show::Output;
use crate::signed::Signed;

/// What is started again and again.
#[derive(Subcommand, Debug)]
pub enum Schedules {
    /// Schedules, newest first: what they start, when next, and what they did.
    List(List),
    /// One schedule, and what it did last.
    Show(Named),
    /// Set a schedule: a new one, or one that is there to something else.
    Add(Box<add::Add>),
    /// Start nothing by itself until it is resumed; what was started goes on.
    Pause(Asked),
    /// Start what comes from now on; what it would have started while it was paused stays undone.
    Resume(Asked),
    /// Start it once, now, also if it is paused.
    Run(Asked),
    /// Start it for each of its times in a range, up to now, that it was not started for.
    Backfill(Backfill),
    /// Its next times.
    Next(Next),
    /// Remove it; what it started goes on.
    Remove(Asked),
}

#[derive(Args, Debug)]
pub struct List {
    #[command(flatten)]
    paging: Paging<RunId>,
    #[command(flatten)]
    output: Output,
}

#[derive(Args, Debug)]
pub struct Named {
    /// The schedule's name.
    name: String,
    #[command(flatten)]
    output: Output,
}

#[derive(Args, Debug)]
pub struct Asked {
    #[command(flatten)]
    named: Named,
    #[command(flatten)]
    signed: Signed,
}

#[derive(Args, Debug)]
pub struct Backfill {
    #[command(flatten)]
    asked: Asked,
    /// From this time on, such as `2026-11-16` or `2026-11-16T03:00:00+01:00`.
    #[arg(long, value_name = "TIME", value_parser = read_instant)]
    from: Timestamp,
    /// Up to this time, itself among them.
    #[arg(long, value_name = "TIME", value_parser = read_instant)]
    to: Timestamp,
}

#[derive(Args, Debug)]
pub struct Next {
    #[command(flatten)]
    named: Named,
    /// So many, 1 to 1,000.
    #[arg(long, default_value = "10", value_parser = clap::value_parser!(u16).range(1..=1000))]
    count: u16,
}

impl Schedules {
    pub(crate) fn output(&self) -> &Output {
        match self {
            Schedules::List(args) => &args.output,
            Schedules::Show(args) => &args.output,
            Schedules::Add(args) => args.output(),
            Schedules::Pause(args)
            | Schedules::Resume(args)
            | Schedules::Run(args)
            | Schedules::Remove(args) => &args.named.output,
            Schedules::Backfill(args) => &args.asked.named.output,
            Schedules::Next(args) => &args.named.output,
        }
    }

    pub(crate) async fn run(self, client: &Client) -> Result<Exit> {
        match self {
            Schedules::List(args) => view::list(&args, client).await,
            Schedules::Show(args) => view::show(&args, client).await,
            Schedules::Add(args) => args.run(client).await,
            Schedules::Pause(args) => {
                known(args.schedule(client)?.pause().await)?;
                view::show(&args.named, client).await
            }
            Schedules::Resume(args) => {
                known(args.schedule(client)?.resume().await)?;
                view::show(&args.named, client).await
            }
            Schedules::Run(args) => {
                let key = known(args.schedule(client)?.run_now().await)?;
                let text = format!("it is started under the key `{key}`");
                args.named.say(&json!({ "key": key }), &text)
            }
            Schedules::Backfill(args) => args.run(client).await,
            Schedules::Next(args) => args.run(client).await,
            Schedules::Remove(args) => {
                known(args.schedule(client)?.remove().await)?;
                let name = &args.named.name;
                args.named
                    .say(&json!({ "removed": name }), &format!("`{name}` is removed"))
            }
        }
    }
}

impl Named {
    fn schedule(&self, client: &Client) -> Schedule {
        client.schedule(self.name.clone())
    }

    fn say(&self, json: &serde_json::Value, text: &str) -> Result<Exit> {
        let mut screen = self.output.screen();
        match self.output.json {
            true => screen.json(json),
            false => screen.line(text),
        }
        screen.flush()?;
        Ok(Exit::Done)
    }
}

impl Asked {
    /// It, in the name of whoever asks.
    fn schedule(&self, client: &Client) -> Result<Schedule> {
        Ok(self.named.schedule(&self.signed.client(client)?))
    }
}

impl Backfill {
    async fn run(&self, client: &Client) -> Result<Exit> {
        let schedule = self.asked.schedule(client)?;
        let times = known(schedule.backfill(self.from, self.to).await)?;
        let text = match times {
            0 => "it has no time in that range that has come".to_owned(),
            times => format!("it is started for {times} times, if it was not already"),
        };
        self.asked.named.say(&json!({ "times": times }), &text)
    }
}

impl Next {
    async fn run(&self, client: &Client) -> Result<Exit> {
        let next = self.named.schedule(client).next(self.count.into()).await;
        let next = known(next)?;
        let mut screen = self.named.output.screen();
        for at in &next {
            match self.named.output.json {
                true => screen.json(&json!({ "at": instant(*at) })),
                false => screen.line(&instant(*at)),
            }
        }
        screen.flush()?;
        if next.is_empty() {
            self.named
                .output
                .note("it starts nothing by itself: it is paused, or its times are over");
        }
        Ok(Exit::Done)
    }
}

/// A schedule that is not there is said to be that.
fn known<T>(asked: std::result::Result<T, Error>) -> Result<T> {
    match asked {
        Err(Error::NoSuchRun(text)) => {
            let text = format!("there is no run {text}; `schedules list` shows those there are");
            Err(Failed::new(Exit::NotFound, text))
        }
        other => Ok(other?),
    }
}
