//! `bench facts`: what is asked for on the command line.

use clap::Args;
use roundel_bench::facts;

use super::{Done, Output, table};

#[derive(Args)]
pub(crate) struct Facts {
    /// Facts in one turn.
    #[arg(long, default_value_t = 20_000)]
    facts: usize,
    /// Recorders at once; each waits until its fact is durable.
    #[arg(long, default_value_t = 500)]
    recorders: usize,
    /// Turns, each beside the raw limit.
    #[arg(long, default_value_t = 5)]
    turns: usize,
    /// Facts one after the other, beside the same rows as plain SQL.
    #[arg(long, default_value_t = 3_000)]
    alone: usize,
    /// Facts that are folded anew.
    #[arg(long, default_value_t = 1_000_000)]
    rebuilt: usize,
    #[command(flatten)]
    output: Output,
}

pub(super) async fn run(args: Facts, server: Option<&str>) -> Done {
    let plan = facts::Plan {
        target: args.output.target(server),
        facts: args.facts.max(1),
        recorders: args.recorders.max(1),
        turns: args.turns.max(1),
        alone: args.alone.max(1),
        rebuilt: args.rebuilt,
    };
    let figures = facts::measure(&plan, &args.output.progress()).await?;
    args.output.show(&figures, table::facts)
}
