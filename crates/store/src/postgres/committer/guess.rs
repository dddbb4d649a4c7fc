//! What can be decided over rows that are kept is written first, in one flight that also commits.

use std::panic::{AssertUnwindSafe, catch_unwind};

use roundel_core::{Op, QueueId};
use tokio::time::timeout;

use super::Committer;
use crate::postgres::batch::Came;
use crate::postgres::kept::{Decided, Limits, worker_of};
use crate::postgres::link::Link;
use crate::postgres::locks::Patience;
use crate::postgres::trouble::Trouble;
use crate::postgres::write::lone::{Kind, Lone};
use crate::postgres::write::rounds::{self, Guess, Written};
use crate::queue::Item;

/// So many in a row are worth a flight of their own, however large the batch is.
const STRETCH: usize = 64;

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

    /// Writes what can be decided over rows that are kept, up to the first that cannot. Returns
    /// whether the connection is still good, and what is left.
    fn attempt_kept(
        &mut self,
        link: &mut Link,
        mut batch: Vec<Item>,
        patience: Patience,
    ) -> (bool, Vec<Item>) {
        for run in self.shared.touched().drain(..) {
            self.kept.forget(run);
        }
        let workers = batch.iter().filter_map(|item| worker_of(item.op()));
        self.shared.workers().extend(workers);
        let Some(mut decided) = self.decide_kept(&batch, patience) else {
            return (true, batch);
        };
        let (lone, written) = self.write_kept(link, &mut decided);
        let rest = batch.split_off(decided.replies.len());
        let replies = decided.replies.into_iter();
        let mut came = Came {
            written: true,
            results: replies.map(|reply| Some(Ok(reply))).collect(),
            hints: decided.hints,
            runs: decided.changes.runs,
            queues: decided
                .queues
                .into_iter()
                .map(|(queue, limits)| (queue, Some(limits)))
                .collect(),
            lone,
            ..Came::default()
        };
        match written {
            Ok(written) => {
                if let Some(written) = written {
                    self.session.set_time(written.at);
                    came.by = Some(written.by);
                }
                self.succeed(batch, came);
                (true, rest)
            }
            Err(Trouble::Stale) => {
                self.shared.counters.retry();
                self.session.forget();
                let written = came.runs.iter().map(|run| run.row().id);
                written.for_each(|run| self.kept.forget(run));
                self.kept
                    .leave_queues(came.queues.iter().map(|(queue, _)| queue));
                batch.iter_mut().for_each(|item| item.misses += 1);
                batch.extend(rest);
                (true, batch)
            }
            Err(trouble) => {
                self.session.forget();
                // Behind those, if they are to be tried again.
                if !rest.is_empty() {
                    self.again.push_front((rest, patience));
                }
                let good = self.fail(link, (batch, patience), trouble, Some(came));
                (good, Vec::new())
            }
        }
    }

    /// How many of these are to be decided over locked rows, before the next stretch of those that
    /// need not be.
    fn up_to_stretch(&self, batch: &[Item]) -> usize {
        let mut stretch = 0;
        let lanes = self.session.known().0;
        for (at, item) in batch.iter().enumerate().skip(1) {
            let likely = item.misses == 0 && self.kept.is_likely(item.op(), lanes);
            stretch = if likely { stretch + 1 } else { 0 };
            if stretch == STRETCH {
                return at + 1 - STRETCH;
            }
        }
        batch.len()
    }

    /// None if nothing can be decided so, or too little to be worth it.
    fn decide_kept(&mut self, batch: &[Item], patience: Patience) -> Option<Decided> {
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

    /// Says also whether it was a round of one run that was there, by itself.
    fn write_kept(
        &mut self,
        link: &mut Link,
        decided: &mut Decided,
    ) -> (bool, Result<Option<Written>, Trouble>) {
        self.number += 1;
        let changes = &mut decided.changes;
        // Neighbours lie on the same pages; and two who write the same do it in the same order.
        changes.runs.sort_by_key(|change| change.row().id);
        changes.journal.sort_by_key(|row| row.run);
        let lanes = self.session.known().0.len();
        let spent = |(queue, limits): &(QueueId, Limits)| {
            let seen = self.kept.seen_queue(queue);
            (queue.clone(), limits.spent_until(), seen)
        };
        let guess = Guess {
            seen: &|run| self.kept.seen(run),
            lanes: i32::try_from(lanes).unwrap_or(i32::MAX),
            queues: decided.queues.iter().map(spent).collect(),
        };
        let note = (self.shared.incarnation, self.number);
        let one = decided.replies.len() == 1 && decided.queues.is_empty();
        let lone = Lone::of(changes).filter(|_| one);
        let flight = self.shared.flight();
        let answered = self.runtime.block_on(async {
            let written = async {
                if let Some(lone) = &lone {
                    return lone.write(link, note, &guess).await.map(Some);
                }
                let rows = (changes.runs.as_slice(), changes.journal.as_slice());
                rounds::all(link, rows, (Some(note), Some(&guess))).await
            };
            timeout(flight, written).await
        });
        let late = |_| Err(Trouble::Doubt("it was not answered".into()));
        let was_there = lone.is_some_and(|lone| lone.kind != Kind::Born);
        (was_there, answered.unwrap_or_else(late))
    }
}
