//! Holds docs/reference/reliability.md against what the last test run showed.
//!
//! Tests and the simulator hand their counts over as lines of JSON, one object each, in a file
//! under the target folder. The prose of the page is written by people; the tables between its
//! markers come from here, and may not lack what was promised nor state more than the run showed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{env, fs};

use serde_json::Value;

/// Where tests find the name of the file that takes their figures.
pub(crate) const VARIABLE: &str = "ROUNDEL_FIGURES";
const PAGE: &str = "docs/reference/reliability.md";
const END: &str = "<!-- end -->\n";

/// What a figure says, and so how it is stated and compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    /// The same in every run of the same code.
    Fixed,
    /// Differs a little from run to run; the page states a floor.
    Nearly,
    /// Differs from run to run, with the machine's load; the page states a low floor.
    Varying,
    /// Must be zero, in the run and on the page.
    Zero,
    /// Differs from machine to machine; stated with that, and not compared.
    Machine,
}

use Sort::{Fixed, Machine, Nearly, Varying, Zero};

/// A row of a table: the figure's name, what the page calls it, and its sort.
type Row = (&'static str, &'static str, Sort);

/// The tables of the page.
const LEVELS: &[(&str, &[Row])] = &[
    (
        "sim",
        &[
            ("schedules", "schedules", Fixed),
            ("violations", "broken promises", Zero),
            ("ops", "operations on the store", Varying),
            ("median_ops", "operations of the median schedule", Nearly),
            ("crashes", "crashes of processes", Varying),
            ("crash_points", "crash points, one at a time", Varying),
            ("crash_pairs", "crash points, in pairs", Nearly),
            ("marks", "situations that are counted", Nearly),
            ("rarest_mark", "the rarest of them came up, times", Varying),
            ("mutants.total", "planted bugs", Fixed),
            ("mutants.caught", "planted bugs found", Fixed),
            ("schedules_per_second", "schedules a second", Machine),
        ],
    ),
    (
        "kills",
        &[
            ("kills", "processes killed", Fixed),
            ("in_flight", "of these, with runs in hand", Varying),
            ("recovering", "of these, while they recovered", Varying),
            ("zombies", "zombies whose runs others had", Varying),
            ("refused", "zombies that were refused", Varying),
            ("rounds_refused", "rounds of zombies refused", Varying),
            ("runs", "runs that completed", Varying),
            ("steps", "rows that steps wrote", Varying),
            ("duplicates", "rows written twice", Zero),
        ],
    ),
    (
        "io",
        &[
            ("operations", "operations in the script", Fixed),
            ("points", "changes failed, in all", Nearly),
            ("writes", "of these, writes", Varying),
            ("syncs", "of these, syncs", Varying),
            ("truncations", "of these, truncations", Varying),
            ("openings", "of these, openings of a file", Varying),
            ("reads", "reads failed, of those who write", Varying),
            ("lookups", "reads failed, of one query", Varying),
            ("full_disks", "full disks", Nearly),
            ("power_losses", "losses of power", Nearly),
            ("denials", "losses of power after a denial", Varying),
        ],
    ),
    (
        SERVER,
        &[
            ("kills", "worker processes killed", Fixed),
            ("terminated", "connections ended by the server", Fixed),
            ("backends", "processes of the server killed", Fixed),
            ("restarts", "restarts of the server, at once", Fixed),
            (
                "scenarios",
                "connections cut, lost or slowed on the way",
                Fixed,
            ),
            ("runs", "runs that completed", Varying),
            ("steps", "rows that steps wrote", Varying),
            ("duplicates", "rows written twice", Zero),
        ],
    ),
];

/// The level that needs a PostgreSQL server, without which it is counted as untested; in CI there
/// is one.
const SERVER: &str = "server";

/// Counts by level and name.
type Figures = BTreeMap<String, BTreeMap<String, u64>>;

/// The file that takes the figures of a test run.
pub(crate) fn file(root: &Path) -> PathBuf {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    root.join(target).join("figures.jsonl")
}

/// The outcome of the simulator, as it prints it, as a line of the file.
pub(crate) fn line(level: &str, figures: &str) -> Option<String> {
    let figures: Value = serde_json::from_str(figures).ok()?;
    let line = serde_json::json!({ "level": level, "figures": figures });
    Some(format!("{line}\n"))
}

/// Reads lines, and sums up those of one level.
fn parse(lines: &str) -> Result<Figures, String> {
    let mut all = Figures::new();
    for line in lines.lines() {
        let value: Value = serde_json::from_str(line)
            .map_err(|error| format!("`{line}` is not a line of figures: {error}"))?;
        let level = value["level"].as_str().unwrap_or_default().to_owned();
        add(all.entry(level).or_default(), "", &value["figures"]);
    }
    for figures in all.values_mut() {
        sum_up_marks(figures);
    }
    Ok(all)
}

