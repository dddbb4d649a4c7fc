//! Everything that a screen, a command or a test reads: a few typed queries, with paging.

use std::collections::BTreeMap;

use roundel_core::check::{OfferRecord, RunRecord};
use roundel_core::{
    AuditId, AuditRow, DocumentId, FactId, FactRow, GateId, GateRow, JournalRow, KeyId, KeyRow,
    Lane, LatchId, LatchRow, MailId, MailRow, Name, OfferId, OfferRow, PublicationId,
    PublicationRow, QueueId, QueueRow, RunId, RunRow, RunState, StateRow, SubscriptionId,
    SubscriptionRow, Target, Timestamp, WaitId, WaitRow, WorkerId, WorkerRow,
};

use crate::cells::{self, Cells, Strange};

pub(crate) mod facts;
pub(crate) mod look;
mod runs;
pub(crate) mod sql;

pub(crate) use facts::without_positions;
pub use facts::{DocumentFilter, DocumentView, FactFilter, FactView, Projected, ProjectionView};
pub use look::{LOOK, Stretch};
pub use roundel_core::Position;
pub use runs::RunFilter;
pub(crate) use runs::Way;
pub use sql::{Statement, Table};

/// A question.
#[derive(Clone, Debug, PartialEq)]
pub enum Query {
    /// One run.
    Run(Name, Target),
    /// Runs, newest first, a stretch at a time.
    Runs(RunFilter),
    /// Runs of a workflow, in its first version, that may be taken, in the order of their turns:
    /// those that are ready, and those that waited for a time that has come.
    Due(DueFilter),
    /// A run's journal, from an entry on, so many rows at most; all of an execution if no limit.
    Journal {
        /// Whose.
        run: RunId,
        /// Of which execution.
        execution: u32,
        /// Rows whose entries come after this one.
        after: u64,
        /// How many rows at most.
        limit: usize,
    },
    /// A run's unread messages, in order of arrival, after this number, so many at most.
    Mail(RunId, u64, usize),
    /// A run's own state.
    State(RunId),
    /// The runs directly below a run, oldest first, after that one, so many at most.
    Children(RunId, Option<RunId>, usize),
    /// How many runs there are directly below a run, by state.
    Below(RunId),
    /// The runs that one call set off together, in order.
    Scope {
        /// Whose call.
        run: RunId,
        /// In which execution.
        execution: u32,
        /// The call.
        call: u32,
        /// From this number on.
        from: u32,
    },
    /// What is published to, or subscribed to. So many publications are counted at most, the newest
    /// of each topic, of all as many.
    Topics(Name, usize),
    /// One publication: as a page of one, or none.
    Publication(PublicationId),
    /// What was published to a topic, newest first.
    Publications {
        /// Of which tenant.
        namespace: Name,
        /// To which topic.
        topic: Name,
        /// Those before this one: the last of the page before.
        before: Option<PublicationId>,
        /// How many at most.
        limit: usize,
    },
    /// Counts.
    Stats(Name),
    /// Workers.
    Workers,
    /// What can be run, of all tenants: lanes, by number, from 1 on.
    Lanes,
    /// Everything that is stored under each run's id, by id, after this one, so many at most: for
    /// verification. Also what is left of runs that are not there.
    Records(Option<RunId>, usize),
    /// Offers with what they hang on, by gate and place, after this one, so many at most: for
    /// verification.
    Offers(Option<OfferId>, usize),
    /// Signals that their runs ended without and that wait for an operator, newest runs first.
    Parked(SignalFilter),
    /// What was done in somebody's name.
    Audit(AuditFilter),
    /// The queues of a tenant that have limits, by name.
    Queues(Name),
    /// One fact: as a page of one, or none.
    Fact(FactId),
    /// Facts, in order.
    Facts(FactFilter),
    /// One document: as a page of one, or none.
    Document(DocumentId),
    /// Documents, by path.
    Documents(DocumentFilter),
    /// Projections, of a tenant or of all.
    Projections {
        /// Of which tenant.
        namespace: Option<Name>,
        /// Are all facts to be counted?
        count: bool,
    },
    /// An operator's own statement.
    Sql(Statement),
    /// What such a statement can ask: views and tables, with their columns.
    Views,
    /// Every row of every table, in order: for tests.
    Dump,
}

/// Which runs may be taken.
#[derive(Clone, Debug, PartialEq)]
pub struct DueFilter {
    /// Of which tenant.
    pub namespace: Name,
    /// Of which workflow.
    pub workflow: Name,
    /// By this time.
    pub now: Timestamp,
    /// Those after this one: when the last of the page before was due, and which it was.
    pub after: Option<(Timestamp, RunId)>,
    /// How many at most.
    pub limit: usize,
}

