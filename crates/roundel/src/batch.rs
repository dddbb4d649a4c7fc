//! Batches: commands that are sent together, or not at all, and counted until all have ended.
//!
//! A batch is a run that no code of the user's works on. It has ended when each of its commands
//! has, in the same commit; while one is parked it waits for the operator, as the command does.

use std::borrow::Cow;
use std::future::{IntoFuture, Ready, ready};
use std::marker::PhantomData;
use std::time::Duration;

use roundel_core::{
    BATCH, Batch as BatchOp, BatchEnd, Call, Failure, Name, Payload, RunId, RunState, Start,
    Timestamp, digest,
};
use roundel_store::{Answer, LOOK, Page, Query, RunView, Stretch, Tx};
use serde::{Deserialize, Serialize};

use crate::command::key_in;
use crate::cx::shared::{Asked, CallGuard};
use crate::cx::{Child, Cx, Spawn, Times, encode, name, new_start, own, send_in_step};
use crate::ids::new_run;
use crate::{Client, Command, Error, Handle, Runs, StartRun, To, Workflow};

/// Commands that are sent together.
///
/// ```
/// use roundel::{Batch, Command};
/// const MAIL: Command<u64, ()> = Command::named("mail");
/// const REPORT: Command<String, ()> = Command::named("report");
/// let batch = (1..=3).map(|customer| MAIL.member(&customer).key(customer.to_string()));
/// let batch: Batch = batch.collect();
/// let batch = batch.key("night-7").then(REPORT.member(&"night-7".to_owned()));
/// assert_eq!(batch.len(), 3);
/// ```
#[derive(Clone, Debug)]
#[must_use = "it does nothing unless sent"]
pub struct Batch {
    run: RunId,
    members: Vec<Member>,
    then: Option<Member>,
    key: Option<Result<Name, Failure>>,
    labels: Vec<(Result<Name, Failure>, String)>,
}

/// A command of a batch, or what comes after it.
#[derive(Clone, Debug)]
#[must_use = "it does nothing unless added to a batch"]
pub struct Member {
    start: Result<Start, Failure>,
    in_queue: bool,
    delay: Option<Duration>,
}

impl<I: Serialize, O> Command<I, O> {
    /// It, as part of a batch.
    pub fn member(self, payload: &I) -> Member {
        Member {
            in_queue: true,
            ..self.workflow().member(payload)
        }
    }
}

impl<I: Serialize, O> Workflow<I, O> {
    /// A run of it, as part of a batch.
    pub fn member(self, input: &I) -> Member {
        let what = (self.name(), self.exact_version());
        let start = encode(input);
        // Whoever sends it knows the namespace.
        let start = start.map(|input| new_start(Name::constant("default"), new_run(), what, input));
        Member {
            start,
            in_queue: false,
            delay: None,
        }
    }
}

impl Member {
    /// A command of this queue, by its name.
    pub fn command(queue: Name, payload: Payload) -> Member {
        let start = own(payload)
            .map(|payload| new_start(Name::constant("default"), new_run(), (queue, None), payload));
        Member {
            start,
            in_queue: true,
            delay: None,
        }
    }

    /// Under this id, of its queue if it is a command. One that is in use refuses the whole batch.
    pub fn key(mut self, key: impl Into<Cow<'static, str>>) -> Self {
        let (key, in_queue) = (key.into(), self.in_queue);
        self.start = self.start.and_then(|mut start| {
            start.key = Some(match in_queue {
                true => name(key_in(&start.workflow, &key))?,
                false => name(key)?,
            });
            Ok(start)
        });
        self
    }

    /// Lower is taken first; 0 unless said.
    pub fn priority(mut self, priority: i32) -> Self {
        if let Ok(start) = &mut self.start {
            start.priority = priority;
        }
        self
    }

    /// Not before this long from when it is sent. What comes after a batch comes at once.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = Some(delay);
        self
    }
}

impl Default for Batch {
    fn default() -> Self {
        Batch::new()
    }
}

impl FromIterator<Member> for Batch {
    fn from_iter<T: IntoIterator<Item = Member>>(members: T) -> Self {
        let mut batch = Batch::new();
        batch.members.extend(members);
        batch
    }
}

impl Batch {
    /// One without commands, which cannot be sent as it is.
    pub fn new() -> Self {
        Batch {
            run: new_run(),
            members: Vec::new(),
            then: None,
            key: None,
            labels: Vec::new(),
        }
    }

    /// With this command, too.
    pub fn with(mut self, member: Member) -> Self {
        self.members.push(member);
        self
    }

    /// This begins in the commit in which the last command ends, once; it may be a command or a
    /// workflow. Until then it can be cancelled. It also begins when the batch was cancelled.
    pub fn then(mut self, then: Member) -> Self {
        self.then = Some(then);
        self
    }

    /// Under this key: sending the same again gives the first, another is a conflict.
    pub fn key(mut self, key: impl Into<Cow<'static, str>>) -> Self {
        self.key = Some(name(key));
        self
    }

