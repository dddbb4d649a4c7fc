//! `commands`: sending them, and what became of them. A command is a run; its queue is the workflow
//! of the same name, and its id the run's key in that queue.

mod list;
mod send;
mod show;

use clap::Subcommand;
use roundel::{Client, Entry, RunView, Timestamp};
use roundel_core::{Outcome, Payload, RunState};
use serde_json::{Value, json};

use crate::exit::{Exit, Result};
use crate::show::Output;

/// Send commands, and see what became of them.
#[derive(Subcommand, Debug)]
pub enum Commands {
    /// Send a command to its queue.
    Send(send::Send),
    /// One command: where it stands, what it was given, its attempts and its reply.
    Show(show::Show),
    /// The commands of a queue, newest first.
    List(list::List),
}

impl Commands {
    pub(crate) fn output(&self) -> &Output {
        match self {
            Commands::Send(args) => &args.output,
            Commands::Show(args) => &args.output,
            Commands::List(args) => &args.output,
        }
    }

    pub(crate) async fn run(self, client: &Client) -> Result<Exit> {
        match self {
            Commands::Send(args) => args.run(client).await,
            Commands::Show(args) => args.run(client).await,
            Commands::List(args) => args.run(client).await,
        }
    }
}

/// A command, with what it was given.
struct Sent {
    run: RunView,
    payload: Option<Payload>,
}

impl Sent {
    async fn read(run: RunView, client: &Client) -> Result<(Sent, Vec<Entry>)> {
        let journal = client.journal(run.row.id).await?;
        let payload = match journal.first() {
            Some(Entry::Started { input, .. }) => Some(input.clone()),
            _ => None,
        };
        Ok((Sent { run, payload }, journal))
    }

    /// Its id in its queue.
    fn id(&self) -> Option<&str> {
        let key = self.run.row.key.as_ref()?.as_str();
        key.strip_prefix(self.run.lane.workflow.as_str())?
            .strip_prefix(':')
    }

    /// When it may be taken up, if that is not yet.
    fn delayed(&self, now: Timestamp) -> Option<Timestamp> {
        let row = &self.run.row;
        let waits = matches!(row.state, RunState::Ready | RunState::Waiting);
        row.ready_at.filter(|at| waits && *at > now)
    }

    fn json(&self, now: Timestamp) -> Value {
        let row = &self.run.row;
        let ended =
            |outcome: &&Outcome| row.state.has_ended() || matches!(outcome, Outcome::Failure(_));
        json!({
            "queue": self.run.lane.workflow,
            "id": self.id(),
            "run": row.id,
            "state": row.state,
            "payload": self.payload,
            "outcome": row.outcome.as_ref().filter(ended),
            "priority": row.priority,
            "parent": row.parent.map(|parent| parent.run),
            "created_at": row.created_at,
            "changed_at": row.changed_at,
            "not_before": self.delayed(now),
        })
    }
}
