//! Shared by all tests: one database in which processes come and go, faults between the two, and a
//! clock that is told the time.
//!
//! A test is a plain `async fn name(db: Db)`; `both![name]` makes one test for each store of it.
//! A [`Process`] is an engine with its own way to the database. Crashing it cuts that way: nothing
//! that it still does reaches the database, and nothing comes back.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use roundel::{Clock, Engine, EngineBuilder, ManualClock, RunId, SystemClock, Timestamp};
use roundel_core::{Hint, Op};
use roundel_store::{
    Answer, Answered, Ask, Boxed, Checked, Depth, Dump, Error, Listener, Memory, Options, Query,
    Request, Sink, Sqlite, Store, verify,
};
use tempfile::TempDir;

/// Makes a test for each store of each of these functions.
macro_rules! both {
    ($($name:ident),* $(,)?) => {
        $(mod $name {
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn on_memory() {
                super::$name($crate::support::Db::memory()).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn on_sqlite() {
                super::$name($crate::support::Db::sqlite()).await;
            }
        })*
    };
}
pub(crate) use both;

/// The file of a database that is one.
const FILE: &str = "test.db";

/// A test that waits longer has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// The time at which clocks that are told the time begin.
pub const BEGINNING: Timestamp = Timestamp(1_700_000_000_000_000);

/// A database, for one test.
pub struct Db {
    place: Place,
    clock: Arc<dyn Clock>,
    manual: Option<Arc<ManualClock>>,
    damaged: bool,
}

enum Place {
    Memory(Arc<Memory>),
    File(TempDir),
}

impl Drop for Db {
    /// Whatever a test did, what it leaves behind is sound.
    fn drop(&mut self) {
        if std::thread::panicking() || self.damaged {
            return;
        }
        let store: Arc<dyn Store> = match &self.place {
            Place::Memory(memory) => memory.clone(),
            Place::File(folder) if folder.path().join(FILE).exists() => self.open().inner.clone(),
            Place::File(_) => return,
        };
        let checked = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build();
            runtime.expect("a runtime").block_on(sound(&*store));
        });
        assert!(
            checked.join().is_ok(),
            "the message above says what is wrong"
        );
    }
}

/// Checks everything that is stored; a database that is closed is let be.
pub async fn sound(store: &dyn Store) {
    let mut found = Vec::new();
    let told = |_: &Checked, some| found.extend(some);
    match verify(store, Depth::Entries, told).await {
        Ok(_) | Err(Error::Closed) => assert_eq!(found, []),
        Err(error) => panic!("the rows cannot be read: {error}"),
    }
}

impl Db {
    /// In memory.
    pub fn memory() -> Db {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
        Db {
            place: Place::Memory(Arc::new(Memory::new(clock.clone()))),
            clock,
            manual: None,
            damaged: false,
        }
    }

    /// In one file.
    pub fn sqlite() -> Db {
        Db {
            place: Place::File(folder()),
            clock: Arc::new(SystemClock::default()),
            manual: None,
            damaged: false,
        }
    }

    /// The same, before anything is in it, with a clock that is told the time.
    pub fn with_manual_clock(mut self) -> Db {
        let manual = Arc::new(ManualClock::at(BEGINNING));
        self.clock = manual.clone();
        self.manual = Some(manual);
        if let Place::Memory(memory) = &mut self.place {
            *memory = Arc::new(Memory::new(self.clock.clone()));
        }
        self
    }

    /// The same, for a test that damages what it has.
    pub fn damaged_on_purpose(mut self) -> Db {
        self.damaged = true;
        self
    }

    /// Moves the clock that is told the time.
    pub fn advance(&self, span: Duration) {
        self.manual.as_ref().expect("a manual clock").advance(span);
    }

    /// Moves the clock to the first of those who sleep until a time, and says how far that was.
    pub fn advance_to_next(&self) -> Option<Duration> {
        let manual = self.manual.as_ref().expect("a manual clock");
        let span = manual.next_sleeper()?.since(manual.now());
        manual.advance(span);
        Some(span)
    }

    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Waits for something that must come, while time passes: fast for two seconds, then as
    /// it does.
    pub async fn meanwhile<T>(&self, what: &str, future: impl Future<Output = T>) -> T {
        let mut future = std::pin::pin!(future);
        let tick = Duration::from_millis(1);
        let begun = Instant::now();
        let mut last = begun;
        for ticks in 0_u32.. {
            if let Ok(value) = tokio::time::timeout(tick, &mut future).await {
                return value;
            }
            assert!(begun.elapsed() < PATIENCE, "waited in vain for {what}");
            // On a busy machine a tick takes long; a lease must still end within the patience.
            let passed = std::mem::replace(&mut last, Instant::now()).elapsed();
            self.advance(if ticks < 100 { tick * 20 } else { passed });
        }
        unreachable!("it is patient, but not that patient")
    }

