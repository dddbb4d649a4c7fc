//! What a run waits for, and what that waits for in turn, down to what only somebody or something
//! outside can change.

use std::future::Future;
use std::pin::Pin;

use roundel::{Client, Error, Name, RunId, RunState, RunView, Timestamp};
use roundel_core::WorkerRow;
use serde_json::{Value, json};

use super::why::{About, Kind, On, Reason};
use super::{time, timeline};
use crate::shape::Shape;

/// Runs that are followed, all in all.
const MOST: usize = 200;
/// Of one scope.
const OF_SCOPE: usize = 10;

/// A run, and what keeps it from going on.
#[derive(Debug)]
pub struct Stuck {
    /// The run.
    pub run: RunView,
    /// What keeps it from going on.
    pub causes: Vec<Cause>,
}

/// One thing that keeps a run from going on.
#[derive(Debug)]
pub struct Cause {
    /// What.
    pub reason: Reason,
    /// The runs on whose end it rests, that have not ended.
    pub below: Vec<Stuck>,
    /// Those that were not looked at.
    pub hidden: usize,
}

/// Follows a run down to what is really in its way. With it comes the sentence that says so.
///
/// # Errors
/// When it cannot be read.
pub async fn follow(client: &Client, run: RunView) -> Result<(Stuck, String), Error> {
    let mut look = Look {
        client,
        workers: client.workers().await?,
        now: client.now(),
        left: MOST,
    };
    let stuck = look.follow(run).await?;
    let sentence = sentence(&stuck, look.now);
    Ok((stuck, sentence))
}

/// Looks from run to run.
struct Look<'a> {
    client: &'a Client,
    workers: Vec<WorkerRow>,
    now: Timestamp,
    /// How many more runs.
    left: usize,
}

type Following<'a> = Pin<Box<dyn Future<Output = Result<Stuck, Error>> + Send + 'a>>;

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
    async fn waited_for(&self, run: &RunView, on: &On) -> Result<(Vec<RunView>, usize), Error> {
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
///
/// # Errors
/// When it cannot be read.
pub async fn reasons(
    client: &Client,
    run: &RunView,
    workers: &[WorkerRow],
    now: Timestamp,
) -> Result<Vec<Reason>, Error> {
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

/// What a run waits for, as it is shown.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Waiting {
    /// In one sentence, for the run that was asked about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sentence: Option<String>,
    /// The run.
    pub run: RunId,
    /// What runs.
    pub workflow: Name,
    /// Where it stands.
    pub state: RunState,
    /// What keeps it from going on.
    pub causes: Vec<WaitingOn>,
}

/// One thing that keeps it from going on.
#[derive(Clone, Debug, serde::Serialize)]
pub struct WaitingOn {
    /// Waits, leased, operator or note.
    pub kind: &'static str,
    /// What.
    pub text: String,
    /// Since when.
    pub since: Timestamp,
    /// The runs that it waits for.
    pub waits_for: Vec<Waiting>,
    /// How many more.
    pub left_out: usize,
}

impl Shape for Waiting {
    fn schema() -> Value {
        let cause = json!({
            "type": "object",
            "properties": {
                "kind": {"type": "string", "enum": ["waits", "leased", "operator", "note"]},
                "text": {"type": "string"},
                "since": Timestamp::schema(),
                "waits_for": {"type": "array", "items": {"type": "object"},
                    "description": "The runs that it waits for, in the same shape."},
                "left_out": {"type": "integer"},
            },
            "required": ["kind", "text", "since", "waits_for", "left_out"],
            "additionalProperties": false,
        });
        json!({
            "type": "object",
            "properties": {
                "sentence": {"type": "string"},
                "run": RunId::schema(),
                "workflow": Name::schema(),
                "state": RunState::schema(),
                "causes": {"type": "array", "items": cause},
            },
            "required": ["run", "workflow", "state", "causes"],
            "additionalProperties": false,
        })
    }
}

impl From<&Stuck> for Waiting {
    fn from(stuck: &Stuck) -> Waiting {
        Waiting {
            sentence: None,
            run: stuck.run.row.id,
            workflow: stuck.run.lane.workflow.clone(),
            state: stuck.run.row.state,
            causes: stuck.causes.iter().map(WaitingOn::from).collect(),
        }
    }
}

impl From<&Cause> for WaitingOn {
    fn from(cause: &Cause) -> WaitingOn {
        WaitingOn {
            kind: match cause.reason.kind {
                Kind::Waits => "waits",
                Kind::Leased => "leased",
                Kind::Operator => "operator",
                Kind::Note => "note",
            },
            text: cause.reason.text.clone(),
            since: cause.reason.since,
            waits_for: cause.below.iter().map(Waiting::from).collect(),
            left_out: cause.hidden,
        }
    }
}
