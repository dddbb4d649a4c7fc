//! Recording facts.

use std::sync::Arc;

use super::{Item, Start};
use crate::fact::{DocumentId, FactId, Projection, Seen, StreamId};
use crate::{Name, Payload};

/// Record facts, and fold each into its documents: all of it or nothing.
#[derive(Clone, PartialEq, Debug)]
pub struct Record {
    /// The tenant.
    pub namespace: Name,
    /// In this order.
    pub facts: Vec<NewFact>,
    /// What was read before this was decided.
    pub seen: Vec<Seen>,
    /// Was it decided here, and not received?
    pub own: bool,
    /// Who received or decided it.
    pub by: Option<Name>,
    /// What is put into the queue of facts that come in, in the same commit.
    pub queued: Vec<Item>,
    /// Commands that are sent in the same commit.
    pub sent: Vec<Start>,
    /// The projections of the process that asks, with their versions: those that fold facts in by
    /// the commit are among them, or nothing is recorded.
    pub knows: Arc<[(Name, u32)]>,
}

/// A fact to be recorded.
#[derive(Clone, PartialEq, Debug)]
pub struct NewFact {
    /// Its sender's own id: the same fact twice is one.
    pub id: Name,
    /// What kind of thing happened.
    pub kind: Name,
    /// The version of what it says.
    pub version: u32,
    /// What it says.
    pub data: Payload,
    /// The stream that it is counted in.
    pub stream: Option<Name>,
    /// How many facts that stream has before this one.
    pub expected: Option<u64>,
    /// Where it is folded in, and how, in this order.
    pub into: Vec<(Name, Projection)>,
    /// The ids of facts that must be there before it.
    pub needs: Vec<Name>,
}

impl NewFact {
    /// A fact that is folded into nothing, to be filled in.
    #[must_use]
    pub fn new(id: Name, kind: Name, data: Payload) -> NewFact {
        NewFact {
            id,
            kind,
            version: 1,
            data,
            stream: None,
            expected: None,
            into: Vec::new(),
            needs: Vec::new(),
        }
    }
}

impl Record {
    /// Of these facts, which were received.
    #[must_use]
    pub fn new(namespace: Name, facts: Vec<NewFact>) -> Record {
        Record {
            namespace,
            facts,
            seen: Vec::new(),
            own: false,
            by: None,
            queued: Vec::new(),
            sent: Vec::new(),
            knows: Arc::default(),
        }
    }

    pub(crate) fn fact_id(&self, fact: &NewFact) -> FactId {
        self.fact_of(&fact.id)
    }

    pub(crate) fn fact_of(&self, id: &Name) -> FactId {
        FactId {
            namespace: self.namespace.clone(),
            id: id.clone(),
        }
    }

    pub(crate) fn stream_id(&self, name: &Name) -> StreamId {
        StreamId {
            namespace: self.namespace.clone(),
            name: name.clone(),
        }
    }

    pub(crate) fn document_id(&self, path: &Name) -> DocumentId {
        DocumentId {
            namespace: self.namespace.clone(),
            path: path.clone(),
            generation: 0,
        }
    }

    /// The paths of all documents that it reads or changes.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Name> {
        let into = self.facts.iter().flat_map(|fact| &fact.into);
        let seen = self.seen.iter().map(|seen| &seen.path);
        into.map(|(path, _)| path).chain(seen)
    }
}
