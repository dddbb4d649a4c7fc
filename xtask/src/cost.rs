//! What an effect costs, in instructions: the same on a busy machine as on a quiet one.
//!
//! Callgrind counts a program (`crates/sim/examples/cost.rs`) that does so many units of a kind,
//! and then three times as many: the difference is what the units cost, without the start. The
//! budget stands in `crates/bench/cost.json`, with what it was built by; a count of what was
//! built by something else is reported, and compared with nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

use serde_json::{Value, json};

use crate::steps;

/// What is counted, and how many at first: enough that a thread more or less that wakes up is
/// nothing.
const UNITS: [(&str, u64); 3] = [("effect", 500), ("fused", 2000), ("decided", 2000)];
/// A unit may cost so much more than its budget, in percent.
const LEEWAY: u64 = 5;
const BUDGET: &str = "crates/bench/cost.json";
const PROGRAM: &str = "target/sim/examples/cost";
/// The distribution's package.
const ADVICE: &str = "install valgrind (Debian: apt-get install valgrind)";

/// Instructions of one unit, by its name.
type Counts = BTreeMap<String, u64>;

/// How it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    Within,
    Failed,
    /// There is nothing to count with.
    Skipped,
}

/// What was counted, and by what it was built.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Budget {
    built_by: String,
    counts: Counts,
}

impl Budget {
    fn read(text: &str) -> Option<Budget> {
        let value: Value = serde_json::from_str(text).ok()?;
        let counts = value["instructions"].as_object()?.iter();
        let counts = counts.map(|(unit, count)| Some((unit.clone(), count.as_u64()?)));
        Some(Budget {
            built_by: value["built_by"].as_str()?.to_owned(),
            counts: counts.collect::<Option<_>>()?,
        })
    }

    fn written(&self) -> String {
        let value = json!({ "built_by": self.built_by, "instructions": self.counts });
        format!("{value:#}\n")
    }
}

/// Counts, and compares with the budget; `write` makes what was counted the budget.
pub(crate) fn run(root: &Path, write: bool) -> Counted {
    if let Err(why) = ready() {
        println!("      nothing was counted: {why}; {ADVICE}");
        return match roundel_testpg::is_ci() {
            true => Counted::Failed,
            false => Counted::Skipped,
        };
    }
    let counted = match counted(root) {
        Ok(counted) => counted,
        Err(why) => {
            println!("      {why}");
            return Counted::Failed;
        }
    };
    let file = root.join(BUDGET);
    if write {
        return match fs::write(&file, counted.written()) {
            Ok(()) => {
                print!("{}", counted.written());
                Counted::Within
            }
            Err(error) => {
                println!("      {BUDGET} cannot be written: {error}");
                Counted::Failed
            }
        };
    }
    let Some(budget) = fs::read_to_string(&file)
        .ok()
        .and_then(|text| Budget::read(&text))
    else {
        println!("      {BUDGET} is missing or no budget: `cargo xtask cost --write` makes it");
        return Counted::Failed;
    };
    let (lines, within) = compared(&counted, &budget);
    for line in lines {
        println!("      {line}");
    }
    if within {
        Counted::Within
    } else {
        Counted::Failed
    }
}

/// What to say of these counts, and whether all are within the budget.
fn compared(counted: &Budget, budget: &Budget) -> (Vec<String>, bool) {
    let comparable = counted.built_by == budget.built_by;
    let mut within = true;
    let mut lines = Vec::new();
    for (unit, count) in &counted.counts {
        let line = format!("{unit}: {count} instructions");
        let Some(most) = budget.counts.get(unit) else {
            lines.push(format!("{line}, FAILED: {BUDGET} has no such unit"));
            within = false;
            continue;
        };
        let change = (*count as f64 / *most as f64 - 1.0) * 100.0;
        let line = format!("{line}, {change:+.1} % against a budget of {most}");
        if comparable && count * 100 > most * (100 + LEEWAY) {
            within = false;
            lines.push(format!(
                "{line}, FAILED: more than {LEEWAY} % over it; find out why \
                 (callgrind_annotate), or raise it by `cargo xtask cost --write` and say what for"
            ));
        } else if comparable && count * (100 + LEEWAY) < most * 100 {
            lines.push(format!("{line}: `cargo xtask cost --write` keeps that"));
        } else {
            lines.push(line);
        }
    }
    if !comparable {
        let (here, there) = (&counted.built_by, &budget.built_by);
        lines.push(format!(
            "reported only: built by {here}, the budget by {there}"
        ));
    }
    (lines, within)
}

