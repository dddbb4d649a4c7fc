//! `schedules add`: sets a schedule.

use std::time::Duration;

use clap::{Args, ValueEnum};
use roundel::{CatchUp, Client, Name, Overlap, ScheduleSet, Timed, Timestamp, read_instant};
use serde_json::json;

use super::{Asked, view};
use crate::exit::{Exit, Result};
use crate::payload;
use crate::show::Output;
use crate::start::span;

#[derive(Args, Debug)]
pub struct Add {
    #[command(flatten)]
    asked: Asked,
    /// The workflow that is started.
    #[arg(long, required_unless_present = "command", conflicts_with = "command")]
    workflow: Option<String>,
    /// Or the command that is sent.
    #[arg(long)]
    command: Option<String>,
    /// Its input: JSON, @file, or - for standard input.
    #[arg(long, default_value = "null", value_name = "JSON")]
    input: String,
    #[command(flatten)]
    times: Times,
    /// While the last run has not ended: start nothing, let one time wait, or let both run.
    #[arg(long, default_value = "skip")]
    overlap: WhileBusy,
    /// Of times that passed while nobody was there: make up for none, the latest, or all.
    #[arg(long, default_value = "one")]
    catch_up: OfMissed,
    /// So late is still in time, such as `90s` or `15min`.
    #[arg(long, default_value = "60s", value_parser = span, value_name = "TIME")]
    grace: Duration,
}

#[derive(Args, Debug)]
#[group(required = true)]
struct Times {
    /// At the times of a cron expression: `minute hour day month weekday`, or the second first.
    #[arg(long, group = "When")]
    cron: Option<String>,
    /// The time zone of the cron expression, such as `Europe/Zurich`; UTC unless said.
    #[arg(long, requires = "cron")]
    zone: Option<String>,
    /// Every so often from now on, such as `90s`, `15min`, `2h` or `3d`.
    #[arg(long, group = "When", value_parser = span, value_name = "TIME")]
    every: Option<Duration>,
    /// Once, at this time, such as `2026-11-16T03:00:00+01:00`.
    #[arg(long, group = "When", value_parser = read_instant, value_name = "TIME")]
    once: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum WhileBusy {
    Skip,
    Queue,
    Allow,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum OfMissed {
    None,
    One,
    All,
}

impl Times {
    fn of(&self, mut timed: Timed) -> Timed {
        if let Some(cron) = &self.cron {
            timed = timed.cron(cron.clone());
        }
        if let Some(zone) = &self.zone {
            timed = timed.zone(zone.clone());
        }
        if let Some(every) = self.every {
            timed = timed.every(every);
        }
        if let Some(at) = self.once {
            timed = timed.once(at);
        }
        timed
    }
}

impl Add {
    pub(super) fn output(&self) -> &Output {
        &self.asked.named.output
    }

    pub(super) async fn run(&self, client: &Client) -> Result<Exit> {
        let input = payload::read(&self.input)?;
        let timed = match (&self.workflow, &self.command) {
            (Some(workflow), _) => Timed::workflow(Name::new(workflow.clone())?, input),
            (None, queue) => {
                let queue = queue.clone().unwrap_or_default();
                Timed::command(Name::new(queue)?, input)
            }
        };
        let overlap = match self.overlap {
            WhileBusy::Skip => Overlap::Skip,
            WhileBusy::Queue => Overlap::Queue,
            WhileBusy::Allow => Overlap::Allow,
        };
        let catch_up = match self.catch_up {
            OfMissed::None => CatchUp::None,
            OfMissed::One => CatchUp::One,
            OfMissed::All => CatchUp::All,
        };
        let timed = self.times.of(timed).overlap(overlap).catch_up(catch_up);
        let schedule = self.asked.schedule(client)?;
        let set = schedule.set(timed.grace(self.grace)).await?;
        let set = match set {
            ScheduleSet::New => "new",
            ScheduleSet::Changed => "changed",
            ScheduleSet::Same => "as it was",
        };
        let view = schedule.show().await?;
        let mut screen = self.output().screen();
        if self.output().json {
            let mut shown = view::as_json(&view, client.now());
            shown["set"] = json!(set);
            screen.json(&shown);
        } else {
            let next = view::next_of(&view, client.now());
            screen.line(&format!("`{}` is {set}; next: {next}", view.name));
        }
        screen.flush()?;
        Ok(Exit::Done)
    }
}
