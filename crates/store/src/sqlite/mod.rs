//! One SQLite file: one thread writes, two read, one looks for other processes.
//!
//! The user's own tables live in the same file, so that a step's changes and the round that
//! records it are one transaction. Two processes on one file are safe: every batch takes the write
//! lock first, and drops what it has in memory if the other one wrote.

pub(crate) mod backup;
mod batch;
mod columns;
mod counts;
mod doubt;
mod due;
mod facts;
#[cfg(test)]
mod faults;
mod file;
pub(crate) mod guard;
mod load;
mod log;
mod look;
mod migrate;
mod moving;
mod open;
mod parked;
mod patience;
mod place;
mod read;
mod readers;
mod records;
mod shared;
mod sql;
#[cfg(test)]
mod tests;
mod trouble;
mod watch;
mod write;
mod writer;

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::oneshot;

pub use file::{Health, Schema};
pub(crate) use moving::{Side, check_unmarked};
pub use shared::Metrics;

use crate::{
    Answer, Answered, Boxed, Clock, Error, Listener, Query, Request, Statement, Store, SystemClock,
};
use shared::Shared;

/// Threads that read.
const READERS: usize = 2;

/// How to open a file.
#[derive(Clone)]
pub struct Options {
    /// The store's clock.
    pub clock: Arc<dyn Clock>,
    /// Makes the file, and the tables in it, if they are not there.
    pub create: bool,
    /// A request that cannot be answered within this time is told so.
    pub answer_within: Duration,
    /// How long to wait for another process that has the write lock, with all tries, and no longer
    /// than until an answer is due.
    pub busy_timeout: Duration,
    /// What a commit waits for.
    pub synchronous: Synchronous,
    /// The file grows no larger; what does not fit is unavailable until there is room again.
    pub max_bytes: Option<u64>,
    /// Also opens a file on a network file system, where two processes would corrupt it.
    pub allow_network_fs: bool,
    /// Also opens what was moved, and backups, to look at them: nothing can be committed there.
    pub also_marked: bool,
}

/// What a commit waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Synchronous {
    /// That the rows are on disk.
    #[default]
    Full,
    /// For nothing: after a loss of power the last commits may be missing, though never a part.
    Normal,
}

impl Options {
    /// How long SQLite waits for the write lock. With the tries of the writer, all of them end
    /// before those who wait are told to give up.
    fn busy_wait(&self) -> Duration {
        self.busy_timeout.min(self.answer_within) / 5
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            clock: Arc::new(SystemClock::default()),
            create: true,
            answer_within: Duration::from_secs(30),
            busy_timeout: Duration::from_secs(30),
            synchronous: Synchronous::Full,
            max_bytes: None,
            allow_network_fs: false,
            also_marked: false,
        }
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("create", &self.create)
            .field("answer_within", &self.answer_within)
            .field("busy_timeout", &self.busy_timeout)
            .field("synchronous", &self.synchronous)
            .field("max_bytes", &self.max_bytes)
            .field("allow_network_fs", &self.allow_network_fs)
            .field("also_marked", &self.also_marked)
            .finish_non_exhaustive()
    }
}

/// One SQLite file. Dropping it closes it.
pub struct Sqlite {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl std::fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sqlite")
            .field("path", &self.shared.path)
            .finish_non_exhaustive()
    }
}

impl Sqlite {
    /// Opens a file, or makes it.
    ///
    /// # Errors
    /// When it cannot be used: the message says what was found and what to do.
    pub fn open(path: &Path, options: Options) -> Result<Sqlite, Error> {
        let path = std::path::absolute(path)
            .map_err(|error| Error::Unusable(format!("{}: {error}", path.display())))?;
        let (prepared, identity) = open::prepare(&path, &options)?;
        if !options.also_marked {
            moving::check_moved(&prepared, &path)?;
        }
        let restored = backup::restored(&prepared);
        let restored = restored.map_err(|error| open::failed(&path, &error))?;
        let writer = open::writer(&path, &options)?;
        drop(prepared);
        let shared = Arc::new(Shared::new(path, options, (identity, restored)));
        let store = Sqlite {
            shared: Arc::clone(&shared),
            threads: Mutex::new(Vec::new()),
        };
        let at_writer = Arc::clone(&shared);
        store.spawn("roundel-writer", move || writer::run(at_writer, writer))?;
        for _ in 0..READERS {
            let shared = Arc::clone(&shared);
            store.spawn("roundel-reader", move || readers::run(&shared))?;
        }
        let at_watcher = Arc::clone(&shared);
        store.spawn("roundel-watcher", move || watch::run(&at_watcher))?;
        store.spawn("roundel-patience", move || patience::run(&shared))?;
        Ok(store)
    }

    fn spawn(&self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), Error> {
        let thread = std::thread::Builder::new().name(name.into()).spawn(run);
        let thread = thread.map_err(|error| {
            Error::Unavailable(format!("a thread of the store cannot be started: {error}"))
        })?;
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.retain(|thread| !thread.is_finished());
        threads.push(thread);
        Ok(())
    }

    /// Runs an operator's own statement, on a thread that goes when it has ended.
    fn run(&self, statement: Statement) -> oneshot::Receiver<Result<Answer, Error>> {
        let (sender, receiver) = oneshot::channel();
        let turn = sql::Turn::take(&self.shared);
        let began = self.spawn("roundel-sql", move || {
            let answer = turn.and_then(|turn| turn.answer(&statement));
            let _ = sender.send(answer);
        });
        if let Err(error) = began {
            tracing::warn!(%error, "a statement was not run");
        }
        receiver
    }

    /// What has happened since it was opened.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.shared.metrics()
    }
}

impl Store for Sqlite {
    fn submit(&self, requests: Vec<Request>) {
        if requests.is_empty() {
            return;
        }
        let Err(refused) = self.shared.queue.push(requests) else {
            return;
        };
        for Request { ask, tag, sink } in refused {
            let result = Err(Error::Closed);
            sink.deliver(vec![Answered { tag, result, ask }]);
        }
    }

    fn read(&self, query: Query) -> Boxed<'_, Result<Answer, Error>> {
        let answer = match sql::of(&query) {
            Some(statement) => self.run(statement),
            None => self.shared.reads.ask(query),
        };
        Box::pin(async move { answer.await.unwrap_or(Err(Error::Closed)) })
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        &self.shared.options.clock
    }

    fn listen(&self, listener: Arc<dyn Listener>) {
        self.shared.listeners.add(listener);
    }

    fn watch_closely(&self, closely: bool) {
        if self.shared.closely.swap(closely, Ordering::Relaxed) != closely {
            self.shared.pause.wake();
        }
    }

    fn close(&self) {
        self.shared.queue.close();
        self.shared.reads.close();
        self.shared.pause.close();
        let threads = {
            let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *threads)
        };
        let own = std::thread::current().id();
        for thread in threads {
            // A receiver of answers may close the store, on the thread that answers.
            if thread.thread().id() != own {
                let _ = thread.join();
            }
        }
        // A listener may hold the store that it listens to.
        self.shared.listeners.forget();
    }
}

impl Drop for Sqlite {
    fn drop(&mut self) {
        self.close();
    }
}
