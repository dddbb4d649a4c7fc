//! What can be decided over rows that are kept is written first, in one flight that also commits.
//!
//! While the server is at it, what has come meanwhile is decided over what is kept, as if that had
//! succeeded, and made ready to be sent: so neither waits for the other. It goes as soon as the
//! first is answered, and only then do those who asked for the first hear of it. If the first does
//! not hold, what was made ready is thrown away, and decided again behind it.
//!
//! Invariant: one flight at a time, in the order in which it was asked.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use roundel_core::{Op, Rows};
use sqlx::postgres::PgArguments;
use tokio::time::timeout;

use super::{Committer, Settled};
use crate::postgres::batch::Came;
use crate::postgres::kept::{Decided, worker_of};
use crate::postgres::link::Link;
use crate::postgres::locks::Patience;
use crate::postgres::trouble::Trouble;
use crate::postgres::write::lone::{self, Kind, Lone};
use crate::postgres::write::rounds::{self, Guess, Made, Spent, Written};
use crate::queue::{Item, Queue};

/// So many in a row are worth a flight of their own, however large the batch is.
const STRETCH: usize = 64;
/// So many are worth being made ready while others are under way, or half as many as those.
const AHEAD: usize = 32;

/// A batch that was decided over rows that are kept.
struct Guessed {
    batch: Vec<Item>,
    /// What came behind it and is not decided.
    rest: Vec<Item>,
    decided: Decided,
    number: u64,
    /// Until it is sent.
    statement: Option<Statement>,
    /// It is a round of one run that was there, by itself.
    lone: bool,
}

enum Statement {
    Lone(Kind, PgArguments),
    Many(Made),
}

/// How a flight came out, and what is ready to go next.
type Flown = (Result<Written, Trouble>, Option<Guessed>);

impl Committer {
    /// What can be decided over rows that are kept, and then what is left, up to the next stretch
    /// of those. Returns whether the connection is still good.
    pub(super) fn attempt_both(
        &mut self,
        link: &mut Link,
        batch: Vec<Item>,
        patience: Patience,
    ) -> bool {
        let (good, mut batch) = self.attempt_kept(link, batch, patience);
        if batch.is_empty() {
            return good;
        }
        if patience == Patience::Skip {
            let later = batch.split_off(self.up_to_stretch(&batch));
            if !later.is_empty() {
                self.again.push_front((later, patience));
            }
        }
        self.attempt(link, batch, patience)
    }

    /// Writes what can be decided over rows that are kept, up to the first that cannot, and what
    /// comes meanwhile. Returns whether the connection is still good, and what is left.
    fn attempt_kept(
        &mut self,
        link: &mut Link,
        batch: Vec<Item>,
        patience: Patience,
    ) -> (bool, Vec<Item>) {
        let mut guessed = match self.guess(batch, patience) {
            Ok(guessed) => guessed,
            Err(batch) => return (true, batch),
        };
        let mut settled = None;
        loop {
            let (written, next) = self.fly(link, &mut guessed, settled.take());
            self.kept.is_back();
            let (batch, rest, came) = guessed.came();
            match (written, next) {
                (Ok(written), next) => {
                    self.session.set_time(written.at);
                    let by = Some(written.by);
                    let before = self.settle(batch, Came { by, ..came });
                    let Some(next) = next else {
                        self.answer(before);
                        return (true, rest);
                    };
                    settled = Some(before);
                    guessed = next;
                }
                (Err(trouble), next) => {
                    self.undo_guess(next);
                    return self.guessed_wrong(link, (batch, rest, came), trouble);
                }
            }
        }
    }

    /// Decided again behind what it came after.
    fn undo_guess(&mut self, next: Option<Guessed>) {
        let Some(next) = next else { return };
        let mut batch = next.batch;
        batch.extend(next.rest);
        self.again.push_front((batch, Patience::Skip));
    }

