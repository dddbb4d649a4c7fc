//! Shared by all tests: one database in which processes come and go, faults between the two, and a
//! clock that is told the time.
//!
//! A test is a plain `async fn name(db: Db)`; `all![name]` makes one test for each store of it,
//! which is `both![name]`, for those that need no server, and one more.
//! A [`Process`] is an engine with its own way to the database. Crashing it cuts that way: nothing
//! that it still does reaches the database, and nothing comes back.

mod faulty;

use std::future::Future;
#[cfg(feature = "postgres")]
use std::sync::Mutex;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use roundel::{Clock, Engine, EngineBuilder, Keys, ManualClock, SystemClock, Timestamp};
use roundel_store::{
    Answer, Checked, Depth, Dump, Error, Folder, Memory, Objects, Options, PeekLock,
    PeekLockOptions, Query, Sqlite, Store, verify,
};
use tempfile::TempDir;

pub use faulty::{Fault, Faulty, is_round, is_round_of};

/// Makes a test for each store that needs no server, of each of these functions.
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

/// The same, and on a server.
macro_rules! all {
    ($($name:ident),* $(,)?) => {
        $crate::support::both![$($name),*];

        #[cfg(feature = "postgres")]
        mod on_postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                if let Some(db) = $crate::support::Db::postgres() {
                    super::$name(db).await;
                }
            })*
        }
    };
}
pub(crate) use all;

/// A test over objects, without transactions, of each of these functions.
macro_rules! on_objects {
    ($($name:ident),* $(,)?) => {
        mod on_objects {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name($crate::support::Db::objects()).await;
            })*
        }
    };
}
pub(crate) use on_objects;

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
    /// Ways to a server, each of which has connections until it is closed.
    #[cfg(feature = "postgres")]
    opened: Mutex<Vec<std::sync::Weak<roundel_store::Postgres>>>,
}

enum Place {
    Memory(Arc<Memory>),
    File(TempDir),
    /// Objects in a folder, without transactions.
    Objects(TempDir),
    #[cfg(feature = "postgres")]
    Server(roundel_testpg::Schema),
}

impl Drop for Db {
    /// Whatever a test did, what it leaves behind is sound.
    fn drop(&mut self) {
        self.check();
        #[cfg(feature = "postgres")]
        for store in self.opened.lock().expect("a list").drain(..) {
            if let Some(store) = store.upgrade() {
                store.close();
            }
        }
    }
}