    /// With this label, for search.
    pub fn label(mut self, label: impl Into<Cow<'static, str>>, value: impl Into<String>) -> Self {
        self.labels.push((name(label), value.into()));
        self
    }

    /// How many commands it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Has it none?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Sends it as part of a step: it is sent if the step's own writes are committed. If one of its
    /// ids is in use, the step fails, with the code `conflict`, and writes nothing.
    pub fn send(self, _tx: &Tx) -> SendBatch {
        SendBatch { batch: self }
    }

    /// The start that sends it, at a time that whoever sends it says.
    fn start(self, namespace: &Name) -> Result<Box<Start>, Failure> {
        let placed = |member: Member| -> Result<Start, Failure> {
            let at = member.delay.map(|delay| Timestamp(0).after(delay));
            let namespace = namespace.clone();
            Ok(Start {
                namespace,
                at,
                ..member.start?
            })
        };
        let members = self.members.into_iter().map(|member| {
            let parent = Some(BatchOp::parent(self.run));
            Ok(Start {
                parent,
                ..placed(member)?
            })
        });
        let members: Vec<Start> = members.collect::<Result<_, Failure>>()?;
        let then = self.then.map(placed).transpose()?;
        let input = Input {
            commands: u32::try_from(members.len()).unwrap_or(u32::MAX),
            fingerprint: fingerprint(members.iter().chain(&then)),
            then: then.as_ref().map(|then| then.workflow.clone()),
        };
        let what = (BATCH, Some(1));
        let mut start = new_start(namespace.clone(), self.run, what, encode(&input)?);
        start.key = self.key.transpose()?;
        for (label, value) in self.labels {
            start.labels.push((label?, value));
        }
        let then = then.map(|mut then| {
            let batch = self.run.to_string();
            then.labels.push((BatchOp::FOLLOWS, batch));
            then
        });
        start.batch = Some(Box::new(BatchOp { members, then }));
        Ok(Box::new(start))
    }
}

/// What the run of a batch is given. The fingerprint tells it from another under the same key.
#[derive(Serialize, Deserialize)]
pub(crate) struct Input {
    commands: u32,
    fingerprint: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    then: Option<Name>,
}

fn fingerprint<'s>(starts: impl Iterator<Item = &'s Start>) -> String {
    let parts = starts.flat_map(|start| {
        let key = start.key.as_ref().map_or("", Name::as_str);
        [start.workflow.as_str(), key, start.input.as_str()]
    });
    format!("{:032x}", digest(&parts.collect::<Vec<_>>()))
}

/// The function of a batch's run, for when a worker has to see to its end.
pub(crate) async fn run(cx: Cx, input: Input) -> Result<BatchEnd, Failure> {
    let mut guard = CallGuard::new(&cx.shared);
    let asked = || {
        let workflow = BATCH;
        let none = Asked::Children(Vec::new(), Times::default());
        (Call::Batch { workflow }, none)
    };
    let failed = std::future::poll_fn(|context| guard.poll(context, asked)).await;
    let failed = crate::cx::decode_outcome(failed)?;
    let commands = input.commands;
    Ok(BatchEnd { commands, failed })
}

/// A batch that a step sends. Await it, in the step.
#[must_use = "it does nothing unless awaited"]
#[derive(Debug)]
pub struct SendBatch {
    batch: Batch,
}

impl IntoFuture for SendBatch {
    type Output = Result<(), Failure>;
    type IntoFuture = Ready<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        // The step knows its namespace.
        let start = self.batch.start(&Name::constant("default"));
        ready(start.and_then(|start| send_in_step(*start, None)))
    }
}

impl Cx {
    /// Sends a batch and waits until all of its commands have ended. While one of them is parked,
    /// this waits. That commands failed is no failure of the batch: it says how many did.
    pub fn batch(&self, batch: Batch) -> Child<BatchEnd> {
        Child::of(self, self.batch_start(batch))
    }

    /// Sends a batch without waiting for it, and says which run it is.
    pub fn send_batch(&self, batch: Batch) -> Spawn {
        Spawn::of(self, self.batch_start(batch))
    }

    fn batch_start(&self, batch: Batch) -> Result<Box<Start>, Failure> {
        batch.start(&self.shared.info.namespace)
    }
}

/// Where a batch stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BatchState {
    /// Some of its commands have not ended.
    Running,
    /// Some of those that have not ended are parked.
    AwaitingOperator,
    /// All of them have ended.
    Finished,
    /// It was cancelled, or missed its deadline, and all of them have ended.
    Cancelled,
}

impl BatchState {
    /// The word that is shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            BatchState::Running => "running",
            BatchState::AwaitingOperator => "awaiting_operator",
            BatchState::Finished => "finished",
            BatchState::Cancelled => "cancelled",
        }
    }
}

