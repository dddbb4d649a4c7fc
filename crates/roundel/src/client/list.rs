//! Lists of runs, page by page.

use std::borrow::Cow;

use roundel_core::{Name, RunId, RunState, Timestamp};
use roundel_store::{Answer, Page, Query, RunFilter, RunView};

use super::Client;
use crate::Error;

/// A list of runs, to be narrowed and then fetched page by page.
#[derive(Clone, Debug)]
pub struct Runs {
    pub(super) client: Client,
    pub(super) filter: RunFilter,
}

impl Runs {
    /// Of this workflow.
    ///
    /// # Errors
    /// When that is not a name.
    pub fn of(mut self, workflow: impl Into<Cow<'static, str>>) -> Result<Runs, Error> {
        self.filter.workflow = Some(Name::new(workflow.into())?);
        Ok(self)
    }

    /// In this state.
    #[must_use]
    pub fn in_state(mut self, state: RunState) -> Runs {
        self.filter.state = Some(state);
        self
    }

    /// With this label.
    ///
    /// # Errors
    /// When that is not a name.
    pub fn with_label(
        mut self,
        name: impl Into<Cow<'static, str>>,
        value: impl Into<String>,
    ) -> Result<Runs, Error> {
        self.filter.label = Some((Name::new(name.into())?, value.into()));
        Ok(self)
    }

    /// So many at a time, 1 to 1,000.
    #[must_use]
    pub fn limit(mut self, limit: usize) -> Runs {
        self.filter.limit = limit.clamp(1, 1000);
        self
    }

    /// Those after this one: the last of the page before.
    #[must_use]
    pub fn after(mut self, run: RunId) -> Runs {
        self.filter.before = Some(run);
        self
    }

    /// One page.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn fetch(&self) -> Result<Page<RunView>, Error> {
        match self
            .client
            .inner
            .read(Query::Runs(self.filter.clone()))
            .await?
        {
            Answer::Runs(page) => Ok(page),
            _ => unreachable!("runs were asked for"),
        }
    }
}

impl Client {
    /// Removes the trees whose root ended before this time. Returns how many runs went. Deletes in
    /// small commits, so that others are not held up; what ends meanwhile waits for the next call.
    ///
    /// # Errors
    /// When the database cannot be read or written.
    pub async fn prune(&self, ended_before: Timestamp) -> Result<usize, Error> {
        // Ids are ordered by time: a run that ended before then was also started before then.
        let mut page = self.runs().limit(1000).after(first_id_at(ended_before));
        let mut removed = 0;
        loop {
            let found = page.fetch().await?;
            for run in &found.items {
                let row = &run.row;
                let old = row.state.has_ended() && row.changed_at < ended_before;
                if old && row.parent.is_none() {
                    removed += self.delete(row.id).await?;
                }
            }
            match found.items.last() {
                Some(last) if found.more => page = page.after(last.row.id),
                _ => return Ok(removed),
            }
        }
    }
}

/// The lowest id that a run started at this time can have.
fn first_id_at(at: Timestamp) -> RunId {
    let millis = u64::try_from(at.0 / 1000).unwrap_or(0).min((1 << 48) - 1);
    let mut bytes = [0; 16];
    bytes[..6].copy_from_slice(&millis.to_be_bytes()[2..]);
    RunId::from_bytes(bytes)
}