impl DueFilter {
    /// What all of them come after.
    pub(crate) fn after(&self) -> (Timestamp, RunId) {
        let first = (Timestamp(i64::MIN), RunId::from_bytes([0; 16]));
        self.after.unwrap_or(first)
    }
}

/// Which rows of the audit.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct AuditFilter {
    /// Of which tenant; of all if none is said.
    pub namespace: Option<Name>,
    /// About which run.
    pub run: Option<RunId>,
    /// By whom.
    pub operator: Option<Name>,
    /// From which end.
    pub order: AuditOrder,
    /// Those after this one, in that order: where the look before ended.
    pub after: Option<AuditId>,
    /// How many at most.
    pub limit: usize,
    /// How many rows of a tenant's are passed at most, whether they fit or not; [`LOOK`] unless
    /// said.
    pub look: Option<usize>,
}

/// From which end the audit is read.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub enum AuditOrder {
    /// As it was written.
    #[default]
    OldestFirst,
    /// What was done last comes first.
    NewestFirst,
}

impl AuditFilter {
    /// The tenant whose audit is looked through from number to number.
    pub(crate) fn through(&self) -> Option<&Name> {
        self.namespace.as_ref().filter(|_| self.run.is_none())
    }

    /// The number after which that begins.
    pub(crate) fn number(&self) -> Option<u64> {
        self.after.as_ref().map(|id| id.number)
    }

    /// Where the page begins: after this tenant and number, in the order that was asked for.
    pub(crate) fn begin(&self) -> (&str, i64) {
        match (&self.after, self.order) {
            (Some(id), _) => (id.namespace.as_str(), cells::number(id.number)),
            (None, AuditOrder::OldestFirst) => ("", 0),
            // No name comes after it.
            (None, AuditOrder::NewestFirst) => ("\u{10FFFF}", i64::MAX),
        }
    }
}

/// Which parked signals.
#[derive(Clone, Debug, PartialEq)]
pub struct SignalFilter {
    /// Of which tenant.
    pub namespace: Name,
    /// Of runs of which workflow.
    pub workflow: Option<Name>,
    /// Those before this one, by run and number: where the look before ended.
    pub before: Option<(RunId, u64)>,
    /// How many at most.
    pub limit: usize,
    /// How many rows are passed at most, whether they fit or not: 1 to [`LOOK`].
    pub look: usize,
}

/// A parked signal, as it is shown.
#[derive(Clone, Debug, PartialEq)]
pub struct SignalView {
    /// Where it lies.
    pub id: MailId,
    /// The signal.
    pub row: MailRow,
    /// What ran.
    pub lane: Lane,
    /// How the run ended without it.
    pub state: RunState,
}

impl SignalView {
    /// Of a message; namespace, workflow, version; state.
    pub(crate) fn of(row: &impl Cells) -> Result<SignalView, Strange> {
        let (id, mail) = cells::mail(row)?;
        Ok(SignalView {
            id,
            row: mail,
            lane: cells::lane(row, 10)?,
            state: cells::state(row, 13)?,
        })
    }
}

/// A row of the audit.
pub type AuditView = (AuditId, AuditRow);

/// An answer, of the same name as the question.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// One run, if it exists.
    Run(Option<Box<RunView>>),
    /// Runs.
    Runs(Page<RunView>),
    /// A stretch of a list of runs.
    Looked(Stretch<RunView, RunId>),
    /// How many there are in each state that some are in, in the order of the states.
    Below(Vec<(RunState, u64)>),
    /// Journal rows.
    Journal(JournalPage),
    /// Messages.
    Mail(Vec<MailView>),
    /// State.
    State(Option<StateView>),
    /// Topics, by name.
    Topics(Vec<TopicView>),
    /// Publications.
    Publications(Page<PublicationView>),
    /// Counts.
    Stats(Stats),
    /// Workers.
    Workers(Vec<WorkerRow>),
    /// Lanes.
    Lanes(Vec<Lane>),
    /// Runs, whole.
    Records(Page<(RunId, RunRecord)>),
    /// Offers, whole.
    Offers(Page<OfferRecord>),
    /// Parked signals.
    Parked(Stretch<SignalView, (RunId, u64)>),
    /// Rows of the audit.
    Audit(Stretch<AuditView, AuditId>),
    /// Queues that have limits, and how many permits each has given.
    Queues(Vec<(QueueView, Permits)>),
    /// Facts.
    Facts(Stretch<FactView, Position>),
    /// Documents.
    Documents(Page<DocumentView>),
    /// Projections.
    Projections(Projected),
    /// What a statement found.
    Table(Table),
    /// Everything.
    Dump(Box<Dump>),
}

/// A run, as it is shown.
#[derive(Clone, Debug, PartialEq)]
pub struct RunView {
    /// The row.
    pub row: RunRow,
    /// Namespace, workflow and version.
    pub lane: Lane,
    /// Its labels.
    pub labels: Vec<(Name, String)>,
}

