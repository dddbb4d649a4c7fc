//! The `roundel` command: the commands of the library, on the file that `--db` names, and what
//! needs no database of the user's.

mod bench;
mod demo;

use std::process::ExitCode;

use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;
use roundel_cli::{Exit, Place};

#[derive(Parser)]
#[command(
    name = "roundel",
    version,
    about = "Durable execution over your own database",
    after_help = Exit::HELP
)]
struct Cli {
    #[command(flatten)]
    place: Place,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Watch a small shop survive: a few hundred orders, some of which must be undone, and a worker
    /// that is killed on the way.
    Demo(demo::Demo),
    #[command(flatten)]
    Common(roundel_cli::Command),
    /// Measure this machine and Roundel on it, with files of its own.
    #[command(subcommand)]
    Bench(bench::Command),
    /// Print a script that completes these commands, for your shell.
    Completions {
        /// Which shell.
        shell: Shell,
    },
}

fn main() -> ExitCode {
    let matches = Cli::command().get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let server = server(&matches, &cli.place);
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: no threads could be started: {error}");
            return Exit::NotNow.into();
        }
    };
    let exit = runtime.block_on(async {
        let done = match cli.command {
            Command::Common(command) => return command.run(&cli.place.database()).await,
            Command::Demo(args) => demo::run(args, server.as_deref()).await,
            Command::Bench(command) => bench::run(command, server.as_deref()).await,
            Command::Completions { shell } => {
                complete(shell);
                Ok(())
            }
        };
        match done {
            Ok(()) => Exit::Done,
            Err(error) => {
                eprintln!("error: {error}");
                Exit::No
            }
        }
    });
    exit.into()
}

/// The server on which a command makes databases of its own: only one that was named for it. What
/// the environment says is for commands that work on what is there.
fn server(matches: &ArgMatches, place: &Place) -> Option<String> {
    let named = matches.value_source("db") == Some(ValueSource::CommandLine);
    let server = place.server().map(str::to_owned);
    server.filter(|_| named)
}

/// Prints the script; whoever reads it may stop early.
fn complete(shell: Shell) {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "roundel", &mut script);
    let _ = std::io::Write::write_all(&mut std::io::stdout(), &script);
}
