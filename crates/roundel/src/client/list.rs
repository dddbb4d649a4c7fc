//! Lists of runs, page by page.

use std::borrow::Cow;

use roundel_core::{Name, RunId, RunState};
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
