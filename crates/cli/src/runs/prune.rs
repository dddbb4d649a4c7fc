//! `runs prune`: what ended long ago.

use std::time::Duration;

use clap::Args;
use roundel::Client;
use serde_json::json;

use crate::exit::{Exit, Failed, Result};
use crate::many::{agreed, counted};
use crate::show::{Output, Progress};
use crate::signed::Signed;
use crate::start::span;

#[derive(Args, Debug)]
pub struct Prune {
    /// How long ago the root of a tree has ended at least, such as `2h` or `30d`.
    #[arg(long, value_parser = span)]
    older_than: Duration,
    /// Do it without asking.
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    signed: Signed,
    #[command(flatten)]
    pub(crate) output: Output,
}

pub(super) async fn run(args: &Prune, client: &Client) -> Result<Exit> {
    let client = &args.signed.client(client)?;
    if !args.yes && !agreed("Remove what ended before then, for good?")? {
        return Err(Failed::new(Exit::No, "nothing was removed"));
    }
    let mut progress = Progress::new();
    progress.say("removing what ended long ago ...");
    let before = client.now().before(args.older_than);
    let removed = client.prune(before).await?;
    drop(progress);
    let mut screen = args.output.screen();
    if args.output.json {
        screen.json(&json!({"deed": "prune", "runs": removed}));
    } else {
        screen.line(&format!("{} removed", counted(removed, "run")));
    }
    screen.flush()?;
    Ok(Exit::Done)
}