/// A batch, as it is shown.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchView {
    /// Its run.
    pub run: RunView,
    /// How many commands are in each state that some are in.
    pub members: Vec<(RunState, u64)>,
}

impl BatchView {
    /// Where it stands.
    #[must_use]
    pub fn state(&self) -> BatchState {
        match self.run.row.state {
            RunState::Completed => BatchState::Finished,
            state if state.has_ended() => BatchState::Cancelled,
            _ if self.count(RunState::Parked) > 0 => BatchState::AwaitingOperator,
            _ => BatchState::Running,
        }
    }

    /// How many commands are in this state.
    #[must_use]
    pub fn count(&self, state: RunState) -> u64 {
        let its = self.members.iter().filter(|(its, _)| *its == state);
        its.map(|(_, count)| count).sum()
    }

    /// How many commands it has.
    #[must_use]
    pub fn commands(&self) -> u64 {
        self.members.iter().map(|(_, count)| count).sum()
    }

    /// How many commands have ended.
    #[must_use]
    pub fn ended(&self) -> u64 {
        let ended = self.members.iter().filter(|(state, _)| state.has_ended());
        ended.map(|(_, count)| count).sum()
    }
}

/// Batches, newest first.
#[derive(Clone, Debug)]
#[must_use = "it does nothing unless fetched"]
pub struct Batches {
    client: Client,
    before: Option<RunId>,
    limit: usize,
    rows: usize,
}

impl Batches {
    /// So many at most; 100 unless said.
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    /// A [look](Batches::look) passes so many rows at most.
    pub fn within(mut self, rows: usize) -> Self {
        self.rows = rows;
        self
    }

    /// Those after this one: the last of the page before, or where the look before ended.
    pub fn after(mut self, run: RunId) -> Self {
        self.before = Some(run);
        self
    }

    /// A page of them.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn fetch(self) -> Result<Page<BatchView>, Error> {
        let Page { items, more } = self.runs()?.fetch().await?;
        let items = self.views(items).await?;
        Ok(Page { items, more })
    }

    /// One look, which may find less than a page, or nothing, although there is more: as
    /// [`Runs::look`](crate::Runs::look).
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn look(self) -> Result<Stretch<BatchView, RunId>, Error> {
        let Stretch { items, next } = self.runs()?.look().await?;
        let items = self.views(items).await?;
        Ok(Stretch { items, next })
    }

    fn runs(&self) -> Result<Runs, Error> {
        let runs = self.client.runs().of(BATCH.as_str().to_owned())?;
        let runs = runs.limit(self.limit).within(self.rows);
        Ok(match self.before {
            Some(before) => runs.after(before),
            None => runs,
        })
    }

    async fn views(&self, runs: Vec<RunView>) -> Result<Vec<BatchView>, Error> {
        let mut views = Vec::new();
        for run in runs {
            let members = self.client.below(run.row.id).await?;
            views.push(BatchView { run, members });
        }
        Ok(views)
    }
}

impl Client {
    /// Sends a batch: all of its commands or, if one of their ids is in use, none. Await the handle
    /// to wait until all have ended.
    ///
    /// # Errors
    /// When it has no commands or too many, an id is in use, or the database cannot be written.
    pub async fn batch(&self, batch: Batch) -> Result<Handle<BatchEnd>, Error> {
        let mut start = batch.start(&self.inner.namespace)?;
        if let Some(batch) = &mut start.batch {
            batch.sent_at(self.now());
        }
        let sent = StartRun {
            client: self.clone(),
            start: Ok(start),
            in_queue: false,
            value: PhantomData,
        };
        sent.await
    }

    /// The batch that was sent under this key, or as this run, to wait for it.
    ///
    /// # Errors
    /// When there is none.
    pub async fn sent_batch(&self, to: impl Into<To>) -> Result<Handle<BatchEnd>, Error> {
        let run = self.batch_view(to).await?.run.row.id;
        let workflow: Workflow<Payload, BatchEnd> = Workflow::named("roundel.batch");
        self.handle(workflow, run).await
    }

    /// A batch, and where its commands stand.
    ///
    /// # Errors
    /// When there is none.
    pub async fn batch_view(&self, to: impl Into<To>) -> Result<BatchView, Error> {
        let run = self.run(to).await?;
        if run.lane.workflow != BATCH {
            let text = format!("{} is a run of `{}`,", run.row.id, run.lane.workflow);
            return Err(Error::NoSuchRun(text));
        }
        let members = self.below(run.row.id).await?;
        Ok(BatchView { run, members })
    }

    /// Batches, newest first, in pages.
    pub fn batches(&self) -> Batches {
        Batches {
            client: self.clone(),
            before: None,
            limit: 100,
            rows: LOOK,
        }
    }

    async fn below(&self, run: RunId) -> Result<Vec<(RunState, u64)>, Error> {
        match self.inner.read(Query::Below(run)).await? {
            Answer::Below(counts) => Ok(counts),
            _ => unreachable!("counts were asked for"),
        }
    }
}
