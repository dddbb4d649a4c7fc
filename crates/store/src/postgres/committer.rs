//! The one thread that commits. It owns the only connection that writes what operations decide.
//!
//! | what happened | what the requests of the batch hear |
//! |---|---|
//! | committed, or nothing to commit | their replies |
//! | somebody else was in the way | nothing yet: decided again |
//! | the connection was lost before the commit | nothing yet: decided again, on another one |
//! | no room, no memory | unavailable: nothing happened |
//! | a statement failed, or something panicked | halves are tried until the culprit is alone |
//! | the commit was not answered | after asking the server: their replies, or decided again |
//! | none of this within the time for answers | unavailable; unknown if the commit was sent |

mod doubt;
mod guess;
mod linger;
mod parting;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use roundel_core::{Hint, Op, Reply};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use doubt::Doubt;
use linger::{Linger, MOMENT};

use super::batch::{Came, Session};
use super::kept::Kept;
use super::link::Link;
use super::locks::Patience;
use super::open::Again;
use super::shared::Shared;
use super::steps::Steps;
use super::trouble::Trouble;
use super::{moving, open};
use crate::Error;
use crate::answers::{answer_all, deliver};
use crate::queue::{Item, Woken};

/// After so many times set aside, a request waits for what it needs, alone.
const MISSES: u8 = 3;
/// A request that fails alone is tried so often: the first time it may have met another's.
const TRIES: u8 = 3;
/// How long to wait before the next try to connect.
const RECONNECT: Duration = Duration::from_millis(50);

/// Those who were answered together are likely to ask again together: so many of them are waited
/// for, one in so many, and for this long at most. Each batch costs the server as much as dozens of
/// requests in it.
const GATHERED: usize = 2;
const GATHER: Duration = Duration::from_millis(1);

/// How often to look for steps that are under way when the store is closed.
const CLOSING: Duration = Duration::from_millis(2);

/// A batch that is committed, and what those who asked are to hear.
struct Settled {
    batch: Vec<Item>,
    results: Vec<Option<Result<Reply, Error>>>,
    hints: Vec<Hint>,
}

struct Committer {
    shared: Arc<Shared>,
    steps: Steps,
    runtime: Rc<Runtime>,
    session: Session,
    kept: Kept,
    /// To be decided before anything new.
    again: VecDeque<(Vec<Item>, Patience)>,
    /// Set aside, and first in the next batch.
    aside: Vec<Item>,
    /// The number of the last batch that was tried.
    number: u64,
    /// How often in a row others were in the way.
    contended: u32,
    /// How many were answered since a batch was last taken from the queue.
    answered: usize,
    linger: Linger,
}

/// The thread. Says when it is connected, or why it cannot be.
pub(super) fn run(shared: &Arc<Shared>, steps: Steps, opened: &SyncSender<Result<(), Error>>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = opened.send(Err(Error::Unavailable(error.to_string())));
            return;
        }
    };
    let link = runtime.block_on(first_link(shared));
    let link = match link {
        Ok(link) => link,
        Err(error) => {
            let _ = opened.send(Err(error));
            return;
        }
    };
    let _ = opened.send(Ok(()));
    let mut committer = Committer {
        session: Session::new(Arc::clone(&shared.clock), shared.server.clone()),
        kept: Kept::default(),
        shared: Arc::clone(shared),
        steps,
        runtime: Rc::new(runtime),
        again: VecDeque::new(),
        aside: Vec::new(),
        number: 0,
        contended: 0,
        answered: 0,
        linger: Linger::default(),
    };
    // Whatever happens to this thread, nobody is to wait for it for ever.
    let served = catch_unwind(AssertUnwindSafe(|| serve(&mut committer, link)));
    if let Err(panic) = served {
        let message = panic_message(&*panic);
        tracing::error!(%message, "the thread that commits has stopped");
        shared.queue.close();
        committer.refuse_all(&Error::Unusable(message));
    }
}

