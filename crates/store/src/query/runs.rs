//! Which runs are asked for, and through which rows they are found.

use roundel_core::{Name, RunId, RunState};

use super::LOOK;

/// Which runs.
#[derive(Clone, Debug, PartialEq)]
pub struct RunFilter {
    /// Of which tenant.
    pub namespace: Name,
    /// Of which workflow.
    pub workflow: Option<Name>,
    /// In which state.
    pub state: Option<RunState>,
    /// With which label.
    pub label: Option<(Name, String)>,
    /// Those before this one: where the look before ended.
    pub before: Option<RunId>,
    /// How many at most.
    pub limit: usize,
    /// How many rows are passed at most, whether they fit or not: 1 to [`LOOK`].
    pub look: usize,
}

impl RunFilter {
    /// All of a tenant's, a page of them at a time.
    #[must_use]
    pub fn of(namespace: Name, limit: usize) -> RunFilter {
        RunFilter {
            namespace,
            workflow: None,
            state: None,
            label: None,
            before: None,
            limit,
            look: LOOK,
        }
    }

    /// How many are passed: who is found through a label is two rows.
    pub(crate) fn rows(&self) -> usize {
        match self.way() {
            Way::Label => self.look.div_ceil(2),
            _ => self.look,
        }
    }

    /// Through which rows they are found.
    pub(crate) fn way(&self) -> Way {
        match (&self.label, self.state) {
            (Some(_), _) => Way::Label,
            (None, Some(RunState::Parked)) => Way::Parked,
            (None, Some(RunState::RollbackFailed)) => Way::RollbackFailed,
            (None, _) => Way::All,
        }
    }
}

/// The rows that a look for runs passes: the fewest that an index gives in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Every run of every tenant.
    All,
    /// Those with the label.
    Label,
    /// Those that are parked.
    Parked,
    /// Those whose rollback failed.
    RollbackFailed,
}
