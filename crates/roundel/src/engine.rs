//! The engine: a database, the workflows registered with it, and a worker that runs them.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use roundel_core::{BATCH, Failure, INCOMING, Keep, Name, RETENTION, Retention, SCHEDULE, limits};
use roundel_store::{Clock, Store, Tx};
use rustc_hash::FxHashMap;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::check::{Code, Unfit};
use crate::client::{Client, Inner, hold, keep_ended};
use crate::cx::{Cx, NamedUndos, UndoHandler, Undoing};
use crate::decider::Deciders;
use crate::follow::follow;
use crate::live::{erased, heeding};
use crate::metrics::Counters;
use crate::place::{Opening, Place};
use crate::post::Post;
use crate::projections::Registry;
use crate::rests::Rests;
use crate::seal::Keys;
use crate::worker::{Config, Ear, Handlers, Idlers, Worker};
use crate::{Command, Error, Topic, Undo, Workflow};

/// An engine being set up.
#[must_use = "it does nothing until started"]
pub struct EngineBuilder {
    pub(crate) opening: Opening,
    pub(crate) config: Result<Config, Error>,
    handlers: Handlers,
    undos: NamedUndos,
    pub(crate) projections: Registry,
    pub(crate) deciders: Deciders,
    /// Topic and workflow.
    subscriptions: Vec<(Name, Name)>,
    drain: Duration,
    keeping: Retention,
    /// What becomes of runs in flight that do not go on with this code; not looked at if nothing.
    unfit: Option<Unfit>,
    idle: bool,
    keys: Option<Keys>,
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
    drain: Duration,
    pruner: Option<AbortHandle>,
    follower: Option<AbortHandle>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Engine({:?})", self.client)
    }
}