    fn guessed_wrong(
        &mut self,
        link: &mut Link,
        (mut batch, rest, came): (Vec<Item>, Vec<Item>, Came),
        trouble: Trouble,
    ) -> (bool, Vec<Item>) {
        self.session.forget();
        if matches!(trouble, Trouble::Stale) {
            self.shared.counters.retry();
            let written = came.runs.iter().map(|run| run.row().id);
            written.for_each(|run| self.kept.forget(run));
            let queues = came.queues.iter().map(|(queue, _)| queue);
            self.kept.leave_queues(queues);
            batch.iter_mut().for_each(|item| item.misses += 1);
            batch.extend(rest);
            return (true, batch);
        }
        // Behind those, if they are to be tried again.
        if !rest.is_empty() {
            self.again.push_front((rest, Patience::Skip));
        }
        let good = self.fail(link, (batch, Patience::Skip), trouble, Some(came));
        (good, Vec::new())
    }

    /// How many of these are to be decided over locked rows, before the next stretch of those that
    /// need not be.
    fn up_to_stretch(&self, batch: &[Item]) -> usize {
        let mut stretch = 0;
        let (lanes, now) = self.session.known();
        // Without lanes nothing is known of any run.
        if lanes.is_empty() || batch.len() <= STRETCH {
            return batch.len();
        }
        let mut rows = Rows::default();
        rows.load_lanes(lanes.to_vec());
        for (at, item) in batch.iter().enumerate().skip(1) {
            let likely = item.misses == 0 && self.kept.is_likely(item.op(), &mut rows, now);
            stretch = if likely { stretch + 1 } else { 0 };
            if stretch == STRETCH {
                return at + 1 - STRETCH;
            }
        }
        batch.len()
    }

    /// Decides what can be decided over rows that are kept, and makes it ready to be sent. Gives
    /// the batch back if that is nothing, or too little to be worth it.
    fn guess(&mut self, mut batch: Vec<Item>, patience: Patience) -> Result<Guessed, Vec<Item>> {
        for run in self.shared.touched().drain(..) {
            self.kept.forget(run);
        }
        let workers = batch.iter().filter_map(|item| worker_of(item.op()));
        self.shared.workers().extend(workers);
        let Some(mut decided) = self.decide_kept(&batch, patience) else {
            return Err(batch);
        };
        let made = self.statement(&mut decided);
        let Ok(Some((statement, lone))) = made else {
            return Err(batch);
        };
        let rest = batch.split_off(decided.replies.len());
        self.number += 1;
        Ok(Guessed {
            batch,
            rest,
            decided,
            number: self.number,
            statement: Some(statement),
            lone,
        })
    }

    /// None if nothing can be decided so, or too little to be worth it.
    fn decide_kept(&self, batch: &[Item], patience: Patience) -> Option<Decided> {
        if !self.shared.keeps || patience == Patience::Wait {
            return None;
        }
        let (lanes, now) = self.session.known();
        // After trouble they are read anew, by whoever locks rows; what is kept is of some lane.
        if lanes.is_empty() {
            return None;
        }
        let fresh = batch.iter().take_while(|item| item.misses == 0);
        let ops: Vec<&Op> = fresh.map(Item::op).collect();
        let decide = AssertUnwindSafe(|| self.kept.decide(&ops, lanes, now));
        // Whose fault a panic was is found out over locked rows.
        let decided = catch_unwind(decide).ok()?;
        // What is left takes a transaction in any case, and a few more cost it little.
        let worth = decided.replies.len() >= STRETCH.min(batch.len());
        (worth && decided.is_simple()).then_some(decided)
    }

    /// The statement that writes it, under the next number. Says also whether it is a round of one
    /// run that was there, by itself.
    fn statement(&self, decided: &mut Decided) -> Result<Option<(Statement, bool)>, Trouble> {
        let changes = &mut decided.changes;
        // Neighbours lie on the same pages; and two who write the same do it in the same order.
        changes.runs.sort_by_key(|change| change.row().id);
        changes.journal.sort_by_key(|row| row.run);
        let lanes = self.session.known().0.len();
        let guess = Guess {
            seen: &|run| self.kept.seen(run),
            lanes: i32::try_from(lanes).unwrap_or(i32::MAX),
            queues: !decided.queues.is_empty(),
        };
        let note = (self.shared.incarnation, self.number + 1);
        let one = decided.replies.len() == 1 && decided.queues.is_empty();
        if let Some(lone) = Lone::of(changes).filter(|_| one) {
            let values = lone.values(note, &guess)?;
            let statement = Statement::Lone(lone.kind, values);
            return Ok(Some((statement, lone.kind != Kind::Born)));
        }
        let rows = (changes.runs.as_slice(), changes.journal.as_slice());
        let made = rounds::guessed(rows, note, &guess)?;
        Ok(made.map(|made| (Statement::Many(made), false)))
    }

