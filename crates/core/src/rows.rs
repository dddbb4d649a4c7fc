//! The rows that operations read and change, in memory. A store loads what an operation needs;
//! the memory store simply holds all of them.
//!
//! Invariant: a table knows for each row whether the database has it, so that what changed can be
//! written as inserts, updates and deletes, each row once, however many operations touched it.

mod copied;
mod lanes;
mod table;

pub use table::Table;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::changes::{Changes, RunChange};
use crate::{
    AuditId, AuditRow, Claimed, Deadlines, DocumentId, DocumentRow, FactId, FactRow, Flow, GateId,
    GateRow, Hint, JournalRow, KeyId, KeyRow, Lane, LaneId, LatchId, LatchRow, MailId, MailRow,
    Name, OfferId, OfferRow, ProjectionId, ProjectionRow, PublicationId, PublicationRow, QueueId,
    QueueRow, RunId, RunRow, RunState, StateRow, StreamId, StreamRow, SubscriptionId,
    SubscriptionRow, Tail, Timestamp, Told, UndoMark, WaitId, WaitRow, WatchId, WorkerId,
    WorkerRow,
};

/// Runs, by id: the hot table.
#[derive(Clone, Debug, Default)]
struct Runs {
    slots: FxHashMap<RunId, RunSlot>,
    changed: Vec<RunId>,
    /// How many were left when some were last forgotten.
    kept: usize,
}

#[derive(Clone, Debug)]
struct RunSlot {
    row: Option<RunRow>,
    /// What the indexes have for it; none if the database does not have the row.
    stored: Option<(Indexed, Marks)>,
    changed: bool,
}

/// The state is among them: a list of parked runs is an index too.
type Indexed = (LaneId, bool, i32, Option<Timestamp>, RunState, Flow);

/// What most runs never have.
type Marks = (Told, UndoMark, Deadlines);

fn indexed(row: &RunRow) -> (Indexed, Marks) {
    let RunRow {
        lane,
        suspect,
        priority,
        ready_at,
        state,
        flow,
        ..
    } = *row;
    let place = (lane, suspect, priority, ready_at, state, flow);
    (place, (row.told, row.undo, row.deadlines))
}

/// What changed, of what a store in memory keeps elsewhere or finds by indexes.
#[derive(Debug)]
pub enum Accepted<'r> {
    /// A run, as it is now.
    Run(&'r RunRow),
    /// A journal row, only ever added.
    Journal(JournalRow),
    /// A fact, only ever added.
    Fact(&'r FactId),
    /// A label, only ever added.
    Label(RunId, Name, String),
    /// A run that is gone, with everything under it.
    Deleted(RunId),
}

/// The rows around.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    runs: Runs,
    /// All lanes, always.
    lanes: Vec<Lane>,
    stored_lanes: usize,
    /// Of which lanes the queue has limits; nothing if none has.
    pub(crate) limited: Vec<bool>,
    pub(crate) journal: Vec<JournalRow>,
    pub(crate) labels: Vec<(RunId, Name, String)>,
    pub(crate) deleted: Vec<RunId>,
    /// Messages.
    pub mail: Table<MailId, MailRow>,
    /// Open waits.
    pub waits: Table<WaitId, WaitRow>,
    /// Open waits that take offers and have none, in order of their place.
    pub(crate) waiters: BTreeMap<(GateId, u64), WaitId>,
    /// Gates.
    pub gates: Table<GateId, GateRow>,
    /// Offers.
    pub offers: Table<OfferId, OfferRow>,
    /// Unique keys.
    pub keys: Table<KeyId, KeyRow>,
    /// Who waits for whose end.
    pub watches: Table<WatchId, ()>,
    /// Runs' own state.
    pub states: Table<RunId, StateRow>,
    /// Workers.
    pub workers: Table<WorkerId, WorkerRow>,
    /// Who subscribes to what.
    pub subscriptions: Table<SubscriptionId, SubscriptionRow>,
    /// What was published.
    pub publications: Table<PublicationId, PublicationRow>,
    /// The limits of queues.
    pub queues: Table<QueueId, QueueRow>,
    /// What was done in somebody's name: the last row of each namespace, and those that are new.
    pub audit: Table<AuditId, AuditRow>,
    /// Facts.
    pub facts: Table<FactId, FactRow>,
    /// Streams of facts.
    pub streams: Table<StreamId, StreamRow>,
    /// Projections.
    pub projections: Table<ProjectionId, ProjectionRow>,
    /// Documents.
    pub documents: Table<DocumentId, DocumentRow>,
    /// The facts after a position, as a search found them.
    pub tail: Arc<Tail>,
    /// Documents of which some may be of old buildings, as a search found them.
    pub swept: Vec<DocumentId>,
    /// How many of a scope's runs have not ended.
    pub latches: Table<LatchId, LatchRow>,
    /// The runs of scopes that the operation at hand cancels or rolls back, in order.
    pub scopes: BTreeMap<(RunId, u32, u32), Vec<RunId>>,
    /// Publications to a topic whose window is open, as a search found them.
    pub open_publications: Vec<PublicationId>,
    /// Workers that have not been seen for long, as a search found them.
    pub unseen: Vec<WorkerId>,
    /// What a search found for the operation at hand, in order.
    pub found: Vec<RunId>,
    /// When the next run of those lanes is due, as a search found it.
    pub found_next: Option<Timestamp>,
    /// How many runs of a queue are leased under its limits, by flow key.
    pub permits: BTreeMap<QueueId, BTreeMap<Option<Name>, u32>>,
    /// In lanes with more flow keys than one search looks at, the last that it looked at.
    pub looked_at: BTreeMap<LaneId, Name>,
    /// When the search for the operation at hand began: which lanes it may leave out.
    pub searched_at: Timestamp,
    pub(crate) claimed: Vec<Claimed>,
    pub(crate) hints: Vec<Hint>,
}

