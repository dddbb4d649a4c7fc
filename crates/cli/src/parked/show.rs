//! One of what is parked: why, what it was given, and what can be done.

use clap::Args;
use roundel::{Client, SignalView, Trouble, TroubleId};

use super::as_json;
use crate::exit::{Exit, Failed, Result};
use crate::runs::workflow;
use crate::show::{Output, as_value, clean, cut};
use crate::which::Which;

#[derive(Args, Debug)]
pub struct Show {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    pub(super) output: Output,
}

impl Show {
    pub(super) async fn run(&self, client: &Client) -> Result<Exit> {
        if let Ok(id @ TroubleId::Signal(run, number)) = self.which.text().parse() {
            let above = TroubleId::Signal(run, number.saturating_add(1));
            let page = client.parked().only_signals().after(above).limit(1);
            let found = page.fetch().await?.items.pop();
            return match found.filter(|trouble| trouble.id() == id) {
                Some(Trouble::Signal(signal)) => self.signal(&signal),
                _ => {
                    let text = format!("there is no parked signal {id}; `parked list` shows them");
                    Err(Failed::new(Exit::NotFound, text))
                }
            };
        }
        let run = self.which.find(client).await?;
        let input = client.journal(run.row.id).await?.into_iter().next();
        let input = match input {
            Some(roundel::Entry::Started { input, .. }) => Some(input),
            _ => None,
        };
        let mut screen = self.output.screen();
        if self.output.json {
            let mut shown = as_json(&Trouble::Run(Box::new(run)));
            shown["input"] = as_value(&input);
            screen.json(&shown);
            screen.flush()?;
            return Ok(Exit::Done);
        }
        let mut say = |what: &str, text: &str| screen.line(&format!("{what:<12} {}", clean(text)));
        say("run", &run.row.id.to_string());
        say("workflow", &workflow(&run));
        say("state", run.row.state.as_str());
        if let Some(key) = &run.row.key {
            say("key", key.as_str());
        }
        if let Some(input) = &input {
            say("input", &cut(input.as_str(), 4000));
        }
        let id = run.row.id;
        let trouble = Trouble::Run(Box::new(run));
        if let Some(why) = trouble.why() {
            say("fingerprint", &why.fingerprint());
            say("reason", &why.to_string());
            for tried in &why.attempts {
                say("attempt", &format!("{}: {}", tried.attempt, tried.message));
            }
        }
        screen.flush()?;
        self.output
            .note(&format!("what to do about it: roundel runs why {id}"));
        Ok(Exit::Done)
    }

    fn signal(&self, signal: &SignalView) -> Result<Exit> {
        let mut screen = self.output.screen();
        let trouble = Trouble::Signal(Box::new(signal.clone()));
        let value = match &signal.row.body {
            roundel_core::Outcome::Value(value) => Some(value),
            roundel_core::Outcome::Failure(_) => None,
        };
        if self.output.json {
            let mut shown = as_json(&trouble);
            shown["value"] = as_value(&value);
            screen.json(&shown);
            screen.flush()?;
            return Ok(Exit::Done);
        }
        let mut say = |what: &str, text: &str| screen.line(&format!("{what:<12} {}", clean(text)));
        let name = signal.id.name.as_ref().map_or("", |name| name.as_str());
        say("signal", name);
        say("run", &signal.id.run.to_string());
        say("workflow", signal.lane.workflow.as_str());
        say("state", signal.state.as_str());
        if let Some(value) = value {
            say("value", &cut(value.as_str(), 4000));
        }
        if let Some(why) = trouble.why() {
            say("fingerprint", &why.fingerprint());
            say("reason", &why.message);
        }
        screen.flush()?;
        let id = trouble.id();
        self.output.note(&format!(
            "what to do about it: roundel parked replay {id} --to RUN, offer {id}, discard {id}"
        ));
        Ok(Exit::Done)
    }
}
