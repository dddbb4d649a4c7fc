//! The rows, and how one request changes them.

use std::collections::BTreeMap;
use std::sync::Arc;

use roundel_core::{
    Caused, Hint, JournalRow, Name, Need, Op, PublicationId, Reply, Rows, RunId, Scope, Stage,
    Timestamp, decide, needs,
};

use super::faults::{Fate, Faults, Point};
use super::index::Index;
use super::work::{Companion, Copied};
use crate::{Ask, Clock, Error};

/// Everything that the store holds.
#[derive(Default)]
pub(super) struct State {
    pub(super) tables: Tables,
    pub(super) companion: Companion,
    pub(super) faults: Option<Arc<dyn Faults>>,
}

/// Every row.
#[derive(Clone, Default)]
pub(super) struct Tables {
    pub(super) rows: Rows,
    pub(super) journal: BTreeMap<(RunId, u32, u64), JournalRow>,
    pub(super) labels: BTreeMap<(RunId, Name), String>,
    pub(super) index: Index,
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

    fn transact(&mut self, ask: &mut Ask, clock: &dyn Clock) -> Result<Reply, Error> {
        match ask {
            Ask::Op(op) => self.tables.decide(op, clock.now()),
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
    pub(super) fn decide(&mut self, op: &Op, now: Timestamp) -> Result<Reply, Error> {
        self.search(op, now);
        let reply = decide(op, &mut self.rows, now);
        let index = &mut self.index;
        let changes = self.rows.accept_changes(|run, row| index.note(run, row));
        for row in changes.journal {
            self.journal
                .insert((row.run, row.execution, row.first), row);
        }
        for (run, name, value) in changes.labels {
            self.labels.insert((run, name), value);
        }
        for run in changes.deleted {
            self.forget(run);
        }
        Ok(reply?)
    }

    /// All rows are here; only searches have to be made.
    fn search(&mut self, op: &Op, now: Timestamp) {
        let stage = match op {
            Op::Claim(_) => Stage::Runs,
            Op::Delete(_) => Stage::Rest,
            Op::Subscribe(subscribe) => {
                let open = self.open_publications(&subscribe.namespace, &subscribe.topic, now);
                self.rows.open_publications = open;
                return;
            }
            Op::Commit(round) if round.caused.iter().any(is_about_scope) => Stage::Runs,
            _ => return,
        };
        let mut wanted = Vec::new();
        needs(op, &self.rows, stage, &mut wanted);
        for need in wanted {
            match need {
                Need::Due(lanes, limit) => {
                    let due = self.index.due(&lanes, limit, now);
                    (self.rows.found, self.rows.found_next) = (due.runs, due.next);
                }
                Need::Subtree(run, limit) => self.rows.found = self.index.tree(run, limit),
                Need::Scope(run, execution, call) => {
                    let scope = (run, execution, call);
                    let found = self.index.scope(scope, 0).collect();
                    self.rows.scopes.insert(scope, found);
                }
                _ => {}
            }
        }
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

    fn forget(&mut self, run: RunId) {
        let journal = self.journal.range((run, 0, 0)..=(run, u32::MAX, u64::MAX));
        let journal: Vec<_> = journal.map(|(key, _)| *key).collect();
        journal
            .iter()
            .for_each(|key| drop(self.journal.remove(key)));
        let first = (run, Name::constant(" "));
        let labels = self
            .labels
            .range(first..)
            .take_while(|((of, _), _)| *of == run);
        let labels: Vec<_> = labels.map(|(key, _)| key.clone()).collect();
        labels.iter().for_each(|key| drop(self.labels.remove(key)));
    }
}
