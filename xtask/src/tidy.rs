//! The project's own rules, each with its reason in the message it prints.
//!
//! Rules read text, not syntax trees: `source` blanks out what is not code, and that is enough.
//! There is no way to silence a rule at one place; the only exception is the short list of long
//! files in `shape`, which may shrink but not grow.

mod examples;
mod shape;
mod source;
mod words;

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use source::Source;

/// Folders that hold nothing written by hand.
/// In a second working tree of a repository `.git` is a file, which says where the first one is.
const SKIPPED: &[&str] = &[".git", "target", "node_modules"];

/// What is read besides Rust; files without an extension are scripts and licences.
const TEXT_EXTENSIONS: &[&str] = &[
    "css", "html", "js", "json", "md", "rs", "sh", "sql", "toml", "yaml", "yml",
];

/// One broken rule at one place.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    path: String,
    line: usize,
    message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.message)
    }
}

/// Checks every file under `root` and prints what it finds; true when there is nothing to mend.
pub(crate) fn run(root: &Path) -> bool {
    match check_all(root) {
        Ok((files, findings)) => {
            for finding in &findings {
                println!("{finding}");
            }
            println!("      {files} files read, findings: {}", findings.len());
            findings.is_empty()
        }
        Err(error) => {
            println!(
                "      the files under {} could not be read: {error}",
                root.display()
            );
            false
        }
    }
}

fn check_all(root: &Path) -> io::Result<(usize, Vec<Finding>)> {
    let mut paths = Vec::new();
    collect(root, &mut paths)?;
    let mut findings = Vec::new();
    for path in &paths {
        let name = path
            .strip_prefix(root)
            .unwrap_or(path)
            .to_string_lossy()
            .replace('\\', "/");
        match String::from_utf8(fs::read(path)?) {
            Ok(text) => findings.extend(check(&name, &text)),
            Err(_) => findings.push(Finding {
                path: name,
                line: 1,
                message: "the file is not UTF-8; every tool here reads text as UTF-8".to_string(),
            }),
        }
    }
    findings.sort();
    Ok((paths.len(), findings))
}

fn check(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = words::machine_paths(path, text);
    match path.rsplit_once('.').map(|(_, extension)| extension) {
        Some("rs") => {
            let source = Source::new(path, text);
            findings.extend(shape::check(&source));
            findings.extend(words::check(&source));
            findings.extend(examples::in_doc_comments(&source));
        }
        Some("md") => {
            findings.extend(words::unfinished_notes(path, text));
            findings.extend(examples::in_markdown(path, text));
        }
        _ => findings.extend(words::unfinished_notes(path, text)),
    }
    findings
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if SKIPPED.contains(&name.as_str()) {
            continue;
        }
        if kind.is_dir() {
            collect(&entry.path(), paths)?;
        } else if kind.is_file() && is_text(&entry.path()) {
            paths.push(entry.path());
        }
    }
    Ok(())
}

fn is_text(path: &Path) -> bool {
    match path.extension() {
        Some(extension) => TEXT_EXTENSIONS.iter().any(|known| extension == *known),
        None => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clean_file_has_no_findings() {
        let text = "//! Adds.\n\n/// The sum.\nfn add(a: u8, b: u8) -> u8 {\n    a + b\n}\n";
        assert_eq!(check("crates/core/src/add.rs", text), []);
    }

    #[test]
    fn every_rule_is_applied_to_a_rust_file() {
        let long_function = format!("fn f() {{\n{}}}\n", "    g();\n".repeat(70));
        let cases = [
            ("// ".to_string() + &"x".repeat(100), "characters"),
            (long_function, "function `f`"),
            ("\n".repeat(501), "without its tests"),
            ("// FIXME\n".to_string(), "notes in the tree"),
            ("fn f() { todo!() }\n".to_string(), "`todo!`"),
            ("#[ignore]\nfn f() {}\n".to_string(), "ignored test"),
            (
                "fn f() { format!(\"DELETE {x}\"); }\n".to_string(),
                "builds SQL",
            ),
            (
                concat!("const A: &str = \"/ro", "ot/a\";\n").to_string(),
                "one machine",
            ),
            (
                "/// ```ignore\n/// ```\nfn f() {}\n".to_string(),
                "examples have to run",
            ),
        ];
        for (body, expected) in cases {
            let findings = check("crates/core/src/a.rs", &format!("//! A.\n{body}"));
            let messages: Vec<_> = findings.iter().map(ToString::to_string).collect();
            assert!(
                messages.len() == 1 && messages[0].contains(expected),
                "{messages:?}"
            );
        }
        assert_eq!(check("crates/core/src/a.rs", "fn f() {}\n").len(), 1);
    }

    #[test]
    fn a_finding_reads_as_place_and_message() {
        let finding = Finding {
            path: "a.rs".into(),
            line: 3,
            message: "too long".into(),
        };
        assert_eq!(finding.to_string(), "a.rs:3: too long");
    }

    #[test]
    fn rules_for_words_reach_files_that_are_not_rust() {
        let note = "-- TODO: an index\n";
        assert_eq!(check("crates/store/sql/schema.sqlite.sql", note).len(), 1);
        assert_eq!(check("README.md", note).len(), 1);
    }

    #[test]
    fn built_and_binary_files_are_not_read() {
        assert!(!is_text(Path::new("logo.png")));
        assert!(is_text(Path::new(".ci/run")));
        assert!(SKIPPED.contains(&"target"));
    }
}
