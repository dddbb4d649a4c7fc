//! `roundel bench`: workloads, always with the raw limit of the machine beside them.

mod table;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use roundel_bench::{growth, idle, limit, w1, w2, w3, w4, w5};
use serde::Serialize;

use table::Table;

type Done = Result<(), Box<dyn std::error::Error>>;

const FIGURES: &str = "\
Every figure stands beside the raw limit of the machine: one durable SQLite writer that appends a
journal row and a run row, a hundred in a commit, with nothing to decide. Slices of the workload
and of the limit are taken in turn, and their medians compared, because machines are not equally
fast from one minute to the next.

  limit_rows_per_second   the raw limit, at the time of this workload
  ratio                   the workload's rate by the raw limit
  fdatasync_p50_us        appending 4 KiB to a file and syncing it: the median
  p50_fdatasyncs          a latency, counted in such syncs
  p50_us, p99_us          one run alone, from its start (w4: from its signal) until its result is
                          known

--json prints one object in one line for each workload.";

#[derive(Subcommand)]
#[command(after_help = FIGURES)]
pub(crate) enum Command {
    /// Runs of five effects: latency one at a time, throughput with many in flight.
    #[command(after_help = FIGURES)]
    W1(W1),
    /// A queue of small jobs, each a run with one effect.
    #[command(after_help = FIGURES)]
    W2(W2),
    /// Fan-out: a parent starts a hundred children and waits for all.
    #[command(after_help = FIGURES)]
    W3(W3),
    /// A signal: from its sending until the run that waited for it has ended.
    #[command(after_help = FIGURES)]
    W4(W4),
    /// Cooperation: publishing, rollback, many children of one call, parents that wait.
    W5(W5),
    /// What stored runs, waiting runs, long journals and large fan-outs cost.
    Growth(Growth),
    /// All of the above, as they are by default.
    All(Output),
    /// What an engine costs that has nothing to do.
    Idle(Idle),
    /// What one durable SQLite writer does on this machine when nothing decides.
    Limit(Limit),
}

#[derive(Args)]
pub(crate) struct W1 {
    /// Runs in flight in throughput mode.
    #[arg(long, default_value_t = 1000)]
    in_flight: usize,
    /// Seconds to measure throughput.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Runs in latency mode.
    #[arg(long, default_value_t = 200)]
    latency_runs: usize,
    /// Ended runs to put into a second file; it takes turns with the empty one.
    #[arg(long, default_value_t = 0)]
    stored: u64,
    /// Sleeping runs to put into the second file.
    #[arg(long, default_value_t = 0)]
    sleeping: u64,
    #[command(flatten)]
    output: Output,
}

#[derive(Args)]
pub(crate) struct W2 {
    /// Jobs in one queue.
    #[arg(long, default_value_t = 20_000)]
    jobs: usize,
    /// Senders at once; each waits until its send is durable.
    #[arg(long, default_value_t = 100)]
    senders: usize,
    /// Jobs worked on at once.
    #[arg(long, default_value_t = 50)]
    concurrency: usize,
    /// Queues, in turn with the raw limit.
    #[arg(long, default_value_t = 5)]
    turns: usize,
    /// Jobs in latency mode.
    #[arg(long, default_value_t = 200)]
    latency_runs: usize,
    #[command(flatten)]
    output: Output,
}

#[derive(Args)]
pub(crate) struct W3 {
    /// Children of one parent.
    #[arg(long, default_value_t = 100)]
    children: u32,
    /// Parents in latency mode.
    #[arg(long, default_value_t = 20)]
    parents: usize,
    /// Parents in flight in throughput mode.
    #[arg(long, default_value_t = 10)]
    in_flight: usize,
    /// Seconds to measure throughput.
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    #[command(flatten)]
    output: Output,
}

#[derive(Args)]
pub(crate) struct W4 {
    /// Signals in latency mode.
    #[arg(long, default_value_t = 200)]
    latency_runs: usize,
    /// Runs that wait at once in throughput mode.
    #[arg(long, default_value_t = 1000)]
    in_flight: usize,
    /// How often they do, in turn with the raw limit.
    #[arg(long, default_value_t = 10)]
    turns: usize,
    #[command(flatten)]
    output: Output,
}

#[derive(Args)]
pub(crate) struct W5 {
    /// Parents in one turn.
    #[arg(long, default_value_t = 1_000)]
    parents: usize,
    /// Turns of each kind.
    #[arg(long, default_value_t = 5)]
    turns: usize,
    /// Children of one call.
    #[arg(long, default_value_t = 10_000)]
    fan_in: u64,
    /// Parents that wait meanwhile.
    #[arg(long, default_value_t = 20_000)]
    waiting: u64,
    #[command(flatten)]
    output: Output,
}

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
    /// How often each size has its turn.
    #[arg(long, default_value_t = 5)]
    turns: usize,
    /// Runs in flight beside those that are stored or wait.
    #[arg(long, default_value_t = 1000)]
    in_flight: usize,
    #[command(flatten)]
    output: Output,
}

#[derive(Args)]
pub(crate) struct Limit {
    /// Seconds to measure.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    #[command(flatten)]
    output: Output,
}

