//! The shape of what is taken and given: types that can be read or written as JSON, and know their
//! own schema. What the OpenAPI document says is what the compiler knows.

use std::collections::BTreeMap;

use roundel::{Entry, Failure, Name, Payload, RunId, RunState, Timestamp};
use roundel_core::Outcome;
use serde_json::{Map, Value, json};

/// It knows its own schema.
pub(crate) trait Shape {
    /// May it be left out, or be null?
    const OPTIONAL: bool = false;

    /// Its JSON schema.
    fn schema() -> Value;
}

/// Nothing is taken, or given.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nothing {}

impl Shape for Nothing {
    fn schema() -> Value {
        json!({"type": "object", "properties": {}, "additionalProperties": false})
    }
}

/// A field: its name, whether it may be left out, its schema, and what it is.
pub(crate) type Field = (&'static str, bool, Value, &'static str);

/// The schema of an object with these fields, and no others.
pub(crate) fn object(fields: Vec<Field>) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for (name, optional, mut schema, about) in fields {
        if let Some(schema) = schema.as_object_mut().filter(|_| !about.is_empty()) {
            schema.insert("description".to_owned(), about.trim().into());
        }
        if !optional {
            required.push(name);
        }
        properties.insert(name.to_owned(), schema);
    }
    json!({
        "type": "object", "properties": properties, "required": required,
        "additionalProperties": false,
    })
}

/// Reads a struct by the names of its fields alone: the rule that a list of values is one too, in
/// their order, is nobody's interface.
pub(crate) struct Named<D>(pub(crate) D);

impl<'de, D: serde::Deserializer<'de>> serde::Deserializer<'de> for Named<D> {
    type Error = D::Error;

    fn deserialize_any<V: serde::de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_map(visitor)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier
        ignored_any
    }
}

