//! One transaction: many operations are taken through the stages together, each stage with a few
//! statements whatever their number; then they are decided in order, and written.
//!
//! | what an operation needs | what becomes of it |
//! |---|---|
//! | all of it is in memory | decided |
//! | somebody else has some of it | set aside, with all behind it that need the same |
//! | something that an earlier one has changed | loaded again in another pass |
//! | a search | another pass, after what was decided has been written |
//!
//! Invariant: rows that are changed are locked, and were read after that. The time is taken after
//! the locks.

use std::collections::BTreeMap;
use std::sync::Arc;

use roundel_core::{
    DocumentId, Hint, Lane, LaneId, Need, Op, PublicationId, QueueId, Reply, Rows, RunChange,
    RunId, Stage, Tail, Timestamp, WorkerId, decide, limits, needs,
};

use super::clock::ServerClock;
use super::kept::Limits;
use super::known::{self, Known, is_search};
use super::link::{Link, values};
use super::load::{LANES, Loading, Wanted};
use super::locks::Patience;
use super::marks::Marks;
use super::search::{Asked, Found};
use super::trouble::Trouble;
use super::values::{Id, Xid};
use super::write::{self, Turn};
use crate::cells::Cells;
use crate::turns::Turns;
use crate::{Clock, Error};

/// The time, and how many lanes there are.
const LOOK: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, \
     (SELECT coalesce(max(id), 0) FROM roundel_lane)::bigint";
/// Whoever makes lanes does it alone.
const LOCK_LANES: &str = "LOCK TABLE roundel_lane IN SHARE ROW EXCLUSIVE MODE";

/// What was searched for one operation.
#[derive(Default)]
struct Searched {
    /// After so many decisions; it holds until the next.
    at: Option<u64>,
    /// It is a whole tree, ended and locked: it holds whatever is decided.
    settled: bool,
    /// The order in which a claim looks at lanes.
    turns: Option<Vec<LaneId>>,
    found: Found,
    open: Vec<PublicationId>,
    unseen: Vec<WorkerId>,
    scopes: BTreeMap<(RunId, u32, u32), Vec<RunId>>,
    tail: Arc<Tail>,
    swept: Vec<DocumentId>,
}

/// What one transaction came to.
#[derive(Default)]
pub(super) struct Came {
    /// Which batch of this process it is, and whether there is something to commit.
    pub(super) number: u64,
    pub(super) written: bool,
    /// What was decided, in order; nothing for those that were set aside.
    pub(super) results: Vec<Option<Result<Reply, Error>>>,
    pub(super) hints: Vec<Hint>,
    /// The runs that were written, and by which transaction.
    pub(super) runs: Vec<RunChange>,
    pub(super) by: Option<Xid>,
    /// The limits of queues that were written, if their permits are counted.
    pub(super) queues: Vec<(QueueId, Option<Limits>)>,
    /// How many runs were removed.
    pub(super) removed: usize,
    /// It was one round of a run that was there: its journal says whether it was committed.
    pub(super) lone: bool,
}

/// What every transaction begins with: lanes, which only become more, and whose turn it is.
pub(super) struct Session {
    lanes: Vec<Lane>,
    turns: Turns,
    marks: Marks,
    clock: Arc<dyn Clock>,
    /// The server's clock, unless another one was given.
    server: Option<Arc<ServerClock>>,
}

/// One transaction.
struct Batch<'a> {
    session: &'a mut Session,
    link: &'a mut Link,
    rows: Rows,
    known: Known,
    patience: Patience,
    pass: u32,
    now: Timestamp,
    /// How many lanes the rows had when that was last known to be right.
    lanes: usize,
    /// Decisions that changed something, and of them those that are written.
    decided: u64,
    flushed: u64,
    came: Came,
}

impl Session {
    pub(super) fn new(clock: Arc<dyn Clock>, server: Option<Arc<ServerClock>>) -> Session {
        Session {
            lanes: Vec::new(),
            turns: Turns::default(),
            marks: Marks::default(),
            clock,
            server,
        }
    }

