//! What programs ask from outside: start, signal, offer, cancel, results, lists.

use std::borrow::Cow;
use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use roundel_core::{
    Cancel, Cancelled, Claimant, Delete, Entry, Failure, Lane, Name, Offer, Op, Outcome, Patch,
    Patched, Payload, Reply, Resume, RunId, RunState, Sent, Signal as SignalOp, Start, Started,
    Target, Timestamp, decode_entries,
};
use roundel_store::{Answer, Ask, Page, Query, RunFilter, RunView, Stats};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::cx::{decode, encode, new_start};
use crate::post::Post;
use crate::rests::{Rest, Resting, Rests};
use crate::worker::Worker;
use crate::{Error, Signal, Workflow};

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Which run is meant: by its id, or by the user's own key for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum To {
    /// By id.
    Run(RunId),
    /// By key.
    Key(String),
}

impl To {
    pub(crate) fn target(self) -> Result<Target, Failure> {
        match self {
            To::Run(run) => Ok(Target::Run(run)),
            To::Key(key) => crate::cx::name(key).map(Target::Key),
        }
    }

    fn checked(self) -> Result<Target, Error> {
        match self {
            To::Run(run) => Ok(Target::Run(run)),
            To::Key(key) => Ok(Target::Key(Name::new(key)?)),
        }
    }
}

impl From<RunId> for To {
    fn from(run: RunId) -> To {
        To::Run(run)
    }
}

impl From<&str> for To {
    fn from(key: &str) -> To {
        To::Key(key.to_owned())
    }
}

impl From<String> for To {
    fn from(key: String) -> To {
        To::Key(key)
    }
}

impl<O> From<&Handle<O>> for To {
    fn from(handle: &Handle<O>) -> To {
        To::Run(handle.run)
    }
}

impl std::fmt::Display for To {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            To::Run(run) => run.fmt(f),
            To::Key(key) => write!(f, "`{key}`"),
        }
    }
}

/// Talks to the runs of one namespace, in this process or any other. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) namespace: Name,
    pub(crate) post: Arc<Post>,
    pub(crate) worker: Option<Arc<Worker>>,
    pub(crate) rests: Arc<Rests>,
    pub(crate) answer_within: Duration,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Client({})", self.inner.namespace)
    }
}

impl Client {
    /// Starts a run. Await it, or say more first: a key, labels, a delay.
    pub fn start<I: Serialize, O>(&self, workflow: Workflow<I, O>, input: &I) -> StartRun<O> {
        let start = encode(input).map(|input| {
            let names = (workflow.name(), workflow.exact_version());
            let run = RunId(Uuid::now_v7());
            Box::new(new_start(self.inner.namespace.clone(), run, names, input))
        });
        StartRun {
            client: self.clone(),
            start: start.map_err(Error::from),
            value: PhantomData,
        }
    }

    /// Starts a run by the name of its workflow, with any JSON.
    pub fn start_named(&self, workflow: Name, input: Payload) -> StartRun<Payload> {
        let run = RunId(Uuid::now_v7());
        let start = new_start(self.inner.namespace.clone(), run, (workflow, None), input);
        StartRun {
            client: self.clone(),
            start: Ok(Box::new(start)),
            value: PhantomData,
        }
    }

    /// Sends a signal to a run.
    pub fn signal<T: Serialize>(&self, to: impl Into<To>, signal: Signal<T>, value: &T) -> SendTo {
        let op = to.into().checked().and_then(|target| {
            Ok(Op::Signal(SignalOp {
                namespace: self.inner.namespace.clone(),
                target,
                name: signal.name(),
                payload: encode(value)?,
                policy: signal.policy(),
                key: None,
                claimant: self.inner.claimant(),
            }))
        });
        SendTo {
            client: self.clone(),
            op,
        }
    }

    /// Offers a signal to the run that waits longest for it; keeps it if none does.
    pub fn offer<T: Serialize>(&self, signal: Signal<T>, value: &T) -> SendTo {
        let op = encode(value).map_err(Error::from).map(|payload| {
            Op::Offer(Offer {
                namespace: self.inner.namespace.clone(),
                name: signal.name(),
                payload,
                key: None,
                claimant: self.inner.claimant(),
            })
        });
        SendTo {
            client: self.clone(),
            op,
        }
    }

