//! Projections of a process: how facts are folded into documents.
//!
//! A [`Projection`] is made of pure functions: which documents a fact concerns, and what such a
//! document is after it. They run inside the commit, so they must be quick and cannot wait. One
//! that follows takes facts up by later commits, in the order of all.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;
use std::sync::Arc;

use roundel_core::{
    ANY_KIND, Declare, FactRow, Failure, Folded, Folds, Name, NewFact, Payload, Projection as Fold,
    ProjectionId,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::cx::{decode, encode, name};
use crate::names::assert_name;
use crate::{EngineBuilder, Error, Fact};

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
    version: u32,
    follows: bool,
    folds: Vec<(Name, RawFold)>,
    unknown: Vec<FoldUnknown>,
    document: PhantomData<fn(D) -> D>,
}

impl<D> std::fmt::Debug for Projection<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Projection({})", self.name)
    }
}

/// Where facts of a kind are folded in, and how, once they are of this version.
#[derive(Clone)]
struct RawFold {
    version: u32,
    paths: Arc<Paths>,
    fold: Arc<FoldData>,
}

type Paths = dyn Fn(&Payload) -> Result<Vec<Name>, Failure> + Send + Sync;
type FoldData =
    dyn Fn(Option<&Payload>, &Payload) -> Result<Option<Payload>, Failure> + Send + Sync;

impl<D: Serialize + DeserializeOwned> Projection<D> {
    /// The projection of this name.
    #[must_use]
    pub fn named(name: &'static str) -> Self {
        assert_name(name);
        Projection {
            name,
            version: 1,
            follows: false,
            folds: Vec::new(),
            unknown: Vec::new(),
            document: PhantomData,
        }
    }

    /// Its code has this version; 1 unless said. A higher one than the database knows is built
    /// from all facts, beside the documents that are there, and takes their place.
    #[must_use]
    pub fn version(mut self, version: u32) -> Self {
        self.version = version;
        self
    }

    /// It takes facts up after they were recorded, in the order of all, so that it may take its
    /// time. A fact that it cannot fold in stops it, and not whoever recorded the fact.
    #[must_use]
    pub fn following(mut self) -> Self {
        self.follows = true;
        self
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
        let fold: Arc<FoldData> = Arc::new(move |document, data| {
            let document = document.map(decode).transpose()?;
            let after = fold(document, &decode(data)?)?;
            after.as_ref().map(encode).transpose()
        });
        let version = fact.version;
        self.folds.push((
            fact.name(),
            RawFold {
                version,
                paths,
                fold,
            },
        ));
        self
    }
}

/// What facts of older versions say, in the words of newer ones: by kind and version, the next
/// version and how it is made.
#[derive(Clone, Default)]
struct Upcasts(BTreeMap<(Name, u32), (u32, Arc<Upcast>)>);

type Upcast = dyn Fn(&Payload) -> Result<Payload, Failure> + Send + Sync;

impl Upcasts {
    /// What a fact says, in the words of this version.
    fn data<'a>(
        &self,
        (kind, version): (&Name, u32),
        data: &'a Payload,
        wanted: u32,
    ) -> Result<Cow<'a, Payload>, Failure> {
        let (mut at, mut data) = (version, Cow::Borrowed(data));
        while at != wanted {
            let step = self
                .0
                .get(&(kind.clone(), at))
                .filter(|(to, _)| *to <= wanted);
            let Some((to, upcast)) = step else {
                let message = format!(
                    "a fact `{kind}` has version {version}, and version {wanted} is folded here; \
                     say how one becomes the other with `upcast`, or take newer code"
                );
                return Err(Failure::permanent(message).with_code("fact_version"));
            };
            (at, data) = (*to, Cow::Owned(upcast(&data)?));
        }
        Ok(data)
    }
}

/// Where facts of a kind are folded in, and how, whatever their version.
#[derive(Clone)]
struct FoldInto {
    raw: RawFold,
    upcasts: Arc<Upcasts>,
    fold: Fold,
}

impl FoldInto {
    fn new(id: (&Name, u32), raw: &RawFold, upcasts: &Arc<Upcasts>) -> FoldInto {
        let (wanted, fold, all) = (raw.version, raw.fold.clone(), upcasts.clone());
        let fold = Fold::new(id.0.clone(), move |document, _, fact: &FactRow| {
            let data = all.data((&fact.kind, fact.version), &fact.data, wanted)?;
            fold(document, &data)
        });
        FoldInto {
            raw: raw.clone(),
            upcasts: upcasts.clone(),
            fold: fold.with_version(id.1),
        }
    }

