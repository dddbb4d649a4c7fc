//! The project's only scripts: `cargo xtask <command>`.
//!
//! Exit code 0 means that every step passed, 1 that at least one failed, 2 that the command line
//! was not understood. Nothing is fixed on its own: each command only looks and reports, unless it
//! is told to write.

mod browser;
mod cost;
mod growth;
mod newcomer;
mod peers;
mod reliability;
mod server;
mod steps;
mod supply;
mod tidy;
mod unsteady;

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;

use steps::Step;

const HELP: &str = "\
usage: cargo xtask <command>

commands:
  test         tidy, deny, every test and documentation example, sim, cost, reliability, newcomer
  lint         formatting, clippy and documentation, each without warnings
  tidy         the project's own rules: sizes, module docs, nothing unfinished, examples that run
  deny         the packages of others: licences, sources, checksums, versions, what must not be here
  sbom         what the command is made of, in CycloneDX's form, to standard output
  sim          schedules of crashes and faults: --schedules N, --seed S, --json, --trace
  cost         instructions of an effect against their budget; --write makes them the budget
  reliability  the page on reliability against the last test run; --write brings it up to that
  pictures     those of the guide, taken anew by the test that drives the demo in a browser
  newcomer     a new crate with the lines of the README and the guide's first page, built and run
  peers        the same work on other systems: --programs FOLDER, --turns N, --only NAME, --quick
  growth       what growth costs, drawn: --only AXIS, --store STORE, --filling N, --quick, --draw
  ci           lint and test: what has to pass before a change is merged
  help         this text";

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
enum Request {
    Help,
    Run(Vec<Step>),
    Simulate(Vec<String>),
    /// Figures of the last run are written into their page.
    State,
    /// What is counted becomes the budget.
    Budget,
    /// The guide's pictures are taken anew.
    Pictures,
    /// What the command is made of is listed.
    Bill,
    /// Others are measured beside this one.
    Compare(Vec<String>),
    /// What growth costs is measured and drawn.
    Grow(Vec<String>),
}

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    match parse(&args) {
        Ok(Request::Help) => {
            println!("{HELP}");
            ExitCode::SUCCESS
        }
        Ok(Request::Run(list)) => match steps::run_all(&list, &workspace_root()) {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        },
        Ok(Request::State) => match reliability::run(&workspace_root(), true) {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        },
        Ok(Request::Budget) => match cost::run(&workspace_root(), true) {
            cost::Counted::Within => ExitCode::SUCCESS,
            _ => ExitCode::FAILURE,
        },
        Ok(Request::Pictures) => match browser::take_pictures(&workspace_root()) {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        },
        Ok(Request::Bill) => match supply::sbom(&workspace_root()) {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        },
        Ok(Request::Compare(options)) => ended(peers::run(&workspace_root(), &options)),
        Ok(Request::Grow(options)) => ended(growth::run(&workspace_root(), &options)),
        Ok(Request::Simulate(options)) => match steps::simulate(&workspace_root(), &options) {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        },
        Err(message) => {
            eprintln!("{message}\n\n{HELP}");
            ExitCode::from(2)
        }
    }
}

/// Of a command that has options of its own.
fn ended(measured: Result<bool, String>) -> ExitCode {
    match measured {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(2)
        }
    }
}

fn parse(args: &[String]) -> Result<Request, String> {
    let Some((command, rest)) = args.split_first() else {
        return Ok(Request::Help);
    };
    let request = match command.as_str() {
        "test" => Request::Run(steps::TEST.to_vec()),
        "lint" => Request::Run(steps::LINT.to_vec()),
        "tidy" => Request::Run(vec![Step::Tidy]),
        "deny" => Request::Run(vec![Step::Deny]),
        "sbom" => Request::Bill,
        "newcomer" => Request::Run(vec![Step::Newcomer]),
        "pictures" => Request::Pictures,
        "cost" if rest == ["--write"] => return Ok(Request::Budget),
        "cost" => Request::Run(vec![Step::Cost]),
        "reliability" if rest == ["--write"] => return Ok(Request::State),
        "reliability" => Request::Run(vec![Step::Reliability]),
        "ci" => Request::Run([steps::LINT, steps::TEST].concat()),
        "peers" => return Ok(Request::Compare(rest.to_vec())),
        "growth" => return Ok(Request::Grow(rest.to_vec())),
        "sim" => return Ok(Request::Simulate(rest.to_vec())),
        "help" | "--help" | "-h" => Request::Help,
        unknown => {
            return Err(format!(
                "error: there is no command `{unknown}`; choose one of these"
            ));
        }
    };
    match rest.first() {
        None => Ok(request),
        Some(extra) => Err(format!(
            "error: `{command}` takes no arguments, but got `{extra}`"
        )),
    }
}

/// Cargo names the manifest's folder when it runs this program; a copy that is started by hand
/// falls back to where it was built.
fn workspace_root() -> PathBuf {
    let manifest = env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    manifest
        .parent()
        .map_or_else(|| manifest.clone(), PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Request, String> {
        let args: Vec<String> = line.split_whitespace().map(String::from).collect();
        parse(&args)
    }

    #[test]
    fn no_command_asks_for_help() {
        assert_eq!(parsed(""), Ok(Request::Help));
        assert_eq!(parsed("--help"), Ok(Request::Help));
    }

    #[test]
    fn ci_holds_every_step_of_lint_and_test() {
        let Ok(Request::Run(ci)) = parsed("ci") else {
            panic!("ci is a list of steps")
        };
        for step in steps::LINT.iter().chain(steps::TEST) {
            assert!(ci.contains(step), "{step:?} is missing from ci");
        }
    }

    #[test]
    fn test_includes_tidy() {
        let Ok(Request::Run(list)) = parsed("test") else {
            panic!("test is a list of steps")
        };
        assert!(list.contains(&Step::Tidy));
    }

    #[test]
    fn an_unknown_command_is_named_in_the_error() {
        assert!(parsed("tset").unwrap_err().contains("`tset`"));
    }

    #[test]
    fn a_surplus_argument_is_refused() {
        assert!(parsed("test fast").unwrap_err().contains("`fast`"));
    }

    #[test]
    fn the_workspace_root_holds_the_lock_file() {
        assert!(workspace_root().join("Cargo.lock").is_file());
    }
}
