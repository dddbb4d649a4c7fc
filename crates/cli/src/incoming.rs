//! `facts append`, `facts incoming` and `tick`: facts that come in.

use clap::{Args, ValueEnum};
use roundel::{Arrival, Client, Name, Queued, Received, RunId, RunState, Timestamp};
use serde_json::{Value, json};

use crate::exit::{Exit, Failed, Result};
use crate::payload;
use crate::show::table::{self, fixed, flexible, plain};
use crate::show::{Output, Style, as_value, clean, cut, time};

#[derive(Args, Debug)]
pub struct Append {
    /// What kind of thing happened.
    kind: String,
    /// What it says: JSON, @file, or - for standard input.
    #[arg(default_value = "null")]
    data: String,
    /// Under this id: the same fact twice is one.
    #[arg(long)]
    id: Option<String>,
    /// Counted in this stream.
    #[arg(long)]
    stream: Option<String>,
    /// Not before the fact of this id; may be said several times.
    #[arg(long, value_name = "ID")]
    needs: Vec<String>,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Args, Debug)]
pub struct Incoming {
    /// Those that the next tick takes, that wait for others, or that an operator must look at.
    #[arg(long, value_enum, default_value = "ready")]
    state: Stand,
    /// So many at most, 1 to 1,000.
    #[arg(long, default_value = "50", value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
    /// Those after this run: that of the last of the page before.
    #[arg(long, value_name = "RUN")]
    after: Option<RunId>,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum Stand {
    Ready,
    Waiting,
    Parked,
}

/// Take facts that came in, and run jobs, once.
#[derive(Args, Debug)]
pub struct Tick {
    /// As of this time, in microseconds since 1970, UTC; now unless said.
    #[arg(long, value_name = "MICROS")]
    at: Option<i64>,
    #[command(flatten)]
    pub(crate) output: Output,
}

pub(crate) async fn append(args: Append, client: &Client) -> Result<Exit> {
    let (kind, data) = (Name::new(args.kind)?, payload::read(&args.data)?);
    let mut arrival = Arrival::named(kind, data);
    if let Some(id) = args.id {
        arrival = arrival.id(id);
    }
    if let Some(stream) = args.stream {
        arrival = arrival.stream(stream);
    }
    for id in args.needs {
        arrival = arrival.needs(id);
    }
    let (answer, run) = match client.append(arrival).await? {
        Received::Queued(run) => ("queued", Some(run)),
        Received::Recorded(_) => ("recorded before", None),
        Received::Gone => {
            let message = "somebody has discarded this fact; append it under another id";
            return Err(Failed::new(Exit::No, message));
        }
        other => unreachable!("it is only kept: {other:?}"),
    };
    let mut screen = args.output.screen();
    match (args.output.json, run) {
        (true, _) => screen.json(&json!({"answer": answer, "run": run})),
        (false, Some(run)) => screen.line(&format!("{answer} as {run}")),
        (false, None) => screen.line(answer),
    }
    screen.flush()?;
    Ok(Exit::Done)
}

pub(crate) async fn list(args: Incoming, client: &Client) -> Result<Exit> {
    let state = match args.state {
        Stand::Ready => RunState::Ready,
        Stand::Waiting => RunState::Waiting,
        Stand::Parked => RunState::Parked,
    };
    let page = client
        .incoming(state, args.after, args.limit.into())
        .await?;
    let mut screen = args.output.screen();
    if args.output.json {
        page.items
            .iter()
            .for_each(|item| screen.json(&as_json(item)));
        screen.flush()?;
        return Ok(Exit::Done);
    }
    if page.items.is_empty() {
        args.output.note("no such facts");
        return Ok(Exit::Done);
    }
    let columns = [
        fixed("run"),
        fixed("age"),
        flexible("fact"),
        flexible("kind"),
        flexible("waits for"),
        flexible("says"),
    ];
    let now = client.now();
    let rows = page.items.iter().map(|item| row(item, now));
    table::show(&mut screen, &columns, &rows.collect::<Vec<_>>());
    screen.flush()?;
    if let Some(last) = page.items.last().filter(|_| page.more) {
        let next = last.run.row.id;
        args.output.note(&format!("there are more: --after {next}"));
    }
    Ok(Exit::Done)
}

fn row(item: &Queued, now: Timestamp) -> Vec<table::Cell> {
    let (id, kind, says) = item.fact.as_ref().map_or(("?", "?", ""), |fact| {
        (fact.id.as_str(), fact.kind.as_str(), fact.data.as_str())
    });
    vec![
        plain(item.run.row.id.to_string()),
        (Style::Dim, time::short(now.since(item.run.row.created_at))),
        plain(id),
        plain(kind),
        plain(missing(item)),
        (Style::Dim, cut(says, 200)),
    ]
}

fn missing(item: &Queued) -> String {
    let missing: Vec<&str> = item.missing.iter().map(Name::as_str).collect();
    missing.join(", ")
}

fn as_json(item: &Queued) -> Value {
    json!({
        "run": item.run.row.id,
        "state": item.run.row.state.as_str(),
        "at": item.run.row.created_at,
        "fact": as_value(&item.fact),
        "missing": item.missing,
    })
}

pub(crate) async fn tick(args: Tick, client: &Client) -> Result<Exit> {
    let now = args.at.map_or_else(|| client.now(), Timestamp);
    let ticked = client.tick(now).await?;
    let taken = &ticked.incoming;
    let mut screen = args.output.screen();
    if args.output.json {
        let failed = ticked.failed.iter();
        let failed = failed.map(|(job, error)| json!({"job": job, "error": error.to_string()}));
        screen.json(&json!({
            "recorded": taken.recorded,
            "repeated": taken.repeated,
            "waiting": taken.waiting,
            "parked": taken.parked,
            "more": ticked.more,
            "jobs": ticked.jobs,
            "failed": failed.collect::<Vec<Value>>(),
        }));
    } else {
        screen.line(&format!(
            "{} recorded, {} waiting, {} parked; {} jobs done, {} failed",
            taken.recorded,
            taken.waiting,
            taken.parked,
            ticked.jobs,
            ticked.failed.len()
        ));
        for (job, error) in &ticked.failed {
            screen.line(&clean(&format!("{job}: {error}")));
        }
    }
    screen.flush()?;
    Ok(match ticked.failed.is_empty() {
        true => Exit::Done,
        false => Exit::No,
    })
}
