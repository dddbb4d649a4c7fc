//! Workers elsewhere: programs in any language that handle commands, through whoever speaks to them
//! in their name (the server does, over HTTP).
//!
//! Such a worker is one like any other: it has a row, claims what its queues hold, and what it
//! claimed is its own until its lease ends. A command that is handed out has begun, which is in its
//! journal; its answer is the outcome of that call, recorded by the round that ends it. What is
//! held is named by its fence, and the commit checks it: who comes too late changes nothing.
//! Nothing is kept in this process between the two.
//!
//! Absent on purpose: steps and workflows, which need a transaction or a journal to replay. A
//! queue is handled here or elsewhere, not both by different kinds of calls.

use std::future::{Future, poll_fn};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use futures_util::future::join_all;
use roundel_core::{
    Claimed, Entry, Failure, Fence, Lease, Name, Op, Outcome, Payload, Release, Renew, Reply,
    Retry, RunId, RunState, Timestamp, WorkerId, decode_entries, limits,
};
use roundel_store::RunView;
use rustc_hash::FxHashMap;

use crate::command::handled;
use crate::cx::{Attempt, own};
use crate::live::{Handler, erased};
use crate::worker::{Brought, Config, Handlers, Worker};
use crate::{Client, Command, Error};

/// While nothing is told, it is looked this often all the same.
const LOOK: Duration = Duration::from_secs(5);

/// For rounds that follow an answer, should there be several.
const LEASE: Duration = Duration::from_secs(30);

/// Commands as they are handled elsewhere: whatever they are given and give.
const ANY: Command<Payload, Payload> = Command::named("elsewhere");

/// A worker elsewhere, in whose name commands are claimed and answered.
#[derive(Clone, Debug)]
pub struct RemoteWorker {
    client: Client,
    id: WorkerId,
    name: Arc<str>,
}

/// A command that a worker elsewhere holds: which run, and under which fence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    /// The command's run.
    pub run: RunId,
    /// When it was sent: another may be sent under its id once it is deleted.
    pub created_at: Timestamp,
    /// The fence. It passes when the command is answered, released, or given to another.
    pub epoch: u64,
}

impl Held {
    fn fence(self) -> Fence {
        Fence {
            created_at: Some(self.created_at),
            epoch: self.epoch,
        }
    }

    /// Is the run as it was when this worker got it?
    fn is_held(self, run: &RunView, worker: WorkerId) -> bool {
        let row = &run.row;
        let current = (row.created_at, row.epoch) == (self.created_at, self.epoch);
        current && row.owner == Some(worker)
    }
}

/// A command that was handed out.
#[derive(Clone, Debug)]
pub struct Handed {
    /// What it is answered by.
    pub held: Held,
    /// The queue that it was sent to.
    pub queue: Name,
    /// The id that it was sent under.
    pub id: Option<String>,
    /// What it was sent with.
    pub payload: Payload,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// The idempotency key: the same for every attempt, and for no other command.
    pub key: String,
    /// For services that are called, if the command is part of a trace.
    pub traceparent: Option<String>,
}

/// What is claimed, and for how long.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Of which queues.
    pub queues: Vec<Name>,
    /// So many at most.
    pub limit: usize,
    /// For how long, unless it is extended.
    pub lease: Duration,
}

/// What became of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answered {
    /// It was taken. The command is now in this state; if it is tried again, then from this time.
    Taken(RunState, Option<Timestamp>),
    /// It came too late: the command is not this worker's any more.
    Lost,
}

/// Calls that were made, each with what it was given, by run.
type Calls = Arc<Mutex<FxHashMap<RunId, (Attempt, Payload)>>>;

impl Client {
    /// A worker elsewhere, by its id. Its name is for people.
    #[must_use]
    pub fn remote_worker(&self, id: WorkerId, name: impl Into<Arc<str>>) -> RemoteWorker {
        let (client, name) = (self.clone(), name.into());
        RemoteWorker { client, id, name }
    }
}

