//! Tests of the engine run on real threads, beside hundreds of others. One that fails there and
//! then passes alone, several times over, is unsteady: a defect that is named at the end of the
//! run, and is not that of the change that happened to meet it.
//!
//! What is decided by seeds alone (core, conformance, simulator) and what looks for rare losses
//! (kills) has no second chance.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

/// Targets whose tests get a second chance.
const THREADED: [&str; 2] = ["-p roundel --test it", "-p roundel-cli --test it"];
/// More than so many failures are no accident.
const FEW: usize = 3;
/// How often a test passes alone before it is called unsteady.
const TIMES: usize = 3;

/// What came of a list of tests.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Ran {
    pub(crate) passed: bool,
    /// Tests that failed, and then passed alone.
    pub(crate) unsteady: Vec<String>,
}

/// What a run of tests said of itself.
#[derive(Debug, Default, PartialEq, Eq)]
struct Said {
    success: bool,
    passed: usize,
    failed: Vec<String>,
    /// Targets that failed, as Cargo names them.
    targets: Vec<String>,
}

impl Said {
    fn hear(&mut self, line: &str) {
        if let Some(test) = line.strip_prefix("test ") {
            if let Some(name) = test.strip_suffix(" ... FAILED") {
                self.failed.push(name.to_string());
            }
            self.passed += usize::from(test.ends_with(" ... ok"));
        }
        let target = line.trim().strip_prefix('`');
        if let Some(target) = target.and_then(|target| target.strip_suffix('`')) {
            self.targets.push(target.to_string());
        }
    }

    /// Is every failure one of a few, of tests that hang on threads?
    fn may_be_unsteady(&self) -> bool {
        let threaded = |target: &String| THREADED.contains(&target.as_str());
        let few = (1..=FEW).contains(&self.failed.len());
        few && !self.targets.is_empty() && self.targets.iter().all(threaded)
    }
}

/// Runs tests; those that fail have their second chance by `again`, which is given a target and the
/// names of the tests.
pub(crate) fn run(mut command: Command, again: impl Fn(&[&str]) -> Command) -> Ran {
    let said = listen(&mut command);
    if said.success {
        return Ran {
            passed: true,
            unsteady: Vec::new(),
        };
    }
    if !said.may_be_unsteady() {
        return Ran::default();
    }
    println!("      alone, once more: {}", said.failed.join(", "));
    let passed = (0..TIMES).all(|_| all_pass(&said, &again));
    Ran {
        passed,
        unsteady: if passed { said.failed } else { Vec::new() },
    }
}

/// Every target shows at least one of the tests: one that fell over without naming any has failed.
fn all_pass(said: &Said, again: &impl Fn(&[&str]) -> Command) -> bool {
    let mut passed = 0;
    for target in &said.targets {
        let mut arguments = vec!["test", "--all-features"];
        arguments.extend(target.split(' '));
        arguments.extend(["--", "--exact", "--test-threads=1"]);
        arguments.extend(said.failed.iter().map(String::as_str));
        let alone = listen(&mut again(&arguments));
        if !alone.success || alone.passed == 0 {
            return false;
        }
        passed += alone.passed;
    }
    passed >= said.failed.len()
}

/// Runs it, shows what it prints, and remembers what matters of it.
fn listen(command: &mut Command) -> Said {
    let Ok(mut child) = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
    else {
        return Said::default();
    };
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let mut said = Said::default();
    let from_cargo = std::thread::spawn(move || {
        let mut said = Said::default();
        lines(err, |line| {
            eprintln!("{line}");
            said.hear(line);
        });
        said
    });
    lines(out, |line| {
        println!("{line}");
        said.hear(line);
    });
    said.targets = from_cargo.join().unwrap_or_default().targets;
    said.success = child.wait().is_ok_and(|status| status.success());
    said
}

fn lines(from: Option<impl Read>, mut each: impl FnMut(&str)) {
    let Some(from) = from else { return };
    for line in BufReader::new(from).split(b'\n') {
        let Ok(line) = line else { return };
        each(&String::from_utf8_lossy(&line));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: &str = "-p roundel --test it";

    /// A command that says this and ends like that.
    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    fn failing(tests: &[&str], target: &str) -> Command {
        let tests: Vec<String> = tests
            .iter()
            .map(|name| format!("echo 'test {name} ... FAILED'"))
            .collect();
        let tests = tests.join("; ");
        shell(&format!("{tests}; echo '    `{target}`' >&2; exit 101"))
    }

    #[test]
    fn what_passes_has_no_second_run() {
        let ran = run(shell("echo 'test a ... ok'"), |_| panic!("asked again"));
        assert!(ran.passed && ran.unsteady.is_empty());
    }

    #[test]
    fn a_test_that_passes_alone_is_named() {
        let ran = run(failing(&["a::b"], TARGET), |arguments| {
            assert!(arguments.contains(&"a::b") && arguments.contains(&"--exact"));
            shell("echo 'test a::b ... ok'")
        });
        assert!(ran.passed);
        assert_eq!(ran.unsteady, ["a::b"]);
    }

    #[test]
    fn a_test_that_fails_again_has_failed() {
        let ran = run(failing(&["a"], TARGET), |_| failing(&["a"], TARGET));
        assert_eq!(ran, Ran::default());
    }

    #[test]
    fn one_that_is_not_seen_again_has_failed() {
        let ran = run(failing(&["a", "b"], TARGET), |_| {
            shell("echo 'test a ... ok'")
        });
        assert_eq!(ran, Ran::default());
        let fell_over = shell("echo '    `-p roundel --test it`' >&2; exit 101");
        let ran = run(fell_over, |_| shell("true"));
        assert_eq!(ran, Ran::default());
    }

    #[test]
    fn many_failures_and_other_targets_have_no_second_chance() {
        let none = |_: &[&str]| panic!("asked again");
        let many = failing(&["a", "b", "c", "d"], TARGET);
        assert_eq!(run(many, none), Ran::default());
        let seeds = failing(&["a"], "-p roundel-store --test conformance");
        assert_eq!(run(seeds, none), Ran::default());
    }
}
