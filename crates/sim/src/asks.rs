//! What is asked of runs that cooperate, by chance.

use std::time::Duration;

use roundel_core::{
    Accept, Cancel, Delete, Join, Name, Op, PublicationId, Publish, Resume, RunState, Undo,
};

use crate::kin::TOPIC;
use crate::world::{NAMESPACE, World};

/// For how long what clients publish may be joined.
const WINDOW: Duration = Duration::from_millis(300);

impl World<'_> {
    /// What is asked of runs that cooperate.
    pub(crate) fn cooperate(&mut self) -> Op {
        let namespace = NAMESPACE;
        match self.random.below(14) {
            0..3 => {
                let target = self.any_run(Some(RunState::Completed));
                Op::Undo(Undo { namespace, target })
            }
            3 => {
                let target = self.any_run(None);
                Op::Undo(Undo { namespace, target })
            }
            4 | 5 => {
                let target = self.any_run(Some(RunState::RollbackFailed));
                let skip = self.random.once_in(2);
                Op::Resume(Resume {
                    namespace,
                    target,
                    skip,
                    anew: None,
                })
            }
            6 => {
                let target = self.any_run(Some(RunState::RollbackFailed));
                Op::Accept(Accept { namespace, target })
            }
            12 | 13 => self.join_something(),
            7 => {
                let workflow = if self.random.once_in(2) {
                    "tree"
                } else {
                    "twig"
                };
                let on = self.random.once_in(2);
                World::subscription(Name::constant(workflow), on)
            }
            8 if self.faults.operators => {
                let (target, force) = (self.any_run(None), true);
                Op::Delete(Delete {
                    namespace,
                    target,
                    force,
                })
            }
            8 | 9 => Op::Publish(Publish {
                namespace,
                id: PublicationId(self.random.id()),
                topic: TOPIC,
                payload: self.plot(),
                deadlines: roundel_core::Deadlines::default(),
                context: roundel_core::Context::default(),
                window: self.random.once_in(2).then_some(WINDOW),
            }),
            _ => {
                let (target, claimant) = (self.any_run(None), None);
                let keep = self.random.once_in(3);
                Op::Cancel(Cancel {
                    namespace,
                    target,
                    keep,
                    claimant,
                })
            }
        }
    }

    /// A workflow that subscribed to nothing wants to join something.
    fn join_something(&mut self) -> Op {
        let known = self.book.kin.pinned.keys();
        let mut known: Vec<PublicationId> = known.copied().collect();
        let publications = &self.model.rows().publications;
        let is_open = |id: &PublicationId| {
            let row = publications.get(id);
            row.is_some_and(|row| row.closes_at.is_some_and(|at| at > self.now))
        };
        // What can still be joined, if there is any.
        if self.random.once_in(2) && known.iter().any(is_open) {
            known.retain(is_open);
        }
        let at = self.random.below(known.len().max(1));
        let none = PublicationId::from_bytes([1; 16]);
        Op::Join(Join {
            namespace: NAMESPACE,
            publication: known.get(at).copied().unwrap_or(none),
            workflow: Name::constant("late"),
        })
    }
}
