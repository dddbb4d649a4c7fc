//! `runs resume`, `accept` and `complete`: what an operator decides about a run that cannot.

use clap::Args;
use roundel::{Client, Error, Refusal};
use serde_json::json;

use crate::exit::{Exit, Result};
use crate::payload;
use crate::show::Output;
use crate::signed::Signed;
use crate::which::{Which, unknown};

#[derive(Args, Debug)]
pub struct Resume {
    #[command(flatten)]
    which: Which,
    /// Of a rollback that failed: leave out the undo that failed.
    #[arg(long)]
    skip: bool,
    /// Of a parked run: begin anew with this input. JSON, @file, or - for standard input.
    #[arg(long, conflicts_with = "skip")]
    input: Option<String>,
    #[command(flatten)]
    signed: Signed,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Args, Debug)]
pub struct Accept {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    signed: Signed,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Args, Debug)]
pub struct Complete {
    #[command(flatten)]
    which: Which,
    /// What it comes to: JSON, @file, or - for standard input.
    #[arg(default_value = "null")]
    value: String,
    #[command(flatten)]
    signed: Signed,
    #[command(flatten)]
    pub(crate) output: Output,
}

pub(crate) async fn resume(args: &Resume, client: &Client) -> Result<Exit> {
    let client = &args.signed.client(client)?;
    let done = match &args.input {
        Some(input) => {
            let input = payload::read(input)?;
            client.resume_with_payload(args.which.to(), input).await
        }
        None if args.skip => client.resume_skipping(args.which.to()).await,
        None => client.resume(args.which.to()).await,
    };
    known(done, &args.which, client)?;
    say(
        &args.output,
        "resumed",
        "it goes on when a worker takes it up",
    )
}

pub(crate) async fn accept(args: &Accept, client: &Client) -> Result<Exit> {
    let client = &args.signed.client(client)?;
    known(client.accept(args.which.to()).await, &args.which, client)?;
    let text = "accepted: what is left of it stays, and it is parked no longer";
    say(&args.output, "accepted", text)
}

pub(crate) async fn complete(args: &Complete, client: &Client) -> Result<Exit> {
    let client = &args.signed.client(client)?;
    let value = payload::read(&args.value)?;
    let done = client.complete(args.which.to(), &value).await;
    known(done, &args.which, client)?;
    let text = "completed; whoever waits for it goes on";
    say(&args.output, "completed", text)
}

/// A run that is not there is said so with what helps.
fn known(done: std::result::Result<(), Error>, which: &Which, client: &Client) -> Result<()> {
    match done {
        Err(
            Error::NoSuchRun(_)
            | Error::Refused(Refusal::UnknownRun { .. } | Refusal::UnknownKey { .. }),
        ) => Err(unknown(which.text(), client)),
        other => Ok(other?),
    }
}

fn say(output: &Output, word: &str, text: &str) -> Result<Exit> {
    let mut screen = output.screen();
    if output.json {
        screen.json(&json!({ word: 1 }));
    } else {
        screen.line(text);
    }
    screen.flush()?;
    Ok(Exit::Done)
}
