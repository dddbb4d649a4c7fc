//! What a run in memory has read for it: its state, the runs above it, how those below it ended.

use std::sync::Arc;
use std::time::Duration;

use roundel_core::{Payload, RunId, Scope, ScopeEnd, Target};
use roundel_store::{Answer, Error, Query, RunView, Store};

use super::Worker;
use super::drive::After;
use super::unread::sealed_ends;
use crate::live::LiveRun;
use crate::seal::sealed_state;

impl Worker {
    /// Reads what a call of the run asks for.
    pub(super) async fn read(self: &Arc<Self>, mut live: Box<LiveRun>, call: u32) -> After {
        let answer = match live.reads_lineage(call) {
            true => self
                .lineage_of(live.run())
                .await
                .map(|lineage| (0, lineage)),
            false => self.state_of(live.run()).await,
        };
        match answer {
            Ok((version, value)) => match sealed_state(&value) {
                Some(sealed) => return self.unread(live, &sealed).await,
                None => live.state_read(call, (version, value)),
            },
            Err(Error::Closed) => {
                self.forget(live.run());
                return After::Lost;
            }
            Err(_) => {
                let until = self.store().now().after(Duration::from_millis(20));
                self.store().clock().sleep_until(until).await;
                live.read_again(call);
            }
        }
        After::Mine(live)
    }

    /// The run's state and its version.
    async fn state_of(&self, run: RunId) -> Result<(u64, Payload), Error> {
        let Answer::State(state) = self.store().read(Query::State(run)).await? else {
            unreachable!("a state was asked for")
        };
        let state = state.map(|state| (state.version, state.value));
        Ok(state.unwrap_or_else(|| (0, Payload::null())))
    }

    /// The runs above this one, from the root down, and this one last.
    async fn lineage_of(&self, run: RunId) -> Result<Payload, Error> {
        let (mut lineage, mut next) = (Vec::new(), Some(run));
        while let Some(id) = next {
            lineage.push(id);
            let query = Query::Run(self.config.namespace.clone(), Target::Run(id));
            let Answer::Run(view) = self.store().read(query).await? else {
                unreachable!("a run was asked for")
            };
            next = view
                .and_then(|view| view.row.parent)
                .map(|parent| parent.run);
        }
        lineage.reverse();
        Ok(Payload::encode(&lineage).expect("ids have a JSON form"))
    }

    /// Reads how the runs of a scope ended.
    pub(super) async fn settle(
        self: &Arc<Self>,
        mut live: Box<LiveRun>,
        call: u32,
        scope: Scope,
    ) -> After {
        match self.ends_of(live.run(), scope).await {
            Ok(ends) => match sealed_ends(&ends) {
                Some(sealed) => return self.unread(live, &sealed).await,
                None => live.settled(call, ends),
            },
            Err(Error::Closed) => {
                self.forget(live.run());
                return After::Lost;
            }
            Err(_) => {
                let until = self.store().now().after(Duration::from_millis(20));
                self.store().clock().sleep_until(until).await;
            }
        }
        After::Mine(live)
    }

    async fn ends_of(&self, run: RunId, scope: Scope) -> Result<Vec<ScopeEnd>, Error> {
        let runs = match scope {
            Scope::Child(child) => {
                let query = Query::Run(self.config.namespace.clone(), Target::Run(child));
                let Answer::Run(view) = self.store().read(query).await? else {
                    unreachable!("a run was asked for")
                };
                view.into_iter().map(|view| *view).collect()
            }
            Scope::Call { execution, call } => {
                scope_runs(&**self.store(), run, (execution, call)).await?
            }
        };
        Ok(runs.into_iter().map(scope_end).collect())
    }
}

/// All runs that one call set off together, in order, page by page.
pub(crate) async fn scope_runs(
    store: &dyn Store,
    run: RunId,
    (execution, call): (u32, u32),
) -> Result<Vec<RunView>, Error> {
    let mut runs: Vec<RunView> = Vec::new();
    loop {
        let last = runs.last().and_then(|view| view.row.number);
        let query = Query::Scope {
            run,
            execution,
            call,
            from: last.map_or(0, |last| last + 1),
        };
        let Answer::Runs(page) = store.read(query).await? else {
            unreachable!("runs were asked for")
        };
        let more = page.more && !page.items.is_empty();
        runs.extend(page.items);
        if !more {
            return Ok(runs);
        }
    }
}

/// How a run ended, if it has.
fn scope_end(view: RunView) -> ScopeEnd {
    let RunView { row, lane, .. } = view;
    ScopeEnd::of(&row, lane.workflow)
}