    /// Sends it; answers those before it; and makes ready what comes while the server is at it.
    fn fly(&mut self, link: &mut Link, guessed: &mut Guessed, before: Option<Settled>) -> Flown {
        let spent = guessed.decided.queues.iter().map(|(queue, limits)| {
            let seen = self.kept.seen_queue(queue);
            (queue.clone(), limits.spent_until(), seen)
        });
        let spent: Vec<Spent> = spent.collect();
        let statement = guessed.statement.take().expect("it is sent once");
        let (runtime, flight) = (Rc::clone(&self.runtime), self.shared.flight());
        self.kept.is_sent(&mut guessed.decided);
        runtime.block_on(async {
            let mut written = pin!(timeout(flight, statement.write(link, &spent)));
            let begun = poll_fn(|context| Poll::Ready(written.as_mut().poll(context))).await;
            if let Some(before) = before {
                self.answer(before);
            }
            let (come, next) = match begun {
                Poll::Ready(come) => (come, None),
                Poll::Pending => self.meanwhile(written, guessed).await,
            };
            let late = |_| Err(Trouble::Doubt("it was not answered".into()));
            (come.unwrap_or_else(late), next)
        })
    }

    /// Waits for an answer, and makes ready what comes before it if there is enough.
    async fn meanwhile<T>(
        &mut self,
        mut answer: Pin<&mut impl Future<Output = T>>,
        guessed: &Guessed,
    ) -> (T, Option<Guessed>) {
        if !guessed.rest.is_empty() || !self.aside.is_empty() {
            return (answer.await, None);
        }
        let shared = Arc::clone(&self.shared);
        let enough = match self.again.is_empty() {
            true => AHEAD.max(guessed.batch.len() / 2),
            false => 0,
        };
        if let Some(came) = either(answer.as_mut(), &shared.queue, enough).await {
            return (came, None);
        }
        let next = self.guess_next();
        (answer.await, next)
    }

    fn guess_next(&mut self) -> Option<Guessed> {
        if self.again.is_empty() {
            let mut batch = Vec::new();
            self.shared.queue.take(&mut batch);
            self.part(batch);
        }
        let (batch, patience) = self.again.pop_front()?;
        let guessed = self.guess(batch, patience);
        guessed
            .map_err(|batch| self.again.push_front((batch, patience)))
            .ok()
    }
}

/// What is answered first, unless so many have come before.
async fn either<T>(
    mut answer: Pin<&mut impl Future<Output = T>>,
    queue: &Queue,
    enough: usize,
) -> Option<T> {
    poll_fn(|context| {
        if let Poll::Ready(came) = answer.as_mut().poll(context) {
            return Poll::Ready(Some(came));
        }
        queue.poll_many(enough, context).map(|()| None)
    })
    .await
}

impl Statement {
    async fn write(self, link: &mut Link, queues: &[Spent]) -> Result<Written, Trouble> {
        match self {
            Statement::Lone(kind, values) => lone::write(link, kind, values).await,
            Statement::Many(made) => made.guess(link, queues).await,
        }
    }
}

impl Guessed {
    /// What it comes to if it is committed; and the batch, and what came behind it.
    fn came(self) -> (Vec<Item>, Vec<Item>, Came) {
        let Decided {
            replies,
            changes,
            hints,
            queues,
            ..
        } = self.decided;
        let queues = queues.into_iter();
        let came = Came {
            written: true,
            results: replies.into_iter().map(|reply| Some(Ok(reply))).collect(),
            hints,
            runs: changes.runs,
            queues: queues
                .map(|(queue, limits)| (queue, Some(limits)))
                .collect(),
            lone: self.lone,
            number: self.number,
            ..Came::default()
        };
        (self.batch, self.rest, came)
    }
}
