//! The rows, and how one request changes them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use roundel_core::{
    Accepted, Caused, Changes, Due as Asked, FactId, FactRow, Hint, JournalRow, Name, Need, Op,
    PublicationId, QueueId, Refusal, Reply, Rows, RunId, Scope, Stage, Timestamp, WorkerId, Write,
    decide, limits, needs,
};
use rustc_hash::FxHashMap;

use super::faults::{Fate, Faults, Point};
use super::index::Index;
use super::work::{Companion, Copied};
use crate::{Ask, Clock, Error};

/// Everything that the store holds.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) tables: Tables,
    pub(crate) companion: Companion,
    pub(super) faults: Option<Arc<dyn Faults>>,
}

/// Every row.
#[derive(Clone, Default)]
pub(crate) struct Tables {
    pub(crate) rows: Rows,
    pub(super) rest: Rest,
    pub(super) index: Index,
    /// What was decided, if somebody keeps it elsewhere.
    pub(crate) kept: Option<Vec<Changes>>,
}

/// What `Rows` has no place for.
#[derive(Clone, Default)]
pub(super) struct Rest {
    /// By run, all executions, in order.
    pub(super) journals: FxHashMap<RunId, Vec<JournalRow>>,
    pub(super) labels: BTreeMap<(RunId, Name), String>,
    /// Facts, in the order in which they were recorded.
    pub(super) facts: Vec<FactId>,
}

/// Everything, as it was at some time.
#[derive(Clone)]
pub struct Snapshot {
    tables: Tables,
    companion: Copied,
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Snapshot({} runs)", self.tables.index.runs().count())
    }
}

impl State {
    pub(super) fn snapshot(&self) -> Snapshot {
        Snapshot {
            tables: self.tables.clone(),
            companion: self.companion.copy(),
        }
    }

    pub(super) fn restore(&mut self, snapshot: &Snapshot) {
        self.tables = snapshot.tables.clone();
        self.companion.restore(&snapshot.companion);
    }

    /// Takes one request through its transaction.
    pub(super) fn answer(
        &mut self,
        ask: &mut Ask,
        clock: &dyn Clock,
        hints: &mut Vec<Hint>,
    ) -> Result<Reply, Error> {
        let Some(faults) = self.faults.clone() else {
            let result = self.transact(ask, clock);
            self.companion.commit();
            hints.extend(self.tables.rows.take_hints());
            return result;
        };
        let injected = || "a fault was injected".to_owned();
        let begin = faults.at(Point::Begin);
        if begin == Fate::Abort {
            return Err(Error::Unavailable(injected()));
        }
        let before = faults.may_abort().then(|| self.tables.clone());
        let result = self.transact(ask, clock);
        let commit = faults.at(Point::Commit);
        if commit == Fate::Abort {
            self.tables = before.expect("it may be aborted");
            self.companion.rollback();
            return Err(Error::Unavailable(injected()));
        }
        self.companion.commit();
        let told = self.tables.rows.take_hints();
        let fates = [begin, commit, faults.at(Point::Committed)];
        if fates.iter().any(|fate| *fate != Fate::Proceed) {
            return Err(Error::Unknown(injected()));
        }
        hints.extend(told);
        result
    }

    pub(crate) fn transact(&mut self, ask: &mut Ask, clock: &dyn Clock) -> Result<Reply, Error> {
        match ask {
            Ask::Op(op) => Ok(self.tables.decide(op, clock.now())?),
            Ask::Work(work) => self.companion.work(work.as_mut(), &mut self.tables, clock),
        }
    }
}

fn is_about_scope(caused: &Caused) -> bool {
    let scope = match caused {
        Caused::Cancel(scope) | Caused::RollBack(_, scope, _) => scope,
        _ => return false,
    };
    matches!(scope, Scope::Call { .. })
}

impl Tables {
    /// Loads, decides, writes.
    pub(super) fn decide(&mut self, op: &Op, now: Timestamp) -> Result<Reply, Refusal> {
        self.search(op, now);
        let reply = decide(op, &mut self.rows, now);
        match &mut self.kept {
            None => self.accept(),
            Some(_) => self.keep(),
        }
        reply
    }

    fn accept(&mut self) {
        let (index, rest) = (&mut self.index, &mut self.rest);
        self.rows.accept_changes(|accepted| match accepted {
            Accepted::Run(row) => index.note(row.id, Some(row)),
            Accepted::Journal(row) => rest.add(row),
            Accepted::Fact(id) => rest.facts.push(id.clone()),
            Accepted::Label(run, name, value) => drop(rest.labels.insert((run, name), value)),
            Accepted::Deleted(run) => {
                index.note(run, None);
                rest.forget(run);
            }
        });
    }

    /// The same, and what changed is there to be taken.
    fn keep(&mut self) {
        let changes = self.rows.take_changes();
        if changes.is_empty() {
            return;
        }
        for change in &changes.runs {
            self.index.note(change.row().id, Some(change.row()));
        }
        changes
            .journal
            .iter()
            .for_each(|row| self.rest.add(row.clone()));
        for (run, name, value) in changes.labels.clone() {
            self.rest.labels.insert((run, name), value);
        }
        let facts = changes.facts.iter().map(|(id, _)| id.clone());
        self.rest.facts.extend(facts);
        for run in &changes.deleted {
            self.index.note(*run, None);
            self.rest.forget(*run);
        }
        self.kept.get_or_insert_default().push(changes);
    }

    /// What was decided elsewhere happens here too.
    pub(crate) fn absorb(&mut self, changes: Changes) {
        self.rows.absorb(changes);
        self.accept();
    }

