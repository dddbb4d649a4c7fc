//! A PostgreSQL database: many processes on many machines, each with one connection that commits.
//!
//! Other processes write the same rows, and races are closed by locks (`locks.rs`): rows that are
//! changed are locked before they are read. A batch takes what is free and sets the rest aside; so
//! nobody waits for anybody while holding what others may want. The rounds of runs that this
//! process has leased are decided over rows that it keeps, and checked when they are
//! written (`kept.rs`).

mod batch;
mod clock;
mod columns;
mod committer;
mod confine;
mod counts;
mod facts;
mod kept;
mod keys;
mod known;
mod link;
mod lists;
mod load;
mod locks;
mod look;
mod marks;
mod migrate;
mod moving;
mod news;
mod open;
mod parked;
mod pool;
mod read;
mod records;
mod search;
mod shared;
mod sql;
mod steps;
mod trouble;
mod vacuum;
mod values;
mod write;

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use sqlx::ConnectOptions;
use tokio::runtime::Runtime;

use crate::{Answer, Answered, Boxed, Clock, Error, Listener, Metrics, Query, Request, Store};
use clock::ServerClock;
use link::Beginnings;
pub(crate) use moving::Side;
use pool::Pool;
use shared::{Counters, Shared};
use steps::Steps;
use values::Id;

/// Connections for reading.
const READERS: usize = 2;

/// How to open a database.
#[derive(Clone)]
pub struct PostgresOptions {
    /// The store's clock; the server's, if none is given.
    pub clock: Option<Arc<dyn Clock>>,
    /// Makes the schema, and the tables in it, if they are not there.
    pub create: bool,
    /// The schema in which the tables are: small letters, digits and `_`.
    pub schema: String,
    /// A request that cannot be answered within this time is told so.
    pub answer_within: Duration,
    /// How long opening waits for the server.
    pub connect_within: Duration,
    /// Connections for steps: so many run at a time.
    pub connections: usize,
    /// Behind a proxy that gives each transaction another server process (such as PgBouncer in
    /// transaction mode): nothing is kept on the server between transactions, and commits of other
    /// processes are found by looking.
    pub pooled: bool,
    /// Operators' own statements come by this URL instead: as a role that may only read.
    pub reader: Option<String>,
}

use PostgresOptions as Options;

impl Default for PostgresOptions {
    fn default() -> PostgresOptions {
        PostgresOptions {
            clock: None,
            create: true,
            schema: "roundel".into(),
            answer_within: Duration::from_secs(30),
            connect_within: Duration::from_secs(10),
            connections: 4,
            pooled: false,
            reader: None,
        }
    }
}

impl std::fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresOptions")
            .field("create", &self.create)
            .field("schema", &self.schema)
            .field("answer_within", &self.answer_within)
            .field("connect_within", &self.connect_within)
            .field("connections", &self.connections)
            .field("pooled", &self.pooled)
            .finish_non_exhaustive()
    }
}

/// A PostgreSQL database. Dropping it closes it.
pub struct Postgres {
    shared: Arc<Shared>,
    pool: Arc<Pool>,
    /// Reads, steps and news.
    runtime: Mutex<Option<Runtime>>,
    committer: Mutex<Option<JoinHandle<()>>>,
}

impl std::fmt::Debug for Postgres {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Postgres")
            .field("schema", &self.shared.options.schema)
            .finish_non_exhaustive()
    }
}

