//! What operations need that set several runs off together, and of those.

use super::{Need, Stage, of_wake};
use crate::{
    LatchId, Name, PublicationId, Publish, Round, Rows, RunRow, Scope, Told, subscriber_run,
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
    let latch = |part| LatchId {
        run: parent.run,
        execution,
        call,
        part,
    };
    out.push(Need::Latch(latch(0)));
    if part > 0 {
        out.push(Need::Latch(latch(part)));
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
        (Stage::Rest, Scope::Child(run)) => of_wake(run, by, rows, out),
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
                of_wake(*run, by, rows, out);
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
            let part = |part| LatchId {
                run: by.run,
                execution: by.execution,
                call: by.call,
                part,
            };
            // Which part is lowered later depends on how many there are.
            out.extend((0..=LatchId::PARTS).map(|at| Need::Latch(part(at))));
        }
        _ => {}
    }
}

/// A run that is ended by hand: who waits for its end.
pub(super) fn of_complete(row: &RunRow, stage: Stage, out: &mut Vec<Need>) {
    if stage == Stage::Rest {
        out.extend(row.parent.map(|parent| Need::Run(parent.run)));
        of_latch(row, out);
        if row.watchers > 0 {
            out.push(Need::Watchers(row.id));
        }
        if row.matched > 0 {
            out.push(Need::Inbox(row.id));
        }
    }
}
