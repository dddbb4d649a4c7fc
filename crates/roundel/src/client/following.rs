//! A run's journal as it grows, whichever process works on it.

use std::time::Duration;

use roundel_core::{JournalRow, RunId, RunState};
use roundel_store::{Answer, Query, RunView};

use super::{Client, Inner, To};
use crate::Error;

/// Rounds that are read at once.
const ROUNDS: usize = 500;
/// How often it is looked where not every commit is heard of.
const LOOK: Duration = Duration::from_secs(1);

/// A run that is followed: what happens in it, as it happens.
#[derive(Debug)]
pub struct Following {
    client: Client,
    run: RunId,
    execution: u32,
    /// The last entry that was told.
    entry: u64,
    /// The state that was told.
    state: Option<RunState>,
}

/// What happened since it was last told.
#[derive(Debug)]
pub struct Growth {
    /// The run as it is now.
    pub run: RunView,
    /// The execution that the rounds are of: an earlier one while that is being told.
    pub execution: u32,
    /// New rounds. None, if only its state is another.
    pub rounds: Vec<JournalRow>,
}

impl Client {
    /// Follows a run: from the beginning of its current execution, unless it is told from where.
    ///
    /// # Errors
    /// When there is no such run.
    pub async fn follow(&self, to: impl Into<To>) -> Result<Following, Error> {
        let row = self.run(to).await?.row;
        Ok(Following {
            client: self.clone(),
            run: row.id,
            execution: row.execution,
            entry: 0,
            state: None,
        })
    }

    /// Rounds of one execution of a run, with entries after this one, so many at most.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn rounds_after(
        &self,
        run: RunId,
        (execution, entry): (u32, u64),
        limit: usize,
    ) -> Result<Vec<JournalRow>, Error> {
        let query = Query::Journal {
            run,
            execution,
            after: entry,
            limit,
        };
        match self.inner.read(query).await? {
            Answer::Journal(page) => Ok(page.items),
            _ => unreachable!("a journal was asked for"),
        }
    }
}

impl Following {
    /// Goes on behind this entry of this execution, of a run that was seen in this state.
    #[must_use]
    pub fn after(mut self, execution: u32, entry: u64, state: RunState) -> Following {
        (self.execution, self.entry, self.state) = (execution, entry, Some(state));
        self
    }

    /// What happened next; waits until something has. Nothing once the run has ended and all of it
    /// was told. Nothing is asked of the database while the store would tell of a commit; where it
    /// tells of some only (PostgreSQL, and runs of this very process), once in a second.
    ///
    /// # Errors
    /// When the run was deleted, or cannot be read.
    pub async fn next(&mut self) -> Result<Option<Growth>, Error> {
        loop {
            // Before it is looked: what happens after that is not missed.
            let mut resting = self.client.inner.rests.await_rest(self.run);
            let run = self.client.run(self.run).await?;
            if let Some(growth) = self.since(run).await? {
                return Ok(Some(growth));
            }
            if self.state.is_some_and(RunState::has_ended) {
                return Ok(None);
            }
            let store = self.client.inner.post.store();
            let at = store.now().after(self.client.inner.looks_again());
            tokio::select! {
                _ = resting.next() => {}
                () = store.clock().sleep_until(at) => {}
            }
        }
    }

    async fn since(&mut self, run: RunView) -> Result<Option<Growth>, Error> {
        let row = &run.row;
        while self.execution < row.execution || self.entry < row.head {
            let at = (self.execution, self.entry);
            let rounds = self.client.rounds_after(self.run, at, ROUNDS).await?;
            if let Some(last) = rounds.last() {
                self.entry = last.first + u64::from(last.count) - 1;
                let execution = self.execution;
                return Ok(Some(Growth {
                    run,
                    execution,
                    rounds,
                }));
            }
            if self.execution == row.execution {
                break;
            }
            (self.execution, self.entry) = (self.execution + 1, 0);
        }
        let is_new = self.state.replace(row.state) != Some(row.state);
        Ok(is_new.then(|| Growth {
            execution: self.execution,
            rounds: Vec::new(),
            run,
        }))
    }
}

impl Inner {
    /// When it is time to look without having heard anything.
    fn looks_again(&self) -> Duration {
        match self.hears_all && self.worker.is_none() {
            true => self.sweep,
            false => LOOK,
        }
    }
}
