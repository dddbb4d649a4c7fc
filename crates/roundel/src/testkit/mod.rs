//! A test kit for users' workflows: an engine in memory whose time is virtual, effects that answer
//! as they are told, crashes at will, and assertions on journals.
//!
//! ```
//! use std::time::Duration;
//! use roundel::testkit::TestKit;
//! use roundel::{Attempt, Cx, EngineBuilder, Failure, Result, Workflow};
//!
//! const REMIND: Workflow<String, String> = Workflow::named("remind");
//!
//! async fn remind(cx: Cx, to: String) -> Result<String> {
//!     cx.sleep(Duration::from_secs(30 * 24 * 3600)).await;
//!     cx.effect("mail", |attempt| send(&to, attempt)).await
//! }
//!
//! async fn send(_to: &str, _attempt: Attempt) -> Result<String> {
//!     Err(Failure::permanent("no mail server in a test"))
//! }
//!
//! fn app(engine: EngineBuilder) -> EngineBuilder {
//!     engine.register(REMIND, remind)
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let kit = TestKit::open(app).await;
//! kit.effect("mail").returns(&"sent");
//! let mut run = kit.start(REMIND, &"ada".to_owned()).await.unwrap();
//! assert_eq!(run.result().await.unwrap(), "sent");
//! assert_eq!(kit.elapsed(), Duration::from_secs(30 * 24 * 3600));
//! # }
//! ```
//!
//! The application is a function from [`EngineBuilder`] to [`EngineBuilder`], the same that the
//! program calls before it starts its engine, so a test registers nothing of its own.
//!
//! Absent on purpose: real waiting. Time stands still while anything can run, and moves to the next
//! timer when nothing can. Work on other threads or over a network does not count as something that
//! can run: script such effects.

mod clock;
mod explore;
mod ids;
mod script;
mod stage;
mod timeline;
mod way;

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use roundel_core::Timestamp;
use roundel_store::{Answer, Clock, Memory, Query, Store, Tx, TxError};

pub use explore::{Broken, Exploration, Report, Verdict, World, explore};
pub(crate) use ids::counted_id;
pub(crate) use script::Hooks;
pub use script::{EffectCall, ScriptedEffect};
pub use timeline::Timeline;

use crate::{Client, Engine, EngineBuilder, Error, To};
use clock::VirtualClock;
use stage::{App, Crashes, Stage};

/// When tests begin, unless they say: the first of January 2026.
const BEGINNING: Timestamp = Timestamp(1_767_225_600_000_000);

/// A test kit being opened: await it, or say more first.
#[must_use = "it does nothing unless awaited"]
pub struct Opening {
    app: App,
    beginning: Timestamp,
    seed: u64,
    crashes: Crashes,
    /// Where whoever explores looks for what was opened.
    stage: Option<Arc<Mutex<Option<Arc<Stage>>>>>,
}

impl std::fmt::Debug for Opening {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opening").finish_non_exhaustive()
    }
}

/// An application under test. It is also a [`Client`]: everything a client does, it does, from
/// outside of the worker that may crash.
pub struct TestKit {
    client: Engine,
    stage: Arc<Stage>,
    supervisor: tokio::task::AbortHandle,
}

impl std::fmt::Debug for TestKit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TestKit(after {:?})", self.elapsed())
    }
}

impl std::ops::Deref for TestKit {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Drop for TestKit {
    fn drop(&mut self) {
        // Whoever explores goes on until all is at rest.
        if !self.stage.is_explored() {
            self.supervisor.abort();
        }
    }
}

impl TestKit {
    /// Opens the application in memory, in virtual time. Needs a runtime with one thread, as
    /// `#[tokio::test]` makes it; its time is paused if it is not.
    pub fn open(app: impl Fn(EngineBuilder) -> EngineBuilder + Send + Sync + 'static) -> Opening {
        Opening {
            app: Arc::new(app),
            beginning: BEGINNING,
            seed: 0,
            crashes: Crashes::Never,
            stage: None,
        }
    }

    /// The script of the effect of this name, to say what it answers and to see how it was called.
    #[must_use]
    pub fn effect(&self, name: impl Into<String>) -> ScriptedEffect {
        ScriptedEffect {
            hooks: self.stage.hooks.clone(),
            name: name.into(),
        }
    }

    /// The virtual time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.stage.clock.now()
    }

