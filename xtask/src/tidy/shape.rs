//! Rules about size and form: how long lines, functions and files are, and how a file begins.

use super::Finding;
use super::source::{Source, closing, is_word, positions_of};

const MAX_LINE: usize = 100;
const MAX_FUNCTION: usize = 70;
const MAX_FILE: usize = 500;

/// Files that are allowed to be longer than `MAX_FILE`. Entries leave this list, none enter it.
const LONG_FILES: &[&str] = &[];

pub(super) fn check(source: &Source) -> Vec<Finding> {
    let mut findings = long_lines(source);
    findings.extend(long_functions(source));
    findings.extend(long_file(source, LONG_FILES));
    findings.extend(missing_module_docs(source));
    findings
}

fn long_lines(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in source.text.lines().enumerate() {
        let length = line.chars().count();
        if length > MAX_LINE {
            findings.push(Finding {
                path: source.path.clone(),
                line: index + 1,
                message: format!(
                    "the line has {length} characters, at most {MAX_LINE} are allowed; \
                     two files have to fit side by side"
                ),
            });
        }
    }
    findings
}

fn long_functions(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for position in positions_of(&source.code, "fn") {
        let Some((name, end)) = function(&source.code, position) else {
            continue;
        };
        let first = source.line_of(position);
        let length = source.line_of(end) - first + 1;
        if length > MAX_FUNCTION {
            findings.push(Finding {
                path: source.path.clone(),
                line: first,
                message: format!(
                    "function `{name}` has {length} lines, at most {MAX_FUNCTION} are allowed; \
                     a function has to fit on one screen, so give its parts names"
                ),
            });
        }
    }
    findings
}

/// The name of the function whose `fn` stands at `position`, and where its body ends. Nothing for
/// function types and for functions without a body.
fn function(code: &str, position: usize) -> Option<(&str, usize)> {
    let after = code[position + 2..].trim_start();
    let name = &after[..after
        .find(|character| !is_word(character))
        .unwrap_or(after.len())];
    if name.is_empty() {
        return None;
    }
    let mut at = position;
    loop {
        at += code[at..].find(['(', '[', '{', ';'])?;
        match code.as_bytes()[at] {
            b'{' => return Some((name, closing(code, at)?)),
            b';' => return None,
            _ => at = closing(code, at)? + 1,
        }
    }
}

/// `allowed` lists files that may be too long; one that is listed without need is a finding too.
fn long_file(source: &Source, allowed: &[&str]) -> Option<Finding> {
    if is_test_file(&source.path) {
        return None;
    }
    let length = source.text.lines().count() - test_lines(source);
    let message = match (length > MAX_FILE, allowed.contains(&source.path.as_str())) {
        (true, false) => format!(
            "the file has {length} lines without its tests, at most {MAX_FILE} are allowed; \
             split it along the words of the domain"
        ),
        (false, true) => format!(
            "the file has {length} lines and no longer needs its place in `LONG_FILES`; \
             remove it there, so that the list only shrinks"
        ),
        _ => return None,
    };
    Some(Finding {
        path: source.path.clone(),
        line: 1,
        message,
    })
}

fn is_test_file(path: &str) -> bool {
    path.split('/')
        .any(|part| part == "tests" || part == "tests.rs")
}

/// How many lines belong to test modules, with their attribute.
fn test_lines(source: &Source) -> usize {
    let code = &source.code;
    let mut lines = 0;
    for attribute in ["#[cfg(test)]", "#[cfg(all(test"] {
        for (start, _) in code.match_indices(attribute) {
            let Some(after) = closing(code, start + 1).map(|end| end + 1) else {
                continue;
            };
            let item = code[after..].trim_start();
            let is_module = item.starts_with("mod ") || item.starts_with("pub mod ");
            let Some(open) = item.find(['{', ';']) else {
                continue;
            };
            let open = code.len() - item.len() + open;
            if is_module && code.as_bytes()[open] == b'{' {
                let end = closing(code, open).unwrap_or(code.len());
                lines += source.line_of(end) - source.line_of(start) + 1;
            }
        }
    }
    lines
}

