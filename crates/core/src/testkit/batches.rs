//! Batches of a few commands, some of which are there already.

use super::{Draw, FLOW_KEYS, Maker};
use crate::{BATCH, Batch, Dedupe, Start};

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

/// The start, sometimes as one of several that are alike.
pub(super) fn alike(start: Start, draw: &mut Draw) -> Start {
    let alone = start.batch.is_none() && start.signal.is_none() && start.parent.is_none();
    let dedupe = (alone && draw.one_in(4)).then(|| Dedupe {
        key: draw.pick(&FLOW_KEYS).clone(),
        window: draw.span(),
        last: draw.one_in(2),
    });
    Start { dedupe, ..start }
}
