//! `runs tree`: a run with all that it set off, and what became of each.

use std::collections::{BTreeMap, VecDeque};

use clap::Args;
use roundel::{Client, Entry, RunId, RunView, Timestamp};
use roundel_core::{Outcome, Why};
use serde_json::{Value, json};

use super::drawing::{Drawing, draw};
use super::list::as_json;
use super::timeline::{self, Moment};
use crate::exit::{Exit, Result};
use crate::show::Output;
use crate::which::Which;

/// Runs that are looked at, at most: those that are not shown are counted.
const MOST: usize = 10_000;

#[derive(Args, Debug)]
pub struct Tree {
    #[command(flatten)]
    which: Which,
    /// Only the run and what is below it, not the whole tree that it is part of.
    #[arg(long)]
    below: bool,
    /// So many runs at most, 1 to 10,000; those near the top come first.
    #[arg(long, default_value = "200", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    limit: u16,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// A run in its tree.
pub(super) struct Node {
    pub(super) run: RunView,
    /// What set it off.
    pub(super) by: Option<String>,
    pub(super) rollback: Option<Rollback>,
    /// Those that are shown, in the order in which they were set off.
    pub(super) below: Vec<usize>,
    /// Directly below, and not shown.
    pub(super) hidden: usize,
}

/// When a run began to undo what it did, and why.
pub(super) struct Rollback {
    pub(super) from: Timestamp,
    /// None if somebody asked for it.
    pub(super) why: Option<String>,
}

pub(crate) async fn run(args: &Tree, client: &Client) -> Result<Exit> {
    let asked = args.which.find(client).await?;
    let top = match args.below {
        true => asked.clone(),
        false => client.run(asked.row.root).await?,
    };
    let found = gather(client, top).await?;
    let known = found.runs.len();
    let shown = known.min(args.limit.into());
    let nodes = nodes(client, found.runs, found.below, shown).await?;
    let left = known - shown;
    let mut screen = args.output.screen();
    if args.output.json {
        let mut tree = json_of(&nodes, 0);
        tree["left_out"] = left.into();
        tree["more"] = found.more.into();
        screen.json(&tree);
        screen.flush()?;
        return Ok(Exit::Done);
    }
    draw(
        &mut screen,
        &Drawing {
            nodes: &nodes,
            asked: asked.row.id,
            now: client.now(),
        },
    );
    screen.flush()?;
    if left > 0 || found.more {
        let more = if found.more { "more than " } else { "" };
        args.output.note(&format!(
            "{more}{left} runs are left out; --limit shows more, --below RUN a part of the tree"
        ));
    }
    Ok(Exit::Done)
}

/// A tree: its runs, those near the top first, and which are below which.
struct Found {
    runs: Vec<RunView>,
    below: BTreeMap<RunId, Vec<usize>>,
    /// There are others.
    more: bool,
}

async fn gather(client: &Client, top: RunView) -> Result<Found> {
    let mut queue = VecDeque::from([top.row.id]);
    let mut found = Found {
        runs: vec![top],
        below: BTreeMap::new(),
        more: false,
    };
    while let Some(run) = queue.pop_front() {
        let mut children: Vec<RunView> = Vec::new();
        loop {
            if found.runs.len() + children.len() >= MOST {
                found.more = true;
                break;
            }
            let after = children.last().map(|child| child.row.id);
            let page = client.children(run, after, 1000).await?;
            children.extend(page.items);
            if !page.more {
                break;
            }
        }
        children.truncate(MOST.saturating_sub(found.runs.len()));
        children.sort_by_key(|child| {
            let by = child.row.parent.map(|by| (by.execution, by.call));
            (by, child.row.number, child.row.id)
        });
        queue.extend(children.iter().map(|child| child.row.id));
        let first = found.runs.len();
        let places = (first..first + children.len()).collect();
        found.below.insert(run, places);
        found.runs.extend(children);
    }
    Ok(found)
}

/// The runs that are shown, with what their journals say.
async fn nodes(
    client: &Client,
    runs: Vec<RunView>,
    below: BTreeMap<RunId, Vec<usize>>,
    shown: usize,
) -> Result<Vec<Node>> {
    let mut nodes: Vec<Node> = Vec::with_capacity(shown);
    for run in runs.into_iter().take(shown) {
        let all = below.get(&run.row.id).map_or(&[][..], Vec::as_slice);
        let kept: Vec<usize> = all.iter().copied().filter(|at| *at < shown).collect();
        nodes.push(Node {
            hidden: all.len() - kept.len(),
            below: kept,
            run,
            by: None,
            rollback: None,
        });
    }
    for at in 0..nodes.len() {
        read_journals(client, &mut nodes, at).await?;
    }
    Ok(nodes)
}

/// What set off those below a run, and whether it rolled back.
async fn read_journals(client: &Client, nodes: &mut [Node], at: usize) -> Result<()> {
    let row = &nodes[at].run.row;
    let (run, last) = (row.id, row.execution);
    let below = nodes[at].below.clone();
    let parent = |child: usize| nodes[child].run.row.parent;
    let mut executions: Vec<u32> = below
        .iter()
        .filter_map(|child| Some(parent(*child)?.execution))
        .collect();
    executions.push(last);
    executions.sort_unstable();
    executions.dedup();
    for execution in executions {
        let moments = timeline::moments(&client.rounds(run, execution).await?)?;
        let calls = timeline::calls(&moments);
        for child in &below {
            let by = nodes[*child].run.row.parent;
            if let Some(by) = by.filter(|by| by.execution == execution) {
                nodes[*child].by = calls.get(&by.call).map(ToString::to_string);
            }
        }
        if execution == last {
            nodes[at].rollback = rollback(&moments);
        }
    }
    Ok(())
}

/// The last rollback that the journal tells of: since when, and why it was begun at all.
fn rollback(moments: &[Moment]) -> Option<Rollback> {
    let mut found: Option<Rollback> = None;
    for moment in moments {
        let Entry::RollingBack { why, .. } = &moment.entry else {
            continue;
        };
        let why = match why {
            Why::Failed(failure) => Some(failure.message.clone()),
            Why::Cancelled => Some("cancelled".to_owned()),
            Why::Asked => None,
            Why::Retried | Why::Skipped => found.and_then(|first| first.why),
        };
        let from = moment.at;
        found = Some(Rollback { from, why });
    }
    found
}

/// Why a run did not complete.
pub(super) fn failure(run: &RunView) -> Option<String> {
    match &run.row.outcome {
        Some(Outcome::Failure(failure)) => Some(failure.message.clone()),
        _ => None,
    }
}

fn json_of(nodes: &[Node], at: usize) -> Value {
    let node = &nodes[at];
    let mut shown = as_json(&node.run);
    shown["set_off_by"] = json!(node.by);
    shown["call"] = json!(node.run.row.parent.map(|parent| parent.call));
    shown["rolled_back_from"] = json!(node.rollback.as_ref().map(|rollback| rollback.from));
    shown["rolled_back_why"] = json!(node.rollback.as_ref().map(|rollback| &rollback.why));
    shown["hidden"] = node.hidden.into();
    let below = node.below.iter().map(|child| json_of(nodes, *child));
    shown["children"] = below.collect();
    shown
}
