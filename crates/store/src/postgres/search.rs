//! Searches: for runs that are due, for trees, for what one call set off, for open windows. What is
//! found is locked, and looked at again where it may have changed until then.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use roundel_core::{LaneId, Name, RunId, Timestamp, WorkerId, limits};
use sqlx::postgres::{PgArguments, PgRow};

use super::keys::OfKeys;
use super::link::{add_arrays, values};
use super::load::Loading;
use super::marks::{Level, Marks};
use super::trouble::Trouble;
use super::values::Id;
use crate::cells::{self, Cells, number};

/// What a search for runs found.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    /// In the order in which they are to be taken.
    pub(super) runs: Vec<RunId>,
    /// When the next one is due.
    pub(super) next: Option<Timestamp>,
    /// There is nothing but what others have, for now.
    pub(super) missed: bool,
    /// In lanes with too many flow keys, the last that was looked at.
    pub(super) looked_at: BTreeMap<LaneId, Name>,
}

/// Goes through the priorities of each lane by seeks, so that what is not due yet is never looked
/// at, however much of it there is. Of each level: those that are due, and when the next is.
const DUE: &str = "WITH RECURSIVE level (lane, place, suspect, priority) AS ( \
     SELECT asked.lane, place, part.suspect, (SELECT min(priority) FROM roundel_run AS run \
     WHERE run.lane = asked.lane AND run.suspect = part.suspect AND ready_at IS NOT NULL) \
     FROM unnest($1::integer[]) WITH ORDINALITY AS asked (lane, place) \
     CROSS JOIN (VALUES (false), (true)) AS part (suspect) \
     UNION ALL \
     SELECT level.lane, level.place, level.suspect, (SELECT min(priority) FROM roundel_run AS run \
     WHERE run.lane = level.lane AND run.suspect = level.suspect \
     AND run.priority > level.priority AND ready_at IS NOT NULL) \
     FROM level WHERE level.priority IS NOT NULL) \
     SELECT place, level.suspect, level.priority, found.ready_at, found.id, found.doubtful \
     FROM level CROSS JOIN LATERAL ( \
     (SELECT ready_at, id, owner IS NOT NULL OR news_at IS NOT NULL \
     AND holder IS NOT NULL AND holder <> $5 AS doubtful \
     FROM roundel_run AS run WHERE run.lane = level.lane \
     AND run.suspect = level.suspect AND run.priority = level.priority AND ready_at <= $2 \
     AND id <> ALL ($4) ORDER BY ready_at, id LIMIT $3) \
     UNION ALL \
     (SELECT ready_at, NULL, false FROM roundel_run AS run WHERE run.lane = level.lane \
     AND run.suspect = level.suspect AND run.priority = level.priority AND ready_at > $2 \
     ORDER BY ready_at LIMIT 1)) AS found \
     WHERE level.priority IS NOT NULL";
/// The same for levels that are known, from a time on that is known; and not when the next is due.
const DUE_FROM: &str = "SELECT place, level.suspect, level.priority, found.ready_at, found.id, \
     found.doubtful FROM unnest($1::integer[], $6::bigint[], $7::boolean[], $8::integer[], \
     $9::bigint[]) AS level (lane, place, suspect, priority, since) CROSS JOIN LATERAL ( \
     SELECT ready_at, id, owner IS NOT NULL OR news_at IS NOT NULL \
     AND holder IS NOT NULL AND holder <> $5 AS doubtful \
     FROM roundel_run AS run WHERE run.lane = level.lane \
     AND run.suspect = level.suspect AND run.priority = level.priority \
     AND ready_at >= level.since AND ready_at <= $2 \
     AND id <> ALL ($4) ORDER BY ready_at, id LIMIT $3) AS found";
