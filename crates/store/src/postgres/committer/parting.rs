//! What may share a transaction, and what goes by itself, in its place.
//!
//! Runs that are removed because they ended long ago come in great numbers, among the rounds of
//! those that are at work. They share a transaction of their own, behind rounds that came after
//! them: a round of a run that is leased here, and a run that is new, have nothing to do with them
//! if they need no other row. Whatever else came after them stays behind them: the end of a run
//! may wake the one that is to go, which then has not ended.

use roundel_core::{Op, RunId, Target};

use super::{Committer, MISSES};
use crate::Ask;
use crate::postgres::locks::Patience;
use crate::queue::Item;

impl Committer {
    /// Puts a batch, in parts, behind what is to be decided already.
    pub(super) fn part(&mut self, batch: Vec<Item>) {
        let mut fused = Vec::with_capacity(batch.len());
        let mut removals = Vec::new();
        for item in batch {
            if matches!(&*item.request.ask, Ask::Work(_)) && item.instead.is_none() {
                self.steps.begin(item, self.session.beside());
                continue;
            }
            if self.is_removal(&item) {
                removals.push(item);
                continue;
            }
            let alone = takes_a_tree(item.op()) || item.misses >= MISSES;
            if alone || !removals.is_empty() && !self.may_pass(&item, &removals) {
                self.together(&mut fused);
                self.together(&mut removals);
            }
            if alone {
                self.again.push_back((vec![item], Patience::Wait));
            } else {
                fused.push(item);
            }
        }
        self.together(&mut fused);
        self.together(&mut removals);
    }

    fn together(&mut self, items: &mut Vec<Item>) {
        if !items.is_empty() {
            let items = std::mem::take(items);
            self.again.push_back((items, Patience::Skip));
        }
    }

    /// Is it a tree that has ended, as far as is known here?
    fn is_removal(&self, item: &Item) -> bool {
        let run = removed(item).filter(|_| item.misses == 0);
        run.is_some_and(|run| !self.kept.has(run))
    }

    /// May it come before these, which it followed?
    fn may_pass(&self, item: &Item, removals: &[Item]) -> bool {
        let starts = match item.op() {
            Op::Start(start) => Some(start.run),
            _ => None,
        };
        let again = |start| removals.iter().any(|item| removed(item) == Some(start));
        let lanes = self.session.known().0;
        // Without lanes nothing is known of any run.
        let alone = !lanes.is_empty() && self.kept.stands_alone(item.op(), lanes);
        alone && !starts.is_some_and(again)
    }
}

/// Is it a removal that could not share a transaction? Then it goes alone, before what came after
/// it, which may begin what it was asked to remove.
pub(super) fn stays(item: &Item) -> bool {
    item.misses == 1 && removed(item).is_some()
}

fn removed(item: &Item) -> Option<RunId> {
    match item.op() {
        Op::Delete(delete) if !delete.force => match delete.target {
            Target::Run(run) => Some(run),
            Target::Key(_) => None,
        },
        _ => None,
    }
}

/// A tree is locked whole: its runs are found one below the other, and waited for.
fn takes_a_tree(op: &Op) -> bool {
    match op.asked() {
        Op::Delete(_) | Op::Complete(_) => true,
        Op::Resume(resume) => resume.anew.is_some(),
        _ => false,
    }
}
