//! What is done about what is parked: named, or all that fits a filter.

use clap::Args;
use roundel::{Client, Error, Remedied, Remedy, TroubleId};
use serde_json::{Value, json};

use super::Filter;
use crate::exit::{Exit, Failed, Result};
use crate::many::{Many, counted};
use crate::show::{Output, Progress};
use crate::signed::Signed;
use crate::which::{By, unknown};

/// Refusals that are shown one by one.
const SHOWN: usize = 20;

#[derive(Args, Debug)]
pub struct Act {
    /// Ids of runs, or the keys they were started with; of signals, ID/NUMBER as in the list.
    #[arg(value_name = "RUN")]
    #[arg(required_unless_present_any = ["workflow", "label", "code", "group", "all"])]
    #[arg(conflicts_with_all = ["workflow", "label", "code", "group", "all"])]
    runs: Vec<String>,
    #[command(flatten)]
    by: By,
    #[command(flatten)]
    filter: Filter,
    #[command(flatten)]
    many: Many,
    /// At most so many.
    #[arg(long, default_value = "10000", value_name = "N")]
    most: usize,
    #[command(flatten)]
    signed: Signed,
    #[command(flatten)]
    pub(super) output: Output,
}

impl Act {
    pub(super) async fn run(&self, verb: &str, remedy: &Remedy, client: &Client) -> Result<Exit> {
        let client = &self.signed.client(client)?;
        if self.runs.is_empty() {
            return self.many(verb, remedy, client).await;
        }
        self.many.named()?;
        let mut sum = Remedied::default();
        for text in &self.runs {
            let id = self.find(text, client).await?;
            match client.remedy(id, remedy).await {
                Ok(()) => sum.done += 1,
                Err(error @ (Error::Refused(_) | Error::Value(_) | Error::NoSuchRun(_))) => {
                    sum.refused.push((id, error));
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.report((verb, remedy), &sum)
    }

    async fn find(&self, text: &str, client: &Client) -> Result<TroubleId> {
        if let Ok(id @ TroubleId::Signal(..)) = text.parse() {
            return Ok(id);
        }
        match client.run(self.by.to(text)).await {
            Ok(run) => Ok(run.row.id.into()),
            Err(Error::NoSuchRun(_)) => Err(unknown(text, client)),
            Err(error) => Err(error.into()),
        }
    }

    async fn many(&self, verb: &str, remedy: &Remedy, client: &Client) -> Result<Exit> {
        let queue = self.filter.queue(client)?.at_most(self.most);
        let queue = match remedy.is_for_signals() {
            true => queue.only_signals(),
            false => queue.only_runs(),
        };
        let found = queue.count().await?;
        if self.many.dry_run {
            let mut screen = self.output.screen();
            if self.output.json {
                screen.json(&json!({ "found": found }));
            } else {
                screen.line(&format!("{} to {verb}", number(found, remedy)));
            }
            screen.flush()?;
            return Ok(Exit::Done);
        }
        let many = found.min(self.most);
        if found > 0 {
            self.many
                .agree(&format!("{verb} {}?", number(many, remedy)))?;
        }
        let mut progress = Progress::new();
        let told = |sum: &Remedied| {
            let (done, refused) = (sum.done, sum.refused.len());
            progress.say(&format!("{done} of {many} done, {refused} refused ..."));
        };
        let sum = queue.act(remedy, told).await?;
        drop(progress);
        self.report((verb, remedy), &sum)
    }

    fn report(&self, (verb, remedy): (&str, &Remedy), sum: &Remedied) -> Result<Exit> {
        let mut screen = self.output.screen();
        if self.output.json {
            let refused = sum.refused.iter();
            let refused: Vec<Value> = refused
                .map(|(id, error)| json!({"run": id, "why": error.to_string()}))
                .collect();
            screen.json(&json!({
                "deed": verb, "done": sum.done, "refused": refused, "more": sum.more,
            }));
        } else {
            screen.line(&format!("{verb}: {} done", number(sum.done, remedy)));
        }
        screen.flush()?;
        for (_, error) in sum.refused.iter().take(SHOWN) {
            self.output
                .complain(&Failed::new(Exit::No, error.to_string()));
        }
        if sum.more {
            self.output.note("there are more: say it again, or --most");
        }
        Ok(match sum.refused.is_empty() {
            true => Exit::Done,
            false => Exit::No,
        })
    }
}

fn number(count: usize, remedy: &Remedy) -> String {
    match remedy.is_for_signals() {
        false => counted(count, "run"),
        true => counted(count, "signal"),
    }
}
