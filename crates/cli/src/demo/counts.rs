//! What happened, counted in the journals.

use std::collections::BTreeMap;

use roundel::{Client, Entry, Error, RunState};
use roundel_core::{Call, Outcome};
use serde::Serialize;

use super::folder::OWN;

/// Counts of what the runs did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Counts {
    /// Runs in all.
    pub(super) runs: u32,
    /// Of these, those that completed.
    pub(super) completed: u32,
    /// And those that failed or rolled back, which leave nothing.
    pub(super) given_up: u32,
    /// Steps that committed.
    pub(super) steps: u32,
    /// Effects that ended.
    pub(super) effects: u32,
    /// Attempts of effects that failed and were followed by another.
    pub(super) retries: u32,
    /// Pauses.
    pub(super) sleeps: u32,
    /// Signals that a run waited for and got.
    pub(super) signals: u32,
    /// Waits for a signal whose time was up.
    pub(super) timeouts: u32,
    /// Publications.
    pub(super) publications: u32,
    /// Runs that were set off by others.
    pub(super) children: u32,
    /// Steps and effects that were undone.
    pub(super) undone: u32,
    /// Runs that undid what they had done.
    pub(super) rolled_back: u32,
}

/// Reads all journals.
pub(super) async fn count(client: &Client) -> Result<Counts, Error> {
    let mut counts = Counts::default();
    let mut list = client.runs().limit(1000);
    loop {
        let page = list.fetch().await?;
        for run in &page.items {
            if run.lane.workflow.as_str().starts_with(OWN) {
                continue;
            }
            counts.runs += 1;
            let state = run.row.state;
            let given_up = [RunState::Failed, RunState::RolledBack].contains(&state);
            counts.completed += u32::from(state == RunState::Completed);
            counts.given_up += u32::from(given_up);
            counts.children += u32::from(run.row.parent.is_some());
            counts.rolled_back += u32::from(state == RunState::RolledBack);
            counts.add(&client.journal(run.row.id).await?);
        }
        match page.items.last() {
            Some(last) if page.more => list = list.after(last.row.id),
            _ => return Ok(counts),
        }
    }
}

impl Counts {
    fn add(&mut self, journal: &[Entry]) {
        let mut outcomes = BTreeMap::new();
        for entry in journal {
            if let Entry::Did { call, outcome, .. } | Entry::Done { call, outcome } = entry {
                outcomes.insert(*call, outcome);
            }
        }
        for entry in journal {
            let (call, what) = match entry {
                Entry::Begun { call, what } | Entry::Did { call, what, .. } => (call, what),
                Entry::Attempted { what, .. } => {
                    self.retries += u32::from(matches!(what, Call::Effect { .. }));
                    continue;
                }
                _ => continue,
            };
            let failure = match outcomes.get(call) {
                Some(Outcome::Failure(failure)) => Some(failure),
                _ => None,
            };
            match what {
                Call::Step { .. } => self.steps += 1,
                Call::Effect { .. } => self.effects += 1,
                Call::Sleep { .. } => self.sleeps += 1,
                Call::Publish { .. } => self.publications += 1,
                Call::Undo { .. } => self.undone += u32::from(failure.is_none()),
                Call::Wait { .. } => match failure {
                    None => self.signals += 1,
                    Some(failure) => self.timeouts += u32::from(failure.code == "timed_out"),
                },
                _ => {}
            }
        }
    }
}
