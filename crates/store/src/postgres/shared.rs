//! What the threads of one open database have in common.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use roundel_core::{Hint, RunId, WorkerId};
use sqlx::postgres::PgConnectOptions;

use super::Options;
use super::clock::ServerClock;
use super::link::Beginnings;
use super::vacuum::Removals;
use super::values::Id;
use crate::answers::Listeners;
use crate::queue::{self, Item, Queue};
use crate::{Clock, Metrics, News};

pub(super) struct Shared {
    pub(super) options: Options,
    pub(super) connect: PgConnectOptions,
    /// For operators' own statements.
    pub(super) reader: PgConnectOptions,
    /// Statements are kept from one use to the next.
    pub(super) keeps: bool,
    pub(super) begin: Beginnings,
    pub(super) clock: Arc<dyn Clock>,
    /// The same, if it is the server's.
    pub(super) server: Option<Arc<ServerClock>>,
    /// This opening of the database, by this process.
    pub(super) incarnation: Id,
    /// When the database had last been restored then.
    pub(super) restored: std::sync::OnceLock<Option<i64>>,
    pub(super) queue: Queue,
    pub(super) listeners: Listeners,
    pub(super) counters: Counters,
    /// Steps that are under way.
    pub(super) steps: AtomicUsize,
    /// Somebody waits for what other processes commit.
    pub(super) closely: AtomicBool,
    /// Something was committed that others may want to hear of.
    pub(super) news: tokio::sync::Notify,
    /// What others are to hear of.
    pub(super) fresh: Mutex<News>,
    /// Room for operators' own statements.
    pub(super) statements: tokio::sync::Semaphore,
    /// The workers of this process.
    pub(super) workers: Mutex<BTreeSet<WorkerId>>,
    /// Runs that were written beside the committer, since it last looked.
    pub(super) touched: Mutex<Vec<RunId>>,
    pub(super) removals: Removals,
}

/// Runs that others are told of at once.
const MOST_TOLD: usize = 5_000;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What has happened since it was opened.
#[derive(Debug, Default)]
pub(super) struct Counters {
    retries: AtomicU64,
    batches: AtomicU64,
    requests: AtomicU64,
    bytes: AtomicU64,
}

impl Counters {
    pub(super) fn retry(&self) {
        self.retries.fetch_add(1, Ordering::Relaxed);
    }
}

impl Shared {
    /// How long to wait for one answer of the server.
    pub(super) fn flight(&self) -> Duration {
        self.options.answer_within / 2
    }

    /// Has one of these waited longer than anybody should?
    pub(super) fn is_too_late(&self, batch: &[Item]) -> bool {
        batch.iter().any(|item| self.is_late(item.since))
    }

    /// Should what was asked then have been answered by now?
    pub(super) fn is_late(&self, since: Instant) -> bool {
        since.elapsed() > self.options.answer_within
    }

    pub(super) fn count(&self, batch: &[Item]) {
        let (counters, add) = (&self.counters, Ordering::Relaxed);
        counters.batches.fetch_add(1, add);
        counters.requests.fetch_add(batch.len() as u64, add);
        counters.bytes.fetch_add(queue::bytes(batch) as u64, add);
    }

    pub(super) fn metrics(&self) -> Metrics {
        let counters = &self.counters;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Metrics {
            busy: 0,
            retries: read(&counters.retries),
            batches: read(&counters.batches),
            requests: read(&counters.requests),
            bytes: read(&counters.bytes),
        }
    }

    pub(super) fn touched(&self) -> MutexGuard<'_, Vec<RunId>> {
        lock(&self.touched)
    }

    pub(super) fn workers(&self) -> MutexGuard<'_, BTreeSet<WorkerId>> {
        lock(&self.workers)
    }

    /// Other processes may have something to do.
    pub(super) fn tell_others(&self, hints: &[Hint]) {
        let mut fresh = lock(&self.fresh);
        let before = (fresh.ready, fresh.mail, fresh.facts, fresh.at_rest.len());
        for hint in hints {
            match hint {
                Hint::Ready(_, at) => {
                    fresh.ready = Some(fresh.ready.map_or(*at, |ready| ready.min(*at)));
                }
                Hint::Mail(_, owner, _) | Hint::Cancel(_, owner) => {
                    fresh.mail |= !self.workers().contains(&owner.worker);
                }
                Hint::Facts(_) => fresh.facts = true,
                // Whoever hears of fewer looks for himself, later.
                Hint::AtRest(run, ..) if fresh.at_rest.len() < MOST_TOLD => {
                    fresh.at_rest.push(*run);
                }
                Hint::AtRest(..) => {}
            }
        }
        if before != (fresh.ready, fresh.mail, fresh.facts, fresh.at_rest.len()) {
            self.news.notify_one();
        }
    }

    /// What others have not been told yet.
    pub(super) fn take_news(&self) -> News {
        std::mem::take(&mut *lock(&self.fresh))
    }
}
