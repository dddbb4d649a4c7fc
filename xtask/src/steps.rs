//! The steps that commands are made of, and how a list of them is run.
//!
//! A failing step does not stop the ones after it, so that one run shows everything there is to
//! mend. A step whose tool is not installed is skipped and says so.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::{browser, cost, newcomer, reliability, server, supply, tidy, unsteady};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Format,
    Clippy,
    Docs,
    Tidy,
    Deny,
    Tests,
    DocTests,
    Simulation,
    Cost,
    Reliability,
    Newcomer,
}

pub(crate) const LINT: &[Step] = &[Step::Format, Step::Clippy, Step::Docs];
pub(crate) const TEST: &[Step] = &[
    Step::Tidy,
    Step::Deny,
    Step::Tests,
    Step::DocTests,
    Step::Simulation,
    Step::Cost,
    Step::Reliability,
    Step::Newcomer,
];

/// Schedules of a test run.
const SCHEDULES: &str = "1_000_000";

/// How many tests of a program run at once.
const THREADS: &str = "RUST_TEST_THREADS";

/// What Cargo is told of it.
const SIMULATOR: &[&str] = &["--profile", "sim", "--quiet", "--package", "roundel-sim"];

/// A kind of processor, of 2013 and later.
const V3: &str = "x86-64-v3";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Passed,
    Failed,
    Skipped,
}

impl Step {
    fn name(self) -> &'static str {
        match self {
            Step::Format => "format",
            Step::Clippy => "clippy",
            Step::Docs => "docs",
            Step::Tidy => "tidy",
            Step::Deny => "deny",
            Step::Tests => "tests",
            Step::DocTests => "doc tests",
            Step::Simulation => "simulation",
            Step::Cost => "cost",
            Step::Reliability => "reliability",
            Step::Newcomer => "newcomer",
        }
    }

    /// What Cargo is asked to do; empty for steps that are programs of their own.
    fn arguments(self) -> &'static [&'static str] {
        match self {
            Step::Format => &["fmt", "--all", "--check"],
            Step::Clippy => &[
                "clippy",
                "--workspace",
                "--all-targets",
                "--all-features",
                "--",
                "-Dwarnings",
            ],
            // Only libraries: the pages of the `roundel` binary would replace those of the crate.
            Step::Docs => &["doc", "--workspace", "--lib", "--no-deps", "--all-features"],
            Step::Tidy
            | Step::Deny
            | Step::Newcomer
            | Step::Simulation
            | Step::Cost
            | Step::Reliability => &[],
            // Not the examples: they are modules of a test, and need no binaries of their own.
            Step::Tests => &[
                "test",
                "--workspace",
                "--lib",
                "--bins",
                "--tests",
                "--all-features",
                "--no-fail-fast",
            ],
            Step::DocTests => &[
                "test",
                "--workspace",
                "--doc",
                "--all-features",
                "--no-fail-fast",
            ],
        }
    }

    /// The optional toolchain component that the step needs.
    fn component(self) -> Option<&'static str> {
        match self {
            Step::Format => Some("rustfmt"),
            Step::Clippy => Some("clippy"),
            Step::Docs
            | Step::Tidy
            | Step::Deny
            | Step::Tests
            | Step::DocTests
            | Step::Simulation
            | Step::Cost
            | Step::Reliability
            | Step::Newcomer => None,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, self.arguments()) {
            (Step::Newcomer, _) => write!(f, "newcomer: a new crate with the lines of the pages"),
            (Step::Simulation, _) => write!(f, "simulation: {SCHEDULES} schedules of faults"),
            (Step::Cost, _) => write!(f, "cost: instructions of an effect, against their budget"),
            (Step::Deny, _) => write!(f, "deny: the packages of others"),
            (Step::Reliability, _) => write!(f, "reliability: the page against this run"),
            (_, []) => write!(f, "{}: the project's own rules", self.name()),
            (_, arguments) => write!(f, "{}: cargo {}", self.name(), arguments.join(" ")),
        }
    }
}

