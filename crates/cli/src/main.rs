//! The `roundel` command: the commands of the library, on the file that `--db` names, and what
//! needs no database of the user's.

mod bench;
mod demo;

use std::path::{Path, PathBuf};
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
    /// Print the man page, or write one for every command.
    Man {
        /// Write them all into this folder, which is made if it is not there.
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
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
            Command::Common(command) => {
                let remote = cli.place.remote().filter(|_| !command.needs_no_database());
                return match remote {
                    Some(remote) => remote.run(&matches).await,
                    None => command.run(&cli.place.database()).await,
                };
            }
            Command::Demo(args) => demo::run(args, server.as_deref()).await,
            Command::Bench(command) => bench::run(command, server.as_deref()).await,
            Command::Completions { shell } => {
                complete(shell);
                Ok(())
            }
            Command::Man { dir } => manual(dir.as_deref()).map_err(|error| {
                let folder = dir.unwrap_or_default();
                format!(
                    "the pages cannot be written to {}: {error}",
                    folder.display()
                )
                .into()
            }),
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

/// Prints the page of the whole command, or writes one for each of its commands too.
fn manual(folder: Option<&Path>) -> std::io::Result<()> {
    let mut command = Cli::command();
    command.build();
    let Some(folder) = folder else {
        let mut page = Vec::new();
        clap_mangen::Man::new(command).render(&mut page)?;
        // Whoever reads it may stop early.
        let _ = std::io::Write::write_all(&mut std::io::stdout(), &page);
        return Ok(());
    };
    std::fs::create_dir_all(folder)?;
    pages(&command, "roundel", folder)
}

/// `roundel-runs-show.1`, as `man roundel runs show` finds it.
fn pages(command: &clap::Command, name: &str, folder: &Path) -> std::io::Result<()> {
    let title: &'static str = Box::leak(name.to_owned().into_boxed_str());
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone().name(title)).render(&mut page)?;
    std::fs::write(folder.join(format!("{name}.1")), page)?;
    let below = command
        .get_subcommands()
        .filter(|below| !below.is_hide_set());
    for below in below.filter(|below| below.get_name() != "help") {
        pages(below, &format!("{name}-{}", below.get_name()), folder)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_of_a_server_can_be_written() {
        let mut command = Cli::command();
        command.build();
        let unknown = roundel_cli::unknown_arguments(&command);
        assert!(unknown.is_empty(), "{unknown:?}");
    }
}
