//! Batches of a few commands, some of which are there already.

use super::{Draw, Maker};
use crate::{BATCH, Batch, Start};

impl Maker<'_> {
    /// Now and then a batch stands where a plain start would.
    pub(super) fn batched(&self, start: Start, draw: &mut Draw) -> Start {
        let plain = start.claimant.is_none() && start.first.is_none() && start.signal.is_none();
        if !plain || !draw.one_in(4) {
            return start;
        }
        let namespace = match draw.one_in(30) {
            true => self.start(draw).namespace,
            false => start.namespace.clone(),
        };
        let its = |draw: &mut Draw| Start {
            namespace: namespace.clone(),
            ..self.start(draw)
        };
        let parent = Some(Batch::parent(start.run));
        let member = |draw: &mut Draw| Start {
            parent,
            ..its(draw)
        };
        let members = (0..draw.below(4)).map(|_| member(draw)).collect();
        let then = draw.one_in(2).then(|| its(draw));
        Start {
            workflow: BATCH,
            version: Some(1),
            batch: Some(Box::new(Batch { members, then })),
            ..start
        }
    }
}
