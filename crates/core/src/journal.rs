//! The journal: what happened in a run, in order, without gaps. One row per round holds the
//! entries of that round as a JSON array, so that a view can unpack them.
//!
//! Every durable call has a number, given at its first poll. Its entries carry the number, and its
//! first entry what was called, so that replay can tell whether the code still does the same.

mod write;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    Context, Deadline, Emitted, Failure, Name, Parent, Payload, PublicationId, RunId, RunState,
    STATE_CHANGED, ScopeEnd, Timestamp,
};

/// One entry.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// The first of an execution.
    Started {
        /// What runs.
        workflow: Name,
        /// Which version of it.
        version: u32,
        /// With what.
        input: Payload,
        /// The first execution before this one that did what is undone together with it: not
        /// those that were declared settled.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        unsettled: Option<u32>,
        /// What flowed down to it.
        #[serde(default, skip_serializing_if = "Context::is_empty")]
        context: Context,
        /// When it may begin, if that is later than its start: what it waits for until then is
        /// nobody's delay.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        due: Option<Timestamp>,
    },
    /// A call began; its end is another entry.
    Begun {
        /// The call's number.
        call: u32,
        /// What was called.
        what: Call,
    },
    /// A call that had begun ended.
    Done {
        /// The call's number.
        call: u32,
        /// How.
        outcome: Outcome,
    },
    /// A call began and ended in one round.
    Did {
        /// The call's number.
        call: u32,
        /// What was called.
        what: Call,
        /// How it ended.
        outcome: Outcome,
    },
    /// An attempt failed; there will be another.
    Attempted {
        /// The call's number.
        call: u32,
        /// What was called: a step has no other beginning.
        what: Call,
        /// Which attempt, from 1.
        attempt: u32,
        /// What went wrong. Boxed, or it would make every entry large.
        failure: Box<Failure>,
        /// When it failed.
        at: Timestamp,
        /// When the next may begin.
        retry_at: Timestamp,
    },
    /// The code let go of a call that had begun (it lost a `select`): nothing of it is consumed.
    Dropped {
        /// The call's number.
        call: u32,
    },
    /// A step is committed, and what it set off is waited for.
    Worked {
        /// The call's number.
        call: u32,
        /// What was called.
        what: Call,
        /// What the step came to.
        value: Payload,
        /// For how long others may join what it published, from its commit on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        window: Option<Duration>,
        /// What it published.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        emitted: Vec<Emitted>,
    },
    /// The run's context has these values from here on.
    ContextSet {
        /// Those that were set.
        context: Context,
    },
    /// All that a call set off has ended.
    Settled {
        /// The call's number.
        call: u32,
        /// How each ended, in the order in which they were set off.
        ends: Vec<ScopeEnd>,
        /// What the call fails with, if it does.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failure: Option<Box<Failure>>,
    },
    /// From here on the run undoes what it did; no forward code runs after this.
    RollingBack {
        /// Why.
        why: Why,
        /// How the run had ended, if it had.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        was: Option<Outcome>,
        /// What flows down from the run that rolls it back; it wins over the run's own.
        #[serde(default, skip_serializing_if = "Context::is_empty")]
        context: Context,
    },
    /// The run was asked to end; no user code runs after this.
    CancelSeen,
    /// The run was asked to end, and what it did is kept; no user code runs after this.
    Kept,
    /// The run has missed its deadline; no user code runs forward after this.
    DeadlineMissed {
        /// Which.
        deadline: Deadline,
        /// It fails, and what it did is kept.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        kept: bool,
    },
    /// The execution ended; the next begins with its own journal.
    Continued,
    /// The run ended. Its result is in the run's row.
    Ended {
        /// How.
        state: RunState,
    },
}

/// How a call is undone.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UndoBy {
    /// By what the workflow's code gave when it made the call.
    Code,
    /// By what the code gave, and not only in a rollback: it is done in any case, once.
    Finally,
    /// By a function that is registered under this name, with these arguments.
    Named(Name, Payload),
}

