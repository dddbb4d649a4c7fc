//! Deciders: they look at documents and answer with facts. Documents they cannot write: nothing
//! that they are given can.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use roundel_core::{
    DocumentId, Failure, Item, Name, NewFact, Payload, Record, Refusal, Seen, Start, Timestamp,
};
use roundel_store::{Answer, Query};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Arrival, Client};
use crate::cx::{decode, new_start};
use crate::ids::new_run;
use crate::{Command, Error, Fact};

/// So often something is decided anew because what it was based on had changed meanwhile.
const TRIES: u32 = 32;
/// The first pause before that, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(100)];

/// Documents as they were looked at: generation and version, and value.
type Views = BTreeMap<Name, ((u32, u64), Option<Payload>)>;

/// What a decider may look at. What it has seen must still be so when its facts are recorded.
#[derive(Clone, Debug)]
pub struct Look {
    client: Client,
    seen: Arc<Mutex<Views>>,
    now: Timestamp,
}

/// What was decided: facts, and what the caller is told.
#[must_use = "it is nothing until the decider returns it"]
#[derive(Debug)]
pub struct Decision<T> {
    answer: T,
    facts: Result<Vec<NewFact>, Failure>,
    /// What comes in later, and what is sent.
    queued: Result<(Vec<Item>, Vec<Start>), Error>,
}

impl Client {
    /// Lets `decider` look at documents, and records the facts that it answers with, if what it saw
    /// is still so; else it decides anew. So deciders in any number of processes are as if they had
    /// come one after the other. It may be called several times: what it does must be to look and
    /// to answer.
    ///
    /// ```
    /// # use roundel::{Client, Decision, Error, Fact};
    /// const TAKEN: Fact<String> = Fact::named("seat taken");
    /// # async fn book(client: Client) -> Result<(), Error> {
    /// let booked = client.decide(|look| async move {
    ///     Ok(match look.document::<String>("seats/7").await? {
    ///         Some(_) => Decision::of(false),
    ///         None => Decision::of(true).record(TAKEN, &"ada".to_owned()),
    ///     })
    /// });
    /// let booked: bool = booked.await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// When the decider fails, when its facts cannot be recorded, or when what it looks at keeps
    /// changing.
    pub async fn decide<T, F, Fut>(&self, decider: F) -> Result<T, Error>
    where
        F: Fn(Look) -> Fut,
        Fut: Future<Output = Result<Decision<T>, Error>>,
    {
        self.decide_at(None, decider).await
    }

    /// The same, as of this time.
    pub(super) async fn decide_at<T, F, Fut>(
        &self,
        now: Option<Timestamp>,
        decider: F,
    ) -> Result<T, Error>
    where
        F: Fn(Look) -> Fut,
        Fut: Future<Output = Result<Decision<T>, Error>>,
    {
        let [mut pause, longest] = PAUSES;
        let mut tries = 1;
        loop {
            let look = Look {
                client: self.clone(),
                seen: Arc::default(),
                now: now.unwrap_or_else(|| self.now()),
            };
            let Decision {
                answer,
                facts,
                queued,
            } = decider(look.clone()).await?;
            let (queued, sent) = queued?;
            let namespace = &self.inner.namespace;
            let sent = sent.into_iter().map(|start| Start {
                namespace: namespace.clone(),
                ..start
            });
            let sent = sent.collect();
            let record = Record {
                seen: look.seen(),
                own: true,
                queued,
                sent,
                ..Record::new(self.inner.namespace.clone(), facts?)
            };
            let changed = match self.inner.record(record).await {
                Ok(_) => return Ok(answer),
                Err(Error::Refused(refusal)) if is_outdated(&refusal) => refusal,
                Err(error) => return Err(error),
            };
            if tries == TRIES {
                return Err(Error::Refused(changed));
            }
            tries += 1;
            let clock = self.inner.post.store().clock().clone();
            clock.sleep_until(self.now().after(pause)).await;
            pause = (pause * 2).min(longest);
        }
    }
}

/// And this command, in the namespace of whoever decides.
pub(super) fn with_command(
    mut queued: (Vec<Item>, Vec<Start>),
    queue: Name,
    payload: Payload,
) -> (Vec<Item>, Vec<Start>) {
    let (namespace, what) = (Name::constant("default"), (queue, None));
    queued
        .1
        .push(new_start(namespace, new_run(), what, payload));
    queued
}

