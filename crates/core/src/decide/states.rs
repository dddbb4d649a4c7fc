//! A run's own state: one JSON value that changes by being set or merged (RFC 7396).
//!
//! Merging works on the text of the values, so that what a patch does not touch stays as it was, to
//! the byte: large numbers, escapes, the order inside.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use crate::{Payload, Refusal, StateChange, StateRow, limits};

type Object = BTreeMap<String, Box<RawValue>>;

/// What these changes, one after the other, make of the state; none if there are none.
pub(super) fn next(
    before: Option<&StateRow>,
    changes: &[StateChange],
) -> Result<Option<StateRow>, Refusal> {
    let mut now = None;
    for change in changes {
        let before = now.as_ref().or(before);
        let value = match change {
            StateChange::Set(value) => value.clone(),
            StateChange::Merge(patch) => merged(before.map(|state| &state.value), patch)?,
        };
        Refusal::payload(value.size())?;
        let version = before.map_or(0, |state| state.version) + 1;
        now = Some(StateRow { version, value });
    }
    Ok(now)
}

/// RFC 7396: objects are merged, null removes, anything else replaces.
fn merged(before: Option<&Payload>, patch: &Payload) -> Result<Payload, Refusal> {
    let before = before.map(Payload::as_str);
    let text = merge(before, patch.as_str(), 1)?;
    Ok(Payload::parse(&text).expect("merged JSON is JSON"))
}

fn merge(before: Option<&str>, patch: &str, depth: usize) -> Result<String, Refusal> {
    Refusal::over("a patch's depth", limits::PATCH_DEPTH, depth)?;
    let Some(patch_object) = object(patch) else {
        return Ok(patch.to_owned());
    };
    let mut into = before.and_then(object).unwrap_or_default();
    for (key, value) in patch_object {
        if value.get() == "null" {
            into.remove(&key);
            continue;
        }
        let inner = into.get(&key).map(|held| held.get());
        let text = merge(inner, value.get(), depth + 1)?;
        into.insert(
            key,
            RawValue::from_string(text).expect("merged JSON is JSON"),
        );
    }
    Ok(serde_json::to_string(&into).expect("an object of JSON values is JSON"))
}

fn object(text: &str) -> Option<Object> {
    text.starts_with('{')
        .then(|| serde_json::from_str(text).ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merge(before: &str, patch: &str) -> String {
        let (before, patch) = (
            Payload::parse(before).unwrap(),
            Payload::parse(patch).unwrap(),
        );
        merged(Some(&before), &patch).unwrap().as_str().to_owned()
    }

    #[test]
    fn the_examples_of_rfc_7396() {
        for (before, patch, after) in [
            (r#"{"a":"b"}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"b":"c"}"#, r#"{"a":"b","b":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"a":null}"#, r#"{}"#),
            (r#"{"a":"b","b":"c"}"#, r#"{"a":null}"#, r#"{"b":"c"}"#),
            (r#"{"a":["b"]}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"c"}"#, r#"{"a":["b"]}"#, r#"{"a":["b"]}"#),
            (
                r#"{"a":{"b":"c"}}"#,
                r#"{"a":{"b":"d","c":null}}"#,
                r#"{"a":{"b":"d"}}"#,
            ),
            (r#"{"a":[{"b":"c"}]}"#, r#"{"a":[1]}"#, r#"{"a":[1]}"#),
            (r#"["a","b"]"#, r#"["c","d"]"#, r#"["c","d"]"#),
            (r#"{"a":"b"}"#, r#"["c"]"#, r#"["c"]"#),
            (r#"{"a":"foo"}"#, "null", "null"),
            (r#"{"a":"foo"}"#, r#""bar""#, r#""bar""#),
            (r#"{"e":null}"#, r#"{"a":1}"#, r#"{"a":1,"e":null}"#),
            (r#"[1,2]"#, r#"{"a":"b","c":null}"#, r#"{"a":"b"}"#),
            (
                r#"{}"#,
                r#"{"a":{"bb":{"ccc":null}}}"#,
                r#"{"a":{"bb":{}}}"#,
            ),
        ] {
            assert_eq!(merge(before, patch), after, "{before} with {patch}");
        }
    }

    #[test]
    fn e17_what_a_patch_does_not_touch_stays_to_the_byte() {
        let before = r#"{"big":12345678901234567890123,"far":1e400,"in":{"z":1, "a":"\u00e4"}}"#;
        let after =
            r#"{"big":12345678901234567890123,"far":1e400,"in":{"z":1, "a":"\u00e4"},"x":1}"#;
        assert_eq!(merge(before, r#"{"x":1}"#), after);
    }

    #[test]
    fn spaces_around_values_do_not_hide_a_removal() {
        assert_eq!(merge(r#"{"a":1}"#, " { \"a\" : null } "), "{}");
    }

    #[test]
    fn ro_41_a_patch_is_as_deep_as_the_limit_and_no_deeper() {
        let nested = |depth: usize| {
            let text = format!("{}1{}", r#"{"a":"#.repeat(depth), "}".repeat(depth));
            StateChange::Merge(Payload::parse(&text).unwrap())
        };
        assert!(next(None, &[nested(limits::PATCH_DEPTH - 1)]).is_ok());
        assert!(next(None, &[nested(limits::PATCH_DEPTH)]).is_err());
        assert!(next(None, &[nested(5_000)]).is_err());
    }

    #[test]
    fn ro_41_a_state_does_not_grow_past_a_payload_by_merging() {
        let part = |key: &str| {
            let text = format!(r#"{{"{key}":"{}"}}"#, "x".repeat(limits::PAYLOAD_BYTES / 2));
            StateChange::Merge(Payload::parse(&text).unwrap())
        };
        assert!(next(None, &[part("a")]).is_ok());
        assert!(next(None, &[part("a"), part("b")]).is_err());
    }
}
