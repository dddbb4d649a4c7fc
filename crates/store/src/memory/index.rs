//! What a database keeps indexes for: which runs are due, whose leases end when, who is below whom.
//! Maintained from what each operation changed.

use std::collections::{BTreeMap, BTreeSet};

use roundel_core::{Changes, LaneId, RunChange, RunId, RunRow, Timestamp, limits};

use crate::turns::Turns;

type Ready = (LaneId, bool, i32, Timestamp, RunId);

/// The indexes over all runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    ready: BTreeSet<Ready>,
    leases: BTreeSet<(Timestamp, RunId)>,
    children: BTreeSet<(RunId, RunId)>,
    known: BTreeMap<RunId, Known>,
    turns: Turns,
}

/// What the indexes hold for a run.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Known {
    ready: Option<Ready>,
    lease: Option<Timestamp>,
    parent: Option<RunId>,
}

impl Known {
    fn of(row: &RunRow) -> Known {
        let ready = row
            .ready_at
            .map(|at| (row.lane, row.suspect, row.priority, at, row.id));
        Known {
            ready,
            lease: row.lease_until,
            parent: row.parent.map(|parent| parent.run),
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
    pub(super) fn apply(&mut self, changes: &Changes) {
        for change in &changes.runs {
            let (RunChange::Insert(row) | RunChange::Update { row, .. }) = change;
            self.note(row.id, Some(Known::of(row)));
        }
        for run in &changes.deleted {
            self.note(*run, None);
        }
    }

    fn note(&mut self, run: RunId, now: Option<Known>) {
        let before = self.known.remove(&run);
        if before != now {
            if let Some(before) = before {
                before.ready.map(|ready| self.ready.remove(&ready));
                before.lease.map(|end| self.leases.remove(&(end, run)));
                before
                    .parent
                    .map(|parent| self.children.remove(&(parent, run)));
            }
            if let Some(now) = now {
                self.ready.extend(now.ready);
                self.leases.extend(now.lease.map(|end| (end, run)));
                self.children.extend(now.parent.map(|parent| (parent, run)));
            }
        }
        if let Some(now) = now {
            self.known.insert(run, now);
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
        for lane in self.turns.order(lanes) {
            self.due_in(lane, limit, now, &mut due);
        }
        let suspects = lanes
            .iter()
            .filter_map(|lane| self.first_suspect(*lane, now));
        due.runs.extend(suspects.min().map(|(_, _, run)| run));
        due.runs.extend(self.leases_too_long(lanes, now));
        due
    }

    fn due_in(&self, lane: LaneId, limit: usize, now: Timestamp, due: &mut Due) {
        for suspect in [false, true] {
            let mut from = Some(i32::MIN);
            while let Some(priority) = from.and_then(|at| self.priority_from(lane, suspect, at)) {
                let wanted = if suspect {
                    0
                } else {
                    limit.saturating_sub(due.runs.len())
                };
                let in_time = self.ready.range(span(lane, suspect, priority, now));
                due.runs.extend(in_time.take(wanted).map(|(.., run)| *run));
                if let Some(later) = self.next_after(lane, suspect, priority, now) {
                    due.next = Some(due.next.map_or(later, |next| next.min(later)));
                }
                from = priority.checked_add(1);
            }
        }
    }

    /// The first priority, from this one on, that has a run in the lane.
    fn priority_from(&self, lane: LaneId, suspect: bool, priority: i32) -> Option<i32> {
        let first = (
            lane,
            suspect,
            priority,
            Timestamp(i64::MIN),
            RunId::from_bytes([0; 16]),
        );
        let found = self.ready.range(first..).next()?;
        (found.0 == lane && found.1 == suspect).then_some(found.2)
    }

    fn next_after(
        &self,
        lane: LaneId,
        suspect: bool,
        priority: i32,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let first = *span(lane, suspect, priority, now).end();
        let last = *span(lane, suspect, priority, Timestamp::MAX).end();
        self.ready
            .range(first..=last)
            .map(|(.., at, _)| *at)
            .find(|at| *at > now)
    }

    fn first_suspect(&self, lane: LaneId, now: Timestamp) -> Option<(i32, Timestamp, RunId)> {
        let mut from = Some(i32::MIN);
        while let Some(priority) = from.and_then(|at| self.priority_from(lane, true, at)) {
            if let Some((.., at, run)) = self.ready.range(span(lane, true, priority, now)).next() {
                return Some((priority, *at, *run));
            }
            from = priority.checked_add(1);
        }
        None
    }

    /// Leases that were made by a clock that has since gone back.
    fn leases_too_long(&self, lanes: &[LaneId], now: Timestamp) -> Vec<RunId> {
        let longest = (now.after(limits::LEASE), RunId::from_bytes([0xFF; 16]));
        let lane = |run: &RunId| self.known[run].ready.map(|ready| ready.0);
        let too_long = self.leases.range(longest..).map(|(_, run)| *run);
        too_long
            .filter(|run| lane(run).is_some_and(|lane| lanes.contains(&lane)))
            .collect()
    }
}

/// All that is ready in a lane, at a priority, until then.
fn span(
    lane: LaneId,
    suspect: bool,
    priority: i32,
    until: Timestamp,
) -> std::ops::RangeInclusive<Ready> {
    let first = (
        lane,
        suspect,
        priority,
        Timestamp(i64::MIN),
        RunId::from_bytes([0; 16]),
    );
    first
        ..=(
            lane,
            suspect,
            priority,
            until,
            RunId::from_bytes([0xFF; 16]),
        )
}
