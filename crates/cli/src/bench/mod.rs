//! `roundel bench`: workloads, always with the raw limit of the machine beside them.

mod facts;
mod growth;
mod table;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use roundel_bench::{Role, Target, held, idle, limit, retention, w1, w2, w3, w4, w5};
use serde::Serialize;

use table::Table;

type Done = Result<(), Box<dyn std::error::Error>>;

const FIGURES: &str = "\
Every figure stands beside the raw limit of the machine: one durable writer that appends a journal
row and a run row, a hundred in a commit, with nothing to decide. Slices of the workload and of the
limit are taken in turn, and their medians compared, because machines are not equally fast from one
minute to the next. With --db postgres://... all of it is done on that server, in schemas of its
own, which are dropped afterwards; otherwise over SQLite, in files of its own.

  limit_rows_per_second   the raw limit, at the time of this workload
  ratio                   the workload's rate by the raw limit
  fdatasync_p50_us        appending 4 KiB to a file and syncing it: the median
  p50_fdatasyncs          a latency, counted in such syncs
  round_trip_p50_us       on a server: one row inserted and committed, there and back: the median
  p50_round_trips         a latency, counted in such round trips
  p50_us, p99_us          one run alone, from its start (w4: from its signal) until its result is
                          known

--json prints one object in one line for each workload.";

