//! Commands: runs whose workflow is their queue, and whose key is their id in it.

use roundel::{Client, Entry, Error, Failure, Name, Payload, RunId, RunState, RunView, Timestamp};
use roundel_core::Outcome;

use crate::shape::output;

output! {
    /// A command.
    pub struct Command {
        /// Its queue.
        queue: Name,
        /// Its id there.
        id: Option<String>,
        /// The run that it is.
        run: RunId,
        /// Where it stands.
        state: RunState,
        /// What it was given.
        payload: Option<Payload>,
        /// What it came to.
        outcome: Option<Outcome>,
        /// Lower is taken up first.
        priority: i32,
        /// The run that sent it and waits for it.
        parent: Option<RunId>,
        /// When it was sent.
        created_at: Timestamp,
        /// When it last changed.
        changed_at: Timestamp,
        /// When it may be taken up, if that is not yet.
        not_before: Option<Timestamp>,
    }
}

output! {
    /// An attempt after which there was another.
    pub struct Attempt {
        /// Its number.
        attempt: u32,
        /// Why it failed.
        failure: Failure,
        /// When.
        at: Timestamp,
        /// When it was, or will be, tried again.
        retry_at: Timestamp,
    }
}

/// A command, with what it was given.
#[derive(Debug)]
pub struct Sent {
    /// The run.
    pub run: RunView,
    /// What it was given.
    pub payload: Option<Payload>,
}

impl Sent {
    /// The command that this run is, and its journal.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn read(run: RunView, client: &Client) -> Result<(Sent, Vec<Entry>), Error> {
        let journal = client.journal(run.row.id).await?;
        let payload = match journal.first() {
            Some(Entry::Started { input, .. }) => Some(input.clone()),
            _ => None,
        };
        Ok((Sent { run, payload }, journal))
    }

    /// Its id in its queue.
    #[must_use]
    pub fn id(&self) -> Option<&str> {
        let key = self.run.row.key.as_ref()?.as_str();
        key.strip_prefix(self.run.lane.workflow.as_str())?
            .strip_prefix(':')
    }

    /// When it may be taken up, if that is not yet.
    #[must_use]
    pub fn delayed(&self, now: Timestamp) -> Option<Timestamp> {
        let row = &self.run.row;
        let waits = matches!(row.state, RunState::Ready | RunState::Waiting);
        row.ready_at.filter(|at| waits && *at > now)
    }

    /// As it is shown.
    #[must_use]
    pub fn shown(&self, now: Timestamp) -> Command {
        let row = &self.run.row;
        let ended =
            |outcome: &&Outcome| row.state.has_ended() || matches!(outcome, Outcome::Failure(_));
        Command {
            queue: self.run.lane.workflow.clone(),
            id: self.id().map(str::to_owned),
            run: row.id,
            state: row.state,
            payload: self.payload.clone(),
            outcome: row.outcome.as_ref().filter(ended).cloned(),
            priority: row.priority,
            parent: row.parent.map(|parent| parent.run),
            created_at: row.created_at,
            changed_at: row.changed_at,
            not_before: self.delayed(now),
        }
    }
}

/// The attempts after which there was another.
#[must_use]
pub fn attempts(journal: &[Entry]) -> Vec<Attempt> {
    let attempts = journal.iter().filter_map(|entry| match entry {
        Entry::Attempted {
            attempt,
            failure,
            at,
            retry_at,
            ..
        } => Some(Attempt {
            attempt: *attempt,
            failure: (**failure).clone(),
            at: *at,
            retry_at: *retry_at,
        }),
        _ => None,
    });
    attempts.collect()
}
