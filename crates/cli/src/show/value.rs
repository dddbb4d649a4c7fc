//! What is shown, as JSON that can be put together. Payloads are any JSON, and some of it fits into
//! no value that this program has: numbers that are too large, and what is nested too deeply. Such
//! parts are shown as their text.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, from_str};

/// So many levels are looked at one by one.
const LEVELS: usize = 16;

/// What is shown.
pub(crate) fn as_value(shown: &impl Serialize) -> Value {
    serde_json::to_value(shown).unwrap_or_else(|_| {
        let text = serde_json::to_string(shown);
        of(&text.expect("what is shown has a JSON form"), LEVELS)
    })
}

fn of(text: &str, levels: usize) -> Value {
    if let Ok(value) = from_str(text) {
        return value;
    }
    let below = levels.saturating_sub(1);
    let part = |raw: Box<RawValue>| of(raw.get(), below);
    if levels == 0 {
        return Value::String(text.to_owned());
    }
    if let Ok(parts) = from_str::<BTreeMap<String, Box<RawValue>>>(text) {
        let parts = parts.into_iter();
        return Value::Object(parts.map(|(name, raw)| (name, part(raw))).collect());
    }
    match from_str::<Vec<Box<RawValue>>>(text) {
        Ok(parts) => Value::Array(parts.into_iter().map(part).collect()),
        Err(_) => Value::String(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n4_what_fits_into_no_value_is_shown_as_text_and_the_rest_as_it_is() {
        let deep = ["[".repeat(500), "]".repeat(500)].concat();
        let text = format!(r#"{{"a":[1,1e999],"b":{{"c":{deep}}},"d":"x"}}"#);
        let raw: Box<RawValue> = from_str(&text).expect("it is JSON");
        let shown = as_value(&raw);
        assert_eq!(shown["a"], serde_json::json!([1, "1e999"]));
        assert_eq!(shown["d"], "x");
        let shown = shown["b"]["c"].to_string();
        assert!(shown.contains('"') && shown.starts_with("[[["), "{shown}");
        assert_eq!(as_value(&"x"), "x");
    }
}
