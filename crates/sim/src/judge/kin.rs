//! The judgement on runs that belong together.

use std::collections::BTreeMap;

use roundel_core::{
    Deadline, Name, Outcome, PublicationId, Rows, RunId, RunRow, RunState, UndoMark,
};
use roundel_store::Model;

use crate::book::Book;
use crate::kin::is_settled;
use crate::site::{Site, Way};
use crate::trees;

/// Workflows whose runs write and undo what is in the ledger.
const TREES: [&str; 4] = ["tree", "twig", "late", "scene"];

impl Book {
    /// Runs that belong together, when all is at rest.
    pub(crate) fn judge_kin(&mut self, model: &Model, site: &Site) {
        let rows = model.rows();
        let cooperates = |row: &RunRow| TREES.contains(&rows.lane(row.lane).workflow.as_str());
        if self.kin.pinned.is_empty() && !rows.runs().any(cooperates) {
            return;
        }
        self.judge_publications(rows);
        let mut lines: BTreeMap<RunId, Lines> = BTreeMap::new();
        for ((run, execution, name, way), wrote) in &site.ledger {
            let lines = lines.entry(*run).or_default();
            match way {
                Way::Done if is_settled(*run, *execution, rows, site) => {}
                Way::Done => lines.done.push((wrote.at, (*execution, name))),
                Way::Undone => lines.undone.push((wrote.at, (*execution, name))),
                Way::Finally => {}
            }
        }
        for lines in lines.values_mut() {
            lines.done.sort_unstable();
            lines.undone.sort_unstable();
        }
        for row in rows.runs() {
            if cooperates(row) {
                self.judge_tree(row, (rows, site), &lines);
            }
        }
    }

    /// One run for each workflow that subscribed when it was published.
    fn judge_publications(&mut self, rows: &Rows) {
        let mut heard: BTreeMap<PublicationId, Vec<Name>> = BTreeMap::new();
        for row in rows.runs() {
            if let Some(id) = row.publication {
                let workflow = rows.lane(row.lane).workflow.clone();
                heard.entry(id).or_default().push(workflow);
            }
        }
        for (id, pinned) in std::mem::take(&mut self.kin.pinned) {
            let mut heard = heard.remove(&id).unwrap_or_default();
            heard.sort();
            let missing = pinned.iter().filter(|name| {
                let run = roundel_core::subscriber_run(id, name);
                !heard.contains(name) && !self.deleted.contains(&run)
            });
            let missing: Vec<&Name> = missing.collect();
            let others = heard.iter().any(|name| !pinned.contains(name));
            let twice = heard.windows(2).any(|pair| pair[0] == pair[1]);
            if !missing.is_empty() || others || twice {
                let found = format!("d1_one_run: {id} is heard by {heard:?}, not {pinned:?}");
                self.complain(&found);
            }
        }
        if let Some((id, _)) = heard.first_key_value() {
            self.complain(&format!("d1_one_run: nobody published {id}"));
        }
    }

    /// Who was set off has no more time than who set it off; who completed was in time.
    fn judge_deadlines(&mut self, row: &RunRow, rows: &Rows) {
        let run = row.id;
        let above = row.parent.and_then(|parent| rows.run(parent.run));
        let due = |row: &RunRow| row.deadlines.forward.map(|due| due.at);
        let lifted = self.kin.lifted.contains(&run);
        if lifted && due(row).is_some_and(|due| due <= row.changed_at) {
            let found = format!("co_24: {run} may go on however late it is, and has a deadline");
            self.complain(&found);
        }
        if let Some(above) = above.and_then(due)
            && due(row).is_none_or(|own| own > above)
            && !lifted
        {
            self.complain(&format!("sc_43: {run} has more time than its parent"));
        }
        let late = due(row).is_some_and(|due| due <= row.changed_at);
        if row.state == RunState::Completed && late {
            self.complain(&format!("sc_43: {run} completed after its deadline"));
        }
    }

    /// What could not be undone waits for an operator until one accepts it.
    fn judge_remainder(&mut self, row: &RunRow) {
        let accepted = self.kin.accepted.contains(&row.id);
        let sound = match row.undo {
            UndoMark::Possible => !accepted,
            UndoMark::Accepted => accepted,
            _ => false,
        };
        if row.state == RunState::RollbackFailed && !sound {
            let (run, undo) = (row.id, row.undo);
            let found = format!("sc_24: {run} could not be undone, and that is {undo:?}");
            self.complain(&found);
        }
    }

