//! Brings a claimed run into memory from its journal.

use std::sync::Arc;
use std::time::Duration;

use roundel_core::{Claimed, Context, Failure, JournalRow, Op, RunId, Then};
use roundel_store::{Answer, Ask, Query};

use super::drive::After;
use super::line::Entry;
use super::{Config, Pauses, Port, Worker};
use crate::cx::shared::RunInfo;
use crate::flag::Flag;
use crate::live::{Driver, Journal, LiveRun};
use crate::seal::sealed_entries;

impl Worker {
    pub(super) async fn load_and_drive(
        self: Arc<Self>,
        claimed: Claimed,
        (port, entry): (Arc<Port>, Entry),
    ) {
        let run = claimed.run;
        match self.load(claimed, &port).await {
            Some(live) => self.drive(live, (port, entry)).await,
            None => self.forget(run),
        }
    }

    /// Brings a claimed run into memory from its journal.
    pub(super) async fn load(&self, claimed: Claimed, port: &Arc<Port>) -> Option<Box<LiveRun>> {
        let rows = self.journal(claimed.run, claimed.execution).await?;
        let info = self.info(&claimed)?;
        let handler = self.handlers.get(&(info.workflow.clone(), info.version))?;
        if let Some(sealed) = sealed_entries(&rows) {
            self.unread_journal(&claimed, &sealed).await;
            return None;
        }
        let driver = self.driver(port.flag.clone());
        let live = match Journal::decode(&rows) {
            Err(failure) => {
                self.park_unread(&claimed, failure).await;
                return None;
            }
            Ok(journal) => {
                if !journal.entries.is_empty() && journal.needs_function(&claimed) {
                    self.counters.replays.one();
                }
                LiveRun::load(info, handler, journal, (claimed, driver))
            }
        };
        Some(live)
    }

    /// The journal of an execution; none if the database does not say.
    async fn journal(&self, run: RunId, execution: u32) -> Option<Vec<JournalRow>> {
        let query = Query::Journal {
            run,
            execution,
            after: 0,
            limit: usize::MAX,
        };
        let mut pauses = Pauses::of(self.id.0, Duration::from_millis(5));
        loop {
            match self.store().read(query.clone()).await {
                Ok(Answer::Journal(page)) => return Some(page.items),
                Ok(_) => unreachable!("a journal was asked for"),
                Err(error) if error.is_passing() && !self.is_stopping() => {
                    let until = self.store().now().after(pauses.next());
                    self.store().clock().sleep_until(until).await;
                }
                Err(_) => return None,
            }
        }
    }

    /// Reads what an earlier execution of a run did.
    pub(super) async fn recall(self: &Arc<Self>, mut live: Box<LiveRun>, execution: u32) -> After {
        let Some(rows) = self.journal(live.run(), execution).await else {
            self.forget(live.run());
            return After::Lost;
        };
        if let Some(sealed) = sealed_entries(&rows) {
            return self.unread(live, &sealed).await;
        }
        live.recalled(execution, &rows, |workflow, version| {
            self.handlers.get(&(workflow.clone(), version)).cloned()
        });
        After::Mine(live)
    }

    /// Parks a run whose journal cannot be read.
    pub(super) async fn park_unread(&self, claimed: &Claimed, failure: Failure) {
        let mut round = roundel_core::Round::new(claimed.run, self.id, claimed.epoch);
        round.created_at = Some(claimed.created_at);
        round.then = Then::Park(Box::new(failure));
        let ask = Ask::Op(Op::Commit(round));
        if self.insist(Box::new(ask)).await.is_ok() {
            self.counters.runs_parked.one();
        }
    }

    fn info(&self, claimed: &Claimed) -> Option<RunInfo> {
        let (workflow, version) = self.workflow_of(claimed.lane)?.clone();
        Some(RunInfo {
            namespace: self.config.namespace.clone(),
            run: claimed.run,
            workflow,
            version,
            execution: claimed.execution,
            key: claimed.key.clone(),
            is_root: claimed.parent.is_none(),
            deadlines: claimed.deadlines,
            context: Context::default(),
        })
    }

    pub(super) fn driver(&self, flag: Arc<Flag>) -> Driver {
        let Config { lease, grace, .. } = self.config;
        let counters = self.counters.clone();
        Driver {
            worker: self.id,
            name: self.config.name.clone(),
            lease,
            grace,
            flag,
            counters,
            undos: self.config.undos.clone(),
            projections: self.config.projections.clone(),
        }
    }
}
