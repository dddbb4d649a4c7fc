//! What programs ask from outside: start, signal, offer, cancel, results, lists.

mod ask;
mod audit;
mod check;
mod cooperation;
mod decide;
mod facts;
mod following;
mod handle;
mod incoming;
mod intake;
mod list;
mod look;
mod named;
mod parked;
mod preview;
mod projections;
mod prune;
mod queues;
mod remedy;
mod retention;
mod schedules;
mod send;
mod sql;
mod start;
mod to;
mod together;
mod topics;
mod trouble;
mod troubles;

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use roundel_core::{
    Cancel, Cancelled, Claimant, Delete, Name, Op, Patch, Patched, Payload, Reply, Resume,
};
use roundel_store::{Answer, Ask, Query, RunFilter, RunView, Stats};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use audit::Audit;
pub use decide::{Decision, Look};
pub use facts::{Document, Facts, RecordFacts};
pub use following::{Following, Growth};
pub use handle::Handle;
pub use incoming::{Arrival, Queued, TakenIn, Ticked};
pub use list::Runs;
pub use preview::{Preview, WouldUndo};
pub use projections::ProjectionStatus;
pub use prune::{EndedTrees, Prune};
pub use queues::{Queue, QueueLimits};
pub use remedy::Remedy;
pub(crate) use retention::{hold, keep_ended};
pub use schedules::{Schedule, ScheduleSet, ScheduleView};
pub use send::SendTo;
pub use start::StartRun;
pub use to::To;
pub use trouble::{Trouble, TroubleId};
pub use troubles::{Parked, Remedied, TroubleGroup};

use crate::check::Code;
use crate::cx::{decode, encode, new_start, own, own_state, unopened};
use crate::decider::Deciders;
use crate::ids::new_run;
use crate::metrics::Counters;
use crate::post::Post;
use crate::projections::Projections;
use crate::rests::Rests;
use crate::seal::sealed_state;
use crate::worker::{Idlers, Worker};
use crate::{Error, Workflow};

type Boxed<T> = Borrowed<'static, T>;
type Borrowed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Talks to the runs of one namespace, in this process or any other. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    pub(crate) inner: Arc<Inner>,
    /// In whose name it acts.
    operator: Option<Arc<audit::Operator>>,
    /// It leaves alone what is not parked.
    if_parked: bool,
    /// The epoch of a run when it was looked at.
    seen: Option<u64>,
}

impl From<Arc<Inner>> for Client {
    fn from(inner: Arc<Inner>) -> Client {
        Client {
            inner,
            operator: None,
            if_parked: false,
            seen: None,
        }
    }
}

pub(crate) struct Inner {
    pub(crate) namespace: Name,
    pub(crate) post: Arc<Post>,
    pub(crate) worker: Option<Arc<Worker>>,
    /// What is registered here.
    pub(crate) code: Arc<Code>,
    pub(crate) rests: Arc<Rests>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) answer_within: Duration,
    /// Who receives what is recorded.
    pub(crate) name: Option<Name>,
    pub(crate) projections: Arc<Projections>,
    pub(crate) deciders: Deciders,
    /// How long a lost hint can delay a result.
    pub(crate) sweep: Duration,
    pub(crate) idlers: Arc<Idlers>,
    /// The store tells of every commit of others.
    pub(crate) hears_all: bool,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Client({})", self.inner.namespace)
    }
}

impl Client {
    /// Starts a run. Await it, or say more first: a key, labels, a delay. If no version is said, it
    /// is the latest that this process has; if it has none, the latest that any worker has.
    pub fn start<I: Serialize, O>(&self, workflow: Workflow<I, O>, input: &I) -> StartRun<O> {
        let start = encode(input).map(|input| {
            let name = workflow.name();
            let version = workflow.exact_version();
            let version = version.or_else(|| self.inner.latest(&name));
            let (namespace, run) = (self.inner.namespace.clone(), new_run());
            Box::new(new_start(namespace, run, (name, version), input))
        });
        StartRun {
            client: self.clone(),
            start: start.map_err(Error::from),
            in_queue: false,
            value: PhantomData,
        }
    }

