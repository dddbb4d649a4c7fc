//! Steps: the user's own SQL, and the round that records it, in one transaction.
//!
//! The user's statements come first, without any lock of ours. The last flight locks what the round
//! needs in the common order, checks whether the worker still has the run, writes the round and
//! commits. A step that leaves nothing behind is recorded by the committer, with everything else.
//!
//! | what came of the code | what happens |
//! |---|---|
//! | it is to be kept, and the round stands | committed together |
//! | it is to be kept, and the round is refused | rolled back; the refusal is the answer |
//! | it failed, or is not to be kept | rolled back; its round goes to the committer |
//! | it broke the rules | rolled back; the round that says so goes to the committer |
//! | the database failed, or others were in the way | run again, while there is time |
//! | the commit was not answered | after asking the run's journal: the answer, or run again |

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use roundel_core::{Fence, Hint, Op, Refusal, Round, Rows, RunId, WorkerId, may_step};
use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::batch::Session;
use super::link::{Link, values};
use super::locks::Patience;
use super::open;
use super::pool::Pool;
use super::shared::Shared;
use super::trouble::Trouble;
use super::values::Id;
use crate::answers::{answer_all, deliver};
use crate::cells::{self, Cells};
use crate::queue::Item;
use crate::tx::postgres::{self as tx, Broken};
use crate::{Ask, Error, TxError, Work, Worked};

const PAUSE: Duration = Duration::from_millis(20);

/// Waits for a process of the server that may still be at it.
const LOCK_RUN: &str = "SELECT epoch, created_at FROM roundel_run WHERE id = $1 FOR UPDATE";
const ROUND: &str = "SELECT 1 FROM roundel_journal WHERE run = $1 AND epoch = $2 LIMIT 1";

/// What steps need.
pub(super) struct Steps {
    pub(super) shared: Arc<Shared>,
    pub(super) pool: Arc<Pool>,
    pub(super) handle: Handle,
}

/// What is next for a step.
enum Next {
    /// The answer is there.
    Answered(Vec<Hint>),
    /// Its round goes to the committer.
    Recorded(Box<Round>),
    /// It must not run, or its round does not stand.
    Refused(Refusal),
    /// It is run again, while there is time.
    Again(String),
    /// Nothing helps.
    Failed(Error),
}

impl Steps {
    /// Begins a step, which goes its way beside all else.
    pub(super) fn begin(&self, item: Item, session: Session) {
        let step = Step {
            shared: Arc::clone(&self.shared),
            pool: Arc::clone(&self.pool),
            session,
        };
        step.shared.steps.fetch_add(1, Ordering::AcqRel);
        self.handle.spawn(async move {
            let shared = Arc::clone(&step.shared);
            step.run(item).await;
            shared.steps.fetch_sub(1, Ordering::AcqRel);
        });
    }
}

struct Step {
    shared: Arc<Shared>,
    pool: Arc<Pool>,
    session: Session,
}

