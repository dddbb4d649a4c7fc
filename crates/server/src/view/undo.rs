//! What an undo would do.

use roundel::{Name, Preview, RunId, RunState, WouldUndo};

use crate::shape::output;

output! {
    /// A call that would be undone.
    pub struct Undo {
        /// Of which run.
        run: RunId,
        /// Of which workflow.
        workflow: Name,
        /// The call.
        name: Name,
        /// Of which execution.
        execution: u32,
        /// Its number there.
        call: u32,
        /// How far below the run that is asked about.
        depth: u32,
    }
}

output! {
    /// What an undo would do.
    pub struct UndoPreview {
        /// Of which run.
        run: RunId,
        /// Where it stands: only what completed or is parked can be undone.
        state: RunState,
        /// It is part of a larger tree, whose rest stays.
        partial: bool,
        /// What would be undone, in order.
        undos: Vec<Undo>,
        /// There is more than is listed.
        more: bool,
    }
}

impl From<&WouldUndo> for Undo {
    fn from(undo: &WouldUndo) -> Undo {
        Undo {
            run: undo.run,
            workflow: undo.workflow.clone(),
            name: undo.name.clone(),
            execution: undo.execution,
            call: undo.call,
            depth: undo.depth.into(),
        }
    }
}

impl From<&Preview> for UndoPreview {
    fn from(preview: &Preview) -> UndoPreview {
        UndoPreview {
            run: preview.run.row.id,
            state: preview.run.row.state,
            partial: preview.partial,
            undos: preview.undos.iter().map(Undo::from).collect(),
            more: preview.more,
        }
    }
}
