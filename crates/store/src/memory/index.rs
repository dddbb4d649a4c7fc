//! What a database keeps indexes for: which runs are due, whose leases end when, who is below whom.
//! Maintained from what each operation changed.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use roundel_core::{LaneId, RunId, RunRow, Timestamp, limits};

use crate::turns::Turns;

/// The place of a run among those of its lane: suspects after all others.
type Ready = (bool, i32, Timestamp, RunId);

/// Parent, execution, call, number.
type InScope = (RunId, u32, u32, u32, RunId);

/// The indexes over all runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    /// By lane; lanes are small numbers.
    ready: Vec<BTreeSet<Ready>>,
    leases: BTreeSet<(Timestamp, RunId)>,
    children: BTreeSet<(RunId, RunId)>,
    scopes: BTreeSet<InScope>,
    known: BTreeMap<RunId, Known>,
    turns: Turns,
}

/// What the indexes hold for a run.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Known {
    lane: LaneId,
    ready: Option<Ready>,
    lease: Option<Timestamp>,
    parent: Option<RunId>,
    scope: Option<InScope>,
}

impl Known {
    fn of(row: &RunRow) -> Known {
        let ready = row
            .ready_at
            .map(|at| (row.suspect, row.priority, at, row.id));
        Known {
            lane: row.lane,
            ready,
            lease: row.lease_until,
            parent: row.parent.map(|parent| parent.run),
            scope: row.parent.zip(row.number).map(|(parent, number)| {
                (parent.run, parent.execution, parent.call, number, row.id)
            }),
        }
    }
}

/// What a search for due runs found.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Due {
    /// In the order in which they are to be taken.
    pub(super) runs: Vec<RunId>,
    /// When the next one is due.
    pub(super) next: Option<Timestamp>,
}

impl Index {
    /// A run is now as its row says, or gone.
    pub(super) fn note(&mut self, run: RunId, row: Option<&RunRow>) {
        let now = row.map(Known::of);
        let before = match now {
            Some(now) => self.known.insert(run, now),
            None => self.known.remove(&run),
        };
        if before == now {
            return;
        }
        if let Some(before) = before {
            self.unlist(run, before);
        }
        if let Some(now) = now {
            self.list(run, now);
        }
    }

    fn list(&mut self, run: RunId, now: Known) {
        if let Some(ready) = now.ready {
            let lane = now.lane.0 as usize;
            if self.ready.len() <= lane {
                self.ready.resize_with(lane + 1, BTreeSet::new);
            }
            self.ready[lane].insert(ready);
        }
        self.leases.extend(now.lease.map(|end| (end, run)));
        self.children.extend(now.parent.map(|parent| (parent, run)));
        self.scopes.extend(now.scope);
    }

    fn unlist(&mut self, run: RunId, before: Known) {
        if let Some(ready) = before.ready {
            self.ready[before.lane.0 as usize].remove(&ready);
        }
        if let Some(end) = before.lease {
            self.leases.remove(&(end, run));
        }
        if let Some(parent) = before.parent {
            self.children.remove(&(parent, run));
        }
        if let Some(scope) = before.scope {
            self.scopes.remove(&scope);
        }
    }

    /// All runs, by id.
    pub(super) fn runs(&self) -> impl DoubleEndedIterator<Item = RunId> {
        self.known.keys().copied()
    }

    /// The runs before this one, newest first.
    pub(super) fn runs_before(&self, before: Option<RunId>) -> impl Iterator<Item = RunId> {
        let end = RunId::from_bytes([0xFF; 16]);
        let known = self.known.range(..=before.unwrap_or(end)).rev();
        known
            .map(|(run, _)| *run)
            .filter(move |run| Some(*run) != before)
    }

    /// The runs directly below, oldest first, after that one.
    pub(super) fn children(&self, run: RunId, after: Option<RunId>) -> impl Iterator<Item = RunId> {
        let (first, last) = (RunId::from_bytes([0; 16]), RunId::from_bytes([0xFF; 16]));
        let below = self
            .children
            .range((run, after.unwrap_or(first))..=(run, last));
        below
            .map(|(_, child)| *child)
            .filter(move |child| Some(*child) != after)
    }

