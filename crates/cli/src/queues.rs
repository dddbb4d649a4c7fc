//! `queues`: which queues have limits, and what they are limited to.

use std::time::Duration;

use clap::{Args, Subcommand};
use roundel::{Client, Name, Queue, QueueLimits};
use roundel_server::view;
use serde_json::{Value, json};

use crate::exit::{Exit, Result};
use crate::show::table::{self, fixed, flexible, plain};
use crate::show::{Output, Style, time};
use crate::signed::Signed;
use crate::start::span;

/// Queues that have limits.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Queues {
    #[command(subcommand)]
    part: Option<Part>,
    #[command(flatten)]
    output: Output,
}

#[derive(Subcommand, Debug)]
enum Part {
    /// Limit a queue, for all processes at once; what is not said stays as it is.
    Set(Set),
    /// Begin nothing of a queue until it is resumed; what is in hand goes on.
    Pause(Which),
    /// Begin what waits, within the limits.
    Resume(Which),
}

#[derive(Args, Debug)]
struct Which {
    /// The queue: the name of its command, or of a workflow.
    queue: String,
    #[command(flatten)]
    signed: Signed,
    #[command(flatten)]
    output: Output,
}

#[derive(Args, Debug)]
struct Set {
    #[command(flatten)]
    which: Which,
    /// So many in hand at once; `none` for as many as there are workers for.
    #[arg(long, value_name = "N|none", value_parser = or_none(number))]
    concurrency: Option<OrNone<u32>>,
    /// So many with the same flow key in hand at once; `none` for as many as there is room for.
    #[arg(long, value_name = "N|none", value_parser = or_none(number))]
    per_key: Option<OrNone<u32>>,
    /// So many begun in so long, such as `100/1m`; `none` for as fast as they come.
    #[arg(long, value_name = "N/TIME|none", value_parser = or_none(rate))]
    rate: Option<OrNone<(u32, Duration)>>,
}

/// A limit, or that there is none.
#[derive(Clone, Copy, Debug)]
enum OrNone<T> {
    Some(T),
    None,
}

fn or_none<T>(
    read: fn(&str) -> std::result::Result<T, String>,
) -> impl Fn(&str) -> std::result::Result<OrNone<T>, String> + Clone {
    move |text| match text {
        "none" => Ok(OrNone::None),
        text => read(text).map(OrNone::Some),
    }
}

fn number(text: &str) -> std::result::Result<u32, String> {
    let number: std::result::Result<u32, _> = text.parse();
    number.map_err(|error| format!("{error}; say a number such as 5, or none"))
}

fn rate(text: &str) -> std::result::Result<(u32, Duration), String> {
    let (count, per) = text
        .split_once('/')
        .ok_or("say how many in how long, such as 100/1m, or none")?;
    Ok((number(count)?, span(per)?))
}

impl Queues {
    pub(crate) fn output(&self) -> &Output {
        match &self.part {
            None => &self.output,
            Some(Part::Set(args)) => &args.which.output,
            Some(Part::Pause(args) | Part::Resume(args)) => &args.output,
        }
    }

    pub(crate) async fn run(self, client: &Client) -> Result<Exit> {
        match self.part {
            None => list(&self.output, client).await,
            Some(Part::Set(args)) => {
                let mut queue = args.which.queue(client)?;
                queue = match args.concurrency {
                    None => queue,
                    Some(OrNone::None) => queue.any_concurrency(),
                    Some(OrNone::Some(most)) => queue.concurrency(most),
                };
                queue = match args.per_key {
                    None => queue,
                    Some(OrNone::None) => queue.any_per_key(),
                    Some(OrNone::Some(most)) => queue.per_key(most),
                };
                queue = match args.rate {
                    None => queue,
                    Some(OrNone::None) => queue.any_rate(),
                    Some(OrNone::Some((count, per))) => queue.rate(count, per),
                };
                queue.set().await?;
                args.which.say(client).await
            }
            Some(Part::Pause(args)) => {
                args.queue(client)?.pause().await?;
                args.say(client).await
            }
            Some(Part::Resume(args)) => {
                args.queue(client)?.resume().await?;
                args.say(client).await
            }
        }
    }
}

impl Which {
    fn queue(&self, client: &Client) -> Result<Queue> {
        let name = Name::new(self.queue.clone())?;
        Ok(self.signed.client(client)?.queue_named(name))
    }

    /// The limits as they are now.
    async fn say(&self, client: &Client) -> Result<Exit> {
        let queues = client.queues().await?;
        let its = |queue: &&QueueLimits| queue.queue.as_str() == self.queue;
        let mut screen = self.output.screen();
        for queue in queues.iter().filter(its) {
            match self.output.json {
                true => screen.json(&as_json(queue)),
                false => screen.line(&format!("`{}`: {}", queue.queue, queue.limits)),
            }
        }
        screen.flush()?;
        Ok(Exit::Done)
    }
}

async fn list(output: &Output, client: &Client) -> Result<Exit> {
    let queues = client.queues().await?;
    let mut screen = output.screen();
    if output.json {
        queues.iter().for_each(|queue| screen.json(&as_json(queue)));
        screen.flush()?;
        return Ok(Exit::Done);
    }
    if queues.is_empty() {
        let namespace = client.namespace();
        output.note(&format!("no queues with limits in namespace `{namespace}`"));
        return Ok(Exit::Done);
    }
    let columns = [
        flexible("queue"),
        fixed("state"),
        fixed("in hand"),
        fixed("at once"),
        fixed("of a key"),
        fixed("rate"),
    ];
    let rows: Vec<_> = queues.iter().map(row).collect();
    table::show(&mut screen, &columns, &rows);
    screen.flush()?;
    Ok(Exit::Done)
}

fn row(queue: &QueueLimits) -> Vec<table::Cell> {
    let limits = &queue.limits;
    let state = match limits.paused {
        true => (Style::Look, "paused".to_owned()),
        false => plain("open"),
    };
    let number = |most: Option<u32>| most.map(|most| most.to_string()).unwrap_or_default();
    let rate = limits.rate;
    let rate = rate.map(|rate| format!("{} in {}", rate.count, time::span(rate.per)));
    vec![
        plain(queue.queue.as_str()),
        state,
        plain(queue.permits.to_string()),
        plain(number(limits.concurrency)),
        plain(number(limits.per_key)),
        plain(rate.unwrap_or_default()),
    ]
}

fn as_json(queue: &QueueLimits) -> Value {
    json!(view::Queue::from(queue))
}
