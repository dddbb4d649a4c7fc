//! `signal` and `offer`: messages from the shell, and what became of them.

use clap::Args;
use roundel::{Client, Name, Sent};
use serde_json::json;

use crate::exit::{Exit, Failed, Result};
use crate::payload;
use crate::show::Output;
use crate::which::{Which, unknown};

/// Send a signal to a run.
#[derive(Args, Debug)]
pub struct Signal {
    #[command(flatten)]
    to: Which,
    /// The signal's name.
    signal: String,
    #[command(flatten)]
    what: What,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// Offer a signal to the run that waits longest for it; it is kept if none does.
#[derive(Args, Debug)]
pub struct Offer {
    /// The signal's name.
    signal: String,
    #[command(flatten)]
    what: What,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Args, Debug)]
struct What {
    /// What it says: JSON, @file, or - for standard input.
    #[arg(default_value = "null")]
    payload: String,
    /// Sending it again under this key does nothing, and gives the first answer.
    #[arg(long)]
    key: Option<String>,
}

pub(crate) async fn signal(args: Signal, client: &Client) -> Result<Exit> {
    let (name, payload) = (Name::new(args.signal)?, payload::read(&args.what.payload)?);
    let mut send = client.signal_named(args.to.to(), name.clone(), payload);
    if let Some(key) = args.what.key {
        send = send.key(key);
    }
    let sent = send.await?;
    if sent == Sent::TargetUnknown {
        return Err(unknown(args.to.text(), client));
    }
    answer(&args.output, sent)?;
    match sent {
        Sent::TargetEnded(state) => Err(Failed::new(
            Exit::No,
            format!(
                "`{}` was not sent: run `{}` has ended ({})",
                name,
                args.to.text(),
                state.as_str()
            ),
        )),
        _ => Ok(Exit::Done),
    }
}

pub(crate) async fn offer(args: Offer, client: &Client) -> Result<Exit> {
    let (name, payload) = (Name::new(args.signal)?, payload::read(&args.what.payload)?);
    let mut send = client.offer_named(name, payload);
    if let Some(key) = args.what.key {
        send = send.key(key);
    }
    answer(&args.output, send.await?)?;
    Ok(Exit::Done)
}

/// Says what became of it.
fn answer(output: &Output, sent: Sent) -> Result<()> {
    let mut screen = output.screen();
    let (word, run) = match sent {
        Sent::Delivered(run) => ("delivered", Some(run)),
        Sent::Queued => ("queued", None),
        Sent::Dropped => ("dropped", None),
        Sent::TargetEnded(_) => ("target_ended", None),
        Sent::TargetUnknown => ("target_unknown", None),
    };
    match (output.json, sent) {
        (true, Sent::TargetEnded(state)) => screen.json(&json!({"sent": word, "state": state})),
        (true, _) => screen.json(&json!({"sent": word, "run": run})),
        (false, Sent::Delivered(run)) => screen.line(&format!("delivered to {run}, which waited")),
        (false, Sent::Queued) => screen.line("kept until a run waits for it"),
        (false, _) => {}
    }
    screen.flush()
}