#[derive(Args)]
pub(crate) struct Idle {
    /// Seconds to measure.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Runs asleep meanwhile.
    #[arg(long, default_value_t = 1000)]
    sleeping: u64,
    #[command(flatten)]
    output: Output,
}

#[derive(Args, Clone)]
pub(crate) struct Output {
    /// The folder for the files, on the disk to be measured.
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// One JSON object in one line.
    #[arg(long)]
    json: bool,
}

impl Output {
    /// Says what is being done, if somebody looks.
    fn progress(&self) -> impl Fn(&str) + use<> {
        let shown = std::io::stderr().is_terminal() && !self.json;
        move |doing| {
            if shown {
                eprintln!("{doing} ...");
            }
        }
    }

    fn show<F: Serialize>(&self, figures: &F, table: impl FnOnce(&F) -> Table) -> Done {
        if self.json {
            println!("{}", serde_json::to_string(figures)?);
        } else {
            print!("{}", table(figures));
        }
        Ok(())
    }
}

pub(crate) async fn run(command: Command) -> Done {
    let others = roundel_bench::others_running();
    if others >= 0.5 {
        eprintln!(
            "others use this machine: {others:.1} threads want a processor; figures and ratios \
             will be off, measure again when it is quiet"
        );
    }
    match command {
        Command::W1(args) => run_w1(args).await,
        Command::W2(args) => run_w2(args).await,
        Command::W3(args) => run_w3(args).await,
        Command::W4(args) => run_w4(args).await,
        Command::W5(args) => run_w5(args).await,
        Command::Growth(args) => run_growth(args).await,
        Command::All(output) => run_all(&output).await,
        Command::Idle(args) => run_idle(&args).await,
        Command::Limit(args) => run_limit(&args),
    }
}

/// Each with its defaults, which only the command line knows: it is asked for them.
async fn run_all(output: &Output) -> Done {
    #[derive(clap::Parser)]
    struct Line {
        #[command(subcommand)]
        command: Command,
    }
    for workload in ["w1", "w2", "w3", "w4", "w5", "growth"] {
        let mut line = vec!["bench".into(), workload.into(), "--dir".into()];
        line.push(output.dir.clone().into_os_string());
        line.extend(output.json.then(|| "--json".into()));
        let line: Line = clap::Parser::try_parse_from(line)?;
        Box::pin(run(line.command)).await?;
    }
    Ok(())
}

async fn run_w1(args: W1) -> Done {
    let plan = w1::Plan {
        dir: args.output.dir.clone(),
        in_flight: args.in_flight.max(1),
        time: Duration::from_secs(args.seconds.max(1)),
        latency_runs: args.latency_runs.max(1),
        stored: args.stored,
        sleeping: args.sleeping,
    };
    let figures = w1::measure(&plan, &args.output.progress()).await?;
    args.output.show(&figures, table::w1)
}

async fn run_w2(args: W2) -> Done {
    let plan = w2::Plan {
        dir: args.output.dir.clone(),
        jobs: args.jobs.max(1),
        senders: args.senders.max(1),
        concurrency: args.concurrency.max(1),
        turns: args.turns.max(1),
        latency_runs: args.latency_runs.max(1),
    };
    let figures = w2::measure(&plan, &args.output.progress()).await?;
    args.output.show(&figures, table::w2)
}

async fn run_w3(args: W3) -> Done {
    let plan = w3::Plan {
        dir: args.output.dir.clone(),
        children: args.children,
        parents: args.parents.max(1),
        in_flight: args.in_flight.max(1),
        time: Duration::from_secs(args.seconds.max(1)),
    };
    let figures = w3::measure(&plan, &args.output.progress()).await?;
    args.output.show(&figures, table::w3)
}

async fn run_w4(args: W4) -> Done {
    let plan = w4::Plan {
        dir: args.output.dir.clone(),
        latency_runs: args.latency_runs.max(1),
        in_flight: args.in_flight.max(1),
        turns: args.turns.max(1),
    };
    let figures = w4::measure(&plan, &args.output.progress()).await?;
    args.output.show(&figures, table::w4)
}

async fn run_w5(args: W5) -> Done {
    let plan = w5::Plan {
        dir: args.output.dir.clone(),
        parents: args.parents.max(1),
        turns: args.turns.max(1),
        fan_in: args.fan_in.max(1),
        waiting: args.waiting,
    };
    let figures = w5::measure(&plan, &args.output.progress()).await?;
    args.output.show(&figures, table::w5)
}

async fn run_growth(args: Growth) -> Done {
    let plan = growth::Plan {
        dir: args.output.dir.clone(),
        stored: args.stored,
        waiting: args.waiting,
        journal: args.journal,
        children: args.children,
        turns: args.turns.max(1),
        in_flight: args.in_flight.max(1),
    };
    let figures = growth::measure(&plan, &args.output.progress()).await?;
    args.output.show(&figures, table::growth)
}

async fn run_idle(args: &Idle) -> Done {
    let time = Duration::from_secs(args.seconds.max(1));
    let figures = idle::measure(&args.output.dir, args.sleeping, time).await?;
    args.output.show(&figures, table::idle)
}

fn run_limit(args: &Limit) -> Done {
    let limit = limit::measure(&args.output.dir, Duration::from_secs(args.seconds.max(1)))?;
    args.output.show(&limit, table::limit)
}
