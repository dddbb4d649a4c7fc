//! Publishing, subscribing, joining.

use std::time::Duration;

use crate::{Context, Deadlines, Name, Payload, PublicationId};

/// Publish to a topic.
#[derive(Clone, PartialEq, Debug)]
pub struct Publish {
    /// The tenant.
    pub namespace: Name,
    /// The new publication. One that exists is not made again.
    pub id: PublicationId,
    /// To which topic.
    pub topic: Name,
    /// What it says: the input of each run that it sets off.
    pub payload: Payload,
    /// For this long, whoever subscribes joins, and whoever waits for it waits.
    pub window: Option<Duration>,
    /// Until when those must have ended, beside what the publisher's say.
    pub deadlines: Deadlines,
    /// What flows down to them.
    pub context: Context,
}

/// A workflow's interest in a topic. What was published before is not affected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Subscribe {
    /// The tenant.
    pub namespace: Name,
    /// In which topic.
    pub topic: Name,
    /// Which workflow; it need not have been deployed.
    pub workflow: Name,
    /// Does it begin, or end?
    pub on: bool,
}

/// Let a workflow join a publication, if its window is open.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Join {
    /// The tenant.
    pub namespace: Name,
    /// Which publication.
    pub publication: PublicationId,
    /// Which workflow.
    pub workflow: Name,
}
