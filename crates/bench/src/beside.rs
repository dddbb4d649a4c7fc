//! The raw limit beside a workload: short slices of both, in turn.
//!
//! A shared machine is half as fast again from one minute to the next. Two figures that were taken
//! one after the other say little about each other; the medians of slices that were taken in turn
//! do.

use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::Error;
use crate::limit::server::Server;
use crate::limit::{Disk, Rows};
use crate::percentile::median;

/// One slice: short enough that an engine is not idle for a second while others have their turn,
/// since it then moves its log into the database.
pub(crate) const SLICE: Duration = Duration::from_millis(if cfg!(test) { 20 } else { 300 });
/// What comes before it and is not counted: a workload gets going.
pub(crate) const WARM_UP: Duration = Duration::from_millis(if cfg!(test) { 5 } else { 100 });

/// Runs, and syncs of the disk or round trips, that take turns in latency mode.
pub(crate) const TURN: usize = 20;

/// How many slices make up this time: at least three, so that one odd slice is not the median.
pub(crate) fn slices(time: Duration) -> usize {
    let slices = time.as_millis() / SLICE.as_millis();
    usize::try_from(slices).unwrap_or(usize::MAX).max(3)
}

/// How long something may take to happen at all.
const PATIENCE: Duration = Duration::from_secs(60);

/// How much is counted per second over a slice; over more than one, if nothing has happened in it.
pub(crate) async fn rate(mut count: impl FnMut() -> Result<f64, Error>) -> Result<f64, Error> {
    let (begin, before) = (Instant::now(), count()?);
    loop {
        tokio::time::sleep(SLICE).await;
        let (counted, elapsed) = (count()? - before, begin.elapsed());
        if counted > 0.0 || elapsed > PATIENCE {
            return Ok(counted / elapsed.as_secs_f64());
        }
    }
}

/// What the machine could do at most at the time of a workload.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Raw {
    /// The raw limit: rows per second in batches of a hundred.
    pub limit_rows_per_second: f64,
    /// Over a file: appending 4 KiB and syncing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fdatasync_p50_us: Option<f64>,
    /// Over a file: the workload's median latency, in such syncs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_fdatasyncs: Option<f64>,
    /// On a server: one row inserted and committed, there and back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub round_trip_p50_us: Option<f64>,
    /// On a server: the workload's median latency, in such round trips.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_round_trips: Option<f64>,
}

/// The raw limit, in slices.
pub(crate) struct Beside {
    place: Place,
    /// Syncs of the disk, or round trips of one row.
    syncs_us: Vec<f64>,
    rows_per_second: Vec<f64>,
}

enum Place {
    Disk { disk: Disk, rows: Rows },
    Server(Box<Server>),
}

impl Beside {
    /// With files in this folder.
    pub(crate) fn on_disk(dir: &Path) -> Result<Beside, Error> {
        let disk = Disk::open(&dir.join("append"))?;
        let mut rows = Rows::open(&dir.join("rows.db"))?;
        tokio::task::block_in_place(|| rows.write_for(WARM_UP))?;
        Ok(Beside::at(Place::Disk { disk, rows }))
    }

    /// With tables in this schema, which is made.
    pub(crate) async fn on_server(url: &str, schema: &str) -> Result<Beside, Error> {
        let mut server = Server::open(url, schema).await?;
        server.write_for(WARM_UP).await?;
        Ok(Beside::at(Place::Server(Box::new(server))))
    }

    fn at(place: Place) -> Beside {
        Beside {
            place,
            syncs_us: Vec::new(),
            rows_per_second: Vec::new(),
        }
    }

    /// A slice of rows.
    pub(crate) async fn rows(&mut self) -> Result<(), Error> {
        let written = match &mut self.place {
            Place::Disk { rows, .. } => tokio::task::block_in_place(|| rows.write_for(SLICE))?,
            Place::Server(server) => server.write_for(SLICE).await?,
        };
        self.rows_per_second.push(written.rows_per_second);
        Ok(())
    }

    /// So many syncs of the disk alone, or round trips.
    pub(crate) async fn syncs(&mut self, count: usize) -> Result<(), Error> {
        for _ in 0..count {
            let took = match &mut self.place {
                Place::Disk { disk, .. } => tokio::task::block_in_place(|| disk.sync())?,
                Place::Server(server) => server.round_trip().await?,
            };
            self.syncs_us.push(took);
        }
        Ok(())
    }

    /// The disk's turn, or the server's, before every so many runs of latency mode.
    pub(crate) async fn syncs_in_turn(&mut self, run: usize) -> Result<(), Error> {
        if run.is_multiple_of(TURN) {
            self.syncs(TURN).await?;
        }
        Ok(())
    }

    pub(crate) fn rows_per_second(&self) -> f64 {
        median(&self.rows_per_second)
    }

    /// What was measured here, and a workload's median latency in its terms.
    pub(crate) fn raw(&self, p50_us: Option<f64>) -> Raw {
        let sync = (!self.syncs_us.is_empty()).then(|| median(&self.syncs_us));
        let in_syncs = p50_us.zip(sync).map(|(p50, sync)| p50 / sync);
        let limit_rows_per_second = self.rows_per_second();
        let none = Raw {
            limit_rows_per_second,
            fdatasync_p50_us: None,
            p50_fdatasyncs: None,
            round_trip_p50_us: None,
            p50_round_trips: None,
        };
        match self.place {
            Place::Disk { .. } => Raw {
                fdatasync_p50_us: sync,
                p50_fdatasyncs: in_syncs,
                ..none
            },
            Place::Server(_) => Raw {
                round_trip_p50_us: sync,
                p50_round_trips: in_syncs,
                ..none
            },
        }
    }
}