/// Runs every step and prints what happens; true when none failed.
pub(crate) fn run_all(list: &[Step], root: &Path) -> bool {
    let mut failed = Vec::new();
    let mut skipped = Vec::new();
    let mut times = Vec::new();
    for (index, step) in list.iter().enumerate() {
        println!("[{}/{}] {step}", index + 1, list.len());
        let start = Instant::now();
        let outcome = run(*step, root);
        let seconds = start.elapsed().as_secs_f64();
        match outcome {
            Outcome::Passed => println!("      {} passed in {seconds:.1} s", step.name()),
            Outcome::Failed => {
                println!("      {} FAILED after {seconds:.1} s", step.name());
                failed.push(step.name());
            }
            Outcome::Skipped => skipped.push(step.name()),
        }
        times.push(format!("{} {seconds:.0} s", step.name()));
    }
    println!("{}", times.join(", "));
    println!("{}", summary(&failed, &skipped));
    failed.is_empty()
}

/// A skipped step is named even when nothing failed: it proved nothing.
fn summary(failed: &[&str], skipped: &[&str]) -> String {
    let verdict = match failed {
        [] => "nothing failed".to_string(),
        names => format!("failed: {}", names.join(", ")),
    };
    match skipped {
        [] => verdict,
        names => format!("{verdict}; skipped: {}", names.join(", ")),
    }
}

fn run(step: Step, root: &Path) -> Outcome {
    if let Some(component) = step.component()
        && !is_installed(step, root)
    {
        println!(
            "      {} skipped: {component} is not installed (rustup component add {component})",
            step.name()
        );
        return Outcome::Skipped;
    }
    if step == Step::Cost {
        return match cost::run(root, false) {
            cost::Counted::Within => Outcome::Passed,
            cost::Counted::Failed => Outcome::Failed,
            cost::Counted::Skipped => Outcome::Skipped,
        };
    }
    let passed = match step {
        Step::Tidy => tidy::run(root),
        Step::Deny => supply::deny(root),
        Step::Newcomer => newcomer::run(root),
        Step::Simulation => simulation(root),
        Step::Reliability => reliability::run(root, false),
        Step::Tests => tests(root),
        _ => cargo(root, step.arguments())
            .status()
            .is_ok_and(|status| status.success()),
    };
    if passed {
        Outcome::Passed
    } else {
        Outcome::Failed
    }
}

fn is_installed(step: Step, root: &Path) -> bool {
    let mut probe = cargo(root, &step.arguments()[..1]);
    probe
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    probe.status().is_ok_and(|status| status.success())
}

/// Runs the tests, which hand their figures over, and say what had no server.
fn tests(root: &Path) -> bool {
    let figures = reliability::file(root);
    let untested = figures.with_file_name("untested");
    // Those of an earlier run are no longer true.
    for file in [&figures, &untested] {
        let _ = std::fs::remove_file(file);
    }
    let server = match server::start() {
        Ok(server) => server,
        Err(()) => return false,
    };
    if server::pooler_ready().is_err() || browser::ready().is_err() {
        return false;
    }
    if !build_all(root) {
        return false;
    }
    let mut command = cargo(root, Step::Tests.arguments());
    command.env(reliability::VARIABLE, figures);
    command.env(roundel_testpg::UNTESTED, &untested);
    if let Some(server) = &server {
        command.env(roundel_testpg::VARIABLE, server.address());
    }
    // A test waits for a third of its time: for others, for a timer, for a server.
    if env::var_os(THREADS).is_none() {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        command.env(THREADS, (cores * 2).to_string());
    }
    let ran = unsteady::run(command, |arguments| {
        let mut again = cargo(root, arguments);
        if let Some(server) = &server {
            again.env(roundel_testpg::VARIABLE, server.address());
        }
        again
    });
    if let Some(lines) = server::missed(&untested) {
        println!("      {lines}");
    }
    if !ran.unsteady.is_empty() {
        let names = ran.unsteady.join(", ");
        println!("      UNSTEADY, failed once and passed alone, to be mended: {names}");
    }
    ran.passed
}