    /// A way to the database, as another process has it.
    pub fn open(&self) -> Arc<Faulty> {
        let (inner, own): (Arc<dyn Store>, bool) = match &self.place {
            Place::Memory(memory) => (memory.clone(), false),
            Place::File(folder) => {
                let options = Options {
                    clock: self.clock.clone(),
                    ..Options::default()
                };
                let path = folder.path().join(FILE);
                (
                    Arc::new(Sqlite::open(&path, options).expect("a database")),
                    true,
                )
            }
        };
        Arc::new(Faulty {
            inner,
            own,
            way: Arc::default(),
        })
    }

    /// Starts an engine that is set up like this.
    pub async fn start(&self, set_up: impl FnOnce(EngineBuilder) -> EngineBuilder) -> Process {
        self.start_over(self.open(), set_up).await
    }

    /// Starts an engine with this way to the database.
    pub async fn start_over(
        &self,
        store: Arc<Faulty>,
        set_up: impl FnOnce(EngineBuilder) -> EngineBuilder,
    ) -> Process {
        let engine = set_up(Engine::over(store.clone()))
            .start()
            .await
            .expect("an engine");
        Process { engine, store }
    }

    /// Every row.
    pub async fn dump(&self) -> Dump {
        let store = self.open();
        let answer = store.read(Query::Dump).await.expect("a dump");
        store.close();
        match answer {
            Answer::Dump(dump) => *dump,
            other => panic!("not a dump: {other:?}"),
        }
    }
}

/// A folder for one test: in memory where there is such a place, since a busy disk can take
/// seconds for a sync.
pub fn folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .expect("a folder")
}

/// An engine with its own way to the database.
pub struct Process {
    pub engine: Engine,
    pub store: Arc<Faulty>,
}

impl Process {
    /// As `kill -9` would: what reached the database stays, nothing else happens.
    pub fn crash(self) {
        self.store.cut();
        drop(self.engine);
        if self.store.own {
            self.store.inner.close();
        }
    }
}

impl std::ops::Deref for Process {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.engine
    }
}

/// What happens to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Nothing unusual.
    Pass,
    /// It is not done, and the caller is told so.
    Unavailable,
    /// It is not done, and the caller does not know.
    LoseRequest,
    /// It is done, and the caller does not know.
    LoseReply,
    /// It is done, and no answer ever comes.
    Silence,
    /// It waits until [`Faulty::release`].
    Hold,
    /// It is done, and the answer waits until [`Faulty::release`].
    HoldReply,
    /// The process dies before it is done.
    CrashBefore,
    /// The process dies when it is done.
    CrashAfter,
}

/// Says what happens to each request.
type Rule = Box<dyn FnMut(&Ask) -> Fault + Send>;

/// A store that does what a test says.
pub struct Faulty {
    inner: Arc<dyn Store>,
    /// Is the store beneath only this one's?
    own: bool,
    way: Arc<Way>,
}

/// The way to the store and back.
#[derive(Default)]
struct Way {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    cut: bool,
    closed: bool,
    without_hints: bool,
    rule: Option<Rule>,
    held: Vec<Request>,
    held_replies: Vec<(Arc<dyn Sink>, Vec<Answered>)>,
    seen: u64,
}

impl Way {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Faulty {
    /// From now on, asks what happens to each request.
    pub fn rule(&self, rule: impl FnMut(&Ask) -> Fault + Send + 'static) {
        self.way.lock().rule = Some(Box::new(rule));
    }

    /// From now on, nothing unusual happens.
    pub fn mend(&self) {
        self.way.lock().rule = None;
    }

    /// The next request that fits meets this; those after it do not.
    pub fn once(&self, fault: Fault, fits: impl Fn(&Ask) -> bool + Send + 'static) {
        let mut left = true;
        self.rule(move |ask| {
            if left && fits(ask) {
                left = false;
                return fault;
            }
            Fault::Pass
        });
    }

    /// Has the rule of [`Faulty::once`] or another one struck this often?
    pub fn struck(&self) -> u64 {
        self.way.lock().seen
    }

    /// Nothing goes to the database or comes from it any more.
    pub fn cut(&self) {
        self.way.lock().cut = true;
    }

    pub fn is_cut(&self) -> bool {
        self.way.lock().cut
    }

    /// Hints are lost from now on.
    pub fn lose_hints(&self) {
        self.way.lock().without_hints = true;
    }

    /// Lets what was held go on.
    pub fn release(&self) {
        let mut state = self.way.lock();
        let held = std::mem::take(&mut state.held);
        let replies = std::mem::take(&mut state.held_replies);
        drop(state);
        self.inner.submit(held);
        for (sink, answers) in replies {
            sink.deliver(answers);
        }
    }

