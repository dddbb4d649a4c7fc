//! Payloads: one JSON value each, kept as the text it came as, so that nothing is lost in passing
//! (large numbers, key order, escapes). A codec that encrypts yields a JSON string.

use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// One JSON value as text. Cloning is cheap.
#[derive(Clone)]
pub struct Payload(Arc<RawValue>);

impl Payload {
    /// What a value is stored as.
    ///
    /// # Errors
    /// When the value has no JSON form.
    pub fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Payload, serde_json::Error> {
        serde_json::value::to_raw_value(value).map(|raw| Payload(raw.into()))
    }

    /// The value back.
    ///
    /// # Errors
    /// When the text does not fit the type.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.as_str())
    }

    /// A payload from outside: must be JSON.
    ///
    /// # Errors
    /// When it is not.
    pub fn parse(text: &str) -> Result<Payload, serde_json::Error> {
        serde_json::from_str::<Box<RawValue>>(text).map(|raw| Payload(raw.into()))
    }

    /// `null`.
    #[must_use]
    pub fn null() -> Payload {
        Payload(RawValue::NULL.to_owned().into())
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.get()
    }

    /// Its size in bytes, which is what limits count.
    #[must_use]
    pub fn size(&self) -> usize {
        self.0.get().len()
    }
}

impl PartialEq for Payload {
    fn eq(&self, other: &Payload) -> bool {
        self.as_str() == other.as_str()
    }
}

impl fmt::Debug for Payload {
    /// The size only: payloads may hold secrets, and debug output ends up in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({} bytes)", self.size())
    }
}

impl Serialize for Payload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Payload, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(|raw| Payload(raw.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e12_e17_what_comes_in_comes_out_to_the_byte() {
        for text in [
            r#""\u0000""#,
            "12345678901234567890123",
            "1e400",
            r#"{"b":1,"a":2,"b":3}"#,
        ] {
            let held = Payload::parse(text).expect(text);
            let json = serde_json::to_string(&held).unwrap();
            let back: Payload = serde_json::from_str(&json).unwrap();
            assert_eq!(back.as_str(), text);
        }
        assert!(Payload::parse("{").is_err());
        assert!(Payload::parse("1 2").is_err());
    }

    #[test]
    fn p1_debug_output_does_not_show_the_value() {
        let secret = Payload::encode("hunter2").unwrap();
        assert!(!format!("{secret:?}").contains("hunter2"));
    }
}
