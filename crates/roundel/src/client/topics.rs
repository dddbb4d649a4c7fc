//! Topics as operators see them: by name, with any JSON; and what a call set off.

use roundel_core::{Name, Payload, PublicationId, Publish, Published, RunId};
use roundel_store::{Answer, Page, PublicationView, Query, RunView, TopicView};

use super::Client;
use crate::Error;
use crate::cx::own;
use crate::ids::new_run;
use crate::worker::scope_runs;

/// Publications that are counted at most, of all topics together.
const COUNTED: usize = 20_000;

impl Client {
    /// Publishes to the topic of this name, with any JSON.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub async fn publish_named(&self, topic: Name, payload: Payload) -> Result<Published, Error> {
        let publish = Publish {
            namespace: self.inner.namespace.clone(),
            id: PublicationId(new_run().0),
            topic,
            payload: own(payload)?,
            deadlines: roundel_core::Deadlines::default(),
            context: roundel_core::Context::default(),
            window: None,
        };
        self.send_publication(publish).await
    }

    /// What is published to, or subscribed to, by name. Of long topics the newest publications are
    /// counted, and [`more`](TopicView::more) says that there are others.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn topics(&self) -> Result<Vec<TopicView>, Error> {
        self.topics_counted(COUNTED).await
    }

    pub(super) async fn topics_counted(&self, rows: usize) -> Result<Vec<TopicView>, Error> {
        let query = Query::Topics(self.inner.namespace.clone(), rows);
        match self.inner.read(query).await? {
            Answer::Topics(topics) => Ok(topics),
            _ => unreachable!("topics were asked for"),
        }
    }

    /// One publication, if it is of this namespace.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn publication(&self, id: PublicationId) -> Result<Option<PublicationView>, Error> {
        match self.inner.read(Query::Publication(id)).await? {
            Answer::Publications(mut page) => {
                let found = page.items.pop();
                Ok(found.filter(|(_, row)| row.namespace == self.inner.namespace))
            }
            _ => unreachable!("a publication was asked for"),
        }
    }

    /// What was published to a topic, newest first: before this one, so many at most.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn publications(
        &self,
        topic: Name,
        before: Option<PublicationId>,
        limit: usize,
    ) -> Result<Page<PublicationView>, Error> {
        let query = Query::Publications {
            namespace: self.inner.namespace.clone(),
            topic,
            before,
            limit,
        };
        match self.inner.read(query).await? {
            Answer::Publications(page) => Ok(page),
            _ => unreachable!("publications were asked for"),
        }
    }

    /// The runs that one call of a run set off together, in order.
    ///
    /// # Errors
    /// When there is no such run.
    pub async fn scope(
        &self,
        run: RunId,
        (execution, call): (u32, u32),
    ) -> Result<Vec<RunView>, Error> {
        let store = self.inner.post.store();
        let read = scope_runs(&**store, run, (execution, call));
        self.inner.read_in_time(read).await
    }
}
