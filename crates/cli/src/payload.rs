//! Payloads from the command line: JSON as an argument, from a file, or from standard input.

use std::io::Read;

use roundel::{Payload, limits};

use crate::exit::{Failed, Result};

/// What the argument says: JSON, `@file`, or `-` for standard input.
pub(crate) fn read(argument: &str) -> Result<Payload> {
    let (text, source) = match argument.strip_prefix('@') {
        _ if argument == "-" => (all(std::io::stdin(), "standard input")?, "standard input"),
        Some(path) => {
            let file = std::fs::File::open(path);
            let file = file.map_err(|error| unreadable(path, &error))?;
            (all(file, path)?, path)
        }
        None => (argument.to_owned(), "the argument"),
    };
    let text = text.trim();
    // What cannot be read again is refused here, as the server does.
    let read = serde_json::from_str::<serde_json::Value>(text).and_then(|_| Payload::parse(text));
    read.map_err(|error| explain(text, source, &error))
}

/// Reads no more than what is allowed anyway.
fn all(from: impl Read, name: &str) -> Result<String> {
    let most = limits::PAYLOAD_BYTES as u64 + 1;
    let mut bytes = Vec::new();
    let read = from.take(most).read_to_end(&mut bytes);
    read.map_err(|error| unreadable(name, &error))?;
    if bytes.len() as u64 == most {
        let limit = limits::PAYLOAD_BYTES;
        let message =
            format!("{name} has more than {limit} bytes, which is the limit of a payload");
        return Err(Failed::usage(message));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Failed::usage(format!("{name} is not JSON: byte {at} is not UTF-8"))
    })
}

fn unreadable(name: &str, error: &std::io::Error) -> Failed {
    Failed::usage(format!("{name} could not be read: {error}; check the path"))
}

/// Where the text stops being JSON, and what usually helps.
fn explain(text: &str, source: &str, error: &serde_json::Error) -> Failed {
    let (line, column) = (error.line(), error.column());
    let shown = text.lines().nth(line.saturating_sub(1)).unwrap_or("");
    let from = column.saturating_sub(30);
    let part: String = shown.chars().skip(from).take(60).collect();
    let mark = " ".repeat(column.saturating_sub(1).saturating_sub(from));
    let what = error.to_string();
    let what = what.split(" at line ").next().unwrap_or_default();
    let plain = text
        .chars()
        .all(|c| c.is_alphanumeric() || c == ' ' || c == '-' || c == '_');
    let help = match plain && source == "the argument" {
        true => format!("a string needs its quotes: '\"{text}\"'"),
        false => "give JSON, @file, or - for standard input".to_owned(),
    };
    let place = format!("{source} is not JSON: {what} at line {line}, column {column}");
    Failed::usage(format!("{place}\n{part}\n{mark}^\n{help}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n4_what_cannot_be_read_again_is_refused() {
        let deep = ["[".repeat(200), "]".repeat(200)].concat();
        for (text, said) in [
            (&*deep, "recursion limit"),
            ("[1e999]", "number out of range"),
        ] {
            let failed = read(text).unwrap_err().message;
            assert!(failed.contains(said), "{failed}");
        }
    }

    #[test]
    fn bad_json_says_where() {
        let failed = read("{\"a\": 1,}").unwrap_err();
        assert_eq!(
            failed.message,
            "the argument is not JSON: trailing comma at line 1, column 9\n\
             {\"a\": 1,}\n        ^\ngive JSON, @file, or - for standard input"
        );
        let failed = read("hello").unwrap_err();
        assert!(
            failed.message.ends_with("'\"hello\"'"),
            "{}",
            failed.message
        );
    }
}
