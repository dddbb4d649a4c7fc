//! What the threads of one open file have in common: the way to the writer, and the ways back.

use std::fs::Metadata;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::Options;
use super::patience::Pause;
use super::readers::Reads;
use crate::Error;
use crate::answers::{Listeners, answer_all};
use crate::queue::{self, Item, Queue};

pub(super) struct Shared {
    pub(super) path: PathBuf,
    pub(super) options: Options,
    pub(super) identity: Identity,
    /// When the database was last restored, as it was opened.
    pub(super) restored: Option<i64>,
    /// This opening of the file, by this process.
    pub(super) incarnation: [u8; 16],
    pub(super) queue: Queue,
    pub(super) reads: Reads,
    pub(super) counters: Counters,
    pub(super) closely: AtomicBool,
    /// Operators' own statements that are under way.
    pub(super) statements: AtomicUsize,
    pub(super) pause: Pause,
    #[cfg(test)]
    pub(super) faults: Mutex<std::collections::VecDeque<super::faults::Fault>>,
    in_flight: Mutex<Option<Vec<Item>>>,
    pub(super) listeners: Listeners,
}

/// Which file it is, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    #[cfg(unix)]
    pub(super) fn of(file: &Metadata) -> Identity {
        use std::os::unix::fs::MetadataExt;
        Identity {
            device: file.dev(),
            inode: file.ino(),
        }
    }

    /// Elsewhere an open file cannot be replaced.
    #[cfg(not(unix))]
    pub(super) fn of(_: &Metadata) -> Identity {
        Identity {
            device: 0,
            inode: 0,
        }
    }
}

/// What has happened since the file was opened.
#[derive(Debug, Default)]
pub(super) struct Counters {
    busy: AtomicU64,
    retries: AtomicU64,
    batches: AtomicU64,
    requests: AtomicU64,
    bytes: AtomicU64,
}

impl Counters {
    pub(super) fn busy(&self) {
        self.busy.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn retry(&self) {
        self.retries.fetch_add(1, Ordering::Relaxed);
    }
}

/// A look at the counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metrics {
    /// Times another process had the write lock for longer than the busy time-out.
    pub busy: u64,
    /// Transactions that were not committed and had to be dealt with.
    pub retries: u64,
    /// Transactions.
    pub batches: u64,
    /// Requests decided in them.
    pub requests: u64,
    /// Bytes of entries and payloads in them.
    pub bytes: u64,
}

impl Shared {
    pub(super) fn new(
        path: PathBuf,
        options: Options,
        (identity, restored): (Identity, Option<i64>),
    ) -> Shared {
        Shared {
            path,
            options,
            identity,
            restored,
            incarnation: *uuid::Uuid::now_v7().as_bytes(),
            queue: Queue::default(),
            reads: Reads::default(),
            counters: Counters::default(),
            closely: AtomicBool::new(false),
            statements: AtomicUsize::new(0),
            pause: Pause::default(),
            #[cfg(test)]
            faults: Mutex::default(),
            in_flight: Mutex::new(None),
            listeners: Listeners::default(),
        }
    }

    /// Says why the file under this name is not the one that was opened, if it is not.
    pub(super) fn gone(&self) -> Option<String> {
        let path = self.path.display();
        match std::fs::metadata(&self.path) {
            Ok(file) if Identity::of(&file) == self.identity => None,
            Ok(_) => Some(format!(
                "the database {path} was replaced by another file while it was open; \
                 nothing more is written to either; restart to use the new one"
            )),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Some(format!(
                "the database {path} was deleted while it was open; nothing more is written; \
                 restore it and restart"
            )),
            // Something passing, such as too many open files: the database will tell.
            Err(_) => None,
        }
    }

    #[cfg(test)]
    pub(super) fn next_fault(&self) -> Option<super::faults::Fault> {
        lock(&self.faults).pop_front()
    }

    /// Has one of these waited longer than anybody should?
    pub(super) fn is_too_late(&self, batch: &[Item]) -> bool {
        let waited = batch.iter().map(|item| item.since.elapsed()).max();
        waited.is_none_or(|waited| waited > self.options.answer_within)
    }

    /// From here until the commit returns, whoever loses patience may answer.
    pub(super) fn put_in_flight(&self, batch: Vec<Item>) {
        *lock(&self.in_flight) = Some(batch);
    }

    /// What was put in flight; nothing if it was answered meanwhile.
    pub(super) fn take_in_flight(&self) -> Vec<Item> {
        lock(&self.in_flight).take().unwrap_or_default()
    }

    /// Answers what has waited for too long because the disk does not.
    pub(super) fn lose_patience(&self) {
        let within = self.options.answer_within;
        let stuck = {
            let mut in_flight = lock(&self.in_flight);
            let late = in_flight
                .as_ref()
                .is_some_and(|batch| self.is_too_late(batch));
            if late { in_flight.take() } else { None }
        };
        if let Some(batch) = stuck {
            let message = format!("the commit has not returned within {within:?}");
            answer_all(batch, &Error::Unknown(message));
        }
        if let Some(before) = Instant::now().checked_sub(within) {
            let error = Error::Unavailable(format!("nobody has come to it within {within:?}"));
            answer_all(self.queue.take_older(before), &error);
            self.reads.refuse_older(before, &error);
        }
    }

    pub(super) fn count(&self, batch: &[Item]) {
        let counters = &self.counters;
        counters.batches.fetch_add(1, Ordering::Relaxed);
        counters
            .requests
            .fetch_add(batch.len() as u64, Ordering::Relaxed);
        counters
            .bytes
            .fetch_add(queue::bytes(batch) as u64, Ordering::Relaxed);
    }

    pub(super) fn metrics(&self) -> Metrics {
        let counters = &self.counters;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Metrics {
            busy: read(&counters.busy),
            retries: read(&counters.retries),
            batches: read(&counters.batches),
            requests: read(&counters.requests),
            bytes: read(&counters.bytes),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
