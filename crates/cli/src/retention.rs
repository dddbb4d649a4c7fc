//! `retention`: what has ended and is still kept, for how long, and removing what ended long ago.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::{Args, Subcommand};
use roundel::{Client, EndedTrees, Keep, Name, Retention as Kept, Timestamp};
use roundel_server::view;
use serde_json::{Value, json};

use crate::exit::{Exit, Failed, Result};
use crate::many::{agreed, counted};
use crate::show::far::Far;
use crate::show::table::{self, fixed, flexible, plain};
use crate::show::{Output, Style, time};
use crate::signed::Signed;
use crate::start::span;

/// What has ended and is still kept.
#[derive(Subcommand, Debug)]
pub enum Retention {
    /// Trees that have ended, by workflow, and since when the oldest of them is kept.
    Show(Show),
    /// Set for all processes how long what has ended is kept; or show what is set.
    Set(Set),
    /// Remove the trees that ended long ago, and what clients published then, once.
    Run(Run),
}

#[derive(Args, Debug)]
pub struct Show {
    /// Only those whose root ended longer ago than that, such as `2h` or `30d`.
    #[arg(long, value_name = "SPAN", value_parser = span)]
    older_than: Option<Duration>,
    #[command(flatten)]
    output: Output,
}

#[derive(Args, Debug)]
pub struct Set {
    /// For how long, such as `2h` or `30d`; `ever`; or `program`: as each program says for itself.
    #[arg(value_name = "SPAN|ever|program", value_parser = word)]
    keep: Word,
    /// Only trees whose root is of this workflow or queue, which go before the rest.
    #[arg(long, value_name = "NAME")]
    workflow: Option<String>,
    #[command(flatten)]
    signed: Signed,
    #[command(flatten)]
    output: Output,
}

/// For how long; none as programs say.
#[derive(Clone, Copy, Debug)]
struct Word(Option<Keep>);

fn word(text: &str) -> std::result::Result<Word, String> {
    Ok(Word(match text {
        "ever" => Some(Keep::Ever),
        "program" => None,
        text => Some(Keep::of(span(text)?)),
    }))
}

#[derive(Args, Debug)]
pub struct Run {
    /// How long ago the root of a tree has ended at least, such as `2h` or `30d`.
    #[arg(long, value_name = "SPAN", value_parser = span)]
    older_than: Duration,
    /// Only trees whose root is of this workflow or queue; no publications.
    #[arg(long, value_name = "NAME")]
    workflow: Option<String>,
    /// Only say what would go.
    #[arg(long)]
    dry_run: bool,
    /// Do it without asking.
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    signed: Signed,
    #[command(flatten)]
    output: Output,
}

impl Retention {
    pub(crate) fn output(&self) -> &Output {
        match self {
            Retention::Show(args) => &args.output,
            Retention::Set(args) => &args.output,
            Retention::Run(args) => &args.output,
        }
    }

    pub(crate) async fn run(&self, client: &Client) -> Result<Exit> {
        match self {
            Retention::Show(args) => args.run(client).await,
            Retention::Set(args) => args.run(client).await,
            Retention::Run(args) => args.run(client).await,
        }
    }
}

type Ended = BTreeMap<Name, EndedTrees>;

impl Show {
    async fn run(&self, client: &Client) -> Result<Exit> {
        let now = client.now();
        let before = self.older_than.map_or(now, |span| now.before(span));
        let ended = client.prune(before).count().await?;
        list(&self.output, &ended, now)?;
        if !self.output.json {
            self.output.note(&in_words(&client.retention().await?));
        }
        Ok(Exit::Done)
    }
}

impl Set {
    async fn run(&self, client: &Client) -> Result<Exit> {
        let workflow = self.workflow.clone().map(Name::new).transpose()?;
        let client = self.signed.client(client)?;
        let said = client.keep(workflow, self.keep.0).await?;
        let mut screen = self.output.screen();
        match self.output.json {
            true => screen.json(&json!(view::Retention::from(&said))),
            false => screen.line(&in_words(&said)),
        }
        screen.flush()?;
        Ok(Exit::Done)
    }
}