    /// Decides these operations in the transaction that is open, and writes what changed. If
    /// anything did, and that is said, it is noted which batch of which process this was.
    pub(super) async fn run(
        &mut self,
        link: &mut Link,
        ops: &[&Op],
        (patience, note): (Patience, Option<(Id, u64)>),
    ) -> Result<Came, Trouble> {
        let mut rows = Rows::default();
        rows.load_lanes(self.lanes.clone());
        let lanes = self.lanes.len();
        let mut batch = Batch {
            now: self.clock.now(),
            session: self,
            link,
            rows,
            known: Known::default(),
            patience,
            pass: 0,
            lanes,
            decided: 0,
            flushed: 0,
            came: Came::default(),
        };
        batch.all(ops).await?;
        batch.flush(Turn::Last(note)).await?;
        batch.came.hints = batch.rows.take_hints();
        let mut came = batch.came;
        for (queue, limits) in &mut came.queues {
            *limits = Limits::of(queue, &batch.rows);
        }
        let lanes = batch.rows.lanes();
        if self.lanes.len() != lanes.len() {
            self.lanes = lanes.to_vec();
        }
        Ok(came)
    }

    /// The lanes that are known, and the time.
    pub(super) fn known(&self) -> (&[Lane], Timestamp) {
        (&self.lanes, self.clock.now())
    }

    /// The server has said what time it is.
    pub(super) fn set_time(&self, now: Timestamp) {
        if let Some(server) = &self.server {
            server.set(now);
        }
    }

    /// One for a transaction beside, which knows the same lanes.
    pub(super) fn beside(&self) -> Session {
        Session {
            lanes: self.lanes.clone(),
            turns: Turns::default(),
            marks: Marks::default(),
            clock: Arc::clone(&self.clock),
            server: self.server.clone(),
        }
    }

    /// A transaction was lost: lanes that it made are not there.
    pub(super) fn forget(&mut self) {
        self.lanes.clear();
    }
}

