//! The engine: a database, the workflows registered with it, and a worker that runs them.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use roundel_core::{Failure, Name, limits};
use roundel_store::{Clock, Memory, Options, Sqlite, Store, SystemClock, Tx};
use rustc_hash::FxHashMap;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::client::{Client, Inner};
use crate::cx::{Cx, NamedUndos, UndoHandler, Undoing};
use crate::live::{Handler, erased};
use crate::metrics::Counters;
use crate::post::Post;
use crate::rests::Rests;
use crate::worker::{Config, Worker};
use crate::{Error, Metrics, Topic, Undo, Workflow};

/// Which database.
enum Place {
    File(PathBuf),
    Memory,
    Given(Arc<dyn Store>),
}

/// An engine being set up.
#[must_use = "it does nothing until started"]
pub struct EngineBuilder {
    place: Place,
    clock: Arc<dyn Clock>,
    config: Result<Config, Error>,
    handlers: FxHashMap<(Name, u32), Handler>,
    undos: NamedUndos,
    /// Topic and workflow.
    subscriptions: Vec<(Name, Name)>,
    answer_within: Duration,
    drain: Duration,
    create: bool,
    #[cfg(feature = "testkit")]
    hooks: Option<Arc<crate::testkit::Hooks>>,
}

impl std::fmt::Debug for EngineBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EngineBuilder")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

/// A running engine. It is also a client: everything a [`Client`] does, it does.
pub struct Engine {
    client: Client,
    worker: Option<Arc<Worker>>,
    counters: Arc<Counters>,
    drain: Duration,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Engine({:?})", self.client)
    }
}

impl Engine {
    /// The engine over this SQLite file, which is made if it does not exist. The file may hold
    /// tables of your own.
    pub fn open(path: impl AsRef<Path>) -> EngineBuilder {
        EngineBuilder::new(Place::File(path.as_ref().to_owned()))
    }

    /// An engine whose database is in memory and goes with it: for tests.
    pub fn in_memory() -> EngineBuilder {
        EngineBuilder::new(Place::Memory)
    }

    /// The engine over a store that is open already.
    pub fn over(store: Arc<dyn Store>) -> EngineBuilder {
        EngineBuilder::new(Place::Given(store))
    }

    /// A client that outlives this value.
    #[must_use]
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    #[cfg(feature = "testkit")]
    pub(crate) fn worker(&self) -> Option<&Arc<Worker>> {
        self.worker.as_ref()
    }

    /// What has been counted since the start.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.counters.snapshot()
    }

    /// Stops claiming, lets what is in hand finish for the drain time, gives the rest back, closes
    /// the database. Calling it twice is fine.
    pub async fn shutdown(&self) {
        if let Some(worker) = &self.worker {
            worker.stop(self.drain).await;
        }
        let store = self.client.inner.post.store().clone();
        let _ = tokio::task::spawn_blocking(move || store.close()).await;
        // Whoever still waits for a result here is told that nothing more will come.
        self.client.inner.rests.look_again();
    }
}

impl std::ops::Deref for Engine {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Drop for Engine {
    /// Without a shutdown, leases end by time; with one they are given back.
    fn drop(&mut self) {
        if let Some(worker) = &self.worker {
            worker.abandon();
        }
    }
}

impl EngineBuilder {
    fn new(place: Place) -> EngineBuilder {
        let config = Config {
            namespace: Name::constant("default"),
            name: format!("process {}", std::process::id()),
            lease: Duration::from_secs(30),
            grace: Duration::from_secs(5),
            max_live: 4096,
            cached_runs: 4096,
            cached_for: Duration::from_secs(60),
            sweep: Duration::from_secs(30),
            renewed_by_hand: false,
            undos: Arc::default(),
        };
        EngineBuilder {
            place,
            clock: Arc::new(SystemClock::default()),
            config: Ok(config),
            handlers: FxHashMap::default(),
            undos: NamedUndos::default(),
            subscriptions: Vec::new(),
            answer_within: Duration::from_secs(30),
            drain: Duration::from_secs(10),
            create: true,
            #[cfg(feature = "testkit")]
            hooks: None,
        }
    }