    /// The documents that such a fact concerns, with how it is folded in.
    fn concerned(&self, kind: (&Name, u32), data: &Payload) -> Result<Vec<(Name, Fold)>, Failure> {
        let paths = self.fold.attempt(|| {
            let data = self.upcasts.data(kind, data, self.raw.version)?;
            (self.raw.paths)(&data)
        });
        let paths = paths?.into_iter();
        Ok(paths.map(|path| (path, self.fold.clone())).collect())
    }
}

/// A projection of a process.
pub(crate) struct Registered {
    pub(crate) declared: Declare,
    pub(crate) folds: Folds,
}

/// All projections of a process.
#[derive(Default)]
pub(crate) struct Projections {
    /// Those that fold by the commit, by the kind of fact that they fold.
    inline: BTreeMap<Name, Vec<FoldInto>>,
    /// For kinds that nothing else folds.
    unknown: Vec<FoldUnknown>,
    folds_unknown: bool,
    /// What is folded here, by whatever projection.
    kinds: Arc<BTreeSet<Name>>,
    pub(crate) all: Vec<Registered>,
    /// Their names and versions.
    pub(crate) knows: Arc<[(Name, u32)]>,
}

impl std::fmt::Debug for Projections {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Projections({:?})", self.knows)
    }
}

impl Projections {
    /// The fact, with where it is folded in.
    pub(crate) fn with_documents(&self, mut fact: NewFact) -> Result<NewFact, Failure> {
        for into in self.inline.get(&fact.kind).into_iter().flatten() {
            let concerned = into.concerned((&fact.kind, fact.version), &fact.data)?;
            fact.into.extend(concerned);
        }
        if !self.knows(&fact.kind) {
            let kind = (&fact.kind, fact.version);
            let concerned = FoldUnknown::concerned(&self.unknown, kind, &fact.data)?;
            fact.into.extend(concerned);
        }
        Ok(fact)
    }
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
struct FoldUnknown {
    paths: Arc<PathsOfUnknown>,
    fold: Fold,
}

type PathsOfUnknown = dyn Fn(&UnknownFact) -> Result<Vec<Name>, Failure> + Send + Sync;

impl UnknownFact {
    fn of((kind, version): (&Name, u32), data: &Payload) -> Result<UnknownFact, Failure> {
        Ok(UnknownFact {
            kind: kind.clone(),
            version,
            data: decode(data)?,
        })
    }
}

impl FoldUnknown {
    /// The documents that such facts concern, with how this one is folded in.
    fn concerned(
        all: &[FoldUnknown],
        kind: (&Name, u32),
        data: &Payload,
    ) -> Result<Folded, Failure> {
        let mut concerned = Vec::new();
        if all.is_empty() {
            return Ok(concerned);
        }
        let seen = UnknownFact::of(kind, data)?;
        for unknown in all {
            let paths = unknown.fold.attempt(|| (unknown.paths)(&seen))?;
            let paths = paths.into_iter();
            concerned.extend(paths.map(|path| (path, unknown.fold.clone())));
        }
        Ok(concerned)
    }
}

impl Projections {
    /// Is anything folded here?
    pub(crate) fn folds_any(&self) -> bool {
        !self.all.is_empty()
    }

    /// Are such facts folded here, other than as unknown ones?
    pub(crate) fn knows(&self, kind: &Name) -> bool {
        self.kinds.contains(kind)
    }

    /// A fact that comes in, with where it is folded in; none if nobody here knows it.
    pub(crate) fn take_in(&self, fact: NewFact) -> Result<Option<NewFact>, Failure> {
        match self.knows(&fact.kind) || self.folds_unknown {
            true => self.with_documents(fact).map(Some),
            false => Ok(None),
        }
    }
}

impl<D: Serialize + DeserializeOwned> Projection<D> {
    /// Folds facts of kinds that nothing else here folds. Without this, those that come in are
    /// parked, until a process comes that folds them. When something here learns to fold a kind
    /// that it did not, give this projection a higher version: its documents are built anew.
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
            let fact = UnknownFact::of((&fact.kind, fact.version), &fact.data)?;
            let after = fold(document, &fact)?;
            after.as_ref().map(encode).transpose()
        });
        self.unknown.push(FoldUnknown { paths, fold });
        self
    }
}

/// A projection as it was handed in.
struct Raw {
    name: &'static str,
    version: u32,
    follows: bool,
    folds: Vec<(Name, RawFold)>,
    unknown: Vec<FoldUnknown>,
}

/// Projections that are registered while an engine is set up.
#[derive(Default)]
pub(crate) struct Registry {
    projections: Vec<Raw>,
    upcasts: Upcasts,
}

