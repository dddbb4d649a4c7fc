//! `runs why`: what a run waits for, and what that waits for in turn, down to what only somebody or
//! something outside can change.

use std::future::Future;
use std::pin::Pin;

use clap::Args;
use roundel::{Client, RunState, RunView, Timestamp};
use roundel_core::WorkerRow;
use serde_json::{Value, json};

use super::drawing::fork;
use super::list::workflow;
use super::style;
use super::timeline;
use super::why::{About, Kind, On, Reason};
use crate::exit::{Exit, Result};
use crate::show::{Output, Screen, Style, clean, time};
use crate::which::Which;

/// Runs that are followed, all in all.
const MOST: usize = 200;
/// Of one scope.
const OF_SCOPE: usize = 10;

#[derive(Args, Debug)]
pub struct Why {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// A run, and what keeps it from going on.
struct Stuck {
    run: RunView,
    causes: Vec<Cause>,
}

struct Cause {
    reason: Reason,
    /// The runs on whose end it rests, that have not ended.
    below: Vec<Stuck>,
    /// Those that were not looked at.
    hidden: usize,
}

pub(crate) async fn run(args: &Why, client: &Client) -> Result<Exit> {
    let run = args.which.find(client).await?;
    let mut look = Look {
        client,
        workers: client.workers().await?,
        now: client.now(),
        left: MOST,
    };
    let stuck = look.follow(run).await?;
    let sentence = sentence(&stuck, look.now);
    let mut screen = args.output.screen();
    if args.output.json {
        let mut shown = stuck.json();
        shown["sentence"] = sentence.into();
        screen.json(&shown);
    } else {
        for line in screen.wrapped(&sentence, 0) {
            screen.line(&line);
        }
        if !stuck.causes.is_empty() {
            screen.line("");
            stuck.draw(&mut screen, (String::new(), String::new()), look.now);
        }
    }
    screen.flush()?;
    Ok(Exit::Done)
}

/// Looks from run to run.
struct Look<'a> {
    client: &'a Client,
    workers: Vec<WorkerRow>,
    now: Timestamp,
    /// How many more runs.
    left: usize,
}

type Following<'a> = Pin<Box<dyn Future<Output = Result<Stuck>> + Send + 'a>>;

impl Look<'_> {
    fn follow(&mut self, run: RunView) -> Following<'_> {
        Box::pin(async move {
            self.left = self.left.saturating_sub(1);
            let mut causes = Vec::new();
            for reason in reasons(self.client, &run, &self.workers, self.now).await? {
                let (runs, mut hidden) = self.waited_for(&run, &reason.on).await?;
                let mut below = Vec::new();
                for run in runs {
                    match self.left {
                        0 => hidden += 1,
                        _ => below.push(self.follow(run).await?),
                    }
                }
                causes.push(Cause {
                    reason,
                    below,
                    hidden,
                });
            }
            Ok(Stuck { run, causes })
        })
    }

    /// The runs that have not ended, and how many more there are.
    async fn waited_for(&self, run: &RunView, on: &On) -> Result<(Vec<RunView>, usize)> {
        let (client, id) = (self.client, run.row.id);
        let mut found = Vec::new();
        match on {
            On::Nobody => {}
            On::Run(run) => found.extend(client.run(*run).await.ok()),
            On::Scope(execution, call) => {
                found = client.scope(id, (*execution, *call)).await?;
            }
            On::Children => loop {
                let after = found.last().map(|run: &RunView| run.row.id);
                let page = client.children(id, after, 1000).await?;
                found.extend(page.items);
                if !page.more {
                    break;
                }
            },
        }
        found.retain(|run| !run.row.state.has_ended());
        let hidden = found.len().saturating_sub(OF_SCOPE);
        found.truncate(OF_SCOPE);
        Ok((found, hidden))
    }
}

/// What keeps one run from going on.
pub(super) async fn reasons(
    client: &Client,
    run: &RunView,
    workers: &[WorkerRow],
    now: Timestamp,
) -> Result<Vec<Reason>> {
    let row = &run.row;
    let moments = timeline::moments(&client.rounds(row.id, row.execution).await?)?;
    let publication = match row.publication {
        Some(id) => client.publication(id).await?,
        None => None,
    };
    let queues = match row.state {
        RunState::Ready => client.queues().await?,
        _ => Vec::new(),
    };
    let about = About {
        run,
        moments: &moments,
        topic: publication.as_ref().map(|(_, row)| &row.topic),
        workers,
        limits: queues.iter().find(|queue| queue.queue == run.lane.workflow),
        now,
    };
    Ok(about.reasons())
}