/// Lane by lane, those that no limit holds back and that are due; and when the next is.
const AHEAD: &str = "SELECT found.at, found.id \
     FROM unnest($1::integer[]) WITH ORDINALITY AS asked (lane, place) CROSS JOIN LATERAL ( \
     (SELECT coalesce(ready_at, keyed_at) AS at, id FROM roundel_run AS run \
     WHERE run.lane = asked.lane AND flow IN (1, 2) AND coalesce(ready_at, keyed_at) <= $2 \
     ORDER BY coalesce(ready_at, keyed_at), id LIMIT $3) \
     UNION ALL \
     (SELECT min(coalesce(ready_at, keyed_at)), NULL FROM roundel_run AS run \
     WHERE run.lane = asked.lane AND flow IN (1, 2) \
     AND coalesce(ready_at, keyed_at) > $2)) AS found \
     WHERE found.at IS NOT NULL ORDER BY place, found.at, found.id";
/// Whoever has a parent in the tree comes before it, brothers by id.
const SUBTREE: &str = "WITH RECURSIVE tree (id, path) AS ( \
     SELECT $1::uuid, ARRAY[$1::uuid] UNION ALL \
     SELECT run.id, tree.path || run.id FROM tree JOIN roundel_run AS run \
     ON run.parent_run = tree.id) \
     SELECT id FROM tree ORDER BY path || 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid LIMIT $2";
/// The same for several trees, one after the other.
const SUBTREES: &str = "WITH RECURSIVE tree (top, id, path) AS ( \
     SELECT asked.id, asked.id, ARRAY[asked.id] FROM unnest($1::uuid[]) AS asked (id) UNION ALL \
     SELECT tree.top, run.id, tree.path || run.id FROM tree JOIN roundel_run AS run \
     ON run.parent_run = tree.id) \
     SELECT top, id FROM tree \
     ORDER BY top, path || 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid LIMIT $2";
const SCOPE: &str = "SELECT id FROM roundel_run WHERE parent_run = $1 AND parent_execution = $2 \
     AND parent_call = $3 AND number IS NOT NULL ORDER BY number";
const HEARD: &str = "SELECT id FROM roundel_run WHERE publication = $1 LIMIT 1";
const UNSEEN: &str = "SELECT id FROM roundel_worker WHERE seen_at < $1 ORDER BY id LIMIT $2";
const OPEN_PUBLICATIONS: &str = "SELECT id FROM roundel_publication \
     WHERE namespace = $1 AND topic = $2 AND closes_at > $3 ORDER BY id";

/// So many that others have are looked past.
const MOST_PASSED: usize = 2_000;

/// A run that is due: priority, time, id, and whether it may well not be taken: somebody else has
/// it in memory and comes first, or its lease has ended by time.
pub(super) type Candidate = (i64, i64, RunId, bool);

/// What a claim asks for.
pub(super) struct Asked<'a> {
    /// In the order of their turns.
    pub(super) lanes: &'a [LaneId],
    /// How many of each.
    pub(super) due: &'a roundel_core::Due,
    /// How many to look at.
    pub(super) limit: usize,
    /// How many to take.
    pub(super) take: usize,
    pub(super) worker: WorkerId,
    pub(super) now: Timestamp,
    /// Lanes of queues whose limits may hold back what is found.
    pub(super) limited: &'a BTreeSet<LaneId>,
    /// May it begin where the last one left off?
    pub(super) from_marks: bool,
}

/// What is due in one lane.
#[derive(Default)]
struct Due {
    innocent: Vec<Candidate>,
    suspect: Vec<Candidate>,
}