impl Rows {
    /// The run, if it exists.
    #[must_use]
    pub fn run(&self, id: RunId) -> Option<&RunRow> {
        self.runs.slots.get(&id).and_then(|slot| slot.row.as_ref())
    }

    /// The run, to be changed.
    pub(crate) fn run_mut(&mut self, id: RunId) -> Option<&mut RunRow> {
        let slot = self.runs.slots.get_mut(&id)?;
        if slot.row.is_some() && !slot.changed {
            slot.changed = true;
            self.runs.changed.push(id);
        }
        slot.row.as_mut()
    }

    /// Has the store already said whether this run exists?
    #[must_use]
    pub fn run_is_loaded(&self, id: RunId) -> bool {
        self.runs.slots.contains_key(&id)
    }

    /// What the database has; what is already here is newer and stays.
    pub fn load_run(&mut self, id: RunId, row: Option<RunRow>) {
        let stored = row.as_ref().map(indexed);
        self.runs.slots.entry(id).or_insert(RunSlot {
            row,
            stored,
            changed: false,
        });
    }

    pub(crate) fn put_run(&mut self, row: RunRow) {
        let id = row.id;
        let slot = self.runs.slots.entry(id).or_insert(RunSlot {
            row: None,
            stored: None,
            changed: false,
        });
        slot.row = Some(row);
        if !slot.changed {
            slot.changed = true;
            self.runs.changed.push(id);
        }
    }

    pub(crate) fn delete_run(&mut self, id: RunId) {
        let slot = self
            .runs
            .slots
            .get_mut(&id)
            .expect("a deleted run was loaded");
        slot.row = None;
        if !slot.changed {
            slot.changed = true;
            self.runs.changed.push(id);
        }
        self.deleted.push(id);
    }

    /// All runs here, in no order.
    pub fn runs(&self) -> impl Iterator<Item = &RunRow> {
        self.runs
            .slots
            .values()
            .filter_map(|slot| slot.row.as_ref())
    }

    /// Forgets runs that nobody has leased, when there are more than `keep` of them, and twice as
    /// many as the last time: looking at all of them takes its time.
    pub fn forget_runs(&mut self, keep: usize) {
        if self.runs.slots.len() <= keep.max(self.runs.kept * 2) {
            return;
        }
        let owned = |slot: &mut RunSlot| slot.row.as_ref().is_some_and(|run| run.owner.is_some());
        self.runs.slots.retain(|_, slot| owned(slot));
        self.runs.kept = self.runs.slots.len();
    }

    /// Forgets one run: it ended, and will hardly be asked for again.
    pub fn forget_run(&mut self, id: RunId) {
        let slot = self.runs.slots.remove(&id);
        let written = slot.is_none_or(|slot| !slot.changed);
        assert!(written, "run {id} is forgotten with changes");
    }

    /// Forgets everything that is not asked for in almost every commit. What is known of
    /// projections stays: whoever records a fact asks for it, and it is little.
    pub fn forget_rest(&mut self) {
        self.mail.clear();
        self.waits.clear();
        self.waiters.clear();
        self.gates.clear();
        self.offers.clear();
        self.keys.clear();
        self.watches.clear();
        self.states.clear();
        self.subscriptions.clear();
        self.publications.clear();
        self.latches.clear();
        self.audit.clear();
        self.queues.clear();
        self.permits.clear();
        self.facts.clear();
        self.streams.clear();
        self.documents.clear();
    }