/// Why a run undoes what it did.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// It failed.
    Failed(Box<Failure>),
    /// It was cancelled.
    Cancelled,
    /// Its parent is rolled back, or an operator wants it undone.
    Asked,
    /// An undo had failed, and an operator lets it be tried again.
    Retried,
    /// An undo had failed, and an operator lets it be left out.
    Skipped,
}

/// What a durable call asks for.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Call {
    /// Work in the round's transaction.
    Step {
        /// Its name.
        name: Name,
        /// How it is undone, if it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        undo: Option<Box<UndoBy>>,
    },
    /// Work outside it.
    Effect {
        /// Its name.
        name: Name,
        /// How it is undone, if it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        undo: Option<Box<UndoBy>>,
    },
    /// A pause.
    Sleep {
        /// Until when.
        until: Timestamp,
    },
    /// A wait for a signal; of [`STATE_CHANGED`], for a condition on the run's own state.
    Wait {
        /// Which signal.
        signal: Name,
        /// For how long at most.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
    },
    /// A wait for another run's end.
    Watch {
        /// Which run.
        run: RunId,
    },
    /// A child run, waited for.
    Child {
        /// What runs.
        workflow: Name,
        /// As which run.
        run: RunId,
    },
    /// Several child runs, waited for together.
    Children {
        /// What runs.
        workflow: Name,
    },
    /// The commands of a batch, waited for together.
    Batch {
        /// What runs: the batch.
        workflow: Name,
    },
    /// A publication: one child run for each workflow that subscribes, all waited for.
    Publish {
        /// To which topic.
        topic: Name,
        /// For how long others may join, from its commit on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        window: Option<Duration>,
        /// As which publication; not said by older versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<PublicationId>,
    },
    /// What an earlier call did is undone.
    Undo {
        /// That call.
        of: u32,
        /// Its name.
        name: Name,
        /// Of which earlier execution; of this one if none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        execution: Option<u32>,
    },
    /// What an earlier call set off is rolled back.
    RollBack {
        /// That call.
        of: u32,
        /// Of which earlier execution; of this one if none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        execution: Option<u32>,
    },
    /// A run of its own, not waited for.
    Spawn {
        /// What runs.
        workflow: Name,
        /// As which run.
        run: RunId,
    },
    /// A signal sent to a run.
    Signal {
        /// Which signal.
        signal: Name,
    },
    /// A signal offered to whoever waits.
    Offer {
        /// Which signal.
        signal: Name,
    },
    /// A recorded side value: the time, an id, a random number.
    Record {
        /// Which.
        name: Name,
    },
    /// The run's own state, read or changed.
    State {
        /// Which of the two.
        name: Name,
    },
}

impl Call {
    /// Can what it did be undone?
    #[must_use]
    pub fn undo(&self) -> Option<&UndoBy> {
        match self {
            Call::Step { undo, .. } | Call::Effect { undo, .. } => undo.as_deref(),
            _ => None,
        }
    }

    /// Kind and name: what the code must ask for again in replay.
    #[must_use]
    pub fn signature(&self) -> (&'static str, &str) {
        match self {
            Call::Step { name, .. } => ("step", name.as_str()),
            Call::Effect { name, .. } => ("effect", name.as_str()),
            Call::Sleep { .. } => ("sleep", ""),
            Call::Wait { signal, .. } if *signal == STATE_CHANGED => ("wait for its state", ""),
            Call::Wait { signal, .. } => ("wait", signal.as_str()),
            Call::Watch { .. } => ("watch", ""),
            Call::Child { workflow, .. } => ("child", workflow.as_str()),
            Call::Children { workflow } => ("children", workflow.as_str()),
            Call::Batch { .. } => ("commands", ""),
            Call::Publish { topic, .. } => ("publish", topic.as_str()),
            Call::Undo { name, .. } => ("undo", name.as_str()),
            Call::RollBack { .. } => ("roll back", ""),
            Call::Spawn { workflow, .. } => ("spawn", workflow.as_str()),
            Call::Signal { signal } => ("signal", signal.as_str()),
            Call::Offer { signal } => ("offer", signal.as_str()),
            Call::Record { name } => ("record", name.as_str()),
            Call::State { name } => ("state", name.as_str()),
        }
    }
}

