//! Cursors: where a page ended, as a word that only the list that gave it takes back.
//!
//! A cursor holds a place in the order of a list, nothing else: what may be seen is decided by the
//! request that brings it. So one that was made up or changed is read like any other input, and
//! leads nowhere that the request could not go.

use std::fmt::Display;
use std::str::FromStr;

use crate::problem::{Code, Problem};

/// Longer ones were not given by us.
const MOST: usize = 1200;

/// The word for this place in that list.
pub(crate) fn write(list: &str, place: &impl Display) -> String {
    use std::fmt::Write;
    let text = format!("{list}:{place}");
    let mut word = String::with_capacity(2 * text.len());
    for byte in text.bytes() {
        let _ = write!(word, "{byte:02x}");
    }
    word
}

/// The place that the word stands for in that list.
pub(crate) fn read<T: FromStr>(list: &str, word: &str) -> Result<T, Problem> {
    let bad = || {
        let text = "the cursor is none that this list gave; begin without one";
        Problem::new(Code::BadCursor, text)
    };
    if word.len() > MOST || !word.len().is_multiple_of(2) || !word.is_ascii() {
        return Err(bad());
    }
    let bytes: Option<Vec<u8>> = (0..word.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&word[at..at + 2], 16).ok())
        .collect();
    let text = String::from_utf8(bytes.ok_or_else(bad)?).map_err(|_| bad())?;
    let place = text
        .strip_prefix(list)
        .and_then(|rest| rest.strip_prefix(':'));
    place.ok_or_else(bad)?.parse().map_err(|_| bad())
}

#[cfg(test)]
mod tests {
    use roundel::RunId;

    use super::*;

    #[test]
    fn n21_a_cursor_is_taken_back_by_its_own_list_only() {
        let run = RunId::from_bytes([7; 16]);
        let word = write("runs", &run);
        assert_eq!(read::<RunId>("runs", &word).unwrap(), run);
        for (list, word) in [
            ("parked", word.as_str()),
            ("runs", &word[1..]),
            ("runs", &word[2..]),
            ("runs", "zz"),
            ("runs", "+1+1"),
            ("runs", ""),
            ("runs", "éé"),
            ("runs", &"ab".repeat(MOST)),
            ("runs", &format!("{word}ff")),
        ] {
            let problem = read::<RunId>(list, word).unwrap_err();
            assert_eq!(problem.code, Code::BadCursor, "{list} {word}");
        }
    }
}