fn missing_module_docs(source: &Source) -> Option<Finding> {
    if !source.path.split('/').any(|part| part == "src") {
        return None;
    }
    let first = source
        .text
        .lines()
        .find(|line| !line.trim().is_empty() && !line.starts_with("#!"));
    if first.is_some_and(|line| line.starts_with("//!")) {
        return None;
    }
    Some(Finding {
        path: source.path.clone(),
        line: 1,
        message:
            "the file does not open with `//!`; a reader wants to know what the module is and \
                  which invariant it keeps before reading code"
                .to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &str = "crates/core/src/a.rs";

    fn source(text: &str) -> Source {
        Source::new(PATH, text)
    }

    fn function_of(lines: usize) -> String {
        let body = "    work();\n".repeat(lines - 2);
        format!("fn long() -> [u8; 2] {{\n{body}}}\n")
    }

    #[test]
    fn a_line_over_the_limit_is_found() {
        let fits = "é".repeat(MAX_LINE);
        assert_eq!(long_lines(&source(&fits)), []);
        let findings = long_lines(&source(&format!("short\n{fits}é")));
        assert_eq!(findings[0].line, 2);
        assert!(findings[0].message.contains("101 characters"));
    }

    #[test]
    fn a_function_over_the_limit_is_found() {
        assert_eq!(long_functions(&source(&function_of(MAX_FUNCTION))), []);
        let findings = long_functions(&source(&function_of(MAX_FUNCTION + 1)));
        assert_eq!(findings.len(), 1);
        assert!(findings[0].message.contains("`long` has 71 lines"));
    }

    #[test]
    fn braces_in_literals_and_comments_do_not_end_a_function() {
        let text = function_of(MAX_FUNCTION + 1).replacen("work();", "work(\"}\"); // }", 1);
        assert_eq!(long_functions(&source(&text)).len(), 1);
    }

    #[test]
    fn functions_without_a_body_are_not_measured() {
        let space = "\n".repeat(MAX_FUNCTION);
        let text =
            format!("trait T {{ fn a(&self) -> u8; }}\ntype F = fn(u8);{space}struct S {{}}");
        assert_eq!(long_functions(&source(&text)), []);
    }

    #[test]
    fn a_file_over_the_limit_is_found() {
        let fits = "x\n".repeat(MAX_FILE);
        assert_eq!(long_file(&source(&fits), &[]), None);
        let finding = long_file(&source(&format!("{fits}x\n")), &[]).unwrap();
        assert!(finding.message.contains("501 lines"));
    }

    #[test]
    fn test_modules_do_not_count_towards_the_length_of_a_file() {
        let body = "x\n".repeat(MAX_FILE);
        let tests = "#[cfg(test)]\nmod tests {\n    fn f() {}\n}\n";
        assert_eq!(long_file(&source(&format!("{body}{tests}")), &[]), None);
        let outside = format!("{body}#[cfg(test)]\nmod tests;\n");
        assert!(long_file(&source(&outside), &[]).is_some());
    }

    #[test]
    fn a_file_of_tests_may_be_long() {
        let text = "x\n".repeat(MAX_FILE + 1);
        assert_eq!(
            long_file(&Source::new("crates/core/tests/decide.rs", &text), &[]),
            None
        );
        assert_eq!(
            long_file(&Source::new("crates/core/src/decide/tests.rs", &text), &[]),
            None
        );
    }

    #[test]
    fn the_list_of_long_files_only_shrinks() {
        let long = source(&"x\n".repeat(MAX_FILE + 1));
        assert_eq!(long_file(&long, &[PATH]), None);
        let finding = long_file(&source("x\n"), &[PATH]).unwrap();
        assert!(finding.message.contains("LONG_FILES"));
    }

    #[test]
    fn a_source_file_without_module_docs_is_found() {
        assert!(missing_module_docs(&source("use std::fmt;\n//! Late.\n")).is_some());
        assert!(missing_module_docs(&source("")).is_some());
        assert_eq!(missing_module_docs(&source("\n//! What it is.\n")), None);
        assert_eq!(
            missing_module_docs(&source("#![no_std]\n//! What it is.\n")),
            None
        );
    }

    #[test]
    fn examples_and_tests_need_no_module_docs() {
        let example = Source::new("crates/roundel/examples/shop.rs", "fn main() {}\n");
        assert_eq!(missing_module_docs(&example), None);
    }
}
