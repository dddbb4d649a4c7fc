//! `parked`: the troubleshooting queue. What waits for an operator, alike or not, and what is done
//! about it.

mod act;
mod show;

use clap::{Args, Subcommand};
use roundel::{
    Client, Failure, Parked as Queue, Remedy, Timestamp, Trouble, TroubleGroup, TroubleId,
};
use roundel_server::view;
use serde_json::{Value, json};

use act::Act;
use show::Show;

use crate::exit::{Exit, Result};
use crate::many::Paging;
use crate::payload;
use crate::runs::workflow;
use crate::show::table::{self, fixed, flexible, plain};
use crate::show::{Output, Style, as_value, clean, cut, time};
use crate::start::label;
use crate::which::By;

/// What waits for an operator: commands, runs, rollbacks and signals.
#[derive(Subcommand, Debug)]
pub enum Parked {
    /// What is there, newest first, with the reason.
    List(List),
    /// How many there are.
    Count(Count),
    /// Those whose failures are alike, together.
    Groups(Count),
    /// One of them: why it is parked, what it was given, and what can be done.
    Show(Show),
    /// Try them again; with another input, or without the undo that failed.
    Retry(Retry),
    /// They will not be done: what they did before is undone, unless told otherwise.
    Cancel(Cancel),
    /// They were done otherwise: this is the reply.
    Complete(Complete),
    /// Undo what they did.
    Undo(Act),
    /// Of rollbacks that failed: what is left of them stays.
    Accept(Act),
    /// Of signals: send them to another run.
    Replay(Replay),
    /// Of signals: offer each to the run that waits longest for it.
    Offer(Act),
    /// Of signals: remove them.
    Discard(Act),
}

#[derive(Args, Clone, Debug)]
struct Filter {
    /// Only of this workflow, or of this command's queue.
    #[arg(long)]
    workflow: Option<String>,
    /// Only with this label.
    #[arg(long, value_name = "NAME=VALUE", value_parser = label)]
    label: Option<(String, String)>,
    /// Only those whose failure has this code.
    #[arg(long)]
    code: Option<String>,
    /// Only those of this group, as `parked groups` names it.
    #[arg(long, value_name = "FINGERPRINT")]
    group: Option<String>,
}

#[derive(Args, Debug)]
pub struct List {
    #[command(flatten)]
    filter: Filter,
    #[command(flatten)]
    paging: Paging<TroubleId>,
    #[command(flatten)]
    output: Output,
}

#[derive(Args, Debug)]
pub struct Count {
    #[command(flatten)]
    filter: Filter,
    #[command(flatten)]
    output: Output,
}

#[derive(Args, Debug)]
pub struct Retry {
    #[command(flatten)]
    act: Act,
    /// Begin anew with this input. JSON, @file, or - for standard input.
    #[arg(long, conflicts_with = "skip")]
    input: Option<String>,
    /// Of rollbacks that failed: leave out the undo that failed.
    #[arg(long)]
    skip: bool,
}

#[derive(Args, Debug)]
pub struct Cancel {
    #[command(flatten)]
    act: Act,
    /// Undo nothing: what they did, and what they set off, stays.
    #[arg(long)]
    without_undo: bool,
}

#[derive(Args, Debug)]
pub struct Replay {
    #[command(flatten)]
    act: Act,
    /// The run that gets them: its id, or the key it was started with.
    #[arg(long, value_name = "RUN")]
    to: String,
}

#[derive(Args, Debug)]
pub struct Complete {
    /// What they come to: JSON, @file, or - for standard input.
    #[arg(long, value_name = "JSON", default_value = "null")]
    value: String,
    #[command(flatten)]
    act: Act,
}

impl Parked {
    pub(crate) fn output(&self) -> &Output {
        match self {
            Parked::List(args) => &args.output,
            Parked::Count(args) | Parked::Groups(args) => &args.output,
            Parked::Show(args) => &args.output,
            Parked::Retry(args) => &args.act.output,
            Parked::Complete(args) => &args.act.output,
            Parked::Replay(args) => &args.act.output,
            Parked::Cancel(args) => &args.act.output,
            Parked::Undo(args) | Parked::Accept(args) => &args.output,
            Parked::Offer(args) | Parked::Discard(args) => &args.output,
        }
    }

