//! Projections that follow, and those that are being built: this process takes up for them what
//! was recorded, as soon as it hears of it. Each step is one operation, decided while nobody else
//! has the projection; so any number of processes may do this at once, and none has to.

use std::sync::{Arc, Weak};
use std::time::Duration;

use roundel_core::{Build, Follow, Followed, Op, ProjectionRow, Refusal, Reply, limits};
use roundel_store::{Answer, Projected, Query};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::client::Inner;
use crate::projections::Registered;
use crate::{Client, Error};

/// Looks that follow each other at once, of facts before which others may still come, are this far
/// apart: at first, and at most.
const PAUSES: [Duration; 2] = [Duration::from_millis(2), Duration::from_secs(1)];

/// Takes facts up whenever there are some, until it is aborted or the client is gone.
pub(crate) fn follow(inner: &Arc<Inner>, facts: Arc<Notify>) -> JoinHandle<()> {
    let (inner, clock) = (Arc::downgrade(inner), inner.post.store().clock().clone());
    facts.notify_one();
    tokio::spawn(async move {
        let [mut pause, longest] = PAUSES;
        loop {
            facts.notified().await;
            let again = match Weak::upgrade(&inner) {
                None => return,
                Some(inner) => inner.catch_up().await,
            };
            match again {
                Ok(Settled::All) => [pause, _] = PAUSES,
                Ok(Settled::NotYet) => {
                    clock.sleep_until(clock.now().after(pause)).await;
                    pause = (pause * 2).min(longest);
                    facts.notify_one();
                }
                Err(Error::Closed) => return,
                Err(error) => {
                    tracing::warn!(%error, "projections could not be brought further");
                    clock.sleep_until(clock.now().after(longest)).await;
                    facts.notify_one();
                }
            }
        }
    })
}

/// Is there something that has to be looked at again?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Settled {
    All,
    /// There are facts before which others may still come.
    NotYet,
}

impl Inner {
    /// Makes known what this process has. What is read as soon as it is recorded is built first.
    pub(crate) async fn declare_projections(&self) -> Result<(), Error> {
        for registered in &self.projections.all {
            let declared = registered.declared.clone();
            let inline = declared.inline;
            let Reply::Projected(row) = self.op(Op::Declare(declared)).await? else {
                unreachable!("a projection answers as one")
            };
            if inline && row.next.is_some() {
                let [mut pause, longest] = PAUSES;
                while self.further(registered, row.clone()).await? == Settled::NotYet {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(longest);
                }
            }
        }
        Ok(())
    }

    pub(crate) async fn projected(&self, count: bool) -> Result<Projected, Error> {
        let namespace = Some(self.namespace.clone());
        match self.read(Query::Projections { namespace, count }).await? {
            Answer::Projections(projected) => Ok(projected),
            _ => unreachable!("projections were asked for"),
        }
    }

    /// Brings all projections of this process to where facts are.
    pub(crate) async fn catch_up(&self) -> Result<Settled, Error> {
        let known = self.projected(false).await?;
        let mut all = Settled::All;
        for registered in &self.projections.all {
            let id = &registered.declared.projection;
            let row = known.projections.iter().find(|(known, _)| known == id);
            let Some((_, row)) = row else { continue };
            let live = row.live.as_ref().filter(|live| !live.inline);
            let behind = live.is_some_and(|live| live.position < known.head);
            if !behind && row.next.is_none() && row.sweep.is_none() {
                continue;
            }
            if self.further(registered, row.clone()).await? == Settled::NotYet {
                all = Settled::NotYet;
            }
        }
        Ok(all)
    }

    /// Brings one to where facts are, and what is being built beside it.
    async fn further(&self, registered: &Registered, row: ProjectionRow) -> Result<Settled, Error> {
        let mut settled = Settled::All;
        let builds = [row.live.as_ref(), row.next.as_ref()];
        let builds = builds.into_iter().flatten().cloned();
        for build in builds.filter(|build| build.version == registered.folds.version) {
            let (is_live, swept) = (row.live.as_ref() == Some(&build), row.sweep.is_some());
            if is_live && build.inline && !swept {
                continue;
            }
            if self.build(registered, &build, is_live).await? == Settled::NotYet {
                settled = Settled::NotYet;
            }
        }
        Ok(settled)
    }

    async fn build(
        &self,
        registered: &Registered,
        build: &Build,
        is_live: bool,
    ) -> Result<Settled, Error> {
        let mut alone = false;
        loop {
            let Some(came) = self.step(registered, build.generation, alone).await? else {
                return Ok(Settled::All);
            };
            let next = came.row.next.as_ref();
            let goes_on = next.is_some_and(|next| next.generation == build.generation);
            let stuck = came
                .row
                .build(build.generation)
                .and_then(|build| build.stuck.as_ref());
            if let Some(stuck) = stuck {
                let (projection, fact) = (&registered.folds.name, &stuck.fact);
                let failure = &stuck.failure;
                tracing::error!(%projection, %fact, %failure, "a projection cannot fold a fact in");
                return Ok(Settled::All);
            }
            match (came.more, goes_on && build.inline && !is_live) {
                // Too much was recorded meanwhile: it is taken up first.
                (true, _) => alone = false,
                (false, true) if !alone => alone = true,
                (false, _) if came.unsettled => return Ok(Settled::NotYet),
                (false, _) => return Ok(Settled::All),
            }
        }
    }

    /// One operation; nothing if there is no such building any more.
    async fn step(
        &self,
        registered: &Registered,
        generation: u32,
        alone: bool,
    ) -> Result<Option<Followed>, Error> {
        let op = Op::Follow(Follow {
            projection: registered.declared.projection.clone(),
            generation,
            folds: registered.folds.clone(),
            limit: if alone {
                limits::FOLLOWED_ALONE
            } else {
                limits::FOLLOWED
            },
            alone,
        });
        match self.op(op).await {
            Ok(Reply::Followed(followed)) => Ok(Some(followed)),
            Err(Error::Refused(Refusal::UnknownProjection { .. })) => Ok(None),
            Err(error) => Err(error),
            Ok(_) => unreachable!("a projection answers as one"),
        }
    }
}

impl Client {
    /// Lets the projections of this process take up all facts that are settled, now. They do it by
    /// themselves soon after; this is for whoever must not read before.
    ///
    /// # Errors
    /// When the database cannot be used.
    pub async fn catch_up(&self) -> Result<(), Error> {
        let [mut pause, longest] = PAUSES;
        while self.inner.catch_up().await? == Settled::NotYet {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(longest);
        }
        Ok(())
    }
}