    /// Asks a run, and all below it, to end.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub async fn cancel(&self, to: impl Into<To>) -> Result<Cancelled, Error> {
        let (namespace, claimant) = (self.inner.namespace.clone(), self.inner.claimant());
        let target = to.into().checked()?;
        match self
            .inner
            .op(Op::Cancel(Cancel {
                namespace,
                target,
                claimant,
            }))
            .await?
        {
            Reply::Cancelled(answer, _) => Ok(answer),
            _ => unreachable!("a cancel answers as one"),
        }
    }

    /// Merges a patch (RFC 7396) into a run's state; only if it has this version, if one is given.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub async fn patch_state<T: Serialize>(
        &self,
        to: impl Into<To>,
        patch: &T,
        expected: Option<u64>,
    ) -> Result<Patched, Error> {
        let (namespace, patch) = (self.inner.namespace.clone(), encode(patch)?);
        let target = to.into().checked()?;
        match self
            .inner
            .op(Op::Patch(Patch {
                namespace,
                target,
                patch,
                expected,
            }))
            .await?
        {
            Reply::Patched(answer) => Ok(answer),
            _ => unreachable!("a patch answers as one"),
        }
    }

    /// A run's state and its version.
    ///
    /// # Errors
    /// When there is no such run, or the state does not fit the type.
    pub async fn state<T: DeserializeOwned>(
        &self,
        to: impl Into<To>,
    ) -> Result<Option<(T, u64)>, Error> {
        let run = self.run(to).await?.row.id;
        let Answer::State(state) = self.inner.read(Query::State(run)).await? else {
            unreachable!("a state was asked for")
        };
        state
            .map(|state| Ok((decode(&state.value)?, state.version)))
            .transpose()
    }

    /// Lets a parked run go on.
    ///
    /// # Errors
    /// When it is not parked.
    pub async fn resume(&self, to: impl Into<To>) -> Result<(), Error> {
        let (namespace, target) = (self.inner.namespace.clone(), to.into().checked()?);
        self.inner
            .op(Op::Resume(Resume { namespace, target }))
            .await
            .map(|_| ())
    }

    /// Removes a run that has ended, and all below it. Returns how many went.
    ///
    /// # Errors
    /// When there is no such run, or its tree has not ended.
    pub async fn delete(&self, to: impl Into<To>) -> Result<usize, Error> {
        self.remove(to.into(), false).await
    }

    /// Removes a run and all below it, also if they have not ended.
    ///
    /// # Errors
    /// When there is no such run.
    pub async fn delete_forced(&self, to: impl Into<To>) -> Result<usize, Error> {
        self.remove(to.into(), true).await
    }

    async fn remove(&self, to: To, force: bool) -> Result<usize, Error> {
        let (namespace, target) = (self.inner.namespace.clone(), to.checked()?);
        let mut removed = 0;
        loop {
            let delete = Delete {
                namespace: namespace.clone(),
                target: target.clone(),
                force,
            };
            let Reply::Deleted { runs, more } = self.inner.op(Op::Delete(delete)).await? else {
                unreachable!("a delete answers as one")
            };
            removed += runs;
            if !more {
                return Ok(removed);
            }
        }
    }

    /// One run.
    ///
    /// # Errors
    /// When there is no such run.
    pub async fn run(&self, to: impl Into<To>) -> Result<RunView, Error> {
        let to = to.into();
        let shown = to.to_string();
        let query = Query::Run(self.inner.namespace.clone(), to.checked()?);
        match self.inner.read(query).await? {
            Answer::Run(Some(run)) => Ok(*run),
            Answer::Run(None) => Err(Error::NoSuchRun(shown)),
            _ => unreachable!("a run was asked for"),
        }
    }

    /// Runs, newest first, filtered and in pages.
    #[must_use]
    pub fn runs(&self) -> Runs {
        let namespace = self.inner.namespace.clone();
        let (workflow, state, label) = (None, None, None);
        let filter = RunFilter {
            namespace,
            workflow,
            state,
            label,
            before: None,
            limit: 100,
        };
        Runs {
            client: self.clone(),
            filter,
        }
    }

    /// The journal of a run's current execution.
    ///
    /// # Errors
    /// When there is no such run.
    pub async fn journal(&self, to: impl Into<To>) -> Result<Vec<Entry>, Error> {
        let row = self.run(to).await?.row;
        self.journal_of(row.id, row.execution).await
    }

    /// The journal of one execution of a run.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn journal_of(&self, run: RunId, execution: u32) -> Result<Vec<Entry>, Error> {
        let query = Query::Journal {
            run,
            execution,
            after: 0,
            limit: usize::MAX,
        };
        let Answer::Journal(page) = self.inner.read(query).await? else {
            unreachable!("a journal was asked for")
        };
        let mut entries = Vec::new();
        for row in page.items {
            let decoded = decode_entries(&row.entries);
            entries.extend(decoded.map_err(|error| Error::Value(error.to_string()))?);
        }
        Ok(entries)
    }

    /// The runs directly below a run, oldest first.
    ///
    /// # Errors
    /// When there is no such run.
    pub async fn children(
        &self,
        to: impl Into<To>,
        after: Option<RunId>,
        limit: usize,
    ) -> Result<Page<RunView>, Error> {
        let run = self.run(to).await?.row.id;
        match self.inner.read(Query::Children(run, after, limit)).await? {
            Answer::Runs(page) => Ok(page),
            _ => unreachable!("runs were asked for"),
        }
    }

    /// Counts by workflow and state.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn stats(&self) -> Result<Stats, Error> {
        match self
            .inner
            .read(Query::Stats(self.inner.namespace.clone()))
            .await?
        {
            Answer::Stats(stats) => Ok(stats),
            _ => unreachable!("counts were asked for"),
        }
    }

    /// A handle to a run that exists, to wait for its result.
    ///
    /// # Errors
    /// When there is no such run.
    pub async fn handle<I, O>(
        &self,
        _: Workflow<I, O>,
        to: impl Into<To>,
    ) -> Result<Handle<O>, Error> {
        let run = self.run(to).await?.row.id;
        Ok(Handle {
            client: self.clone(),
            run,
            new: false,
            rest: None,
            value: PhantomData,
        })
    }

    /// Several operations at once, in this order: the same replies as one by one, in one commit
    /// where possible.
    pub async fn batch(&self, ops: Vec<Op>) -> Vec<Result<Reply, Error>> {
        let asks = ops.into_iter().map(Ask::Op).collect();
        let mut replies = Vec::new();
        for receiver in self.inner.post.ask_all(asks) {
            let answer = self.inner.in_time(receiver).await;
            replies.push(answer.and_then(|answered| {
                let reply = answered.result?;
                Ok(self.inner.adopt(reply))
            }));
        }
        replies
    }
}

