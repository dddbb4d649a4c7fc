//! Recording facts from outside, and reading what they came to.

use std::borrow::Cow;
use std::future::IntoFuture;

use roundel_core::{
    BadName, DocumentId, FactId, Name, NewFact, Op, Record, RecordedFact, Reply, Timestamp,
};
use roundel_store::{
    Answer, DocumentFilter, DocumentView, FactFilter, FactView, Page, Position, Query, Stretch,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Boxed, Client, Inner, To};
use crate::cx::decode;
use crate::{Error, Fact};

/// Facts to be recorded together. Await it.
#[must_use = "it does nothing unless awaited"]
#[derive(Debug)]
pub struct RecordFacts {
    client: Client,
    facts: Result<Vec<NewFact>, Error>,
}

/// A document, as facts made it.
#[derive(Clone, Debug, PartialEq)]
pub struct Document<D> {
    /// What it says.
    pub value: D,
    /// How many facts it has taken up.
    pub version: u64,
    /// When it last did.
    pub at: Timestamp,
}

/// Some facts, in the order in which they were recorded. Say which, then fetch them.
#[must_use = "it does nothing unless fetched"]
#[derive(Clone, Debug)]
pub struct Facts {
    client: Client,
    filter: Result<FactFilter, BadName>,
}

impl Client {
    /// Records a fact, and folds it into its documents by the projections of this process. Await
    /// it, or say more first: an id, a stream, another fact.
    pub fn record<T: Serialize>(&self, fact: Fact<T>, says: &T) -> RecordFacts {
        RecordFacts {
            client: self.clone(),
            facts: Ok(Vec::new()),
        }
        .and(fact, says)
    }

    /// The document at this path, if there is one.
    ///
    /// # Errors
    /// When the database cannot be read, or the document is of another type.
    pub async fn document<D: DeserializeOwned>(
        &self,
        path: impl Into<Cow<'static, str>>,
    ) -> Result<Option<Document<D>>, Error> {
        let path = Name::new(path.into())?;
        let namespace = self.inner.namespace.clone();
        let query = Query::Document(DocumentId::at(namespace, path));
        let Answer::Documents(page) = self.inner.read(query).await? else {
            unreachable!("a document was asked for")
        };
        let found = page.items.into_iter().next();
        let Some((value, row)) = found.and_then(|(_, row)| Some((row.value.clone()?, row))) else {
            return Ok(None);
        };
        Ok(Some(Document {
            value: decode(&value)?,
            version: row.version,
            at: row.at,
        }))
    }

    /// Documents whose path begins like this, by path, after that one, up to `limit`.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn documents(
        &self,
        prefix: impl Into<String>,
        after: Option<Name>,
        limit: usize,
    ) -> Result<Page<DocumentView>, Error> {
        let namespace = self.inner.namespace.clone();
        let filter = DocumentFilter {
            after: after.map(|path| DocumentId::at(namespace.clone(), path)),
            namespace: Some(namespace),
            prefix: prefix.into(),
            removed: false,
            limit,
        };
        match self.inner.read(Query::Documents(filter)).await? {
            Answer::Documents(page) => Ok(page),
            _ => unreachable!("documents were asked for"),
        }
    }

    /// The fact of this id, if there is one.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn fact(&self, id: impl Into<Cow<'static, str>>) -> Result<Option<FactView>, Error> {
        let (namespace, id) = (self.inner.namespace.clone(), Name::new(id.into())?);
        let query = Query::Fact(FactId { namespace, id });
        match self.inner.read(query).await? {
            Answer::Facts(page) => Ok(page.items.into_iter().next()),
            _ => unreachable!("a fact was asked for"),
        }
    }

    /// Facts, in the order in which they were recorded.
    pub fn facts(&self) -> Facts {
        let filter = FactFilter {
            namespace: Some(self.inner.namespace.clone()),
            limit: 100,
            ..FactFilter::default()
        };
        Facts {
            client: self.clone(),
            filter: Ok(filter),
        }
    }
}

impl Inner {
    /// Records these facts, folded into documents by the projections of this process.
    pub(super) async fn record(&self, mut record: Record) -> Result<Vec<RecordedFact>, Error> {
        let into = |fact| self.projections.with_documents(fact);
        let facts = record.facts.into_iter().map(into);
        record.facts = facts.collect::<Result<_, _>>()?;
        record.by = self.name.clone();
        record.knows = self.projections.knows.clone();
        let recorded = match self.op(Op::Record(record)).await {
            Ok(Reply::Recorded(recorded)) => recorded,
            Ok(_) => unreachable!("facts are recorded"),
            Err(error) => {
                let failed = matches!(&error, Error::Refused(why) if why.of_facts().is_some());
                self.counters.facts_failed.add(u64::from(failed));
                return Err(error);
            }
        };
        let new = recorded.iter().filter(|fact| fact.new).count();
        self.counters.facts_recorded.add(new as u64);
        if recorded.iter().any(|fact| fact.let_go > 0) {
            self.after_recording(self.post.store().now()).await?;
        }
        Ok(recorded)
    }
}