    /// An open wait, as the database has it or as it now is.
    pub fn load_wait(&mut self, namespace: &Name, id: WaitId, row: WaitRow) {
        if !self.waits.is_loaded(&id) {
            self.note_waiter(namespace, &id, Some(&row));
            self.waits.load(id, Some(row));
        }
    }

    pub(crate) fn put_wait(&mut self, namespace: &Name, id: WaitId, row: WaitRow) {
        self.note_waiter(namespace, &id, Some(&row));
        self.waits.put(id, row);
    }

    pub(crate) fn remove_wait(&mut self, namespace: &Name, id: &WaitId) -> Option<WaitRow> {
        self.note_waiter(namespace, id, None);
        self.waits.remove(id)
    }

    fn note_waiter(&mut self, namespace: &Name, id: &WaitId, row: Option<&WaitRow>) {
        let before = self.waits.get(id).and_then(|wait| wait.place);
        let Some(place) = row.and_then(|wait| wait.place).or(before) else {
            return;
        };
        let gate = GateId {
            namespace: namespace.clone(),
            name: id.name.clone(),
        };
        if row.is_some_and(|wait| wait.taken.is_none()) {
            self.waiters.insert((gate, place), id.clone());
        } else {
            self.waiters.remove(&(gate, place));
        }
    }

    /// What changed since the last time. The caller writes it in one transaction, or drops these
    /// rows.
    pub fn take_changes(&mut self) -> Changes {
        let mut runs = Vec::with_capacity(self.runs.changed.len());
        for id in self.runs.changed.drain(..) {
            let slot = self.runs.slots.get_mut(&id).expect("a changed run is here");
            slot.changed = false;
            match (&slot.row, slot.stored) {
                (Some(row), None) => runs.push(RunChange::Insert(row.clone())),
                (Some(row), Some(before)) => {
                    let (place, marks) = indexed(row);
                    let reindex = place != before.0;
                    let marks = marks != before.1;
                    runs.push(RunChange::Update {
                        row: row.clone(),
                        reindex,
                        marks,
                    });
                }
                (None, _) => {
                    self.runs.slots.remove(&id);
                    continue;
                }
            }
            slot.stored = slot.row.as_ref().map(indexed);
        }
        let lanes = self.lanes[self.stored_lanes..].to_vec();
        let first_lane = u32::try_from(self.stored_lanes).expect("few lanes") + 1;
        self.stored_lanes = self.lanes.len();
        let changes = Changes {
            runs,
            lanes,
            first_lane,
            deleted: std::mem::take(&mut self.deleted),
            journal: std::mem::take(&mut self.journal),
            labels: std::mem::take(&mut self.labels),
            mail: self.mail.take_changes(),
            waits: self.waits.take_changes(),
            gates: self.gates.take_changes(),
            offers: self.offers.take_changes(),
            keys: self.keys.take_changes(),
            watches: self.watches.take_changes(),
            states: self.states.take_changes(),
            workers: self.workers.take_changes(),
            subscriptions: self.subscriptions.take_changes(),
            publications: self.publications.take_changes(),
            latches: self.latches.take_changes(),
            audit: self.audit.take_changes(),
            queues: self.queues.take_changes(),
            facts: self.facts.take_changes(),
            projections: self.projections.take_changes(),
            documents: self.documents.take_changes(),
        };
        // What the last fact of a stream says is not written twice.
        self.streams.accept_changes();
        self.purge(&changes.deleted);
        changes
    }

