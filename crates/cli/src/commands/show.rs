//! `commands show`: one of them.

use clap::Args;
use roundel::{Client, Entry, Error, RunView, To};
use roundel_core::Outcome;
use roundel_server::view::{Sent, attempts};
use serde_json::json;

use crate::exit::{Exit, Failed, Result};
use crate::runs::{reasons, style};
use crate::show::{Output, Style, as_value, clean, cut, time};
use crate::which::Which;

/// Characters of a value that are shown to people; `--json` shows all.
const VALUE: usize = 4000;

#[derive(Args, Debug)]
pub struct Show {
    #[command(flatten)]
    which: Which,
    /// The id it was sent under, if the queue stands before it.
    id: Option<String>,
    #[command(flatten)]
    pub(crate) output: Output,
}

impl Show {
    pub(super) async fn run(&self, client: &Client) -> Result<Exit> {
        let run = self.find(client).await?;
        let (why, now) = (reasons(client, &run).await?, client.now());
        let (sent, journal) = Sent::read(run, client).await?;
        let row = &sent.run.row;
        let mut screen = self.output.screen();
        if self.output.json {
            let mut shown = as_value(&sent.shown(now));
            shown["attempts"] = as_value(&attempts(&journal));
            shown["why"] = json!(why);
            screen.json(&shown);
            screen.flush()?;
            return Ok(Exit::Done);
        }
        let mut say = |name: &str, style: Style, text: &str| {
            let name = screen.paint(Style::Dim, &format!("{name:<10}"));
            let text = screen.paint(style, &clean(&cut(text, VALUE)));
            screen.line(&format!("{name}{text}"));
        };
        say("queue", Style::Head, sent.run.lane.workflow.as_str());
        if let Some(id) = sent.id() {
            say("id", Style::Plain, id);
        }
        say("run", Style::Plain, &row.id.to_string());
        say("state", style(row.state), row.state.as_str());
        for reason in &why {
            say("why", Style::Plain, reason);
        }
        say("sent", Style::Plain, &time::both(row.created_at, now));
        if let Some(at) = sent.delayed(now) {
            say("due", Style::Plain, &time::both(at, now));
        }
        if let Some(parent) = row.parent {
            say("by run", Style::Plain, &parent.run.to_string());
        }
        if let Some(payload) = &sent.payload {
            say("payload", Style::Plain, payload.as_str());
        }
        for entry in &journal {
            if let Entry::Attempted {
                attempt, failure, ..
            } = entry
            {
                let text = format!("{attempt}: {}", failure.message);
                say("attempt", Style::Look, &text);
            }
        }
        match row.outcome.as_ref().filter(|_| row.state.has_ended()) {
            Some(Outcome::Value(value)) => say("reply", Style::Good, value.as_str()),
            Some(Outcome::Failure(failure)) => say("failure", Style::Bad, &failure.to_string()),
            None => {}
        }
        screen.flush()?;
        Ok(Exit::Done)
    }

    /// By queue and id, or as any run is named.
    async fn find(&self, client: &Client) -> Result<RunView> {
        let Some(id) = &self.id else {
            return self.which.find(client).await;
        };
        let queue = self.which.text();
        match client.run(To::Key(format!("{queue}:{id}"))).await {
            Err(Error::NoSuchRun(_)) => {
                let namespace = client.namespace();
                let text = format!(
                    "there is no command `{id}` in queue `{queue}` of namespace `{namespace}`; \
                     it may have been deleted; `commands list {queue}` shows those that are there"
                );
                Err(Failed::new(Exit::NotFound, text))
            }
            other => Ok(other?),
        }
    }
}
