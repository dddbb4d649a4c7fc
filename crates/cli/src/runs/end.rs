//! `runs cancel` and `delete`: runs that are named, or all that fit a filter.

use clap::Args;
use roundel::{Cancelled, Client, Error, Refusal, RunView, To};
use serde_json::json;
use tokio::task::JoinSet;

use super::filter::Filter;
use crate::exit::{Exit, Failed, Result};
use crate::many::{Many, counted};
use crate::show::{Output, Progress};
use crate::signed::Signed;
use crate::which::{By, unknown};

/// Requests under way at a time: they share commits.
const AT_ONCE: usize = 200;

#[derive(Args, Debug)]
pub struct Cancel {
    #[command(flatten)]
    which: Selection,
    /// Undo nothing: what they did, and what they set off, stays.
    #[arg(long)]
    without_undo: bool,
    #[command(flatten)]
    signed: Signed,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Args, Debug)]
pub struct Delete {
    #[command(flatten)]
    which: Selection,
    /// Also runs that have not ended; whoever waits for them is told.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    signed: Signed,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// Runs by name, or by what they are.
#[derive(Args, Debug)]
struct Selection {
    /// Ids of runs, or the keys they were started with.
    #[arg(value_name = "RUN", required_unless_present_any = ["workflow", "state", "label", "all"])]
    #[arg(conflicts_with_all = ["workflow", "state", "label", "all"])]
    runs: Vec<String>,
    #[command(flatten)]
    by: By,
    #[command(flatten)]
    filter: Filter,
    #[command(flatten)]
    many: Many,
}

/// What is done to runs.
struct Deed {
    verb: &'static str,
    done: &'static str,
    output: Output,
}

pub(crate) async fn cancel(args: &Cancel, client: &Client) -> Result<Exit> {
    let client = &args.signed.client(client)?;
    let deed = Deed {
        verb: "cancel",
        done: "asked to end",
        output: args.output.clone(),
    };
    let may = |run: &RunView| !run.row.state.has_ended();
    let keep = args.without_undo;
    let act = move |client: Client, to: To| async move {
        let answer = match keep {
            true => client.cancel_without_undo(to).await?,
            false => client.cancel(to).await?,
        };
        match answer {
            Cancelled::Requested => Ok(Did::Done(1)),
            Cancelled::AlreadyEnded(state) => {
                Ok(Did::Not(format!("had ended ({})", state.as_str())))
            }
            Cancelled::RollingBack => Ok(Did::Not(
                "is undoing what it did, which cannot be cancelled".to_owned(),
            )),
            Cancelled::TargetUnknown => Ok(Did::Unknown),
        }
    };
    args.which.each(&deed, client, may, act).await
}

pub(crate) async fn delete(args: &Delete, client: &Client) -> Result<Exit> {
    let client = &args.signed.client(client)?;
    let (force, output) = (args.force, args.output.clone());
    let (verb, done) = ("delete", "deleted");
    let deed = Deed { verb, done, output };
    // A tree goes with its root.
    let may = move |run: &RunView| run.row.parent.is_none() && (force || run.row.state.has_ended());
    let act = move |client: Client, to: To| async move {
        let gone = match force {
            true => client.delete_forced(to).await,
            false => client.delete(to).await,
        };
        match gone {
            Ok(runs) => Ok(Did::Done(runs)),
            Err(Error::Refused(Refusal::UnknownRun { .. } | Refusal::UnknownKey { .. })) => {
                Ok(Did::Unknown)
            }
            Err(Error::Refused(Refusal::NotEnded { run, state })) => Ok(Did::Not(format!(
                "run {run} of its tree is {}; cancel it first, or use --force",
                state.as_str()
            ))),
            Err(error) => Err(error),
        }
    };
    args.which.each(&deed, client, may, act).await
}

/// What became of one.
enum Did {
    Done(usize),
    Not(String),
    Unknown,
}

impl Selection {
    async fn each<A, F>(
        &self,
        deed: &Deed,
        client: &Client,
        may: impl Fn(&RunView) -> bool,
        act: A,
    ) -> Result<Exit>
    where
        A: Fn(Client, To) -> F,
        F: Future<Output = std::result::Result<Did, Error>> + Send + 'static,
    {
        if !self.runs.is_empty() {
            return self.named(deed, client, act).await;
        }
        let found = self.count(client, &may).await?;
        if self.many.dry_run || found == 0 {
            return deed.report(found, 0, self.many.dry_run);
        }
        let runs = counted(found, "run");
        self.many
            .agree(&format!("{} {runs} and all below?", deed.verb))?;
        let (mut done, mut failed) = (0, 0);
        let mut progress = Progress::new();
        let mut page = self.filter.runs(client)?.limit(AT_ONCE);
        loop {
            let runs = page.fetch().await?;
            let mut acts = JoinSet::new();
            for run in runs.items.iter().filter(|run| may(run)) {
                acts.spawn(act(client.clone(), To::Run(run.row.id)));
            }
            while let Some(did) = acts.join_next().await {
                match did.map_err(|error| Failed::new(Exit::NotNow, error.to_string()))?? {
                    Did::Done(runs) => done += runs,
                    // It ended, or went with its tree, in the meantime.
                    Did::Not(_) => failed += 1,
                    Did::Unknown => {}
                }
            }
            progress.say(&format!("{done} {} ...", deed.done));
            match runs.items.last() {
                Some(last) if runs.more => page = page.after(last.row.id),
                _ => break,
            }
        }
        drop(progress);
        deed.report(done, failed, false)
    }

