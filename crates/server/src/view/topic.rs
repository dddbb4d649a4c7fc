//! Topics and what was published.

use roundel::{Name, Payload, PublicationId, RunId, Timestamp};
use roundel_store::{PublicationView, TopicView};

use crate::shape::output;

output! {
    /// A workflow that subscribes.
    pub struct Subscriber {
        /// Which.
        workflow: Name,
        /// Since when.
        since: Timestamp,
    }
}

output! {
    /// A topic.
    pub struct Topic {
        /// Its name.
        topic: Name,
        /// Who subscribes.
        subscribers: Vec<Subscriber>,
        /// How often something was published: of the newest, which are counted.
        publications: u64,
        /// How often nobody heard it, of these.
        unheard: u64,
        /// There are older ones, which were not counted.
        more: bool,
        /// When something was last published.
        last_at: Option<Timestamp>,
    }
}

output! {
    /// Something that was published.
    pub struct Publication {
        /// Its id.
        publication: PublicationId,
        /// Where.
        topic: Name,
        /// When.
        at: Timestamp,
        /// By which run; none if by a client.
        by: Option<RunId>,
        /// How many runs it started.
        heard: u32,
        /// What it says.
        payload: Payload,
    }
}

impl From<&TopicView> for Topic {
    fn from(topic: &TopicView) -> Topic {
        let subscriber = |(workflow, since): &(Name, Timestamp)| Subscriber {
            workflow: workflow.clone(),
            since: *since,
        };
        Topic {
            topic: topic.topic.clone(),
            subscribers: topic.subscribers.iter().map(subscriber).collect(),
            publications: topic.publications,
            unheard: topic.unheard,
            more: topic.more,
            last_at: topic.last_at,
        }
    }
}

impl From<&PublicationView> for Publication {
    fn from((id, row): &PublicationView) -> Publication {
        Publication {
            publication: *id,
            topic: row.topic.clone(),
            at: row.at,
            by: row.by.map(|by| by.run),
            heard: row.heard,
            payload: row.payload.clone(),
        }
    }
}
