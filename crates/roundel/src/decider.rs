//! Deciders by name, which are given JSON and answer in JSON, and jobs: deciders that every tick
//! runs.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use roundel_core::{Infrastructure, Name, Payload};
use serde::Serialize;
use serde_json::Value;

use crate::cx::encode;
use crate::{EngineBuilder, Error, Look};

type Deciding = Pin<Box<dyn Future<Output = Result<Value, Error>> + Send>>;

/// A decider that answers in JSON.
pub(crate) type Decider = Arc<dyn Fn(Look, Value) -> Deciding + Send + Sync>;

/// All deciders of a process that have names.
#[derive(Clone, Default)]
pub(crate) struct Deciders {
    pub(crate) by_name: BTreeMap<Name, Decider>,
    /// What every tick runs, in order, and with what.
    pub(crate) jobs: Vec<(Name, Payload)>,
    pub(crate) infrastructure: Infrastructure,
}

impl fmt::Debug for Deciders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Deciders({:?})", self.by_name.keys())
    }
}

impl EngineBuilder {
    /// Decides under this name, in JSON: given an input, it looks at documents and answers with
    /// `{"facts": [..], "writes": {"outgoing": [..]}, "reply": ..}`. A fact is
    /// `{"kind": .., "data": ..}`, and may have an `id`, a `version`, a `stream` and `needs`. What
    /// it writes must be queues: a document that it writes is refused, with all of its answer.
    pub fn decider<F, Fut, E>(mut self, name: impl Into<Cow<'static, str>>, decider: F) -> Self
    where
        F: Fn(Look, Value) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Value, E>> + Send + 'static,
        E: Into<Error>,
    {
        let name = match Name::new(name.into()) {
            Ok(name) => name,
            Err(error) => {
                self.config = Err(error.into());
                return self;
            }
        };
        let decider: Decider = Arc::new(move |look, input| {
            let deciding = decider(look, input);
            Box::pin(async move { deciding.await.map_err(Into::into) })
        });
        let text = format!("the decider `{name}` is registered twice; give one another name");
        if self.deciders.by_name.insert(name, decider).is_some() {
            self.config = Err(Error::Setup(text));
        }
        self
    }

    /// Every [tick](crate::Client::tick) runs this decider with this input, after those jobs that
    /// were named before it.
    pub fn job<I: Serialize>(mut self, decider: impl Into<Cow<'static, str>>, input: &I) -> Self {
        let job = Name::new(decider.into()).map_err(Error::from);
        match job.and_then(|name| Ok((name, encode(input)?))) {
            Ok(job) => self.deciders.jobs.push(job),
            Err(error) => self.config = Err(error),
        }
        self
    }

    /// Which paths are queues for deciders that answer in JSON: `incoming`, and `outgoing` for the
    /// commands of that name, unless said.
    pub fn infrastructure(mut self, paths: Infrastructure) -> Self {
        self.deciders.infrastructure = paths;
        self
    }
}

impl Deciders {
    /// Is every job there?
    pub(crate) fn check(&self) -> Result<(), Error> {
        let missing = |(name, _): &&(Name, Payload)| !self.by_name.contains_key(name);
        match self.jobs.iter().find(missing) {
            None => Ok(()),
            Some((name, _)) => Err(Error::Setup(format!(
                "the job `{name}` is no decider; register one of that name"
            ))),
        }
    }
}