    /// Is a request held that fits?
    pub fn holds(&self, fits: impl Fn(&Ask) -> bool) -> bool {
        self.way.lock().held.iter().any(|held| fits(&held.ask))
    }

    /// How many requests and answers are held.
    pub fn held(&self) -> usize {
        let state = self.way.lock();
        state.held.len() + state.held_replies.len()
    }

    fn judge(&self, request: Request) -> Option<Request> {
        let mut state = self.way.lock();
        if state.cut {
            return None;
        }
        let rule = state.rule.as_mut();
        let fault = rule.map_or(Fault::Pass, |rule| rule(&request.ask));
        state.seen += u64::from(fault != Fault::Pass);
        let Request { ask, tag, sink } = request;
        let answer = |result, ask| {
            let answered = Answered { tag, result, ask };
            sink.deliver(vec![answered]);
            None
        };
        match fault {
            _ if state.closed => answer(Err(Error::Closed), ask),
            Fault::Unavailable => answer(Err(Error::Unavailable("a fault".into())), ask),
            Fault::LoseRequest => answer(Err(Error::Unknown("a fault".into())), ask),
            Fault::CrashBefore => {
                state.cut = true;
                None
            }
            Fault::Pass
            | Fault::LoseReply
            | Fault::Silence
            | Fault::Hold
            | Fault::HoldReply
            | Fault::CrashAfter => {
                state.cut = fault == Fault::CrashAfter;
                let relay = Relay {
                    way: self.way.clone(),
                    fault,
                    sink,
                };
                let request = Request {
                    ask,
                    tag,
                    sink: Arc::new(relay),
                };
                if fault == Fault::Hold {
                    state.held.push(request);
                    return None;
                }
                Some(request)
            }
        }
    }
}

impl Store for Faulty {
    fn submit(&self, requests: Vec<Request>) {
        let passed: Vec<Request> = requests
            .into_iter()
            .filter_map(|request| self.judge(request))
            .collect();
        if !passed.is_empty() {
            self.inner.submit(passed);
        }
    }

    fn read(&self, query: Query) -> Boxed<'_, Result<Answer, Error>> {
        let state = self.way.lock();
        if state.cut || state.closed {
            return Box::pin(async { Err(Error::Closed) });
        }
        drop(state);
        self.inner.read(query)
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        self.inner.clock()
    }

    fn listen(&self, listener: Arc<dyn Listener>) {
        let way = self.way.clone();
        self.inner.listen(Arc::new(Ear { way, listener }));
    }

    fn watch_closely(&self, closely: bool) {
        self.inner.watch_closely(closely);
    }

    fn close(&self) {
        self.way.lock().closed = true;
        if self.own {
            self.inner.close();
        }
    }
}

struct Relay {
    way: Arc<Way>,
    fault: Fault,
    sink: Arc<dyn Sink>,
}

impl Sink for Relay {
    fn deliver(&self, mut answers: Vec<Answered>) {
        if self.way.lock().cut || self.fault == Fault::Silence {
            return;
        }
        if self.fault == Fault::HoldReply {
            let reply = (self.sink.clone(), answers);
            self.way.lock().held_replies.push(reply);
            return;
        }
        if self.fault == Fault::LoseReply {
            for answer in &mut answers {
                answer.result = Err(Error::Unknown("a fault".into()));
            }
        }
        self.sink.deliver(answers);
    }
}

struct Ear {
    way: Arc<Way>,
    listener: Arc<dyn Listener>,
}

impl Ear {
    fn hears(&self) -> bool {
        let state = self.way.lock();
        !state.cut && !state.closed && !state.without_hints
    }
}

impl Listener for Ear {
    fn hints(&self, hints: Vec<Hint>) {
        if self.hears() {
            self.listener.hints(hints);
        }
    }

    fn others_committed(&self) {
        if self.hears() {
            self.listener.others_committed();
        }
    }
}

/// Is this a round of that run, or a step of it?
pub fn is_round_of(ask: &Ask, run: RunId) -> bool {
    match ask {
        Ask::Op(Op::Commit(round)) => round.run == run,
        Ask::Op(_) => false,
        Ask::Work(work) => work.lease().0 == run,
    }
}

/// Is this a round, a step, or a start with its first round?
pub fn is_round(ask: &Ask) -> bool {
    matches!(ask, Ask::Op(Op::Commit(_) | Op::Start(_)) | Ask::Work(_))
}

/// Waits until this is so; a test that waits too long has failed.
pub async fn until<F, Fut>(what: &str, mut so: F)
where
    F: FnMut() -> Fut,
    Fut: Future<Output = bool>,
{
    let begun = Instant::now();
    while !so().await {
        assert!(begun.elapsed() < PATIENCE, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Waits for something that must come soon.
pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("waited in vain for {what}"),
    }
}
