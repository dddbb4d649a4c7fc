//! `topics` and `publish`: who subscribes to what, what was published, and whether anybody heard.

use clap::{Args, Subcommand};
use roundel::{Client, Name, PublicationId, Timestamp};
use roundel_server::view;
use roundel_store::{PublicationView, TopicView};
use serde_json::{Value, json};

use crate::exit::{Exit, Result};
use crate::payload;
use crate::show::table::{self, fixed, flexible, plain};
use crate::show::{Output, Style, as_value, cut, time};
use crate::signed::Signed;

/// Topics: who subscribes, and what was published.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Topics {
    #[command(subcommand)]
    part: Option<Part>,
    #[command(flatten)]
    output: Output,
}

#[derive(Subcommand, Debug)]
enum Part {
    /// What was published to a topic, newest first.
    Show(Show),
    /// Let a workflow start a run for all that is published to a topic from now on.
    Subscribe(Subscription),
    /// End that; what is under way goes on.
    Unsubscribe(Subscription),
}

#[derive(Args, Debug)]
struct Show {
    /// The topic.
    topic: String,
    /// So many at most, 1 to 1,000.
    #[arg(long, default_value = "20", value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
    /// Those after this publication: the last of the page before.
    #[arg(long, value_name = "ID")]
    after: Option<PublicationId>,
    #[command(flatten)]
    output: Output,
}

#[derive(Args, Debug)]
struct Subscription {
    /// The topic.
    topic: String,
    /// The workflow; it need not be deployed yet.
    workflow: String,
    #[command(flatten)]
    signed: Signed,
    #[command(flatten)]
    output: Output,
}

/// Publish to a topic: every workflow that subscribes starts a run.
#[derive(Args, Debug)]
pub struct Publish {
    /// The topic.
    topic: String,
    /// What it says: JSON, @file, or - for standard input.
    #[arg(default_value = "null")]
    payload: String,
    #[command(flatten)]
    pub(crate) output: Output,
}

impl Topics {
    pub(crate) fn output(&self) -> &Output {
        match &self.part {
            None => &self.output,
            Some(Part::Show(args)) => &args.output,
            Some(Part::Subscribe(args) | Part::Unsubscribe(args)) => &args.output,
        }
    }

    pub(crate) async fn run(self, client: &Client) -> Result<Exit> {
        match self.part {
            None => list(&self.output, client).await,
            Some(Part::Show(args)) => show(args, client).await,
            Some(Part::Subscribe(args)) => {
                let client = &args.signed.client(client)?;
                let new = client.subscribe(&args.topic, &args.workflow).await?;
                let (done, before) = ("subscribes now", "subscribed before");
                args.say(client, if new { done } else { before }, new)
            }
            Some(Part::Unsubscribe(args)) => {
                let client = &args.signed.client(client)?;
                let was = client.unsubscribe(&args.topic, &args.workflow).await?;
                let (done, before) = ("subscribes no longer", "did not subscribe");
                args.say(client, if was { done } else { before }, was)
            }
        }
    }
}

impl Subscription {
    fn say(&self, client: &Client, what: &str, changed: bool) -> Result<Exit> {
        let mut screen = self.output.screen();
        if self.output.json {
            let (topic, workflow) = (&self.topic, &self.workflow);
            screen.json(&json!({"topic": topic, "workflow": workflow, "changed": changed}));
        } else {
            let (workflow, topic) = (&self.workflow, &self.topic);
            let namespace = client.namespace();
            screen.line(&format!(
                "`{workflow}` {what} to `{topic}` in namespace `{namespace}`"
            ));
        }
        screen.flush()?;
        Ok(Exit::Done)
    }
}

