//! What a client asks of cooperation: publish, subscribe, undo, and what follows a rollback that
//! failed.

use roundel_core::{
    Accept, Complete, Join, Joined, Name, Op, PublicationId, Publish, Published, Reply, Resume,
    Subscribe, Undo, Undone,
};
use serde::Serialize;

use super::{Client, To};
use crate::cx::{encode, publication};
use crate::{Error, Topic};

impl Client {
    /// Publishes to a topic: every workflow that subscribes at this moment starts a run of its
    /// own. Nobody waits for them.
    ///
    /// # Errors
    /// When the value has no JSON form, or the database cannot be written.
    pub async fn publish<T: Serialize>(
        &self,
        topic: Topic<T>,
        value: &T,
    ) -> Result<Published, Error> {
        let publish = publication(self.inner.namespace.clone(), topic, value)?;
        self.send_publication(publish).await
    }

    pub(super) async fn send_publication(&self, publish: Publish) -> Result<Published, Error> {
        match self.act(Op::Publish(publish)).await? {
            Reply::Published(published) => Ok(published),
            _ => unreachable!("a publication answers as one"),
        }
    }

    /// Makes a workflow's interest in a topic known; it need not be deployed yet. What was
    /// published before is not affected. Returns whether that is new.
    ///
    /// # Errors
    /// When a name is no name, or the database cannot be written.
    pub async fn subscribe(&self, topic: &str, workflow: &str) -> Result<bool, Error> {
        self.set_subscription(topic, workflow, true).await
    }

    /// Ends a workflow's interest in a topic. What is under way goes on. Returns whether there was
    /// one.
    ///
    /// # Errors
    /// When a name is no name, or the database cannot be written.
    pub async fn unsubscribe(&self, topic: &str, workflow: &str) -> Result<bool, Error> {
        self.set_subscription(topic, workflow, false).await
    }

    async fn set_subscription(&self, topic: &str, workflow: &str, on: bool) -> Result<bool, Error> {
        let subscribe = Subscribe {
            namespace: self.inner.namespace.clone(),
            topic: Name::new(topic.to_owned())?,
            workflow: Name::new(workflow.to_owned())?,
            on,
        };
        match self.act(Op::Subscribe(subscribe)).await? {
            Reply::Subscribed(new) => Ok(new),
            _ => unreachable!("a subscription answers as one"),
        }
    }

    /// Lets a workflow join a publication whose window is open. Says if it is too late.
    ///
    /// # Errors
    /// When the name is no name, or the database cannot be written.
    pub async fn join(&self, publication: PublicationId, workflow: &str) -> Result<Joined, Error> {
        let join = Join {
            namespace: self.inner.namespace.clone(),
            publication,
            workflow: Name::new(workflow.to_owned())?,
        };
        match self.inner.op(Op::Join(join)).await? {
            Reply::Joined(joined) => Ok(joined),
            _ => unreachable!("a join answers as one"),
        }
    }

    /// Ends a run that nobody has begun, or that is parked, with this value: what it should have
    /// done was done otherwise, or never will be. Whoever waits for it goes on.
    ///
    /// # Errors
    /// When there is no such run, or it has begun and is not parked, or it waits for signals, or
    /// something below it has not ended.
    pub async fn complete<T: Serialize>(&self, to: impl Into<To>, value: &T) -> Result<(), Error> {
        let complete = Complete {
            namespace: self.inner.namespace.clone(),
            target: to.into().checked()?,
            value: encode(value)?,
        };
        self.act(Op::Complete(complete)).await.map(drop)
    }

    /// Undoes what a run did, and all below it, newest first. It must have completed, or be
    /// parked: then it is let go, and rolls back.
    ///
    /// # Errors
    /// When there is no such run, or it is not at rest.
    pub async fn undo(&self, to: impl Into<To>) -> Result<Undone, Error> {
        let (namespace, target) = (self.inner.namespace.clone(), to.into().checked()?);
        match self.act(Op::Undo(Undo { namespace, target })).await? {
            Reply::Undone(answer) => Ok(answer),
            _ => unreachable!("an undo answers as one"),
        }
    }

    /// Lets a rollback that failed go on without the undo that failed.
    ///
    /// # Errors
    /// When no rollback of the run has failed.
    pub async fn resume_skipping(&self, to: impl Into<To>) -> Result<(), Error> {
        let (namespace, target) = (self.inner.namespace.clone(), to.into().checked()?);
        let resume = Resume {
            namespace,
            target,
            skip: true,
            anew: None,
        };
        self.act(Op::Resume(resume)).await.map(drop)
    }

    /// Accepts what a failed rollback left undone.
    ///
    /// # Errors
    /// When no rollback of the run has failed.
    pub async fn accept(&self, to: impl Into<To>) -> Result<(), Error> {
        let (namespace, target) = (self.inner.namespace.clone(), to.into().checked()?);
        let accept = Accept { namespace, target };
        self.act(Op::Accept(accept)).await.map(drop)
    }
}
