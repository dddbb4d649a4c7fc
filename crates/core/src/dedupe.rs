//! Of several starts that are alike, one is started: the first of a time, or the last once nobody
//! has come for a time. Who is meant is known by a key, which leads to the run that was started
//! last.

use std::time::Duration;

use crate::{KeyId, KeyKind, Name, Rows, RunId, RunRow, Start, Timestamp};

/// What makes starts alike, and for how long.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dedupe {
    /// What they have in common, among those of their workflow or queue.
    pub key: Name,
    /// For this long.
    pub window: Duration,
    /// The last is started, this long after it came, instead of the first.
    pub last: bool,
}

impl Start {
    /// Under which key those that are like it are found.
    pub(crate) fn dedupe_key(&self) -> Option<KeyId> {
        let Dedupe { key, .. } = self.dedupe.as_ref()?;
        let workflow = self.workflow.as_str();
        Some(KeyId {
            namespace: self.namespace.clone(),
            kind: KeyKind::Sender,
            key: format!("dedupe/{}/{workflow}/{key}", workflow.len()),
        })
    }

    /// The run that was started last of those like it, if it is there.
    pub(crate) fn last_alike(&self, rows: &Rows) -> Option<RunId> {
        rows.keys.get(&self.dedupe_key()?)?.run
    }

    /// The run that stands for this start too.
    pub(crate) fn is_like(&self, rows: &Rows, now: Timestamp) -> Option<RunId> {
        let dedupe = self.dedupe.as_ref()?;
        let row = self.last_alike(rows).and_then(|run| rows.run(run))?;
        let is_like = match dedupe.last {
            true => is_waiting(row),
            false => now < row.created_at.after(dedupe.window),
        };
        is_like.then_some(row.id)
    }

    /// When it begins: who waits for others that are like it waits for as long as said.
    pub(crate) fn begins_at(&self, now: Timestamp) -> Option<Timestamp> {
        let quiet = self.dedupe.as_ref().filter(|dedupe| dedupe.last);
        let quiet = quiet.map(|dedupe| now.after(dedupe.window));
        self.at.into_iter().chain(quiet).max()
    }
}

/// Has nobody begun it, in its last execution, nor asked it to end? Who waits for a message has
/// begun, even if its journal does not say so yet.
fn is_waiting(row: &RunRow) -> bool {
    let begun = row.head > 1 || row.waits > 0 || row.owner.is_some();
    !begun && !row.state.has_ended() && !row.goes_ahead()
}
