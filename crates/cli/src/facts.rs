//! `facts` and `documents`: what happened, and what it came to.

use clap::{Args, Subcommand};
use roundel::{Client, DocumentView, FactView, Name, Position, Timestamp};
use roundel_server::view;
use serde_json::{Value, json};

use crate::exit::{Exit, Failed, Result};
use crate::incoming::{self, Append, Incoming};
use crate::show::table::{self, fixed, flexible, plain};
use crate::show::{Output, Style, as_value, clean, cut, time};

/// What happened, once and for all.
#[derive(Subcommand, Debug)]
pub enum Facts {
    /// List facts, in the order in which they were recorded.
    List(List),
    /// Show one fact with its envelope.
    Show(Show),
    /// Hand a fact in: a process that folds such facts takes it up.
    Append(Append),
    /// List facts that came in and are not recorded yet.
    Incoming(Incoming),
}

/// What facts came to.
#[derive(Subcommand, Debug)]
pub enum Documents {
    /// Print the document at a path.
    Get(Get),
    /// List documents by path.
    List(ListDocuments),
}

#[derive(Args, Debug)]
pub struct List {
    /// Of this kind.
    #[arg(long)]
    kind: Option<String>,
    /// Of this stream, in its order.
    #[arg(long, conflicts_with = "run")]
    stream: Option<String>,
    /// Recorded by this run, by its id or key.
    #[arg(long, value_name = "RUN")]
    run: Option<String>,
    /// So many at most, 1 to 1,000.
    #[arg(long, default_value = "50", value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
    /// Those after this one: the position of the last of the page before; of a stream, its number.
    #[arg(long, value_name = "POSITION")]
    after: Option<String>,
    #[command(flatten)]
    output: Output,
}

#[derive(Args, Debug)]
pub struct Show {
    /// The fact's id.
    id: String,
    #[command(flatten)]
    output: Output,
}

#[derive(Args, Debug)]
pub struct Get {
    /// Where it lies.
    path: String,
    #[command(flatten)]
    output: Output,
}

#[derive(Args, Debug)]
pub struct ListDocuments {
    /// Whose path begins like this.
    #[arg(default_value = "")]
    prefix: String,
    /// So many at most, 1 to 1,000.
    #[arg(long, default_value = "50", value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
    /// Those after this path: that of the last of the page before.
    #[arg(long, value_name = "PATH")]
    after: Option<String>,
    #[command(flatten)]
    output: Output,
}

impl Facts {
    pub(crate) fn output(&self) -> &Output {
        match self {
            Facts::List(args) => &args.output,
            Facts::Show(args) => &args.output,
            Facts::Append(args) => &args.output,
            Facts::Incoming(args) => &args.output,
        }
    }

    pub(crate) async fn run(self, client: &Client) -> Result<Exit> {
        match self {
            Facts::List(args) => list(&args, client).await,
            Facts::Show(args) => show(args, client).await,
            Facts::Append(args) => incoming::append(args, client).await,
            Facts::Incoming(args) => incoming::list(args, client).await,
        }
    }
}

impl Documents {
    pub(crate) fn output(&self) -> &Output {
        match self {
            Documents::Get(args) => &args.output,
            Documents::List(args) => &args.output,
        }
    }

    pub(crate) async fn run(self, client: &Client) -> Result<Exit> {
        match self {
            Documents::Get(args) => get(args, client).await,
            Documents::List(args) => list_documents(args, client).await,
        }
    }
}

fn bad_position(text: &str) -> Failed {
    let message = format!("`{}` is no position; `facts list` prints them", clean(text));
    Failed::usage(message)
}

async fn list(args: &List, client: &Client) -> Result<Exit> {
    let mut asked = client.facts().limit(args.limit.into());
    let after = args.after.as_deref();
    if let Some(stream) = &args.stream {
        let number = |text: &str| text.parse::<u64>().map_err(|_| bad_position(text));
        let after = after.map(number).transpose()?.unwrap_or(0);
        asked = asked.stream(stream.clone(), after);
    } else if let Some(text) = after {
        let position: Position = text.parse().map_err(|_| bad_position(text))?;
        asked = asked.after(position);
    }
    if let Some(kind) = &args.kind {
        asked = asked.kind(kind.clone());
    }
    if let Some(run) = &args.run {
        asked = asked.of_run(run.clone()).await?;
    }
    let page = asked.fetch().await?;
    let mut screen = args.output.screen();
    if args.output.json {
        page.items
            .iter()
            .for_each(|fact| screen.json(&as_json(fact)));
        screen.flush()?;
        return Ok(Exit::Done);
    }
    if page.items.is_empty() {
        args.output.note("no such facts");
        return Ok(Exit::Done);
    }
    let columns = [
        fixed("position"),
        fixed("age"),
        flexible("id"),
        flexible("kind"),
        flexible("stream"),
        flexible("says"),
    ];
    let now = client.now();
    let rows = page.items.iter().map(|fact| row(fact, now));
    table::show(&mut screen, &columns, &rows.collect::<Vec<_>>());
    screen.flush()?;
    if let Some(last) = page.items.last().filter(|_| page.more) {
        let number = last.row.stream.as_ref().map(|(_, number)| *number);
        let next = match (&args.stream, number) {
            (Some(_), Some(number)) => number.to_string(),
            _ => last.position.to_string(),
        };
        args.output.note(&format!("there are more: --after {next}"));
    }
    Ok(Exit::Done)
}

