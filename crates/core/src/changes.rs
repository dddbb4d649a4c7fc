//! What a batch of decisions changed, as rows to write: plain values, fit for arrays.

use crate::{
    AuditId, AuditRow, DocumentId, DocumentRow, FactId, FactRow, GateId, GateRow, JournalRow,
    KeyId, KeyRow, Lane, LatchId, LatchRow, MailId, MailRow, Name, OfferId, OfferRow, ProjectionId,
    ProjectionRow, PublicationId, PublicationRow, QueueId, QueueRow, RunId, RunRow, StateRow,
    SubscriptionId, SubscriptionRow, WaitId, WaitRow, WatchId, WorkerId, WorkerRow,
};

/// One write.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub enum Write<V> {
    /// The database does not have the row.
    Insert(V),
    /// The database has another version of it.
    Update(V),
    /// The database has it and should not.
    Delete,
}

/// One write of a run.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub enum RunChange {
    /// A new run.
    Insert(RunRow),
    /// A changed run.
    Update {
        /// As it is now.
        row: RunRow,
        /// Did the state or another column of an index change?
        reindex: bool,
        /// Did how its end is told, what there is to undo, or a deadline change?
        marks: bool,
    },
}

impl RunChange {
    /// The run as it is now.
    #[must_use]
    pub fn row(&self) -> &RunRow {
        match self {
            RunChange::Insert(row) | RunChange::Update { row, .. } => row,
        }
    }
}

/// Everything to write in one transaction, in this order.
#[derive(Clone, PartialEq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Changes {
    /// New lanes.
    pub lanes: Vec<Lane>,
    /// The number of the first of them.
    pub first_lane: u32,
    /// Runs.
    pub runs: Vec<RunChange>,
    /// Journal rows, only ever added.
    pub journal: Vec<JournalRow>,
    /// Labels, only ever added.
    pub labels: Vec<(RunId, Name, String)>,
    /// Messages.
    pub mail: Vec<(MailId, Write<MailRow>)>,
    /// Waits.
    pub waits: Vec<(WaitId, Write<WaitRow>)>,
    /// Gates.
    pub gates: Vec<(GateId, Write<GateRow>)>,
    /// Offers.
    pub offers: Vec<(OfferId, Write<OfferRow>)>,
    /// Keys.
    pub keys: Vec<(KeyId, Write<KeyRow>)>,
    /// Watches.
    pub watches: Vec<(WatchId, Write<()>)>,
    /// Runs' own state.
    pub states: Vec<(RunId, Write<StateRow>)>,
    /// Workers.
    pub workers: Vec<(WorkerId, Write<WorkerRow>)>,
    /// Subscriptions.
    pub subscriptions: Vec<(SubscriptionId, Write<SubscriptionRow>)>,
    /// Publications.
    pub publications: Vec<(PublicationId, Write<PublicationRow>)>,
    /// Latches.
    pub latches: Vec<(LatchId, Write<LatchRow>)>,
    /// Limits of queues.
    pub queues: Vec<(QueueId, Write<QueueRow>)>,
    /// What was done in somebody's name, only ever added.
    pub audit: Vec<(AuditId, Write<AuditRow>)>,
    /// Facts, only ever added, in the order in which they were recorded. How far a stream is, the
    /// last of its facts says.
    pub facts: Vec<(FactId, Write<FactRow>)>,
    /// Projections.
    #[serde(default)]
    pub projections: Vec<(ProjectionId, Write<ProjectionRow>)>,
    /// Documents.
    pub documents: Vec<(DocumentId, Write<DocumentRow>)>,
    /// Runs to remove with everything under them: journal, labels, mail, waits, keys, state, what
    /// they published, their latches, and who waited for their end. That they waited for others'
    /// is left, and goes with those.
    pub deleted: Vec<RunId>,
}

impl Changes {
    /// Is there nothing to write?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.journal.is_empty() && self.is_plain()
    }

    /// Is there nothing to write but runs and their journals?
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.lanes.is_empty()
            && self.labels.is_empty()
            && self.mail.is_empty()
            && self.waits.is_empty()
            && self.gates.is_empty()
            && self.offers.is_empty()
            && self.keys.is_empty()
            && self.watches.is_empty()
            && self.states.is_empty()
            && self.workers.is_empty()
            && self.subscriptions.is_empty()
            && self.publications.is_empty()
            && self.latches.is_empty()
            && self.queues.is_empty()
            && self.audit.is_empty()
            && self.facts.is_empty()
            && self.projections.is_empty()
            && self.documents.is_empty()
            && self.deleted.is_empty()
    }
}
