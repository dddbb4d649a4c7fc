//! `runs undo`: first what would be undone, in order; then, if that is meant, the request.

use clap::Args;
use roundel::{Client, Preview, RunState, Undone};
use roundel_server::view::UndoPreview;
use serde_json::json;

use crate::exit::{Exit, Failed, Result};
use crate::many::{agreed, counted};
use crate::show::table::{self, fixed, flexible, plain};
use crate::show::{Output, Style};
use crate::signed::Signed;
use crate::which::Which;

/// So many are shown unless JSON is asked for.
const MOST: usize = 200;

#[derive(Args, Debug)]
pub struct Undo {
    #[command(flatten)]
    which: Which,
    /// Only list what would be undone, in order.
    #[arg(long, conflicts_with = "yes")]
    preview: bool,
    /// Do it without asking.
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    signed: Signed,
    #[command(flatten)]
    pub(crate) output: Output,
}

pub(crate) async fn run(args: &Undo, client: &Client) -> Result<Exit> {
    let client = &args.signed.client(client)?;
    let id = args.which.find(client).await?.row.id;
    let preview = client.preview_undo(id).await?;
    if args.preview {
        return show(args, &preview);
    }
    let state = preview.run.row.state;
    let at_rest = matches!(state, RunState::Completed | RunState::Parked);
    if at_rest && !args.yes {
        let question = format!("undo run {id}: {}?", sum(&preview));
        if !agreed(&question)? {
            return Err(Failed::usage("nothing was done"));
        }
    }
    let undone = client.undo(id).await?;
    let mut screen = args.output.screen();
    let (word, partial) = match undone {
        Undone::Begun { partial } => ("begun", partial),
        Undone::Already(_) => ("already", preview.partial),
    };
    if args.output.json {
        let state = client.run(id).await?.row.state;
        screen.json(&json!({"run": id, "undo": word, "state": state, "partial": partial}));
    } else if let Undone::Already(state) = undone {
        screen.line(&format!("nothing to do: run {id} is {}", state.as_str()));
    } else {
        screen.line(&format!(
            "{} under way: `runs tree {id}` shows it",
            sum(&preview)
        ));
    }
    screen.flush()?;
    Ok(Exit::Done)
}

/// How much would be undone.
fn sum(preview: &Preview) -> String {
    let calls = match (preview.undos.len(), preview.more) {
        (_, true) => format!("more than {} calls", preview.undos.len()),
        (1, _) => "1 call".to_owned(),
        (calls, _) => format!("{calls} calls"),
    };
    let mut runs: Vec<_> = preview.undos.iter().map(|undo| undo.run).collect();
    runs.sort_unstable();
    runs.dedup();
    let rest = if preview.partial {
        ", a part of its tree"
    } else {
        ""
    };
    format!("{calls} of {}{rest}", counted(runs.len(), "run"))
}

fn show(args: &Undo, preview: &Preview) -> Result<Exit> {
    let mut screen = args.output.screen();
    if args.output.json {
        screen.json(&json!(UndoPreview::from(preview)));
        screen.flush()?;
        return refusal(preview);
    }
    let rows = preview
        .undos
        .iter()
        .zip(1..)
        .take(MOST)
        .map(|(undo, number)| {
            let indent = "  ".repeat(usize::from(undo.depth));
            vec![
                (Style::Dim, number.to_string()),
                plain(format!("{indent}{}", undo.workflow)),
                plain(undo.name.as_str()),
                (Style::Dim, undo.run.to_string()),
            ]
        });
    let rows: Vec<_> = rows.collect();
    if !rows.is_empty() {
        let columns = [
            fixed("#"),
            flexible("workflow"),
            flexible("undoes"),
            fixed("run"),
        ];
        table::show(&mut screen, &columns, &rows);
    }
    let left = preview.undos.len().saturating_sub(MOST);
    if left > 0 {
        screen.line(&format!("… {left} more; --json lists them"));
    }
    screen.line(&format!("would undo {}", sum(preview)));
    screen.flush()?;
    refusal(preview)
}

/// A preview of what would be refused says so.
fn refusal(preview: &Preview) -> Result<Exit> {
    let row = &preview.run.row;
    match row.state {
        RunState::Completed | RunState::Parked => Ok(Exit::Done),
        state => Err(Failed::new(
            Exit::No,
            format!(
                "run {} is {}: only a run that completed or is parked can be undone",
                row.id,
                state.as_str()
            ),
        )),
    }
}
