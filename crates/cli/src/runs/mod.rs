//! `runs`: what is there, what happened in it, and ending it.

mod causes;
mod drawing;
mod end;
mod filter;
mod follow;
mod list;
mod mend;
mod patch;
mod show;
mod tree;
mod undo;

use clap::Subcommand;
use roundel::{Client, RunView};

pub(crate) use filter::state;
pub(crate) use list::{looking, workflow};
pub(crate) use roundel_server::view::style;

use crate::exit::{Exit, Result};
use crate::show::Output;

/// Look at runs, and end them.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Runs, newest first.
    List(list::List),
    /// One run, also by the beginning of its id: where it stands, why, and what happened in it.
    Show(show::Show),
    /// What a run waits for and since when, down to what is really in its way.
    Why(causes::Why),
    /// The tree that a run is part of: all that was set off, and what became of it.
    Tree(tree::Tree),
    /// Ask runs, and all below them, to end.
    Cancel(end::Cancel),
    /// Let a parked run go on, or a rollback that failed.
    Resume(mend::Resume),
    /// Accept what a rollback that failed has left undone.
    Accept(mend::Accept),
    /// End a run that nobody has begun, with a value from elsewhere.
    Complete(mend::Complete),
    /// Merge a patch into a run's own state, which wakes it if it waits for that.
    Patch(patch::Patch),
    /// Undo what a run did, and all below it, newest first.
    Undo(undo::Undo),
    /// Remove runs that have ended, and all below them.
    Delete(end::Delete),
}

impl Command {
    pub(crate) fn output(&self) -> &Output {
        match self {
            Command::List(args) => &args.output,
            Command::Show(args) => &args.output,
            Command::Why(args) => &args.output,
            Command::Tree(args) => &args.output,
            Command::Cancel(args) => &args.output,
            Command::Resume(args) => &args.output,
            Command::Accept(args) => &args.output,
            Command::Complete(args) => &args.output,
            Command::Patch(args) => &args.output,
            Command::Undo(args) => &args.output,
            Command::Delete(args) => &args.output,
        }
    }

    pub(crate) async fn run(self, client: &Client) -> Result<Exit> {
        match self {
            Command::List(args) => list::run(&args, client).await,
            Command::Show(args) => show::run(&args, client).await,
            Command::Why(args) => causes::run(&args, client).await,
            Command::Tree(args) => tree::run(&args, client).await,
            Command::Cancel(args) => end::cancel(&args, client).await,
            Command::Resume(args) => mend::resume(&args, client).await,
            Command::Accept(args) => mend::accept(&args, client).await,
            Command::Complete(args) => mend::complete(&args, client).await,
            Command::Patch(args) => patch::run(&args, client).await,
            Command::Undo(args) => undo::run(&args, client).await,
            Command::Delete(args) => end::delete(&args, client).await,
        }
    }
}

/// What keeps a run from going on, as it is told.
pub(crate) async fn reasons(client: &Client, run: &RunView) -> Result<Vec<String>> {
    let (workers, now) = (client.workers().await?, client.now());
    let reasons = roundel_server::view::reasons(client, run, &workers, now).await?;
    Ok(reasons.into_iter().map(|reason| reason.text).collect())
}
