//! What a database keeps indexes for: which runs are due, whose leases end when, who is below whom.
//! Maintained from what each operation changed.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use roundel_core::{
    Due as Asked, Flow, Keyed, LaneId, Name, PublicationId, RunId, RunRow, Timestamp, limits,
};
use rustc_hash::FxHashMap;

use crate::turns::{Turns, in_turn};

/// The place of a run among those of its lane: suspects after all others.
type Ready = (bool, i32, Timestamp, RunId);

/// In which lane, and where.
type Place = (LaneId, bool, i32, Timestamp);

/// Parent, execution, call, number.
type InScope = (RunId, u32, u32, u32, RunId);

/// The indexes over all runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    lists: Lists,
    /// No lease ends later than this.
    leased_until: Timestamp,
    children: BTreeSet<(RunId, RunId)>,
    scopes: BTreeSet<InScope>,
    known: FxHashMap<RunId, Known>,
    /// The same runs, in order.
    ids: BTreeSet<RunId>,
    heard: BTreeSet<(PublicationId, RunId)>,
    /// Those that no limit holds back, by when they are due.
    ahead: BTreeSet<(LaneId, Timestamp, RunId)>,
    permits: Permits,
    turns: Turns,
}

/// Those that can be claimed at some time.
#[derive(Clone, Debug, Default)]
struct Lists {
    /// By lane; lanes are small numbers.
    ready: Vec<BTreeSet<Ready>>,
    /// Those that have a flow key, by lane and key, instead.
    keyed: BTreeMap<(LaneId, Name), BTreeSet<Ready>>,
}

/// How many runs of a lane have a permit, by flow key.
#[derive(Clone, Debug, Default)]
struct Permits(BTreeMap<(LaneId, Option<Name>), u32>);

/// What the indexes hold for a run; nothing if it is not there.
#[derive(Clone, Debug, Default)]
struct Known {
    ready: Option<Place>,
    lease: Option<Timestamp>,
    parent: Option<RunId>,
    /// Of a call of its parent: execution, call, number.
    scope: Option<(u32, u32, u32)>,
    publication: Option<PublicationId>,
    /// It has a permit of this lane.
    permit: Option<LaneId>,
    /// No limit holds it back.
    let_through: bool,
    flow_key: Option<Name>,
}

impl Known {
    fn of(row: &RunRow) -> Known {
        Known {
            ready: Known::place(row),
            lease: row.lease_until,
            parent: row.parent.map(|parent| parent.run),
            scope: Known::scope(row),
            publication: row.publication,
            permit: (row.flow == Flow::Permit).then_some(row.lane),
            let_through: row.flow != Flow::Free,
            flow_key: row.flow_key.clone(),
        }
    }

    fn place(row: &RunRow) -> Option<Place> {
        let at = row.ready_at?;
        Some((row.lane, row.suspect, row.priority, at))
    }

    fn scope(row: &RunRow) -> Option<(u32, u32, u32)> {
        let (parent, number) = row.parent.zip(row.number)?;
        Some((parent.execution, parent.call, number))
    }

    /// Is all the same that a row mostly keeps, so that only its place and its lease may differ?
    fn stays(&self, row: &RunRow) -> bool {
        !self.let_through
            && row.flow == Flow::Free
            && self.parent == row.parent.map(|parent| parent.run)
            && self.scope == Known::scope(row)
            && self.publication == row.publication
            && self.flow_key == row.flow_key
    }

    fn in_scope(&self, run: RunId) -> Option<InScope> {
        let (parent, (execution, call, number)) = self.parent.zip(self.scope)?;
        Some((parent, execution, call, number, run))
    }

    /// Its place among those that no limit holds back.
    fn ahead(&self, run: RunId) -> Option<(LaneId, Timestamp, RunId)> {
        let (lane, _, _, at) = self.ready.filter(|_| self.let_through)?;
        Some((lane, at, run))
    }
}

impl Lists {
    fn remove(&mut self, run: RunId, place: Option<Place>, flow_key: Option<&Name>) {
        let Some((lane, suspect, priority, at)) = place else {
            return;
        };
        let ready = (suspect, priority, at, run);
        match flow_key {
            None => drop(self.ready[lane.0 as usize].remove(&ready)),
            Some(key) => self.remove_key(&(lane, key.clone()), &ready),
        }
    }

