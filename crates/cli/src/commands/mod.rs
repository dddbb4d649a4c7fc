//! `commands`: sending them, and what became of them. A command is a run; its queue is the workflow
//! of the same name, and its id the run's key in that queue.

mod list;
mod send;
mod show;

use clap::Subcommand;
use roundel::Client;

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
