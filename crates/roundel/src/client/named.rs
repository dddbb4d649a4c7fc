//! Calling deciders by name, in JSON.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use roundel_core::{
    Envelope, Failure, Item, Name, NewFact, Payload, QueueKind, Start, Timestamp, Verdict,
};
use serde::Deserialize;
use serde_json::Value;

use super::decide::with_command;
use super::{Arrival, Client, Decision, Look};
use crate::Error;
use crate::cx::{decode, panicked};
use crate::decider::Decider;
use crate::ids::new_fact;

/// A fact as JSON has it: its id may be missing.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Said {
    id: Option<Name>,
    kind: Name,
    #[serde(default = "first")]
    version: u32,
    data: Payload,
    stream: Option<Name>,
    #[serde(default)]
    needs: Vec<Name>,
}

fn first() -> u32 {
    1
}

impl Said {
    fn envelope(self) -> Envelope {
        Envelope {
            id: self.id.unwrap_or_else(new_fact),
            kind: self.kind,
            version: self.version,
            data: self.data,
            stream: self.stream,
            needs: self.needs,
        }
    }
}

impl Client {
    /// Lets the decider of this name decide, with this input, and gives its reply. It is called
    /// again if what it looked at has changed meanwhile.
    ///
    /// # Errors
    /// When there is none of that name here, when it fails or writes a document, or when what it
    /// answers cannot be recorded.
    pub async fn decide_named(&self, name: &Name, input: &Payload) -> Result<Payload, Error> {
        self.decide_named_at(None, name, input).await
    }

    pub(super) async fn decide_named_at(
        &self,
        now: Option<Timestamp>,
        name: &Name,
        input: &Payload,
    ) -> Result<Payload, Error> {
        let Some(decider) = self.inner.deciders.by_name.get(name) else {
            let text = format!("there is no decider `{name}` here; register it with this engine");
            return Err(Error::Value(text));
        };
        let input: Value = decode(input)?;
        let decide = |look: Look| self.in_json((name, decider), look, input.clone());
        self.decide_at(now, decide).await
    }

    async fn in_json(
        &self,
        (name, decider): (&Name, &Decider),
        look: Look,
        input: Value,
    ) -> Result<Decision<Payload>, Error> {
        let deciding = AssertUnwindSafe(async { decider(look, input).await });
        let answer = match deciding.catch_unwind().await {
            Ok(answer) => answer?,
            Err(panic) => return Err(panicked(panic.as_ref()).into()),
        };
        let verdict: Verdict = serde_json::from_value(answer).map_err(|error| {
            let text = format!("the decider `{name}` answers what is no decision: {error}");
            Failure::permanent(text).with_code("no_decision")
        })?;
        let infrastructure = &self.inner.deciders.infrastructure;
        let writes = infrastructure.queued(name, &verdict.writes)?;
        let said = |payload: &Payload| {
            let said: Said = payload.decode().map_err(|error| {
                let text = format!("the decider `{name}` answers with what is no fact: {error}");
                Failure::permanent(text).with_code("no_fact")
            })?;
            Ok::<Envelope, Failure>(said.envelope())
        };
        let facts = verdict
            .facts
            .iter()
            .map(|fact| said(fact).map(|fact| fact.fact()));
        let facts = facts.collect::<Result<Vec<NewFact>, _>>()?;
        let mut queued: (Vec<Item>, Vec<Start>) = Default::default();
        for (queue, items) in writes {
            for item in items {
                match &queue {
                    QueueKind::Incoming => queued.0.push(Arrival::from(said(&item)?).for_later()?),
                    QueueKind::Commands(to) => queued = with_command(queued, to.clone(), item),
                }
            }
        }
        Ok(Decision::in_json(verdict.reply, facts, queued))
    }
}
