//! Projections: each has passed every fact up to where it is, once, and its documents have taken up
//! as many as it says. What the documents should say, only the code of the projection knows.

use std::collections::BTreeMap;

use super::{Invariant, Violation};
use crate::{Build, DocumentId, DocumentRow, Position, ProjectionId, ProjectionRow};

/// Reads projections, then all facts in order, then all documents, then the projections again: they
/// may move meanwhile.
#[derive(Debug, Default)]
pub struct ProjectionReader {
    before: BTreeMap<(ProjectionId, u32), Build>,
    /// How many facts there are up to where somebody is.
    counts: BTreeMap<Position, u64>,
    passed: u64,
    last: Position,
    /// How many facts documents have taken up.
    folds: BTreeMap<(ProjectionId, u32), u64>,
}

/// Those of its buildings that take facts up by position.
fn following(row: &ProjectionRow) -> impl Iterator<Item = &Build> {
    let live = row.live.as_ref().filter(|live| !live.inline);
    live.into_iter().chain(&row.next)
}

impl ProjectionReader {
    /// A projection, before the facts.
    pub fn begin(&mut self, id: &ProjectionId, row: &ProjectionRow) {
        for build in following(row) {
            self.counts.insert(build.position, 0);
            let key = (id.clone(), build.generation);
            self.before.insert(key, build.clone());
        }
    }

    /// The next fact, in order.
    pub fn fact(&mut self, position: Position) {
        self.passed += 1;
        self.last = position;
        if let Some(count) = self.counts.get_mut(&position) {
            *count = self.passed;
        }
    }

    /// A document, of whatever building.
    pub fn document(&mut self, id: &DocumentId, row: &DocumentRow) {
        let projection = ProjectionId {
            namespace: id.namespace.clone(),
            name: row.projection.clone(),
        };
        *self.folds.entry((projection, id.generation)).or_default() += row.version;
    }

    /// The projection, after facts and documents. Says what should not be.
    pub fn end(&self, id: &ProjectionId, row: &ProjectionRow, out: &mut Vec<Violation>) {
        for build in following(row) {
            let key = (id.clone(), build.generation);
            let Some(before) = self.before.get(&key) else {
                continue;
            };
            let is_read = before.position <= self.last;
            let counted = self.counts.get(&before.position).copied();
            let passed = counted.filter(|_| is_read).unwrap_or(before.facts);
            if passed != before.facts {
                let found = format!("has passed {} facts", before.facts);
                let up_to = before.position;
                out.push(violation(id, &found, format!("{passed}, up to {up_to}")));
            }
            let folds = self.folds.get(&key).copied().unwrap_or_default();
            if before.folds == build.folds && folds != build.folds {
                let found = format!("has folded in {} times", build.folds);
                out.push(violation(
                    id,
                    &found,
                    format!("{folds}, as its documents say"),
                ));
            }
        }
    }
}

fn violation(id: &ProjectionId, found: &str, expected: String) -> Violation {
    Violation {
        invariant: Invariant::Projections,
        run: None,
        found: format!("projection `{}` {found}", id.name),
        expected,
    }
}
