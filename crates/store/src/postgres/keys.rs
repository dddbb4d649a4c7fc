//! Finds runs that are due among those that have a flow key: the keys of a lane in turn, by seeks.

use std::collections::{BTreeMap, BTreeSet};

use roundel_core::{Keyed, LaneId, Name, Need, QueueId, RunId, Timestamp, limits};

use super::link::values;
use super::load::Loading;
use super::search::{Candidate, lane_number};
use super::trouble::Trouble;
use super::values::Id;
use crate::Permits;
use crate::cells::{self, Cells};
use crate::turns::in_turn;

/// So many keys are looked at with one statement, at least.
const SOME: usize = 64;

const PERMITS: &str = "SELECT flow_key, count(*) FROM roundel_run \
     WHERE lane = ANY($1) AND flow = 1 GROUP BY flow_key";
/// The next keys of a lane of which anything waits, due or not.
const KEYS: &str = "WITH RECURSIVE key (name, number) AS ( \
     (SELECT flow_key, 1 FROM roundel_run WHERE lane = $1 AND flow_key > $2 \
     AND keyed_at IS NOT NULL ORDER BY flow_key LIMIT 1) \
     UNION ALL \
     SELECT (SELECT run.flow_key FROM roundel_run AS run WHERE run.lane = $1 \
     AND run.flow_key > key.name AND keyed_at IS NOT NULL ORDER BY run.flow_key LIMIT 1), \
     number + 1 FROM key WHERE key.name IS NOT NULL AND number < $3) \
     SELECT name FROM key WHERE name IS NOT NULL ORDER BY number";
/// Goes through the priorities of each key. Of each: those that are due, and when the next is.
const DUE: &str = "WITH RECURSIVE level (place, name, suspect, priority) AS ( \
     SELECT place, name, part.suspect, (SELECT min(priority) FROM roundel_run AS run \
     WHERE run.lane = $1 AND run.flow_key = name AND run.suspect = part.suspect \
     AND keyed_at IS NOT NULL) FROM unnest($2::text[]) WITH ORDINALITY AS asked (name, place) \
     CROSS JOIN (VALUES (false), (true)) AS part (suspect) \
     UNION ALL \
     SELECT level.place, level.name, level.suspect, (SELECT min(priority) FROM roundel_run AS run \
     WHERE run.lane = $1 AND run.flow_key = level.name AND run.suspect = level.suspect \
     AND run.priority > level.priority AND keyed_at IS NOT NULL) \
     FROM level WHERE level.priority IS NOT NULL) \
     SELECT place, level.suspect, level.priority, found.keyed_at, found.id \
     FROM level CROSS JOIN LATERAL ( \
     (SELECT keyed_at, id FROM roundel_run AS run WHERE run.lane = $1 \
     AND run.flow_key = level.name AND run.suspect = level.suspect \
     AND run.priority = level.priority AND keyed_at <= $3 AND id <> ALL ($5) \
     ORDER BY keyed_at, id LIMIT $4) \
     UNION ALL \
     (SELECT keyed_at, NULL FROM roundel_run AS run WHERE run.lane = $1 \
     AND run.flow_key = level.name AND run.suspect = level.suspect \
     AND run.priority = level.priority AND keyed_at > $3 ORDER BY keyed_at LIMIT 1)) AS found \
     WHERE level.priority IS NOT NULL \
     ORDER BY place, level.suspect, level.priority, found.keyed_at, found.id";

/// What is due among what has a flow key.
#[derive(Default)]
pub(super) struct OfKeys {
    /// By lane, in the order in which they are to be taken.
    pub(super) runs: BTreeMap<LaneId, Vec<RunId>>,
    pub(super) suspects: Vec<Candidate>,
    pub(super) next: Option<Timestamp>,
    pub(super) looked_at: BTreeMap<LaneId, Name>,
}

/// What waits of one key.
#[derive(Default)]
struct OfKey {
    due: Vec<RunId>,
    suspect: Option<Candidate>,
    next: Option<Timestamp>,
}

