//! Runs: which there are, what happened in them, and what can be done about them.

use roundel::{
    Cancelled, Patched, Payload, RunId, RunState, Timestamp, Trouble, TroubleId, Undone,
};
use roundel_core::RETENTION;
use serde_json::Value;

use super::{Because, Delete, Operate, See, label, limit, to};
use crate::cursor;
use crate::problem::{Code, Problem};
use crate::route::{Ask, Json};
use crate::shape::{Looked, Nothing, input, output};
use crate::view::{self, Run, RunPage, TreeNode, UndoPreview, Waiting};

/// Children and messages of a run's page.
const BESIDE: usize = 200;
/// Runs of a tree unless more are asked for, and at most.
const TREE: (usize, usize) = (200, 2000);

input! {
    /// Which runs.
    pub(crate) struct RunsAsked {
        /// Only of this workflow.
        workflow: Option<String>,
        /// Only in this state; rollbacks that failed count among `parked`.
        state: Option<RunState>,
        /// Only with this label, as `name=value`.
        label: Option<String>,
        /// So many at most; 50 unless said.
        limit: Option<usize>,
        /// Where the page before ended: its `next`.
        cursor: Option<String>,
    }
}

pub(crate) async fn list(cap: See, ask: Ask<RunsAsked>) -> Result<Json<Looked<Run>>, Problem> {
    let (asked, client) = (&ask.query, cap.client());
    let (limit, label) = (
        limit(&cap, asked.limit)?,
        asked.label.as_deref().map(label).transpose()?,
    );
    let after: Option<RunId> = match &asked.cursor {
        Some(word) => Some(cursor::read("runs", word)?),
        None => None,
    };
    let rows = cap.server.limits.look;
    let found = if asked.state == Some(RunState::Parked) {
        let mut parked = client.parked().only_runs().limit(limit).within(rows);
        if let Some(workflow) = &asked.workflow {
            parked = parked.of(workflow.clone())?;
        }
        if let Some((name, value)) = label {
            parked = parked.with_label(name, value)?;
        }
        if let Some(after) = after {
            parked = parked.after(TroubleId::Run(after));
        }
        let found = parked.look().await?;
        let runs = found.items.into_iter().filter_map(|trouble| match trouble {
            Trouble::Run(run) => Some(*run),
            Trouble::Signal(_) => None,
        });
        roundel::Stretch {
            items: runs.collect(),
            next: found.next.map(TroubleId::run),
        }
    } else {
        let mut runs = client.runs().limit(limit).within(rows);
        if let Some(workflow) = &asked.workflow {
            runs = runs.of(workflow.clone())?;
        }
        if let Some(state) = asked.state {
            runs = runs.in_state(state);
        }
        if let Some((name, value)) = label {
            runs = runs.with_label(name, value)?;
        }
        if let Some(after) = after {
            runs = runs.after(after);
        }
        runs.look().await?
    };
    let next = found.next.map(|run| cursor::write("runs", &run));
    let items = found.items.iter().map(Run::from).collect();
    Ok(Json(Looked::of(items, next, found.next)))
}

input! {
    /// Which part of it.
    pub(crate) struct ShowAsked {
        /// An earlier execution, before it continued as new.
        execution: Option<u32>,
    }
}

pub(crate) async fn show(cap: See, ask: Ask<ShowAsked>) -> Result<Json<RunPage>, Problem> {
    let client = cap.client();
    let run = client.run(to(ask.name())).await?;
    let seen = view::look(client, run, ask.query.execution, BESIDE).await?;
    Ok(Json(RunPage::from(&seen)))
}

input! {
    /// How much of it.
    pub(crate) struct TreeAsked {
        /// Only the run and what is below it.
        below: Option<bool>,
        /// So many runs at most; 200 unless said, those near the top first.
        limit: Option<usize>,
    }
}

output! {
    /// A tree of runs.
    pub(crate) struct Tree {
        /// The run at the top, and those below it.
        top: TreeNode,
        /// The run that was asked about.
        asked: RunId,
        /// How many are left out.
        left_out: usize,
        /// There are even more.
        more: bool,
        /// The server's time.
        now: Timestamp,
    }
}

pub(crate) async fn tree(cap: See, ask: Ask<TreeAsked>) -> Result<Json<Tree>, Problem> {
    let (client, (usual, most)) = (cap.client(), TREE);
    let shown = ask.query.limit.unwrap_or(usual);
    if !(1..=most).contains(&shown) {
        return Err(Problem::bad(format!(
            "a tree is shown with 1 to {most} runs"
        )));
    }
    let asked = client.run(to(ask.name())).await?;
    let id = asked.row.id;
    let top = match ask.query.below.unwrap_or(false) {
        true => asked,
        false => client.run(asked.row.root).await?,
    };
    let found = view::gather(client, top).await?;
    let known = found.runs.len();
    let shown = known.min(shown);
    let nodes = view::nodes(client, found.runs, found.below, shown).await?;
    Ok(Json(Tree {
        top: TreeNode::of(&nodes, 0),
        asked: id,
        left_out: known - shown,
        more: found.more,
        now: client.now(),
    }))
}

