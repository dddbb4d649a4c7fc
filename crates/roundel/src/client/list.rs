//! Lists of runs, page by page, or look by look.

use std::borrow::Cow;

use roundel_core::{Name, RunId, RunState};
use roundel_store::{Answer, Page, Query, RunFilter, RunView, Stretch};

use super::{Client, Inner};
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

    /// Those after this one: the last of the page before, or where the look before ended.
    #[must_use]
    pub fn after(mut self, run: RunId) -> Runs {
        self.filter.before = Some(run);
        self
    }

    /// A [look](Runs::look) passes so many rows at most, 1 to [`LOOK`](crate::LOOK), which it is
    /// unless said.
    #[must_use]
    pub fn within(mut self, rows: usize) -> Runs {
        self.filter.look = rows;
        self
    }

    /// A page: as many as were asked for if there are that many, however far back they are. Where
    /// few fit among many, that takes several [looks](Runs::look).
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn fetch(&self) -> Result<Page<RunView>, Error> {
        self.client.inner.page_of(self.filter.clone()).await
    }

    /// One look, which passes [`LOOK`](crate::LOOK) runs at most, whether they fit or not: it takes
    /// little time, and may find less than a page, or nothing, although there is more. Go on
    /// [after](Runs::after) its [`next`](Stretch::next), until that is none.
    ///
    /// ```
    /// # async fn failed(client: roundel::Client) -> Result<(), roundel::Error> {
    /// use roundel::RunState;
    /// let mut runs = client.runs().of("order")?.in_state(RunState::Failed);
    /// loop {
    ///     let found = runs.look().await?;
    ///     for run in &found.items {
    ///         println!("{}", run.row.id);
    ///     }
    ///     let Some(next) = found.next else { break };
    ///     runs = runs.after(next);
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn look(&self) -> Result<Stretch<RunView, RunId>, Error> {
        self.client.inner.look(self.filter.clone()).await
    }
}

impl Inner {
    pub(super) async fn look(&self, filter: RunFilter) -> Result<Stretch<RunView, RunId>, Error> {
        match self.read(Query::Runs(filter)).await? {
            Answer::Looked(found) => Ok(found),
            _ => unreachable!("runs were asked for"),
        }
    }

    /// A whole page, in as many looks as it takes.
    pub(super) async fn page_of(&self, filter: RunFilter) -> Result<Page<RunView>, Error> {
        let limit = filter.limit.clamp(1, 1000);
        let (mut filter, mut items) = (RunFilter { limit, ..filter }, Vec::new());
        loop {
            let found = self.look(filter.clone()).await?;
            filter.limit -= found.items.len();
            items.extend(found.items);
            match found.next {
                Some(next) if filter.limit > 0 => filter.before = Some(next),
                next => {
                    let more = next.is_some();
                    return Ok(Page { items, more });
                }
            }
        }
    }
}