    fn remove_key(&mut self, key: &(LaneId, Name), ready: &Ready) {
        let of_key = self.keyed.get_mut(key).expect("it was listed");
        of_key.remove(ready);
        if of_key.is_empty() {
            self.keyed.remove(key);
        }
    }

    fn add(&mut self, run: RunId, place: Option<Place>, flow_key: Option<&Name>) {
        let Some((lane, suspect, priority, at)) = place else {
            return;
        };
        let ready = (suspect, priority, at, run);
        match flow_key {
            None => self.of_lane(lane).insert(ready),
            Some(key) => {
                let key = (lane, key.clone());
                self.keyed.entry(key).or_default().insert(ready)
            }
        };
    }

    fn of_lane(&mut self, lane: LaneId) -> &mut BTreeSet<Ready> {
        let lane = lane.0 as usize;
        if self.ready.len() <= lane {
            self.ready.resize_with(lane + 1, BTreeSet::new);
        }
        &mut self.ready[lane]
    }

    /// Those of a lane that have no flow key, if there are any.
    fn plain(&self, lane: LaneId) -> Option<&BTreeSet<Ready>> {
        let ready = self.ready.get(lane.0 as usize);
        ready.filter(|ready| !ready.is_empty())
    }
}

impl Permits {
    fn remove(&mut self, known: &Known) {
        let Some(lane) = known.permit else { return };
        let key = (lane, known.flow_key.clone());
        let count = self.0.get_mut(&key).expect("it was counted");
        *count -= 1;
        if *count == 0 {
            self.0.remove(&key);
        }
    }

