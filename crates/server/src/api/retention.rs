//! How long what has ended is kept. To shorten it is to delete, so whoever sets it may do that.

use roundel::{Keep, Name};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::{Delete, See};
use crate::problem::Problem;
use crate::route::{Ask, Json};
use crate::shape::{Nothing, Shape, input};
use crate::view::Retention;

pub(crate) async fn show(cap: See, _: Ask) -> Result<Json<Retention>, Problem> {
    let said = cap.client().retention().await?;
    Ok(Json(Retention::from(&said)))
}

/// Milliseconds, `ever`, or `program`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeepAsked(Option<Keep>);

impl<'de> Deserialize<'de> for KeepAsked {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<KeepAsked, D::Error> {
        let bad = || serde::de::Error::custom("say milliseconds, `ever`, or `program`");
        match Value::deserialize(from)? {
            Value::String(word) if word == "ever" => Ok(KeepAsked(Some(Keep::Ever))),
            Value::String(word) if word == "program" => Ok(KeepAsked(None)),
            value => {
                let millis = value.as_u64().ok_or_else(bad)?;
                Ok(KeepAsked(Some(Keep::Millis(millis))))
            }
        }
    }
}

impl Shape for KeepAsked {
    fn schema() -> Value {
        json!({"oneOf": [
            {"type": "integer", "minimum": 0}, {"enum": ["ever", "program"]},
        ]})
    }
}

input! {
    /// How long something is kept.
    pub(crate) struct Asked {
        /// In milliseconds; `ever`; or `program`: as each program says for itself.
        keep: KeepAsked,
        /// Trees whose root is of this workflow or queue; all that are not named unless said.
        workflow: Option<Name>,
        /// Why, for the audit.
        reason: Option<String>,
    }
}

pub(crate) async fn set(cap: Delete, ask: Ask<Nothing, Asked>) -> Result<Json<Retention>, Problem> {
    let Asked {
        keep,
        workflow,
        reason,
    } = ask.body;
    let client = cap.because(reason.as_deref());
    let said = client.keep(workflow, keep.0).await?;
    Ok(Json(Retention::from(&said)))
}