async fn list(output: &Output, client: &Client) -> Result<Exit> {
    let (topics, now) = (client.topics().await?, client.now());
    let mut screen = output.screen();
    if output.json {
        topics.iter().for_each(|topic| screen.json(&as_json(topic)));
        screen.flush()?;
        return Ok(Exit::Done);
    }
    if topics.is_empty() {
        output.note(&format!("no topics in namespace `{}`", client.namespace()));
        return Ok(Exit::Done);
    }
    let columns = [
        flexible("topic"),
        flexible("subscribers"),
        fixed("published"),
        fixed("unheard"),
        fixed("last"),
    ];
    let rows = topics.iter().map(|topic| row(topic, now));
    table::show(&mut screen, &columns, &rows.collect::<Vec<_>>());
    screen.flush()?;
    Ok(Exit::Done)
}

fn row(topic: &TopicView, now: Timestamp) -> Vec<table::Cell> {
    let names = topic.subscribers.iter().map(|(name, _)| name.as_str());
    let names: Vec<&str> = names.collect();
    let subscribers = match names.is_empty() {
        true => (Style::Look, "nobody".to_owned()),
        false => plain(names.join(" ")),
    };
    let more = if topic.more { "+" } else { "" };
    let unheard = match topic.unheard {
        0 => (Style::Dim, "0".to_owned()),
        unheard => (Style::Look, format!("{unheard}{more}")),
    };
    let last = topic.last_at.map(|at| time::short(now.since(at)));
    vec![
        plain(topic.topic.as_str()),
        subscribers,
        plain(format!("{}{more}", topic.publications)),
        unheard,
        (Style::Dim, last.unwrap_or_default()),
    ]
}

fn as_json(topic: &TopicView) -> Value {
    json!(view::Topic::from(topic))
}

async fn show(args: Show, client: &Client) -> Result<Exit> {
    let topic = Name::new(args.topic)?;
    let page = client
        .publications(topic.clone(), args.after, args.limit.into())
        .await?;
    let mut screen = args.output.screen();
    if args.output.json {
        let show = |item: &PublicationView| screen.json(&as_value(&view::Publication::from(item)));
        page.items.iter().for_each(show);
        screen.flush()?;
        return Ok(Exit::Done);
    }
    if page.items.is_empty() {
        let more = if args.after.is_some() { "more " } else { "" };
        args.output.note(&format!(
            "no {more}publications to `{topic}` in namespace `{}`",
            client.namespace()
        ));
        return Ok(Exit::Done);
    }
    let now = client.now();
    let columns = [
        fixed("publication"),
        fixed("age"),
        fixed("runs"),
        flexible("says"),
        flexible("published by"),
    ];
    let rows = page.items.iter().map(|item| published(item, now));
    table::show(&mut screen, &columns, &rows.collect::<Vec<_>>());
    screen.flush()?;
    if let Some((last, _)) = page.items.last().filter(|_| page.more) {
        args.output.note(&format!("there are more: --after {last}"));
    }
    Ok(Exit::Done)
}

fn published((id, row): &PublicationView, now: Timestamp) -> Vec<table::Cell> {
    let heard = match row.heard {
        0 => (Style::Look, "unheard".to_owned()),
        heard => plain(heard.to_string()),
    };
    let by = row.by.map(|by| by.run.to_string());
    vec![
        plain(id.to_string()),
        (Style::Dim, time::short(now.since(row.at))),
        heard,
        plain(cut(row.payload.as_str(), 200)),
        (Style::Dim, by.unwrap_or_else(|| "a client".into())),
    ]
}

pub(crate) async fn publish(args: Publish, client: &Client) -> Result<Exit> {
    let (topic, payload) = (Name::new(args.topic)?, payload::read(&args.payload)?);
    let published = client.publish_named(topic.clone(), payload).await?;
    let (id, heard) = (published.id, published.heard);
    let mut screen = args.output.screen();
    if args.output.json {
        screen.json(&json!({"publication": id, "heard": heard}));
    } else {
        let runs = if heard == 1 { "run" } else { "runs" };
        screen.line(&format!("{id}: {heard} {runs} started"));
    }
    screen.flush()?;
    if heard == 0 {
        args.output.note(&format!(
            "nobody subscribes to `{topic}` in namespace `{}`; who does later does not get it",
            client.namespace()
        ));
    }
    Ok(Exit::Done)
}