/// Numbers, also inside of objects; the names of these are joined with dots.
fn add(sums: &mut BTreeMap<String, u64>, name: &str, value: &Value) {
    match value {
        Value::Object(inner) => {
            for (key, value) in inner {
                let dot = if name.is_empty() { "" } else { "." };
                add(sums, &format!("{name}{dot}{key}"), value);
            }
        }
        Value::Number(number) => {
            let whole = number.as_u64();
            // A rate; its fraction says nothing.
            let whole = whole.or_else(|| number.as_f64().map(|rate| rate as u64));
            *sums.entry(name.to_owned()).or_default() += whole.unwrap_or(0);
        }
        _ => {}
    }
}

/// How many marks there are, and how often the rarest was hit.
fn sum_up_marks(figures: &mut BTreeMap<String, u64>) {
    let marks = figures
        .iter()
        .filter(|(name, _)| name.starts_with("marks."));
    let counts: Vec<u64> = marks.map(|(_, count)| *count).collect();
    if let Some(rarest) = counts.iter().min() {
        figures.insert("marks".into(), counts.len() as u64);
        figures.insert("rarest_mark".into(), *rarest);
    }
}

/// Compares the page with the last run, or brings it up to that. True when nothing is wrong.
pub(crate) fn run(root: &Path, write: bool) -> bool {
    match compare(root, write) {
        Ok(findings) if findings.is_empty() => true,
        Ok(findings) => {
            for finding in &findings {
                println!("{PAGE}: {finding}");
            }
            println!("      a run with the usual sizes, then `cargo xtask reliability --write`");
            false
        }
        Err(message) => {
            println!("{message}");
            false
        }
    }
}

fn compare(root: &Path, write: bool) -> Result<Vec<String>, String> {
    let source = file(root);
    let lines = fs::read_to_string(&source)
        .map_err(|_| "no figures: `cargo xtask test` gathers them".to_owned())?;
    let figures = parse(&lines)?;
    let place = root.join(PAGE);
    let page = fs::read_to_string(&place).map_err(|error| format!("{PAGE}: {error}"))?;
    let renewed = render(&page, &figures)?;
    if write {
        fs::write(&place, &renewed).map_err(|error| format!("{PAGE}: {error}"))?;
    }
    let beside = source.with_file_name("reliability.md");
    fs::write(&beside, &renewed).map_err(|error| format!("{}: {error}", beside.display()))?;
    check(if write { &renewed } else { &page }, &figures)
}

/// The text between the markers of a table.
fn between<'a>(page: &'a str, level: &str) -> Result<(usize, &'a str), String> {
    let marker = format!("<!-- figures: {level} -->\n");
    let from = page.find(&marker).map(|at| at + marker.len());
    let found = from.and_then(|from| {
        let length = page[from..].find(END)?;
        Some((from, &page[from..from + length]))
    });
    found.ok_or_else(|| format!("{PAGE}: the table of `{level}` is missing, between its markers"))
}

/// The page with the tables of these figures.
fn render(page: &str, figures: &Figures) -> Result<String, String> {
    let mut page = page.to_owned();
    for (level, rows) in LEVELS {
        let mut table = String::from("\n| | in a test run |\n|---|---|\n");
        for (name, label, sort) in *rows {
            if let Some(count) = figures.get(*level).and_then(|level| level.get(*name)) {
                table.push_str(&format!("| {label} | {} |\n", stated(*sort, *count)));
            }
        }
        table.push('\n');
        replace(&mut page, level, &table)?;
    }
    let version = format!("\nVersion {}.\n\n", env!("CARGO_PKG_VERSION"));
    replace(&mut page, "version", &version)?;
    Ok(page)
}

fn replace(page: &mut String, level: &str, text: &str) -> Result<(), String> {
    let (from, old) = between(page, level)?;
    let end = from + old.len();
    page.replace_range(from..end, text);
    Ok(())
}

fn stated(sort: Sort, count: u64) -> String {
    match sort {
        Fixed | Zero => grouped(count),
        Nearly => format!("at least {}", grouped(floor(count * 97 / 100, 2))),
        Varying => format!("at least {}", grouped(floor(count / 2, 1))),
        Machine => format!("about {}, on the machine of that run", grouped(count)),
    }
}

/// Rounded down to so many digits.
fn floor(count: u64, digits: u32) -> u64 {
    let length = count.checked_ilog10().unwrap_or(0) + 1;
    let unit = 10_u64.pow(length.saturating_sub(digits));
    count / unit * unit
}

fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The number that a row of a table states.
fn number(cell: &str) -> Option<u64> {
    let digits = |c: char| c.is_ascii_digit() || c == ',';
    let from = cell.find(|c: char| c.is_ascii_digit())?;
    let text: String = cell[from..].chars().take_while(|c| digits(*c)).collect();
    text.replace(',', "").parse().ok()
}

