//! Commands that were sent together.

use std::collections::BTreeMap;

use roundel::{BatchView, Name, RunId, RunState, RunView, Timestamp};
use roundel_core::Outcome;

use crate::shape::output;

output! {
    /// A batch.
    pub struct Batch {
        /// The run that it is.
        run: RunId,
        /// The user's own id for it.
        key: Option<Name>,
        /// Where it stands.
        state: &'static str,
        /// How many commands it has.
        commands: u64,
        /// How many of them have ended.
        ended: u64,
        /// How many of those without a reply.
        failed: u64,
        /// How many wait for an operator.
        parked: u64,
        /// How many are in each state.
        members: BTreeMap<String, u64>,
        /// When it was sent.
        created_at: Timestamp,
        /// When it last changed.
        changed_at: Timestamp,
    }
}

output! {
    /// A command of a batch.
    pub struct Member {
        /// The run that it is.
        run: RunId,
        /// Its queue.
        queue: Name,
        /// The user's own id for it.
        key: Option<Name>,
        /// Where it stands.
        state: RunState,
        /// What it came to.
        outcome: Option<Outcome>,
    }
}

impl From<&BatchView> for Batch {
    fn from(batch: &BatchView) -> Batch {
        let members = batch.members.iter();
        let members = members.map(|(state, count)| (state.as_str().to_owned(), *count));
        Batch {
            run: batch.run.row.id,
            key: batch.run.row.key.clone(),
            state: batch.state().as_str(),
            commands: batch.commands(),
            ended: batch.ended(),
            failed: batch.ended() - batch.count(RunState::Completed),
            parked: batch.count(RunState::Parked),
            members: members.collect(),
            created_at: batch.run.row.created_at,
            changed_at: batch.run.row.changed_at,
        }
    }
}

impl From<&RunView> for Member {
    fn from(member: &RunView) -> Member {
        Member {
            run: member.row.id,
            queue: member.lane.workflow.clone(),
            key: member.row.key.clone(),
            state: member.row.state,
            outcome: member.row.outcome.clone(),
        }
    }
}
