//! What undoing a run would undo, in order, read from journals: the plan is the one that a rollback
//! follows, so the two cannot differ. Nothing is changed.

use roundel_core::{Entry, Name, RunId, RunState, Scope, UndoMark, decode_entries};
use roundel_store::RunView;

use super::{Borrowed, Client, To};
use crate::Error;
use crate::live::History;

/// So many are listed at most; a tree may be larger.
const MOST: usize = 10_000;

/// What undoing a run would do.
#[derive(Clone, Debug, PartialEq)]
pub struct Preview {
    /// The run.
    pub run: RunView,
    /// It is part of a larger tree, whose rest stays.
    pub partial: bool,
    /// What would be undone, in order. The runs that one call set off are undone at the same time;
    /// here they follow each other.
    pub undos: Vec<WouldUndo>,
    /// There is more than is listed.
    pub more: bool,
}

/// One call that would be undone.
#[derive(Clone, Debug, PartialEq)]
pub struct WouldUndo {
    /// Of which run.
    pub run: RunId,
    /// Of which workflow.
    pub workflow: Name,
    /// How far below the run that is asked about.
    pub depth: u16,
    /// Of which of its executions.
    pub execution: u32,
    /// The call's number.
    pub call: u32,
    /// Its name.
    pub name: Name,
}

impl Client {
    /// What [`Client::undo`] would do to a run and all below it, as it stands now.
    ///
    /// # Errors
    /// When there is no such run.
    pub async fn preview_undo(&self, to: impl Into<To>) -> Result<Preview, Error> {
        let run = self.run(to).await?;
        let mut preview = Preview {
            partial: run.row.parent.is_some(),
            run: run.clone(),
            undos: Vec::new(),
            more: false,
        };
        if run.row.state == RunState::Parked || would_undo(&run) {
            self.clone().preview_of(run, &mut preview).await?;
        }
        Ok(preview)
    }

    /// Adds what undoing one run, and all below it, would do.
    fn preview_of<'a>(
        self,
        run: RunView,
        preview: &'a mut Preview,
    ) -> Borrowed<'a, Result<(), Error>> {
        Box::pin(async move {
            let row = &run.row;
            let (mut history, mut execution) = (History::default(), row.execution);
            let first = self.note(row.id, execution, &mut history).await?;
            // Those before it that are undone with it.
            while first.is_some_and(|first| first < execution) {
                execution -= 1;
                self.note(row.id, execution, &mut history).await?;
            }
            for past in history.plan() {
                if preview.more {
                    return Ok(());
                }
                if let Some(scope) = past.scope {
                    for below in self.runs_of(row.id, scope).await? {
                        if would_undo(&below) {
                            self.clone().preview_of(below, preview).await?;
                        }
                    }
                }
                if past.undo.is_none() {
                    continue;
                }
                if preview.undos.len() >= MOST {
                    preview.more = true;
                    return Ok(());
                }
                preview.undos.push(WouldUndo {
                    run: row.id,
                    workflow: run.lane.workflow.clone(),
                    depth: row.depth - preview.run.row.depth,
                    execution: past.of.0,
                    call: past.of.1,
                    name: past.name,
                });
            }
            Ok(())
        })
    }

    /// Adds one execution to a history. Returns the first before it that is undone with it.
    async fn note(
        &self,
        run: RunId,
        execution: u32,
        history: &mut History,
    ) -> Result<Option<u32>, Error> {
        let mut first = None;
        for round in self.rounds(run, execution).await? {
            let entries = decode_entries(&round.entries);
            let entries = entries.map_err(|error| Error::Value(error.to_string()))?;
            for (number, entry) in (round.first..).zip(&entries) {
                if let Entry::Started { unsettled, .. } = entry {
                    first = *unsettled;
                }
                history.note(entry, number, execution);
            }
        }
        Ok(first)
    }

    /// The runs of a scope, in order.
    async fn runs_of(&self, run: RunId, scope: Scope) -> Result<Vec<RunView>, Error> {
        let (execution, call) = match scope {
            Scope::Child(child) => {
                return match self.run(child).await {
                    Ok(child) => Ok(vec![child]),
                    Err(Error::NoSuchRun(_)) => Ok(Vec::new()),
                    Err(error) => Err(error),
                };
            }
            Scope::Call { execution, call } => (execution, call),
        };
        self.scope(run, (execution, call)).await
    }
}

/// Is there something that a rollback would undo?
fn would_undo(run: &RunView) -> bool {
    run.row.state == RunState::Completed && run.row.undo == UndoMark::Possible
}
