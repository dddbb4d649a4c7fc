//! `projections`: how far they are, built anew, and past what they cannot fold in.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use roundel::{Build, Client, ProjectionStatus};
use serde_json::{Value, json};

use crate::exit::{Exit, Failed, Result};
use crate::show::table::{self, fixed, flexible, plain};
use crate::show::{Output, Progress, Style, clean};
use crate::signed::Signed;

/// It is looked this often how far a rebuild is.
const LOOKS: Duration = Duration::from_millis(100);
/// Lines are this far apart, where nobody sits.
const LINES: Duration = Duration::from_secs(5);
/// Characters of the bar.
const BAR: u64 = 24;

/// How facts are folded into documents.
#[derive(Subcommand, Debug)]
pub enum Projections {
    /// List projections, and how far they are.
    List(List),
    /// Make all documents of a projection anew, by a process that has it; what is there is read
    /// until then.
    Rebuild(Rebuild),
    /// Let a projection pass over a fact that it cannot fold in.
    Skip(Skip),
}

#[derive(Args, Debug)]
pub struct List {
    #[command(flatten)]
    output: Output,
}

#[derive(Args, Debug)]
pub struct Rebuild {
    /// The projection's name.
    name: String,
    /// Do not wait until it is done.
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    signed: Signed,
    #[command(flatten)]
    output: Output,
}

#[derive(Args, Debug)]
pub struct Skip {
    /// The projection's name.
    name: String,
    /// The fact's id.
    fact: String,
    #[command(flatten)]
    signed: Signed,
    #[command(flatten)]
    output: Output,
}

impl Projections {
    pub(crate) fn output(&self) -> &Output {
        match self {
            Projections::List(args) => &args.output,
            Projections::Rebuild(args) => &args.output,
            Projections::Skip(args) => &args.output,
        }
    }

    pub(crate) async fn run(self, client: &Client) -> Result<Exit> {
        match self {
            Projections::List(args) => list(&args, client).await,
            Projections::Rebuild(args) => rebuild(args, client).await,
            Projections::Skip(args) => {
                let signed = args.signed.client(client)?;
                let row = signed.skip_fact(args.name.clone(), args.fact).await?;
                let mut screen = args.output.screen();
                match args.output.json {
                    true => screen.json(&json!({"name": args.name, "projection": row})),
                    false => screen.line("skipped"),
                }
                screen.flush()?;
                Ok(Exit::Done)
            }
        }
    }
}

/// How far a building is, in words.
fn far(build: &Build, facts: u64) -> String {
    match (&build.stuck, build.facts < facts) {
        (Some(stuck), _) => format!("stuck at {}: {}", stuck.fact, stuck.failure),
        (None, true) => format!("{} of {facts} facts", build.facts),
        (None, false) => "all facts".to_owned(),
    }
}

fn state(status: &ProjectionStatus) -> (Style, String) {
    let live = status.row.live.as_ref();
    let stuck = |build: &Build| build.stuck.is_some();
    let next = status.row.next.as_ref();
    let style = match live.is_some_and(stuck) || next.is_some_and(stuck) {
        true => Style::Bad,
        false => Style::Dim,
    };
    let words = match (live, next) {
        (_, Some(next)) => format!("being built: {}", far(next, status.facts)),
        (Some(live), None) if live.inline => "in every commit".to_owned(),
        (Some(live), None) => far(live, status.facts),
        (None, None) => String::new(),
    };
    (style, words)
}

fn as_json(status: &ProjectionStatus) -> Value {
    json!({"name": status.name, "facts": status.facts, "projection": status.row})
}

async fn list(args: &List, client: &Client) -> Result<Exit> {
    let all = client.projections().await?;
    let mut screen = args.output.screen();
    if args.output.json {
        all.iter().for_each(|status| screen.json(&as_json(status)));
        screen.flush()?;
        return Ok(Exit::Done);
    }
    if all.is_empty() {
        args.output
            .note("no projections; processes declare theirs when they start");
        return Ok(Exit::Done);
    }
    let columns = [
        flexible("projection"),
        fixed("version"),
        fixed("folds"),
        flexible("state"),
    ];
    let rows = all.iter().map(|status| {
        let build = status.row.live.as_ref().or(status.row.next.as_ref());
        let how = match build.is_some_and(|build| build.inline) {
            true => "inline",
            false => "after",
        };
        let (style, words) = state(status);
        vec![
            plain(status.name.as_str()),
            plain(build.map_or(0, |build| build.version).to_string()),
            plain(how),
            (style, clean(&words)),
        ]
    });
    table::show(&mut screen, &columns, &rows.collect::<Vec<_>>());
    screen.flush()?;
    Ok(Exit::Done)
}

async fn rebuild(args: Rebuild, client: &Client) -> Result<Exit> {
    let row = args
        .signed
        .client(client)?
        .rebuild(args.name.clone())
        .await?;
    let next = row.next.as_ref().map(|next| next.generation);
    let mut shown = Shown::new(args.output.json);
    loop {
        let all = client.projections().await?;
        let found = all
            .into_iter()
            .find(|status| status.name.as_str() == args.name);
        let Some(status) = found else {
            let message = format!("the projection `{}` is gone", clean(&args.name));
            return Err(Failed::new(Exit::NotFound, message));
        };
        let building = status.row.next.as_ref();
        let building = building.filter(|build| Some(build.generation) == next);
        if let Some(stuck) = building.and_then(|build| build.stuck.as_ref()) {
            let message = format!(
                "the fact `{}` cannot be folded in: {}; mend the projection and raise its version, \
                 or `projections skip {} {}`",
                stuck.fact, stuck.failure, args.name, stuck.fact
            );
            return Err(Failed::new(Exit::NotNow, clean(&message)));
        }
        match building.filter(|_| !args.no_wait) {
            Some(build) => shown.say(build.facts, status.facts),
            None => {
                drop(shown);
                let mut screen = args.output.screen();
                match args.output.json {
                    true => screen.json(&as_json(&status)),
                    false if building.is_some() => screen.line("it is being built"),
                    false => screen.line(&format!("built from {} facts", status.facts)),
                }
                screen.flush()?;
                return Ok(Exit::Done);
            }
        }
        tokio::time::sleep(LOOKS).await;
    }
}

/// A bar on a terminal; elsewhere a line now and then.
struct Shown {
    bar: Option<Progress>,
    json: bool,
    last: Option<Instant>,
}

impl Shown {
    fn new(json: bool) -> Shown {
        Shown {
            bar: io::stderr().is_terminal().then(Progress::new),
            json,
            last: None,
        }
    }

    fn say(&mut self, done: u64, of: u64) {
        if let Some(bar) = &mut self.bar {
            bar.say(&bar_of(done, of));
            return;
        }
        if self.last.is_some_and(|at| at.elapsed() < LINES) {
            return;
        }
        self.last = Some(Instant::now());
        let line = match self.json {
            true => json!({"facts": done, "of": of}).to_string(),
            false => format!("{done} of {of} facts"),
        };
        let _ = writeln!(io::stderr(), "{line}");
    }
}

fn bar_of(done: u64, of: u64) -> String {
    let full = (done * BAR).checked_div(of).unwrap_or(BAR).min(BAR);
    let full = usize::try_from(full).unwrap_or_default();
    let rest = usize::try_from(BAR).unwrap_or_default() - full;
    let (full, rest) = ("█".repeat(full), "░".repeat(rest));
    format!("{full}{rest} {done} of {of} facts")
}
