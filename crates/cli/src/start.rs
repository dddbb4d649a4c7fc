//! `start`: a run of a workflow, from the shell.

use std::time::Duration;

use clap::Args;
use roundel::{Client, Name};
use serde_json::json;

use crate::exit::{Exit, Failed, Result};
use crate::payload;
use crate::show::{Output, clean};

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
    /// Not before this long from now, such as `90s`, `15min`, `2h` or `3d`.
    #[arg(long, value_parser = span)]
    delay: Option<Duration>,
    /// Wait for the result, and print it.
    #[arg(long)]
    wait: bool,
    /// How long to wait, such as `90s`, `15min` or `2h`.
    #[arg(long, value_parser = span, default_value = "60s", requires = "wait")]
    timeout: Duration,
    #[command(flatten)]
    pub(crate) output: Output,
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
    for (name, value) in args.label {
        start = start.label(name, value);
    }
    if let Some(version) = args.version {
        start = start.version(version);
    }
    if let Some(delay) = args.delay {
        start = start.delay(delay);
    }
    let mut run = start.await?;
    let id = run.id();
    let mut screen = args.output.screen();
    if !args.wait {
        if first && run.is_new() {
            args.output.note(&format!(
                "this is the first run of `{workflow}` here; was that the name? \
                 if not: `runs cancel {id}`"
            ));
        }
        match (args.output.json, run.is_new()) {
            (true, new) => screen.json(&json!({"run": id, "new": new})),
            (false, true) => screen.line(&id.to_string()),
            (false, false) => {
                screen.line(&id.to_string());
                args.output
                    .note("it had been started before, under this key");
            }
        }
        screen.flush()?;
        return Ok(Exit::Done);
    }
    let result = tokio::time::timeout(args.timeout, run.result()).await;
    let Ok(result) = result else {
        let text = crate::show::time::span(args.timeout);
        let state = client.run(id).await?.row.state;
        let message = format!(
            "run {id} is {} after {text}; it goes on without you: `runs show {id}` shows it",
            state.as_str()
        );
        return Err(Failed::new(Exit::NotNow, message));
    };
    let value = result?;
    if args.output.json {
        screen.json(&json!({"run": id, "new": run.is_new(), "value": value}));
    } else {
        screen.line(&clean(value.as_str()));
    }
    screen.flush()?;
    Ok(Exit::Done)
}

/// Has there been no run of this workflow? A name that was mistyped is found out like this.
async fn is_first(client: &Client, workflow: &Name) -> bool {
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
fn span(text: &str) -> std::result::Result<Duration, String> {
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
