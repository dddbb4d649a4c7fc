//! What has ended long ago is removed, so that a database stays as large as what is in use.
//!
//! No index says what ended when: that would cost every run something at its end, and keep its row
//! from being changed in place. Instead, what is old is read in the order of its ids, which are
//! ordered by time, and a pass that looked long at what stays is followed by a long pause.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures_util::stream::{self, StreamExt};
use roundel_core::{
    Forget, Keep, Name, Op, PublicationId, RETENTION, Refusal, Reply, Retention, RunId, Timestamp,
};

use super::{Client, Runs};
use crate::ids::first_id_at;
use crate::{Error, RunView};

/// Trees that are removed at once. Their commits are fused.
const AT_ONCE: usize = 128;

/// What ended before some time, to be removed or counted. Await it to remove it.
#[must_use = "await it, or count it"]
pub struct Prune {
    client: Client,
    ended_before: Timestamp,
    workflow: Option<Result<Name, Error>>,
    pass: Pass,
}

impl std::fmt::Debug for Prune {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Prune(ended before {:?})", self.ended_before)
    }
}

/// Trees of one workflow that have ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EndedTrees {
    /// How many.
    pub trees: usize,
    /// Runs in them.
    pub runs: usize,
    /// When the first of them ended.
    pub oldest: Timestamp,
}

impl Client {
    /// Removes the trees whose root ended before this time, and what clients published before this
    /// time and nobody works on. Returns how many runs went. Removes in small commits, so that
    /// others are not held up; what ends meanwhile waits for the next call.
    pub fn prune(&self, ended_before: Timestamp) -> Prune {
        Prune {
            client: self.clone(),
            ended_before,
            workflow: None,
            pass: Pass::default(),
        }
    }
}

impl Prune {
    /// Only trees whose root is of this workflow, or this queue; no publications.
    pub fn of(mut self, workflow: impl Into<Cow<'static, str>>) -> Prune {
        self.workflow = Some(Name::new(workflow.into()).map_err(Error::from));
        self
    }

    /// Tells now and then how many runs went so far.
    pub fn told(mut self, told: impl FnMut(usize) + Send + 'static) -> Prune {
        self.pass.told = Some(Box::new(told));
        self
    }

    /// Removes nothing: says what would go, by the workflows of the roots.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn count(self) -> Result<BTreeMap<Name, EndedTrees>, Error> {
        let only = self.workflow.transpose()?;
        let first = RunId::from_bytes(first_id_at(self.ended_before));
        let mut page = self.client.runs().limit(1000).after(first);
        // Newest first: what is below a root is seen before it.
        let mut below = BTreeMap::<RunId, usize>::new();
        let mut found = BTreeMap::<Name, EndedTrees>::new();
        loop {
            let runs = page.fetch().await?;
            for run in &runs.items {
                let row = &run.row;
                if row.parent.is_some() {
                    *below.entry(row.root).or_default() += 1;
                    continue;
                }
                let below = below.remove(&row.id).unwrap_or_default();
                let wanted = only.as_ref().is_none_or(|name| *name == run.lane.workflow);
                if !wanted || !goes(run, self.ended_before) {
                    continue;
                }
                let none = EndedTrees {
                    trees: 0,
                    runs: 0,
                    oldest: row.changed_at,
                };
                let of = found.entry(run.lane.workflow.clone()).or_insert(none);
                of.trees += 1;
                of.runs += 1 + below;
                of.oldest = of.oldest.min(row.changed_at);
            }
            match runs.items.last() {
                Some(last) if runs.more => page = page.after(last.row.id),
                _ => return Ok(found),
            }
        }
    }

    async fn remove(mut self) -> Result<usize, Error> {
        let (client, before) = (&self.client, self.ended_before);
        match self.workflow.transpose()? {
            Some(name) => {
                let runs = client.runs().of(name.as_str().to_owned())?;
                client
                    .prune_runs(runs, before, |_| true, &mut self.pass)
                    .await?;
            }
            None => {
                let runs = client.runs();
                client
                    .prune_runs(runs, before, |_| true, &mut self.pass)
                    .await?;
                client.prune_publications(before, &mut self.pass).await?;
            }
        }
        Ok(self.pass.removed)
    }
}

impl IntoFuture for Prune {
    type Output = Result<usize, Error>;
    type IntoFuture = super::Boxed<Result<usize, Error>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.remove())
    }
}

/// Is it the root of a tree that ended before then?
fn goes(run: &RunView, ended_before: Timestamp) -> bool {
    let row = &run.row;
    // What is kept for how long is itself kept, also if somebody ended the run that says so.
    let ours = run.lane.workflow == RETENTION;
    row.parent.is_none() && row.state.has_ended() && row.changed_at < ended_before && !ours
}

