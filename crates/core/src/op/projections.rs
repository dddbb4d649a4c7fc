//! Projections: declared, built anew, and brought further.

use crate::{Folds, Name, ProjectionId, limits};

/// Make a projection known that a process has.
#[derive(Clone, PartialEq, Debug)]
pub struct Declare {
    /// Which.
    pub projection: ProjectionId,
    /// The version of its code.
    pub version: u32,
    /// Does it fold facts in by the commits that record them?
    pub inline: bool,
    /// The kinds of facts that it folds, in order.
    pub kinds: Vec<Name>,
}

/// Make all documents of a projection anew, from all facts, beside those that are there.
#[derive(Clone, PartialEq, Debug)]
pub struct Rebuild {
    /// Which.
    pub projection: ProjectionId,
}

/// Pass over the fact that a projection cannot fold in.
#[derive(Clone, PartialEq, Debug)]
pub struct SkipFact {
    /// Which projection.
    pub projection: ProjectionId,
    /// Which fact.
    pub fact: Name,
}

/// Let a projection take up the facts that come next.
#[derive(Clone, PartialEq, Debug)]
pub struct Follow {
    /// Which.
    pub projection: ProjectionId,
    /// Which building of it.
    pub generation: u32,
    /// Its code.
    pub folds: Folds,
    /// So many facts at most.
    pub limit: usize,
    /// Nobody records meanwhile, so that an inline projection can take over: if these are all facts
    /// that there are. For the last step of building such a one, and for nothing else.
    pub alone: bool,
}

impl Follow {
    /// So many facts at most.
    pub(crate) fn most(&self) -> usize {
        let most = match self.alone {
            true => limits::FOLLOWED_ALONE,
            false => limits::FOLLOWED,
        };
        self.limit.min(most)
    }
}
