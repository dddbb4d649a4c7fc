//! Steps: user code, run inside a transaction of a SQLite database in memory.

use roundel_core::{Op, Reply, Timestamp, may_step};

use super::state::Tables;
use crate::{Error, Tx, Work};

/// The database that steps write to.
#[derive(Clone, Debug, Default)]
pub(super) struct Companion;

impl Companion {
    /// Runs a step and commits its round with what it wrote, or neither.
    pub(super) fn work(
        &mut self,
        work: &mut dyn Work,
        tables: &mut Tables,
        now: Timestamp,
    ) -> Result<Reply, Error> {
        let (run, worker, epoch) = work.lease();
        may_step(&tables.rows, run, worker, epoch)?;
        let worked = work.run(Tx { number: 0 });
        tables.decide(&Op::Commit(worked.round), now)
    }
}