impl RemoteWorker {
    /// Claims commands, and waits for some if there are none, until it was `enough`. Each has begun
    /// when this returns.
    ///
    /// # Errors
    /// When they cannot be claimed.
    pub async fn claim(
        &self,
        wanted: &Wanted,
        enough: impl Future<Output = ()>,
    ) -> Result<Vec<Handed>, Error> {
        let (inner, calls) = (&self.client.inner, Calls::default());
        let noted = calls.clone();
        let handler: Handler = erased(handled(ANY, move |attempt: Attempt, payload| {
            lock(&noted).insert(attempt.run(), (attempt, payload));
            std::future::pending::<Result<Payload, Failure>>()
        }));
        let each = wanted.queues.iter();
        let handlers = each.map(|queue| ((queue.clone(), 1), handler.clone()));
        let worker = self.worker(handlers.collect(), wanted.lease);
        worker.register().await?;
        let (idler, mut over) = (inner.idlers.join(), false);
        let mut enough = std::pin::pin!(enough);
        loop {
            let mut ready = std::pin::pin!(idler.ready());
            ready.as_mut().enable();
            let (claimed, next) = worker.claim(wanted.limit.min(limits::CLAIM)).await?;
            let found = !claimed.is_empty();
            let handed = claimed
                .into_iter()
                .map(|one| hand_out(&worker, one, &calls));
            let handed: Vec<Handed> = join_all(handed).await.into_iter().flatten().collect();
            if !handed.is_empty() || over {
                return Ok(handed);
            }
            if found {
                // None of it could be handed out, and it may be found again at once.
                let mut asked = enough.as_mut();
                if poll_fn(|context| Poll::Ready(asked.as_mut().poll(context).is_ready())).await {
                    return Ok(handed);
                }
                continue;
            }
            let store = inner.post.store();
            let next = next.unwrap_or(Timestamp::MAX);
            tokio::select! {
                biased;
                () = &mut enough => over = true,
                () = ready => {}
                () = store.clock().sleep_until(next) => {}
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }

    /// Keeps a command for this much longer from now. Says whether it was asked to end meanwhile,
    /// in which case releasing it is best; none if it is not this worker's any more.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub async fn extend(&self, held: Held, lease: Duration) -> Result<Option<bool>, Error> {
        self.look(held).await?;
        let renew = Renew {
            worker: self.id,
            runs: vec![held.run],
            lease,
        };
        let Reply::Renewed(renewed) = self.client.inner.post.op(Op::Renew(renew)).await? else {
            unreachable!("a renewal answers for each lease")
        };
        let kept = renewed.into_iter().next().map(|one| one.lease);
        Ok(match kept {
            Some(Lease::Kept { fence, cancel, .. }) if fence == held.fence() => Some(cancel),
            _ => None,
        })
    }

    /// The command's reply. Given again, it is taken again.
    ///
    /// # Errors
    /// When there is no such command, or the database cannot be written.
    pub async fn complete(&self, held: Held, value: Payload) -> Result<Answered, Error> {
        self.answer(held, Ok(own(value)?), Retry::exponential(5))
            .await
    }

    /// The command failed. If it was transient it is tried again, as often as this says.
    ///
    /// # Errors
    /// When there is no such command, or the database cannot be written.
    pub async fn fail(
        &self,
        held: Held,
        failure: Failure,
        retry: Retry,
    ) -> Result<Answered, Error> {
        self.answer(held, Err(failure), retry).await
    }

    /// Gives a command back, to whoever claims next; this attempt does not count. Says whether it
    /// was this worker's.
    ///
    /// # Errors
    /// When there is no such command, or the database cannot be written.
    pub async fn release(&self, held: Held) -> Result<bool, Error> {
        let run = self.look(held).await?;
        if !held.is_held(&run, self.id) {
            return Ok(false);
        }
        self.give_back(vec![held.run], false).await?;
        Ok(true)
    }

    /// The worker goes, and is no longer listed. What it holds comes back when its leases end.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub async fn leave(&self) -> Result<(), Error> {
        self.give_back(Vec::new(), true).await
    }

    async fn give_back(&self, runs: Vec<RunId>, leave: bool) -> Result<(), Error> {
        let worker = self.id;
        let release = Op::Release(Release {
            worker,
            runs,
            leave,
        });
        self.client.inner.post.op(release).await?;
        Ok(())
    }

    async fn answer(
        &self,
        held: Held,
        result: Result<Payload, Failure>,
        retry: Retry,
    ) -> Result<Answered, Error> {
        let run = self.look(held).await?;
        if !held.is_held(&run, self.id) {
            return self.answered_before(run, held, &result).await;
        }
        let given = result.clone();
        let handler = handled(ANY.retry(retry), move |_: Attempt, _: Payload| {
            std::future::ready(given.clone())
        });
        let what = (run.lane.workflow.clone(), run.lane.version);
        let handlers = std::iter::once((what.clone(), erased(handler))).collect();
        let worker = self.worker(handlers, LEASE);
        worker.knows(run.row.lane, what);
        let claimed = claimed(&run, self.client.now());
        let brought = worker.bring(claimed, || false).await;
        let run = self.look(held).await?;
        match brought {
            Brought::AtRest => Ok(Answered::Taken(run.row.state, run.row.ready_at)),
            Brought::Asked(_) | Brought::Lost => self.answered_before(run, held, &result).await,
        }
    }

