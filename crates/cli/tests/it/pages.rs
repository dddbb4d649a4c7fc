//! The pages on errors and limits say what the code says: nothing is missing, nothing is made up.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use roundel_cli::Exit;
use roundel_server::Code;

const ERRORS: &str = include_str!("../../../../docs/reference/errors.md");
const LIMITS: &str = include_str!("../../../../docs/reference/limits.md");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn source(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).expect("a source file")
}

/// The first cells of the tables under this heading.
fn told(heading: &str) -> BTreeSet<String> {
    let (_, after) = ERRORS.split_once(heading).expect("a heading");
    let section = after.split("\n## ").next().expect("a section");
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    let first = |row: &str| row.split('`').next().map(str::to_owned);
    rows.filter_map(first).collect()
}

/// The variants of an enum, as its source has them.
fn variants(source: &str, name: &str) -> BTreeSet<String> {
    let (_, body) = source
        .split_once(&format!("pub enum {name} {{"))
        .expect("an enum");
    let body = body.split("\n}").next().expect("its end");
    let named = body.lines().filter_map(|line| line.strip_prefix("    "));
    let named = named.filter(|line| line.starts_with(char::is_uppercase));
    let word = |line: &str| {
        line.split(|c: char| !c.is_alphanumeric())
            .next()
            .map(str::to_owned)
    };
    named.filter_map(word).collect()
}

#[test]
fn every_error_is_on_its_page_and_nothing_else() {
    for (path, name, heading) in [
        ("crates/roundel/src/error.rs", "Error", "`roundel::Error`"),
        (
            "crates/core/src/refusal.rs",
            "Refusal",
            "refused: `Refusal`",
        ),
        (
            "crates/store/src/tx.rs",
            "TxError",
            "transaction: `TxError`",
        ),
        ("crates/core/src/name.rs", "BadName", "Names: `BadName`"),
    ] {
        let code = variants(&source(path), name);
        assert!(code.len() > 3, "{name}: {code:?}");
        assert_eq!(told(heading), code, "{name}");
    }
}

fn rust_files(folder: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => rust_files(&path, out),
            false if path.extension().is_some_and(|end| end == "rs") => out.push(path),
            false => {}
        }
    }
}

/// The words in quotes after this.
fn quoted(line: &str, after: &str) -> Option<String> {
    let (_, rest) = line.split_once(after)?;
    let (word, _) = rest.split_once('"')?;
    Some(word.to_owned())
}

#[test]
fn every_code_of_a_failure_is_on_its_page_and_nothing_else() {
    let mut files = Vec::new();
    for folder in ["crates/core/src", "crates/roundel/src"] {
        rust_files(&root().join(folder), &mut files);
    }
    // Chosen by what was refused.
    let mut codes = BTreeSet::from(["unknown_run".to_owned()]);
    let constants = ["CODE", "UNDECODABLE", "CHILD_FAILED", "UNKNOWN"];
    let of_tests =
        |file: &PathBuf| file.ends_with("tests.rs") || file.iter().any(|part| part == "testkit");
    for file in files.into_iter().filter(|file| !of_tests(file)) {
        let text = std::fs::read_to_string(&file).expect("a source file");
        let code = text
            .split("#[cfg(test)]\nmod tests")
            .next()
            .expect("a part");
        let lines = code
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"));
        for line in lines {
            codes.extend(quoted(line, ".with_code(\""));
            for constant in constants {
                codes.extend(quoted(line, &format!("const {constant}: &str = \"")));
                codes.extend(quoted(
                    line,
                    &format!("const {constant}: &'static str = \""),
                ));
            }
        }
    }
    assert!(codes.len() > 30, "{codes:?}");
    assert_eq!(told("What a run fails with: `Failure`"), codes);
}

