//! Limits of queues, changed while they are at work.

use std::collections::BTreeMap;
use std::time::Duration;

use roundel_core::{Limit, Name, Op, QueueId, QueueRow, Rate, Reply};
use roundel_store::{Answer, Permits, Query};

use super::Client;
use crate::{Command, Error};

/// A queue, to be limited, paused or resumed. What is not said stays as it is.
#[must_use = "it does nothing unless something is asked of it"]
#[derive(Debug)]
pub struct Queue {
    client: Client,
    limit: Limit,
}

/// A queue that has limits, or had some.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueLimits {
    /// Its name: that of its command.
    pub queue: Name,
    /// What it is limited to.
    pub limits: QueueRow,
    /// How many of its commands are in hand and count.
    pub permits: u32,
    /// The same by flow key; first those that have none.
    pub by_key: BTreeMap<Option<Name>, u32>,
}

impl Client {
    /// The queue of a command. Its limits are rows: they hold for all processes at once, from the
    /// moment they are set, and until they are taken away.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # async fn limit(client: roundel::Client) -> Result<(), roundel::Error> {
    /// use roundel::Command;
    /// const CHARGE: Command<u64, String> = Command::named("charge");
    /// let minute = Duration::from_secs(60);
    /// client.queue(CHARGE).concurrency(5).rate(100, minute).set().await?;
    /// client.operator("ada")?.reason("the bank is down").queue(CHARGE).pause().await?;
    /// # Ok(()) }
    /// ```
    pub fn queue<I, O>(&self, command: Command<I, O>) -> Queue {
        self.queue_named(command.queue())
    }

    /// The queue of this name: of a command, or of a workflow, whose runs are limited then.
    pub fn queue_named(&self, queue: Name) -> Queue {
        let namespace = self.inner.namespace.clone();
        Queue {
            client: self.clone(),
            limit: Limit::of(QueueId { namespace, queue }),
        }
    }

    /// All queues that have limits, by name.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn queues(&self) -> Result<Vec<QueueLimits>, Error> {
        let query = Query::Queues(self.inner.namespace.clone());
        let Answer::Queues(queues) = self.inner.read(query).await? else {
            unreachable!("queues were asked for")
        };
        let view = |((id, limits), by_key): ((QueueId, QueueRow), Permits)| QueueLimits {
            queue: id.queue,
            limits,
            permits: by_key.values().sum(),
            by_key,
        };
        Ok(queues.into_iter().map(view).collect())
    }
}

impl Queue {
    /// So many of its commands are in hand at once, in all processes together. One that waits for
    /// its next attempt, or is parked, is not in hand.
    pub fn concurrency(mut self, most: u32) -> Self {
        self.limit.concurrency = Some(Some(most));
        self
    }

    /// As many at once as there are workers for.
    pub fn any_concurrency(mut self) -> Self {
        self.limit.concurrency = Some(None);
        self
    }

    /// So many with the same [flow key](crate::StartRun::flow_key) are in hand at once. What has
    /// none is not limited by this.
    pub fn per_key(mut self, most: u32) -> Self {
        self.limit.per_key = Some(Some(most));
        self
    }

    /// As many of a flow key as there is room for.
    pub fn any_per_key(mut self) -> Self {
        self.limit.per_key = Some(None);
        self
    }

    /// So many are begun in so long, attempts after a failure among them: that many at once after a
    /// quiet time, and then one whenever its share of the time has passed.
    pub fn rate(mut self, count: u32, per: Duration) -> Self {
        self.limit.rate = Some(Some(Rate { count, per }));
        self
    }

    /// As fast as they come.
    pub fn any_rate(mut self) -> Self {
        self.limit.rate = Some(None);
        self
    }

    /// Sets what was said. Returns the limits as they are now.
    ///
    /// # Errors
    /// When a number is zero, or the database cannot be written.
    pub async fn set(self) -> Result<QueueRow, Error> {
        match self.client.act(Op::Limit(self.limit)).await? {
            Reply::Limited(row) => Ok(row),
            _ => unreachable!("a limit answers as one"),
        }
    }

    /// Nothing of it is begun until it is resumed. What is in hand goes on; what is sent waits.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub async fn pause(mut self) -> Result<QueueRow, Error> {
        self.limit.paused = Some(true);
        self.set().await
    }

    /// What waits is begun, within the limits.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub async fn resume(mut self) -> Result<QueueRow, Error> {
        self.limit.paused = Some(false);
        self.set().await
    }
}