impl Engine {
    /// The engine over this SQLite file, which is made if it does not exist; or over the PostgreSQL
    /// database of this URL, `postgres://user@host/database` (feature `postgres`), in a schema of
    /// its own, which is made likewise. Both may hold tables of your own. `folder:PATH` keeps runs
    /// in objects, where there is no database; see the guide.
    pub fn open(path: impl AsRef<Path>) -> EngineBuilder {
        EngineBuilder::new(Place::at(path.as_ref()))
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

    fn stop_pruning(&self) {
        for task in [&self.pruner, &self.follower].into_iter().flatten() {
            task.abort();
        }
    }

    /// Stops claiming, lets what is in hand finish for the drain time, gives the rest back, closes
    /// the database. Calling it twice is fine.
    pub async fn shutdown(&self) {
        self.stop_pruning();
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
        self.stop_pruning();
        if let Some(worker) = &self.worker {
            worker.abandon();
        }
    }
}

impl EngineBuilder {
    fn new(place: Place) -> EngineBuilder {
        let config = Config {
            namespace: Name::constant("default"),
            name: format!("process {}", std::process::id()).into(),
            lease: limits::USUAL_LEASE,
            grace: Duration::from_secs(5),
            max_live: 4096,
            in_hand: None,
            cached_runs: 4096,
            cached_for: Duration::from_secs(60),
            sweep: Duration::from_secs(30),
            renewed_by_hand: false,
            elsewhere: false,
            undos: Arc::default(),
            projections: Arc::default(),
        };
        EngineBuilder {
            opening: Opening::new(place),
            config: Ok(config),
            handlers: FxHashMap::default(),
            undos: NamedUndos::default(),
            projections: Registry::default(),
            deciders: Deciders::default(),
            subscriptions: Vec::new(),
            drain: Duration::from_secs(10),
            keeping: Retention::default(),
            unfit: None,
            idle: false,
            keys: None,
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
        if [BATCH, SCHEDULE, INCOMING, RETENTION].contains(&key.0) {
            let text = format!(
                "the workflow `{}` is the engine's own; choose another name",
                key.0
            );
            self.config = Err(Error::Setup(text));
            return self;
        }
        if self.handlers.contains_key(&key) {
            self.config = Err(Error::Setup(format!(
                "workflow `{}` version {} is registered twice; give one of them another name or \
                 version",
                key.0, key.1
            )));
            return self;
        }
        let handler = heeding(workflow.when_late(), erased(function));
        #[cfg(feature = "testkit")]
        let handler: crate::live::Handler = {
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

    pub(crate) fn with(mut self, change: impl FnOnce(&mut Config) -> Result<(), Error>) -> Self {
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

    /// What this worker is called, for people: in lists of workers, in what `roundel runs why`
    /// says, and in the traces of failures. `process` and its number unless said.
    pub fn name(self, name: impl Into<std::borrow::Cow<'static, str>>) -> Self {
        let name = Name::new(name.into());
        self.with(|config| {
            config.name = name?.as_str().into();
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
        self.opening.answer_within = limit;
        self
    }

    /// How long a shutdown lets runs in hand go on. 10 s unless said.
    pub fn drain(mut self, limit: Duration) -> Self {
        self.drain = limit;
        self
    }

    /// Removes what ended longer ago than this, tree by tree, a few at a time: runs, their
    /// journals, and what clients published. For ever unless said. One process that says so is
    /// enough. What is set in the database ([`Client::keep`]) goes before it.
    pub fn keep_ended(mut self, keep: Duration) -> Self {
        self.keeping.say(None, Some(Keep::of(keep)));
        self
    }

    /// Removes commands of this queue that ended longer ago than this, whatever
    /// [`keep_ended`](Self::keep_ended) says of the rest: soon with [`Duration::ZERO`], never with
    /// [`Duration::MAX`]. Those that a workflow called stay until it is removed.
    pub fn keep_handled<I, O>(mut self, command: Command<I, O>, keep: Duration) -> Self {
        self.keeping
            .say(Some(command.queue()), Some(Keep::of(keep)));
        self
    }

    /// By this clock.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.opening.clock = Some(clock);
        self
    }

    /// Replays every run in flight before it takes work, and does this about those that do not go
    /// on with this code; see [`Client::check`]. Not looked at unless said.
    pub fn verified(mut self, unfit: Unfit) -> Self {
        self.unfit = Some(unfit);
        self
    }

    /// Takes no work, and is not known as a worker: a client that knows the code, for
    /// [`Client::check`] and for commands that only look. Nothing is made or changed in form.
    pub fn idle(mut self) -> Self {
        self.idle = true;
        self.existing()
    }

    /// Seals what users' code says and is told before it leaves this process, and opens what comes
    /// back: inputs, results, signals, states, what failures say. What was stored before stays
    /// readable. Names, keys, labels, facts and documents are not sealed; the guide lists all that
    /// is and is not. Every process that works on these runs, or talks to them, needs the same
    /// keys: one that lacks them gives runs back that it cannot read.
    pub fn sealed(mut self, keys: Keys) -> Self {
        self.keys = Some(keys);
        self
    }

    /// [Seals](Self::sealed) with the keys in this file, which nobody but its owner may read.
    pub fn key_file(self, path: impl AsRef<Path>) -> Self {
        match Keys::read(path) {
            Ok(keys) => self.sealed(keys),
            Err(error) => self.with(|_| Err(Error::Setup(error.to_string()))),
        }
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
        self.deciders.check()?;
        config.undos = Arc::new(self.undos);
        config.projections = Arc::new(self.projections.finish(&config.namespace));
        let projections = config.projections.clone();
        let name = Name::new(config.name.to_string()).ok();
        let answer_within = self.opening.answer_within;
        let hears_all = self.opening.hears_all();
        let store = self.opening.open().await?;
        let (counters, rests) = (Arc::new(Counters::default()), Arc::new(Rests::default()));
        let post = Post::new(store, counters.clone());
        let post = Arc::new(post.sealed_by(self.keys, &config.namespace));
        let store = post.store().clone();
        let (namespace, sweep) = (config.namespace.clone(), config.sweep);
        let shared = (counters.clone(), rests.clone());
        let handlers = Arc::new(with_own(self.handlers));
        let code = Arc::new(Code::of(handlers.clone(), &config));
        let worker = Arc::new(Worker::new(config, post.clone(), handlers, shared));
        let facts = Arc::new(Notify::new());
        let idlers = Arc::new(Idlers::default());
        store.listen(Arc::new(Ear::new(&worker, (facts.clone(), idlers.clone()))));
        let works = !worker.handlers.is_empty() && !self.idle;
        let inner = Inner {
            namespace,
            post,
            worker: works.then(|| worker.clone()),
            code,
            rests,
            counters,
            answer_within,
            name,
            projections,
            deciders: self.deciders,
            sweep,
            idlers,
            hears_all,
        };
        let mut engine = Engine {
            client: Client::from(Arc::new(inner)),
            worker: works.then_some(worker),
            drain: self.drain,
            pruner: None,
            follower: None,
        };
        let client = &engine.client;
        if self.idle {
            return Ok(engine);
        }
        if let Some(unfit) = self.unfit {
            client.make_fit(unfit).await?;
        }
        if let Some(worker) = &engine.worker {
            worker.register().await?;
        }
        for (topic, workflow) in &self.subscriptions {
            client.subscribe(topic.as_str(), workflow.as_str()).await?;
        }
        client.inner.declare_projections().await?;
        let follows = !client.inner.projections.all.is_empty();
        let follower = follows.then(|| follow(&client.inner, facts).abort_handle());
        // What it works on may publish, and who is to hear it must be known by then.
        if let Some(worker) = &engine.worker {
            worker.start();
        }
        let prunes = engine.worker.is_some() || !self.keeping.is_empty();
        let pruner = prunes.then(|| keep_ended(&client.inner, self.keeping).abort_handle());
        (engine.follower, engine.pruner) = (follower, pruner);
        Ok(engine)
    }
}

/// Whoever works on anything also has the engine's own workflows.
fn with_own(mut handlers: Handlers) -> Handlers {
    if !handlers.is_empty() {
        handlers.insert((BATCH, 1), erased(crate::batch::run));
        handlers.insert((SCHEDULE, 1), erased(crate::schedule::run));
        handlers.insert((RETENTION, 1), erased(hold));
    }
    handlers
}
