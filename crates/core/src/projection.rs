//! Projections, as the database knows them: which facts they fold, whether in the commit that
//! records these or after it, how far they are, and which building of their documents is the one
//! that is read.
//!
//! Invariants: the documents of a building and how far it is change in one commit. A building that
//! is being made is read by nobody until it has taken up every fact; then it takes the place of the
//! one before it in one commit, and what that left is removed in small parts.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};

use crate::fact::{attempt, lock};
use crate::{DocumentId, DocumentRow, FactId, FactRow, Failure, LockId, Name, Rows, Timestamp};

/// Among the kinds of a projection: it looks at facts of every kind.
pub const ANY_KIND: Name = Name::constant("*");

/// Where a fact stands among all. Only PostgreSQL has more than one batch: its transactions.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash, Serialize, Deserialize,
)]
pub struct Position {
    /// The transaction.
    pub batch: u64,
    /// The number in it.
    pub number: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.batch {
            0 => write!(f, "{}", self.number),
            batch => write!(f, "{batch}.{}", self.number),
        }
    }
}

impl FromStr for Position {
    type Err = ParseIntError;

    /// As it is shown.
    fn from_str(text: &str) -> Result<Position, ParseIntError> {
        let (batch, number) = text.split_once('.').unwrap_or(("0", text));
        Ok(Position {
            batch: batch.parse()?,
            number: number.parse()?,
        })
    }
}

/// A projection, by its name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct ProjectionId {
    /// The tenant.
    pub namespace: Name,
    /// Its name.
    pub name: Name,
}

/// What is known of a projection.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ProjectionRow {
    /// The building that is read, once there is one.
    pub live: Option<Build>,
    /// The building that is being made beside it.
    pub next: Option<Build>,
    /// How many buildings there were after the first.
    pub generations: u32,
    /// Documents of old buildings are being removed; those up to this path are gone.
    pub sweep: Option<String>,
}

/// All documents of a projection, made by one version of its code.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Build {
    /// Which, from 0.
    pub generation: u32,
    /// By which version of the projection.
    pub version: u32,
    /// Are facts folded in by the commits that record them, once it is live?
    pub inline: bool,
    /// The kinds of facts that it folds, in order.
    pub kinds: Vec<Name>,
    /// The last fact that it has passed. An inline one that is live does not count.
    pub position: Position,
    /// How many facts it has passed, of all kinds and tenants.
    pub facts: u64,
    /// How often it has folded a fact into a document.
    pub folds: u64,
    /// The fact that it cannot fold in.
    pub stuck: Option<Stuck>,
}

/// A fact that a projection cannot fold in. It stands there until it can, or somebody skips it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Stuck {
    /// Which fact.
    pub fact: Name,
    /// Where it stands.
    pub position: Position,
    /// Why.
    pub failure: Failure,
    /// Since when.
    pub at: Timestamp,
}

/// Where facts are folded in, and how: the code of a projection.
#[derive(Clone)]
pub struct Folds {
    /// Its name.
    pub name: Name,
    /// Its version.
    pub version: u32,
    into: Arc<Concerns>,
}

/// The documents that a fact concerns, each with what becomes of it.
type Concerns = dyn Fn(&FactRow) -> Result<Folded, Failure> + Send + Sync;

/// What such a function says.
pub(crate) type Said = Result<Folded, Failure>;

/// Paths, and how the fact is folded into the documents there.
pub type Folded = Vec<(Name, crate::Projection)>;

impl Folds {
    /// Those of the projection of this name and version.
    pub fn new(
        name: Name,
        version: u32,
        into: impl Fn(&FactRow) -> Result<Folded, Failure> + Send + Sync + 'static,
    ) -> Folds {
        Folds {
            name,
            version,
            into: Arc::new(into),
        }
    }

    /// Where this fact is folded in.
    pub(crate) fn of(&self, fact: &FactRow) -> Result<Folded, Failure> {
        attempt(&self.name, || (self.into)(fact))
    }
}

impl fmt::Debug for Folds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Folds({} {})", self.name, self.version)
    }
}

impl PartialEq for Folds {
    fn eq(&self, other: &Folds) -> bool {
        (&self.name, self.version) == (&other.name, other.version)
    }
}

