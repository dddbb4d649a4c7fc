//! `top`: what goes on, live, in a terminal; once where there is none.

mod frame;
mod snapshot;
#[cfg(unix)]
mod terminal;

use std::io::IsTerminal;
use std::time::Duration;

use clap::Args;
use roundel::Client;

use crate::exit::{Exit, Result};
use crate::show::Output;
use crate::start::span;
use frame::Frame;
use snapshot::{Rates, Snapshot};

/// The database spends at most this part of its time on being looked at: one in so many.
const PART: u32 = 10;

/// What goes on, live: rates, counts, queues, workers, what waits longest, what failed last.
#[derive(Args, Debug)]
pub struct Top {
    /// Look once, and print it: as where there is no terminal, and with --json.
    #[arg(long)]
    once: bool,
    /// How often to look.
    #[arg(long, value_name = "SPAN", value_parser = span, default_value = "1s")]
    every: Duration,
    #[command(flatten)]
    pub(crate) output: Output,
}

pub(crate) async fn run(args: &Top, client: &Client) -> Result<Exit> {
    let seen = Snapshot::take(client).await?;
    let live = !args.once && !args.output.json && std::io::stdout().is_terminal();
    if live && std::io::stdin().is_terminal() && cfg!(unix) {
        return watch(args, client, seen).await;
    }
    let mut screen = args.output.screen();
    if args.output.json {
        screen.json(&seen.json());
    } else {
        let frame = Frame {
            seen: &seen,
            rates: &Rates::default(),
            every: None,
        };
        frame.draw(&mut screen, usize::MAX);
    }
    screen.flush()?;
    Ok(Exit::Done)
}

#[cfg(unix)]
async fn watch(args: &Top, client: &Client, mut seen: Snapshot) -> Result<Exit> {
    use terminal::{Event, Terminal};
    let mut terminal = Terminal::enter()?;
    let mut rates = Rates::default();
    loop {
        let frame = Frame {
            seen: &seen,
            rates: &rates,
            every: Some(args.every),
        };
        let mut screen = args.output.screen();
        frame.draw(&mut screen, terminal::rows());
        terminal.show(&screen.take())?;
        match terminal.wait(args.every.max(seen.took * PART)).await {
            Event::Leave => return Ok(Exit::Done),
            Event::Resized => continue,
            Event::Time => {}
        }
        let next = tokio::select! {
            next = Snapshot::take(client) => next?,
            () = terminal.left() => return Ok(Exit::Done),
        };
        rates.add(&seen, &next);
        seen = next;
    }
}

#[cfg(not(unix))]
async fn watch(_: &Top, _: &Client, _: Snapshot) -> Result<Exit> {
    unreachable!("it is looked once")
}