    /// Was this answer taken, by a request whose own answer was lost?
    async fn answered_before(
        &self,
        run: RunView,
        held: Held,
        result: &Result<Payload, Failure>,
    ) -> Result<Answered, Error> {
        let row = &run.row;
        if row.created_at != held.created_at {
            return Ok(Answered::Lost);
        }
        let is_this = |outcome: &Outcome| match (outcome, result) {
            (Outcome::Value(one), Ok(other)) => one == other,
            (Outcome::Failure(one), Err(other)) => is_like(one, other),
            _ => false,
        };
        // What parks a run leaves nothing in its journal.
        let parked = row.state == RunState::Parked && row.epoch <= held.epoch + 2;
        let mut taken = parked && row.outcome.as_ref().is_some_and(is_this);
        for round in self.client.rounds(row.id, row.execution).await? {
            if round.epoch != held.epoch || taken {
                continue;
            }
            let entries = decode_entries(&round.entries);
            let entries = entries.map_err(|error| Error::Value(error.to_string()))?;
            taken = entries.iter().any(|entry| match entry {
                Entry::Done { outcome, .. } | Entry::Did { outcome, .. } => is_this(outcome),
                Entry::Attempted { failure, .. } => {
                    result.as_ref().is_err_and(|other| is_like(failure, other))
                }
                _ => false,
            });
        }
        Ok(match taken {
            true => Answered::Taken(row.state, row.ready_at),
            false => Answered::Lost,
        })
    }

    /// The command's run, in this namespace.
    async fn look(&self, held: Held) -> Result<RunView, Error> {
        self.client.run(held.run).await
    }

    fn worker(&self, handlers: Handlers, lease: Duration) -> Arc<Worker> {
        let inner = &self.client.inner;
        let config = Config {
            namespace: inner.namespace.clone(),
            name: self.name.clone(),
            lease,
            grace: Duration::ZERO,
            max_live: limits::CLAIM,
            in_hand: None,
            cached_runs: 0,
            cached_for: Duration::ZERO,
            sweep: inner.sweep,
            renewed_by_hand: true,
            elsewhere: true,
            undos: Arc::default(),
            projections: inner.projections.clone(),
        };
        let shared = (inner.counters.clone(), inner.rests.clone());
        Worker::elsewhere(self.id, config, (inner.post.clone(), handlers), shared)
    }
}

/// A command that was claimed has begun, and goes out; unless it has ended instead.
async fn hand_out(worker: &Arc<Worker>, claimed: Claimed, calls: &Calls) -> Option<Handed> {
    let (run, key) = (claimed.run, claimed.key.clone());
    let queue = worker.workflow_of(claimed.lane)?.0.clone();
    let is_asked = || lock(calls).contains_key(&run);
    let Brought::Asked(fence) = worker.bring(claimed, is_asked).await else {
        return None;
    };
    let (attempt, payload) = lock(calls).remove(&run)?;
    let id = key.as_ref().and_then(|key| {
        let rest = key.as_str().strip_prefix(queue.as_str())?;
        rest.strip_prefix(':').map(str::to_owned)
    });
    Some(Handed {
        held: Held {
            run,
            created_at: fence.created_at?,
            epoch: fence.epoch,
        },
        queue,
        id,
        payload,
        attempt: attempt.number(),
        key: attempt.key(),
        traceparent: attempt.traceparent(),
    })
}

/// What a claim would have said of this run, whose lease goes on.
fn claimed(run: &RunView, now: Timestamp) -> Claimed {
    let row = &run.row;
    Claimed {
        run: row.id,
        epoch: row.epoch,
        created_at: row.created_at,
        lane: row.lane,
        execution: row.execution,
        head: row.head,
        parent: row.parent,
        key: row.key.clone(),
        cancel: row.cancel,
        deadlines: row.deadlines,
        suspect: row.suspect,
        inbox: Vec::new(),
        at: now,
    }
}

/// Are they one failure, but for what the engine adds?
fn is_like(one: &Failure, other: &Failure) -> bool {
    one.code == other.code && one.message == other.message && one.data == other.data
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