    /// How many runs fit.
    async fn count(&self, client: &Client, may: impl Fn(&RunView) -> bool) -> Result<usize> {
        let mut progress = Progress::new();
        let (mut found, mut page) = (0, self.filter.runs(client)?.limit(1000));
        loop {
            let runs = page.fetch().await?;
            found += runs.items.iter().filter(|run| may(run)).count();
            progress.say(&format!("{found} found ..."));
            match runs.items.last() {
                Some(last) if runs.more => page = page.after(last.row.id),
                _ => return Ok(found),
            }
        }
    }

    async fn named<A, F>(&self, deed: &Deed, client: &Client, act: A) -> Result<Exit>
    where
        A: Fn(Client, To) -> F,
        F: Future<Output = std::result::Result<Did, Error>>,
    {
        self.many.named()?;
        let (mut done, mut exit) = (0, Exit::Done);
        for text in &self.runs {
            let failed = match act(client.clone(), self.by.to(text)).await? {
                Did::Done(runs) => {
                    done += runs;
                    continue;
                }
                Did::Unknown => unknown(text, client),
                Did::Not(why) => {
                    let message = format!("`{text}` was not {}: it {why}", deed.done);
                    Failed::new(Exit::No, message.replace(": it run ", ": run "))
                }
            };
            deed.output.complain(&failed);
            exit = failed.exit;
        }
        if exit == Exit::Done {
            deed.report(done, 0, false)?;
        } else if deed.output.json {
            deed.print_json(done, 1)?;
        }
        Ok(exit)
    }
}

impl Deed {
    fn report(&self, done: usize, failed: usize, only_counted: bool) -> Result<Exit> {
        if self.output.json && !only_counted {
            self.print_json(done, failed)?;
        } else {
            let mut screen = self.output.screen();
            match (only_counted, self.output.json) {
                (true, true) => screen.json(&json!({"found": done})),
                (true, false) => screen.line(&format!("{} to {}", counted(done, "run"), self.verb)),
                _ => screen.line(&format!("{} {}", counted(done, "run"), self.done)),
            }
            if failed > 0 {
                screen.line(&format!(
                    "{failed} could not be: they had changed meanwhile"
                ));
            }
            screen.flush()?;
        }
        Ok(if failed > 0 { Exit::No } else { Exit::Done })
    }

    fn print_json(&self, done: usize, failed: usize) -> Result<()> {
        let mut screen = self.output.screen();
        screen.json(&json!({"deed": self.verb, "runs": done, "refused": failed}));
        screen.flush()
    }
}
