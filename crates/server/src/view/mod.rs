//! What is shown of things, to programs: the HTTP API answers with these shapes, and so does the
//! `roundel` command with `--json`.

mod bar;
mod batch;
mod causes;
mod command;
mod counts;
mod fact;
mod parked;
mod queue;
mod retention;
mod run;
mod schedule;
mod table;
pub mod time;
pub mod timeline;
mod topic;
mod tree;
mod undo;
mod waterfall;
pub mod why;

pub use bar::{Bar, Part, Timeline};
pub use batch::{Batch, Member};
pub use causes::{Cause, Stuck, Waiting, follow, reasons};
pub use command::{Attempt, Command, Sent, attempts};
pub use counts::{CanRun, Count, Counts, Worker};
pub use fact::{Audited, Document, Fact};
pub use parked::{Group, Parked};
pub use queue::{Queue, Rate};
pub use retention::{KeptFor, Retention};
pub use run::{Child, Mail, Moment, Run, RunPage, Seen, labels, look};
pub use schedule::{Recent, Schedule, next_of, schedule_state};
pub use table::{cell, csv};
pub use topic::{Publication, Subscriber, Topic};
pub use tree::{Found, Node, Rollback, TreeNode, gather, nodes};
pub use undo::{Undo, UndoPreview};

use roundel::{RunState, RunView};

/// What a text means, for those who see colours.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Style {
    /// Nothing special.
    Plain,
    /// A title.
    Head,
    /// Less important.
    Dim,
    /// As it should be.
    Good,
    /// As it should not be.
    Bad,
    /// Somebody should look.
    Look,
    /// Under way.
    Busy,
}

impl Style {
    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Style::Plain => "plain",
            Style::Head => "head",
            Style::Dim => "dim",
            Style::Good => "good",
            Style::Bad => "bad",
            Style::Look => "look",
            Style::Busy => "busy",
        }
    }
}

/// What a state means to whoever looks.
#[must_use]
pub fn style(state: RunState) -> Style {
    match state {
        RunState::Completed => Style::Good,
        RunState::Failed | RunState::RollbackFailed => Style::Bad,
        RunState::Parked => Style::Look,
        RunState::Running | RunState::RollingBack => Style::Busy,
        RunState::Cancelled | RunState::RolledBack => Style::Dim,
        RunState::Ready | RunState::Waiting => Style::Plain,
    }
}

/// Why a run did not complete.
#[must_use]
pub fn failure(run: &RunView) -> Option<String> {
    match &run.row.outcome {
        Some(roundel_core::Outcome::Failure(failure)) => Some(failure.message.clone()),
        _ => None,
    }
}