    /// Starts a run by the name of its workflow, with any JSON.
    pub fn start_named(&self, workflow: Name, input: Payload) -> StartRun<Payload> {
        let (namespace, run) = (self.inner.namespace.clone(), new_run());
        let version = self.inner.latest(&workflow);
        let start =
            own(input).map(|input| Box::new(new_start(namespace, run, (workflow, version), input)));
        StartRun {
            client: self.clone(),
            start: start.map_err(Error::from),
            in_queue: false,
            value: PhantomData,
        }
    }

    /// Asks a run, and all below it, to end.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub async fn cancel(&self, to: impl Into<To>) -> Result<Cancelled, Error> {
        let (target, claimant) = (to.into().checked()?, self.inner.claimant());
        let (namespace, keep) = (self.inner.namespace.clone(), false);
        let cancel = Cancel {
            namespace,
            target,
            keep,
            claimant,
        };
        self.ask_to_end(cancel).await
    }

    /// Ends a run, and all below it that has not ended, without undoing anything: what they did
    /// stays. No code of the workflow runs any more, also not what it gave to be done in any case;
    /// who works on the run is fenced off. This also holds for a run that was asked to end before
    /// and has not begun to undo what it did.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub async fn cancel_without_undo(&self, to: impl Into<To>) -> Result<Cancelled, Error> {
        let (target, claimant) = (to.into().checked()?, None);
        let (namespace, keep) = (self.inner.namespace.clone(), true);
        let cancel = Cancel {
            namespace,
            target,
            keep,
            claimant,
        };
        self.ask_to_end(cancel).await
    }

    async fn ask_to_end(&self, cancel: Cancel) -> Result<Cancelled, Error> {
        match self.act(Op::Cancel(cancel)).await? {
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
        let (namespace, patch) = (self.inner.namespace.clone(), own_state(encode(patch)?)?);
        let target = to.into().checked()?;
        match self
            .act(Op::Patch(Patch {
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
            .map(|state| Ok((open_state(&state.value)?, state.version)))
            .transpose()
    }

    /// Lets a parked run go on, or tries a rollback that failed again.
    ///
    /// # Errors
    /// When it is not parked, and no rollback of it has failed.
    pub async fn resume(&self, to: impl Into<To>) -> Result<(), Error> {
        let (namespace, target) = (self.inner.namespace.clone(), to.into().checked()?);
        self.act(Op::Resume(Resume {
            namespace,
            target,
            skip: false,
            anew: None,
        }))
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
            let Reply::Deleted { runs, more } = self.act(Op::Delete(delete)).await? else {
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
        let filter = RunFilter::of(self.inner.namespace.clone(), 100);
        Runs {
            client: self.clone(),
            filter,
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
            sent: None,
            rest: None,
            value: PhantomData,
        })
    }

    /// Several operations at once, in this order: the same replies as one by one, in one commit
    /// where possible.
    pub async fn at_once(&self, ops: Vec<Op>) -> Vec<Result<Reply, Error>> {
        let asks = ops.into_iter().map(Ask::Op).collect();
        let asked = self.inner.ask_all(asks);
        let mut replies = Vec::with_capacity(asked.len());
        for coming in asked {
            replies.push(self.inner.reply(coming).await);
        }
        replies
    }
}

/// A run's state, as its type: nothing of it may be sealed.
fn open_state<T: DeserializeOwned>(state: &Payload) -> Result<T, Error> {
    match sealed_state(state) {
        Some(sealed) => Err(unopened(&sealed).into()),
        None => Ok(decode(state)?),
    }
}

impl Inner {
    /// The latest version of a workflow that this process has.
    fn latest(&self, workflow: &Name) -> Option<u32> {
        self.worker.as_ref()?.latest(workflow)
    }

    pub(crate) fn claimant(&self) -> Option<Claimant> {
        let worker = self
            .worker
            .as_ref()
            .filter(|worker| !worker.is_stopping())?;
        Some(Claimant {
            worker: worker.id,
            lease: worker.config.lease,
        })
    }
}
