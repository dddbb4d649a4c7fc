//! How long what has ended is kept.

use std::collections::BTreeMap;

use roundel::Keep;
use serde_json::{Value, json};

use crate::shape::{Shape, output};

/// How long, as it is shown: milliseconds, or `ever`.
#[derive(Clone, Copy, Debug)]
pub struct KeptFor(Keep);

impl serde::Serialize for KeptFor {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Keep::Ever => to.serialize_str("ever"),
            Keep::Millis(millis) => to.serialize_u64(millis),
        }
    }
}

impl Shape for KeptFor {
    fn schema() -> Value {
        json!({"oneOf": [{"type": "integer", "minimum": 0}, {"const": "ever"}]})
    }
}

output! {
    /// How long what has ended is kept, as far as that is set for all processes.
    pub struct Retention {
        /// In milliseconds, or `ever`; null if programs have their word.
        ended: Option<KeptFor>,
        /// Trees whose root is of these workflows or queues, which go before the rest.
        workflows: BTreeMap<String, KeptFor>,
    }
}

impl From<&roundel::Retention> for Retention {
    fn from(said: &roundel::Retention) -> Retention {
        let workflows = said.workflows.iter();
        let workflows = workflows.map(|(name, keep)| (name.to_string(), KeptFor(*keep)));
        Retention {
            ended: said.ended.map(KeptFor),
            workflows: workflows.collect(),
        }
    }
}