/// Commits batch by batch, until the store is closed.
fn serve(committer: &mut Committer, link: Link) {
    let mut link = Some(link);
    while let Some((batch, patience)) = committer.next_batch() {
        let Some(mut connected) = link.take().or_else(|| committer.reconnect()) else {
            answer_all(batch, &Error::Closed);
            break;
        };
        if committer.attempt_both(&mut connected, batch, patience) {
            link = Some(connected);
        }
    }
    if let Some(link) = link {
        let within = committer.shared.flight();
        let goodbye = async { timeout(within, link.close()).await };
        let _ = committer.runtime.block_on(goodbye);
    }
}

async fn first_link(shared: &Shared) -> Result<Link, Error> {
    let within = shared.options.connect_within;
    let connected = timeout(within, async {
        let mut link = open::connect(&shared.connect, shared.keeps).await?;
        let incarnation = shared.incarnation;
        let prepared = open::prepare(&mut link, &shared.options, &shared.begin, incarnation);
        let _ = shared.restored.set(prepared.await?);
        if let Some(server) = &shared.server {
            server.set(open::now_alone(&mut link).await?);
        }
        settle(shared, &mut link).await?;
        Ok(link)
    });
    connected.await.unwrap_or_else(|_| {
        let message = format!("the server has not answered within {within:?}");
        Err(Error::Unavailable(message))
    })
}

/// A connection for commits.
async fn connect(shared: &Shared) -> Result<Link, Error> {
    let mut link = open::connect(&shared.connect, shared.keeps).await?;
    settle(shared, &mut link).await?;
    Ok(link)
}

/// What every transaction on it begins with is said once, if it may be kept on the server.
async fn settle(shared: &Shared, link: &mut Link) -> Result<(), Error> {
    if !shared.keeps {
        return Ok(());
    }
    let said = link.run(&shared.begin.session).await;
    said.map_err(|error| Error::Unavailable(error.to_string()))
}

impl Committer {
    /// The next batch. None when the store is closed and all is answered.
    fn next_batch(&mut self) -> Option<(Vec<Item>, Patience)> {
        loop {
            if let Some(next) = self.again.pop_front() {
                return Some(next);
            }
            if self.aside.is_empty() && self.wait() == Woken::Closed {
                if self.shared.steps.load(Ordering::Acquire) == 0 {
                    return None;
                }
                // A step may come back with a round.
                std::thread::sleep(CLOSING);
                continue;
            }
            let answered = std::mem::take(&mut self.answered);
            self.shared.queue.gather(answered / GATHERED, GATHER);
            let mut batch = std::mem::take(&mut self.aside);
            self.shared.queue.take(&mut batch);
            self.part(batch);
        }
    }

    /// Waits until there is something to do.
    fn wait(&mut self) -> Woken {
        let queue = &self.shared.queue;
        if self.linger.is_worth(self.answered) && queue.linger(MOMENT) {
            self.linger.paid();
            return Woken::Work;
        }
        queue.wait(None)
    }

    /// One transaction. Returns whether the connection is still good.
    fn attempt(&mut self, link: &mut Link, batch: Vec<Item>, patience: Patience) -> bool {
        self.number += 1;
        let tried = catch_unwind(AssertUnwindSafe(|| {
            self.runtime.block_on(transact(
                &self.shared,
                &mut self.session,
                (link, self.number),
                &batch,
                patience,
            ))
        }));
        match tried {
            Ok(Ok(came)) => {
                self.succeed(batch, came);
                true
            }
            Ok(Err((trouble, came))) => {
                self.session.forget();
                self.fail(link, (batch, patience), trouble, came.map(|came| *came))
            }
            Err(panic) => {
                self.session.forget();
                let message = panic_message(&*panic);
                self.find_culprit(batch, &message, TRIES);
                false
            }
        }
    }

    fn succeed(&mut self, batch: Vec<Item>, came: Came) {
        let settled = self.settle(batch, came);
        self.answer(settled);
    }

