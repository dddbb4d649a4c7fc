//! `runs tree`: a run with all that it set off, and what became of each.

use clap::Args;
use roundel::Client;
use roundel_server::view::{TreeNode, gather, nodes};

use super::drawing::{Drawing, draw};
use crate::exit::{Exit, Result};
use crate::show::{Output, as_value};
use crate::which::Which;

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
        let mut tree = as_value(&TreeNode::of(&nodes, 0));
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