/// The same, as a server told it.
pub(crate) fn told(answer: &Value) -> String {
    let keep = |value: &Value| match value.as_u64() {
        Some(millis) => Some(Keep::Millis(millis)),
        None => (value == "ever").then_some(Keep::Ever),
    };
    let workflows = answer["workflows"].as_object().into_iter().flatten();
    let named = |(name, value): (&String, &Value)| {
        let name = Name::new(name.clone()).ok();
        name.zip(keep(value))
    };
    in_words(&Kept {
        ended: keep(&answer["ended"]),
        workflows: workflows.filter_map(named).collect(),
    })
}

/// How long things are kept, as far as it is known here.
fn in_words(said: &Kept) -> String {
    let words = |keep: Keep| match keep.span() {
        None => "for ever".to_owned(),
        Some(span) => time::span(span),
    };
    let own = said.workflows.iter();
    let own = own.map(|(name, keep)| format!("`{name}` {}", words(*keep)));
    let rest = said.ended.map(|keep| format!("the rest {}", words(keep)));
    let set: Vec<String> = own.chain(rest).collect();
    let programs = "as the program that works on it says (`keep_ended`, `keep_handled`), for ever \
                    unless it does; `retention set` goes before that, `retention run` removes once";
    match (set.is_empty(), said.ended) {
        (true, _) => format!("all is kept {programs}"),
        (false, None) => format!("kept: {}; the rest {programs}", set.join(", ")),
        (false, Some(_)) => format!("kept: {}", set.join(", ")),
    }
}

fn list(output: &Output, ended: &Ended, now: Timestamp) -> Result<()> {
    let mut screen = output.screen();
    if output.json {
        for (workflow, of) in ended {
            let (trees, runs, oldest) = (of.trees, of.runs, of.oldest);
            screen.json(
                &json!({"workflow": workflow, "trees": trees, "runs": runs, "oldest": oldest}),
            );
        }
        return screen.flush();
    }
    if ended.is_empty() {
        output.note("nothing has ended that long ago");
        return Ok(());
    }
    let columns = [
        flexible("workflow"),
        fixed("trees"),
        fixed("runs"),
        fixed("oldest"),
    ];
    let rows = ended.iter().map(|(workflow, of)| {
        vec![
            plain(workflow.as_str()),
            plain(of.trees.to_string()),
            plain(of.runs.to_string()),
            (Style::Dim, time::short(now.since(of.oldest))),
        ]
    });
    table::show(&mut screen, &columns, &rows.collect::<Vec<_>>());
    screen.flush()
}

impl Run {
    async fn run(&self, client: &Client) -> Result<Exit> {
        let client = &self.signed.client(client)?;
        let now = client.now();
        let before = now.before(self.older_than);
        let prune = || {
            let prune = client.prune(before);
            match &self.workflow {
                Some(name) => prune.of(name.clone()),
                None => prune,
            }
        };
        if self.dry_run {
            list(&self.output, &prune().count().await?, now)?;
            return Ok(Exit::Done);
        }
        if !self.yes {
            let ended = prune().count().await?;
            let trees = counted(ended.values().map(|of| of.trees).sum(), "tree");
            let runs = counted(ended.values().map(|of| of.runs).sum(), "run");
            if !agreed(&format!("Remove {trees} of {runs}, for good?"))? {
                return Err(Failed::new(Exit::No, "nothing was removed"));
            }
        }
        let mut far = Far::new(self.output.json);
        far.work(("removing", "runs"), 0);
        let told = move |runs| far.work(("removing", "runs"), runs as u64);
        let removed = prune().told(told).await?;
        let mut screen = self.output.screen();
        if self.output.json {
            screen.json(&json!({"deed": "prune", "runs": removed}));
        } else {
            screen.line(&format!("{} removed", counted(removed, "run")));
        }
        screen.flush()?;
        Ok(Exit::Done)
    }
}