    /// The runs that one call set off together, in order, from a number on.
    pub(super) fn scope(
        &self,
        (run, execution, call): (RunId, u32, u32),
        from: u32,
    ) -> impl Iterator<Item = RunId> {
        let (first, last) = (RunId::from_bytes([0; 16]), RunId::from_bytes([0xFF; 16]));
        let range = (run, execution, call, from, first)..=(run, execution, call, u32::MAX, last);
        self.scopes.range(range).map(|(.., run)| *run)
    }

    /// The run and all below it, the lowest first, `limit` of them.
    pub(super) fn tree(&self, run: RunId, limit: usize) -> Vec<RunId> {
        let mut found = Vec::new();
        let mut path = vec![(run, None)];
        while let Some((parent, after)) = path.last().copied() {
            if found.len() == limit {
                break;
            }
            if let Some(child) = self.children(parent, after).next() {
                path.last_mut().expect("not empty").1 = Some(child);
                path.push((child, None));
            } else {
                found.push(parent);
                path.pop();
            }
        }
        found
    }

    /// What is due in these lanes, as `Need::Due` says.
    pub(super) fn due(&mut self, lanes: &[LaneId], limit: usize, now: Timestamp) -> Due {
        let mut due = Due::default();
        let mut first_suspect = None;
        for lane in self.turns.order(lanes) {
            let ready = self.ready.get(lane.0 as usize);
            let Some(ready) = ready.filter(|ready| !ready.is_empty()) else {
                continue;
            };
            let suspect = due_in(ready, limit, now, &mut due);
            first_suspect = first_suspect.into_iter().chain(suspect).min();
        }
        due.runs.extend(first_suspect.map(|(.., run)| run));
        due.runs.extend(self.leases_too_long(lanes, now));
        due
    }

    /// Leases that were made by a clock that has since gone back.
    fn leases_too_long(&self, lanes: &[LaneId], now: Timestamp) -> Vec<RunId> {
        let longest = (now.after(limits::LEASE), RunId::from_bytes([0xFF; 16]));
        if self.leases.last().is_none_or(|last| *last < longest) {
            return Vec::new();
        }
        let claimable = |run: &RunId| {
            let known = &self.known[run];
            known.ready.is_some() && lanes.contains(&known.lane)
        };
        let too_long = self.leases.range(longest..).map(|(_, run)| *run);
        too_long.filter(claimable).collect()
    }
}

/// What is due in one lane, and when the next is. Returns the first suspect that is due.
fn due_in(ready: &BTreeSet<Ready>, limit: usize, now: Timestamp, due: &mut Due) -> Option<Ready> {
    let mut first_suspect = None;
    let mut group = ready.first().copied();
    while let Some((suspect, priority, ..)) = group {
        let place = |at, run: u8| (suspect, priority, at, RunId::from_bytes([run; 16]));
        let (first, last) = (place(Timestamp(i64::MIN), 0), place(now, 0xFF));
        let mut in_time = ready.range(first..=last);
        if suspect {
            first_suspect = first_suspect.or(in_time.next().copied());
        } else {
            let wanted = limit.saturating_sub(due.runs.len());
            due.runs.extend(in_time.take(wanted).map(|(.., run)| *run));
        }
        group = after(ready, last);
        if let Some((_, _, later, _)) = group.filter(|next| (next.0, next.1) == (suspect, priority))
        {
            due.next = Some(due.next.map_or(later, |next| next.min(later)));
            group = after(ready, place(Timestamp::MAX, 0xFF));
        }
    }
    first_suspect
}

/// The first that comes after this place.
fn after(ready: &BTreeSet<Ready>, place: Ready) -> Option<Ready> {
    let rest = (Bound::Excluded(place), Bound::Unbounded);
    ready.range(rest).next().copied()
}
