//! Facts that come in: handed in one by one or together, queued for later, and taken by ticks.
//!
//! Whether one is recorded, waits or is parked, the store decides, in one commit. Here is what only
//! this process knows: which kinds of facts it folds, and into what.

use std::borrow::Cow;
use std::time::Duration;

use roundel_core::{
    BadName, Envelope, Item, Name, NewFact, Payload, Received, RunId, RunState, Take, Timestamp,
};
use roundel_store::{Page, RunView};
use serde::Serialize;

use super::Client;
use super::intake::MOST;
use crate::cx::encode;
use crate::ids::new_fact;
use crate::{Error, Fact};

/// A fact that comes in.
#[must_use = "it does nothing unless it is handed in"]
#[derive(Debug)]
pub struct Arrival {
    envelope: Result<Envelope, Error>,
    patience: Option<Duration>,
}

/// What became of facts that came in.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TakenIn {
    /// Recorded.
    pub recorded: usize,
    /// Recorded before.
    pub repeated: usize,
    /// They wait for facts that they need.
    pub waiting: usize,
    /// They could not be recorded, and wait for an operator.
    pub parked: usize,
    /// They could neither be recorded nor kept: another fact has their id.
    pub refused: usize,
    /// Of those that were handed in, what became of each, in order.
    pub each: Vec<Received>,
}

/// What a tick did.
#[derive(Debug, Default)]
pub struct Ticked {
    /// With the facts that were in the queue. Nothing if this process folds none.
    pub incoming: TakenIn,
    /// There are more in the queue.
    pub more: bool,
    /// Jobs that were done.
    pub jobs: usize,
    /// Those that failed, and why; the others were run all the same.
    pub failed: Vec<(Name, Error)>,
}

/// A fact in the queue.
#[derive(Clone, Debug)]
pub struct Queued {
    /// The run that it is.
    pub run: RunView,
    /// The fact; none if it cannot be read.
    pub fact: Option<Envelope>,
    /// Of the facts that it needs, those that are not there.
    pub missing: Vec<Name>,
}

impl Arrival {
    /// Such a fact.
    pub fn of<T: Serialize>(fact: Fact<T>, says: &T) -> Arrival {
        let fact = fact.saying(says).map_err(Error::from);
        Arrival {
            envelope: fact.map(|fact| Envelope::of(&fact)),
            patience: None,
        }
    }

    /// A fact of this kind, with any JSON.
    pub fn named(kind: Name, data: Payload) -> Arrival {
        Arrival::from(Envelope::of(&NewFact::new(new_fact(), kind, data)))
    }

    fn with(mut self, change: impl FnOnce(&mut Envelope) -> Result<(), BadName>) -> Arrival {
        self.envelope = self.envelope.and_then(|mut envelope| {
            change(&mut envelope)?;
            Ok(envelope)
        });
        self
    }

    /// Under this id: the same fact twice is one.
    pub fn id(self, id: impl Into<Cow<'static, str>>) -> Arrival {
        self.with(|envelope| {
            envelope.id = Name::new(id.into())?;
            Ok(())
        })
    }

    /// Counted in this stream.
    pub fn stream(self, stream: impl Into<Cow<'static, str>>) -> Arrival {
        self.with(|envelope| {
            envelope.stream = Some(Name::new(stream.into())?);
            Ok(())
        })
    }

    /// Not before the fact of this id, for which it waits.
    pub fn needs(self, id: impl Into<Cow<'static, str>>) -> Arrival {
        self.with(|envelope| {
            envelope.needs.push(Name::new(id.into())?);
            Ok(())
        })
    }

    /// So long it waits for what it needs, from when it was handed in; then it is parked. For ever
    /// unless said.
    pub fn patience(self, patience: Duration) -> Arrival {
        Arrival {
            patience: Some(patience),
            ..self
        }
    }

    /// For the queue.
    pub(super) fn for_later(self) -> Result<Item, Error> {
        let envelope = self.envelope?;
        Ok(Item {
            fact: envelope.fact(),
            envelope: encode(&envelope)?,
            from: None,
            take: Take::Queue,
            patience: self.patience,
        })
    }
}

impl From<Envelope> for Arrival {
    fn from(envelope: Envelope) -> Arrival {
        Arrival {
            envelope: Ok(envelope),
            patience: None,
        }
    }
}

impl TakenIn {
    pub(super) fn add(&mut self, received: &Received) {
        *match received {
            Received::Recorded(fact) if fact.new => &mut self.recorded,
            Received::Recorded(_) => &mut self.repeated,
            Received::Waiting { .. } => &mut self.waiting,
            Received::Parked { .. } => &mut self.parked,
            Received::Refused(_) => &mut self.refused,
            Received::Queued(_) | Received::Gone => return,
        } += 1;
    }

