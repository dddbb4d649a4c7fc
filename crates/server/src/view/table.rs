//! What an operator's own statement found, as JSON.

use roundel::Value;
use serde_json::{Value as Json, json};

/// A value as it is shown. Bytes are an id if they are as the engine makes them, the text that they
/// hold (payloads are), or else in hexadecimal digits, as SQL writes them.
#[must_use]
pub fn cell(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Integer(number) => json!(number),
        Value::Real(number) if number.is_finite() => json!(number),
        Value::Real(number) => json!(number.to_string()),
        Value::Text(text) => json!(text),
        Value::Blob(bytes) => json!(bytes_shown(bytes)),
    }
}

fn bytes_shown(bytes: &[u8]) -> String {
    if let Ok(id) = uuid::Uuid::from_slice(bytes)
        && id.get_variant() == uuid::Variant::RFC4122
        && matches!(id.get_version_num(), 4 | 7)
    {
        return id.to_string();
    }
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.is_empty() => text.to_owned(),
        _ => {
            let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("x'{digits}'")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shown_as_what_they_are() {
        let id = uuid::Uuid::now_v7();
        let shown = |bytes: &[u8]| cell(&Value::Blob(bytes.to_vec()));
        assert_eq!(shown(id.as_bytes()), json!(id.to_string()));
        assert_eq!(shown(b"{\"a\":1}"), json!("{\"a\":1}"));
        assert_eq!(shown(&[0xff, 0]), json!("x'ff00'"));
        assert_eq!(shown(&[]), json!("x''"));
        assert_eq!(cell(&Value::Real(f64::NAN)), json!("NaN"));
    }
}
