//! A run's context: values that flow down to the runs that it sets off, as they are at that moment.
//! Each is one JSON value, kept as the text it came as, so that a process that does not know a key
//! passes it on untouched.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Name, Payload, Refusal, limits};

/// Values by key. Cloning is cheap enough: they are few, and shared.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Context(BTreeMap<Name, Payload>);

impl Context {
    /// Is there nothing in it?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &Name) -> Option<&Payload> {
        self.0.get(key)
    }

    /// From now on the key has this value.
    pub fn set(&mut self, key: Name, value: Payload) {
        self.0.insert(key, value);
    }

    /// Takes the values of another over; where both have one, the other's wins.
    pub fn take(&mut self, other: &Context) {
        let others = other.0.iter();
        self.0
            .extend(others.map(|(key, value)| (key.clone(), value.clone())));
    }

    /// All of it, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&Name, &Payload)> {
        self.0.iter()
    }

    /// Its size in bytes, which is what its limit counts.
    #[must_use]
    pub fn size(&self) -> usize {
        let each = |(key, value): (&Name, &Payload)| key.as_str().len() + value.size();
        self.0.iter().map(each).sum()
    }

    /// Is it within its limits?
    ///
    /// # Errors
    /// When it is not.
    pub fn check(&self) -> Result<(), Refusal> {
        Refusal::over("a context's keys", limits::CONTEXT_KEYS, self.0.len())?;
        let (limit, size) = (limits::CONTEXT_BYTES, self.size());
        Refusal::over("a context's size in bytes", limit, size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sc_61_what_goes_in_comes_out_to_the_byte() {
        let mut context = Context::default();
        let texts = [
            "null",
            r#"{"a":null,"b":[null,{}]}"#,
            r#""{\"not\": \"json\"}""#,
            r#""\u0000\u001f\n\"\\""#,
            r#""grüße 🚋 \ud83d""#,
            "12345678901234567890123",
        ];
        for (number, text) in texts.iter().enumerate() {
            let key = Name::new(format!("kéy {number}")).unwrap();
            context.set(key, Payload::parse(text).unwrap());
        }
        let stored = serde_json::to_string(&context).unwrap();
        let back: Context = serde_json::from_str(&stored).unwrap();
        assert_eq!(back, context);
        let values: Vec<&str> = back.iter().map(|(_, value)| value.as_str()).collect();
        assert_eq!(values, texts);
    }

    #[test]
    fn e10_a_context_is_limited() {
        let mut context = Context::default();
        for number in 0..limits::CONTEXT_KEYS {
            let key = Name::new(format!("k{number}")).unwrap();
            context.set(key, Payload::null());
        }
        assert!(context.check().is_ok());
        context.set(Name::constant("one more"), Payload::null());
        assert!(context.check().is_err());
        let mut large = Context::default();
        let value = "x".repeat(limits::CONTEXT_BYTES);
        large.set(Name::constant("k"), Payload::encode(&value).unwrap());
        assert!(large.check().is_err());
    }
}