impl Inner {
    pub(crate) fn claimant(&self) -> Option<Claimant> {
        let worker = self.worker.as_ref()?;
        Some(Claimant {
            worker: worker.id,
            lease: worker.config.lease,
        })
    }

    async fn in_time<T>(&self, receiver: oneshot::Receiver<T>) -> Result<T, Error> {
        match tokio::time::timeout(self.answer_within, receiver).await {
            Ok(Ok(answered)) => Ok(answered),
            Ok(Err(_)) => Err(Error::Closed),
            Err(_) => Err(Error::Unknown(format!(
                "the database did not answer within {:?}; it may still happen: repeat with the \
                 same key to learn it",
                self.answer_within
            ))),
        }
    }

    async fn op(&self, op: Op) -> Result<Reply, Error> {
        let receiver = self
            .post
            .ask_all(vec![Ask::Op(op)])
            .pop()
            .expect("one answer");
        let reply = self.in_time(receiver).await?.result?;
        Ok(self.adopt(reply))
    }

    /// Takes over the runs that came with a reply.
    fn adopt(&self, mut reply: Reply) -> Reply {
        if let Some(worker) = &self.worker {
            match &mut reply {
                Reply::Sent(_, claimed) | Reply::Cancelled(_, claimed) => {
                    worker.adopt_all(std::mem::take(claimed));
                }
                Reply::Started(started) => {
                    worker.adopt_all(std::mem::take(&mut started.claimed));
                }
                _ => {}
            }
        }
        reply
    }

    async fn read(&self, query: Query) -> Result<Answer, Error> {
        let read = self.post.store().read(query);
        match tokio::time::timeout(self.answer_within, read).await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(Error::Unavailable(
                "the database did not answer in time".into(),
            )),
        }
    }
}

/// A start, to be awaited.
#[must_use = "it does nothing unless awaited"]
#[derive(Debug)]
pub struct StartRun<O> {
    client: Client,
    start: Result<Box<Start>, Error>,
    value: PhantomData<fn() -> O>,
}

impl<O> StartRun<O> {
    fn with(mut self, change: impl FnOnce(&mut Start) -> Result<(), Error>) -> Self {
        self.start = self
            .start
            .and_then(|mut start| change(&mut start).map(|()| start));
        self
    }

    /// Under this key: starting it again gives the first run; with another input, a conflict.
    pub fn key(self, key: impl Into<Cow<'static, str>>) -> Self {
        let key = Name::new(key.into());
        self.with(|start| {
            start.key = Some(key?);
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
            let (payload, policy) = (payload?, signal.policy());
            let signal = SignalOp {
                namespace,
                target,
                name,
                payload,
                policy,
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
            let started = client.inner.start(start).await?;
            let rest = started.new.then_some(rest);
            let (run, new) = (started.run, started.new);
            Ok(Handle {
                client,
                run,
                new,
                rest,
                value: PhantomData,
            })
        })
    }
}

impl Inner {
    async fn start(&self, start: Start) -> Result<Started, Error> {
        if let Some((worker, lane)) = self.local(&start) {
            let (sender, receiver) = oneshot::channel();
            worker.start_here(start, lane, sender);
            return Ok(self.in_time(receiver).await??);
        }
        match self.op(Op::Start(start)).await? {
            Reply::Started(started) => Ok(started),
            _ => unreachable!("a start answers as one"),
        }
    }

