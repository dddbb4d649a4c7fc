//! What happened once and for all, what that came to, and what was done in somebody's name.

use roundel::{AuditView, DocumentView, FactView, Name, Payload, RunId, Timestamp};

use crate::shape::output;

output! {
    /// A fact.
    pub struct Fact {
        /// Its place among all.
        position: String,
        /// Its id.
        id: Name,
        /// What happened.
        kind: Name,
        /// In which form it says so.
        version: u32,
        /// What it says.
        data: Payload,
        /// When it was recorded.
        at: Timestamp,
        /// It was decided here, not received.
        own: bool,
        /// By which process.
        by: Option<Name>,
        /// By which run.
        run: Option<RunId>,
        /// In which of its executions.
        execution: Option<u32>,
        /// With which entry of its journal.
        entry: Option<u64>,
        /// The stream in which it is counted.
        stream: Option<Name>,
        /// Its number there.
        stream_version: Option<u64>,
    }
}

output! {
    /// What facts came to.
    pub struct Document {
        /// Where it lies.
        path: Name,
        /// How many facts it has taken up.
        version: u64,
        /// When it last changed.
        at: Timestamp,
        /// What it says.
        value: Option<Payload>,
    }
}

output! {
    /// Something that was done in somebody's name.
    pub struct Audited {
        /// Its number in the namespace.
        number: u64,
        /// When.
        at: Timestamp,
        /// Who.
        operator: Name,
        /// Why.
        reason: String,
        /// What.
        action: String,
        /// To what.
        target: String,
        /// To which run.
        run: Option<RunId>,
        /// With what.
        detail: Option<Payload>,
        /// What came of it.
        answer: String,
        /// Over this row and the one before.
        seal: String,
    }
}

impl From<&FactView> for Fact {
    fn from(fact: &FactView) -> Fact {
        let row = &fact.row;
        Fact {
            position: fact.position.to_string(),
            id: fact.id.id.clone(),
            kind: row.kind.clone(),
            version: row.version,
            data: row.data.clone(),
            at: row.at,
            own: row.own,
            by: row.by.clone(),
            run: row.cause.map(|cause| cause.run),
            execution: row.cause.map(|cause| cause.execution),
            entry: row.cause.map(|cause| cause.entry),
            stream: row.stream.as_ref().map(|(name, _)| name.clone()),
            stream_version: row.stream.as_ref().map(|(_, number)| *number),
        }
    }
}

impl From<&DocumentView> for Document {
    fn from((id, row): &DocumentView) -> Document {
        Document {
            path: id.path.clone(),
            version: row.version,
            at: row.at,
            value: row.value.clone(),
        }
    }
}

impl From<&AuditView> for Audited {
    fn from((id, row): &AuditView) -> Audited {
        Audited {
            number: id.number,
            at: row.at,
            operator: row.operator.clone(),
            reason: row.reason.clone(),
            action: row.action.clone(),
            target: row.target.clone(),
            run: row.run,
            detail: row.detail.clone(),
            answer: row.answer.clone(),
            seal: row.seal.iter().map(|byte| format!("{byte:02x}")).collect(),
        }
    }
}