impl Step {
    async fn run(mut self, mut item: Item) {
        loop {
            match self.attempt(&mut item).await {
                Next::Answered(hints) => {
                    deliver(vec![item]);
                    self.shared.listeners.hint(&hints);
                    self.shared.tell_others(&hints);
                    return;
                }
                Next::Recorded(round) => {
                    item.instead = Some(Box::new(Op::Commit(*round)));
                    self.shared.queue.give_back(item);
                    return;
                }
                Next::Refused(refusal) => {
                    return answer_all(vec![item], &Error::Refused(refusal));
                }
                Next::Failed(error) => return answer_all(vec![item], &error),
                Next::Again(message) => {
                    self.session.forget();
                    if self.shared.is_late(item.since) {
                        return answer_all(vec![item], &Error::Unavailable(message));
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// One transaction.
    async fn attempt(&mut self, item: &mut Item) -> Next {
        let lent = match self.pool.lend().await {
            Ok(lent) => lent,
            Err(error) if error.is_passing() => return Next::Again(error.to_string()),
            Err(error) => return Next::Failed(error),
        };
        let (mut link, room) = Pool::part(lent);
        let lease = work_of(item).lease();
        match self.check(&mut link, lease).await {
            Ok(Ok(())) => {}
            Ok(Err(refusal)) => {
                self.give_up(link, room).await;
                return Next::Refused(refusal);
            }
            Err(trouble) => {
                self.pool.clear();
                return Next::Again(trouble.message());
            }
        }
        let (connection, worked) = run_code(link.into_inner(), item).await;
        let keeps = self.shared.keeps;
        let mut link = connection.map(|connection| Link::of(connection, keeps));
        let worked = match (worked, &mut link) {
            (Ok(worked), Some(link)) if worked.keep => {
                tx::settle(link.inner()).await.map(|()| worked)
            }
            (worked, _) => worked,
        };
        let next = match (worked, link) {
            (Ok(worked), Some(link)) if worked.keep => {
                return self.finish(item, worked.round, link, room).await;
            }
            (Ok(Worked { round, .. }), link) => (Next::Recorded(Box::new(round)), link),
            (Err(Broken::Failed(message)), link) => (Next::Again(message), link),
            (Err(Broken::Refused(error)), link) => (refused(item, error), link),
        };
        if let Some(link) = next.1 {
            self.give_up(link, room).await;
        }
        next.0
    }

    /// Opens the transaction, if the step may run.
    async fn check(
        &self,
        link: &mut Link,
        (run, worker, fence): (RunId, WorkerId, Fence),
    ) -> Result<Result<(), Refusal>, Trouble> {
        tx::begin(link.inner(), self.shared.keeps).await?;
        let found = link.all(&self.shared.begin.owner, values![Id::from(run)]);
        let row = found.await?.first().map(cells::run).transpose()?;
        let mut rows = Rows::default();
        rows.load_run(run, row);
        let now = self.shared.clock.now();
        Ok(may_step(&rows, run, (worker, fence), now))
    }

    /// Rolls back and gives the connection back, if it can be used.
    async fn give_up(&self, mut link: Link, room: OwnedSemaphorePermit) {
        let ended = timeout(self.shared.flight(), link.run("ROLLBACK")).await;
        if matches!(ended, Ok(Ok(()))) {
            self.pool.take_back(Pool::whole(link, room));
        }
    }

    /// Writes the round and commits all of it.
    async fn finish(
        &mut self,
        item: &mut Item,
        round: Round,
        mut link: Link,
        room: OwnedSemaphorePermit,
    ) -> Next {
        let (run, fence, silent) = (round.run, round.fence(), round.count == 0);
        let op = Op::Commit(round);
        let written = timeout(self.shared.flight(), async {
            link.run(&self.shared.begin.last).await?;
            let waits = (Patience::Wait, None);
            self.session.run(&mut link, &[&op], waits).await
        });
        let mut came = match written.await {
            Ok(Ok(came)) => came,
            Ok(Err(Trouble::Culprit(message))) => {
                self.give_up(link, room).await;
                return Next::Failed(Error::Unusable(message));
            }
            Ok(Err(trouble)) => return Next::Again(trouble.message()),
            Err(_) => return Next::Again("the server does not answer".into()),
        };
        let hints = came.hints;
        item.result = came.results.pop().flatten();
        match &item.result {
            Some(Ok(_)) => {}
            Some(Err(error)) => {
                let error = error.clone();
                self.give_up(link, room).await;
                return Next::Failed(error);
            }
            None => {
                self.give_up(link, room).await;
                return Next::Again("others have what its round needs".into());
            }
        }
        let committed = timeout(self.shared.flight(), link.run("COMMIT")).await;
        let written = came.runs.iter().map(|change| change.row().id);
        self.shared.touched().extend(written);
        let doubt = match committed {
            Ok(Ok(())) => {
                self.pool.take_back(Pool::whole(link, room));
                return Next::Answered(hints);
            }
            Ok(Err(error)) => match Trouble::of_commit(error) {
                Trouble::Doubt(message) => message,
                Trouble::Culprit(message) => {
                    return refused(item, TxError::Database(message));
                }
                trouble => return Next::Again(trouble.message()),
            },
            Err(_) => "the commit was not answered".to_owned(),
        };
        drop((link, room));
        match self.resolve(item.since, (run, fence, silent)).await {
            Some(true) => Next::Answered(hints),
            Some(false) => Next::Again(doubt),
            None => Next::Failed(Error::Unknown(doubt)),
        }
    }

    /// Learns whether a step was committed, on a fresh connection, while there is time.
    async fn resolve(&self, since: Instant, round: (RunId, Fence, bool)) -> Option<bool> {
        loop {
            let asked = timeout(self.shared.flight(), was_committed(&self.shared, round));
            if let Ok(Ok(known)) = asked.await {
                return Some(known);
            }
            if self.shared.is_late(since) {
                return None;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// An epoch is good for one round: if the journal has one of it, it is this one, unless the run was
/// deleted and another has its id.
pub(super) async fn was_committed(
    shared: &Shared,
    (run, fence, silent): (RunId, Fence, bool),
) -> Result<bool, Trouble> {
    let link = open::connect(&shared.connect, shared.keeps).await;
    let mut link = link.map_err(|error| Trouble::Broken(error.to_string()))?;
    link.run(&shared.begin.write).await?;
    let rows = link.all(LOCK_RUN, values![Id::from(run)]).await?;
    let current = rows.first().map_or(Ok(None), |row| row.int(0))?;
    let created_at = rows.first().map_or(Ok(None), |row| row.int(1))?;
    let values = values![Id::from(run), cells::number(fence.epoch)];
    let round = link.all(ROUND, values).await?;
    link.run("ROLLBACK").await?;
    link.close().await;
    let moved = current.is_some_and(|current| current != cells::number(fence.epoch));
    let its = fence.created_at.is_none_or(|at| created_at == Some(at.0));
    Ok(its && (!round.is_empty() || silent && moved))
}

fn work_of(item: &Item) -> &dyn Work {
    match &*item.request.ask {
        Ask::Work(work) => &**work,
        Ask::Op(_) => unreachable!("only steps come here"),
    }
}

/// The round that says that the step broke the rules.
fn refused(item: &mut Item, error: TxError) -> Next {
    let Ask::Work(work) = &mut *item.request.ask else {
        unreachable!("only steps come here");
    };
    match catch_unwind(AssertUnwindSafe(|| work.refused(error))) {
        Ok(round) => Next::Recorded(Box::new(round)),
        Err(_) => Next::Failed(Error::Unusable("a refused step panicked".into())),
    }
}

/// Runs the code on a thread that may sleep.
async fn run_code(
    connection: sqlx::PgConnection,
    item: &mut Item,
) -> (Option<sqlx::PgConnection>, Result<Worked, Broken>) {
    let ask = std::mem::replace(&mut *item.request.ask, Ask::Work(Box::new(Away)));
    let ran = tokio::task::spawn_blocking(move || {
        let mut ask = ask;
        let Ask::Work(work) = &mut ask else {
            unreachable!("only steps come here");
        };
        let ran = tx::run(connection, &mut **work);
        (ask, ran)
    });
    match ran.await {
        Ok((ask, ran)) => {
            *item.request.ask = ask;
            (ran.connection, ran.worked)
        }
        Err(error) => (None, Err(Broken::Failed(error.to_string()))),
    }
}

/// Stands in the request while its step is on another thread.
struct Away;

impl Work for Away {
    fn lease(&self) -> (RunId, WorkerId, Fence) {
        unreachable!("the step is away")
    }

    fn run(&mut self, _: crate::Tx) -> Worked {
        unreachable!("the step is away")
    }

    fn refused(&mut self, _: TxError) -> Round {
        unreachable!("the step is away")
    }

    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any + Send> {
        self
    }
}