impl Loading<'_> {
    /// What is due, as `Need::Due` says. Hardly more is locked than will be taken: others look for
    /// the same. If all of it is theirs for now, it is to be asked again.
    pub(super) async fn due(
        &mut self,
        asked: &Asked<'_>,
        marks: &mut Marks,
    ) -> Result<Found, Trouble> {
        let mut passed: BTreeSet<RunId> = BTreeSet::new();
        loop {
            let mut found = self.look_for_due(asked, &passed, marks).await?;
            let runs: BTreeSet<RunId> = found.runs.iter().copied().collect();
            self.runs(&runs).await?;
            let missed = |run: &RunId| self.known.missed.runs.contains(run);
            found.runs.retain(|run| !missed(run));
            let due = |run: &RunId| {
                let row = self.rows.run(*run)?;
                row.ready_at.filter(|at| *at <= asked.now)
            };
            let lost = |run: &&RunId| !found.runs.contains(run) || due(run).is_none();
            let before = passed.len();
            passed.extend(runs.iter().filter(lost));
            if passed.len() == before || passed.len() > MOST_PASSED {
                found.missed = found.runs.is_empty() && passed.iter().any(missed);
                return Ok(found);
            }
        }
    }

    async fn look_for_due(
        &mut self,
        asked: &Asked<'_>,
        passed: &BTreeSet<RunId>,
        marks: &mut Marks,
    ) -> Result<Found, Trouble> {
        let mut of_keys = OfKeys::default();
        for keyed in &asked.due.keyed {
            let others_have = (asked.now, passed);
            self.due_of_keys(keyed, others_have, &mut of_keys).await?;
        }
        if let Some(levels) = marks.levels(asked.lanes).filter(|_| asked.from_marks) {
            let rows = self.rows_from(asked, passed, &levels).await?;
            if !rows.is_empty() || marks.believes_in_nothing() {
                let (found, seen) = found_in(asked, &rows, &of_keys)?;
                for (level, _) in levels.into_iter().filter(|_| passed.is_empty()) {
                    marks.mark(level, seen.get(&level).copied().flatten(), asked.now);
                }
                let next = of_keys
                    .next
                    .into_iter()
                    .chain([marks.next(asked.now)])
                    .min();
                return Ok(Found { next, ..found });
            }
        }
        let began = Instant::now();
        let lanes: Vec<i32> = asked.lanes.iter().copied().map(lane_number).collect();
        let rows = self
            .link
            .all(DUE, due_values(asked, passed, lanes)?)
            .await?;
        let (found, seen) = found_in(asked, &rows, &of_keys)?;
        if passed.is_empty() {
            marks.sweep(asked.lanes, began.elapsed(), found.next);
            // Where there is nothing yet, new runs are expected.
            let usual = asked.lanes.iter().map(|lane| ((*lane, false, 0), None));
            for (level, first) in usual.chain(seen) {
                marks.mark(level, first, asked.now);
            }
        }
        let next = found.next.into_iter().chain(of_keys.next).min();
        Ok(Found { next, ..found })
    }

    async fn rows_from(
        &mut self,
        asked: &Asked<'_>,
        passed: &BTreeSet<RunId>,
        levels: &[(Level, Timestamp)],
    ) -> Result<Vec<PgRow>, Trouble> {
        let lanes = levels.iter().map(|((lane, ..), _)| lane_number(*lane));
        let mut values = due_values(asked, passed, lanes.collect())?;
        let place = |lane: LaneId| asked.lanes.iter().position(|asked| *asked == lane);
        let place = |lane| place(lane).and_then(|at| i64::try_from(at + 1).ok());
        add_arrays!(&mut values; levels; ((lane, suspect, priority), from) =>
            place(*lane), *suspect, *priority, from.0);
        self.link.all(DUE_FROM, values).await
    }

    /// Those that are due and that no limit holds back.
    pub(super) async fn ahead(
        &mut self,
        asked: &roundel_core::Due,
        now: Timestamp,
        found: &mut Found,
    ) -> Result<(), Trouble> {
        if asked.ahead.is_empty() {
            return Ok(());
        }
        let lanes: Vec<i32> = asked.ahead.iter().copied().map(lane_number).collect();
        let most = i64::try_from(asked.limit).unwrap_or(i64::MAX);
        let rows = self.link.all(AHEAD, values![lanes, now.0, most]).await?;
        let mut ahead = Vec::new();
        for row in rows {
            let at = row.int(0)?.map(Timestamp);
            if row.bytes(1)?.is_none() {
                found.next = found.next.into_iter().chain(at).min();
                continue;
            }
            ahead.push(cells::run_id(&row, 1)?);
        }
        self.runs(&ahead.iter().copied().collect()).await?;
        let missed = |run: &RunId| self.known.missed.runs.contains(run);
        let others_have = ahead.iter().any(missed);
        ahead.retain(|run| !missed(run));
        found.runs.extend(ahead);
        found.missed |= others_have && found.runs.is_empty();
        Ok(())
    }

    /// The run and all below it. The caller is alone and waits for locks.
    pub(super) async fn subtree(&mut self, run: RunId, limit: usize) -> Result<Found, Trouble> {
        let most = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut before = None;
        loop {
            let rows = self.link.all(SUBTREE, values![Id::from(run), most]).await?;
            let runs = rows.iter().map(|row| cells::run_id(row, 0));
            let runs = runs.collect::<Result<Vec<RunId>, _>>()?;
            if before.as_ref() == Some(&runs) {
                return Ok(Found {
                    runs,
                    ..Found::default()
                });
            }
            self.runs(&runs.iter().copied().collect()).await?;
            before = Some(runs);
        }
    }

    /// The same for several roots that have ended, and are locked: nothing comes under them any
    /// more. If there are more than so many runs, only the trees that are whole.
    pub(super) async fn subtrees(
        &mut self,
        roots: &[RunId],
        limit: usize,
    ) -> Result<BTreeMap<RunId, Vec<RunId>>, Trouble> {
        let most = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut before = None;
        loop {
            let ids: Vec<Id> = roots.iter().copied().map(Id::from).collect();
            let rows = self.link.all(SUBTREES, values![ids, most]).await?;
            let mut found: BTreeMap<RunId, Vec<RunId>> = BTreeMap::new();
            for row in &rows {
                let tree = found.entry(cells::run_id(row, 0)?).or_default();
                tree.push(cells::run_id(row, 1)?);
            }
            if rows.len() >= limit {
                found.pop_last();
            }
            // What is below a root may be under way again, to be undone, until it is locked.
            if found.values().all(|tree| tree.len() == 1) || before.as_ref() == Some(&found) {
                return Ok(found);
            }
            self.runs(&found.values().flatten().copied().collect())
                .await?;
            before = Some(found);
        }
    }

    /// What one call set off together, in order. The run whose call it was is locked.
    pub(super) async fn scope(
        &mut self,
        (run, execution, call): (RunId, u32, u32),
    ) -> Result<Vec<RunId>, Trouble> {
        let values = values![Id::from(run), number(execution.into()), number(call.into())];
        let rows = self.link.all(SCOPE, values).await?;
        let found = rows.iter().map(|row| cells::run_id(row, 0));
        let found = found.collect::<Result<Vec<RunId>, _>>()?;
        self.runs(&found.iter().copied().collect()).await?;
        if found.iter().any(|run| self.known.missed.runs.contains(run)) {
            self.known.missed.runs.insert(run);
        }
        Ok(found)
    }

    /// A run that a publication set off, if one is left. The publication is locked, so none is
    /// added; that it is there is all that counts.
    pub(super) async fn heard(
        &mut self,
        id: roundel_core::PublicationId,
    ) -> Result<Found, Trouble> {
        let rows = self.link.all(HEARD, values![Id::from(id)]).await?;
        let runs = rows.iter().map(|row| cells::run_id(row, 0));
        let runs = runs.collect::<Result<Vec<RunId>, _>>()?;
        Ok(Found {
            runs,
            ..Found::default()
        })
    }

    /// Workers that were not seen for long. Those that somebody else has just now are left to them.
    pub(super) async fn unseen(
        &mut self,
        limit: usize,
        now: Timestamp,
    ) -> Result<Vec<WorkerId>, Trouble> {
        let values = values![now.before(limits::UNSEEN).0, number(limit as u64)];
        let rows = self.link.all(UNSEEN, values).await?;
        let found = rows.iter().map(|row| {
            let id = cells::run_id(row, 0)?;
            Ok(WorkerId::from_bytes(*id.as_bytes()))
        });
        let mut found = found.collect::<Result<Vec<_>, Trouble>>()?;
        self.workers(&found.iter().copied().collect()).await?;
        found.retain(|worker| self.rows.workers.get(worker).is_some());
        Ok(found)
    }

    /// The publications to a topic whose window is open. The topic is held.
    pub(super) async fn open_publications(
        &mut self,
        (namespace, topic): (&Name, &Name),
        now: Timestamp,
    ) -> Result<Vec<roundel_core::PublicationId>, Trouble> {
        let values = values![namespace.as_str(), topic.as_str(), now.0];
        let rows = self.link.all(OPEN_PUBLICATIONS, values).await?;
        let found = rows.iter().map(|row| {
            let id = cells::run_id(row, 0)?;
            Ok(roundel_core::PublicationId::from_bytes(*id.as_bytes()))
        });
        let found = found.collect::<Result<Vec<_>, Trouble>>()?;
        self.publications(&found.iter().copied().collect()).await?;
        let missed = &self.known.missed.publications;
        if found.iter().any(|id| missed.contains(id)) {
            let key = (namespace.clone(), topic.clone());
            self.known.missed.topics.insert(key);
        }
        Ok(found)
    }
}

