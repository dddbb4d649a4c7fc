//! What a step's SQL may not do, as far as its text says. Text can hide anything from this; the
//! store finds out afterwards whether the transaction was ended (`settle`).
//!
//! Refused, as on SQLite: ending or nesting the transaction, settings of the session, and writing
//! anything whose name begins with `roundel_`. Reading the engine's tables is fine.

/// The rule that this statement breaks.
pub(super) fn broken(sql: &str) -> Option<String> {
    let words = words(sql);
    let first = words.first().map(|word| word.to_ascii_uppercase())?;
    let second = words.get(1).map(|word| word.to_ascii_uppercase());
    let what = match (first.as_str(), second.as_deref().unwrap_or_default()) {
        ("BEGIN" | "START" | "COMMIT" | "END" | "ROLLBACK" | "ABORT", _)
        | ("SAVEPOINT" | "RELEASE", _)
        | ("PREPARE", "TRANSACTION") => "transactions belong to the engine",
        ("SET", "CONSTRAINTS") => return None,
        ("SET", "LOCAL") if !names(&words, "TRANSACTION") => return None,
        ("SET" | "RESET" | "DISCARD" | "PRAGMA", _) => "settings belong to the engine",
        ("LISTEN" | "UNLISTEN" | "DEALLOCATE", _) => "the connection belongs to the engine",
        ("ATTACH" | "DETACH", _) => "there is one database",
        ("SELECT" | "VALUES" | "TABLE" | "EXPLAIN" | "SHOW", _) => return None,
        _ if words.iter().any(|word| is_the_engines(word)) => {
            "the tables roundel_* belong to the engine"
        }
        _ => return None,
    };
    Some(format!("`{first}`; {what}"))
}

fn names(words: &[&str], name: &str) -> bool {
    words.iter().any(|word| word.eq_ignore_ascii_case(name))
}

fn is_the_engines(word: &str) -> bool {
    let head = word.as_bytes().get(.."roundel_".len());
    head.is_some_and(|head| head.eq_ignore_ascii_case(b"roundel_"))
}

/// Names and keywords, quoted or not, without what stands in literals and comments.
fn words(sql: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = sql;
    while let Some(c) = rest.chars().next() {
        let length = match c {
            '-' if rest.starts_with("--") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => comment(rest),
            '\'' => quoted(rest, '\''),
            '"' => {
                let end = quoted(rest, '"');
                words.push(rest[..end].trim_matches('"'));
                end
            }
            '$' => dollars(rest),
            c if c.is_alphabetic() || c == '_' => {
                let inside = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
                let end = rest.find(|c| !inside(c)).unwrap_or(rest.len());
                words.push(&rest[..end]);
                end
            }
            c => c.len_utf8(),
        };
        rest = &rest[length..];
    }
    words
}

/// Up to the end of a comment, in which there may be others.
fn comment(text: &str) -> usize {
    let (mut at, mut depth) = (0, 0);
    while at < text.len() {
        let here = &text.as_bytes()[at..];
        if here.starts_with(b"/*") {
            (at, depth) = (at + 2, depth + 1);
        } else if here.starts_with(b"*/") {
            (at, depth) = (at + 2, depth - 1);
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    text.len()
}

/// Up to the closing quote; two of them are one that is meant.
fn quoted(text: &str, quote: char) -> usize {
    let close = text[1..].find(quote);
    close.map_or(text.len(), |at| at + 2)
}

/// `$tag$ ... $tag$`, or the sign alone, as in `$1`.
fn dollars(text: &str) -> usize {
    let Some(close) = text[1..].find('$').map(|at| at + 2) else {
        return 1;
    };
    let (tag, inside) = text.split_at(close);
    let name = &tag[1..tag.len() - 1];
    let is_tag = name.chars().all(|c| c.is_alphanumeric() || c == '_')
        && !name.starts_with(|c: char| c.is_ascii_digit());
    if !is_tag {
        return 1;
    }
    inside
        .find(tag)
        .map_or(text.len(), |at| close + at + tag.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e15_what_ends_the_transaction_or_changes_the_session_is_refused() {
        for sql in [
            "COMMIT",
            " -- a note\n rollback",
            "/* a /* nested */ note */ BEGIN",
            "savepoint mine",
            "RELEASE roundel_step",
            "PREPARE TRANSACTION 'x'",
            "SET search_path = x",
            "SET LOCAL TRANSACTION READ ONLY",
            "reset all",
            "LISTEN x",
            "PRAGMA user_version = 3",
            "ATTACH 'x.db' AS x",
        ] {
            assert!(broken(sql).is_some(), "{sql}");
        }
        for sql in [
            "SELECT 'COMMIT'",
            "SET LOCAL lock_timeout = 10",
            "SET CONSTRAINTS ALL DEFERRED",
            "PREPARE mine AS SELECT 1",
            "INSERT INTO stock VALUES ($1, 'it''s; COMMIT')",
            "",
        ] {
            assert_eq!(broken(sql), None, "{sql}");
        }
    }

    #[test]
    fn e16_the_engines_tables_are_read_and_not_written() {
        for sql in [
            "CREATE TABLE roundel_mine (a INTEGER)",
            "delete from x.\"roundel_run\"",
            "UPDATE ROUNDEL_RUN SET state = 1",
            "WITH x AS (DELETE FROM roundel_run RETURNING 1) SELECT 1",
        ] {
            assert!(broken(sql).is_some(), "{sql}");
        }
        for sql in [
            "SELECT * FROM roundel_messages",
            "INSERT INTO note VALUES ('roundel_run', $t$ roundel_run $t$, $1, $2)",
            "INSERT INTO note -- not roundel_run\n VALUES (1)",
        ] {
            assert_eq!(broken(sql), None, "{sql}");
        }
    }

    #[test]
    fn text_that_does_not_end_is_read_to_its_end() {
        for sql in ["'", "\"", "/*", "$$", "$", "$é", "x'é", "--"] {
            let _ = broken(sql);
        }
    }
}
