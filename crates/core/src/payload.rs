//! Payloads: one JSON value each, kept as the text it came as, so that nothing is lost in passing
//! (large numbers, key order, escapes). One that is sealed is a JSON string that begins with
//! [`SEALED`]; whoever decides never looks into it, and tells it from another by what stands beside
//! it for that ([`Payload::identity`]).

use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// What a text begins with that is sealed. After it come, with colons between them, the name of the
/// key, what is sealed, and, of what may be sent again, what it is known by then. None of these has
/// a quote, a colon or anything that JSON escapes.
pub const SEALED: &str = "roundel:sealed:1:";

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

    /// The whole of it as a sealed text, if it is one.
    #[must_use]
    pub fn sealed(&self) -> Option<&str> {
        let text = self.as_str().strip_prefix('"')?.strip_suffix('"')?;
        text.starts_with(SEALED).then_some(text)
    }

    /// Is it sealed, or is something in it?
    #[must_use]
    pub fn holds_sealed(&self) -> bool {
        self.as_str().contains(SEALED)
    }

    /// The same, or, of a text that only looks sealed, that text behind a blank: of what others
    /// said, where nobody is there to correct it.
    #[must_use]
    pub fn unlike_sealed(self) -> Payload {
        match self.sealed() {
            Some(text) => Payload::encode(&format!(" {text}")).expect("a text is JSON"),
            None => self,
        }
    }

    /// What tells it from another that is sent under the same id. The same value is sealed to
    /// another text each time, and under another key once that was changed: what it is known by
    /// stays.
    pub(crate) fn identity(&self) -> &str {
        let mark = self.sealed().and_then(|text| {
            let (_, sealed) = text[SEALED.len()..].split_once(':')?;
            sealed.find(':').map(|at| &sealed[at..])
        });
        // It begins with a colon, as no JSON does.
        mark.unwrap_or(self.as_str())
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
    fn p6_what_is_sealed_is_told_apart_by_what_it_is_known_by() {
        let sealed = |rest: &str| Payload::encode(&format!("{SEALED}{rest}")).unwrap();
        let (one, again) = (sealed("k1:abc:mark"), sealed("k2:xyz:mark"));
        assert_eq!(one.identity(), again.identity());
        assert_ne!(one.identity(), sealed("k1:abc:other").identity());
        let unmarked = sealed("k1:abc");
        assert_eq!(unmarked.identity(), unmarked.as_str());
        let plain = Payload::encode(":mark").unwrap();
        assert_ne!(plain.identity(), one.identity());
        assert!(plain.sealed().is_none() && !plain.holds_sealed());
        let within = Payload::parse(&format!("[{}]", one.as_str())).unwrap();
        assert!(within.sealed().is_none() && within.holds_sealed());
        let blank = sealed("k:x").unlike_sealed();
        assert_eq!(blank.as_str(), format!("\" {SEALED}k:x\""));
        assert_eq!(within.clone().unlike_sealed(), within);
    }

    #[test]
    fn p1_debug_output_does_not_show_the_value() {
        let secret = Payload::encode("hunter2").unwrap();
        assert!(!format!("{secret:?}").contains("hunter2"));
    }
}