fn stream(fact: &FactView) -> String {
    let stream = fact.row.stream.as_ref();
    stream.map_or_else(String::new, |(name, number)| format!("{name} {number}"))
}

fn row(fact: &FactView, now: Timestamp) -> Vec<table::Cell> {
    vec![
        plain(fact.position.to_string()),
        (Style::Dim, time::short(now.since(fact.row.at))),
        plain(fact.id.id.as_str()),
        plain(fact.row.kind.as_str()),
        plain(stream(fact)),
        (Style::Dim, cut(fact.row.data.as_str(), 200)),
    ]
}

fn as_json(fact: &FactView) -> Value {
    as_value(&view::Fact::from(fact))
}

async fn show(args: Show, client: &Client) -> Result<Exit> {
    let Some(fact) = client.fact(args.id.clone()).await? else {
        let message = format!("there is no fact `{}` in this namespace", clean(&args.id));
        return Err(Failed::new(Exit::NotFound, message));
    };
    let mut screen = args.output.screen();
    if args.output.json {
        screen.json(&as_json(&fact));
        screen.flush()?;
        return Ok(Exit::Done);
    }
    let row = &fact.row;
    let whence = if row.own { "decided here" } else { "received" };
    let by = row
        .by
        .as_ref()
        .map_or_else(String::new, |by| format!(" by {by}"));
    let cause = row.cause.map_or_else(String::new, |cause| {
        let entry = cause.entry;
        format!(
            "run {}, execution {}, entry {entry}",
            cause.run, cause.execution
        )
    });
    let lines = [
        ("fact", fact.id.id.to_string()),
        ("kind", format!("{}, version {}", row.kind, row.version)),
        ("position", fact.position.to_string()),
        ("stream", stream(&fact)),
        ("at", time::utc(row.at)),
        ("how", format!("{whence}{by}")),
        ("recorded by", cause),
        ("says", row.data.as_str().to_owned()),
    ];
    for (what, text) in lines.iter().filter(|(_, text)| !text.is_empty()) {
        screen.line(&format!("{what:<12} {}", clean(text)));
    }
    screen.flush()?;
    Ok(Exit::Done)
}

async fn get(args: Get, client: &Client) -> Result<Exit> {
    let found = client.document::<Value>(args.path.clone()).await?;
    let Some(document) = found else {
        let message = format!("there is no document at `{}`", clean(&args.path));
        return Err(Failed::new(Exit::NotFound, message));
    };
    let mut screen = args.output.screen();
    if args.output.json {
        screen.json(&json!({
            "path": args.path,
            "version": document.version,
            "at": document.at,
            "value": document.value,
        }));
    } else {
        screen.line(&clean(&document.value.to_string()));
    }
    screen.flush()?;
    Ok(Exit::Done)
}

async fn list_documents(args: ListDocuments, client: &Client) -> Result<Exit> {
    let after = args.after.map(Name::new).transpose()?;
    let page = client
        .documents(args.prefix, after, args.limit.into())
        .await?;
    let mut screen = args.output.screen();
    if args.output.json {
        let items = page.items.iter();
        items.for_each(|document| screen.json(&document_json(document)));
        screen.flush()?;
        return Ok(Exit::Done);
    }
    if page.items.is_empty() {
        args.output.note("no such documents");
        return Ok(Exit::Done);
    }
    let columns = [
        flexible("path"),
        fixed("version"),
        fixed("age"),
        flexible("says"),
    ];
    let now = client.now();
    let rows = page.items.iter().map(|(id, row)| {
        let value = row.value.as_ref().map_or("", |value| value.as_str());
        vec![
            plain(id.path.as_str()),
            plain(row.version.to_string()),
            (Style::Dim, time::short(now.since(row.at))),
            (Style::Dim, cut(value, 200)),
        ]
    });
    table::show(&mut screen, &columns, &rows.collect::<Vec<_>>());
    screen.flush()?;
    if let Some((last, _)) = page.items.last().filter(|_| page.more) {
        let path = clean(last.path.as_str());
        args.output
            .note(&format!("there are more: --after '{path}'"));
    }
    Ok(Exit::Done)
}

fn document_json(document: &DocumentView) -> Value {
    as_value(&view::Document::from(document))
}