/// What the page lacks, and what it states that the run did not show.
fn check(page: &str, figures: &Figures) -> Result<Vec<String>, String> {
    let mut findings = Vec::new();
    let version = format!("Version {}.", env!("CARGO_PKG_VERSION"));
    if between(page, "version")?.1.trim() != version {
        findings.push(format!("these are not figures of `{version}`"));
    }
    let none = BTreeMap::new();
    for (level, rows) in LEVELS {
        let run = figures.get(*level).unwrap_or(&none);
        if run.is_empty() && *level == SERVER && env::var_os("CI").is_none() {
            continue;
        }
        if run.is_empty() {
            findings.push(format!("`{level}` handed no figures over; did it fail?"));
            continue;
        }
        let table = between(page, level)?.1;
        for row in *rows {
            let cell = table.lines().find_map(|line| {
                let (label, cell) = line.strip_prefix("| ")?.split_once(" | ")?;
                (label == row.1).then_some(cell)
            });
            let stated = cell.map(number);
            findings.extend(check_row(row, stated, run.get(row.0).copied()));
        }
    }
    Ok(findings)
}

fn check_row(
    (_, label, sort): &Row,
    cell: Option<Option<u64>>,
    run: Option<u64>,
) -> Option<String> {
    let told = |what: String| Some(format!("`{label}`: {what}"));
    match (cell, run) {
        (None, None) => None,
        // A figure that is new may wait for the page's next writing; what was promised may not.
        (None, Some(_)) if !matches!(sort, Fixed | Zero) => None,
        (None, Some(run)) => told(format!("is missing; the run showed {run}")),
        (Some(_), None) => told("is stated, and the run did not show it".into()),
        (Some(None), _) => told("states no number".into()),
        (Some(Some(_)), Some(run)) if *sort == Zero && run > 0 => {
            told(format!("must be 0; the run showed {run}"))
        }
        (Some(Some(page)), Some(run)) if *sort != Machine && page > run => {
            told(format!("states {page}; the run showed {run}"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = r#"{"level":"kills","figures":{"kills":500,"in_flight":400,"duplicates":0}}
{"level":"kills","figures":{"kills":500,"in_flight":370,"duplicates":0}}
{"level":"io","figures":{"points":2800}}
{"level":"server","figures":{"restarts":2,"duplicates":0}}
{"level":"sim","figures":{"schedules":200000,"violations":0,"schedules_per_second":5123.5,
"mutants":{"total":33,"caught":33},"marks":{"crashed":900,"parked":120}}}"#;

    fn seen() -> Figures {
        parse(&RUN.replace(",\n", ",")).unwrap()
    }

    fn page() -> String {
        let tables = LEVELS.iter().map(|(level, _)| level);
        let markers: String = tables
            .chain(&["version"])
            .map(|level| format!("# {level}\n<!-- figures: {level} -->\n{END}"))
            .collect();
        render(&markers, &seen()).unwrap()
    }

    #[test]
    fn lines_of_one_level_are_summed_up() {
        let seen = seen();
        assert_eq!(seen["kills"]["kills"], 1_000);
        assert_eq!(seen["sim"]["mutants.caught"], 33);
        assert_eq!(seen["sim"]["schedules_per_second"], 5_123);
        assert_eq!((seen["sim"]["marks"], seen["sim"]["rarest_mark"]), (2, 120));
    }

    #[test]
    fn a_page_made_from_a_run_agrees_with_it() {
        let page = page();
        assert_eq!(check(&page, &seen()), Ok(vec![]));
        assert!(page.contains("| processes killed | 1,000 |"), "{page}");
        assert!(
            page.contains("| of these, with runs in hand | at least 300 |"),
            "{page}"
        );
    }

    #[test]
    fn a_page_may_not_state_more_than_the_run_showed() {
        let page = page().replace("| 200,000 |", "| 200,001 |");
        let found = check(&page, &seen()).unwrap();
        assert_eq!(found, ["`schedules`: states 200001; the run showed 200000"]);
    }

    #[test]
    fn a_page_may_not_lack_a_figure_nor_invent_one() {
        let less = page().replace("| planted bugs | 33 |\n", "");
        assert_eq!(check(&less, &seen()).unwrap().len(), 1);
        let mut run = seen();
        run.get_mut("kills").unwrap().remove("in_flight");
        assert_eq!(check(&page(), &run).unwrap().len(), 1);
    }

    #[test]
    fn a_level_that_reports_nothing_or_breaks_a_promise_is_found() {
        let mut run = seen();
        run.remove("io");
        run.get_mut("kills").unwrap().insert("duplicates".into(), 1);
        let found = check(&page(), &run).unwrap();
        assert_eq!(found.len(), 2, "{found:?}");
    }

    #[test]
    fn a_rate_is_not_compared() {
        let mut run = seen();
        let rate = run.get_mut("sim").unwrap();
        rate.insert("schedules_per_second".into(), 1);
        assert_eq!(check(&page(), &run), Ok(vec![]));
    }

    #[test]
    fn a_page_without_a_table_or_of_another_version_is_found() {
        let page = page();
        let without = page.replace("<!-- figures: io -->", "");
        assert!(check(&without, &seen()).is_err());
        let old = page.replace(env!("CARGO_PKG_VERSION"), "0.0.1");
        assert_eq!(check(&old, &seen()).unwrap().len(), 1);
    }
}
