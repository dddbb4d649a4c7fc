//! `roundel bench`: workloads, always with the raw limit of the machine beside them.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use roundel_bench::{idle, limit, w1};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Runs of five effects: latency one at a time, throughput with many in flight.
    W1(W1),
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

#[derive(Args)]
struct Output {
    /// The folder for the files, on the disk to be measured.
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// One JSON object in one line.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(command: Command) -> Result<(), Box<dyn std::error::Error>> {
    match command {
        Command::W1(args) => run_w1(args).await,
        Command::Idle(args) => run_idle(&args).await,
        Command::Limit(args) => run_limit(&args),
    }
}

async fn run_w1(args: W1) -> Result<(), Box<dyn std::error::Error>> {
    let plan = w1::Plan {
        dir: args.output.dir,
        in_flight: args.in_flight.max(1),
        time: Duration::from_secs(args.seconds.max(1)),
        latency_runs: args.latency_runs.max(1),
        stored: args.stored,
        sleeping: args.sleeping,
    };
    let shown = std::io::stderr().is_terminal() && !args.output.json;
    let progress = |doing: &str| {
        if shown {
            eprintln!("{doing} ...");
        }
    };
    let figures = w1::measure(&plan, &progress).await?;
    if args.output.json {
        println!("{}", serde_json::to_string(&figures)?);
        return Ok(());
    }
    println!("W1, runs of five effects                     this run");
    println!(
        "  effects per second, {:>5} in flight   {:>14.0}",
        figures.in_flight,
        { figures.effects_per_second }
    );
    println!(
        "  raw limit, rows per second            {:>14.0}",
        figures.limit_rows_per_second
    );
    println!(
        "  ratio                                 {:>14.2}",
        figures.ratio
    );
    println!(
        "  one run alone, p50 us                 {:>14.0}",
        figures.p50_us
    );
    println!(
        "  one run alone, p99 us                 {:>14.0}",
        figures.p99_us
    );
    println!(
        "  fdatasync, p50 us                     {:>14.0}",
        figures.fdatasync_p50_us
    );
    println!(
        "  p50 in fdatasyncs                     {:>14.1}",
        figures.p50_us / figures.fdatasync_p50_us
    );
    if let (Some(before), Some(part)) = (figures.effects_per_second_before, figures.ratio_to_before)
    {
        println!(
            "  with {} stored, {} sleeping:",
            figures.stored, figures.sleeping
        );
        println!("  effects per second in an empty file   {before:>14.0}");
        println!("  part of the speed without             {part:>14.2}");
        println!(
            "  memory added, MB                      {:>14.1}",
            figures.added_memory_mb.unwrap_or(0.0)
        );
    }
    Ok(())
}

async fn run_idle(args: &Idle) -> Result<(), Box<dyn std::error::Error>> {
    let time = Duration::from_secs(args.seconds.max(1));
    let figures = idle::measure(&args.output.dir, args.sleeping, time).await?;
    if args.output.json {
        println!("{}", serde_json::to_string(&figures)?);
        return Ok(());
    }
    println!("an engine with {} runs asleep", figures.sleeping);
    println!(
        "  processor time, ms per second         {:>14.2}",
        figures.cpu_ms_per_second
    );
    Ok(())
}

fn run_limit(args: &Limit) -> Result<(), Box<dyn std::error::Error>> {
    let limit = limit::measure(&args.output.dir, Duration::from_secs(args.seconds.max(1)))?;
    if args.output.json {
        println!("{}", serde_json::to_string(&limit)?);
        return Ok(());
    }
    println!("raw limit of this machine");
    println!(
        "  rows per second, batches of 100       {:>14.0}",
        limit.rows_per_second
    );
    println!(
        "  commit of a batch, p50 us             {:>14.0}",
        limit.commit_p50_us
    );
    println!(
        "  fdatasync, p50 us                     {:>14.0}",
        limit.fdatasync_p50_us
    );
    println!(
        "  fdatasync, p99 us                     {:>14.0}",
        limit.fdatasync_p99_us
    );
    Ok(())
}
