//! `start`: a run of a workflow, from the shell.

use std::time::Duration;

use clap::Args;
use roundel::{Client, Handle, Name, Payload};
use serde_json::json;

use crate::exit::{Exit, Failed, Result};
use crate::payload;
use crate::show::{Output, as_value, clean};

/// How long a look for earlier runs may take: it is only for a hint.
const LOOK: Duration = Duration::from_millis(300);

/// Start a run of a workflow.
#[derive(Args, Debug)]
pub struct Start {
    /// The workflow.
    workflow: String,
    /// Its input: JSON, @file, or - for standard input.
    #[arg(default_value = "null")]
    input: String,
    /// Your own id for the run: starting it again gives the first.
    #[arg(long)]
    key: Option<String>,
    /// A label, for search; may be said several times.
    #[arg(long, value_name = "NAME=VALUE", value_parser = label)]
    label: Vec<(String, String)>,
    /// Exactly this version; otherwise the latest that is known.
    #[arg(long)]
    version: Option<u32>,
    /// Lower is taken up first.
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    priority: i32,
    /// On whose behalf: the keys of a workflow take turns, and can be limited each.
    #[arg(long, value_name = "KEY")]
    flow_key: Option<String>,
    /// Not before this long from now, such as `90s`, `15min`, `2h` or `3d`.
    #[arg(long, value_parser = span)]
    delay: Option<Duration>,
    #[command(flatten)]
    waiting: Waiting,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// Whether the result is waited for.
#[derive(Args, Debug)]
pub(crate) struct Waiting {
    /// Wait for the result, and print it.
    #[arg(long)]
    wait: bool,
    /// How long to wait, such as `90s`, `15min` or `2h`.
    #[arg(long, value_parser = span, default_value = "60s", requires = "wait")]
    timeout: Duration,
}

/// What was started or sent.
pub(crate) struct Started {
    pub(crate) run: Handle<Payload>,
    /// What to say if it is the first of its name.
    pub(crate) first: Option<String>,
    /// What to say if it was there before.
    pub(crate) again: &'static str,
    /// The command that shows it.
    pub(crate) look: String,
}

pub(crate) async fn run(args: Start, client: &Client) -> Result<Exit> {
    let workflow = Name::new(args.workflow)?;
    let input = payload::read(&args.input)?;
    let first = is_first(client, &workflow).await;
    let mut start = client.start_named(workflow.clone(), input);
    start = start.priority(args.priority);
    if let Some(key) = args.key {
        start = start.key(key);
    }
    if let Some(key) = args.flow_key {
        start = start.flow_key(key);
    }
    for (name, value) in args.label {
        start = start.label(name, value);
    }
    if let Some(version) = args.version {
        start = start.version(version);
    }
    if let Some(delay) = args.delay {
        start = start.delay(delay);
    }
    let run = start.await?;
    let id = run.id();
    let started = Started {
        run,
        first: first.then(|| {
            format!(
                "this is the first run of `{workflow}` here; was that the name? \
                 if not: `runs cancel {id}`"
            )
        }),
        again: "it had been started before, under this key",
        look: format!("runs show {id}"),
    };
    started.report(&args.waiting, client, &args.output).await
}

impl Started {
    /// Says which run it is, or what came of it.
    pub(crate) async fn report(
        mut self,
        waiting: &Waiting,
        client: &Client,
        output: &Output,
    ) -> Result<Exit> {
        let (id, new) = (self.run.id(), self.run.is_new());
        let mut screen = output.screen();
        if !waiting.wait {
            if let Some(first) = self.first.filter(|_| new) {
                output.note(&first);
            }
            if output.json {
                screen.json(&json!({"run": id, "new": new}));
            } else {
                screen.line(&id.to_string());
                if !new {
                    output.note(self.again);
                }
            }
            screen.flush()?;
            return Ok(Exit::Done);
        }
        let result = tokio::time::timeout(waiting.timeout, self.run.result()).await;
        let Ok(result) = result else {
            let (text, look) = (crate::show::time::span(waiting.timeout), self.look);
            let state = client.run(id).await?.row.state;
            let message = format!(
                "run {id} is {} after {text}; it goes on without you: `{look}` shows it",
                state.as_str()
            );
            return Err(Failed::new(Exit::NotNow, message));
        };
        let value = result?;
        if output.json {
            screen.json(&json!({"run": id, "new": new, "value": as_value(&value)}));
        } else {
            screen.line(&clean(value.as_str()));
        }
        screen.flush()?;
        Ok(Exit::Done)
    }
}

/// Has there been no run of this workflow? A name that was mistyped is found out like this.
pub(crate) async fn is_first(client: &Client, workflow: &Name) -> bool {
    let Ok(runs) = client.runs().of(workflow.as_str().to_owned()) else {
        return false;
    };
    let found = tokio::time::timeout(LOOK, async move { runs.limit(1).fetch().await }).await;
    matches!(found, Ok(Ok(page)) if page.items.is_empty())
}

/// `name=value`.
pub(crate) fn label(text: &str) -> std::result::Result<(String, String), String> {
    let parts = text.split_once('=').filter(|(name, _)| !name.is_empty());
    let (name, value) = parts.ok_or_else(|| "write it as name=value".to_owned())?;
    Ok((name.to_owned(), value.to_owned()))
}

/// A number and a unit.
pub(crate) fn span(text: &str) -> std::result::Result<Duration, String> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let seconds = match unit.trim() {
        "s" => 1,
        "min" | "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err("write a number and a unit, such as 90s, 15min, 2h or 3d".into()),
    };
    let number: u64 = number
        .parse()
        .map_err(|_| "the number is missing or too large")?;
    let seconds = number.checked_mul(seconds).ok_or("that is too long")?;
    Ok(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_need_a_number_and_a_unit() {
        assert_eq!(span("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(span("2 h"), Ok(Duration::from_secs(7200)));
        for text in [
            "",
            "90",
            "s",
            "-1s",
            "1y",
            "99999999999999999999s",
            "9999999999999999999d",
        ] {
            assert!(span(text).is_err(), "{text}");
        }
    }
}
