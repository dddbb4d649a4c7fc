//! Starting runs from outside.

use std::borrow::Cow;
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use roundel_core::{
    Deadlines, Dedupe, Lane, Name, Op, Reply, Signal as SignalOp, Start, Started, Target, Timestamp,
};
use serde::Serialize;
use tokio::sync::oneshot;

use super::{Boxed, Client, Handle, Inner};
use crate::command::key_in;
use crate::cx::{Times, encode, one_value};
use crate::worker::{Port, Worker};
use crate::{By, Error, Key, Signal};

/// A start, to be awaited.
#[must_use = "it does nothing unless awaited"]
#[derive(Debug)]
pub struct StartRun<O> {
    pub(crate) client: Client,
    pub(crate) start: Result<Box<Start>, Error>,
    /// Keys are those of the workflow's own queue.
    pub(crate) in_queue: bool,
    pub(crate) value: PhantomData<fn() -> O>,
}

impl<O> StartRun<O> {
    pub(crate) fn in_queue(mut self) -> Self {
        self.in_queue = true;
        self
    }

    fn with(mut self, change: impl FnOnce(&mut Start) -> Result<(), Error>) -> Self {
        self.start = self
            .start
            .and_then(|mut start| change(&mut start).map(|()| start));
        self
    }

    /// Under this key: starting it again gives the first run; with another input, a conflict.
    pub fn key(self, key: impl Into<Cow<'static, str>>) -> Self {
        let (key, in_queue) = (key.into(), self.in_queue);
        self.with(|start| {
            let key = match in_queue {
                true => key_in(&start.workflow, &key),
                false => key,
            };
            start.key = Some(Name::new(key)?);
            Ok(())
        })
    }

    /// With this label, for search.
    pub fn label(self, name: impl Into<Cow<'static, str>>, value: impl Into<String>) -> Self {
        let (name, value) = (Name::new(name.into()), value.into());
        self.with(|start| {
            start.labels.push((name?, value));
            Ok(())
        })
    }

    /// Lower is claimed first; 0 unless said.
    pub fn priority(self, priority: i32) -> Self {
        self.with(|start| {
            start.priority = priority;
            Ok(())
        })
    }

    /// On whose behalf: a customer, say. Those of a queue take turns, so that a busy one does not
    /// keep the others waiting, and [so many of each](crate::Queue::per_key) are in hand at once.
    pub fn flow_key(self, key: impl Into<Cow<'static, str>>) -> Self {
        let key = Name::new(key.into());
        self.with(|start| {
            start.flow_key = Some(key?);
            Ok(())
        })
    }

    /// Only the first of those with this key in this time is started, whatever the others are
    /// given: they are answered with the first. Keys are those of the workflow, or queue. Not
    /// together with a [key](Self::key), under which there is one run for good.
    pub fn dedupe(self, key: impl Into<Cow<'static, str>>, window: Duration) -> Self {
        self.alike(key.into(), window, false)
    }

    /// Begins when no other with this key has come for this long: each takes the place of the one
    /// before, which waits on with the new input. One that has begun is left alone. Keys are those
    /// of the workflow, or queue. Not together with a [key](Self::key).
    pub fn debounce(self, key: impl Into<Cow<'static, str>>, quiet: Duration) -> Self {
        self.alike(key.into(), quiet, true)
    }

    fn alike(self, key: Cow<'static, str>, window: Duration, last: bool) -> Self {
        let key = Name::new(key);
        self.with(|start| {
            let key = key?;
            start.dedupe = Some(Dedupe { key, window, last });
            Ok(())
        })
    }

    /// Not before this long from now.
    pub fn delay(self, delay: Duration) -> Self {
        let at = self.client.inner.post.store().now().after(delay);
        self.at(at)
    }

    /// Not before this time.
    pub fn at(self, at: Timestamp) -> Self {
        self.with(|start| {
            start.at = Some(at);
            Ok(())
        })
    }

    /// The run must have ended by then, forward and back: [`forward_deadline`] and
    /// [`rollback_deadline`] in one. Who misses it has no time left to undo what it did: give an
    /// earlier [`forward_deadline`] too, if that matters.
    ///
    /// [`forward_deadline`]: Self::forward_deadline
    /// [`rollback_deadline`]: Self::rollback_deadline
    pub fn deadline(self, by: impl Into<By>) -> Self {
        let by = by.into();
        self.forward_deadline(by).rollback_deadline(by)
    }

    /// The run must have completed by then, or it rolls back, with a failure of the code
    /// `deadline`. All below has the same deadline, or an earlier one.
    pub fn forward_deadline(self, by: impl Into<By>) -> Self {
        let times = Times {
            forward: Some(by.into()),
            ..Times::default()
        };
        self.times(times)
    }

    /// If the run rolls back, that must be done by then, or the rollback has failed.
    pub fn rollback_deadline(self, by: impl Into<By>) -> Self {
        let times = Times {
            rollback: Some(by.into()),
            ..Times::default()
        };
        self.times(times)
    }

