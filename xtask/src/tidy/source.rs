//! A Rust file split into what is code and what is comment.
//!
//! Both views have the length and the line breaks of the text, with everything else blank, so that
//! a position found in one is a position in all. This is a splitter, not a parser: it knows
//! comments, literals and words, and nothing of grammar.

#[derive(Debug)]
pub(super) struct Source {
    pub(super) path: String,
    pub(super) text: String,
    /// The text without comments and without string and character literals.
    pub(super) code: String,
    /// The comments alone.
    pub(super) comments: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Code,
    Comment,
    Literal,
}

impl Source {
    pub(super) fn new(path: &str, text: &str) -> Self {
        let mut code = String::with_capacity(text.len());
        let mut comments = String::with_capacity(text.len());
        let mut rest = text;
        while !rest.is_empty() {
            let (kind, length) = piece(rest);
            let (head, tail) = rest.split_at(length);
            push(&mut code, head, kind == Kind::Code);
            push(&mut comments, head, kind == Kind::Comment);
            rest = tail;
        }
        Source {
            path: path.to_string(),
            text: text.to_string(),
            code,
            comments,
        }
    }

    pub(super) fn line_of(&self, position: usize) -> usize {
        line_of(&self.text, position)
    }
}

/// The line, counted from one, that holds the byte at `position`.
pub(super) fn line_of(text: &str, position: usize) -> usize {
    text.as_bytes()[..position]
        .iter()
        .filter(|byte| **byte == b'\n')
        .count()
        + 1
}

/// Where `word` stands in `text` on its own, not as part of a longer word.
pub(super) fn positions_of(text: &str, word: &str) -> Vec<usize> {
    text.match_indices(word)
        .map(|(position, _)| position)
        .filter(|position| {
            !text[..*position].ends_with(is_word)
                && !text[position + word.len()..].starts_with(is_word)
        })
        .collect()
}

/// The position of the bracket that closes the one at `open`.
pub(super) fn closing(code: &str, open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (offset, character) in code[open..].char_indices() {
        match character {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => continue,
        }
        if depth == 0 {
            return Some(open + offset);
        }
    }
    None
}

pub(super) fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

fn push(view: &mut String, piece: &str, kept: bool) {
    if kept {
        view.push_str(piece);
    } else {
        view.extend(
            piece
                .bytes()
                .map(|byte| if byte == b'\n' { '\n' } else { ' ' }),
        );
    }
}

/// The kind and the length of what `rest` starts with.
fn piece(rest: &str) -> (Kind, usize) {
    if rest.starts_with("//") {
        return (Kind::Comment, rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        return (Kind::Comment, block_comment(rest));
    }
    if rest.starts_with('\'') {
        return quoted_character(rest).map_or((Kind::Code, 1), |length| (Kind::Literal, length));
    }
    let word = rest
        .find(|character| !is_word(character))
        .unwrap_or(rest.len());
    match string(rest, word) {
        Some(length) => (Kind::Literal, length),
        None if word > 0 => (Kind::Code, word),
        None => (Kind::Code, rest.chars().next().map_or(0, char::len_utf8)),
    }
}

fn block_comment(rest: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

/// The length of a character literal, or nothing for a lifetime.
fn quoted_character(rest: &str) -> Option<usize> {
    let mut characters = rest[1..].chars();
    let first = characters.next()?;
    if first == '\\' {
        // The escaped character itself may be a quote.
        let escaped = 2 + characters.next()?.len_utf8();
        return rest[escaped..].find('\'').map(|end| escaped + end + 1);
    }
    (characters.next() == Some('\'')).then(|| first.len_utf8() + 2)
}

/// The length of a string literal of any sort whose prefix is the first `word` bytes.
fn string(rest: &str, word: usize) -> Option<usize> {
    match &rest[..word] {
        "" | "b" | "c" if rest[word..].starts_with('"') => Some(escaped_string(rest, word + 1)),
        "r" | "br" | "cr" => {
            let hashes = rest[word..]
                .bytes()
                .take_while(|byte| *byte == b'#')
                .count();
            let body = word + hashes + 1;
            if !rest[word + hashes..].starts_with('"') {
                return None;
            }
            let end = format!("\"{}", "#".repeat(hashes));
            Some(
                rest[body..]
                    .find(&end)
                    .map_or(rest.len(), |found| body + found + end.len()),
            )
        }
        _ => None,
    }
}

fn escaped_string(rest: &str, body: usize) -> usize {
    let mut escaped = false;
    for (offset, character) in rest[body..].char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return body + offset + 1,
            _ => {}
        }
    }
    rest.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> String {
        Source::new("a.rs", text)
            .code
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn comments_are_not_code() {
        assert_eq!(code("a // b\nc /* d /* e */ f */ g"), "a c g");
    }

    #[test]
    fn literals_are_not_code() {
        assert_eq!(
            code(r##"a("x\"{", b"y", r#"z"{"#, 'q', '\'', '{');"##),
            "a( , , , , , );"
        );
    }

    #[test]
    fn lifetimes_and_raw_names_are_code() {
        assert_eq!(
            code("fn f<'a>(r#type: &'a str)"),
            "fn f<'a>(r#type: &'a str)"
        );
    }

    #[test]
    fn comment_marks_inside_a_string_open_nothing() {
        let source = Source::new("a.rs", "let url = \"https://x\"; // note\nnext");
        assert_eq!(source.comments.trim(), "// note");
        assert!(source.code.contains("next"));
    }

    #[test]
    fn both_views_keep_every_position() {
        let text = "é // ü\n\"ß\ntwo lines\" end";
        let source = Source::new("a.rs", text);
        assert_eq!(source.code.len(), text.len());
        assert_eq!(source.comments.len(), text.len());
        assert_eq!(source.code.lines().count(), text.lines().count());
        assert_eq!(source.line_of(text.find("end").unwrap()), 3);
    }

    #[test]
    fn a_word_inside_a_longer_word_does_not_count() {
        assert_eq!(positions_of("fnord fn my_fn fn", "fn"), [6, 15]);
    }

    #[test]
    fn the_closing_bracket_is_the_matching_one() {
        assert_eq!(closing("f(a(b), c) )", 1), Some(9));
        assert_eq!(closing("f(a", 1), None);
    }
}
