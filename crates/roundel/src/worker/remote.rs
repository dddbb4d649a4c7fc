//! Commands for workers elsewhere: what such a worker has claimed is brought to its call here, and
//! from there to its end once the answer has come. In between nothing of it is in memory: lease,
//! fence and journal are the database's, so any process can take the answer.

use std::sync::Arc;

use roundel_core::{Claim, Claimed, Fence, LaneId, Name, Op, Reply, Timestamp, WorkerId};
use roundel_store::Error;

use super::drive::After;
use super::{Config, Handlers, Port, Worker};
use crate::live::Turn;
use crate::metrics::Counters;
use crate::post::Post;
use crate::rests::Rests;

/// How far a run was brought.
pub(crate) enum Brought {
    /// To a call that somebody elsewhere answers, under this fence.
    Asked(Fence),
    /// To where it waits, has ended or is parked.
    AtRest,
    /// Nowhere: it is somebody else's, or nobody knows.
    Lost,
}

impl Worker {
    /// One that acts under the id of somebody elsewhere. It neither claims nor renews by itself.
    pub(crate) fn elsewhere(
        id: WorkerId,
        config: Config,
        (post, handlers): (Arc<Post>, Handlers),
        shared: (Arc<Counters>, Arc<Rests>),
    ) -> Arc<Worker> {
        let worker = Worker::new(config, post, Arc::new(handlers), shared);
        Arc::new(Worker { id, ..worker })
    }

    /// What its lanes are, where it need not register.
    pub(crate) fn knows(&self, lane: LaneId, workflow: (Name, u32)) {
        let _ = self.lanes.set(vec![(lane, workflow)]);
    }

    /// Claims so many runs at most; says when there may be more.
    pub(crate) async fn claim(
        &self,
        limit: usize,
    ) -> Result<(Vec<Claimed>, Option<Timestamp>), Error> {
        let claim = Claim {
            worker: self.id,
            lanes: self.lane_ids(),
            limit,
            lease: self.config.lease,
        };
        match self.post.op(Op::Claim(claim)).await? {
            Reply::Claimed { runs, next } => Ok((runs, next)),
            _ => unreachable!("a claim answers with runs"),
        }
    }

    /// Brings a run that was claimed as far as it goes without whoever is asked.
    pub(crate) async fn bring(
        self: &Arc<Self>,
        claimed: Claimed,
        is_asked: impl Fn() -> bool + Send,
    ) -> Brought {
        let port = Port::new(Arc::default());
        let Some(mut live) = self.load(claimed, &port).await else {
            return Brought::Lost;
        };
        loop {
            if let Some(sealed) = live.sealed() {
                self.unread(live, &sealed).await;
                return Brought::Lost;
            }
            let turn = live.turn(self.store().now());
            if matches!(turn, Turn::Wait(_)) && is_asked() {
                return Brought::Asked(live.fence());
            }
            match self.carry_out(live, turn, &port).await {
                After::Mine(still) => live = still,
                After::Gone => return Brought::AtRest,
                After::Lost => return Brought::Lost,
            }
        }
    }
}