/// Some of many.
#[derive(Clone, Debug, PartialEq)]
pub struct Page<T> {
    /// These.
    pub items: Vec<T>,
    /// There are more after the last.
    pub more: bool,
}

/// Journal rows, in order.
pub type JournalPage = Page<JournalRow>;
/// A message.
pub type MailView = (MailId, MailRow);
/// A subscription.
pub type SubscriptionView = (SubscriptionId, SubscriptionRow);
/// A publication.
pub type PublicationView = (PublicationId, PublicationRow);
/// A queue that has limits.
pub type QueueView = (QueueId, QueueRow);
/// How many of a queue are leased and count, by flow key.
pub type Permits = BTreeMap<Option<Name>, u32>;
/// A topic: somebody subscribes to it, or something was published there.
#[derive(Clone, Debug, PartialEq)]
pub struct TopicView {
    /// Its name.
    pub topic: Name,
    /// The workflows that subscribe, by name, and since when.
    pub subscribers: Vec<(Name, Timestamp)>,
    /// How often something was published: of those that were counted.
    pub publications: u64,
    /// How often nobody subscribed then: of those that were counted.
    pub unheard: u64,
    /// There are older ones, which were not counted.
    pub more: bool,
    /// When something was last published.
    pub last_at: Option<Timestamp>,
}

/// The topic of this name, to be added to.
pub(crate) fn topic_of<'a>(
    topics: &'a mut BTreeMap<Name, TopicView>,
    name: &Name,
) -> &'a mut TopicView {
    let new = || TopicView {
        topic: name.clone(),
        subscribers: Vec::new(),
        publications: 0,
        unheard: 0,
        more: false,
        last_at: None,
    };
    topics.entry(name.clone()).or_insert_with(new)
}

/// A run's own state.
pub type StateView = StateRow;

/// Counts of one namespace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// Runs by workflow, version and state.
    pub runs: Vec<(Name, u32, RunState, u64)>,
    /// Offers that nobody has, by signal.
    pub offers: Vec<(Name, u64)>,
    /// Unread messages.
    pub mail: u64,
    /// Runs that are leased, by worker.
    pub leases: Vec<(WorkerId, u64)>,
}

/// Runs that are alike: workflow, version, state, owner; how many, and how many unread messages.
pub(crate) type Alike = (Name, u32, RunState, Option<WorkerId>, u64, u64);

impl Stats {
    /// What these come to.
    pub(crate) fn of(all: impl IntoIterator<Item = Alike>, offers: Vec<(Name, u64)>) -> Stats {
        let place = |state| RunState::ALL.iter().position(|known| *known == state);
        let (mut runs, mut leases, mut mail) = (BTreeMap::new(), BTreeMap::new(), 0);
        for (workflow, version, state, owner, count, unread) in all {
            let key = (workflow, version, place(state));
            runs.entry(key).or_insert((state, 0)).1 += count;
            if let Some(owner) = owner {
                *leases.entry(owner).or_default() += count;
            }
            mail += unread;
        }
        let counted = |((workflow, version, _), (state, count))| (workflow, version, state, count);
        Stats {
            runs: runs.into_iter().map(counted).collect(),
            offers,
            mail,
            leases: leases.into_iter().collect(),
        }
    }
}

/// Every row, in order of its key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Dump {
    /// Lanes, by number.
    pub lanes: Vec<Lane>,
    /// Runs.
    pub runs: Vec<RunRow>,
    /// Journals.
    pub journal: Vec<JournalRow>,
    /// Labels: run, name, value.
    pub labels: Vec<(RunId, Name, String)>,
    /// Messages.
    pub mail: Vec<(MailId, MailRow)>,
    /// Waits.
    pub waits: Vec<(WaitId, WaitRow)>,
    /// Gates.
    pub gates: Vec<(GateId, GateRow)>,
    /// Offers.
    pub offers: Vec<(OfferId, OfferRow)>,
    /// Keys.
    pub keys: Vec<(KeyId, KeyRow)>,
    /// Watches.
    pub watches: Vec<(RunId, RunId, u32, u32)>,
    /// States.
    pub states: Vec<(RunId, StateRow)>,
    /// Workers.
    pub workers: Vec<WorkerRow>,
    /// Subscriptions.
    pub subscriptions: Vec<SubscriptionView>,
    /// Publications.
    pub publications: Vec<PublicationView>,
    /// Latches.
    pub latches: Vec<(LatchId, LatchRow)>,
    /// Limits of queues.
    pub queues: Vec<QueueView>,
    /// What was done in somebody's name.
    pub audit: Vec<AuditView>,
    /// Facts, in the order in which they were recorded.
    pub facts: Vec<(FactId, FactRow)>,
    /// Projections, without positions, which differ between stores.
    pub projections: Vec<ProjectionView>,
    /// Documents.
    pub documents: Vec<DocumentView>,
}