/// Builds the tests, and what later steps run: whether that could be built is seen there. The
/// largest tests are built by one core alone, and so is the simulator.
fn build_all(root: &Path) -> bool {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut build = of_simulator(root, "build");
            build.args(["--bins", "--example", "cost"]).status()
        });
        let mut build = cargo(root, Step::Tests.arguments());
        let built = build.arg("--no-run").status();
        let built = built.is_ok_and(|status| status.success());
        if built {
            newcomer::build_ahead(root);
        }
        built
    })
}

/// Plays the schedules of a test run, and adds its figures to those of the tests.
fn simulation(root: &Path) -> bool {
    let mut command = simulator(root, &["--schedules", SCHEDULES, "--pairs", "--json"]);
    let Ok(output) = command.stderr(Stdio::inherit()).output() else {
        return false;
    };
    let said = String::from_utf8_lossy(&output.stdout);
    println!("      {}", said.trim());
    let Some(line) = reliability::line("sim", &said) else {
        return false;
    };
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(reliability::file(root));
    let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
    output.status.success() && written.is_ok()
}

/// Plays schedules, as fast as the machine can; true when every promise was kept.
pub(crate) fn simulate(root: &Path, options: &[String]) -> bool {
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let status = simulator(root, &options).status();
    status.is_ok_and(|status| status.success())
}

fn simulator(root: &Path, options: &[&str]) -> Command {
    let mut command = of_simulator(root, "run");
    command.arg("--").args(options);
    command
}

/// Builds or runs the simulator with what the processor at hand can do, unless the machine's own
/// settings say what to build for. The kind is named, as `native` would not be: what was built on
/// another machine and kept is not run on one that cannot.
pub(crate) fn of_simulator(root: &Path, verb: &str) -> Command {
    let mut command = cargo(root, &[&[verb], SIMULATOR].concat());
    if has_x86_64_v3() {
        let flags = format!(r#"build.rustflags=["-Ctarget-cpu={V3}"]"#);
        command.args(["--config", &flags]);
    }
    command
}

/// What the simulator is built for.
pub(crate) fn kind() -> &'static str {
    if has_x86_64_v3() {
        V3
    } else {
        env::consts::ARCH
    }
}

#[cfg(target_arch = "x86_64")]
fn has_x86_64_v3() -> bool {
    use std::is_x86_feature_detected as has;
    has!("avx2")
        && has!("bmi1")
        && has!("bmi2")
        && has!("f16c")
        && has!("fma")
        && has!("lzcnt")
        && has!("movbe")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_x86_64_v3() -> bool {
    false
}

pub(crate) fn cargo(root: &Path, arguments: &[&str]) -> Command {
    let program = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(program);
    command.current_dir(root).args(arguments);
    if env::var_os("CI").is_some() {
        // Nobody goes on working with what is built there, nor looks at it with a debugger: a fifth
        // of the time to build what is this workspace's own.
        command.env("CARGO_INCREMENTAL", "0");
        command.env("CARGO_PROFILE_DEV_DEBUG", "none");
    }
    if arguments.first() == Some(&"doc") {
        command.env("RUSTDOCFLAGS", "-Dwarnings");
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_prints_the_command_that_it_runs() {
        assert_eq!(Step::Format.to_string(), "format: cargo fmt --all --check");
    }

    #[test]
    fn the_summary_names_what_failed_and_what_was_skipped() {
        assert_eq!(summary(&[], &[]), "nothing failed");
        assert_eq!(summary(&[], &["clippy"]), "nothing failed; skipped: clippy");
        assert_eq!(summary(&["docs", "tidy"], &[]), "failed: docs, tidy");
    }

    #[test]
    fn a_failing_cargo_command_fails_its_step() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut command = cargo(root, &["no-such-command"]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        assert!(!command.status().is_ok_and(|status| status.success()));
    }
}
