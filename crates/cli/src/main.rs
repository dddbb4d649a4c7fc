//! The `roundel` command.

mod bench;
mod demo;
mod runs;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(
    name = "roundel",
    version,
    about = "Durable execution over your own database"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Watch a small shop survive: a few hundred orders, and a worker that is killed on the way.
    Demo(demo::Demo),
    /// Look at runs.
    #[command(subcommand)]
    Runs(runs::Command),
    /// Measure this machine and Roundel on it.
    #[command(subcommand)]
    Bench(bench::Command),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("roundel: no threads could be started: {error}");
            return ExitCode::FAILURE;
        }
    };
    let done = runtime.block_on(async {
        match cli.command {
            Command::Demo(args) => demo::run(args).await,
            Command::Runs(command) => runs::run(command).await,
            Command::Bench(command) => bench::run(command).await,
        }
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("roundel: {error}");
            ExitCode::FAILURE
        }
    }
}