impl Loading<'_> {
    /// How many permits queues have given, whose limits are locked.
    pub(super) async fn permits(&mut self, queues: BTreeSet<QueueId>) -> Result<(), Trouble> {
        for queue in queues {
            if self.known.missed.queues.contains(&queue) {
                continue;
            }
            let lanes: Vec<i32> = self.rows.lanes_of(&queue).map(lane_number).collect();
            let rows = self.link.all(PERMITS, values![lanes]).await?;
            let held: Permits = rows.iter().map(cells::permits).collect::<Result<_, _>>()?;
            self.rows.permits.insert(queue.clone(), held);
            self.known.whole.insert(Need::Permits(queue));
        }
        Ok(())
    }

    /// What is due, as `Keyed` says, but for those that others have.
    pub(super) async fn due_of_keys(
        &mut self,
        asked: &Keyed,
        (now, passed): (Timestamp, &BTreeSet<RunId>),
        to: &mut OfKeys,
    ) -> Result<(), Trouble> {
        let (mut lists, mut names) = (Vec::new(), Vec::new());
        let (mut looked, mut last) = (0, None);
        let mut keys = KeysOf::new(asked);
        'looking: loop {
            let some = self.some_keys(&mut keys, asked).await?;
            if some.is_empty() {
                break;
            }
            let found = self.due_in((asked, &some), 1, (now, passed)).await?;
            for (key, of_key) in some.into_iter().zip(found) {
                if lists.len() == asked.limit {
                    break 'looking;
                }
                if looked == limits::TURNS {
                    to.looked_at.extend(last.map(|key| (asked.lane, key)));
                    break 'looking;
                }
                looked += 1;
                last = Some(key.clone());
                to.next = to.next.into_iter().chain(of_key.next).min();
                to.suspects.extend(of_key.suspect);
                if !of_key.due.is_empty() {
                    lists.push(of_key.due);
                    names.push(key);
                }
            }
        }
        if lists.len() < asked.limit && !names.is_empty() {
            let all = self.due_in((asked, &names), asked.limit, (now, passed));
            lists = all.await?.into_iter().map(|of_key| of_key.due).collect();
        }
        to.runs.insert(asked.lane, in_turn(lists, asked.limit));
        Ok(())
    }

    /// The next keys, without those that are full; none if there are no more.
    async fn some_keys(&mut self, keys: &mut KeysOf, asked: &Keyed) -> Result<Vec<Name>, Trouble> {
        let most = asked.limit.clamp(SOME, limits::TURNS);
        loop {
            if keys.ended {
                return Ok(Vec::new());
            }
            let number = i32::try_from(most).unwrap_or(i32::MAX);
            let values = values![lane_number(asked.lane), keys.at.clone(), number];
            let rows = self.link.all(KEYS, values).await?;
            let found = rows.iter().map(|row| cells::name(row, 0));
            let mut found = found.collect::<Result<Vec<Name>, _>>()?;
            keys.step(asked, &mut found, most);
            found.retain(|key| !asked.full.contains(key));
            if !found.is_empty() {
                return Ok(found);
            }
        }
    }

    /// What is due of these keys, so many of each.
    async fn due_in(
        &mut self,
        (asked, keys): (&Keyed, &[Name]),
        most: usize,
        (now, passed): (Timestamp, &BTreeSet<RunId>),
    ) -> Result<Vec<OfKey>, Trouble> {
        let names: Vec<String> = keys.iter().map(|key| key.as_str().to_owned()).collect();
        let passed: Vec<Id> = passed.iter().copied().map(Id::from).collect();
        let limit = i64::try_from(most).unwrap_or(i64::MAX);
        let values = values![lane_number(asked.lane), names, now.0, limit, passed];
        let mut found: Vec<OfKey> = Vec::new();
        found.resize_with(keys.len(), OfKey::default);
        for row in self.link.all(DUE, values).await? {
            let place = usize::try_from(row.int(0)?.unwrap_or(1) - 1).unwrap_or_default();
            let (suspect, priority) = (row.int(1)? != Some(0), row.int(2)?.unwrap_or_default());
            let at = row.int(3)?.unwrap_or_default();
            let of_key = &mut found[place];
            if row.bytes(4)?.is_none() {
                of_key.next = of_key.next.into_iter().chain([Timestamp(at)]).min();
                continue;
            }
            let run = cells::run_id(&row, 4)?;
            if suspect {
                of_key.suspect = of_key.suspect.or(Some((priority, at, run, false)));
            } else if of_key.due.len() < most {
                of_key.due.push(run);
            }
        }
        Ok(found)
    }
}

/// How far the keys of a lane are looked at: from the one after the last whose turn it was to the
/// end, and then from the beginning.
struct KeysOf {
    at: String,
    wrapped: bool,
    ended: bool,
}

impl KeysOf {
    fn new(asked: &Keyed) -> KeysOf {
        let after = asked.after.as_ref();
        KeysOf {
            at: after.map_or(String::new(), |key| key.as_str().to_owned()),
            wrapped: after.is_none(),
            ended: false,
        }
    }

    /// These were found, up to so many.
    fn step(&mut self, asked: &Keyed, found: &mut Vec<Name>, most: usize) {
        let full = found.len() == most;
        if let Some(last) = found.last() {
            last.as_str().clone_into(&mut self.at);
        }
        if let Some(after) = asked.after.as_ref().filter(|_| self.wrapped) {
            found.retain(|key| key <= after);
            self.ended = !full || self.at.as_str() > after.as_str();
            return;
        }
        if !full {
            self.ended = self.wrapped;
            self.wrapped = true;
            self.at.clear();
        }
    }
}