impl std::fmt::Display for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.signature() {
            (kind, "") => f.write_str(kind),
            (kind, name) => write!(f, "{kind} `{name}`"),
        }
    }
}

/// How a call or a run ended.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// With a value.
    Value(Payload),
    /// With a failure.
    Failure(Box<Failure>),
}

impl Outcome {
    /// As a result.
    ///
    /// # Errors
    /// When it is a failure.
    pub fn into_result(self) -> Result<Payload, Failure> {
        match self {
            Outcome::Value(value) => Ok(value),
            Outcome::Failure(failure) => Err(*failure),
        }
    }
}

impl From<Result<Payload, Failure>> for Outcome {
    fn from(result: Result<Payload, Failure>) -> Outcome {
        match result {
            Ok(value) => Outcome::Value(value),
            Err(failure) => Outcome::Failure(Box::new(failure)),
        }
    }
}

/// The entries of one round, as they are stored.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct JournalRow {
    /// Whose.
    pub run: RunId,
    /// In which execution.
    pub execution: u32,
    /// The number of the first entry, from 1.
    pub first: u64,
    /// How many.
    pub count: u32,
    /// The fence under which they were committed.
    pub epoch: u64,
    /// When.
    pub at: Timestamp,
    /// A JSON array of entries.
    #[serde(with = "text")]
    pub entries: Vec<u8>,
}

/// Bytes that are text anyway.
mod text {
    use std::borrow::Cow;

    use serde::{Deserialize, Deserializer, Serializer, ser};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        let text = std::str::from_utf8(bytes).map_err(ser::Error::custom)?;
        to.serialize_str(text)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        let text = Cow::<str>::deserialize(from)?;
        Ok(text.into_owned().into_bytes())
    }
}

/// Entries as they are stored.
///
/// # Panics
/// Never: entries hold nothing that JSON cannot.
#[must_use]
pub fn encode_entries(entries: &[Entry]) -> Vec<u8> {
    write::entries(entries)
}

/// Entries as they were.
///
/// # Errors
/// When the bytes are not a list of entries this version knows.
pub fn decode_entries(bytes: &[u8]) -> Result<Vec<Entry>, serde_json::Error> {
    // Text that is known to be text is read without looking at every string again.
    match std::str::from_utf8(bytes) {
        Ok(text) => serde_json::from_str(text),
        Err(_) => serde_json::from_slice(bytes),
    }
}

impl Parent {
    /// Is this the execution that waits?
    #[must_use]
    pub fn is_current(&self, execution: u32) -> bool {
        self.execution == execution
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back_as_they_were() {
        let name = Name::constant("x");
        let entries = vec![
            Entry::Started {
                workflow: name.clone(),
                version: 3,
                input: Payload::null(),
                unsettled: Some(2),
                context: Context::default(),
                due: Some(Timestamp(7)),
            },
            Entry::Begun {
                call: 1,
                what: Call::Wait {
                    signal: name.clone(),
                    until: None,
                },
            },
            Entry::Done {
                call: 1,
                outcome: Outcome::Value(Payload::parse("[1, 2]").unwrap()),
            },
            Entry::Did {
                call: 2,
                what: Call::Step { name, undo: None },
                outcome: Outcome::Failure(Box::new(Failure::business("no"))),
            },
            Entry::Ended {
                state: RunState::Failed,
            },
        ];
        assert_eq!(decode_entries(&encode_entries(&entries)).unwrap(), entries);
    }

    #[test]
    fn e9_an_entry_of_a_newer_version_is_refused_not_skipped() {
        assert!(decode_entries(br#"[{"begun":{"call":1,"what":{"teleport":{}}}}]"#).is_err());
    }
}