    /// It is committed: notes what it has written.
    fn settle(&mut self, batch: Vec<Item>, came: Came) -> Settled {
        self.shared.count(&batch);
        self.shared.removals.note(came.removed);
        if let Some(by) = came.by {
            self.kept.keep(came.runs, by, &self.shared.workers());
            self.kept.keep_queues(came.queues, by);
        }
        Settled {
            batch,
            results: came.results,
            hints: came.hints,
        }
    }

    /// Those who asked hear what became of it.
    fn answer(&mut self, settled: Settled) {
        let Settled {
            batch,
            results,
            hints,
        } = settled;
        let mut decided = Vec::with_capacity(batch.len());
        let mut first = Vec::new();
        for (mut item, result) in batch.into_iter().zip(results) {
            if result.is_none() {
                item.misses += 1;
                match parting::stays(&item) {
                    true => first.push(item),
                    false => self.aside.push(item),
                }
                continue;
            }
            item.result = result;
            decided.push(item);
        }
        let idle = decided.is_empty() && first.is_empty();
        for item in first.into_iter().rev() {
            self.again.push_front((vec![item], Patience::Wait));
        }
        self.answered += decided.len();
        deliver(decided);
        self.shared.listeners.hint(&hints);
        self.shared.tell_others(&hints);
        self.contended = if idle { self.contended + 1 } else { 0 };
        if idle {
            self.pause();
        }
    }

    /// Lets those who are in the way finish.
    fn pause(&self) {
        let random = u64::from(self.number as u32).wrapping_mul(0x9E37_79B9) % 1000;
        let most = 1u64 << self.contended.min(5);
        std::thread::sleep(Duration::from_micros(200 + random * most));
    }

    /// Decides what becomes of a batch that was not committed. Returns whether the connection is
    /// still good.
    fn fail(
        &mut self,
        link: &mut Link,
        (batch, patience): (Vec<Item>, Patience),
        trouble: Trouble,
        came: Option<Came>,
    ) -> bool {
        self.shared.counters.retry();
        self.kept.forget_all();
        let good =
            !matches!(trouble, Trouble::Broken(_) | Trouble::Doubt(_)) && self.rolled_back(link);
        match trouble {
            Trouble::Lanes | Trouble::Stale => self.again.push_front((batch, patience)),
            Trouble::Forgotten => match self.make_row_again(link).filter(|_| good) {
                Some(Again::Moved(mark)) => {
                    let message = moving::refusal(&self.shared.options.schema, &mark);
                    answer_all(batch, &Error::Unusable(message));
                }
                Some(Again::Restored) => {
                    let schema = format!("the schema `{}`", self.shared.options.schema);
                    let message = crate::backup::refusal(&schema);
                    answer_all(batch, &Error::Unusable(message));
                }
                made => {
                    self.again.push_front((batch, patience));
                    return made.is_some();
                }
            },
            Trouble::Again(message) | Trouble::Broken(message) => {
                if self.shared.is_too_late(&batch) {
                    answer_all(batch, &Error::Unavailable(message));
                } else {
                    self.again.push_front((batch, patience));
                    self.contended += 1;
                    self.pause();
                }
            }
            Trouble::Passing(message) => answer_all(batch, &Error::Unavailable(message)),
            Trouble::Culprit(message) => self.find_culprit(batch, &message, 0),
            Trouble::Doubt(message) => {
                self.resolve(Doubt {
                    batch,
                    came: came.unwrap_or_default(),
                    message,
                });
            }
        }
        good
    }

    /// Ends the transaction without a trace. A server that does not answer is not waited for.
    fn rolled_back(&self, link: &mut Link) -> bool {
        let ended = self.runtime.block_on(async {
            let rollback = link.run("ROLLBACK");
            timeout(self.shared.flight(), rollback).await
        });
        matches!(ended, Ok(Ok(())))
    }

    /// Makes this process's row anew. None if the connection is no longer good.
    fn make_row_again(&self, link: &mut Link) -> Option<Again> {
        let (begin, incarnation) = (&self.shared.begin, self.shared.incarnation);
        let restored = self.shared.restored.get().copied().flatten();
        let made = self.runtime.block_on(async {
            timeout(
                self.shared.flight(),
                open::note_again(link, begin, (incarnation, restored)),
            )
            .await
        });
        made.ok()?.ok()
    }

