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
mod script;
mod stage;
mod timeline;

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use roundel_core::Timestamp;
use roundel_store::{Answer, Clock, Memory, Query, Store};

pub(crate) use script::Hooks;
pub use script::{EffectCall, ScriptedEffect};
pub use timeline::Timeline;

use crate::{Client, Engine, EngineBuilder, To};
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
        self.supervisor.abort();
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
            .next_worker()
            .await
            .unwrap_or_else(|error| panic!("the application could not be started again: {error}"));
    }

    /// How often the worker has crashed.
    #[must_use]
    pub fn worker_crashes(&self) -> u32 {
        self.stage
            .crash_count
            .load(std::sync::atomic::Ordering::Relaxed)
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
        let hooks = Arc::new(Hooks::new(clock.clone(), self.seed));
        let memory = Arc::new(Memory::new(clock.clone()));
        clock.of(&memory);
        let stage = Arc::new(Stage::new(self.app, (memory, clock, hooks), self.crashes));
        let client = stage.client().await?;
        stage.next_worker().await?;
        let crashing = stage.clone();
        let supervisor = tokio::spawn(async move {
            loop {
                crashing.crashed.notified().await;
                if let Err(error) = crashing.next_worker().await {
                    panic!("the application could not be started again: {error}");
                }
            }
        });
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
