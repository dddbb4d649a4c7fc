//! Undoing what a run did. The walk is itself a function over durable calls, made by the engine
//! from the run's history: so it is recorded, resumed after a crash, retried and fenced as any
//! workflow is. Its calls are numbered on from the last that the journal has.

use std::task::Wake;

use roundel_core::mutant::{self, Mutant};
use roundel_core::{
    Class, Context, Entry, Failure, Outcome, Payload, Remainder, Remaining, RunState, UndoMark,
    Why, limits, undone,
};

use super::history::{History, Past};
use super::{LiveRun, Turn};
use crate::cx::{Cx, UndoHandler, brief};

/// What is to be undone, in this order, and what undoes it.
type Plan = Vec<(Option<UndoHandler>, Past)>;

/// A rollback that is under way.
pub(super) struct Rolling {
    /// It is waited for what the run had set off and not seen the end of.
    started: bool,
}

impl LiveRun {
    /// Its history, with what the draft will add to it.
    pub(super) fn history_with_draft(&self) -> History {
        let mut history = self.history.clone();
        let execution = self.shared.info.execution;
        for (at, entry) in (self.head + 1..).zip(&self.draft.entries) {
            history.note(entry, at, execution);
        }
        history
    }

    /// Has the run done something that must be undone if it ends otherwise than it should?
    pub(super) fn has_something_to_undo(&self) -> bool {
        let earlier = self.earlier.unsettled.is_some();
        earlier || !self.history_with_draft().plan().is_empty()
    }

    /// From now on it undoes what it did.
    pub(super) fn roll_back(&mut self, why: Why) {
        self.close_waits();
        let (was, context) = (None, Context::default());
        self.draft.push(Entry::RollingBack { why, was, context });
        self.draft.undo = Some(UndoMark::Underway);
        self.enter_rollback();
    }

    /// The journal says, or will say with the next round, that the run is rolled back. What the
    /// function still wanted is let go.
    pub(super) fn enter_rollback(&mut self) {
        self.let_go();
        self.shared.lock().begin_rollback();
        self.timers.clear();
        self.steps.clear();
        self.reads.clear();
        self.settles.clear();
        self.returned = None;
        self.cancelling = None;
        self.rolling = Some(Rolling { started: false });
        self.set_deadline();
        self.flag.wake_by_ref();
    }

    /// Is it to be undone, and has all ended that the run had set off?
    pub(super) fn may_start_rollback(&self) -> bool {
        let due = self
            .rolling
            .as_ref()
            .is_some_and(|rolling| !rolling.started);
        due && self.children.is_empty() && self.scopes.is_empty()
    }

    /// Begins the walk.
    ///
    /// # Errors
    /// When something is undone by what is not known here.
    pub(super) fn start_rollback(&mut self) -> Result<(), Failure> {
        if !self.may_start_rollback() {
            return Ok(());
        }
        self.rolling = Some(Rolling { started: true });
        let history = self.history_with_draft();
        let mut plan = history.plan();
        if mutant::on(Mutant::UndoneInForwardOrder) {
            plan.reverse();
        }
        self.shared.lock().number_from(history.last_call);
        let cx = Cx {
            shared: self.shared.clone(),
        };
        let plan = self.with_handlers(&cx, plan)?;
        self.future = Some(Box::pin(walk(cx, plan)));
        self.flag.wake_by_ref();
        Ok(())
    }

    /// The plan, with what undoes each call.
    pub(super) fn with_handlers(&self, cx: &Cx, plan: Vec<Past>) -> Result<Plan, Failure> {
        let named = &self.driver.undos;
        let whole = plan.into_iter().map(|past| {
            let by = past.undo.as_ref().map(|undo| &undo.by);
            let undo = by.map(|by| cx.undo_of((past.of, &past.name), by, named));
            Ok((undo.transpose()?, past))
        });
        whole.collect()
    }

    /// What is left of the plan when the walk ends before its time.
    fn remainder(&self, because: &Failure) -> Remainder {
        let plan = self.history_with_draft().plan();
        Remainder {
            because: brief(because),
            count: plan.len(),
            calls: plan.iter().take(limits::REMAINDER).map(remaining).collect(),
        }
    }

    /// The walk has come to its end.
    pub(super) fn rolled_back(&mut self, result: Result<Payload, Failure>) -> Turn {
        let why = self.history_with_draft().why;
        let cancelled = why == Some(Why::Cancelled);
        let reason = match why {
            Some(Why::Failed(failure)) => *failure,
            Some(Why::Cancelled) => {
                Failure::new(Class::Cancelled, "the run was cancelled").with_code("cancelled")
            }
            _ => undone(),
        };
        match result {
            Ok(_) => {
                let state = match cancelled {
                    true => RunState::Cancelled,
                    false => RunState::RolledBack,
                };
                self.end(state, Outcome::Failure(Box::new(reason)))
            }
            Err(failure) => {
                let message = format!(
                    "what the run did could not be undone: {}; retry it, leave that out, or \
                     accept what remains",
                    failure.message
                );
                let failure = Failure::business(message)
                    .with_code(Remainder::CODE)
                    .with_data(&self.remainder(&reason))
                    .caused_by(failure);
                self.end(
                    RunState::RollbackFailed,
                    Outcome::Failure(Box::new(failure)),
                )
            }
        }
    }
}

fn remaining(past: &Past) -> Remaining {
    let (execution, call) = past.of;
    Remaining {
        execution,
        call,
        name: past.name.clone(),
        own: past.undo.is_some(),
        set_off: past.scope.is_some(),
    }
}

/// Does the entry say that the run undoes what it did because it was asked to end, or is late?
pub(super) fn is_asked_for(entry: &Entry, late: bool) -> bool {
    match entry {
        Entry::RollingBack { why, .. } => late || *why == Why::Cancelled,
        _ => false,
    }
}

/// Newest first: what a call set off, then the call itself.
pub(super) async fn walk(cx: Cx, plan: Plan) -> Result<Payload, Failure> {
    for (handler, past) in plan {
        if let Some(scope) = past.scope {
            cx.roll_back_scope(past.of, scope).await?;
        }
        if let Some((undo, handler)) = past.undo.zip(handler) {
            cx.undo_call((past.of, past.name), undo, handler).await?;
        }
    }
    Ok(Payload::null())
}
