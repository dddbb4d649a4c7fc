//! Facts that come in: recorded, kept until what they need is there, or parked.

use std::sync::Arc;
use std::time::Duration;

use super::NewFact;
use crate::{Failure, Name, Payload, RunId};

/// Take facts in, one after the other. Each is recorded, queued, waits or is parked on its own.
#[derive(Clone, PartialEq, Debug)]
pub struct Receive {
    /// The tenant.
    pub namespace: Name,
    /// In this order.
    pub items: Vec<Item>,
    /// Who received them.
    pub by: Option<Name>,
    /// The projections of the process that asks, with their versions. What it cannot fold in for
    /// lack of one is kept for a process that has it.
    pub knows: Arc<[(Name, u32)]>,
}

/// A fact that comes in.
#[derive(Clone, PartialEq, Debug)]
pub struct Item {
    /// The fact, with where it is folded in and which facts it needs.
    pub fact: NewFact,
    /// The same as it came: what is kept of it if it is not recorded now.
    pub envelope: Payload,
    /// The item of the queue that it is, if it is there already: its run, and of which execution
    /// it was read.
    pub from: Option<(RunId, u32)>,
    /// What to do with it.
    pub take: Take,
    /// So long it waits for the facts that it needs; for ever if nothing is said.
    pub patience: Option<Duration>,
}

/// What to do with a fact that comes in.
#[derive(Clone, PartialEq, Debug)]
pub enum Take {
    /// Keep it for later.
    Queue,
    /// Record it. If one that it needs is missing, it waits; if it cannot be, it is parked.
    Record,
    /// Park it: nobody here knows what to do with it.
    Park(Box<Failure>),
}