impl Db {
    fn check(&self) {
        if std::thread::panicking() || self.damaged {
            return;
        }
        let store: Arc<dyn Store> = match &self.place {
            Place::Memory(memory) => memory.clone(),
            Place::File(folder) if folder.path().join(FILE).exists() => self.open().inner.clone(),
            Place::File(_) => return,
            Place::Objects(_) => self.open().inner.clone(),
            #[cfg(feature = "postgres")]
            Place::Server(_) => self.open().inner.clone(),
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
    fn at(place: Place, clock: Arc<dyn Clock>) -> Db {
        Db {
            place,
            clock,
            manual: None,
            damaged: false,
            #[cfg(feature = "postgres")]
            opened: Mutex::default(),
        }
    }

    /// In memory.
    pub fn memory() -> Db {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
        let place = Place::Memory(Arc::new(Memory::new(clock.clone())));
        Db::at(place, clock)
    }

    /// In one file.
    pub fn sqlite() -> Db {
        Db::at(Place::File(folder()), Arc::new(SystemClock::default()))
    }

    /// In objects, which know no transactions.
    pub fn objects() -> Db {
        Db::at(Place::Objects(folder()), Arc::new(SystemClock::default()))
    }

    /// On a server, in a schema of its own, if there is one.
    #[cfg(feature = "postgres")]
    pub fn postgres() -> Option<Db> {
        let place = Place::Server(roundel_testpg::schema()?);
        Some(Db::at(place, Arc::new(SystemClock::default())))
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

    /// The same, before anything is in it, with the clock of another.
    pub fn with_the_clock_of(mut self, other: &Db) -> Db {
        self.clock = other.clock.clone();
        self.manual = other.manual.clone();
        self
    }

    /// The same, for a test that moves what is in it elsewhere: then it cannot be opened.
    pub fn left_behind(self) -> Db {
        self.damaged_on_purpose()
    }

    /// What is moved, or moved to.
    pub fn to_be_moved(&self) -> roundel_store::Place {
        match &self.place {
            Place::Memory(_) | Place::Objects(_) => panic!("only databases are moved"),
            Place::File(folder) => roundel_store::Place::File(folder.path().join(FILE)),
            #[cfg(feature = "postgres")]
            Place::Server(schema) => roundel_store::Place::Server {
                url: schema.address(),
                schema: schema.name().to_owned(),
            },
        }
    }

    /// Is it a server's?
    pub fn is_on_server(&self) -> bool {
        !matches!(
            self.place,
            Place::Memory(_) | Place::File(_) | Place::Objects(_)
        )
    }

    /// Takes away everything but the tables, as if nothing had ever been committed to them.
    pub async fn clear(&self) {
        match &self.place {
            Place::Memory(_) | Place::Objects(_) => panic!("only databases are cleared"),
            Place::File(folder) => {
                for end in ["", "-wal", "-shm"] {
                    let _ = std::fs::remove_file(folder.path().join(format!("{FILE}{end}")));
                }
            }
            #[cfg(feature = "postgres")]
            Place::Server(schema) => {
                let mut connection =
                    <sqlx::PgConnection as sqlx::Connection>::connect(&schema.address())
                        .await
                        .expect("a connection");
                let sql = "TRUNCATE roundel_lane, roundel_run, roundel_journal, roundel_mail, \
                     roundel_wait, roundel_gate, roundel_offer, roundel_key, roundel_watch, \
                     roundel_state, roundel_worker, roundel_label, roundel_subscription, \
                     roundel_publication, roundel_latch, roundel_queue, roundel_audit";
                sqlx::query(sql)
                    .execute(&mut connection)
                    .await
                    .expect("empty tables");
            }
        }
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

    /// The folder of objects.
    pub fn objects_in(&self) -> Folder {
        let Place::Objects(folder) = &self.place else {
            panic!("there are no objects")
        };
        Folder::open(folder.path().join("objects")).expect("a folder")
    }

    /// A way to the objects through these, which say what happens to each call.
    pub fn open_objects(&self, objects: Arc<dyn Objects>) -> Result<Arc<Faulty>, Error> {
        let options = PeekLockOptions {
            clock: self.clock.clone(),
            // Somebody who died is not waited for.
            patience: Duration::ZERO,
            // A volume is closed now and then.
            volume: 10_000,
        };
        let opened = PeekLock::open(objects, options)?;
        Ok(Arc::new(Faulty::new(Arc::new(opened), true)))
    }

    /// A way to the database, as another process has it.
    pub fn open(&self) -> Arc<Faulty> {
        self.try_to_open().expect("a database")
    }

    /// The same, if it can be opened.
    pub fn try_to_open(&self) -> Result<Arc<Faulty>, Error> {
        let (inner, own): (Arc<dyn Store>, bool) = match &self.place {
            Place::Memory(memory) => (memory.clone(), false),
            Place::File(folder) => {
                let options = Options {
                    clock: self.clock.clone(),
                    ..Options::default()
                };
                let path = folder.path().join(FILE);
                (Arc::new(Sqlite::open(&path, options)?), true)
            }
            Place::Objects(_) => return self.open_objects(Arc::new(self.objects_in())),
            #[cfg(feature = "postgres")]
            Place::Server(schema) => {
                let options = roundel_store::PostgresOptions {
                    clock: Some(self.clock.clone()),
                    schema: schema.name().to_owned(),
                    ..roundel_store::PostgresOptions::default()
                };
                let opened = roundel_store::Postgres::open(&schema.address(), options);
                let opened = Arc::new(opened?);
                let list = self.opened.lock();
                list.expect("a list").push(Arc::downgrade(&opened));
                (opened, true)
            }
        };
        Ok(Arc::new(Faulty::new(inner, own)))
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
        let engine = set_up(may_seal(Engine::over(store.clone())))
            .start()
            .await
            .expect("an engine");
        Process { engine, store }
    }

    /// All that is stored, as bytes: what somebody finds who has the files, or a dump of a server.
    pub async fn bytes(&self) -> Vec<u8> {
        match &self.place {
            Place::Memory(_) | Place::Objects(_) => in_bytes(&self.dump().await),
            Place::File(folder) => {
                let parts = ["", "-wal"].map(|end| folder.path().join(format!("{FILE}{end}")));
                let parts = parts.map(|path| std::fs::read(path).unwrap_or_default());
                assert!(!parts[0].is_empty(), "there is a file");
                parts.concat()
            }
            #[cfg(feature = "postgres")]
            Place::Server(schema) => dump_of(schema).await,
        }
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

/// `ROUNDEL_SEALED=1` runs every test with values that are sealed: all promises hold for these too.
pub fn may_seal(engine: EngineBuilder) -> EngineBuilder {
    static KEYS: LazyLock<Keys> =
        LazyLock::new(|| Keys::parse(&Keys::generate("tests")).expect("new keys"));
    match sizes_differ() {
        true => engine.sealed(KEYS.clone()),
        false => engine,
    }
}

/// Are values stored in more bytes than they have?
pub fn sizes_differ() -> bool {
    std::env::var_os("ROUNDEL_SEALED").is_some()
}

/// A folder for one test: in memory where there is such a place, since a busy disk can take
/// seconds for a sync.
pub fn folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .expect("a folder")
}

/// What rows hold, as JSON.
fn in_bytes(dump: &Dump) -> Vec<u8> {
    let Dump {
        runs,
        journal,
        labels,
        mail,
        offers,
        keys,
        states,
        workers,
        publications,
        audit,
        facts,
        documents,
        ..
    } = dump;
    let text = |rows: serde_json::Result<String>| rows.expect("rows are JSON");
    let all = [
        text(serde_json::to_string(&(
            runs, journal, labels, mail, offers,
        ))),
        text(serde_json::to_string(&(
            keys,
            states,
            workers,
            publications,
        ))),
        text(serde_json::to_string(&(audit, facts, documents))),
    ];
    // Entries are text within text.
    all.concat().replace('\\', "").into_bytes()
}

/// Every row of every table, as text.
#[cfg(feature = "postgres")]
async fn dump_of(schema: &roundel_testpg::Schema) -> Vec<u8> {
    use sqlx::{Connection, PgConnection};
    let mut connection = PgConnection::connect(&schema.address())
        .await
        .expect("a connection");
    // Bytes as they can be looked for.
    let hex = sqlx::query("SET xmlbinary TO hex").execute(&mut connection);
    hex.await.expect("it is set");
    let sql = "SELECT table_name::text FROM information_schema.tables \
               WHERE table_schema = $1 AND table_type = 'BASE TABLE'";
    let tables = sqlx::query_scalar(sql).bind(schema.name());
    let tables: Vec<String> = tables.fetch_all(&mut connection).await.expect("tables");
    let mut dump = String::new();
    for table in tables {
        let sql =
            "SELECT query_to_xml(format('SELECT * FROM %I.%I', $1, $2), true, false, '')::text";
        let rows = sqlx::query_scalar(sql).bind(schema.name()).bind(table);
        let rows: String = rows.fetch_one(&mut connection).await.expect("rows");
        dump.push_str(&rows);
    }
    // Digits of bytes are letters, too.
    dump.to_lowercase().into_bytes()
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
        self.store.await_last();
        drop(self.engine);
        self.store.close_if_own();
    }

    /// What comes of this, or nothing if the process dies first: who asks it then may be told
    /// anything.
    pub async fn unless_it_dies<T>(
        &self,
        asked: impl Future<Output = Result<T, roundel::Error>>,
    ) -> Option<T> {
        let asked = async {
            match asked.await {
                Err(_) if self.store.is_cut() => std::future::pending().await,
                told => told.unwrap(),
            }
        };
        let died = until("it is over, or dead", async || self.store.is_cut());
        tokio::select! {
            told = asked => Some(told),
            () = died => None,
        }
    }
}

impl std::ops::Deref for Process {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.engine
    }
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