    /// Can the run begin in this process, at once?
    fn local(&self, start: &Start) -> Option<(&Arc<Worker>, Lane)> {
        let worker = self.worker.as_ref()?;
        if start.at.is_some() || start.priority != 0 || !worker.has_room() {
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
        known.then_some((worker, lane))
    }
}

/// A signal or offer, to be awaited.
#[must_use = "it does nothing unless awaited"]
#[derive(Debug)]
pub struct SendTo {
    client: Client,
    op: Result<Op, Error>,
}

impl SendTo {
    /// Under this key: sending it again does nothing and gives the first answer.
    pub fn key(mut self, key: impl Into<Cow<'static, str>>) -> Self {
        let key = Name::new(key.into());
        self.op = self.op.and_then(|mut op| {
            match &mut op {
                Op::Signal(signal) => signal.key = Some(key?),
                Op::Offer(offer) => offer.key = Some(key?),
                _ => unreachable!("a signal or an offer"),
            }
            Ok(op)
        });
        self
    }

    /// As an operation, for a batch.
    ///
    /// # Errors
    /// When something about it is not valid.
    pub fn op(self) -> Result<Op, Error> {
        self.op
    }
}

impl IntoFuture for SendTo {
    type Output = Result<Sent, Error>;
    type IntoFuture = Boxed<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            match self.client.inner.op(self.op?).await? {
                Reply::Sent(sent, _) => Ok(sent),
                _ => unreachable!("a signal answers as one"),
            }
        })
    }
}

/// A list of runs, to be narrowed and then fetched page by page.
#[derive(Clone, Debug)]
pub struct Runs {
    client: Client,
    filter: RunFilter,
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
        self.filter.limit = limit;
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

/// A run, to wait for its result.
pub struct Handle<O> {
    client: Client,
    run: RunId,
    new: bool,
    rest: Option<Resting>,
    value: PhantomData<fn() -> O>,
}

impl<O> std::fmt::Debug for Handle<O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Handle({})", self.run)
    }
}

impl<O> Handle<O> {
    /// Which run.
    #[must_use]
    pub fn id(&self) -> RunId {
        self.run
    }

    /// Did this start make it, or did it exist under the key?
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.new
    }
}

impl<O: DeserializeOwned> Handle<O> {
    /// Waits for the run's result, whichever process works on it.
    ///
    /// # Errors
    /// When the run ended with a failure, is parked, or was deleted.
    pub async fn result(&mut self) -> Result<O, Error> {
        let (state, outcome) = self.rest().await?;
        let run = self.run;
        match outcome {
            None => Err(Error::NoSuchRun(run.to_string())),
            Some(Outcome::Value(value)) => Ok(decode(&value)?),
            Some(Outcome::Failure(reason)) if state == RunState::Parked => {
                Err(Error::Parked { run, reason })
            }
            Some(Outcome::Failure(failure)) => Err(Error::Failed {
                run,
                state,
                failure,
            }),
        }
    }

    async fn rest(&mut self) -> Result<Rest, Error> {
        let inner = &self.client.inner;
        if self.rest.is_none() {
            self.rest = Some(inner.rests.await_rest(self.run));
            if let Some(rest) = look(inner, self.run).await? {
                return Ok(rest);
            }
        }
        if inner.worker.is_none() {
            inner.post.store().watch_closely(true);
        }
        let rest = loop {
            let resting = self.rest.as_mut().expect("just made");
            if let Some(rest) = resting.next().await {
                break rest;
            }
            if let Some(rest) = look(inner, self.run).await? {
                break rest;
            }
        };
        self.rest = None;
        if inner.worker.is_none() && !inner.rests.anybody_waits() {
            inner.post.store().watch_closely(false);
        }
        Ok(rest)
    }
}

/// Has the run come to rest?
async fn look(inner: &Inner, run: RunId) -> Result<Option<Rest>, Error> {
    let query = Query::Run(inner.namespace.clone(), Target::Run(run));
    let Answer::Run(view) = inner.read(query).await? else {
        unreachable!("a run was asked for")
    };
    let Some(view) = view else {
        return Ok(Some((RunState::Cancelled, None)));
    };
    let (state, outcome) = (view.row.state, view.row.outcome);
    let rests = state.has_ended() || state == RunState::Parked;
    Ok(rests.then_some((state, outcome)))
}