impl Client {
    /// What is said about each workflow or queue, and about all the rest.
    pub(super) async fn prune_kept(&self, kept: &Retention, pass: &mut Pass) -> Result<(), Error> {
        let now = self.now();
        for (name, keep) in &kept.workflows {
            let Some(keep) = keep.span() else { continue };
            let runs = self.runs().of(name.as_str().to_owned())?;
            self.prune_runs(runs, now.before(keep), |_| true, pass)
                .await?;
        }
        let Some(keep) = kept.ended.and_then(Keep::span) else {
            return Ok(());
        };
        let rest = |run: &RunView| !kept.workflows.contains_key(&run.lane.workflow);
        let before = now.before(keep);
        self.prune_runs(self.runs(), before, rest, pass).await?;
        self.prune_publications(before, pass).await
    }

    /// Of these runs, the roots that ended before then, with all below them.
    async fn prune_runs(
        &self,
        runs: Runs,
        ended_before: Timestamp,
        which: impl Fn(&RunView) -> bool,
        pass: &mut Pass,
    ) -> Result<(), Error> {
        // A run that ended before then was also started before then.
        let first = RunId::from_bytes(first_id_at(ended_before));
        let mut page = runs.limit(1000).after(first);
        loop {
            let began = Instant::now();
            let found = page.look().await?;
            let took = began.elapsed();
            let of_these = found.items.iter().filter(|run| which(run));
            let old = of_these.filter(|run| goes(run, ended_before));
            let old: Vec<RunId> = old.map(|run| run.row.id).collect();
            pass.looked(took, old.len(), found.items.len());
            let mut deletes = stream::iter(old)
                .map(|run| self.delete(run))
                .buffer_unordered(AT_ONCE);
            while let Some(deleted) = deletes.next().await {
                pass.went(unless_gone(deleted)?);
            }
            match found.next {
                Some(next) => page = page.after(next),
                None => return Ok(()),
            }
        }
    }

    async fn prune_publications(&self, before: Timestamp, pass: &mut Pass) -> Result<(), Error> {
        for topic in self.topics_counted(0).await? {
            let first = PublicationId::from_bytes(first_id_at(before));
            let mut next = Some(first);
            while let Some(at) = next {
                let began = Instant::now();
                let page = self.publications(topic.topic.clone(), Some(at), 1000);
                let page = page.await?;
                let took = began.elapsed();
                let old = page.items.iter().filter(|(_, row)| row.by.is_none());
                let old: Vec<PublicationId> = old.map(|(id, _)| *id).collect();
                let mut forgets = stream::iter(old)
                    .map(|id| self.forget(id))
                    .buffer_unordered(AT_ONCE);
                let mut gone = 0;
                while let Some(forgotten) = forgets.next().await {
                    gone += usize::from(forgotten?);
                }
                pass.looked(took, gone, page.items.len());
                next = page.items.last().filter(|_| page.more).map(|(id, _)| *id);
            }
        }
        Ok(())
    }

    /// Removes a publication of a client's that nobody works on. Returns whether it went.
    async fn forget(&self, publication: PublicationId) -> Result<bool, Error> {
        let namespace = self.inner.namespace.clone();
        let forget = Forget {
            namespace,
            publication,
        };
        let Reply::Forgotten(gone) = self.inner.op(Op::Forget(forget)).await? else {
            unreachable!("a request to forget answers as one")
        };
        Ok(gone)
    }
}

/// What a pass came to.
#[derive(Default)]
pub(super) struct Pass {
    pub(super) removed: usize,
    /// How long it looked at what stays.
    pub(super) in_vain: Duration,
    told: Option<Box<dyn FnMut(usize) + Send>>,
}

impl Pass {
    fn went(&mut self, runs: usize) {
        self.removed += runs;
        if let Some(told) = &mut self.told {
            told(self.removed);
        }
    }

    /// A page took so long to read, and so many of its items went. One without any was passed in
    /// vain: what is pruned lies among others.
    fn looked(&mut self, took: Duration, went: usize, items: usize) {
        let stays = match items {
            0 => 1.0,
            _ => items.saturating_sub(went) as f64 / items as f64,
        };
        self.in_vain += took.mul_f64(stays);
    }
}

/// Somebody else may have removed it first, or asked for what it did to be undone.
fn unless_gone(deleted: Result<usize, Error>) -> Result<usize, Error> {
    match deleted {
        Err(Error::NoSuchRun(_)) => Ok(0),
        Err(Error::Refused(Refusal::NotEnded { .. })) => Ok(0),
        other => other,
    }
}
