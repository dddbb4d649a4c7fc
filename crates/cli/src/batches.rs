//! `batches`: commands that were sent together, and how far they are.

use clap::{Args, Subcommand};
use roundel::{BatchState, BatchView, Client, Error, RunId, RunState, RunView, Timestamp};
use roundel_server::view;
use roundel_store::Page;
use serde_json::{Value, json};

use crate::exit::{Exit, Failed, Result};
use crate::many::Paging;
use crate::show::table::{self, fixed, flexible, plain};
use crate::show::{Output, Style, clean, time};
use crate::which::Which;

/// Commands that were sent together.
#[derive(Subcommand, Debug)]
pub enum Batches {
    /// Batches, newest first.
    List(List),
    /// One batch: where it stands, how many of its commands are where, and which failed.
    Show(Show),
}

#[derive(Args, Debug)]
pub struct List {
    #[command(flatten)]
    paging: Paging<RunId>,
    #[command(flatten)]
    output: Output,
}

#[derive(Args, Debug)]
pub struct Show {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    paging: Paging<RunId>,
    #[command(flatten)]
    output: Output,
}

impl Batches {
    pub(crate) fn output(&self) -> &Output {
        match self {
            Batches::List(args) => &args.output,
            Batches::Show(args) => &args.output,
        }
    }

    pub(crate) async fn run(self, client: &Client) -> Result<Exit> {
        match self {
            Batches::List(args) => args.run(client).await,
            Batches::Show(args) => args.run(client).await,
        }
    }
}

fn style(state: BatchState) -> Style {
    match state {
        BatchState::Running => Style::Busy,
        BatchState::AwaitingOperator => Style::Look,
        BatchState::Finished => Style::Good,
        BatchState::Cancelled => Style::Dim,
    }
}

/// Those that ended otherwise than with a reply.
fn failed(batch: &BatchView) -> u64 {
    batch.ended() - batch.count(RunState::Completed)
}

fn as_json(batch: &BatchView) -> Value {
    json!(view::Batch::from(batch))
}

impl List {
    async fn run(&self, client: &Client) -> Result<Exit> {
        let mut batches = client.batches().limit(self.paging.limit());
        if let Some(after) = self.paging.after {
            batches = batches.after(after);
        }
        let page = batches.fetch().await?;
        let mut screen = self.output.screen();
        if self.output.json {
            page.items
                .iter()
                .for_each(|batch| screen.json(&as_json(batch)));
            screen.flush()?;
            return Ok(Exit::Done);
        }
        if page.items.is_empty() {
            let namespace = client.namespace();
            self.output
                .note(&format!("no batches in namespace `{namespace}`"));
            return Ok(Exit::Done);
        }
        let columns = [
            fixed("batch"),
            fixed("state"),
            fixed("commands"),
            fixed("ended"),
            fixed("failed"),
            fixed("parked"),
            fixed("age"),
            flexible("key"),
        ];
        let now = client.now();
        let rows = page.items.iter().map(|batch| {
            let row = &batch.run.row;
            let parked = batch.count(RunState::Parked);
            vec![
                plain(row.id.to_string()),
                (style(batch.state()), batch.state().as_str().to_owned()),
                plain(batch.commands().to_string()),
                plain(batch.ended().to_string()),
                plain(failed(batch).to_string()),
                plain(parked.to_string()),
                (Style::Dim, time::short(now.since(row.created_at))),
                plain(row.key.as_ref().map_or("", |key| key.as_str())),
            ]
        });
        table::show(&mut screen, &columns, &rows.collect::<Vec<_>>());
        screen.flush()?;
        if let Some(last) = page.items.last().filter(|_| page.more) {
            let last = last.run.row.id;
            self.output.note(&format!("there are more: --after {last}"));
        }
        Ok(Exit::Done)
    }
}

impl Show {
    async fn run(&self, client: &Client) -> Result<Exit> {
        let run = self.which.find(client).await?.row.id;
        let batch = match client.batch_view(run).await {
            Err(Error::NoSuchRun(_)) => {
                let text = format!("run {run} is no batch; `batches list` shows those there are");
                return Err(Failed::new(Exit::NotFound, text));
            }
            other => other?,
        };
        let members = client.children(run, self.paging.after, self.paging.limit());
        let members = members.await?;
        if self.output.json {
            let mut screen = self.output.screen();
            let mut shown = as_json(&batch);
            shown["page"] = json!(
                members
                    .items
                    .iter()
                    .map(view::Member::from)
                    .collect::<Vec<_>>()
            );
            screen.json(&shown);
            screen.flush()?;
            return Ok(Exit::Done);
        }
        self.tell(&batch, &members, client.now())
    }

    fn tell(&self, batch: &BatchView, members: &Page<RunView>, now: Timestamp) -> Result<Exit> {
        let mut screen = self.output.screen();
        let row = &batch.run.row;
        let mut say = |name: &str, style: Style, text: &str| {
            let name = screen.paint(Style::Dim, &format!("{name:<10}"));
            let text = screen.paint(style, &clean(text));
            screen.line(&format!("{name}{text}"));
        };
        say("batch", Style::Head, &row.id.to_string());
        if let Some(key) = &row.key {
            say("key", Style::Plain, key.as_str());
        }
        say("state", style(batch.state()), batch.state().as_str());
        say("sent", Style::Plain, &time::both(row.created_at, now));
        let of = batch.commands();
        say("ended", Style::Plain, &format!("{} of {of}", batch.ended()));
        for (state, count) in &batch.members {
            say(
                "",
                crate::runs::style(*state),
                &format!("{count} {}", state.as_str()),
            );
        }
        screen.line("");
        let rows = members.items.iter().map(|member| {
            let row = &member.row;
            vec![
                plain(row.id.to_string()),
                (crate::runs::style(row.state), row.state.as_str().to_owned()),
                plain(member.lane.workflow.to_string()),
                plain(row.key.as_ref().map_or("", |key| key.as_str())),
            ]
        });
        let columns = [
            fixed("command"),
            fixed("state"),
            flexible("queue"),
            flexible("key"),
        ];
        table::show(&mut screen, &columns, &rows.collect::<Vec<_>>());
        screen.flush()?;
        if batch.state() == BatchState::AwaitingOperator {
            self.output
                .note("some of its commands are parked: `parked list` says why");
        }
        if let Some(last) = members.items.last().filter(|_| members.more) {
            self.output
                .note(&format!("there are more: --after {}", last.row.id));
        }
        Ok(Exit::Done)
    }
}