    pub(crate) async fn run(self, client: &Client) -> Result<Exit> {
        match self {
            Parked::List(args) => args.run(client).await,
            Parked::Count(args) => args.count(client).await,
            Parked::Groups(args) => args.groups(client).await,
            Parked::Show(args) => args.run(client).await,
            Parked::Retry(args) => {
                let remedy = match &args.input {
                    Some(input) => Remedy::RetryWith(payload::read(input)?),
                    None if args.skip => Remedy::Skip,
                    None => Remedy::Retry,
                };
                args.act.run("retry", &remedy, client).await
            }
            Parked::Cancel(args) => {
                let remedy = match args.without_undo {
                    true => Remedy::CancelWithoutUndo,
                    false => Remedy::Cancel,
                };
                args.act.run("cancel", &remedy, client).await
            }
            Parked::Complete(args) => {
                let remedy = Remedy::Complete(payload::read(&args.value)?);
                args.act.run("complete", &remedy, client).await
            }
            Parked::Undo(args) => args.run("undo", &Remedy::Undo, client).await,
            Parked::Accept(args) => args.run("accept", &Remedy::Accept, client).await,
            Parked::Replay(args) => {
                let remedy = Remedy::Replay(By::default().to(&args.to));
                args.act.run("replay", &remedy, client).await
            }
            Parked::Offer(args) => args.run("offer", &Remedy::Offer, client).await,
            Parked::Discard(args) => args.run("discard", &Remedy::Discard, client).await,
        }
    }
}

impl Filter {
    fn queue(&self, client: &Client) -> Result<Queue> {
        let mut queue = client.parked();
        if let Some(workflow) = &self.workflow {
            queue = queue.of(workflow.clone())?;
        }
        if let Some((name, value)) = &self.label {
            queue = queue.with_label(name.clone(), value.clone())?;
        }
        if let Some(code) = &self.code {
            queue = queue.with_code(code.clone());
        }
        if let Some(group) = &self.group {
            queue = queue.in_group(group.clone());
        }
        Ok(queue)
    }
}

fn as_json(trouble: &Trouble) -> Value {
    as_value(&view::Parked::from(trouble))
}

impl List {
    async fn run(&self, client: &Client) -> Result<Exit> {
        let mut queue = self.filter.queue(client)?.limit(self.paging.limit());
        if let Some(after) = self.paging.after {
            queue = queue.after(after);
        }
        let page = queue.fetch().await?;
        let mut screen = self.output.screen();
        if self.output.json {
            page.items
                .iter()
                .for_each(|trouble| screen.json(&as_json(trouble)));
            screen.flush()?;
            return Ok(Exit::Done);
        }
        if page.items.is_empty() {
            let namespace = client.namespace();
            self.output
                .note(&format!("nothing is parked in namespace `{namespace}`"));
            return Ok(Exit::Done);
        }
        let columns = [
            fixed("run"),
            flexible("workflow"),
            flexible("key"),
            fixed("since"),
            fixed("code"),
            flexible("reason"),
        ];
        let now = client.now();
        let rows = page.items.iter().map(|run| row(run, now));
        table::show(&mut screen, &columns, &rows.collect::<Vec<_>>());
        screen.flush()?;
        if let Some(last) = page.items.last().filter(|_| page.more) {
            let last = last.id();
            self.output.note(&format!("there are more: --after {last}"));
        }
        Ok(Exit::Done)
    }
}

fn row(trouble: &Trouble, now: Timestamp) -> Vec<table::Cell> {
    let (what, key) = match trouble {
        Trouble::Run(run) => (workflow(run), run.row.key.as_ref()),
        Trouble::Signal(signal) => (signal.lane.workflow.to_string(), None),
    };
    let why = trouble.why();
    let said = |why: &Failure| (clean(&why.code), cut(&why.message, 200));
    let (code, message) = why.map(|why| said(&why)).unwrap_or_default();
    vec![
        plain(trouble.id().to_string()),
        plain(what),
        plain(key.map_or("", |key| key.as_str())),
        (Style::Dim, time::short(now.since(trouble.since()))),
        (Style::Look, code),
        plain(message),
    ]
}

impl Count {
    async fn count(&self, client: &Client) -> Result<Exit> {
        let count = self.filter.queue(client)?.count().await?;
        let mut screen = self.output.screen();
        if self.output.json {
            screen.json(&json!({ "parked": count }));
        } else {
            screen.line(&count.to_string());
        }
        screen.flush()?;
        Ok(Exit::Done)
    }

    async fn groups(&self, client: &Client) -> Result<Exit> {
        let groups = self.filter.queue(client)?.groups().await?;
        let mut screen = self.output.screen();
        if self.output.json {
            let show = |group: &TroubleGroup| screen.json(&as_value(&view::Group::from(group)));
            groups.iter().for_each(show);
            screen.flush()?;
            return Ok(Exit::Done);
        }
        if groups.is_empty() {
            self.output.note("nothing like that is parked");
            return Ok(Exit::Done);
        }
        let columns = [
            fixed("fingerprint"),
            fixed("count"),
            flexible("workflow"),
            fixed("code"),
            flexible("such as"),
        ];
        let rows = groups.iter().map(|group| {
            vec![
                plain(group.fingerprint.clone()),
                plain(group.count.to_string()),
                plain(group.workflows.join(" ")),
                (Style::Look, clean(&group.code)),
                plain(cut(&group.message, 200)),
            ]
        });
        table::show(&mut screen, &columns, &rows.collect::<Vec<_>>());
        screen.flush()?;
        Ok(Exit::Done)
    }
}