/// What a claim asks the database for, in these lanes.
fn due_values(
    asked: &Asked<'_>,
    passed: &BTreeSet<RunId>,
    lanes: Vec<i32>,
) -> Result<PgArguments, Trouble> {
    let most = i64::try_from(asked.limit).unwrap_or(i64::MAX);
    let passed: Vec<Id> = passed.iter().copied().map(Id::from).collect();
    Ok(values![
        lanes,
        asked.now.0,
        most,
        passed,
        Id::from(asked.worker)
    ])
}

/// What is due, in order; and of each level, when the first was.
type Seen = BTreeMap<Level, Option<Timestamp>>;

fn found_in(asked: &Asked<'_>, rows: &[PgRow], of_keys: &OfKeys) -> Result<(Found, Seen), Trouble> {
    let mut due: Vec<Due> = Vec::new();
    due.resize_with(asked.lanes.len(), Due::default);
    let (mut found, mut seen) = (Found::default(), Seen::new());
    for row in rows {
        let at = Timestamp(row.int(3)?.unwrap_or_default());
        let place = usize::try_from(row.int(0)?.unwrap_or(1) - 1).unwrap_or_default();
        let (suspect, priority) = (row.int(1)? != Some(0), row.int(2)?.unwrap_or_default());
        let level = (
            asked.lanes[place],
            suspect,
            i32::try_from(priority).unwrap_or_default(),
        );
        let first = seen.entry(level).or_default();
        if row.bytes(4)?.is_none() {
            found.next = Some(found.next.map_or(at, |next| next.min(at)));
            continue;
        }
        *first = Some(first.map_or(at, |first| first.min(at)));
        let candidate = (
            priority,
            at.0,
            cells::run_id(row, 4)?,
            row.int(5)? == Some(1),
        );
        match suspect {
            false => due[place].innocent.push(candidate),
            true => due[place].suspect.push(candidate),
        }
    }
    // One more than is taken tells that there is more; one that may be held back tells nothing.
    let mut free = asked.take + 1;
    let mut plain = 0;
    for (lane, id) in due.iter_mut().zip(asked.lanes) {
        found
            .runs
            .extend(of_keys.runs.get(id).into_iter().flatten());
        lane.innocent.sort_unstable();
        let of_it = asked.due.lanes.iter().find(|(of, _)| of == id);
        let most = of_it.map_or(0, |(_, most)| *most);
        for (.., run, doubtful) in lane.innocent.iter().take(most) {
            if free == 0 || plain == asked.limit {
                break;
            }
            plain += 1;
            free -= usize::from(!doubtful && !asked.limited.contains(id));
            found.runs.push(*run);
        }
    }
    found.looked_at.clone_from(&of_keys.looked_at);
    let suspects = due.iter().flat_map(|lane| &lane.suspect);
    let suspects = suspects.chain(&of_keys.suspects);
    found.runs.extend(suspects.min().map(|(.., run, _)| *run));
    Ok((found, seen))
}

/// There are few lanes.
pub(super) fn lane_number(lane: LaneId) -> i32 {
    i32::try_from(lane.0).unwrap_or(i32::MAX)
}
