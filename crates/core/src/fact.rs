//! Facts: what happened, once and for all; the streams they are counted in; and the documents that
//! they are folded into.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::check::{Invariant, Violation};
use crate::{Failure, Name, Payload, RunId, Timestamp};

/// A fact's id, its sender's own: the same fact twice is one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct FactId {
    /// The tenant.
    pub namespace: Name,
    /// The id.
    pub id: Name,
}

/// A fact, with its envelope. Never changed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct FactRow {
    /// What kind of thing happened.
    pub kind: Name,
    /// The version of what it says.
    pub version: u32,
    /// What it says.
    pub data: Payload,
    /// When it was recorded.
    pub at: Timestamp,
    /// Was it decided here, and not received?
    pub own: bool,
    /// Who received or decided it.
    pub by: Option<Name>,
    /// The round that recorded it.
    pub cause: Option<Cause>,
    /// Its stream, and which of that stream's facts it is, from 1.
    pub stream: Option<(Name, u64)>,
}

/// A round of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Cause {
    /// Whose.
    pub run: RunId,
    /// In which execution.
    pub execution: u32,
    /// The first entry of the round.
    pub entry: u64,
}

/// Facts in an order of their own.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct StreamId {
    /// The tenant.
    pub namespace: Name,
    /// Its name.
    pub name: Name,
}

/// How far a stream is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StreamRow {
    /// The number of its last fact.
    pub version: u64,
}

/// A document, by its path.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct DocumentId {
    /// The tenant.
    pub namespace: Name,
    /// Where it lies.
    pub path: Name,
    /// Of which building of its projection.
    pub generation: u32,
}

/// What facts came to. It is changed by facts alone.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct DocumentRow {
    /// Whose it is: nobody else may change it.
    pub projection: Name,
    /// How many facts it has taken up. It never goes back, so nobody takes a new document for the
    /// old one.
    pub version: u64,
    /// What it says; nothing once a fact has removed it.
    pub value: Option<Payload>,
    /// When it last changed.
    pub at: Timestamp,
}

/// What a projection does: the document as it was, and a fact, give the document as it is.
pub type Fold =
    dyn Fn(Option<&Payload>, &FactId, &FactRow) -> Result<Option<Payload>, Failure> + Send + Sync;

/// How facts are folded into documents: a pure function with a name. It is called inside of the
/// commit, so it must be quick and must not wait.
#[derive(Clone)]
pub struct Projection {
    name: Name,
    version: u32,
    fold: Arc<Fold>,
}

impl Projection {
    /// A projection of this name.
    pub fn new(
        name: Name,
        fold: impl Fn(Option<&Payload>, &FactId, &FactRow) -> Result<Option<Payload>, Failure>
        + Send
        + Sync
        + 'static,
    ) -> Projection {
        Projection {
            name,
            version: 1,
            fold: Arc::new(fold),
        }
    }

    /// Of this version; 1 unless said.
    #[must_use]
    pub fn with_version(self, version: u32) -> Projection {
        Projection { version, ..self }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// Its version.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The document after the fact.
    ///
    /// # Errors
    /// When the projection fails or panics.
    pub fn fold(
        &self,
        document: Option<&Payload>,
        (id, fact): (&FactId, &FactRow),
    ) -> Result<Option<Payload>, Failure> {
        self.attempt(|| (self.fold)(document, id, fact))
    }

    /// What other code of it makes.
    ///
    /// # Errors
    /// When that fails or panics.
    pub fn attempt<T>(&self, code: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
        attempt(&self.name, code)
    }
}

/// What the code of a projection makes. A panic is a failure of that fact: whoever decides goes on.
pub(crate) fn attempt<T>(
    projection: &Name,
    code: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(code)).unwrap_or_else(|_| {
        let message = format!("the projection `{projection}` panicked");
        Err(Failure::permanent(message).with_code("panicked"))
    })
}

impl fmt::Debug for Projection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Projection({})", self.name)
    }
}

impl PartialEq for Projection {
    fn eq(&self, other: &Projection) -> bool {
        self.name == other.name
    }
}

/// What was read before something was decided: it must still be so.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    /// Which document.
    pub path: Name,
    /// Its version then; 0 if there was none.
    pub version: u64,
    /// Of which building of its projection; 0 if there was none.
    pub generation: u32,
}

/// What a transaction holds alone while it looks at something that may not be there yet. There is
/// no row of it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LockId {
    /// The tenant.
    pub namespace: Name,
    /// What is held.
    pub text: String,
}

impl FactId {
    /// What is held while it is looked for and recorded.
    pub(crate) fn lock(&self) -> LockId {
        lock(&self.namespace, "fact", &self.id)
    }
}

impl StreamId {
    /// What is held while it is counted.
    pub(crate) fn lock(&self) -> LockId {
        lock(&self.namespace, "stream", &self.name)
    }
}

impl DocumentId {
    /// The document at this path, of a projection that was never built anew.
    #[must_use]
    pub fn at(namespace: Name, path: Name) -> DocumentId {
        DocumentId {
            namespace,
            path,
            generation: 0,
        }
    }

    /// What is held while it is read and changed.
    pub(crate) fn lock(&self) -> LockId {
        lock(&self.namespace, "document", &self.path)
    }
}

pub(crate) fn lock(namespace: &Name, what: &str, name: &Name) -> LockId {
    LockId {
        namespace: namespace.clone(),
        text: format!("{what}/{name}"),
    }
}

/// Reads facts in order, and says what should not be.
#[derive(Debug, Default)]
pub struct FactReader {
    streams: BTreeMap<StreamId, u64>,
    /// Marks of facts that somebody waits for, and those of them that are there.
    watched: BTreeMap<RunId, Option<Name>>,
}

impl FactReader {
    /// Somebody waits for the fact of this mark.
    pub fn watched(&mut self, mark: RunId) {
        self.watched.insert(mark, None);
    }

    /// A mark that somebody waited for although its fact is there, if there is one left. If he
    /// still does, he waits for ever.
    pub fn doubt(&mut self) -> Option<(RunId, Name)> {
        while let Some((mark, there)) = self.watched.pop_first() {
            if let Some(id) = there {
                return Some((mark, id));
            }
        }
        None
    }

    /// Somebody still waits for this fact, which is there.
    pub fn overlooked(id: &Name, run: RunId) -> Violation {
        Violation {
            invariant: Invariant::Liveness,
            run: Some(run),
            found: format!("it waits for the fact `{id}`, which is there"),
            expected: "that it was let go when that was recorded".to_owned(),
        }
    }

    /// The next fact, in the order of all.
    pub fn read(&mut self, id: &FactId, row: &FactRow, out: &mut Vec<Violation>) {
        if !self.watched.is_empty()
            && let Some(there) = self.watched.get_mut(&id.mark())
        {
            *there = Some(id.id.clone());
        }
        let Some((name, version)) = row.stream.clone() else {
            return;
        };
        let (namespace, stream) = (id.namespace.clone(), name.clone());
        let last = self
            .streams
            .entry(StreamId { namespace, name })
            .or_default();
        if version != *last + 1 {
            out.push(Violation {
                invariant: Invariant::Projections,
                run: row.cause.map(|cause| cause.run),
                found: format!("fact `{}` is number {version} of `{stream}`", id.id),
                expected: format!("number {}", *last + 1),
            });
        }
        *last = version;
    }
}