#[derive(Subcommand)]
#[command(after_help = FIGURES)]
pub(crate) enum Command {
    /// Runs of five effects: latency one at a time, throughput with many in flight.
    #[command(after_help = FIGURES)]
    W1(W1),
    /// A queue of small jobs, each a command.
    #[command(after_help = FIGURES)]
    W2(W2),
    /// Facts that are recorded and folded, beside the same rows as plain SQL; and a rebuild.
    Facts(facts::Facts),
    /// Fan-out: a parent starts a hundred children and waits for all.
    #[command(after_help = FIGURES)]
    W3(W3),
    /// A signal: from its sending until the run that waited for it has ended.
    #[command(after_help = FIGURES)]
    W4(W4),
    /// Cooperation: publishing, rollback, many children of one call, parents that wait.
    W5(W5),
    /// What stored and waiting runs, long journals, large fan-outs and more processes cost.
    Growth(growth::Growth),
    /// How large a database becomes when what has ended goes by itself.
    Retention(Retention),
    /// All of the above, as they are by default.
    All(Output),
    /// What an engine costs that has nothing to do.
    Idle(Idle),
    /// What a transaction costs that somebody leaves open on the server.
    Held(Held),
    /// What one durable writer does on this machine when nothing decides.
    Limit(Limit),
    /// Another worker process.
    #[command(hide = true)]
    Worker(Worker),
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
    /// Ended runs to put into a second database; it takes turns with the empty one.
    #[arg(long, default_value_t = 0)]
    stored: u64,
    /// Sleeping runs to put into the second one.
    #[arg(long, default_value_t = 0)]
    sleeping: u64,
    /// Worker processes, this one among them; more than one with --db only.
    #[arg(long, default_value_t = 1)]
    workers: usize,
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
    /// Jobs that a sender sends in one call; the next when all of them are durable.
    #[arg(long, default_value_t = 1, value_name = "JOBS")]
    send_many: usize,
    /// Jobs worked on at once, by each process.
    #[arg(long, default_value_t = 50)]
    concurrency: usize,
    /// Queues, in turn with the raw limit.
    #[arg(long, default_value_t = 5)]
    turns: usize,
    /// Jobs in latency mode.
    #[arg(long, default_value_t = 200)]
    latency_runs: usize,
    /// Worker processes, this one among them; more than one with --db only.
    #[arg(long, default_value_t = 1)]
    workers: usize,
    /// In turn with queues that have limits, and compared with them.
    #[arg(long)]
    limited: bool,
    /// In turn with queues whose handler takes up to so many jobs in one call.
    #[arg(long, value_name = "JOBS")]
    many: Option<usize>,
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
    /// Worker processes, this one among them; more than one with --db only.
    #[arg(long, default_value_t = 1)]
    workers: usize,
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
    /// Worker processes, this one among them; more than one with --db only.
    #[arg(long, default_value_t = 1)]
    workers: usize,
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
    /// Worker processes, this one among them; more than one with --db only.
    #[arg(long, default_value_t = 1)]
    workers: usize,
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
pub(crate) struct Retention {
    /// Journal entries to write.
    #[arg(long, default_value_t = 1_000_000)]
    entries: u64,
    /// Seconds that runs are kept after their end.
    #[arg(long, default_value_t = 1)]
    keep: u64,
    /// Runs in flight.
    #[arg(long, default_value_t = 1000)]
    in_flight: usize,
    #[command(flatten)]
    output: Output,
}

#[derive(Args)]
pub(crate) struct Held {
    /// Seconds that the transaction is open.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Runs in flight.
    #[arg(long, default_value_t = 1000)]
    in_flight: usize,
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

#[derive(Args)]
pub(crate) struct Worker {
    workload: String,
    schema: String,
    #[arg(long)]
    concurrency: Option<usize>,
}

#[derive(Args, Clone)]
pub(crate) struct Output {
    /// The folder for the files, on the disk to be measured; of no use with --db.
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// One JSON object in one line.
    #[arg(long)]
    json: bool,
}

impl Output {
    /// The server, if one was named; otherwise files.
    fn target(&self, server: Option<&str>) -> Target {
        match server {
            Some(url) => Target::Server(url.to_owned()),
            None => Target::Folder(self.dir.clone()),
        }
    }

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

/// `server` is the URL that was given, if any.
pub(crate) async fn run(command: Command, server: Option<&str>) -> Done {
    if let Command::Worker(args) = command {
        return run_worker(args).await;
    }
    let others = roundel_bench::others_running();
    if others >= 0.5 {
        eprintln!(
            "others use this machine: {others:.1} threads want a processor; figures and ratios \
             will be off, measure again when it is quiet"
        );
    }
    match command {
        Command::W1(args) => run_w1(args, server).await,
        Command::W2(args) => run_w2(args, server).await,
        Command::W3(args) => run_w3(args, server).await,
        Command::W4(args) => run_w4(args, server).await,
        Command::W5(args) => run_w5(args, server).await,
        Command::Facts(args) => facts::run(args, server).await,
        Command::Growth(args) => growth::run(args, server).await,
        Command::Retention(args) => run_retention(args, server).await,
        Command::Held(args) => run_held(&args, server).await,
        Command::All(output) => run_all(&output, server).await,
        Command::Idle(args) => run_idle(&args, server).await,
        Command::Limit(args) => run_limit(&args, server).await,
        Command::Worker(_) => unreachable!("it has no figures of its own"),
    }
}

/// Each with its defaults, which only the command line knows: it is asked for them.
async fn run_all(output: &Output, server: Option<&str>) -> Done {
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
        Box::pin(run(line.command, server)).await?;
    }
    Ok(())
}

async fn run_worker(args: Worker) -> Done {
    let role = Role {
        workload: args.workload,
        schema: args.schema,
        concurrency: args.concurrency,
    };
    Ok(roundel_bench::help(&role).await?)
}

async fn run_w1(args: W1, server: Option<&str>) -> Done {
    let plan = w1::Plan {
        target: args.output.target(server),
        workers: args.workers.max(1),
        in_flight: args.in_flight.max(1),
        time: Duration::from_secs(args.seconds.max(1)),
        latency_runs: args.latency_runs.max(1),
        stored: args.stored,
        sleeping: args.sleeping,
    };
    let figures = w1::measure(&plan, &args.output.progress()).await?;
    args.output.show(&figures, table::w1)
}

async fn run_w2(args: W2, server: Option<&str>) -> Done {
    let plan = w2::Plan {
        target: args.output.target(server),
        workers: args.workers.max(1),
        jobs: args.jobs.max(1),
        senders: args.senders.max(1),
        send_many: args.send_many.max(1),
        concurrency: args.concurrency.max(1),
        turns: args.turns.max(1),
        latency_runs: args.latency_runs.max(1),
        limited: args.limited,
        many: args.many.map(|many| many.max(1)),
    };
    let figures = w2::measure(&plan, &args.output.progress()).await?;
    args.output.show(&figures, table::w2)
}

async fn run_w3(args: W3, server: Option<&str>) -> Done {
    let plan = w3::Plan {
        target: args.output.target(server),
        workers: args.workers.max(1),
        children: args.children,
        parents: args.parents.max(1),
        in_flight: args.in_flight.max(1),
        time: Duration::from_secs(args.seconds.max(1)),
    };
    let figures = w3::measure(&plan, &args.output.progress()).await?;
    args.output.show(&figures, table::w3)
}

async fn run_w4(args: W4, server: Option<&str>) -> Done {
    let plan = w4::Plan {
        target: args.output.target(server),
        workers: args.workers.max(1),
        latency_runs: args.latency_runs.max(1),
        in_flight: args.in_flight.max(1),
        turns: args.turns.max(1),
    };
    let figures = w4::measure(&plan, &args.output.progress()).await?;
    args.output.show(&figures, table::w4)
}

async fn run_w5(args: W5, server: Option<&str>) -> Done {
    let plan = w5::Plan {
        target: args.output.target(server),
        workers: args.workers.max(1),
        parents: args.parents.max(1),
        turns: args.turns.max(1),
        fan_in: args.fan_in.max(1),
        waiting: args.waiting,
    };
    let figures = w5::measure(&plan, &args.output.progress()).await?;
    args.output.show(&figures, table::w5)
}

async fn run_retention(args: Retention, server: Option<&str>) -> Done {
    let plan = retention::Plan {
        target: args.output.target(server),
        entries: args.entries.max(1),
        keep: Duration::from_secs(args.keep),
        in_flight: args.in_flight.max(1),
    };
    let figures = retention::measure(&plan, &args.output.progress()).await?;
    args.output.show(&figures, table::retention)
}

async fn run_held(args: &Held, server: Option<&str>) -> Done {
    let load = (
        args.in_flight.max(1),
        Duration::from_secs(args.seconds.max(1)),
    );
    let target = args.output.target(server);
    let figures = held::measure(&target, load, &args.output.progress()).await?;
    args.output.show(&figures, table::held)
}

async fn run_idle(args: &Idle, server: Option<&str>) -> Done {
    let time = Duration::from_secs(args.seconds.max(1));
    let figures = idle::measure(&args.output.target(server), args.sleeping, time).await?;
    args.output.show(&figures, table::idle)
}

async fn run_limit(args: &Limit, server: Option<&str>) -> Done {
    let time = Duration::from_secs(args.seconds.max(1));
    let limit = limit::measure(&args.output.target(server), time).await?;
    args.output.show(&limit, table::limit)
}
