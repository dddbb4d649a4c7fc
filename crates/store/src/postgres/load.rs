//! What operations need, by kind, and the order in which it is loaded.

use std::collections::{BTreeMap, BTreeSet};

use roundel_core::{
    DocumentId, FactId, GateId, KeyId, LaneId, LatchId, LockId, MailId, Name, Need, Op,
    PublicationId, QueueId, Rows, RunId, StreamId, WorkerId,
};

use super::known::{self, Known, Topic};
use super::link::{Link, values};
use super::locks::Patience;
use super::trouble::Trouble;
use crate::cells;

pub(super) const LANES: &str = "SELECT namespace, workflow, version FROM roundel_lane ORDER BY id";

/// What operations of a stage need, by kind.
#[derive(Default)]
pub(super) struct Wanted {
    claims: BTreeSet<KeyId>,
    lookups: BTreeSet<KeyId>,
    topics: BTreeMap<Topic, known::Hold>,
    subscribers: BTreeSet<Topic>,
    gates: BTreeSet<GateId>,
    runs: BTreeSet<RunId>,
    workers: BTreeSet<WorkerId>,
    publications: BTreeSet<PublicationId>,
    latches: BTreeSet<LatchId>,
    states: BTreeSet<RunId>,
    waits: BTreeSet<(RunId, Name)>,
    all_waits: BTreeMap<RunId, usize>,
    mail: BTreeMap<(RunId, Name), usize>,
    letters: BTreeSet<MailId>,
    unread: BTreeSet<RunId>,
    inboxes: BTreeSet<RunId>,
    offers: BTreeMap<GateId, usize>,
    waiters: BTreeMap<GateId, usize>,
    watchers: BTreeSet<RunId>,
    audits: BTreeSet<Name>,
    queues: BTreeSet<QueueId>,
    permits: BTreeSet<QueueId>,
    locks: BTreeSet<LockId>,
    facts: BTreeSet<FactId>,
    streams: BTreeSet<StreamId>,
    documents: BTreeSet<DocumentId>,
    projections: BTreeSet<Name>,
}

/// What loads.
pub(super) struct Loading<'a> {
    pub(super) link: &'a mut Link,
    pub(super) rows: &'a mut Rows,
    pub(super) known: &'a mut Known,
    pub(super) patience: Patience,
    pub(super) pass: u32,
}

impl Wanted {
    pub(super) fn add(&mut self, op: &Op, need: Need) {
        match need {
            Need::Key(key) if known::claims(op, &key) => drop(self.claims.insert(key)),
            Need::Key(key) => drop(self.lookups.insert(key)),
            Need::Gate(gate) => drop(self.gates.insert(gate)),
            Need::Run(run) => drop(self.runs.insert(run)),
            Need::Worker(worker) => drop(self.workers.insert(worker)),
            Need::Publication(id) => drop(self.publications.insert(id)),
            Need::Latch(id) => drop(self.latches.insert(id)),
            Need::Queue(id) => drop(self.queues.insert(id)),
            Need::Permits(id) => drop(self.permits.insert(id)),
            Need::Lock(lock) => drop(self.locks.insert(lock)),
            Need::Fact(id) => drop(self.facts.insert(id)),
            Need::Stream(id) => drop(self.streams.insert(id)),
            Need::Document(id) => drop(self.documents.insert(id)),
            Need::State(run) => drop(self.states.insert(run)),
            Need::Waits(run, name) => drop(self.waits.insert((run, name))),
            Need::AllWaits(run, count) => *self.all_waits.entry(run).or_default() += count,
            Need::Letter(id) => drop(self.letters.insert(id)),
            Need::Unread(run) => drop(self.unread.insert(run)),
            Need::Mail(run, name, limit) => *self.mail.entry((run, name)).or_default() += limit,
            Need::Inbox(run) => drop(self.inboxes.insert(run)),
            Need::Offers(gate, limit) => *self.offers.entry(gate).or_default() += limit,
            Need::Waiters(gate, limit) => *self.waiters.entry(gate).or_default() += limit,
            Need::Watchers(run) => drop(self.watchers.insert(run)),
            Need::Subscribers(namespace, topic) => {
                let topic = (namespace, topic);
                let hold = known::hold_of(op);
                let held = self.topics.entry(topic.clone()).or_insert(hold);
                *held = (*held).max(hold);
                self.subscribers.insert(topic);
            }
            Need::Projections(namespace) => {
                let hold = known::hold_of(op);
                let topic = known::projections_of(&namespace);
                let held = self.topics.entry(topic).or_insert(hold);
                *held = (*held).max(hold);
                self.projections.insert(namespace);
            }
            Need::Audit(namespace) => {
                self.topics
                    .insert(known::audit_of(&namespace), known::Hold::Alone);
                self.audits.insert(namespace);
            }
            Need::Due(..)
            | Need::Unseen(_)
            | Need::Subtree(..)
            | Need::OpenPublications(..)
            | Need::Heard(_)
            | Need::Tail(..)
            | Need::Sweep(..)
            | Need::Scope(..) => {
                unreachable!("searches are made one by one")
            }
        }
    }
}

impl Loading<'_> {
    /// In the common order: keys, topics, limits, gates, runs, and what hangs under them.
    pub(super) async fn all(&mut self, wanted: Wanted) -> Result<(), Trouble> {
        self.claim_keys(&wanted.claims).await?;
        self.read_keys(&wanted.lookups).await?;
        for (topic, hold) in &wanted.topics {
            self.topic(topic, *hold).await?;
        }
        self.locks(&wanted.locks).await?;
        self.projections(wanted.projections).await?;
        self.facts(&wanted.facts).await?;
        self.streams(&wanted.streams).await?;
        self.documents(&wanted.documents).await?;
        self.subscribers(wanted.subscribers).await?;
        self.audits(wanted.audits).await?;
        self.publications(&wanted.publications).await?;
        self.queues(&wanted.queues).await?;
        self.permits(wanted.permits).await?;
        self.gates(&wanted.gates).await?;
        self.runs(&wanted.runs).await?;
        self.workers(&wanted.workers).await?;
        self.latches(&wanted.latches).await?;
        self.offers(wanted.offers).await?;
        self.waiters(wanted.waiters).await?;
        self.waits(wanted.waits).await?;
        self.all_waits(wanted.all_waits).await?;
        self.mail(wanted.mail).await?;
        self.these_mail(wanted.letters.into_iter().collect())
            .await?;
        self.unread(wanted.unread).await?;
        self.inboxes(wanted.inboxes).await?;
        self.watchers(wanted.watchers).await?;
        self.states(wanted.states).await
    }

    /// A run of a lane that others have made since the lanes were read.
    pub(super) async fn lanes_up_to(&mut self, lane: LaneId) -> Result<(), Trouble> {
        if self.rows.lanes().len() < lane.0 as usize {
            self.load_lanes().await?;
        }
        Ok(())
    }

    pub(super) async fn load_lanes(&mut self) -> Result<(), Trouble> {
        let rows = self.link.all(LANES, values![]).await?;
        let lanes = rows.iter().map(|row| cells::lane(row, 0));
        self.rows.load_lanes(lanes.collect::<Result<_, _>>()?);
        // What was given in a lane that is new here was not counted.
        self.rows.permits.clear();
        let is_count = |need: &Need| matches!(need, Need::Permits(_));
        self.known.whole.retain(|need| !is_count(need));
        Ok(())
    }
}