    /// Keeps what changed since the last time, for a store that has no other place for its rows:
    /// they stay as they are. `see` is told of what is not kept here.
    pub fn accept_changes(&mut self, mut see: impl FnMut(Accepted<'_>)) {
        for id in self.runs.changed.drain(..) {
            let slot = self.runs.slots.get_mut(&id).expect("a changed run is here");
            slot.changed = false;
            slot.stored = slot.row.as_ref().map(indexed);
            match &slot.row {
                Some(row) => see(Accepted::Run(row)),
                None => drop(self.runs.slots.remove(&id)),
            }
        }
        self.stored_lanes = self.lanes.len();
        self.mail.accept_changes();
        self.waits.accept_changes();
        self.gates.accept_changes();
        self.offers.accept_changes();
        self.keys.accept_changes();
        self.watches.accept_changes();
        self.states.accept_changes();
        self.workers.accept_changes();
        self.subscriptions.accept_changes();
        self.publications.accept_changes();
        self.latches.accept_changes();
        self.audit.accept_changes();
        self.queues.accept_changes();
        self.facts.accept_each(|id| see(Accepted::Fact(id)));
        self.streams.accept_changes();
        self.projections.accept_changes();
        self.documents.accept_changes();
        if !self.journal.is_empty() {
            let journal = self.journal.drain(..);
            journal.map(Accepted::Journal).for_each(&mut see);
        }
        if !self.labels.is_empty() {
            let labels = self.labels.drain(..);
            let label = |(run, name, value)| Accepted::Label(run, name, value);
            labels.map(label).for_each(&mut see);
        }
        if self.has_deleted() {
            let deleted = std::mem::take(&mut self.deleted);
            self.purge(&deleted);
            deleted.into_iter().map(Accepted::Deleted).for_each(see);
        }
    }

    /// Was a run deleted since the last time? What hangs under it is gone only once that is
    /// written, so a store writes before it decides the next operation.
    #[must_use]
    pub fn has_deleted(&self) -> bool {
        !self.deleted.is_empty()
    }

    /// Forgets what was kept under deleted runs.
    fn purge(&mut self, runs: &[RunId]) {
        if runs.is_empty() {
            return;
        }
        let runs: BTreeSet<RunId> = runs.iter().copied().collect();
        let owned = |key: &KeyRow| key.run.is_some_and(|run| runs.contains(&run));
        self.mail.retain(|id, _| !runs.contains(&id.run));
        self.waits.retain(|id, _| !runs.contains(&id.run));
        self.waiters.retain(|_, id| !runs.contains(&id.run));
        self.watches
            .retain(|(watched, ..), _| !runs.contains(watched));
        self.states.retain(|run, _| !runs.contains(run));
        self.latches.retain(|id, _| !runs.contains(&id.run));
        let by = |row: &PublicationRow| row.by.is_some_and(|by| runs.contains(&by.run));
        self.publications.retain(|_, row| !row.is_some_and(by));
        self.keys.retain(|_, key| !key.is_some_and(owned));
    }

    /// The run's messages, those of the engine's own first, then by name and number.
    pub fn mail_of(&self, run: RunId) -> impl Iterator<Item = (&MailId, &MailRow)> {
        let first = MailId {
            run,
            name: None,
            number: 0,
        };
        self.mail
            .starting_at(first)
            .take_while(move |(id, _)| id.run == run)
    }

    /// Who waits for the run's end.
    pub fn watchers_of(&self, run: RunId) -> impl Iterator<Item = WatchId> {
        let first = (run, RunId::from_bytes([0; 16]), 0, 0);
        let watches = self.watches.starting_at(first).map(|(watch, ())| *watch);
        watches.take_while(move |(watched, ..)| *watched == run)
    }

    /// The first who wait for an offer and have none, in order of their place.
    pub fn waiters_at(&self, gate: &GateId) -> impl Iterator<Item = &WaitId> {
        let (first, last) = ((gate.clone(), 0), (gate.clone(), u64::MAX));
        self.waiters.range(first..=last).map(|(_, wait)| wait)
    }

    /// The run's open waits, by name and call.
    pub fn waits_of(&self, run: RunId) -> impl Iterator<Item = (&WaitId, &WaitRow)> {
        let first = WaitId {
            run,
            name: Name::FIRST,
            call: 0,
        };
        self.waits
            .starting_at(first)
            .take_while(move |(id, _)| id.run == run)
    }

    /// The workflows that subscribe to a topic, by name.
    pub fn subscribers_of(&self, namespace: &Name, topic: &Name) -> impl Iterator<Item = &Name> {
        let first = SubscriptionId {
            namespace: namespace.clone(),
            topic: topic.clone(),
            workflow: Name::FIRST,
        };
        let (namespace, topic) = (namespace.clone(), topic.clone());
        self.subscriptions
            .starting_at(first)
            .take_while(move |(id, _)| id.namespace == namespace && id.topic == topic)
            .map(|(id, _)| &id.workflow)
    }

    /// The last row of a namespace's audit.
    pub(crate) fn last_audit(&self, namespace: &Name) -> Option<(&AuditId, &AuditRow)> {
        let at = |number| AuditId {
            namespace: namespace.clone(),
            number,
        };
        self.audit.last(at(0), at(u64::MAX))
    }

    /// The hints of what was decided since the last time.
    pub fn take_hints(&mut self) -> Vec<Hint> {
        std::mem::take(&mut self.hints)
    }
}