/// Finds valgrind, or installs it.
fn ready() -> Result<(), String> {
    let found = || {
        let mut probe = Command::new("valgrind");
        probe.arg("--version").stdout(Stdio::null());
        probe.stderr(Stdio::null()).status()
    };
    if found().is_ok_and(|status| status.success()) {
        return Ok(());
    }
    roundel_testpg::install_packages("valgrind", &["valgrind"])?;
    match found() {
        Ok(status) if status.success() => Ok(()),
        _ => Err("valgrind does not run".into()),
    }
}

fn counted(root: &Path) -> Result<Budget, String> {
    let mut build = steps::of_simulator(root, "build");
    let built = build.args(["--example", "cost"]).status();
    if !built.is_ok_and(|status| status.success()) {
        return Err("the program to be counted cannot be built".into());
    }
    let mut counts = Counts::new();
    for (unit, few) in UNITS {
        let (less, more) = (
            instructions(root, unit, few)?,
            instructions(root, unit, 3 * few)?,
        );
        counts.insert(unit.into(), more.saturating_sub(less) / (2 * few));
    }
    Ok(Budget {
        built_by: built_by(root)?,
        counts,
    })
}

/// Runs the program under callgrind, with its files in memory where there is such a place.
fn instructions(root: &Path, unit: &str, count: u64) -> Result<u64, String> {
    let memory = PathBuf::from("/dev/shm");
    let place = if memory.is_dir() {
        memory
    } else {
        env::temp_dir()
    };
    let folder = place.join(format!("roundel-cost-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let output = Command::new("valgrind")
        .current_dir(&folder)
        .args(["--tool=callgrind", "--callgrind-out-file=counted"])
        .arg(root.join(PROGRAM))
        .args([unit, &count.to_string(), "."])
        .output();
    let _ = fs::remove_dir_all(&folder);
    let output = output.map_err(|error| format!("valgrind: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    match collected(&said) {
        Some(number) if output.status.success() => Ok(number),
        _ => Err(format!(
            "`cost {unit} {count}` under valgrind failed:\n{said}"
        )),
    }
}

/// The number in `==12== Collected : 88986143`.
fn collected(said: &str) -> Option<u64> {
    let line = said.lines().find(|line| line.contains("Collected :"))?;
    line.rsplit(' ').next()?.parse().ok()
}

/// The compiler, and what it compiles for.
fn built_by(root: &Path) -> Result<String, String> {
    let compiler = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(compiler)
        .current_dir(root)
        .arg("--version")
        .output();
    let output = output.map_err(|error| format!("rustc: {error}"))?;
    let version = String::from_utf8_lossy(&output.stdout);
    Ok(format!("{} for {}", version.trim(), steps::kind()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(built_by: &str, counts: &[(&str, u64)]) -> Budget {
        let counts = counts.iter().map(|(unit, count)| ((*unit).into(), *count));
        Budget {
            built_by: built_by.into(),
            counts: counts.collect(),
        }
    }

    #[test]
    fn more_than_a_twentieth_over_the_budget_fails() {
        let budget = of("rustc", &[("effect", 1000)]);
        for (count, fits) in [(900, true), (1000, true), (1050, true), (1051, false)] {
            let (lines, within) = compared(&of("rustc", &[("effect", count)]), &budget);
            assert_eq!(within, fits, "{lines:?}");
        }
    }

    #[test]
    fn one_unit_over_its_budget_fails_whatever_the_others_gain() {
        let budget = of("rustc", &[("effect", 1000), ("fused", 1000)]);
        let counted = of("rustc", &[("effect", 500), ("fused", 1100)]);
        let (lines, within) = compared(&counted, &budget);
        assert!(!within && lines[1].contains("FAILED"), "{lines:?}");
        assert!(lines[0].contains("--write"), "{lines:?}");
    }

    #[test]
    fn what_another_compiler_built_is_reported_only() {
        let budget = of("rustc 1", &[("effect", 1000)]);
        let (lines, within) = compared(&of("rustc 2", &[("effect", 2000)]), &budget);
        assert!(within);
        assert!(lines[0].contains("+100.0 %"), "{lines:?}");
        assert!(lines[1].starts_with("reported only"), "{lines:?}");
    }

    #[test]
    fn a_unit_without_a_budget_fails() {
        let (_, within) = compared(&of("rustc", &[("new", 1)]), &of("rustc", &[]));
        assert!(!within);
    }

    #[test]
    fn a_budget_is_read_as_it_was_written() {
        let budget = of("rustc", &[("effect", 1000), ("fused", 7)]);
        assert_eq!(Budget::read(&budget.written()), Some(budget));
        assert_eq!(Budget::read("{}"), None);
    }

    #[test]
    fn the_number_of_instructions_is_found_in_what_valgrind_says() {
        let said = "==12== Events    : Ir\n==12== Collected : 88986143\n==12== \n";
        assert_eq!(collected(said), Some(88_986_143));
        assert_eq!(collected("killed"), None);
    }
}