    /// How much virtual time has passed.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.stage.clock.elapsed()
    }

    /// Lets everything run that can, at this time.
    pub async fn settle(&self) {
        self.stage.clock.settle().await;
    }

    /// Lets so much time pass; what is due meanwhile happens in its order, and what is due at the
    /// end has happened.
    pub async fn advance(&self, span: Duration) {
        self.settle().await;
        let at = self.now().after(span);
        self.stage.clock.sleep_until(at).await;
        self.settle().await;
    }

    /// Does this after so much time has passed, while the test goes on: sends a signal, say.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use roundel::{testkit::TestKit, RunId, Signal};
    /// # const SIGNED: Signal<String> = Signal::named("signed");
    /// # async fn signed_later(kit: &TestKit, run: RunId) {
    /// kit.later(Duration::from_secs(3600), kit.signal(run, SIGNED, &"Ada".to_owned()));
    /// # }
    /// ```
    pub fn later<D>(&self, span: Duration, what: D)
    where
        D: IntoFuture + Send + 'static,
        D::IntoFuture: Send,
        D::Output: Send,
    {
        let (clock, at) = (self.stage.clock.clone(), self.now().after(span));
        tokio::spawn(async move {
            clock.sleep_until(at).await;
            what.into_future().await;
        });
    }

    /// Crashes the worker and starts another: everything that was in memory is gone, and runs go on
    /// from their journals.
    ///
    /// # Panics
    /// When the application cannot be started again.
    pub async fn crash(&self) {
        self.stage
            .crash()
            .await
            .unwrap_or_else(|error| panic!("the application could not be started again: {error}"));
    }

    /// How often the worker has crashed.
    #[must_use]
    pub fn worker_crashes(&self) -> u32 {
        self.stage.crash_count()
    }

    /// A request to the program: this runs inside of it, with a client that is part of it, and is
    /// made again until it has been answered, as whoever made it would: when the program crashed
    /// meanwhile, and when the database was not available or did not say what happened. So it must
    /// be safe to repeat: give keys.
    ///
    /// ```
    /// # use roundel::{testkit::TestKit, Error, RunId, Workflow};
    /// # const ORDER: Workflow<String, ()> = Workflow::named("order");
    /// # async fn ordered(kit: &TestKit) -> Result<RunId, Error> {
    /// let order = |client: roundel::Client| async move {
    ///     client.start(ORDER, &"a lamp".to_owned()).key("order-17").await
    /// };
    /// let run = kit.request(order).await?;
    /// # Ok(run.id())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When it fails for another reason.
    pub async fn request<T, Fut>(&self, what: impl Fn(Client) -> Fut) -> Result<T, Error>
    where
        Fut: Future<Output = Result<T, Error>>,
    {
        loop {
            let (client, gate) = self.stage.inside().await;
            tokio::select! {
                biased;
                () = gate.died() => {}
                answer = what(client) => match answer {
                    Err(Error::Unavailable(_) | Error::Unknown(_) | Error::Closed) => {}
                    answer => return answer,
                },
            }
            let again = self.now().after(Duration::from_secs(1));
            self.stage.clock.sleep_until(again).await;
        }
    }

    /// Runs SQL in the database that steps write to, as a step would: to make tables before, or to
    /// look at them after. What it writes stays, unless it fails.
    ///
    /// # Errors
    /// When it fails, or awaits anything but the transaction.
    pub async fn sql<T, E, Fut>(&self, work: impl FnOnce(Tx) -> Fut) -> Result<T, E>
    where
        Fut: Future<Output = Result<T, E>>,
        E: From<TxError>,
    {
        self.stage.memory.transact(|tx| {
            let work = std::pin::pin!(work(tx));
            match work.poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(result) => result,
                Poll::Pending => Err(TxError::Refused("await something else".into()).into()),
            }
        })
    }

    /// What happened in a run so far.
    ///
    /// # Panics
    /// When there is no such run.
    pub async fn timeline(&self, run: impl Into<To>) -> Timeline {
        let run = match self.run(run).await {
            Ok(shown) => shown.row,
            Err(error) => panic!("there is no timeline: {error}"),
        };
        let Ok(Answer::Dump(dump)) = self.stage.memory.read(Query::Dump).await else {
            unreachable!("memory answers a question for a dump with one")
        };
        Timeline::of(&run, &dump).expect("memory keeps journals that can be read")
    }
}

impl Opening {
    /// The virtual time at which the test begins.
    pub fn at(mut self, beginning: Timestamp) -> Self {
        self.beginning = beginning;
        self
    }

    /// What random numbers are drawn from: `cx.random`, `cx.uuid` and the pauses of retries. The
    /// same each time unless another is said.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// The worker crashes after every round it commits, and another goes on from the journals. A
    /// workflow that does the same in replay does not notice; one that does not is parked.
    pub fn crash_after_every_round(mut self) -> Self {
        self.crashes = Crashes::AfterEveryRound;
        self
    }

    async fn opened(self) -> Result<TestKit, crate::Error> {
        clock::pause();
        let clock = Arc::new(VirtualClock::at(self.beginning));
        let points = self.crashes.points().cloned();
        let hooks = Arc::new(Hooks::new(clock.clone(), self.seed, points));
        let memory = Arc::new(Memory::new(clock.clone()));
        clock.of(&memory);
        let stage = Arc::new(Stage::new(self.app, (memory, clock, hooks), self.crashes));
        if let Some(looked_for) = self.stage {
            let mut found = looked_for.lock().unwrap_or_else(PoisonError::into_inner);
            *found = Some(stage.clone());
        }
        let client = stage.client().await?;
        stage.fill().await?;
        let crashing = stage.clone();
        let supervisor = tokio::spawn(async move { crashing.supervise().await });
        let supervisor = supervisor.abort_handle();
        Ok(TestKit {
            client,
            stage,
            supervisor,
        })
    }
}

impl IntoFuture for Opening {
    type Output = TestKit;
    type IntoFuture = Pin<Box<dyn Future<Output = TestKit> + Send>>;

    /// # Panics
    /// When the application cannot be started, or the runtime has more than one thread.
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let opened = self.opened().await;
            opened.unwrap_or_else(|error| panic!("the application could not be started: {error}"))
        })
    }
}
