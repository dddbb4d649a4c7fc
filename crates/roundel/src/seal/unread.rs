//! What could not be opened: told to whoever needs it, and masked where it is shown.

use std::borrow::Cow;

use roundel_core::{Failure, JournalRow, Outcome, Payload, RunId, SEALED, decode_entries};

use super::envelope::parts;
use super::keys::Keys;
use super::place::Place;
use super::walk::{self, Hand, holds_sealed};

/// What is shown instead of what is sealed.
const SHOWN: &str = "encrypted";

/// What a run needs, and what cannot be read here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    /// This process lacks the key of this name.
    NoKey(String),
    /// The key of this name is here, and did not seal that for where it lies.
    Broken(String),
}

impl Unread {
    /// Why this sealed text was left as it is.
    pub(crate) fn of(sealed: &str, keys: Option<&Keys>) -> Unread {
        let (name, _) = parts(sealed);
        let known = keys.is_some_and(|keys| keys.names().any(|known| known == name));
        match known {
            true => Unread::Broken(name.to_owned()),
            false => Unread::NoKey(name.to_owned()),
        }
    }

    /// What the run is parked with that needs it.
    pub(crate) fn failure(&self, run: RunId) -> Failure {
        Failure::permanent(format!("run {run} needs a value that is sealed: {self}"))
            .with_code("sealed")
    }
}

impl std::fmt::Display for Unread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unread::NoKey(key) => write!(
                f,
                "this process does not have the key `{key}`; give it the file that has it, by \
                 `--key-file` or `EngineBuilder::sealed`"
            ),
            Unread::Broken(key) => write!(
                f,
                "what the key `{key}` sealed was changed, or moved to where it does not belong; \
                 restore it from a backup"
            ),
        }
    }
}

/// The name of the key that sealed this text.
pub(crate) fn key_of(sealed: &str) -> &str {
    parts(sealed).0
}

/// How long the sealed text is that this one begins with.
fn length(text: &str) -> usize {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    let other = text.bytes().position(|byte| !is_part(byte));
    other.unwrap_or(text.len())
}

/// A text as it is shown: `encrypted`, with the name of the key, instead of what is sealed and
/// could not be opened here.
///
/// ```
/// let text = r#"{"input": "roundel:sealed:1:k1:aQAC"}"#;
/// assert_eq!(roundel::masked(text), r#"{"input": "encrypted (key k1)"}"#);
/// ```
#[must_use]
pub fn masked(text: &str) -> Cow<'_, str> {
    let Some(mut at) = text.find(SEALED) else {
        return Cow::Borrowed(text);
    };
    let (mut shown, mut rest) = (String::with_capacity(text.len()), text);
    loop {
        let (before, from) = rest.split_at(at);
        let (sealed, after) = from.split_at(length(from));
        let (name, _) = parts(sealed);
        shown.push_str(before);
        shown.push_str(SHOWN);
        if !name.is_empty() {
            shown.push_str(" (key ");
            shown.push_str(name);
            shown.push(')');
        }
        rest = after;
        match rest.find(SEALED) {
            Some(next) => at = next,
            None => break,
        }
    }
    shown.push_str(rest);
    Cow::Owned(shown)
}

/// Notes the first sealed text that it comes to.
#[derive(Default)]
struct Finder(Option<String>);

impl Hand for Finder {
    fn value(&mut self, _: &Place<'_>, _: Option<&str>, value: &mut Payload) {
        if let Some(sealed) = value.sealed().filter(|_| self.0.is_none()) {
            self.0 = Some(sealed.to_owned());
        }
    }

    fn text(&mut self, _: &Place<'_>, text: &mut String) {
        if text.starts_with(SEALED) && self.0.is_none() {
            self.0 = Some(text.clone());
        }
    }

    fn is_for(&self, text: &[u8]) -> bool {
        holds_sealed(text)
    }
}

/// What of these entries is sealed. What only looks so within a user's own value is not.
pub(crate) fn sealed_entries(rows: &[JournalRow]) -> Option<String> {
    let mut finder = Finder::default();
    let holding = rows.iter().filter(|row| holds_sealed(&row.entries));
    for row in holding {
        let entries = decode_entries(&row.entries).unwrap_or_default();
        for mut entry in entries {
            walk::entry(&mut finder, row.run, &mut entry);
        }
    }
    finder.0
}

/// What of a run's state is sealed.
pub(crate) fn sealed_state(state: &Payload) -> Option<String> {
    let mut finder = Finder::default();
    walk::state(&mut finder, &mut state.clone());
    finder.0
}

/// What of an outcome is sealed.
pub(crate) fn sealed_outcome(outcome: &Outcome) -> Option<&str> {
    match outcome {
        Outcome::Value(value) => value.sealed(),
        Outcome::Failure(failure) => sealed_failure(failure),
    }
}

fn sealed_failure(failure: &Failure) -> Option<&str> {
    let message = Some(failure.message.as_str()).filter(|text| text.starts_with(SEALED));
    let data = || failure.data.as_ref()?.sealed();
    let cause = || sealed_failure(failure.cause.as_ref()?);
    message.or_else(data).or_else(cause)
}