    /// Everything, as what an empty store would have to absorb.
    pub(crate) fn all(&self) -> Changes {
        let put = |(id, row): (&FactId, &FactRow)| (id.clone(), Write::Insert(row.clone()));
        let labels = self.rest.labels.iter();
        Changes {
            journal: self.rest.rounds(),
            facts: self.facts_in_order().map(put).collect(),
            labels: labels
                .map(|((run, name), value)| (*run, name.clone(), value.clone()))
                .collect(),
            ..self.rows.all()
        }
    }

    /// All rows are here; only searches have to be made.
    fn search(&mut self, op: &Op, now: Timestamp) {
        let op = op.asked();
        self.count_permits(op, now);
        let stage = match op {
            Op::Claim(claim) => {
                let asked = Asked::of(claim, &self.rows);
                let due = self.index.due(&asked, now);
                (self.rows.found, self.rows.found_next) = (due.runs, due.next);
                self.rows.looked_at = due.looked_at;
                return;
            }
            Op::Delete(_) | Op::Complete(_) | Op::Resume(_) => Stage::Rest,
            Op::Forget(_) => Stage::Runs,
            Op::Subscribe(subscribe) => {
                let open = self.open_publications(&subscribe.namespace, &subscribe.topic, now);
                self.rows.open_publications = open;
                return;
            }
            Op::Register(_) | Op::Declare(_) | Op::Follow(_) => Stage::Runs,
            Op::Commit(round) if round.caused.iter().any(is_about_scope) => Stage::Runs,
            _ => return,
        };
        let mut wanted = Vec::with_capacity(2);
        needs(op, &self.rows, stage, &mut wanted);
        for need in wanted {
            match need {
                Need::Unseen(limit) => self.rows.unseen = self.unseen(limit, now),
                Need::Subtree(run, limit) => self.rows.found = self.index.tree(run, limit),
                Need::Tail(after, limit, _) => {
                    self.rows.tail = Arc::new(self.tail(after, limit));
                }
                Need::Sweep(namespace, from, limit) => {
                    self.rows.swept = self.swept(&namespace, &from, limit);
                }
                Need::Heard(id) => self.rows.found = self.index.heard(id).into_iter().collect(),
                Need::Scope(run, execution, call) => {
                    let scope = (run, execution, call);
                    let found = self.index.scope(scope, 0).collect();
                    self.rows.scopes.insert(scope, found);
                }
                _ => {}
            }
        }
    }

    /// How many permits the queues have given that a claim or a start asks, or any that has limits.
    fn count_permits(&mut self, op: &Op, now: Timestamp) {
        if !self.rows.has_limits() {
            return;
        }
        self.rows.permits.clear();
        let mut wanted = Vec::new();
        self.rows.searched_at = now;
        needs(op, &self.rows, Stage::Gates, &mut wanted);
        let asked = wanted.into_iter().filter_map(|need| match need {
            Need::Permits(queue) => Some(queue),
            _ => None,
        });
        let limited = self.rows.queues.iter().map(|(queue, _)| queue.clone());
        for queue in asked.chain(limited).collect::<BTreeSet<QueueId>>() {
            let count = self.permits(&queue);
            self.rows.permits.insert(queue, count);
        }
    }

    pub(super) fn permits(&self, queue: &QueueId) -> BTreeMap<Option<Name>, u32> {
        let mut held = BTreeMap::new();
        for lane in self.rows.lanes_of(queue) {
            for (key, count) in self.index.permits(lane) {
                *held.entry(key).or_default() += count;
            }
        }
        held
    }

    fn unseen(&self, limit: usize, now: Timestamp) -> Vec<WorkerId> {
        let long_ago = now.before(limits::UNSEEN);
        let all = self.rows.workers.iter();
        let unseen = all.filter(|(_, row)| row.seen_at < long_ago);
        unseen.map(|(id, _)| *id).take(limit).collect()
    }

    fn open_publications(
        &self,
        namespace: &Name,
        topic: &Name,
        now: Timestamp,
    ) -> Vec<PublicationId> {
        let all = self.rows.publications.iter();
        let open = all.filter(|(_, row)| {
            let its = (&row.namespace, &row.topic) == (namespace, topic);
            its && row.closes_at.is_some_and(|at| at > now)
        });
        open.map(|(id, _)| *id).collect()
    }

    /// The journal of one execution, in order.
    pub(super) fn journal(&self, run: RunId, execution: u32) -> &[JournalRow] {
        let all = self.rest.journal(run);
        let first = all.partition_point(|row| row.execution < execution);
        let rest = &all[first..];
        &rest[..rest.partition_point(|row| row.execution == execution)]
    }
}

impl Rest {
    fn add(&mut self, row: JournalRow) {
        self.journals.entry(row.run).or_default().push(row);
    }

    /// The journal of a run, all executions, in order.
    pub(super) fn journal(&self, run: RunId) -> &[JournalRow] {
        self.journals.get(&run).map_or(&[], Vec::as_slice)
    }

    /// All journals, by run, in order.
    pub(super) fn rounds(&self) -> Vec<JournalRow> {
        let mut rounds: Vec<JournalRow> = self.journals.values().flatten().cloned().collect();
        rounds.sort_by_key(|row| row.run);
        rounds
    }

    fn forget(&mut self, run: RunId) {
        self.journals.remove(&run);
        let first = (run, Name::constant(" "));
        let labels = self
            .labels
            .range(first..)
            .take_while(|((of, _), _)| *of == run);
        let labels: Vec<_> = labels.map(|(key, _)| key.clone()).collect();
        labels.iter().for_each(|key| drop(self.labels.remove(key)));
    }
}