/// The cause that has lasted longest and rests on nothing else, with whose it is.
fn root_cause(stuck: &Stuck) -> Option<(&Reason, &RunView)> {
    let mut found: Vec<(&Reason, &RunView)> = Vec::new();
    for cause in stuck
        .causes
        .iter()
        .filter(|cause| cause.reason.kind != Kind::Note)
    {
        let below: Vec<_> = cause.below.iter().filter_map(root_cause).collect();
        match below.is_empty() {
            true => found.push((&cause.reason, &stuck.run)),
            false => found.extend(below),
        }
    }
    // What only people can change comes before what changes by itself.
    found
        .into_iter()
        .min_by_key(|(reason, _)| (reason.kind != Kind::Operator, reason.since))
}

fn sentence(stuck: &Stuck, now: Timestamp) -> String {
    let top = named(&stuck.run);
    let Some((reason, of)) = root_cause(stuck) else {
        return match stuck.run.row.state {
            state if state.has_ended() => {
                format!(
                    "{top} waits for nothing: it has ended ({}).",
                    state.as_str()
                )
            }
            state => format!(
                "{top} is {}; nothing is known to be in its way.",
                state.as_str()
            ),
        };
    };
    let text = &reason.text;
    let is = match reason.kind {
        Kind::Operator if of.row.state == RunState::Parked => format!("is parked: {text}"),
        Kind::Operator => format!("needs an operator: {text}"),
        Kind::Leased if text.starts_with("its") => format!("is running: {text}"),
        Kind::Leased => format!("is {text}"),
        Kind::Waits | Kind::Note => format!("waits {text}"),
    };
    let since = time::span(now.since(reason.since));
    let since = match text.contains(", since ") {
        true => String::new(),
        false => format!(" (for {since})"),
    };
    if of.row.id == stuck.run.row.id {
        return stop(format!("{top} {is}{since}"));
    }
    let below = format!("run {} of `{}`", of.row.id, of.lane.workflow);
    stop(format!("{top} waits for {below}, which {is}{since}"))
}

/// A sentence has its end.
fn stop(text: String) -> String {
    match text.ends_with('?') {
        true => text,
        false => text + ".",
    }
}

fn named(run: &RunView) -> String {
    let name = &run.lane.workflow;
    match &run.row.key {
        Some(key) => format!("`{name}` {key}"),
        None => format!("`{name}` {}", run.row.id),
    }
}

impl Stuck {
    fn json(&self) -> Value {
        let row = &self.run.row;
        let causes: Vec<Value> = self.causes.iter().map(Cause::json).collect();
        json!({
            "run": row.id, "workflow": self.run.lane.workflow, "state": row.state,
            "causes": causes,
        })
    }

    fn draw(&self, screen: &mut Screen, (front, under): (String, String), now: Timestamp) {
        let row = &self.run.row;
        let name = match &row.key {
            Some(key) => format!("{} {key}", workflow(&self.run)),
            None => workflow(&self.run),
        };
        let head = screen.paint(Style::Head, &clean(&name));
        let state = screen.paint(style(row.state), row.state.as_str());
        let id = screen.paint(Style::Dim, &row.id.to_string());
        let front = screen.paint(Style::Dim, &front);
        screen.line(&format!("{front}{head} {state} {id}"));
        let last = self.causes.len();
        for (number, cause) in self.causes.iter().enumerate() {
            let (fork, bar) = fork(number + 1 == last);
            let bar = format!("{under}{bar}");
            cause.draw(screen, (format!("{under}{fork}"), bar), now);
        }
    }
}

impl Cause {
    fn json(&self) -> Value {
        let kind = match self.reason.kind {
            Kind::Waits => "waits",
            Kind::Leased => "leased",
            Kind::Operator => "operator",
            Kind::Note => "note",
        };
        let below: Vec<Value> = self.below.iter().map(Stuck::json).collect();
        json!({
            "kind": kind, "text": self.reason.text, "since": self.reason.since,
            "waits_for": below, "left_out": self.hidden,
        })
    }

    fn draw(&self, screen: &mut Screen, (front, under): (String, String), now: Timestamp) {
        let reason = &self.reason;
        let text = match reason.text.contains(", since ") || reason.kind == Kind::Note {
            true => reason.text.clone(),
            false => format!(
                "{}, since {}",
                reason.text,
                time::span(now.since(reason.since))
            ),
        };
        let look = match reason.kind {
            Kind::Operator => Style::Look,
            _ => Style::Plain,
        };
        for (part, line) in screen
            .wrapped(&text, front.chars().count())
            .iter()
            .enumerate()
        {
            let front = if part == 0 { &front } else { &under };
            let front = screen.paint(Style::Dim, front);
            let line = screen.paint(look, line);
            screen.line(&format!("{front}{line}"));
        }
        let last = self.below.len() + usize::from(self.hidden > 0);
        for (number, stuck) in self.below.iter().enumerate() {
            let (fork, bar) = fork(number + 1 == last);
            stuck.draw(
                screen,
                (format!("{under}{fork}"), format!("{under}{bar}")),
                now,
            );
        }
        if self.hidden > 0 {
            let text = format!("{under}└─ … {} more that have not ended", self.hidden);
            let text = screen.paint(Style::Dim, &text);
            screen.line(&text);
        }
    }
}