/// A fact that a projection has not passed, as a search found it.
#[derive(Clone, PartialEq, Debug)]
pub struct Passing {
    /// Where it stands.
    pub position: Position,
    /// Its id.
    pub id: FactId,
    /// What it says.
    pub row: FactRow,
    /// Where it is folded in, worked out once.
    into: OnceLock<Said>,
}

impl Passing {
    /// The fact at this position.
    #[must_use]
    pub fn new(position: Position, id: FactId, row: FactRow) -> Passing {
        Passing {
            position,
            id,
            row,
            into: OnceLock::new(),
        }
    }

    /// Where this projection of that tenant folds it in.
    pub(crate) fn into(&self, namespace: &Name, build: &Build, folds: &Folds) -> &Said {
        self.into.get_or_init(|| {
            let its = self.id.namespace == *namespace && build.folds_kind(&self.row.kind);
            match its {
                true => folds.of(&self.row),
                false => Ok(Vec::new()),
            }
        })
    }
}

/// The facts after a position, as a search found them.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Tail {
    /// In order.
    pub facts: Vec<Passing>,
    /// There are more, before which others may still come.
    pub unsettled: bool,
}

impl ProjectionId {
    /// What is held while it moves.
    pub(crate) fn lock(&self) -> LockId {
        lock(&self.namespace, "projection", &self.name)
    }
}

impl ProjectionRow {
    /// The building of this generation, if it is live or being made.
    #[must_use]
    pub fn build(&self, generation: u32) -> Option<&Build> {
        let its = |build: &&Build| build.generation == generation;
        let live = self.live.as_ref().filter(its);
        live.or_else(|| self.next.as_ref().filter(its))
    }

    /// Does it take up facts after they were recorded?
    #[must_use]
    pub fn follows(&self) -> bool {
        self.next.is_some() || self.live.as_ref().is_some_and(|live| !live.inline)
    }

    /// The highest version that is known.
    #[must_use]
    pub fn version(&self) -> u32 {
        let both = [self.live.as_ref(), self.next.as_ref()];
        let versions = both.into_iter().flatten().map(|build| build.version);
        versions.max().unwrap_or_default()
    }
}

impl Build {
    pub(crate) fn folds_kind(&self, kind: &Name) -> bool {
        let has = |kind| self.kinds.binary_search(kind).is_ok();
        has(kind) || has(&ANY_KIND)
    }
}

impl Rows {
    /// The projections of a tenant, which were loaded.
    pub(crate) fn projections_of<'a>(
        &'a self,
        namespace: &'a Name,
    ) -> impl Iterator<Item = (&'a ProjectionId, &'a ProjectionRow)> {
        let first = ProjectionId {
            namespace: namespace.clone(),
            name: Name::constant(" "),
        };
        let all = self.projections.starting_at(first);
        all.take_while(move |(id, _)| id.namespace == *namespace)
    }

    /// The building of a projection that is read: the first, if nobody has declared it; none while
    /// its first is being made.
    pub(crate) fn live_generation(&self, namespace: &Name, projection: &Name) -> Option<u32> {
        let id = ProjectionId {
            namespace: namespace.clone(),
            name: projection.clone(),
        };
        match self.projections.get(&id) {
            None => Some(0),
            Some(row) => row.live.as_ref().map(|live| live.generation),
        }
    }

    /// The generations that documents of a tenant may have that are read, in order.
    pub(crate) fn generations(&self, namespace: &Name) -> Vec<u32> {
        let live = self.projections_of(namespace);
        let live = live.filter_map(|(_, row)| row.live.as_ref());
        let mut all: Vec<u32> = live.map(|live| live.generation).collect();
        all.push(0);
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The document at this path that is read, whatever the generation that is asked for.
    #[must_use]
    pub fn live_document(&self, id: &DocumentId) -> Option<(u32, &DocumentRow)> {
        let its = |generation| DocumentId {
            generation,
            ..id.clone()
        };
        let generations = self.generations(&id.namespace).into_iter();
        let mut found = generations.filter_map(|generation| {
            let row = self.documents.get(&its(generation))?;
            let live = self.live_generation(&id.namespace, &row.projection);
            (live == Some(generation)).then_some((generation, row))
        });
        found.next()
    }
}