/// A struct that is read from a request.
macro_rules! input {
    ($(#[doc = $about:literal])* $see:vis struct $name:ident {
        $($(#[doc = $doc:literal])* $field:ident: $type:ty,)*
    }) => {
        $(#[doc = $about])*
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields, remote = "Self")]
        $see struct $name { $($(#[doc = $doc])* $see $field: $type,)* }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                Self::deserialize($crate::shape::Named(from))
            }
        }

        impl $crate::shape::Shape for $name {
            fn schema() -> serde_json::Value {
                $crate::shape::object(vec![$((
                    stringify!($field),
                    <$type as $crate::shape::Shape>::OPTIONAL,
                    <$type as $crate::shape::Shape>::schema(),
                    concat!($($doc),*),
                ),)*])
            }
        }
    };
}

/// A struct that is written to an answer. Fields that have no value are null.
macro_rules! output {
    ($(#[doc = $about:literal])* $see:vis struct $name:ident {
        $($(#[doc = $doc:literal])* $field:ident: $type:ty,)*
    }) => {
        $(#[doc = $about])*
        #[derive(Clone, Debug, serde::Serialize)]
        $see struct $name { $($(#[doc = $doc])* $see $field: $type,)* }

        impl $crate::shape::Shape for $name {
            fn schema() -> serde_json::Value {
                $crate::shape::object(vec![$((
                    stringify!($field),
                    false,
                    <$type as $crate::shape::Shape>::schema(),
                    concat!($($doc),*),
                ),)*])
            }
        }
    };
}

pub(crate) use {input, output};

macro_rules! plain {
    ($($type:ty => $schema:tt;)*) => {
        $(impl Shape for $type {
            fn schema() -> Value {
                json!($schema)
            }
        })*
    };
}

plain! {
    String => {"type": "string"};
    &'static str => {"type": "string"};
    bool => {"type": "boolean"};
    u16 => {"type": "integer", "minimum": 0, "maximum": 65535};
    u32 => {"type": "integer", "minimum": 0};
    u64 => {"type": "integer", "minimum": 0};
    usize => {"type": "integer", "minimum": 0};
    i32 => {"type": "integer"};
    Name => {"type": "string", "minLength": 1, "maxLength": 256};
    RunId => {"type": "string", "format": "uuid"};
    roundel::PublicationId => {"type": "string", "format": "uuid"};
    Timestamp => {"type": "integer", "description": "Microseconds since 1970, UTC."};
    Payload => {"description": "Any JSON."};
    Value => {"description": "Any JSON."};
    Entry => {"description": "An entry of a journal: its kind, with what belongs to it."};
    Failure => {"type": "object", "description": "A failure: class, code, message, trace."};
    Outcome => {"type": "object", "description": "A value, or a failure."};
}

impl Shape for RunState {
    fn schema() -> Value {
        let words: Vec<&str> = RunState::ALL.iter().map(|state| state.as_str()).collect();
        json!({"type": "string", "enum": words})
    }
}

impl<T: Shape> Shape for Option<T> {
    const OPTIONAL: bool = true;

    fn schema() -> Value {
        let mut schema = T::schema();
        let words = schema.get("type").cloned();
        if let (Some(Value::String(word)), Some(schema)) = (words, schema.as_object_mut()) {
            schema.insert("type".to_owned(), json!([word, "null"]));
            if let Some(Value::Array(words)) = schema.get_mut("enum") {
                words.push(Value::Null);
            }
        }
        schema
    }
}

impl<T: Shape> Shape for Vec<T> {
    fn schema() -> Value {
        json!({"type": "array", "items": T::schema()})
    }
}

impl<T: Shape> Shape for Box<T> {
    fn schema() -> Value {
        T::schema()
    }
}

impl<T: Shape> Shape for BTreeMap<String, T> {
    fn schema() -> Value {
        json!({"type": "object", "additionalProperties": T::schema()})
    }
}

/// Some of many.
#[derive(Clone, Debug, serde::Serialize)]
pub(crate) struct Listing<T> {
    /// These.
    pub(crate) items: Vec<T>,
    /// What to ask with for those after them; none if there are no more.
    pub(crate) next: Option<String>,
}

impl<T: Shape> Shape for Listing<T> {
    fn schema() -> Value {
        let next =
            "What to ask with, as `cursor`, for those after them; null if there are no more.";
        object(vec![
            ("items", false, Vec::<T>::schema(), ""),
            ("next", false, Option::<String>::schema(), next),
        ])
    }
}

/// A part of a list through which it is looked stretch by stretch.
#[derive(Clone, Debug, serde::Serialize)]
pub(crate) struct Looked<T> {
    /// These.
    pub(crate) items: Vec<T>,
    /// What to ask with to go on; none if all was looked at.
    pub(crate) next: Option<String>,
    /// How far back that was.
    pub(crate) looked_to: Option<Timestamp>,
}

impl<T> Looked<T> {
    /// These, if it goes on there.
    pub(crate) fn of(items: Vec<T>, next: Option<String>, at: Option<RunId>) -> Looked<T> {
        Looked {
            items,
            next,
            looked_to: at.and_then(begun),
        }
    }
}

/// When this id was made, if it says so.
fn begun(run: RunId) -> Option<Timestamp> {
    let bytes = run.as_bytes();
    let mut millis = [0; 8];
    millis[2..].copy_from_slice(&bytes[..6]);
    let micros = i64::from_be_bytes(millis).checked_mul(1000)?;
    (bytes[6] >> 4 == 7).then_some(Timestamp(micros))
}

impl<T: Shape> Shape for Looked<T> {
    fn schema() -> Value {
        let next = "What to ask with, as `cursor`, to go on: also after a page that is short or \
            empty, since one request looks at so much and no more; null if all was looked at.";
        let looked = "All that is newer was looked at; null if all was, or it has no time.";
        object(vec![
            ("items", false, Vec::<T>::schema(), ""),
            ("next", false, Option::<String>::schema(), next),
            ("looked_to", false, Option::<Timestamp>::schema(), looked),
        ])
    }
}
