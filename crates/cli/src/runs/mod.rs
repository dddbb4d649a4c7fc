//! `runs`: what is there, what happened in it, and ending it.

mod end;
mod filter;
mod list;
mod show;
mod timeline;
mod why;

use clap::Subcommand;
use roundel::{Client, RunState};

use crate::exit::{Exit, Result};
use crate::show::{Output, Style};

/// Look at runs, and end them.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Runs, newest first.
    List(list::List),
    /// One run, also by the beginning of its id: where it stands, why, and what happened in it.
    Show(show::Show),
    /// Ask runs, and all below them, to end.
    Cancel(end::Cancel),
    /// Let a parked run go on.
    Resume(end::Resume),
    /// Remove runs that have ended, and all below them.
    Delete(end::Delete),
}

impl Command {
    pub(crate) fn output(&self) -> &Output {
        match self {
            Command::List(args) => &args.output,
            Command::Show(args) => &args.output,
            Command::Cancel(args) => &args.output,
            Command::Resume(args) => &args.output,
            Command::Delete(args) => &args.output,
        }
    }

    pub(crate) async fn run(self, client: &Client) -> Result<Exit> {
        match self {
            Command::List(args) => list::run(&args, client).await,
            Command::Show(args) => show::run(&args, client).await,
            Command::Cancel(args) => end::cancel(&args, client).await,
            Command::Resume(args) => end::resume(&args, client).await,
            Command::Delete(args) => end::delete(&args, client).await,
        }
    }
}

/// What a state means to whoever looks.
fn style(state: RunState) -> Style {
    match state {
        RunState::Completed => Style::Good,
        RunState::Failed | RunState::RollbackFailed => Style::Bad,
        RunState::Parked => Style::Look,
        RunState::Running | RunState::RollingBack => Style::Busy,
        RunState::Cancelled | RunState::RolledBack => Style::Dim,
        RunState::Ready | RunState::Waiting => Style::Plain,
    }
}