    fn times(self, times: Times) -> Self {
        let now = self.client.inner.post.store().now();
        self.with(|start| {
            let set = times.set(start.run, now);
            start.deadlines = Deadlines {
                forward: set.forward.or(start.deadlines.forward),
                rollback: set.rollback.or(start.deadlines.rollback),
            };
            Ok(())
        })
    }

    /// With this value in its context, which flows down to all that it sets off.
    pub fn context<T: Serialize>(self, key: Key<T>, value: &T) -> Self {
        let value = one_value(&key, value).map_err(Error::from);
        self.with(|start| {
            start.context.take(&value?);
            Ok(())
        })
    }

    /// Exactly this version.
    pub fn version(self, version: u32) -> Self {
        self.with(|start| {
            start.version = Some(version);
            Ok(())
        })
    }

    /// Together with this signal, in one commit; if the run exists, it gets the signal.
    pub fn with_signal<T: Serialize>(self, signal: Signal<T>, value: &T) -> Self {
        let payload = encode(value).map_err(Error::from);
        let claimant = self.client.inner.claimant();
        self.with(|start| {
            let target = match &start.key {
                Some(key) => Target::Key(key.clone()),
                None => Target::Run(start.run),
            };
            let (namespace, name) = (start.namespace.clone(), signal.name());
            let (payload, (policy, expires)) = (payload?, signal.kept());
            let signal = SignalOp {
                namespace,
                target,
                name,
                payload,
                policy,
                expires,
                key: None,
                claimant,
            };
            start.signal = Some(Box::new(signal));
            Ok(())
        })
    }

    /// As an operation, for a batch.
    ///
    /// # Errors
    /// When something about it is not valid.
    pub fn op(self) -> Result<Op, Error> {
        self.start.map(|start| Op::Start(*start))
    }
}

impl<O: Send + 'static> IntoFuture for StartRun<O> {
    type Output = Result<Handle<O>, Error>;
    type IntoFuture = Boxed<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let (client, start) = (self.client, *self.start?);
            let rest = client.inner.rests.await_rest(start.run);
            let started = client.begin(start).await?;
            Ok(Handle::of(client, &started, rest))
        })
    }
}

impl Client {
    /// In somebody's name it is audited, which only the store can do: it is not begun here first.
    async fn begin(&self, start: Start) -> Result<Started, Error> {
        if !self.is_signed() {
            return self.inner.start(start).await;
        }
        if let Some(worker) = &self.inner.worker {
            worker.expect(&start);
        }
        match self.act(Op::Start(start)).await? {
            Reply::Started(started) => Ok(started),
            _ => unreachable!("a start answers as one"),
        }
    }
}

impl Inner {
    async fn start(&self, start: Start) -> Result<Started, Error> {
        if let Some((worker, lane, port)) = self.local(&start) {
            let (sender, receiver) = oneshot::channel();
            worker.start_here(start, (lane, port), sender);
            return Ok(self.in_time(receiver).await??);
        }
        if let Some(worker) = &self.worker {
            worker.expect(&start);
        }
        match self.op(Op::Start(start)).await? {
            Reply::Started(started) => Ok(started),
            _ => unreachable!("a start answers as one"),
        }
    }

    /// A place in this process, if the run can begin here at once.
    pub(super) fn local(&self, start: &Start) -> Option<(&Arc<Worker>, Lane, Arc<Port>)> {
        let worker = self.worker.as_ref()?;
        let later = start.at.is_some() || start.priority != 0;
        let alike = start.dedupe.is_some();
        let alone = start.batch.is_none() && start.flow_key.is_none() && !alike;
        if later || !alone || !worker.may_begin_here(&start.workflow) {
            return None;
        }
        let version = match start.version {
            Some(version) => version,
            None => worker.latest(&start.workflow)?,
        };
        let lane = Lane {
            namespace: self.namespace.clone(),
            workflow: start.workflow.clone(),
            version,
        };
        let known = worker
            .handlers
            .contains_key(&(lane.workflow.clone(), version));
        let port = known.then(|| worker.take_place(start.run))?;
        Some((worker, lane, port?))
    }
}

#[cfg(test)]
mod tests {
    use crate::{Cx, Engine, Failure, Workflow};

    const LIMITED: Workflow<u32, u32> = Workflow::named("limited");
    const FREE: Workflow<u32, u32> = Workflow::named("free");

    #[tokio::test]
    async fn co_30_what_only_claims_may_begin_is_not_begun_here_in_vain() {
        let number = |_: Cx, number: u32| async move { Ok::<_, Failure>(number) };
        let engine = Engine::in_memory().register(LIMITED, number);
        let engine = engine.register(FREE, number).start().await.unwrap();
        let begins_here = |workflow| {
            let start = engine.start(workflow, &1).start.unwrap();
            engine.client().inner.local(&start).is_some()
        };
        assert!(begins_here(LIMITED));
        let queue = engine.queue_named(LIMITED.name()).concurrency(1);
        queue.set().await.unwrap();
        // The first tells.
        for workflow in [LIMITED, FREE] {
            let mut run = engine.start(workflow, &7).await.unwrap();
            assert_eq!(run.result().await.unwrap(), 7);
        }
        assert!(!begins_here(LIMITED) && begins_here(FREE));
    }
}
