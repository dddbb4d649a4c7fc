//! What a workflow wants done in any case. It is recorded when the workflow says so, as something
//! that can be undone: a rollback comes to it in its turn. An execution that ends otherwise does
//! it first, by the same call that a rollback makes; so it is done once.

use std::task::Wake;

use roundel_core::mutant::{self, Mutant};
use roundel_core::{Call, Entry, Failure, UndoBy};

use super::LiveRun;
use super::history::Past;
use crate::cx::Cx;

impl LiveRun {
    /// The function is done: what it wants done in any case takes its place, if there is such.
    ///
    /// # Errors
    /// When that is no longer in the code.
    pub(super) fn start_finally(&mut self) -> Result<bool, Failure> {
        if !self.may_start_finally() || mutant::on(Mutant::FinallySkipped) {
            return Ok(false);
        }
        let history = self.history_with_draft();
        let execution = self.shared.info.execution;
        let in_any_case = |past: &Past| {
            let by = past.undo.as_ref().map(|undo| &undo.by);
            past.of.0 == execution && by == Some(&UndoBy::Finally)
        };
        let plan: Vec<Past> = history.plan().into_iter().filter(in_any_case).collect();
        if plan.is_empty() {
            return Ok(false);
        }
        match self.replay.is_empty() {
            true => self.close_waits(),
            // The journal has closed them.
            false => self.waits.clear(),
        }
        self.timers.clear();
        self.steps.clear();
        self.reads.clear();
        self.settles.clear();
        let anew = self.shared.lock().continue_with.take();
        self.shared.lock().begin_rollback();
        let cx = Cx {
            shared: self.shared.clone(),
        };
        let plan = self.with_handlers(&cx, plan)?;
        let returned = self.returned.take();
        self.future = Some(Box::pin(async move {
            super::rollback::walk(cx.clone(), plan).await?;
            if let Some(returned) = returned {
                return returned;
            }
            cx.shared.lock().continue_with = anew;
            std::future::pending().await
        }));
        self.flag.wake_by_ref();
        Ok(true)
    }

    fn may_start_finally(&self) -> bool {
        let over = self.future.is_none() && self.children.is_empty() && self.scopes.is_empty();
        let over = over && !self.draft.sets_off();
        if !over || self.rolling.is_some() || !self.shared.lock().finally {
            return false;
        }
        let well = matches!(self.returned, Some(Ok(_)));
        let due = well || self.shared.lock().continue_with.is_some();
        due && match self.replay.front() {
            None => true,
            Some((
                Entry::Begun { what, .. } | Entry::Did { what, .. } | Entry::Attempted { what, .. },
                _,
            )) => matches!(what, Call::Undo { .. }),
            Some(_) => false,
        }
    }
}