impl RecordFacts {
    fn last(mut self, change: impl FnOnce(&mut NewFact) -> Result<(), Error>) -> Self {
        self.facts = self.facts.and_then(|mut facts| {
            change(facts.last_mut().expect("there is a first fact"))?;
            Ok(facts)
        });
        self
    }

    /// And this fact, in the same commit, after those before it. What is said next is about it.
    pub fn and<T: Serialize>(mut self, fact: Fact<T>, says: &T) -> Self {
        self.facts = self.facts.and_then(|mut facts| {
            facts.push(fact.saying(says)?);
            Ok(facts)
        });
        self
    }

    /// Under this id: the same fact twice is one.
    pub fn id(self, id: impl Into<Cow<'static, str>>) -> Self {
        self.last(|fact| {
            fact.id = Name::new(id.into())?;
            Ok(())
        })
    }

    /// Counted in this stream.
    pub fn stream(self, stream: impl Into<Cow<'static, str>>) -> Self {
        self.last(|fact| {
            fact.stream = Some(Name::new(stream.into())?);
            Ok(())
        })
    }

    /// Not before the fact of this id: without that, nothing is recorded. What may wait for it is
    /// handed in as an [`Arrival`](crate::Arrival).
    pub fn needs(self, id: impl Into<Cow<'static, str>>) -> Self {
        self.last(|fact| {
            fact.needs.push(Name::new(id.into())?);
            Ok(())
        })
    }

    /// Only if its stream has so many facts before it.
    pub fn expecting(self, facts: u64) -> Self {
        self.last(|fact| {
            fact.expected = Some(facts);
            Ok(())
        })
    }
}

impl IntoFuture for RecordFacts {
    type Output = Result<Vec<RecordedFact>, Error>;
    type IntoFuture = Boxed<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let record = Record::new(self.client.inner.namespace.clone(), self.facts?);
            self.client.inner.record(record).await
        })
    }
}

impl Facts {
    fn with(mut self, change: impl FnOnce(&mut FactFilter) -> Result<(), BadName>) -> Self {
        self.filter = self.filter.and_then(|mut filter| {
            change(&mut filter)?;
            Ok(filter)
        });
        self
    }

    /// Only those of this kind.
    pub fn kind(self, kind: impl Into<Cow<'static, str>>) -> Self {
        self.with(|filter| {
            filter.kind = Some(Name::new(kind.into())?);
            Ok(())
        })
    }

    /// Only those of this stream, in its order, after so many of them.
    pub fn stream(self, stream: impl Into<Cow<'static, str>>, after: u64) -> Self {
        self.with(|filter| {
            filter.stream = Some((Name::new(stream.into())?, after));
            Ok(())
        })
    }

    /// Only those that a run recorded.
    ///
    /// # Errors
    /// When there is no such run.
    pub async fn of_run(self, run: impl Into<To>) -> Result<Self, Error> {
        let run = self.client.run(run).await?.row.id;
        Ok(self.with(|filter| {
            filter.run = Some(run);
            Ok(())
        }))
    }

    /// Only those after this one, the last of the page before.
    pub fn after(self, position: Position) -> Self {
        self.with(|filter| {
            filter.after = Some(position);
            Ok(())
        })
    }

    /// How many at most; 100 unless said.
    pub fn limit(self, limit: usize) -> Self {
        self.with(|filter| {
            filter.limit = limit;
            Ok(())
        })
    }

    /// A [look](Facts::look) passes so many of all facts at most, 1 to [`LOOK`](crate::LOOK), which
    /// it is unless said.
    pub fn within(self, rows: usize) -> Self {
        self.with(|filter| {
            filter.look = Some(rows);
            Ok(())
        })
    }

    /// Fetches them: as many as were asked for if there are that many, however far off they are.
    ///
    /// # Errors
    /// When the database cannot be read, or a name is none.
    pub async fn fetch(self) -> Result<Page<FactView>, Error> {
        let (mut filter, mut items) = (self.filter?, Vec::new());
        filter.limit = filter.limit.clamp(1, 1000);
        loop {
            let found = self.client.inner.look_at_facts(filter.clone()).await?;
            filter.limit -= found.items.len();
            items.extend(found.items);
            match found.next {
                Some(next) if filter.limit > 0 => filter.after = Some(next),
                next => {
                    let more = next.is_some();
                    return Ok(Page { items, more });
                }
            }
        }
    }

    /// One look, which passes a bounded number of facts: as [`Runs::look`](crate::Runs::look). Go
    /// on [after](Facts::after) its `next`; in a stream, after the number of its last.
    ///
    /// # Errors
    /// When the database cannot be read, or a name is none.
    pub async fn look(self) -> Result<Stretch<FactView, Position>, Error> {
        self.client.inner.look_at_facts(self.filter?).await
    }
}

impl Inner {
    async fn look_at_facts(
        &self,
        filter: FactFilter,
    ) -> Result<Stretch<FactView, Position>, Error> {
        match self.read(Query::Facts(filter)).await? {
            Answer::Facts(found) => Ok(found),
            _ => unreachable!("facts were asked for"),
        }
    }
}
