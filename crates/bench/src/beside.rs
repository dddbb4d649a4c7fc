//! The raw limit beside a workload: short slices of both, in turn.
//!
//! A shared machine is half as fast again from one minute to the next. Two figures that were taken
//! one after the other say little about each other; the medians of slices that were taken in turn
//! do.

use std::path::Path;
use std::time::Duration;

use crate::Error;
use crate::limit::{Disk, Rows};
use crate::percentile::median;

/// One slice: short enough that an engine is not idle for a second while others have their turn,
/// since it then moves its log into the database.
pub(crate) const SLICE: Duration = Duration::from_millis(if cfg!(test) { 20 } else { 300 });
/// What comes before it and is not counted: a workload gets going.
pub(crate) const WARM_UP: Duration = Duration::from_millis(if cfg!(test) { 5 } else { 100 });

/// Runs, and syncs of the disk, that take turns in latency mode.
pub(crate) const TURN: usize = 20;

/// How many slices make up this time: at least three, so that one odd slice is not the median.
pub(crate) fn slices(time: Duration) -> usize {
    let slices = time.as_millis() / SLICE.as_millis();
    usize::try_from(slices).unwrap_or(usize::MAX).max(3)
}

/// The raw limit, in slices.
pub(crate) struct Beside {
    disk: Disk,
    rows: Rows,
    syncs_us: Vec<f64>,
    rows_per_second: Vec<f64>,
}

impl Beside {
    /// With files in this folder.
    pub(crate) fn open(dir: &Path) -> Result<Beside, Error> {
        let mut beside = Beside {
            disk: Disk::open(&dir.join("append"))?,
            rows: Rows::open(&dir.join("rows.db"))?,
            syncs_us: Vec::new(),
            rows_per_second: Vec::new(),
        };
        tokio::task::block_in_place(|| beside.rows.write_for(WARM_UP))?;
        Ok(beside)
    }

    /// A slice of rows.
    pub(crate) fn rows(&mut self) -> Result<(), Error> {
        let written = tokio::task::block_in_place(|| self.rows.write_for(SLICE))?;
        self.rows_per_second.push(written.rows_per_second);
        Ok(())
    }

    /// So many syncs of the disk alone.
    pub(crate) fn syncs(&mut self, count: usize) -> Result<(), Error> {
        tokio::task::block_in_place(|| {
            for _ in 0..count {
                self.syncs_us.push(self.disk.sync()?);
            }
            Ok(())
        })
    }

    /// The disk's turn, before every so many runs of latency mode.
    pub(crate) fn syncs_in_turn(&mut self, run: usize) -> Result<(), Error> {
        if run.is_multiple_of(TURN) {
            self.syncs(TURN)?;
        }
        Ok(())
    }

    pub(crate) fn rows_per_second(&self) -> f64 {
        median(&self.rows_per_second)
    }

    pub(crate) fn fdatasync_p50_us(&self) -> f64 {
        median(&self.syncs_us)
    }
}
