//! Rules about what may not stand in the tree: unfinished work, tests that do not run, SQL made
//! from pieces of text, and paths of somebody's machine.

use super::Finding;
use super::source::{Source, closing, line_of, positions_of};

const UNFINISHED_NOTES: &[&str] = &["TODO", "FIXME"];
const UNFINISHED_MACROS: &[&str] = &["todo!", "unimplemented!"];
const SQL_VERBS: &[&str] = &["SELECT", "INSERT", "UPDATE", "DELETE"];

/// In two pieces each, so that this file does not contain what it looks for.
const MACHINE_FOLDERS: &[&str] = &[
    concat!("/ho", "me/"),
    concat!("/ro", "ot/"),
    concat!("/Us", "ers/"),
    concat!("/wo", "rk/"),
];

pub(super) fn check(source: &Source) -> Vec<Finding> {
    let mut findings = unfinished_notes(&source.path, &source.comments);
    findings.extend(unfinished_code(source));
    findings.extend(ignored_tests(source));
    findings.extend(formatted_sql(source));
    findings
}

/// `text` is the whole of a plain file, or the comments of a Rust file.
pub(super) fn unfinished_notes(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for note in UNFINISHED_NOTES {
        for position in positions_of(text, note) {
            findings.push(Finding {
                path: path.to_string(),
                line: line_of(text, position),
                message: format!(
                    "`{note}` found; finish it or open an issue, notes in the tree are forgotten"
                ),
            });
        }
    }
    findings
}

/// Paths are looked for in the whole text: literals are where they hide.
pub(super) fn machine_paths(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for folder in MACHINE_FOLDERS {
        for (position, _) in text.match_indices(folder) {
            if !starts_a_path(&text[..position]) {
                continue;
            }
            findings.push(Finding {
                path: path.to_string(),
                line: line_of(text, position),
                message: format!(
                    "a path under `{folder}` found; it exists on one machine only, \
                     so take it from an argument or a temporary folder"
                ),
            });
        }
    }
    findings
}

/// Inside a longer path or an address the same letters mean something else.
fn starts_a_path(before: &str) -> bool {
    let opens = |c: char| c.is_whitespace() || "\"'`(<[=:,~".contains(c);
    before.is_empty() || before.ends_with(opens) || before.ends_with("file://")
}

fn unfinished_code(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for name in UNFINISHED_MACROS {
        for position in positions_of(&source.code, name) {
            findings.push(Finding {
                path: source.path.clone(),
                line: source.line_of(position),
                message: format!("`{name}` found; what is merged works, so finish it or remove it"),
            });
        }
    }
    findings
}

fn ignored_tests(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (position, _) in source.code.match_indices("#[") {
        let end = closing(&source.code, position + 1).unwrap_or(source.code.len());
        let attribute = source.code[position + 2..end].trim_start();
        let conditional = attribute.starts_with("cfg_attr");
        let named = positions_of(attribute, "ignore");
        if named.first() == Some(&0) || (conditional && !named.is_empty()) {
            findings.push(Finding {
                path: source.path.clone(),
                line: source.line_of(position),
                message: "an ignored test found; a test that nobody runs proves nothing, \
                          so make it fast or remove it"
                    .to_string(),
            });
        }
    }
    findings
}

fn formatted_sql(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for position in positions_of(&source.code, "format!") {
        let open = position + "format!".len();
        let end = closing(&source.code, open).unwrap_or(source.code.len());
        let call = &source.text[position..end];
        let Some(verb) = SQL_VERBS
            .iter()
            .find(|verb| !positions_of(call, verb).is_empty())
        else {
            continue;
        };
        findings.push(Finding {
            path: source.path.clone(),
            line: source.line_of(position),
            message: format!(
                "`format!` builds SQL (`{verb}`); statements are constants with bound parameters, \
                 so that no value can become SQL and every statement can be cached"
            ),
        });
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Source {
        Source::new("crates/core/src/a.rs", text)
    }

    fn lines(findings: &[Finding]) -> Vec<usize> {
        findings.iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn notes_of_unfinished_work_are_found_in_comments() {
        let text = "fn a() {}\n// TODO: more\n/* FIXME */\nlet s = \"TODO\"; // TODOS, todo\n";
        assert_eq!(lines(&check(&source(text))), [2, 3]);
    }

    #[test]
    fn notes_of_unfinished_work_are_found_in_plain_files() {
        assert_eq!(lines(&unfinished_notes("README.md", "fine\n(TODO)\n")), [2]);
    }

    #[test]
    fn unfinished_macros_are_found_in_code_only() {
        let text =
            "fn a() { todo!() }\nfn b() {\n unimplemented!(\"x\") }\n// todo!()\n\"todo!()\"";
        assert_eq!(lines(&unfinished_code(&source(text))), [1, 3]);
    }

    #[test]
    fn ignored_tests_are_found() {
        let text = "#[ignore]\nfn a() {}\n#[ignore = \"slow\"]\nfn b() {}\n\
                    #[cfg_attr(miri, ignore)]\nfn c() {}\n";
        assert_eq!(lines(&ignored_tests(&source(text))), [1, 3, 5]);
    }

    #[test]
    fn other_attributes_are_not_ignored_tests() {
        let text =
            "#[test]\nfn ignore() {}\n#[must_use]\n#[error(\"do not ignore\")]\n// #[ignore]";
        assert_eq!(ignored_tests(&source(text)), []);
    }

    #[test]
    fn sql_made_with_format_is_found_on_one_line_and_on_several() {
        let text = "let a = format!(\"SELECT * FROM {t}\");\nlet b = format!(\n    \"\\\n     \
                    DELETE FROM {t}\"\n);\n";
        assert_eq!(lines(&formatted_sql(&source(text))), [1, 2]);
    }

    #[test]
    fn constant_sql_and_other_formatting_are_fine() {
        let text = "let a = \"SELECT 1\"; let b = format!(\"{a} was SELECTED, then updated\");";
        assert_eq!(formatted_sql(&source(text)), []);
    }

    #[test]
    fn paths_of_a_machine_are_found() {
        for folder in MACHINE_FOLDERS {
            for text in [
                format!("open(\"{folder}x\")"),
                format!("see file://{folder}x"),
            ] {
                assert_eq!(lines(&machine_paths("a.rs", &text)), [1], "{text}");
            }
        }
    }

    #[test]
    fn the_same_letters_inside_an_address_are_not_a_path_of_a_machine() {
        for folder in MACHINE_FOLDERS {
            let text = format!("https://example.org{folder}page and {{base}}{folder}");
            assert_eq!(machine_paths("a.md", &text), []);
        }
    }
}