/// Is it refused because something has changed since it was looked at?
fn is_outdated(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::Stale { .. } | Refusal::StreamMoved { .. })
}

impl Look {
    /// The document at this path, if there is one. Looked at twice, it is the same.
    ///
    /// # Errors
    /// When the database cannot be read, or the document is of another type.
    pub async fn document<D: DeserializeOwned>(
        &self,
        path: impl Into<Cow<'static, str>>,
    ) -> Result<Option<D>, Error> {
        let path = Name::new(path.into())?;
        let known = self.lock().get(&path).cloned();
        let (_, value) = match known {
            Some(known) => known,
            None => self.read(path).await?,
        };
        Ok(value.as_ref().map(decode).transpose()?)
    }

    /// When the decision is made, by the database's clock.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.now
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Views> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn read(&self, path: Name) -> Result<((u32, u64), Option<Payload>), Error> {
        let namespace = self.client.inner.namespace.clone();
        let id = DocumentId::at(namespace, path.clone());
        let Answer::Documents(page) = self.client.inner.read(Query::Document(id)).await? else {
            unreachable!("a document was asked for")
        };
        let row = page.items.into_iter().next();
        let found = row.map_or(((0, 0), None), |(id, row)| {
            ((id.generation, row.version), row.value)
        });
        self.lock().insert(path, found.clone());
        Ok(found)
    }

    /// What was looked at, and how it was.
    fn seen(&self) -> Vec<Seen> {
        let seen = self.lock();
        let seen = seen.iter().map(|(path, ((generation, version), _))| Seen {
            path: path.clone(),
            version: *version,
            generation: *generation,
        });
        seen.collect()
    }
}

impl<T> Decision<T> {
    /// This is told to the caller.
    pub fn of(answer: T) -> Decision<T> {
        Decision {
            answer,
            facts: Ok(Vec::new()),
            queued: Ok((Vec::new(), Vec::new())),
        }
    }

    /// And this fact comes in later: it is put into the queue in the same commit.
    pub fn append(mut self, arrival: Arrival) -> Self {
        self.queued = self.queued.and_then(|mut queued| {
            queued.0.push(arrival.for_later()?);
            Ok(queued)
        });
        self
    }

    /// And this command is sent, in the same commit.
    pub fn send<I: Serialize, O>(mut self, command: Command<I, O>, payload: &I) -> Self {
        self.queued = self.queued.and_then(|queued| {
            let payload = crate::cx::encode(payload)?;
            Ok(with_command(queued, command.queue(), payload))
        });
        self
    }

    /// What was decided in JSON.
    pub(super) fn in_json(
        answer: T,
        facts: Vec<NewFact>,
        queued: (Vec<Item>, Vec<Start>),
    ) -> Decision<T> {
        Decision {
            answer,
            facts: Ok(facts),
            queued: Ok(queued),
        }
    }

    /// And this fact is recorded, after those before it. What is said next is about it.
    pub fn record<S: Serialize>(mut self, fact: Fact<S>, says: &S) -> Self {
        self.facts = self.facts.and_then(|mut facts| {
            facts.push(fact.saying(says)?);
            Ok(facts)
        });
        self
    }

    fn last(mut self, change: impl FnOnce(&mut NewFact) -> Result<(), Failure>) -> Self {
        self.facts = self.facts.and_then(|mut facts| {
            let missing = || Failure::permanent("say first which fact is recorded");
            change(facts.last_mut().ok_or_else(missing)?)?;
            Ok(facts)
        });
        self
    }

    /// Under this id: the same fact twice is one.
    pub fn id(self, id: impl Into<Cow<'static, str>>) -> Self {
        self.last(|fact| {
            fact.id = crate::cx::name(id.into())?;
            Ok(())
        })
    }

    /// Counted in this stream.
    pub fn stream(self, stream: impl Into<Cow<'static, str>>) -> Self {
        self.last(|fact| {
            fact.stream = Some(crate::cx::name(stream.into())?);
            Ok(())
        })
    }
}