#[test]
fn every_problem_and_exit_code_is_on_its_page_and_nothing_else() {
    let codes: BTreeSet<String> = Code::ALL.iter().map(|code| code.as_str().into()).collect();
    assert_eq!(told("What the server answers: problems"), codes);
    for code in Code::ALL {
        let row = format!("| `{}` | {} |", code.as_str(), code.status().as_u16());
        assert!(ERRORS.contains(&row), "{row}");
    }
    for line in Exit::HELP.lines().skip(1) {
        let (code, meaning) = line.trim().split_once("  ").expect("a code");
        assert!(
            ERRORS.contains(&format!("| {code} | {meaning} |")),
            "{line}"
        );
    }
}

/// A limit as people write it.
fn shown(expression: &str) -> String {
    let number = |text: &str| -> u64 {
        let factors = text.split('*').map(|part| part.trim().replace('_', ""));
        factors
            .map(|part| part.parse::<u64>().expect("a number"))
            .product()
    };
    let inside = |from: &str| Some(expression.strip_prefix(from)?.strip_suffix(')')?.to_owned());
    if let Some(seconds) = inside("Duration::from_secs(") {
        let seconds = number(&seconds);
        return match seconds % 3600 {
            0 => format!("{} h", seconds / 3600),
            _ => format!("{seconds} s"),
        };
    }
    if let Some(millis) = inside("Duration::from_millis(") {
        return format!("{} ms", number(&millis));
    }
    if let Some((bits, by)) = expression.split_once(" << ") {
        let bytes = number(bits) << number(by);
        return match bytes >> 20 {
            0 => format!("{} KiB", bytes >> 10),
            many => format!("{many} MiB"),
        };
    }
    let digits = number(expression).to_string();
    let groups: Vec<String> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .map(|group| String::from_utf8_lossy(group).into_owned())
        .collect();
    groups.join(",")
}

/// What is documented, with its comment: the lines above each line that `name` finds a name in.
fn documented<'s>(
    source: &'s str,
    name: impl Fn(&'s str) -> Option<(&'s str, &'s str)>,
) -> Vec<(&'s str, &'s str, String)> {
    let (mut found, mut comment) = (Vec::new(), Vec::new());
    for line in source.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("/// ") {
            comment.push(text);
            continue;
        }
        if let Some((name, value)) = name(line) {
            found.push((name, value, comment.join(" ")));
        }
        comment.clear();
    }
    found
}

#[test]
fn every_limit_is_on_its_page_as_it_is_in_the_code() {
    let core = source("crates/core/src/limits.rs");
    let constant = |line: &'static str| -> Option<(&str, &str)> {
        let (name, rest) = line.strip_prefix("pub const ")?.split_once(": ")?;
        Some((name, rest.split_once(" = ")?.1.strip_suffix(';')?))
    };
    let core: &'static str = core.leak();
    let mut rows = Vec::new();
    for (name, value, comment) in documented(core, constant) {
        rows.push(format!("| `{name}` | {} | {comment} |", shown(value)));
    }
    let server: &'static str = source("crates/server/src/limits.rs").leak();
    let (fields, defaults) = server.split_once("impl Default").expect("defaults");
    let field = |line: &'static str| -> Option<(&str, &str)> {
        line.strip_prefix("pub ")?
            .strip_suffix(',')?
            .split_once(": ")
    };
    for (name, _, comment) in documented(fields, field) {
        let default = defaults.lines().find_map(|line| {
            let (found, value) = line.trim().strip_suffix(',')?.split_once(": ")?;
            (found == name).then_some(value)
        });
        let value = shown(default.expect("a default"));
        rows.push(format!("| `{name}` | {value} | {comment} |"));
    }
    assert!(rows.len() > 50, "{}", rows.len());
    for row in &rows {
        assert!(LIMITS.contains(row.as_str()), "the page lacks: {row}");
    }
    let told = LIMITS.lines().filter(|line| line.starts_with("| `"));
    assert_eq!(
        told.count(),
        rows.len(),
        "the page has what the code has not"
    );
}
