//! Facts: what happened, recorded once and for all, and folded into documents in the same commit.
//!
//! A [`Projection`] is made of pure functions: which documents a fact concerns, and what such a
//! document is after it. They run inside the commit, so they must be quick and cannot wait.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::future::{IntoFuture, Ready, ready};
use std::marker::PhantomData;
use std::sync::Arc;

use roundel_core::{Failure, Name, NewFact, Payload, Projection as Fold};
use roundel_store::Tx;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::cx::{decode, encode, name, record_in_step};
use crate::ids::new_fact;
use crate::names::assert_name;
use crate::{EngineBuilder, Error};

/// A kind of fact, with the type of what it says.
///
/// ```
/// use roundel::Fact;
/// const PAID: Fact<u64> = Fact::named("paid");
/// ```
pub struct Fact<T> {
    name: &'static str,
    version: u32,
    types: PhantomData<fn(T)>,
}

impl<T> Clone for Fact<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Fact<T> {}

impl<T> std::fmt::Debug for Fact<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Fact({})", self.name)
    }
}

impl<T> Fact<T> {
    /// The kind of fact of this name.
    #[must_use]
    pub const fn named(name: &'static str) -> Self {
        assert_name(name);
        Fact {
            name,
            version: 1,
            types: PhantomData,
        }
    }

    /// What it says has this version; 1 unless said.
    #[must_use]
    pub const fn version(self, version: u32) -> Self {
        Fact { version, ..self }
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> Name {
        Name::constant(self.name)
    }
}

impl<T: Serialize> Fact<T> {
    /// Records it as part of a step: with the step's own writes, or not at all. If a projection
    /// fails, so does the step.
    pub fn record(self, _tx: &Tx, says: &T) -> RecordInStep {
        RecordInStep(self.saying(says))
    }

    /// Such a fact, under an id of its own.
    pub(crate) fn saying(self, says: &T) -> Result<NewFact, Failure> {
        let id = new_fact();
        let fact = NewFact::new(id, self.name(), encode(says)?);
        Ok(NewFact {
            version: self.version,
            ..fact
        })
    }
}

/// A fact that a step records. Await it, in the step.
#[must_use = "it does nothing unless awaited"]
#[derive(Debug)]
pub struct RecordInStep(Result<NewFact, Failure>);

impl RecordInStep {
    /// Under this id: the same fact twice is one.
    pub fn id(self, id: impl Into<Cow<'static, str>>) -> Self {
        RecordInStep(self.0.and_then(|fact| {
            let id = name(id.into())?;
            Ok(NewFact { id, ..fact })
        }))
    }

    /// Counted in this stream.
    pub fn stream(self, stream: impl Into<Cow<'static, str>>) -> Self {
        RecordInStep(self.0.and_then(|fact| {
            let stream = Some(name(stream.into())?);
            Ok(NewFact { stream, ..fact })
        }))
    }

    /// Only if its stream has so many facts before it.
    pub fn expecting(self, facts: u64) -> Self {
        RecordInStep(self.0.map(|fact| NewFact {
            expected: Some(facts),
            ..fact
        }))
    }
}

impl IntoFuture for RecordInStep {
    type Output = Result<(), Failure>;
    type IntoFuture = Ready<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        ready(self.0.and_then(record_in_step))
    }
}

/// How facts are folded into documents of one type.
///
/// ```
/// use roundel::{Fact, Projection};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// struct Paid { account: String, cents: u64 }
/// const PAID: Fact<Paid> = Fact::named("paid");
///
/// let balances = Projection::<u64>::named("balances").fold(
///     PAID,
///     |paid| vec![format!("balance/{}", paid.account)],
///     |balance, paid| Ok(Some(balance.unwrap_or(0) + paid.cents)),
/// );
/// ```
pub struct Projection<D> {
    name: &'static str,
    folds: Vec<(Name, FoldInto)>,
    unknown: Vec<FoldUnknown>,
    document: PhantomData<fn(D) -> D>,
}

impl<D> std::fmt::Debug for Projection<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Projection({})", self.name)
    }
}

/// Where a fact is folded in, and how.
#[derive(Clone)]
pub(crate) struct FoldInto {
    paths: Arc<Paths>,
    fold: Fold,
}

type Paths = dyn Fn(&Payload) -> Result<Vec<Name>, Failure> + Send + Sync;

impl<D: Serialize + DeserializeOwned> Projection<D> {
    /// The projection of this name.
    #[must_use]
    pub fn named(name: &'static str) -> Self {
        assert_name(name);
        Projection {
            name,
            folds: Vec::new(),
            unknown: Vec::new(),
            document: PhantomData,
        }
    }

