//! What a run's journal says can be undone, in which order, and what of it has been.
//!
//! Kept beside the run as its journal grows, and built from the journal alone when it is read: so
//! a rollback that needs no code of the workflow can do without it.

use std::collections::{BTreeMap, BTreeSet};

use roundel_core::mutant::{self, Mutant};
use roundel_core::{Call, Entry, Name, Outcome, Payload, Remainder, RunState, Scope, UndoBy, Why};

/// One call, as far as it can be undone.
#[derive(Clone, Debug)]
pub(crate) struct Past {
    pub(crate) of: Of,
    pub(crate) name: Name,
    /// What it set off, if it did.
    pub(crate) scope: Option<Scope>,
    /// How it is undone, if it is.
    pub(crate) undo: Option<Undoable>,
    /// The entry that says that it completed; that it began, if it did not.
    at: u64,
}

/// A step or effect that can be undone.
#[derive(Clone, Debug)]
pub(crate) struct Undoable {
    /// What it came to, if it completed.
    pub(crate) value: Option<Payload>,
    pub(crate) by: UndoBy,
}

/// A call of an execution: these two numbers.
pub(crate) type Of = (u32, u32);

#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    pasts: BTreeMap<Of, Past>,
    /// Which calls undo or roll back which.
    undoing: BTreeMap<Of, (Of, bool)>,
    undone: BTreeSet<Of>,
    rolled_back: BTreeSet<Of>,
    /// The last that failed to be undone, or rolled back.
    failed: Option<(Of, bool)>,
    /// The last execution, and the highest number of a call in it.
    execution: u32,
    pub(crate) last_call: u32,
    /// Where its rollback stands, if it has one: why, and how the run had ended.
    pub(crate) why: Option<Why>,
}

impl History {
    /// Takes the next entry of an execution's journal.
    pub(crate) fn note(&mut self, entry: &Entry, at: u64, execution: u32) {
        let of = |call: &u32| (execution, *call);
        match entry {
            Entry::Begun { call, what } => {
                self.seen(of(call));
                self.begun(of(call), what, at, None);
            }
            Entry::Worked {
                call, what, value, ..
            } => {
                self.seen(of(call));
                let scope = Scope::Call {
                    execution,
                    call: *call,
                };
                self.begun(of(call), what, at, Some(scope));
                self.done(of(call), &Outcome::Value(value.clone()), at);
            }
            Entry::Did {
                call,
                what,
                outcome,
            } => {
                self.seen(of(call));
                let failed = matches!(outcome, Outcome::Failure(_));
                let undone = mutant::on(Mutant::FailedStepUndone);
                if failed && matches!(what, Call::Step { .. }) && !undone {
                    return;
                }
                self.begun(of(call), what, at, None);
                self.done(of(call), outcome, at);
            }
            Entry::Done { call, outcome } => self.done(of(call), outcome, at),
            Entry::Settled { call, ends, .. } => {
                let over = [RunState::Failed, RunState::RolledBack, RunState::Cancelled];
                let nothing = ends.iter().all(|end| over.contains(&end.state));
                if let Some(past) = self.pasts.get_mut(&of(call)) {
                    past.at = at;
                    if nothing && !ends.is_empty() {
                        past.scope = None;
                    }
                }
            }
            Entry::RollingBack { why, .. } => {
                if *why == Why::Skipped {
                    let failed = self.failed.take();
                    self.finished(failed);
                }
                self.why = Some(match (why, self.why.take()) {
                    (Why::Retried | Why::Skipped, Some(first)) => first,
                    (why, _) => why.clone(),
                });
            }
            Entry::Attempted { call, .. } | Entry::Dropped { call } => self.seen(of(call)),
            Entry::Started { .. }
            | Entry::CancelSeen
            | Entry::Kept
            | Entry::DeadlineMissed { .. }
            | Entry::ContextSet { .. }
            | Entry::Continued
            | Entry::Ended { .. } => {}
        }
    }

    fn seen(&mut self, (execution, call): Of) {
        if execution > self.execution {
            (self.execution, self.last_call) = (execution, call);
        } else if execution == self.execution {
            self.last_call = self.last_call.max(call);
        }
    }

    fn begun(&mut self, of: Of, what: &Call, at: u64, set_off: Option<Scope>) {
        let (execution, call) = of;
        let earlier = |of: &u32, its: &Option<u32>| (its.unwrap_or(execution), *of);
        let scope = match what {
            Call::Child { run, .. } => Some(Scope::Child(*run)),
            Call::Children { .. } | Call::Publish { .. } => Some(Scope::Call { execution, call }),
            Call::Undo {
                of: undone,
                execution: its,
                ..
            } => {
                self.undoing.insert(of, (earlier(undone, its), true));
                return;
            }
            Call::RollBack {
                of: undone,
                execution: its,
            } => {
                self.undoing.insert(of, (earlier(undone, its), false));
                return;
            }
            _ => set_off,
        };
        let undo = what.undo().map(|by| Undoable {
            value: None,
            by: by.clone(),
        });
        if scope.is_none() && undo.is_none() {
            return;
        }
        let name = Name::new(what.signature().1.to_owned()).unwrap_or(Name::constant("call"));
        let past = Past {
            of,
            name,
            scope,
            undo,
            at,
        };
        self.pasts.insert(of, past);
    }

    fn done(&mut self, of: Of, outcome: &Outcome, at: u64) {
        if let Some(undoing) = self.undoing.remove(&of) {
            match outcome {
                Outcome::Value(_) => self.finished(Some(undoing)),
                Outcome::Failure(_) => self.failed = Some(undoing),
            }
            return;
        }
        let Some(past) = self.pasts.get_mut(&of) else {
            return;
        };
        past.at = at;
        match outcome {
            Outcome::Value(value) => {
                if let Some(undo) = &mut past.undo {
                    undo.value = Some(value.clone());
                }
            }
            Outcome::Failure(failure) => {
                // A child that failed has undone what it did, unless it says that it could not.
                if failure.code != Remainder::CODE {
                    past.scope = None;
                }
                if failure.did_not_happen {
                    past.undo = None;
                }
            }
        }
    }

    fn finished(&mut self, undoing: Option<(Of, bool)>) {
        match undoing {
            Some((of, true)) => drop(self.undone.insert(of)),
            Some((of, false)) => drop(self.rolled_back.insert(of)),
            None => {}
        }
    }

    /// What is left to be undone, newest first.
    pub(crate) fn plan(&self) -> Vec<Past> {
        let mut plan: Vec<Past> = self
            .pasts
            .values()
            .filter_map(|past| self.left(past))
            .collect();
        plan.sort_by_key(|past| std::cmp::Reverse((past.of.0, past.at)));
        plan
    }

    fn left(&self, past: &Past) -> Option<Past> {
        let mut past = past.clone();
        past.scope = past.scope.filter(|_| !self.rolled_back.contains(&past.of));
        let again = self.why.is_some() && mutant::on(Mutant::FinallyTwice);
        past.undo = past.undo.filter(|undo| {
            !self.undone.contains(&past.of) || (again && undo.by == UndoBy::Finally)
        });
        (past.scope.is_some() || past.undo.is_some()).then_some(past)
    }

    /// Does undoing this execution need the code of the workflow? What has been undone does too:
    /// the walk is replayed over it.
    pub(crate) fn needs_code_of(&self, execution: u32) -> bool {
        let its = self.pasts.range((execution, 0)..=(execution, u32::MAX));
        let mut undos = its.filter_map(|(_, past)| past.undo.as_ref());
        undos.any(|undo| !matches!(undo.by, UndoBy::Named(..)))
    }
}