pub(crate) async fn why(cap: See, ask: Ask) -> Result<Json<Waiting>, Problem> {
    let client = cap.client();
    let run = client.run(to(ask.name())).await?;
    let (stuck, sentence) = view::follow(client, run).await?;
    let mut shown = Waiting::from(&stuck);
    shown.sentence = Some(sentence);
    Ok(Json(shown))
}

pub(crate) async fn preview(cap: See, ask: Ask) -> Result<Json<UndoPreview>, Problem> {
    let preview = cap.client().preview_undo(to(ask.name())).await?;
    Ok(Json(UndoPreview::from(&preview)))
}

output! {
    /// What came of it.
    pub(crate) struct UndoAnswer {
        /// `begun`, or `already` if there was nothing to do.
        undo: &'static str,
        /// Where the run stands, if there was nothing to do.
        state: Option<RunState>,
        /// It is part of a larger tree, whose rest stays.
        partial: bool,
    }
}

pub(crate) async fn undo(
    cap: Operate,
    ask: Ask<Nothing, Because>,
) -> Result<Json<UndoAnswer>, Problem> {
    let client = cap.because(ask.body.reason.as_deref());
    let (undo, state, partial) = match client.undo(to(ask.name())).await? {
        Undone::Begun { partial } => ("begun", None, partial),
        Undone::Already(state) => ("already", Some(state), false),
    };
    Ok(Json(UndoAnswer {
        undo,
        state,
        partial,
    }))
}

input! {
    /// How it is to end.
    pub(crate) struct CancelAsked {
        /// Undo nothing: what it did stays.
        without_undo: Option<bool>,
        /// Why, for the audit.
        reason: Option<String>,
    }
}

output! {
    /// What came of it.
    pub(crate) struct CancelAnswer {
        /// `requested`, `rolling_back` if it undoes what it did already, or `ended`.
        cancel: &'static str,
        /// How it had ended.
        state: Option<RunState>,
    }
}

pub(crate) async fn cancel(
    cap: Operate,
    ask: Ask<Nothing, CancelAsked>,
) -> Result<Json<CancelAnswer>, Problem> {
    let client = cap.because(ask.body.reason.as_deref());
    let run = to(ask.name());
    let answer = match ask.body.without_undo.unwrap_or(false) {
        true => client.cancel_without_undo(run).await?,
        false => client.cancel(run).await?,
    };
    let (cancel, state) = match answer {
        Cancelled::Requested => ("requested", None),
        Cancelled::RollingBack => ("rolling_back", None),
        Cancelled::AlreadyEnded(state) => ("ended", Some(state)),
        Cancelled::TargetUnknown => {
            let text = "there is no such run in this namespace; it may have been deleted";
            return Err(Problem::missing(text));
        }
    };
    Ok(Json(CancelAnswer { cancel, state }))
}

input! {
    /// A patch of a run's own state.
    pub(crate) struct PatchAsked {
        /// What to merge into it (RFC 7396: null removes).
        patch: Value,
        /// Only if the state has this version; 0 if it has none yet.
        if_version: Option<u64>,
        /// Why, for the audit.
        reason: Option<String>,
    }
}

output! {
    /// The state as it is now.
    pub(crate) struct PatchAnswer {
        /// How often it was changed.
        version: u64,
        /// What it says.
        state: Payload,
    }
}

pub(crate) async fn patch(
    cap: Operate,
    ask: Ask<Nothing, PatchAsked>,
) -> Result<Json<PatchAnswer>, Problem> {
    let client = cap.because(ask.body.reason.as_deref());
    let run = client.run(to(ask.name())).await?;
    if run.lane.workflow == RETENTION {
        let text = "how long things are kept is set by `PUT retention`, by those who may delete";
        return Err(Problem::new(Code::Forbidden, text));
    }
    let patched = client.patch_state(run.row.id, &ask.body.patch, ask.body.if_version);
    match patched.await? {
        Patched::Changed(state) => Ok(Json(PatchAnswer {
            version: state.version,
            state: state.value,
        })),
        Patched::VersionIs(version) => {
            let text = format!("the state has version {version}; look at it, and patch that");
            Err(Problem::new(Code::Stale, text))
        }
        Patched::TargetEnded(state) => {
            let state = state.as_str();
            let text = format!("the run has ended ({state}); the patch is kept in the audit");
            Err(Problem::new(Code::Conflict, text))
        }
        Patched::TargetUnknown => {
            let text = "there is no such run in this namespace; it may have been deleted";
            Err(Problem::missing(text))
        }
    }
}

input! {
    /// Which of them.
    pub(crate) struct DeleteAsked {
        /// Also if it has not ended.
        force: Option<bool>,
        /// Why, for the audit.
        reason: Option<String>,
    }
}

output! {
    /// What came of it.
    pub(crate) struct DeleteAnswer {
        /// How many runs went.
        removed: usize,
    }
}

pub(crate) async fn delete(
    cap: Delete,
    ask: Ask<DeleteAsked>,
) -> Result<Json<DeleteAnswer>, Problem> {
    let client = cap.because(ask.query.reason.as_deref());
    let run = to(ask.name());
    let removed = match ask.query.force.unwrap_or(false) {
        true => client.delete_forced(run).await?,
        false => client.delete(run).await?,
    };
    Ok(Json(DeleteAnswer { removed }))
}