    /// Folds such facts into the documents at these paths. `fold` is given the document as it was,
    /// if there was one, and gives it as it is; none removes it.
    #[must_use]
    pub fn fold<T, P, F>(mut self, fact: Fact<T>, paths: P, fold: F) -> Self
    where
        T: DeserializeOwned + 'static,
        P: Fn(&T) -> Vec<String> + Send + Sync + 'static,
        F: Fn(Option<D>, &T) -> Result<Option<D>, Failure> + Send + Sync + 'static,
        D: 'static,
    {
        let paths: Arc<Paths> = Arc::new(move |data| {
            let paths = paths(&decode(data)?).into_iter();
            paths.map(|path| name(Cow::Owned(path))).collect()
        });
        let fold = Fold::new(Name::constant(self.name), move |document, _, fact| {
            let document = document.map(decode).transpose()?;
            let after = fold(document, &decode(&fact.data)?)?;
            after.as_ref().map(encode).transpose()
        });
        self.folds.push((fact.name(), FoldInto { paths, fold }));
        self
    }
}

/// All projections of a process, by the kind of fact that they fold.
#[derive(Clone, Default)]
pub(crate) struct Projections {
    by_kind: BTreeMap<Name, Vec<FoldInto>>,
    names: Vec<&'static str>,
    /// For kinds that nothing else folds.
    unknown: Vec<FoldUnknown>,
}

/// A fact of a kind that nothing else folds.
#[derive(Clone, PartialEq, Debug)]
pub struct UnknownFact {
    /// What kind it is.
    pub kind: Name,
    /// The version of what it says.
    pub version: u32,
    /// What it says.
    pub data: serde_json::Value,
}

/// Where facts of unknown kinds are folded in, and how.
#[derive(Clone)]
pub(crate) struct FoldUnknown {
    paths: Arc<PathsOfUnknown>,
    fold: Fold,
}

type PathsOfUnknown = dyn Fn(&UnknownFact) -> Result<Vec<Name>, Failure> + Send + Sync;

impl UnknownFact {
    fn of(kind: &Name, version: u32, data: &Payload) -> Result<UnknownFact, Failure> {
        Ok(UnknownFact {
            kind: kind.clone(),
            version,
            data: decode(data)?,
        })
    }
}

impl std::fmt::Debug for Projections {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Projections({:?})", self.names)
    }
}

impl Projections {
    /// The fact, with where it is folded in.
    pub(crate) fn with_documents(&self, mut fact: NewFact) -> Result<NewFact, Failure> {
        for into in self.by_kind.get(&fact.kind).into_iter().flatten() {
            for path in (into.paths)(&fact.data)? {
                fact.into.push((path, into.fold.clone()));
            }
        }
        Ok(fact)
    }
}

impl Projections {
    /// Is anything folded here?
    pub(crate) fn folds_any(&self) -> bool {
        !self.names.is_empty()
    }

    /// Are such facts folded here, other than as unknown ones?
    pub(crate) fn knows(&self, kind: &Name) -> bool {
        self.by_kind.contains_key(kind)
    }

    /// A fact that comes in, with where it is folded in; none if nobody here knows it.
    pub(crate) fn take_in(&self, mut fact: NewFact) -> Result<Option<NewFact>, Failure> {
        if self.knows(&fact.kind) {
            return self.with_documents(fact).map(Some);
        }
        if self.unknown.is_empty() {
            return Ok(None);
        }
        let seen = UnknownFact::of(&fact.kind, fact.version, &fact.data)?;
        for unknown in &self.unknown {
            for path in (unknown.paths)(&seen)? {
                fact.into.push((path, unknown.fold.clone()));
            }
        }
        Ok(Some(fact))
    }
}

impl<D: Serialize + DeserializeOwned> Projection<D> {
    /// Folds facts that come in and are of kinds that nothing else here folds. Without this they
    /// are parked, until a process comes that folds them.
    #[must_use]
    pub fn fold_unknown<P, F>(mut self, paths: P, fold: F) -> Self
    where
        P: Fn(&UnknownFact) -> Vec<String> + Send + Sync + 'static,
        F: Fn(Option<D>, &UnknownFact) -> Result<Option<D>, Failure> + Send + Sync + 'static,
        D: 'static,
    {
        let paths: Arc<PathsOfUnknown> = Arc::new(move |fact| {
            let paths = paths(fact).into_iter();
            paths.map(|path| name(Cow::Owned(path))).collect()
        });
        let fold = Fold::new(Name::constant(self.name), move |document, _, fact| {
            let document = document.map(decode).transpose()?;
            let fact = UnknownFact::of(&fact.kind, fact.version, &fact.data)?;
            let after = fold(document, &fact)?;
            after.as_ref().map(encode).transpose()
        });
        self.unknown.push(FoldUnknown { paths, fold });
        self
    }
}

impl EngineBuilder {
    /// Folds facts into documents, in the commit that records them.
    pub fn project<D>(mut self, projection: Projection<D>) -> Self {
        if self.projections.names.contains(&projection.name) {
            self.config = Err(Error::Setup(format!(
                "the projection `{}` is registered twice; give one of them another name",
                projection.name
            )));
            return self;
        }
        self.projections.names.push(projection.name);
        self.projections.unknown.extend(projection.unknown);
        for (kind, into) in projection.folds {
            self.projections.by_kind.entry(kind).or_default().push(into);
        }
        self
    }
}
