//! What operations need that set several runs off together, and of those.

use super::leftovers::of_leftovers;
use super::{Need, Stage, of_target, of_wake};
use crate::decide::{is_batch, target_run};
use crate::{
    Caused, Claimant, Delete, LatchId, Name, Parent, PublicationId, Publish, Round, Rows, RunId,
    RunRow, RunState, Scope, Told, limits, subscriber_run,
};

/// The latch that a run lowers when it ends.
pub(super) fn of_latch(row: &RunRow, out: &mut Vec<Need>) {
    let (
        Some(parent),
        Told::Latch {
            execution,
            call,
            part,
        },
    ) = (row.parent, row.told)
    else {
        return;
    };
    let by = Parent {
        run: parent.run,
        execution,
        call,
    };
    out.push(Need::Latch(LatchId::of(by, 0)));
    if part > 0 {
        out.push(Need::Latch(LatchId::of(by, part)));
    }
}

pub(super) fn of_publish(publish: &Publish, rows: &Rows, stage: Stage, out: &mut Vec<Need>) {
    match stage {
        Stage::Keys => {
            out.push(Need::Publication(publish.id));
            let (namespace, topic) = (publish.namespace.clone(), publish.topic.clone());
            out.push(Need::Subscribers(namespace, topic));
        }
        Stage::Runs => {
            let workflows = rows.subscribers_of(&publish.namespace, &publish.topic);
            let runs = workflows.map(|workflow| subscriber_run(publish.id, workflow));
            out.extend(runs.map(Need::Run));
        }
        Stage::Gates | Stage::Rest | Stage::Found => {}
    }
}

/// What is rolled back or cancelled with a call.
pub(super) fn of_scope(
    round: &Round,
    scope: Scope,
    rows: &Rows,
    stage: Stage,
    out: &mut Vec<Need>,
) {
    let by = Some(round.claimant());
    match (stage, scope) {
        (Stage::Runs, Scope::Child(run)) => out.push(Need::Run(run)),
        (Stage::Rest, Scope::Child(run)) => of_mark(run, by, rows, out),
        (Stage::Runs, Scope::Call { execution, call }) => {
            out.push(Need::Scope(round.run, execution, call));
        }
        (Stage::Rest, Scope::Call { execution, call }) => {
            out.push(Need::Latch(LatchId {
                run: round.run,
                execution,
                call,
                part: 0,
            }));
            let runs = rows.scopes.get(&(round.run, execution, call));
            for run in runs.into_iter().flatten() {
                of_mark(*run, by, rows, out);
            }
        }
        _ => {}
    }
}

pub(super) fn of_join(
    (publication, workflow): (PublicationId, &Name),
    rows: &Rows,
    stage: Stage,
    out: &mut Vec<Need>,
) {
    if stage == Stage::Keys {
        out.push(Need::Publication(publication));
    }
    let by = rows.publications.get(&publication).map(|row| row.by);
    match (stage, by) {
        (Stage::Runs, Some(by)) => {
            out.push(Need::Run(subscriber_run(publication, workflow)));
            out.extend(by.map(|by| Need::Run(by.run)));
        }
        (Stage::Rest, Some(Some(by))) => {
            // Which part is lowered later depends on how many there are.
            out.extend((0..=LatchId::PARTS).map(|part| Need::Latch(LatchId::of(by, part))));
        }
        _ => {}
    }
}

/// A run that is asked to end: woken, or ended at once if nobody has begun it.
pub(super) fn of_mark(run: RunId, by: Option<Claimant>, rows: &Rows, out: &mut Vec<Need>) {
    let Some(row) = rows.run(run) else { return };
    if is_unbegun(row) {
        of_end(row, out);
    }
    of_wake(run, by, rows, out);
}

/// May it well be one that nobody has begun?
fn is_unbegun(row: &RunRow) -> bool {
    row.head <= 1 && row.execution == 1 && !row.state.has_ended()
}

/// What a round asks to end, as far as that may end at once.
pub(super) fn asked_to_end(round: &Round, rows: &Rows) -> Vec<RunId> {
    let mut found = Vec::new();
    for caused in &round.caused {
        match caused {
            Caused::Cancel(Scope::Child(run)) | Caused::RollBack(_, Scope::Child(run), _) => {
                found.push(*run);
            }
            Caused::Cancel(Scope::Call { execution, call })
            | Caused::RollBack(_, Scope::Call { execution, call }, _) => {
                let runs = rows.scopes.get(&(round.run, *execution, *call));
                found.extend(runs.into_iter().flatten());
            }
            _ => {}
        }
    }
    found.retain(|run| rows.run(*run).is_some_and(is_unbegun));
    found
}

/// Who waits for a run's end, and what it did not read.
pub(super) fn of_end(row: &RunRow, out: &mut Vec<Need>) {
    if row.mail > 0 {
        out.push(Need::Unread(row.id));
    }
    out.extend(row.parent.map(|parent| Need::Run(parent.run)));
    of_latch(row, out);
    if row.watchers > 0 {
        out.push(Need::Watchers(row.id));
    }
    if row.matched > 0 {
        out.push(Need::Inbox(row.id));
    }
}

/// The batch that a run is a command of.
pub(super) fn batch_of<'r>(row: &RunRow, rows: &'r Rows) -> Option<&'r RunRow> {
    let above = row.parent.and_then(|parent| rows.run(parent.run));
    above.filter(|above| is_batch(rows, above))
}

/// A command that ends may be the last of its batch: who waits for the end of that.
pub(super) fn of_batch(run: RunId, rows: &Rows, out: &mut Vec<Need>) {
    if let Some(batch) = rows.run(run).and_then(|row| batch_of(row, rows)) {
        of_end(batch, out);
    }
}

/// A run that is ended by hand: who waits for its end.
pub(super) fn of_complete(row: &RunRow, rows: &Rows, stage: Stage, out: &mut Vec<Need>) {
    if stage == Stage::Found {
        of_leftovers([row.id].into_iter(), 0, rows, out);
        of_batch(row.id, rows, out);
    }
    if stage == Stage::Rest {
        of_end(row, out);
        if row.state == RunState::Parked {
            out.push(Need::Subtree(row.id, limits::DELETE + 1));
        }
    }
}

/// A run and all below it go.
pub(super) fn of_delete(delete: &Delete, rows: &Rows, stage: Stage, out: &mut Vec<Need>) {
    of_target(&delete.namespace, &delete.target, rows, stage, out);
    let Some(run) = target_run(rows, &delete.namespace, &delete.target) else {
        return;
    };
    if stage == Stage::Rest {
        let row = rows.run(run).expect("the target was loaded");
        out.push(Need::Run(row.root));
        out.extend(row.parent.map(|parent| Need::Run(parent.run)));
        out.push(Need::Subtree(run, limits::DELETE + 1));
    }
    if stage == Stage::Found {
        let found = || rows.found.iter().filter_map(|id| rows.run(*id));
        let waits = found().map(|run| run.waits as usize).sum();
        for run in found() {
            if run.waits > 0 {
                out.push(Need::AllWaits(run.id, waits));
            }
            if run.waits > 0 && run.matched > 0 {
                out.push(Need::Inbox(run.id));
            }
            if run.watchers > 0 {
                out.push(Need::Watchers(run.id));
            }
        }
        if let Some(row) = rows.run(run) {
            of_latch(row, out);
        }
        of_batch(run, rows, out);
    }
}