impl Postgres {
    /// Connects to the database of this URL (`postgres://user@host/database`), and makes the
    /// schema ready.
    ///
    /// # Errors
    /// When it cannot be used: the message says what was found and what to do.
    pub fn open(url: &str, options: PostgresOptions) -> Result<Postgres, Error> {
        open::check_schema(&options.schema)?;
        let connect = open::address(url)?;
        let cached = if options.pooled { 0 } else { 256 };
        let program = connect
            .get_application_name()
            .unwrap_or("roundel")
            .to_owned();
        let connect = connect
            .application_name(&program)
            .statement_cache_capacity(cached)
            .disable_statement_logging();
        let reader = match &options.reader {
            Some(url) => open::address(url)?.disable_statement_logging(),
            None => connect.clone(),
        };
        let (clock, server) = clocks(&options);
        let shared = Arc::new(Shared {
            begin: Beginnings::of(&options.schema),
            keeps: !options.pooled,
            connect,
            reader,
            clock,
            server,
            incarnation: Id(*uuid::Uuid::now_v7().as_bytes()),
            restored: std::sync::OnceLock::new(),
            queue: crate::queue::Queue::default(),
            listeners: crate::answers::Listeners::default(),
            counters: Counters::default(),
            steps: std::sync::atomic::AtomicUsize::new(0),
            closely: std::sync::atomic::AtomicBool::new(false),
            news: tokio::sync::Notify::new(),
            fresh: Mutex::default(),
            workers: Mutex::default(),
            statements: tokio::sync::Semaphore::new(roundel_core::limits::SQL_AT_ONCE),
            touched: Mutex::default(),
            removals: vacuum::Removals::default(),
            options,
        });
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("roundel-postgres")
            .enable_all()
            .build();
        let runtime = runtime.map_err(|error| Error::Unavailable(error.to_string()))?;
        let steps = Steps {
            shared: Arc::clone(&shared),
            pool: Arc::new(Pool::new(
                Arc::clone(&shared),
                shared.options.connections.max(1),
            )),
            handle: runtime.handle().clone(),
        };
        let committer = match start_committer(&shared, steps) {
            Ok(committer) => committer,
            Err(error) => {
                runtime.shutdown_background();
                return Err(error);
            }
        };
        begin_beside(&runtime, &shared);
        Ok(Postgres {
            pool: Arc::new(Pool::new(Arc::clone(&shared), READERS)),
            shared,
            runtime: Mutex::new(Some(runtime)),
            committer: Mutex::new(Some(committer)),
        })
    }

    /// What has happened since it was opened.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.shared.metrics()
    }
}

/// The store's clock; and the server's, if that is it.
fn clocks(options: &Options) -> (Arc<dyn Clock>, Option<Arc<ServerClock>>) {
    match &options.clock {
        Some(clock) => (Arc::clone(clock), None),
        None => {
            let server = Arc::new(ServerClock::new());
            (Arc::clone(&server) as Arc<dyn Clock>, Some(server))
        }
    }
}

/// What others commit, and telling them of ours; and making room.
fn begin_beside(runtime: &Runtime, shared: &Arc<Shared>) {
    if shared.options.pooled {
        runtime.spawn(news::look(Arc::clone(shared)));
    } else {
        runtime.spawn(news::hear(Arc::clone(shared)));
    }
    runtime.spawn(news::tell(Arc::clone(shared)));
    runtime.spawn(vacuum::make_room(Arc::clone(shared)));
}

/// Starts the thread that commits, and waits until it is connected.
fn start_committer(shared: &Arc<Shared>, steps: Steps) -> Result<JoinHandle<()>, Error> {
    let (sender, opened) = std::sync::mpsc::sync_channel(1);
    let at_committer = Arc::clone(shared);
    let thread = std::thread::Builder::new()
        .name("roundel-committer".into())
        .spawn(move || committer::run(&at_committer, steps, &sender));
    let thread = thread.map_err(|error| {
        Error::Unavailable(format!("a thread of the store cannot be started: {error}"))
    })?;
    match opened.recv() {
        Ok(Ok(())) => Ok(thread),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(Error::Unusable("the committer stopped".into())),
    }
}

impl Store for Postgres {
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
        let asked = {
            let runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner);
            runtime.as_ref().map(|runtime| {
                let (pool, shared) = (Arc::clone(&self.pool), Arc::clone(&self.shared));
                runtime.spawn(async move {
                    match sql::of(&query) {
                        Some(statement) => sql::answer(&shared, &statement).await,
                        None => read::answer(&pool, shared.begin.of_query(&query), query).await,
                    }
                })
            })
        };
        Box::pin(async move {
            match asked {
                None => Err(Error::Closed),
                Some(answer) => answer.await.unwrap_or(Err(Error::Closed)),
            }
        })
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        &self.shared.clock
    }

    fn listen(&self, listener: Arc<dyn Listener>) {
        self.shared.listeners.add(listener);
    }

    fn watch_closely(&self, closely: bool) {
        let relaxed = std::sync::atomic::Ordering::Relaxed;
        self.shared.closely.store(closely, relaxed);
    }

    fn close(&self) {
        self.shared.queue.close();
        let committer = {
            let mut committer = self
                .committer
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            committer.take()
        };
        if let Some(thread) = committer {
            // A receiver of answers may close the store, on the thread that answers.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
        self.pool.close();
        let runtime = {
            let mut runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner);
            runtime.take()
        };
        if let Some(runtime) = runtime {
            runtime.shutdown_background();
        }
        // A listener may hold the store that it listens to.
        self.shared.listeners.forget();
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.close();
    }
}