    /// Runs this workflow, as this function. Its version is 1 unless the constant says another.
    pub fn register<I, O, F, Fut>(mut self, workflow: Workflow<I, O>, function: F) -> Self
    where
        I: DeserializeOwned + Send + 'static,
        O: Serialize + Send + 'static,
        F: Fn(Cx, I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, Failure>> + Send + 'static,
    {
        let key = (workflow.name(), workflow.exact_version().unwrap_or(1));
        if self.handlers.contains_key(&key) {
            self.config = Err(Error::Setup(format!(
                "workflow `{}` version {} is registered twice; give one of them another name or \
                 version",
                key.0, key.1
            )));
            return self;
        }
        let handler = erased(function);
        #[cfg(feature = "testkit")]
        let handler: Handler = {
            let hooks = self.hooks.clone();
            Arc::new(move |cx: Cx, input| {
                cx.shared.lock().hooks.clone_from(&hooks);
                handler(cx, input)
            })
        };
        self.handlers.insert(key, handler);
        self
    }

    /// Undoes what calls say is [undone by](crate::Step::undo_by) this name: in a step of its own,
    /// with the arguments that were recorded.
    pub fn register_undo<A, F, Fut, E>(self, undo: Undo<A>, function: F) -> Self
    where
        A: DeserializeOwned,
        F: Fn(Tx, A) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<Failure>,
    {
        self.add_undo(&undo.name(), UndoHandler::of_step(function))
    }

    /// Undoes what calls say is [undone by](crate::Effect::undo_by) this name, outside the
    /// database: at least once, with an idempotency key, as an effect.
    pub fn register_undo_effect<A, F, Fut, E>(self, undo: Undo<A>, function: F) -> Self
    where
        A: DeserializeOwned,
        F: Fn(Undoing<A>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<Failure>,
    {
        self.add_undo(&undo.name(), UndoHandler::of_named_effect(function))
    }

    fn add_undo(mut self, name: &Name, handler: UndoHandler) -> Self {
        if self.undos.0.insert(name.clone(), handler).is_some() {
            let text = format!("undo `{name}` is registered twice; give one of them another name");
            self.config = Err(Error::Setup(text));
        }
        self
    }

    /// Lets this workflow start a run for everything that is published to the topic from now on.
    /// The subscription is durable: it stays when the process goes, until it is ended.
    pub fn subscribe<T, O>(mut self, topic: Topic<T>, workflow: Workflow<T, O>) -> Self {
        self.subscriptions.push((topic.name(), workflow.name()));
        self
    }

    fn with(mut self, change: impl FnOnce(&mut Config) -> Result<(), Error>) -> Self {
        self.config = self
            .config
            .and_then(|mut config| change(&mut config).map(|()| config));
        self
    }

    /// In this namespace; `default` unless said.
    pub fn namespace(self, name: impl Into<std::borrow::Cow<'static, str>>) -> Self {
        let name = Name::new(name.into());
        self.with(|config| {
            config.namespace = name?;
            Ok(())
        })
    }

    /// How long a lease lasts without renewal: after a crash, runs wait this long. 30 s unless
    /// said.
    pub fn lease(self, lease: Duration) -> Self {
        self.with(|config| {
            if lease < Duration::from_millis(100) || lease > limits::LEASE {
                let limit = limits::LEASE;
                let text = format!("a lease of {lease:?} is not between 100 ms and {limit:?}");
                return Err(Error::Setup(text));
            }
            config.lease = lease;
            Ok(())
        })
    }

    /// How long effects may go on after their run was asked to end. 5 s unless said.
    pub fn grace(self, grace: Duration) -> Self {
        self.with(|config| {
            config.grace = grace;
            Ok(())
        })
    }

    /// How many runs may be worked on at once. 4,096 unless said.
    pub fn concurrency(self, runs: usize) -> Self {
        self.with(|config| {
            config.max_live = runs.max(1);
            Ok(())
        })
    }

    /// How many waiting runs stay in memory, and for how long. 4,096 and 60 s unless said.
    pub fn keep_in_memory(self, runs: usize, idle: Duration) -> Self {
        self.with(|config| {
            config.cached_runs = runs;
            config.cached_for = idle;
            Ok(())
        })
    }

    /// How long the database may take to answer. 30 s unless said.
    pub fn answer_within(mut self, limit: Duration) -> Self {
        self.answer_within = limit;
        self
    }

    /// How long a shutdown lets runs in hand go on. 10 s unless said.
    pub fn drain(mut self, limit: Duration) -> Self {
        self.drain = limit;
        self
    }

    /// By this clock.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Only a database that is there already: nothing is made or changed in form.
    pub fn existing(mut self) -> Self {
        self.create = false;
        self
    }

    /// Sweeps, which make up for lost hints, are this far apart; leases are renewed by the test.
    #[cfg(feature = "testkit")]
    pub(crate) fn for_tests(self, sweep: Duration) -> Self {
        self.with(|config| {
            config.sweep = sweep;
            config.renewed_by_hand = true;
            Ok(())
        })
    }

    /// What a test kit says about the runs of workflows registered from now on.
    #[cfg(feature = "testkit")]
    pub(crate) fn hooks(mut self, hooks: Arc<crate::testkit::Hooks>) -> Self {
        self.hooks = Some(hooks);
        self
    }

    /// Only a client, whatever was registered.
    #[cfg(feature = "testkit")]
    pub(crate) fn without_workflows(mut self) -> Self {
        self.handlers.clear();
        self
    }

    /// Opens the database and starts working. Without workflows it is only a client.
    ///
    /// # Errors
    /// When something was set up wrong, or the database cannot be used.
    pub async fn start(self) -> Result<Engine, Error> {
        let mut config = self.config?;
        config.undos = Arc::new(self.undos);
        let store: Arc<dyn Store> = match self.place {
            Place::Given(store) => store,
            Place::Memory => Arc::new(Memory::new(self.clock)),
            Place::File(path) => {
                let options = Options {
                    clock: self.clock,
                    create: self.create,
                    answer_within: self.answer_within,
                    ..Options::default()
                };
                let opened =
                    tokio::task::spawn_blocking(move || Sqlite::open(&path, options)).await;
                Arc::new(opened.map_err(|error| Error::Unusable(error.to_string()))??)
            }
        };
        let (counters, rests) = (Arc::new(Counters::default()), Arc::new(Rests::default()));
        let post = Arc::new(Post::new(store.clone(), counters.clone()));
        let (namespace, sweep) = (config.namespace.clone(), config.sweep);
        let shared = (counters.clone(), rests.clone());
        let worker = Arc::new(Worker::new(config, post.clone(), self.handlers, shared));
        store.listen(worker.clone());
        let worker = if worker.handlers.is_empty() {
            None
        } else {
            worker.start().await?;
            Some(worker)
        };
        let answer_within = self.answer_within;
        let inner = Inner {
            namespace,
            post,
            worker: worker.clone(),
            rests,
            counters: counters.clone(),
            answer_within,
            sweep,
        };
        let client = Client {
            inner: Arc::new(inner),
        };
        for (topic, workflow) in &self.subscriptions {
            client.subscribe(topic.as_str(), workflow.as_str()).await?;
        }
        Ok(Engine {
            client,
            worker,
            counters,
            drain: self.drain,
        })
    }
}
