//! What waits for an operator.

use roundel::{Failure, Name, Payload, RunId, RunState, Timestamp, Trouble, TroubleGroup};

use crate::shape::output;

output! {
    /// Something that waits for an operator: a run, or a signal.
    pub struct Parked {
        /// How it is named when something is done about it.
        id: String,
        /// The run; of a signal, the run that ended without it.
        run: RunId,
        /// The signal, if it is one.
        signal: Option<Name>,
        /// What runs.
        workflow: Name,
        /// Which version.
        version: u32,
        /// The user's own id for the run.
        key: Option<Name>,
        /// Where the run stands.
        state: RunState,
        /// The run's epoch: said as `seen`, it says on which look a decision rests.
        epoch: u64,
        /// Since when.
        since: Timestamp,
        /// Failures that are alike have the same.
        fingerprint: Option<String>,
        /// Why.
        failure: Option<Failure>,
        /// What the run was given, or what the signal says, if one is asked about.
        input: Option<Payload>,
    }
}

output! {
    /// Failures that are alike.
    pub struct Group {
        /// The same for all of them.
        fingerprint: String,
        /// How many.
        count: usize,
        /// Of which workflows.
        workflows: Vec<String>,
        /// What they mean.
        class: String,
        /// A stable word for programs.
        code: String,
        /// For people: that of the newest.
        message: String,
        /// The newest.
        newest: String,
        /// The oldest.
        oldest: String,
    }
}

impl From<&Trouble> for Parked {
    fn from(trouble: &Trouble) -> Parked {
        let why = trouble.why();
        let (run, signal, lane, key, (state, epoch)) = match trouble {
            Trouble::Run(run) => {
                let row = &run.row;
                let stands = (row.state, row.epoch);
                (row.id, None, &run.lane, row.key.clone(), stands)
            }
            Trouble::Signal(signal) => {
                let name = signal.id.name.clone();
                (signal.id.run, name, &signal.lane, None, (signal.state, 0))
            }
        };
        Parked {
            id: trouble.id().to_string(),
            run,
            signal,
            workflow: trouble.workflow().clone(),
            version: lane.version,
            key,
            state,
            epoch,
            since: trouble.since(),
            fingerprint: why.as_ref().map(|why| why.fingerprint()),
            failure: why.map(std::borrow::Cow::into_owned),
            input: None,
        }
    }
}

impl From<&TroubleGroup> for Group {
    fn from(group: &TroubleGroup) -> Group {
        Group {
            fingerprint: group.fingerprint.clone(),
            count: group.count,
            workflows: group.workflows.clone(),
            class: word(&group.class),
            code: group.code.clone(),
            message: group.message.clone(),
            newest: group.newest.to_string(),
            oldest: group.oldest.to_string(),
        }
    }
}

/// How something is spelled in JSON.
fn word(of: &impl serde::Serialize) -> String {
    let value = serde_json::to_value(of).ok();
    value
        .and_then(|value| Some(value.as_str()?.to_owned()))
        .unwrap_or_default()
}
