//! `commands send`: a command, from the shell.

use std::time::Duration;

use clap::Args;
use roundel::{Client, Name};

use crate::exit::{Exit, Result};
use crate::payload;
use crate::show::Output;
use crate::start::{Started, Waiting, is_first, label, span};

#[derive(Args, Debug)]
pub struct Send {
    /// The queue, which is the command's name.
    queue: String,
    /// Its payload: JSON, @file, or - for standard input.
    #[arg(default_value = "null")]
    payload: String,
    /// Your own id for it in its queue: sending it again gives the first.
    #[arg(long)]
    id: Option<String>,
    /// A label, for search; may be said several times.
    #[arg(long, value_name = "NAME=VALUE", value_parser = label)]
    label: Vec<(String, String)>,
    /// Lower is taken up first.
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    priority: i32,
    /// On whose behalf: the keys of a queue take turns, and can be limited each.
    #[arg(long, value_name = "KEY")]
    flow_key: Option<String>,
    /// Not before this long from now, such as `90s`, `15min`, `2h` or `3d`.
    #[arg(long, value_parser = span)]
    delay: Option<Duration>,
    /// Only the first with this key in the time that `--window` says is sent.
    #[arg(
        long,
        value_name = "KEY",
        requires = "window",
        conflicts_with_all = ["debounce", "id"]
    )]
    dedupe: Option<String>,
    /// Begins when no other with this key has come for as long as `--window` says.
    #[arg(long, value_name = "KEY", requires = "window", conflicts_with = "id")]
    debounce: Option<String>,
    /// The time in which commands are alike, such as `90s` or `15min`.
    #[arg(long, value_name = "SPAN", value_parser = span)]
    window: Option<Duration>,
    #[command(flatten)]
    waiting: Waiting,
    #[command(flatten)]
    pub(crate) output: Output,
}

impl Send {
    pub(super) async fn run(self, client: &Client) -> Result<Exit> {
        let queue = Name::new(self.queue)?;
        let payload = payload::read(&self.payload)?;
        let first = is_first(client, &queue).await;
        let mut send = client.send_named(queue.clone(), payload);
        send = send.priority(self.priority);
        if let Some(id) = self.id {
            send = send.key(id);
        }
        if let Some(key) = self.flow_key {
            send = send.flow_key(key);
        }
        let again = match self.dedupe.is_some() || self.debounce.is_some() {
            true => "one like it had been sent before, and stands for it too",
            false => "it had been sent before, under this id",
        };
        if let Some((key, window)) = self.dedupe.zip(self.window) {
            send = send.dedupe(key, window);
        }
        if let Some((key, window)) = self.debounce.zip(self.window) {
            send = send.debounce(key, window);
        }
        for (name, value) in self.label {
            send = send.label(name, value);
        }
        if let Some(delay) = self.delay {
            send = send.delay(delay);
        }
        let run = send.await?;
        let id = run.id();
        let started = Started {
            run,
            first: first.then(|| {
                format!(
                    "this is the first command in queue `{queue}` here; was that the name? \
                     if not: `runs cancel {id}`"
                )
            }),
            again,
            look: format!("commands show {id}"),
        };
        started.report(&self.waiting, client, &self.output).await
    }
}