    fn judge_tree(
        &mut self,
        row: &RunRow,
        (rows, site): (&Rows, &Site),
        lines: &BTreeMap<RunId, Lines>,
    ) {
        let (run, state, none) = (row.id, row.state, Lines::default());
        let its = lines.get(&run).unwrap_or(&none);
        let done = its.done.iter().rev().map(|(_, what)| *what);
        let done: Vec<What> = done.filter(|(_, name)| trees::is_undoable(name)).collect();
        let undone: Vec<What> = its.undone.iter().map(|(_, what)| *what).collect();
        let left_out = self.kin.left_out.contains(&run);
        let mut rest = done.iter();
        let in_order = undone.iter().all(|what| rest.any(|done| done == what));
        if !in_order {
            let found = format!("inv8_rollback_order: {run} did {done:?}, undid {undone:?}");
            self.complain(&found);
        }
        let all = undone.len() == done.len() || left_out;
        let kept = row.undo == UndoMark::Kept;
        let sound = match state {
            _ if kept => undone.is_empty(),
            RunState::Completed => undone.is_empty(),
            RunState::Failed => done.is_empty(),
            RunState::RolledBack | RunState::Cancelled => all,
            RunState::RollbackFailed => left_out || done.starts_with(&undone),
            _ => true,
        };
        if !sound {
            let state = state.as_str();
            let found =
                format!("inv9_rollback_complete: {run} is {state}, did {done:?}, undid {undone:?}");
            self.complain(&found);
        }
        let below = rows.runs();
        let its_own = |child: &&RunRow| {
            let parent = child.parent.filter(|parent| parent.run == run);
            parent.is_some_and(|parent| !is_settled(run, parent.execution, rows, site))
        };
        for child in below.filter(its_own) {
            let rolled_back = [RunState::RolledBack, RunState::Cancelled].contains(&state);
            let open = child.state == RunState::Completed
                || (child.state == RunState::RollbackFailed && child.undo == UndoMark::Possible);
            if rolled_back && open && !left_out && !kept {
                let found = format!(
                    "inv9_rollback_complete: {run} is {}, {} below it is {}",
                    state.as_str(),
                    child.id,
                    child.state.as_str()
                );
                self.complain(&found);
            }
            let theirs = lines.get(&child.id).unwrap_or(&none);
            if !left_out && !self.kin.alone.contains(&child.id) {
                self.judge_order(run, its, theirs);
            }
        }
        self.judge_reason(row);
        self.judge_deadlines(row, rows);
        self.judge_remainder(row);
    }

    /// What a child did is undone before what its parent had done before it.
    fn judge_order(&mut self, run: RunId, its: &Lines, theirs: &Lines) {
        let Some((first, _)) = theirs.done.first() else {
            return;
        };
        let Some((last, _)) = theirs.undone.last() else {
            return;
        };
        for (at, what) in &its.undone {
            let mut done = its.done.iter();
            let before = done.any(|(done, of)| of == what && done < first);
            if before && at < last {
                let found = format!(
                    "inv8_rollback_order: {run} undid {what:?} before what it had set off after it"
                );
                self.complain(&found);
            }
        }
    }

    /// What a run failed with is what somebody said, never the machine's trouble.
    fn judge_reason(&mut self, row: &RunRow) {
        let Some(Outcome::Failure(failure)) = &row.outcome else {
            return;
        };
        let reasons = [
            "cancelled",
            "undone",
            "child_failed",
            "rollback_failed",
            "panic",
            Deadline::CODE,
        ];
        let said = reasons.contains(&failure.code.as_str())
            || [crate::site::NO, crate::site::FAILED].contains(&failure.message.as_str())
            || failure.code == "deleted";
        let mut root = &**failure;
        while let Some(cause) = &root.cause {
            root = cause;
        }
        // What undoes fails where the schedule says so, or comes too late.
        let undo = failure.code == "rollback_failed";
        let below = root.code == "rollback_failed" && !std::ptr::eq(root, &raw const **failure);
        let known = ["panic", "deleted", Deadline::CODE].contains(&root.code.as_str())
            || below
            || [crate::site::NO, crate::site::NOT_UNDONE].contains(&root.message.as_str());
        if undo && !known {
            let (run, why) = (row.id, format!("{} {}", root.code, root.message));
            self.complain(&format!(
                "sc_30: {run} was not undone, and nobody said {why}"
            ));
        }
        let given_up = self.kin.given_up.contains(&row.id);
        if !said && row.state.has_ended() && !given_up {
            let (run, why) = (row.id, format!("{} {}", failure.code, failure.message));
            self.complain(&format!("sc_30: {run} failed, and nobody said {why}"));
        }
    }
}

/// What a run wrote, in order.
#[derive(Debug, Default)]
struct Lines {
    done: Vec<(u64, What)>,
    undone: Vec<(u64, What)>,
}

/// Which step of which execution.
type What = (u32, &'static str);