    /// Halves the batch until the request that fails stands alone.
    fn find_culprit(&mut self, mut batch: Vec<Item>, message: &str, tried: u8) {
        if batch.len() > 1 {
            let second = batch.split_off(batch.len() / 2);
            self.again.push_front((second, Patience::Skip));
            self.again.push_front((batch, Patience::Skip));
            return;
        }
        let Some(item) = batch.first_mut() else {
            return;
        };
        item.misses = item.misses.saturating_add(1).max(tried);
        if item.misses < TRIES {
            self.again.push_front((batch, Patience::Wait));
            return;
        }
        tracing::error!(%message, "a request cannot be carried out");
        answer_all(batch, &Error::Unusable(message.to_owned()));
    }

    /// Connects again, for as long as it takes. None when the store was closed meanwhile.
    fn reconnect(&mut self) -> Option<Link> {
        loop {
            let connect = connect(&self.shared);
            let connected = self
                .runtime
                .block_on(async { timeout(self.shared.flight(), connect).await });
            let error = match connected {
                Ok(Ok(link)) => return Some(link),
                Ok(Err(error)) => error,
                Err(_) => Error::Unavailable("the server does not answer".into()),
            };
            tracing::warn!(%error, "the database cannot be reached");
            if self.shared.queue.is_closed() {
                self.refuse_all(&error);
                return None;
            }
            self.refuse_late(&error);
            std::thread::sleep(RECONNECT);
        }
    }

    fn refuse_late(&mut self, error: &Error) {
        let within = self.shared.options.answer_within;
        if let Some(before) = Instant::now().checked_sub(within) {
            answer_all(self.shared.queue.take_older(before), error);
        }
        let late = |batch: &Vec<Item>| self.shared.is_too_late(batch);
        let (old, young): (VecDeque<_>, VecDeque<_>) =
            self.again.drain(..).partition(|(batch, _)| late(batch));
        self.again = young;
        for (batch, _) in old {
            answer_all(batch, error);
        }
    }

    fn refuse_all(&mut self, error: &Error) {
        for (batch, _) in self.again.drain(..) {
            answer_all(batch, error);
        }
        answer_all(std::mem::take(&mut self.aside), error);
        answer_all(self.shared.queue.take_older(Instant::now()), error);
    }
}

/// One transaction. With the trouble comes what was decided, if the commit is in doubt.
async fn transact(
    shared: &Shared,
    session: &mut Session,
    (link, number): (&mut Link, u64),
    batch: &[Item],
    patience: Patience,
) -> Result<Came, (Trouble, Option<Box<Came>>)> {
    let written = timeout(shared.flight(), async {
        let begin = if shared.keeps {
            "BEGIN"
        } else {
            &shared.begin.write
        };
        link.run(begin).await?;
        let ops: Vec<&Op> = batch.iter().map(Item::op).collect();
        let note = Some((shared.incarnation, number));
        let mut came = session.run(link, &ops, (patience, note)).await?;
        came.number = number;
        if !came.written {
            link.run("ROLLBACK").await?;
        }
        Ok(came)
    });
    let slow = || Trouble::Broken("the server does not answer".into());
    let written = written.await.unwrap_or_else(|_| Err(slow()));
    let came = written.map_err(|trouble| (trouble, None))?;
    if !came.written {
        return Ok(came);
    }
    let committed = timeout(shared.flight(), link.run("COMMIT")).await;
    match committed {
        Ok(Ok(())) => Ok(came),
        Ok(Err(error)) => Err((Trouble::of_commit(error), Some(Box::new(came)))),
        Err(_) => {
            let message = "the commit was not answered".into();
            Err((Trouble::Doubt(message), Some(Box::new(came))))
        }
    }
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    format!("it panicked: {}", text.unwrap_or_default())
}