    fn add(&mut self, known: &Known) {
        if let Some(lane) = known.permit {
            let key = (lane, known.flow_key.clone());
            *self.0.entry(key).or_default() += 1;
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
    /// In lanes with too many flow keys, the last that was looked at.
    pub(super) looked_at: BTreeMap<LaneId, Name>,
}

impl Index {
    /// A run is now as its row says, or gone.
    pub(super) fn note(&mut self, run: RunId, row: Option<&RunRow>) {
        if let Some(row) = row
            && let Some(known) = self.known.get_mut(&run)
            && known.stays(row)
        {
            let before = std::mem::replace(&mut known.ready, Known::place(row));
            known.lease = row.lease_until;
            self.leased_until = self.leased_until.max(known.lease.unwrap_or_default());
            if before != known.ready {
                self.lists.remove(run, before, known.flow_key.as_ref());
                self.lists.add(run, known.ready, known.flow_key.as_ref());
            }
            return;
        }
        self.note_anew(run, row);
    }

    fn note_anew(&mut self, run: RunId, row: Option<&RunRow>) {
        let gone = Known::default();
        let (before, now) = match row.map(Known::of) {
            None => {
                self.ids.remove(&run);
                (self.known.remove(&run).unwrap_or_default(), &gone)
            }
            Some(now) => match self.known.entry(run) {
                Entry::Occupied(known) => {
                    let known = known.into_mut();
                    (std::mem::replace(known, now), &*known)
                }
                Entry::Vacant(unknown) => {
                    self.ids.insert(run);
                    (Known::default(), &*unknown.insert(now))
                }
            },
        };
        if before.ready != now.ready || before.flow_key != now.flow_key {
            let Known {
                ready, flow_key, ..
            } = &before;
            self.lists.remove(run, *ready, flow_key.as_ref());
            self.lists.add(run, now.ready, now.flow_key.as_ref());
        }
        if let Some(end) = now.lease {
            self.leased_until = self.leased_until.max(end);
        }
        if before.parent != now.parent || before.scope != now.scope {
            let child = |parent| (parent, run);
            replace(
                &mut self.children,
                before.parent.map(child),
                now.parent.map(child),
            );
            replace(&mut self.scopes, before.in_scope(run), now.in_scope(run));
        }
        if before.publication != now.publication {
            let heard = |id| (id, run);
            replace(
                &mut self.heard,
                before.publication.map(heard),
                now.publication.map(heard),
            );
        }
        if before.let_through || now.let_through {
            replace(&mut self.ahead, before.ahead(run), now.ahead(run));
            self.permits.remove(&before);
            self.permits.add(now);
        }
    }

    /// How many runs of a lane have a permit, by flow key.
    pub(super) fn permits(&self, lane: LaneId) -> impl Iterator<Item = (Option<Name>, u32)> + '_ {
        let its = self.permits.0.range((lane, None)..);
        let its = its.take_while(move |((of, _), _)| *of == lane);
        its.map(|((_, key), count)| (key.clone(), *count))
    }

    /// All runs, by id.
    pub(super) fn runs(&self) -> impl DoubleEndedIterator<Item = RunId> {
        self.ids.iter().copied()
    }

    /// The runs before this one, newest first.
    pub(super) fn runs_before(&self, before: Option<RunId>) -> impl Iterator<Item = RunId> {
        let end = RunId::from_bytes([0xFF; 16]);
        let known = self.ids.range(..=before.unwrap_or(end)).rev();
        known.copied().filter(move |run| Some(*run) != before)
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

    /// A run that the publication set off, if one is left.
    pub(super) fn heard(&self, id: PublicationId) -> Option<RunId> {
        let (first, last) = (RunId::from_bytes([0; 16]), RunId::from_bytes([0xFF; 16]));
        let mut heard = self.heard.range((id, first)..=(id, last));
        heard.next().map(|(_, run)| *run)
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

    /// What is due, as `Need::Due` says.
    pub(super) fn due(&mut self, asked: &Asked, now: Timestamp) -> Due {
        let mut due = Due::default();
        let lanes = asked.lanes.iter().map(|(lane, _)| *lane);
        let mut first_suspect = None;
        // Those with a flow key are limited by themselves.
        let mut plain = 0;
        let has_keys = |lane| asked.keyed.iter().any(|keyed| keyed.lane == lane);
        let wanted = |lane| self.lists.plain(lane).is_some() || has_keys(lane);
        for lane in self.turns.order_of(lanes, wanted) {
            for keyed in asked.keyed.iter().filter(|keyed| keyed.lane == lane) {
                let suspect = self.due_of_keys(keyed, now, &mut due);
                first_suspect = first_suspect.into_iter().chain(suspect).min();
            }
            let Some(ready) = self.lists.plain(lane) else {
                continue;
            };
            let of_it = asked.lanes.iter().find(|(of, _)| *of == lane);
            let most = of_it.map_or(0, |(_, most)| *most);
            let limit = due.runs.len() + most.min(asked.limit.saturating_sub(plain));
            let before = due.runs.len();
            let suspect = due_in(ready, limit, now, &mut due);
            plain += due.runs.len() - before;
            first_suspect = first_suspect.into_iter().chain(suspect).min();
        }
        due.runs.extend(first_suspect.map(|(.., run)| run));
        for lane in &asked.ahead {
            self.due_ahead(*lane, asked.limit, now, &mut due);
        }
        let mine = |lane| asked.lanes.iter().any(|(of, _)| *of == lane);
        let mine = |lane| mine(lane) || asked.ahead.contains(&lane);
        due.runs.extend(self.leases_too_long(mine, now));
        self.forget_leases(now);
        due
    }

    /// When the first run of these lanes is due, or was.
    #[cfg(feature = "sim")]
    pub(super) fn next_due(&self, lanes: &[LaneId], now: Timestamp) -> Option<Timestamp> {
        let mine = |lane| lanes.contains(&lane);
        if !self.leases_too_long(mine, now).is_empty() {
            return Some(now);
        }
        let lists = &self.lists;
        let ready = lanes.iter().filter_map(|lane| lists.plain(*lane));
        let keyed = lists.keyed.iter().filter(|((of, _), _)| lanes.contains(of));
        let all = ready.chain(keyed.map(|(_, ready)| ready)).flatten();
        all.map(|(_, _, at, _)| *at).min()
    }

    /// What is due of the flow keys of a lane. Returns the first suspect that is due.
    fn due_of_keys(&self, asked: &Keyed, now: Timestamp, due: &mut Due) -> Option<Ready> {
        let lane = asked.lane;
        let from = (lane, asked.after.clone().unwrap_or(Name::FIRST));
        let is_after = |key: &Name| asked.after.as_ref().is_none_or(|after| key > after);
        let its = |((of, _), _): &(&(LaneId, Name), _)| *of == lane;
        let behind = self.lists.keyed.range(from..).take_while(its);
        let behind = behind.filter(|((_, key), _)| is_after(key));
        let before = self
            .lists
            .keyed
            .range((lane, Name::FIRST)..)
            .take_while(its);
        let before = before.take_while(|((_, key), _)| !is_after(key));
        let free = |((_, key), _): &(&(LaneId, Name), _)| !asked.full.contains(key);
        let mut keys = behind.chain(before).filter(free);
        let (mut found, mut first_suspect, mut last) = (Vec::new(), None, None);
        for ((_, key), ready) in keys.by_ref().take(limits::TURNS) {
            let mut of_key = Due::default();
            let suspect = due_in(ready, asked.limit, now, &mut of_key);
            first_suspect = first_suspect.into_iter().chain(suspect).min();
            due.next = due.next.into_iter().chain(of_key.next).min();
            last = Some(key.clone());
            found.extend(Some(of_key.runs).filter(|runs| !runs.is_empty()));
            if found.len() == asked.limit {
                last = None;
                break;
            }
        }
        let more = last.filter(|_| keys.next().is_some());
        due.looked_at.extend(more.map(|key| (lane, key)));
        due.runs.extend(in_turn(found, asked.limit));
        first_suspect
    }

    /// Those of a lane that no limit holds back.
    fn due_ahead(&self, lane: LaneId, limit: usize, now: Timestamp, due: &mut Due) {
        let last = RunId::from_bytes([0xFF; 16]);
        let first = (lane, Timestamp(i64::MIN), RunId::from_bytes([0; 16]));
        let now_due = self.ahead.range(first..=(lane, now, last));
        due.runs.extend(now_due.take(limit).map(|(.., run)| *run));
        let end = (lane, Timestamp::MAX, last);
        let later = self
            .ahead
            .range((Bound::Excluded((lane, now, last)), Bound::Included(end)));
        let next = later.map(|(_, at, _)| *at).next();
        due.next = due.next.into_iter().chain(next).min();
    }

    /// Leases that were made by a clock that has since gone back.
    fn leases_too_long(&self, mine: impl Fn(LaneId) -> bool, now: Timestamp) -> Vec<RunId> {
        let longest = now.after(limits::LEASE);
        // Hardly ever is there one, so that nothing is kept to find them by.
        if self.leased_until <= longest {
            return Vec::new();
        }
        let claimable = |known: &Known| known.ready.is_some_and(|(lane, ..)| mine(lane));
        let known = self.known.iter().filter(|(_, known)| claimable(known));
        let leases = known.filter_map(|(run, known)| Some((known.lease?, *run)));
        let mut too_long: Vec<_> = leases.filter(|(end, _)| *end > longest).collect();
        too_long.sort_unstable();
        too_long.into_iter().map(|(_, run)| run).collect()
    }

    /// Looks again when the last lease ends, once they have been found to be too long.
    fn forget_leases(&mut self, now: Timestamp) {
        if self.leased_until > now.after(limits::LEASE) {
            let ends = self.known.values().filter_map(|known| known.lease);
            self.leased_until = ends.max().unwrap_or_default();
        }
    }
}

/// One entry in the place of another.
fn replace<T: Ord>(entries: &mut BTreeSet<T>, before: Option<T>, now: Option<T>) {
    if let Some(before) = before {
        entries.remove(&before);
    }
    entries.extend(now);
}

/// What is due in one lane, and when the next is. Returns the first suspect that is due.
fn due_in(ready: &BTreeSet<Ready>, limit: usize, now: Timestamp, due: &mut Due) -> Option<Ready> {
    let mut first_suspect = None;
    let last = ready.last()?;
    let mut rest = ready.range::<Ready, _>(..);
    while let Some(entry) = rest.next() {
        let (suspect, priority, at, run) = *entry;
        let place = |at| (suspect, priority, at, RunId::from_bytes([0xFF; 16]));
        let group_ends = match at <= now {
            true if suspect => {
                first_suspect = first_suspect.or(Some(*entry));
                false
            }
            true if due.runs.len() < limit => {
                due.runs.push(run);
                continue;
            }
            true => false,
            false => {
                due.next = Some(due.next.map_or(at, |next| next.min(at)));
                true
            }
        };
        // On to what is not due yet in this group, or to the next group.
        if group_ends && (last.0, last.1) == (suspect, priority) {
            break;
        }
        let after = place(if group_ends { Timestamp::MAX } else { now });
        rest = ready.range((Bound::Excluded(after), Bound::Unbounded));
    }
    first_suspect
}