    /// Were some let go that had waited?
    fn lets_go(&self) -> bool {
        let lets =
            |received: &Received| matches!(received, Received::Recorded(fact) if fact.let_go > 0);
        self.each.iter().any(lets)
    }
}

impl Client {
    /// Puts a fact into the queue of those that come in, where a process that folds such facts
    /// takes it up: also one that this process does not know.
    ///
    /// # Errors
    /// When another fact has its id, or the database cannot be written.
    pub async fn append(&self, arrival: Arrival) -> Result<Received, Error> {
        let item = arrival.for_later()?;
        let received = self.inner.receive(vec![item]).await?;
        one(received)
    }

    /// Takes a fact in: it is recorded, waits for those that it needs, or is parked. If others
    /// waited for it, they are taken in next.
    ///
    /// # Errors
    /// When another fact has its id, or the database cannot be written.
    pub async fn handle_fact(&self, arrival: Arrival) -> Result<Received, Error> {
        let taken = self.handle_batch(vec![arrival]).await?;
        one(taken.each)
    }

    /// Takes facts in, in this order, each on its own: if one cannot be recorded, the others are.
    ///
    /// # Errors
    /// When the database cannot be written. Those before may have been taken: hand them all in
    /// again, under the same ids.
    pub async fn handle_batch(&self, arrivals: Vec<Arrival>) -> Result<TakenIn, Error> {
        let mut taken = TakenIn::default();
        let mut items = Vec::with_capacity(arrivals.len());
        for arrival in arrivals {
            let mut item = arrival.for_later()?;
            self.inner.prepare(&mut item);
            items.push(item);
        }
        let received = self.inner.receive(items).await?;
        received.iter().for_each(|one| taken.add(one));
        taken.each = received;
        if taken.lets_go() {
            self.inner.drain(self.now(), MOST).await?;
        }
        Ok(taken)
    }

    /// One turn of everything that this process does about facts, as of this time: takes those that
    /// came in, in order, each in a round of its own that also removes it from the queue; then runs
    /// the jobs. One that fails stops no other. Without a projection, the queue is left alone.
    ///
    /// # Errors
    /// When the database cannot be read or written. What was done until then stays.
    pub async fn tick(&self, now: Timestamp) -> Result<Ticked, Error> {
        let begun = std::time::Instant::now();
        let mut ticked = Ticked::default();
        if self.inner.projections.folds_any() {
            let (incoming, more) = self.inner.drain(now, MOST).await?;
            (ticked.incoming, ticked.more) = (incoming, more);
            let taken_up = self.inner.take_up_unknown().await?;
            ticked.incoming.join(taken_up);
        }
        for (name, input) in &self.inner.deciders.jobs {
            match self.decide_named_at(Some(now), name, input).await {
                Ok(_) => ticked.jobs += 1,
                Err(error) => ticked.failed.push((name.clone(), error)),
            }
        }
        let counters = &self.inner.counters;
        counters.ticks.one();
        counters.jobs_failed.add(ticked.failed.len() as u64);
        counters.tick_times.note(begun.elapsed());
        Ok(ticked)
    }

    /// Facts in the queue: those of this state, newest first, after this one. Ready ones are taken
    /// by the next tick, waiting ones when what they need is there, parked ones by an operator.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn incoming(
        &self,
        state: RunState,
        after: Option<RunId>,
        limit: usize,
    ) -> Result<Page<Queued>, Error> {
        let page = self.inner.items_in(state, after, limit).await?;
        let mut items = Vec::with_capacity(page.items.len());
        for run in page.items {
            let fact = self.inner.envelope(&run).await?;
            let mut missing = Vec::new();
            for id in fact.iter().flat_map(|fact| &fact.needs) {
                if self.fact(id.as_str().to_owned()).await?.is_none() {
                    missing.push(id.clone());
                }
            }
            items.push(Queued { run, fact, missing });
        }
        Ok(Page {
            items,
            more: page.more,
        })
    }
}

/// What became of the only one.
fn one(received: Vec<Received>) -> Result<Received, Error> {
    match received.into_iter().next() {
        Some(Received::Refused(refusal)) => Err(Error::Refused(*refusal)),
        Some(received) => Ok(received),
        None => unreachable!("one was handed in"),
    }
}

impl TakenIn {
    fn join(&mut self, other: TakenIn) {
        self.recorded += other.recorded;
        self.repeated += other.repeated;
        self.waiting += other.waiting;
        self.parked += other.parked;
        self.refused += other.refused;
        self.each.extend(other.each);
    }
}