impl Registry {
    /// What they come to, of this tenant.
    pub(crate) fn finish(self, namespace: &Name) -> Projections {
        let upcasts = Arc::new(self.upcasts);
        let kinds = self.projections.iter().flat_map(|raw| &raw.folds);
        let kinds: BTreeSet<Name> = kinds.map(|(kind, _)| kind.clone()).collect();
        let mut all = Projections {
            folds_unknown: self.projections.iter().any(|raw| !raw.unknown.is_empty()),
            kinds: Arc::new(kinds),
            ..Projections::default()
        };
        for raw in self.projections {
            all.add(raw, &upcasts, namespace);
        }
        let knows = all.all.iter().map(|one| &one.folds);
        all.knows = knows
            .map(|folds| (folds.name.clone(), folds.version))
            .collect();
        all
    }
}

impl Projections {
    fn add(&mut self, raw: Raw, upcasts: &Arc<Upcasts>, namespace: &Name) {
        let (name, version) = (Name::constant(raw.name), raw.version);
        let mut by_kind: BTreeMap<Name, Vec<FoldInto>> = BTreeMap::new();
        for (kind, fold) in &raw.folds {
            let into = FoldInto::new((&name, version), fold, upcasts);
            by_kind.entry(kind.clone()).or_default().push(into);
        }
        let unknown = raw.unknown.into_iter().map(|unknown| FoldUnknown {
            fold: unknown.fold.with_version(version),
            ..unknown
        });
        let unknown: Vec<FoldUnknown> = unknown.collect();
        if !raw.follows {
            for (kind, into) in &by_kind {
                let inline = self.inline.entry(kind.clone()).or_default();
                inline.extend(into.iter().cloned());
            }
            self.unknown.extend(unknown.iter().cloned());
        }
        let declared = Declare {
            projection: ProjectionId {
                namespace: namespace.clone(),
                name: name.clone(),
            },
            version,
            inline: !raw.follows,
            kinds: match unknown.is_empty() {
                true => by_kind.keys().cloned().collect(),
                false => vec![ANY_KIND],
            },
        };
        let known = self.kinds.clone();
        let folds = Folds::new(name, version, move |fact| {
            let kind = (&fact.kind, fact.version);
            if !known.contains(&fact.kind) {
                return FoldUnknown::concerned(&unknown, kind, &fact.data);
            }
            let into = by_kind.get(&fact.kind).into_iter().flatten();
            let concerned = into.map(|into| into.concerned(kind, &fact.data));
            let concerned = concerned.collect::<Result<Vec<_>, _>>()?;
            Ok(concerned.into_iter().flatten().collect())
        });
        self.all.push(Registered { declared, folds });
    }
}

impl EngineBuilder {
    /// Folds facts into documents: in the commit that records them, unless the projection
    /// [follows](Projection::following).
    pub fn project<D>(mut self, projection: Projection<D>) -> Self {
        let mut known = self.projections.projections.iter();
        if known.any(|raw| raw.name == projection.name) {
            self.config = Err(Error::Setup(format!(
                "the projection `{}` is registered twice; give one of them another name",
                projection.name
            )));
            return self;
        }
        self.projections.projections.push(Raw {
            name: projection.name,
            version: projection.version,
            follows: projection.follows,
            folds: projection.folds,
            unknown: projection.unknown,
        });
        self
    }

    /// Says how a fact of an older version is said in the words of a newer one. Facts stay as they
    /// were recorded: what is folded is what this makes of them.
    ///
    /// ```
    /// use roundel::{Engine, Fact};
    /// const PAID_IN_EUROS: Fact<u64> = Fact::named("paid");
    /// const PAID: Fact<u64> = Fact::named("paid").version(2); // in cents
    /// let engine = Engine::in_memory().upcast(PAID_IN_EUROS, PAID, |euros| euros * 100);
    /// ```
    pub fn upcast<A, B, F>(mut self, from: Fact<A>, to: Fact<B>, upcast: F) -> Self
    where
        A: DeserializeOwned + 'static,
        B: Serialize + 'static,
        F: Fn(A) -> B + Send + Sync + 'static,
    {
        let (kind, step) = (from.name(), (from.version, to.version));
        let known = self
            .projections
            .upcasts
            .0
            .contains_key(&(kind.clone(), step.0));
        if from.name() != to.name() || step.0 >= step.1 || known {
            self.config = Err(Error::Setup(format!(
                "version {} of the fact `{kind}` cannot become version {} of `{}`: an older \
                 version becomes a newer one of the same kind, in one way",
                step.0,
                step.1,
                to.name()
            )));
            return self;
        }
        let upcast: Arc<Upcast> = Arc::new(move |data| encode(&upcast(decode(data)?)));
        let upcasts = &mut self.projections.upcasts.0;
        upcasts.insert((kind, step.0), (step.1, upcast));
        self
    }
}
