//! What was removed takes up room until the server has looked at it again, and it does that once a
//! minute at best: where runs are kept for a short time, a minute of load is most of the database.
//! So whoever removes much also asks for that, on a connection of its own.
//!
//! Invariant: looking takes one part in so many of the time, however large the tables are.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::link::Link;
use super::shared::Shared;

/// After so many runs were removed.
const AFTER: u64 = 5_000;
/// One part in so many of the time.
const PART: u32 = 4;
/// And so far apart at least.
const PAUSE: Duration = Duration::from_millis(500);

/// How many runs were removed since the server was last asked.
#[derive(Default)]
pub(super) struct Removals {
    runs: AtomicU64,
    some: tokio::sync::Notify,
}

impl Removals {
    /// So many more, and that is committed.
    pub(super) fn note(&self, runs: usize) {
        if runs > 0 {
            self.runs.fetch_add(runs as u64, Ordering::Relaxed);
            self.some.notify_one();
        }
    }

    /// Waits until it is worth asking.
    async fn are_many(&self) {
        while self.runs.load(Ordering::Relaxed) < AFTER {
            self.some.notified().await;
        }
        self.runs.store(0, Ordering::Relaxed);
    }
}

/// Makes room, for as long as the store is open.
pub(super) async fn make_room(shared: Arc<Shared>) {
    loop {
        shared.removals.are_many().await;
        let began = Instant::now();
        if let Err(error) = look(&shared).await {
            tracing::debug!(%error, "the server was not asked to make room");
        }
        tokio::time::sleep((began.elapsed() * PART).max(PAUSE)).await;
    }
}

async fn look(shared: &Shared) -> Result<(), sqlx::Error> {
    let mut link = Link::connect(&shared.connect, false).await?;
    let looked = link.run(&shared.begin.vacuum).await;
    link.close().await;
    looked
}
