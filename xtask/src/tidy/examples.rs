//! The rule that every example in the documentation runs as a test.
//!
//! It looks at the marks of fenced blocks, in Markdown files and in documentation comments.
//! A block that is not Rust says so by its language and is left alone.

use super::Finding;
use super::source::Source;

/// Marks that keep a Rust block from being run.
const MARKS: &[&str] = &["ignore", "no_run"];

pub(super) fn in_markdown(path: &str, text: &str) -> Vec<Finding> {
    marked_blocks(path, text.lines().map(Some))
}

pub(super) fn in_doc_comments(source: &Source) -> Vec<Finding> {
    marked_blocks(&source.path, source.comments.lines().map(doc_text))
}

/// The text of a documentation comment; nothing for every other line, which ends the comment.
fn doc_text(line: &str) -> Option<&str> {
    let line = line.trim_start();
    line.strip_prefix("///")
        .or_else(|| line.strip_prefix("//!"))
}

fn marked_blocks<'a>(path: &str, lines: impl Iterator<Item = Option<&'a str>>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut open: Option<&str> = None;
    for (index, line) in lines.enumerate() {
        let Some((fence, info)) = line.and_then(fence) else {
            if line.is_none() {
                open = None;
            }
            continue;
        };
        match open {
            Some(opened) if info.is_empty() && fence.starts_with(opened) => open = None,
            Some(_) => {}
            None => {
                open = Some(fence);
                findings.extend(mark_in(info).map(|mark| Finding {
                    path: path.to_string(),
                    line: index + 1,
                    message: format!(
                        "the example is marked `{mark}`; examples have to run, or nobody notices \
                         when they break (mark it `text` if it is not meant as Rust)"
                    ),
                }));
            }
        }
    }
    findings
}

/// The marker of a line that opens or closes a block, and what follows it.
fn fence(line: &str) -> Option<(&str, &str)> {
    let line = line.trim_start();
    let marker = line
        .chars()
        .next()
        .filter(|first| matches!(first, '`' | '~'))?;
    let length = line.len() - line.trim_start_matches(marker).len();
    (length >= 3).then(|| (&line[..length], line[length..].trim()))
}

/// The mark that keeps a block from running. Blocks of another language never run.
fn mark_in(info: &str) -> Option<&str> {
    let words = || {
        info.split([',', ' ', '{', '}'])
            .filter(|word| !word.is_empty())
    };
    let mark = words().find(|word| MARKS.iter().any(|mark| word.starts_with(mark)))?;
    let is_rust = words()
        .next()
        .is_some_and(|first| first == "rust" || first == mark);
    is_rust.then_some(mark)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(findings: &[Finding]) -> Vec<usize> {
        findings.iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn marked_rust_blocks_in_markdown_are_found() {
        let text = "# A\n```rust,ignore\nx\n```\n~~~ rust no_run\ny\n~~~\n```ignore\nz\n```\n";
        assert_eq!(lines(&in_markdown("README.md", text)), [2, 5, 8]);
    }

    #[test]
    fn blocks_that_run_and_blocks_of_other_languages_are_fine() {
        let text =
            "```rust\nx\n```\n```sh ignore\ny\n```\n```\nz\n```\n```rust,should_panic\n```\n";
        assert_eq!(in_markdown("README.md", text), []);
    }

    #[test]
    fn a_block_inside_a_longer_fence_is_text() {
        let text = "````text\n```rust,ignore\n```\n````\n```rust,ignore\n```\n";
        assert_eq!(lines(&in_markdown("README.md", text)), [5]);
    }

    #[test]
    fn marked_blocks_in_doc_comments_are_found() {
        let text = "/// A.\n///\n/// ```no_run\n/// x();\n/// ```\nfn a() {}\n\
                    //! ```ignore\nfn b() {}\n// ```ignore\nlet s = \"/// ```ignore\";\n";
        assert_eq!(lines(&in_doc_comments(&Source::new("a.rs", text))), [3, 7]);
    }

    #[test]
    fn a_comment_that_ends_closes_its_block() {
        let text = "/// ```\nfn a() {}\n/// ```ignore\n/// ```\nfn b() {}\n";
        assert_eq!(lines(&in_doc_comments(&Source::new("a.rs", text))), [3]);
    }
}
