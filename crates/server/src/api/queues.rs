//! Queues that have limits, and changing them.

use std::time::Duration;

use roundel::{Name, Queue as Handle};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::{Because, Operate, See};
use crate::problem::Problem;
use crate::route::{Ask, Json};
use crate::shape::{Listing, Nothing, Shape, input};
use crate::view::Queue;

pub(crate) async fn list(cap: See, _: Ask) -> Result<Json<Listing<Queue>>, Problem> {
    let queues = cap.client().queues().await?;
    Ok(Json(Listing {
        items: queues.iter().map(Queue::from).collect(),
        next: None,
    }))
}

/// A number, or `none` for no limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit(Option<u32>);

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Limit, D::Error> {
        let bad = || serde::de::Error::custom("a limit is a number, or `none`");
        match Value::deserialize(from)? {
            Value::String(word) if word == "none" => Ok(Limit(None)),
            value => {
                let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
                number.map(|number| Limit(Some(number))).ok_or_else(bad)
            }
        }
    }
}

impl Shape for Limit {
    fn schema() -> Value {
        json!({"oneOf": [{"type": "integer", "minimum": 1}, {"const": "none"}]})
    }
}

input! {
    /// Limits; what is not said stays as it is.
    pub(crate) struct LimitsAsked {
        /// So many in hand at once; `none` for as many as there are workers for.
        concurrency: Option<Limit>,
        /// So many with the same flow key; `none` for as many as there is room for.
        per_key: Option<Limit>,
        /// So many begun in `rate_ms`; `none` for as fast as they come.
        rate: Option<Limit>,
        /// The time in which `rate` counts, in milliseconds.
        rate_ms: Option<u64>,
        /// Why, for the audit.
        reason: Option<String>,
    }
}

fn queue<Q, B>(cap: &Operate, ask: &Ask<Q, B>, reason: Option<&str>) -> Result<Handle, Problem> {
    let name = Name::new(ask.name().to_owned())?;
    Ok(cap.because(reason).queue_named(name))
}

/// The limits as they are now.
async fn now(cap: &Operate, name: &str) -> Result<Json<Queue>, Problem> {
    let queues = cap.client().queues().await?;
    let found = queues.iter().find(|queue| queue.queue.as_str() == name);
    let found = found.ok_or_else(|| Problem::missing("the queue has no limits any more"))?;
    Ok(Json(Queue::from(found)))
}

pub(crate) async fn set(
    cap: Operate,
    ask: Ask<Nothing, LimitsAsked>,
) -> Result<Json<Queue>, Problem> {
    let asked = &ask.body;
    let mut queue = queue(&cap, &ask, asked.reason.as_deref())?;
    queue = match asked.concurrency {
        None => queue,
        Some(Limit(None)) => queue.any_concurrency(),
        Some(Limit(Some(most))) => queue.concurrency(most),
    };
    queue = match asked.per_key {
        None => queue,
        Some(Limit(None)) => queue.any_per_key(),
        Some(Limit(Some(most))) => queue.per_key(most),
    };
    queue = match (asked.rate, asked.rate_ms) {
        (None, None) => queue,
        (Some(Limit(None)), None) => queue.any_rate(),
        (Some(Limit(Some(count))), Some(ms)) => queue.rate(count, Duration::from_millis(ms)),
        _ => return Err(Problem::bad("say `rate` and `rate_ms` together")),
    };
    queue.set().await?;
    now(&cap, ask.name()).await
}

pub(crate) async fn pause(
    cap: Operate,
    ask: Ask<Nothing, Because>,
) -> Result<Json<Queue>, Problem> {
    queue(&cap, &ask, ask.body.reason.as_deref())?
        .pause()
        .await?;
    now(&cap, ask.name()).await
}

pub(crate) async fn resume(
    cap: Operate,
    ask: Ask<Nothing, Because>,
) -> Result<Json<Queue>, Problem> {
    queue(&cap, &ask, ask.body.reason.as_deref())?
        .resume()
        .await?;
    now(&cap, ask.name()).await
}
