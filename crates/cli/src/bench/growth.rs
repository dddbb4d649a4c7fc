//! `bench growth`: what is asked for on the command line.

use std::time::Duration;

use clap::{Args, ValueEnum};
use roundel_bench::growth;

use super::{Done, Output, table};

#[derive(Args)]
pub(crate) struct Growth {
    /// Numbers of ended runs in the file; the first is what the others are compared with.
    #[arg(long, value_delimiter = ',', default_values_t = [0, 10_000, 100_000])]
    stored: Vec<u64>,
    /// Numbers of sleeping runs in the file.
    #[arg(long, value_delimiter = ',', default_values_t = [0, 1_000, 20_000])]
    waiting: Vec<u64>,
    /// Numbers of effects of one run.
    #[arg(long, value_delimiter = ',', default_values_t = [100, 1_000, 5_000])]
    journal: Vec<u32>,
    /// Numbers of children of one run.
    #[arg(long, value_delimiter = ',', default_values_t = [10, 100, 1_000])]
    children: Vec<u32>,
    /// Numbers of worker processes; more than one with --db only. None unless said.
    #[arg(long, value_delimiter = ',')]
    workers: Vec<usize>,
    /// Only these; all unless said.
    #[arg(long, value_delimiter = ',')]
    only: Vec<Axis>,
    /// How often each size has its turn.
    #[arg(long, default_value_t = 5)]
    turns: usize,
    /// Runs in flight beside those that are stored or wait, and of all processes.
    #[arg(long, default_value_t = 1000)]
    in_flight: usize,
    /// Runs one after the other, at each of these sizes.
    #[arg(long, default_value_t = 200)]
    latency_runs: usize,
    /// Seconds that one database may take to be filled; it is measured with what is there then.
    #[arg(long, default_value_t = 600)]
    filling: u64,
    #[command(flatten)]
    output: Output,
}

/// What grows.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Axis {
    Stored,
    Waiting,
    Journal,
    Children,
    Workers,
}

pub(super) async fn run(args: Growth, server: Option<&str>) -> Done {
    let only = args.only;
    let asked = |axis| only.is_empty() || only.contains(&axis);
    let plan = growth::Plan {
        target: args.output.target(server),
        stored: sizes(asked(Axis::Stored).then_some(args.stored)),
        waiting: sizes(asked(Axis::Waiting).then_some(args.waiting)),
        journal: sizes(asked(Axis::Journal).then_some(args.journal)),
        children: sizes(asked(Axis::Children).then_some(args.children)),
        workers: sizes(asked(Axis::Workers).then_some(args.workers)),
        turns: args.turns.max(1),
        in_flight: args.in_flight.max(1),
        latency_runs: args.latency_runs.max(1),
        filling: Duration::from_secs(args.filling),
    };
    let figures = growth::measure(&plan, &args.output.progress()).await?;
    args.output.show(&figures, table::growth)
}

/// What is not asked for has no sizes.
fn sizes<T>(asked: Option<Vec<T>>) -> Vec<T> {
    asked.unwrap_or_default()
}