impl Batch<'_> {
    async fn all(&mut self, ops: &[&Op]) -> Result<(), Trouble> {
        let mut searched: Vec<Searched> = Vec::new();
        searched.resize_with(ops.len(), Searched::default);
        let mut next = 0;
        while next < ops.len() {
            let (before, lanes) = (next, self.rows.lanes().len());
            self.load(&ops[next..], &mut searched[next..]).await?;
            self.look().await?;
            while next < ops.len() {
                let op = ops[next];
                match self.state_of(op, &mut searched[next]) {
                    Ready::Yes => {
                        let result = self.decide(op, &mut searched[next]).await?;
                        self.came.results.push(Some(result));
                    }
                    Ready::Missed => self.came.results.push(None),
                    Ready::Not => break,
                }
                next += 1;
                let goes_on = searched.get(next).is_some_and(|next| next.settled);
                if self.rows.has_deleted() && !goes_on {
                    self.flush(Turn::Between).await?;
                    break;
                }
            }
            // Lanes that others have made may say that a queue has limits, which are then needed.
            if next == before && self.rows.lanes().len() == lanes {
                let what = format!("{:?} never has what it needs", ops[next]);
                return Err(Trouble::Culprit(what));
            }
            self.pass += 1;
        }
        Ok(())
    }

    /// Loads what these need and is not there. A search is made for the first of them only: by the
    /// time that another one's turn comes, its answer would be old.
    async fn load(&mut self, ops: &[&Op], searched: &mut [Searched]) -> Result<(), Trouble> {
        let first = ops[0];
        if self.pass > 0 {
            // Lists are looked for in the database.
            self.flush(Turn::Between).await?;
        }
        let mut found = Vec::new();
        for stage in Stage::ALL {
            let mut wanted = Wanted::default();
            let (mut search, mut roots) = (Vec::new(), Vec::new());
            for (at, op) in ops.iter().enumerate() {
                self.put(&searched[at]);
                needs(op, &self.rows, stage, &mut found);
                self.take_back();
                for need in found.drain(..) {
                    if let (Need::Subtree(run, _), Patience::Skip) = (&need, self.patience) {
                        roots.push((*run, at));
                    } else if is_search(&need) {
                        if at == 0 {
                            search.push(need);
                        }
                    } else if !self.known.has(op, &need, &self.rows) {
                        wanted.add(op, need);
                    }
                }
            }
            self.loading().all(wanted).await?;
            self.find_trees(&roots, searched).await?;
            if !search.is_empty() {
                self.flush(Turn::Between).await?;
                for need in search {
                    self.search(first, need, &mut searched[0]).await?;
                }
            }
        }
        Ok(())
    }

    /// Trees that are to go, all at once. Those that are not whole trees, or have not ended, are
    /// found by whoever is alone.
    async fn find_trees(
        &mut self,
        asked: &[(RunId, usize)],
        searched: &mut [Searched],
    ) -> Result<(), Trouble> {
        let rows = &self.rows;
        let has_ended = |run: &RunId| {
            let row = rows.run(*run);
            row.is_some_and(|row| row.root == row.id && row.state.has_ended())
        };
        let new = asked.iter().filter(|(_, at)| !searched[*at].settled);
        let new: BTreeMap<RunId, usize> = new.copied().filter(|(run, _)| has_ended(run)).collect();
        if new.is_empty() {
            return Ok(());
        }
        let roots: Vec<RunId> = new.keys().copied().collect();
        let found = self.loading().subtrees(&roots, limits::DELETE + 1).await?;
        for (root, runs) in found {
            let to = &mut searched[new[&root]];
            to.settled = true;
            to.found.missed = runs.iter().any(|run| self.known.missed.runs.contains(run));
            to.found.runs = runs;
        }
        Ok(())
    }

    fn loading(&mut self) -> Loading<'_> {
        Loading {
            link: self.link,
            rows: &mut self.rows,
            known: &mut self.known,
            patience: self.patience,
            pass: self.pass,
        }
    }

    async fn search(&mut self, op: &Op, need: Need, to: &mut Searched) -> Result<(), Trouble> {
        let now = self.now;
        match need {
            Need::Due(due) => {
                let turns = &mut self.session.turns;
                let lanes: Vec<LaneId> = due.lanes.iter().map(|(lane, _)| *lane).collect();
                let known = to.turns.take().filter(|known| known.len() == lanes.len());
                let order = known.unwrap_or_else(|| turns.order(lanes.iter().copied()));
                to.turns = Some(order.clone());
                let Op::Claim(claim) = op else {
                    unreachable!("only claims look for what is due");
                };
                let limited = order.iter().copied();
                let limited = limited.filter(|lane| self.rows.is_limited(*lane)).collect();
                let asked = Asked {
                    lanes: &order,
                    limited: &limited,
                    due: &due,
                    limit: due.limit,
                    take: claim.limit.min(limits::CLAIM),
                    worker: claim.worker,
                    now,
                    // A clock of its own may stand still while the marks grow old.
                    from_marks: self.session.server.is_some(),
                };
                let mut marks = std::mem::take(&mut self.session.marks);
                to.found = self.loading().due(&asked, &mut marks).await?;
                self.session.marks = marks;
                self.loading().ahead(&due, now, &mut to.found).await?;
            }
            Need::Unseen(limit) => to.unseen = self.loading().unseen(limit, now).await?,
            Need::Subtree(run, limit) => to.found = self.loading().subtree(run, limit).await?,
            Need::Tail(after, limit, settled) => {
                let found = self.loading().tail(after, (limit, settled)).await?;
                to.tail = Arc::new(found);
            }
            Need::Sweep(namespace, path, limit) => {
                to.swept = self.loading().sweep((&namespace, &path), limit).await?;
            }
            Need::Heard(id) => to.found = self.loading().heard(id).await?,
            Need::Scope(run, execution, call) => {
                let scope = (run, execution, call);
                let found = self.loading().scope(scope).await?;
                to.scopes.insert(scope, found);
            }
            Need::OpenPublications(namespace, topic) => {
                let key = (namespace.clone(), topic.clone());
                self.loading().topic(&key, known::hold_of(op)).await?;
                let names = (&namespace, &topic);
                to.open = self.loading().open_publications(names, now).await?;
            }
            _ => unreachable!("no search"),
        }
        to.at = Some(self.decided);
        Ok(())
    }

    /// Puts what was searched for an operation where the rules look for it.
    fn put(&mut self, searched: &Searched) {
        self.rows.found.clone_from(&searched.found.runs);
        self.rows.found_next = searched.found.next;
        self.rows.open_publications.clone_from(&searched.open);
        self.rows.unseen.clone_from(&searched.unseen);
        self.rows.scopes.clone_from(&searched.scopes);
        self.rows.tail.clone_from(&searched.tail);
        self.rows.swept.clone_from(&searched.swept);
        self.rows.looked_at.clone_from(&searched.found.looked_at);
        self.rows.searched_at = self.now;
    }

    fn take_back(&mut self) {
        self.rows.found.clear();
        self.rows.found_next = None;
        self.rows.open_publications.clear();
        self.rows.unseen.clear();
        self.rows.scopes.clear();
        self.rows.tail = Arc::default();
        self.rows.swept.clear();
        self.rows.looked_at.clear();
    }

    /// Can it be decided now?
    fn state_of(&mut self, op: &Op, searched: &mut Searched) -> Ready {
        let (mut all, mut ready) = (Vec::new(), Ready::Yes);
        self.put(searched);
        for stage in Stage::ALL {
            let from = all.len();
            needs(op, &self.rows, stage, &mut all);
            for need in &all[from..] {
                if self.known.missed.has(need) || searched.found.missed {
                    // Without a permit it waits to be claimed.
                    if is_permit_of_start(op, need) {
                        continue;
                    }
                    ready = Ready::Missed;
                }
                let tree = matches!(need, Need::Subtree(..)) && self.patience == Patience::Skip;
                if tree && !searched.settled {
                    ready = Ready::Missed;
                }
                let there = match is_search(need) {
                    true => searched.settled || searched.at == Some(self.decided),
                    false => self.known.has(op, need, &self.rows),
                };
                if !there && ready == Ready::Yes {
                    ready = Ready::Not;
                }
            }
            if ready != Ready::Yes {
                break;
            }
        }
        self.take_back();
        if ready == Ready::Missed {
            all.iter().for_each(|need| self.known.missed.note(need));
        }
        ready
    }

    async fn decide(
        &mut self,
        op: &Op,
        searched: &mut Searched,
    ) -> Result<Result<Reply, Error>, Trouble> {
        self.put(searched);
        let result = decide(op, &mut self.rows, self.now);
        self.take_back();
        self.decided += u64::from(result.is_ok());
        if self.rows.lanes().len() > self.lanes {
            self.hold_lanes().await?;
        }
        Ok(result.map_err(Error::from))
    }

    /// A lane was made, under the next number. That is right only if nobody else makes any.
    async fn hold_lanes(&mut self) -> Result<(), Trouble> {
        self.link.run(LOCK_LANES).await?;
        let stored = self.link.all(LANES, values![]).await?.len();
        if stored != self.lanes {
            return Err(Trouble::Lanes);
        }
        self.flush(Turn::Between).await?;
        self.lanes = self.rows.lanes().len();
        Ok(())
    }

    /// The time, now that everything is locked; and the lanes that others have made.
    async fn look(&mut self) -> Result<(), Trouble> {
        let rows = self.link.all(LOOK, values![]).await?;
        let (micros, lanes) = (rows[0].int(0)?, rows[0].int(1)?);
        let server = self.session.server.as_ref();
        if let (Some(server), Some(micros)) = (server, micros) {
            server.set(Timestamp(micros));
        }
        self.now = self.now.max(self.session.clock.now());
        let lanes = usize::try_from(lanes.unwrap_or_default()).unwrap_or_default();
        if lanes > self.rows.lanes().len() {
            self.loading().load_lanes().await?;
        }
        self.lanes = self.rows.lanes().len();
        Ok(())
    }

    async fn flush(&mut self, turn: Turn) -> Result<(), Trouble> {
        let is_last = matches!(turn, Turn::Last(_));
        if self.flushed == self.decided && !(is_last && self.came.written) {
            return Ok(());
        }
        self.flushed = self.decided;
        let mut changes = self.rows.take_changes();
        if changes.is_empty() && !(is_last && self.came.written) {
            return Ok(());
        }
        self.came.written = true;
        self.came.removed += changes.deleted.len();
        let queues = changes.queues.iter();
        let queues = queues.map(|(queue, _)| (queue.clone(), None));
        self.came.queues.extend(queues);
        // Neighbours lie on the same pages; and two who write the same do it in the same order.
        changes.runs.sort_by_key(|change| change.row().id);
        changes.journal.sort_by_key(|row| row.run);
        let rows = (&self.rows, turn);
        let written = write::all(self.link, &changes, rows, &mut self.known.empty).await?;
        self.came.by = written.map(|written| written.by).or(self.came.by);
        self.came.runs.append(&mut changes.runs);
        Ok(())
    }
}

/// Is it about whether what is started is leased at once? It is started in any case.
fn is_permit_of_start(op: &Op, need: &Need) -> bool {
    let about = matches!(need, Need::Queue(_) | Need::Permits(_));
    about && matches!(op.asked(), Op::Start(_))
}

/// Can an operation be decided?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ready {
    Yes,
    Missed,
    Not,
}
