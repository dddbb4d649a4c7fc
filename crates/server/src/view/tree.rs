//! A run with all that it set off, and what became of each.

use std::collections::{BTreeMap, VecDeque};

use roundel::{Client, Entry, Error, RunId, RunView, Timestamp};
use roundel_core::Why;
use serde_json::{Value, json};

use super::Run;
use super::timeline::{self, Moment};
use crate::shape::Shape;

/// Runs that are looked at, at most: those that are not shown are counted.
const MOST: usize = 10_000;

/// A run in its tree.
#[derive(Debug)]
pub struct Node {
    /// The run.
    pub run: RunView,
    /// What set it off.
    pub by: Option<String>,
    /// Whether it undid what it did.
    pub rollback: Option<Rollback>,
    /// Those that are shown, in the order in which they were set off.
    pub below: Vec<usize>,
    /// Directly below, and not shown.
    pub hidden: usize,
}

/// When a run began to undo what it did, and why.
#[derive(Debug)]
pub struct Rollback {
    /// Since when.
    pub from: Timestamp,
    /// None if somebody asked for it.
    pub why: Option<String>,
}

/// A tree: its runs, those near the top first, and which are below which.
#[derive(Debug)]
pub struct Found {
    /// Its runs.
    pub runs: Vec<RunView>,
    /// Which are below which.
    pub below: BTreeMap<RunId, Vec<usize>>,
    /// There are others.
    pub more: bool,
}

/// All that is below a run, so far as it is looked at.
///
/// # Errors
/// When it cannot be read.
pub async fn gather(client: &Client, top: RunView) -> Result<Found, Error> {
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
///
/// # Errors
/// When they cannot be read.
pub async fn nodes(
    client: &Client,
    runs: Vec<RunView>,
    below: BTreeMap<RunId, Vec<usize>>,
    shown: usize,
) -> Result<Vec<Node>, Error> {
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
async fn read_journals(client: &Client, nodes: &mut [Node], at: usize) -> Result<(), Error> {
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

/// A tree, as it is shown: a run, what set it off, and those below it.
#[derive(Clone, Debug, serde::Serialize)]
pub struct TreeNode {
    /// The run.
    #[serde(flatten)]
    pub run: Run,
    /// The call that set it off.
    pub set_off_by: Option<String>,
    /// That call's number.
    pub call: Option<u32>,
    /// When it began to undo what it did.
    pub rolled_back_from: Option<Timestamp>,
    /// Why.
    pub rolled_back_why: Option<String>,
    /// How many directly below are not shown.
    pub hidden: usize,
    /// Those that are.
    pub children: Vec<TreeNode>,
}

impl Shape for TreeNode {
    fn schema() -> Value {
        let mut schema = Run::schema();
        let more = json!({
            "set_off_by": Option::<String>::schema(),
            "call": Option::<u32>::schema(),
            "rolled_back_from": Option::<Timestamp>::schema(),
            "rolled_back_why": Option::<String>::schema(),
            "hidden": usize::schema(),
            "children": {"type": "array", "items": {"type": "object"},
                "description": "Those below it, in the same shape."},
        });
        for (name, field) in more.as_object().into_iter().flatten() {
            schema["properties"][name] = field.clone();
        }
        schema
    }
}

impl TreeNode {
    /// This one of them, and those below it.
    #[must_use]
    pub fn of(nodes: &[Node], at: usize) -> TreeNode {
        let node = &nodes[at];
        let rollback = node.rollback.as_ref();
        let below = node.below.iter().map(|child| TreeNode::of(nodes, *child));
        TreeNode {
            run: Run::from(&node.run),
            set_off_by: node.by.clone(),
            call: node.run.row.parent.map(|parent| parent.call),
            rolled_back_from: rollback.map(|rollback| rollback.from),
            rolled_back_why: rollback.and_then(|rollback| rollback.why.clone()),
            hidden: node.hidden,
            children: below.collect(),
        }
    }
}
