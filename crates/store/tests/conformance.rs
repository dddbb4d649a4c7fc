//! One list of tests, on every store.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use roundel_core::Timestamp;
use roundel_store::conformance::lists;
use roundel_store::{
    Answer, Boxed, Clock, Error, Folder, Listener, ManualClock, Memory, Objects, Options, PeekLock,
    PeekLockOptions, Postgres, PostgresOptions, Query, Request, Sqlite, Store, Synchronous,
};

/// Lists played where opening takes its time.
const FEW: u64 = 20;

const BEGIN: Timestamp = Timestamp(1_700_000_000_000_000);

fn memory() -> (Arc<dyn Store>, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(BEGIN));
    (Arc::new(Memory::new(clock.clone())), clock)
}

fn sqlite() -> (Arc<dyn Store>, Arc<ManualClock>) {
    let (mut stores, clock) = sqlite_handles(1);
    (stores.remove(0), clock)
}

/// So many handles on one file.
fn sqlite_handles(count: usize) -> lists::Opened {
    let clock = Arc::new(ManualClock::at(BEGIN));
    let folder = Arc::new(tempfile::tempdir().expect("a folder"));
    let open = |_| -> Arc<dyn Store> {
        let options = Options {
            clock: clock.clone(),
            synchronous: Synchronous::Normal,
            ..Options::default()
        };
        let store = Sqlite::open(&folder.path().join("runs.db"), options).expect("a file");
        Arc::new(InPlace {
            store,
            _place: Arc::clone(&folder),
        })
    };
    ((0..count).map(open).collect(), clock)
}

/// A store whose file or schema goes when it goes.
struct InPlace<S, P> {
    store: S,
    _place: Arc<P>,
}

impl<S: Store, P: Send + Sync + 'static> Store for InPlace<S, P> {
    fn submit(&self, requests: Vec<Request>) {
        self.store.submit(requests);
    }

    fn read(&self, query: Query) -> Boxed<'_, Result<Answer, Error>> {
        self.store.read(query)
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        self.store.clock()
    }

    fn listen(&self, listener: Arc<dyn Listener>) {
        self.store.listen(listener);
    }

    fn watch_closely(&self, closely: bool) {
        self.store.watch_closely(closely);
    }

    fn close(&self) {
        self.store.close();
    }
}

fn postgres() -> (Arc<dyn Store>, Arc<ManualClock>) {
    let (mut stores, clock) = postgres_handles(1);
    (stores.remove(0), clock)
}

/// So many handles on one schema.
fn postgres_handles(count: usize) -> lists::Opened {
    let clock = Arc::new(ManualClock::at(BEGIN));
    let Some(schema) = roundel_testpg::schema() else {
        // That there is no server has been said and counted.
        let (store, clock) = memory();
        return (vec![store], clock);
    };
    let schema = Arc::new(schema);
    let open = |_| -> Arc<dyn Store> {
        let options = PostgresOptions {
            clock: Some(clock.clone()),
            schema: schema.name().to_owned(),
            ..PostgresOptions::default()
        };
        let store = Postgres::open(&schema.address(), options).expect("a database");
        Arc::new(InPlace {
            store,
            _place: Arc::clone(&schema),
        })
    };
    ((0..count).map(open).collect(), clock)
}

/// Objects that need no disk.
#[derive(Default)]
struct Shelf(Mutex<BTreeMap<String, Vec<u8>>>);

impl Objects for Shelf {
    fn get(&self, key: &str) -> io::Result<Option<Vec<u8>>> {
        Ok(self.0.lock().expect("a shelf").get(key).cloned())
    }

    fn make(&self, key: &str, bytes: &[u8]) -> io::Result<bool> {
        let mut shelf = self.0.lock().expect("a shelf");
        if shelf.contains_key(key) {
            return Ok(false);
        }
        shelf.insert(key.to_owned(), bytes.to_vec());
        Ok(true)
    }

    fn list(&self, prefix: &str) -> io::Result<Vec<String>> {
        let shelf = self.0.lock().expect("a shelf");
        let keys = shelf.keys().filter(|key| key.starts_with(prefix));
        Ok(keys.cloned().collect())
    }

    fn remove(&self, key: &str) -> io::Result<()> {
        self.0.lock().expect("a shelf").remove(key);
        Ok(())
    }
}

/// Volumes are closed often.
fn over_objects(clock: &Arc<ManualClock>) -> PeekLockOptions {
    PeekLockOptions {
        clock: clock.clone(),
        volume: 10_000,
        ..PeekLockOptions::default()
    }
}

fn objects() -> (Arc<dyn Store>, Arc<ManualClock>) {
    let (mut stores, clock) = object_handles(1);
    (stores.remove(0), clock)
}

/// So many handles on one shelf.
fn object_handles(count: usize) -> lists::Opened {
    let clock = Arc::new(ManualClock::at(BEGIN));
    let shelf = Arc::new(Shelf::default());
    let open = |_| -> Arc<dyn Store> {
        Arc::new(PeekLock::open(shelf.clone(), over_objects(&clock)).expect("a shelf"))
    };
    ((0..count).map(open).collect(), clock)
}

/// So many handles on one folder.
fn folder_handles(count: usize) -> lists::Opened {
    let clock = Arc::new(ManualClock::at(BEGIN));
    let place = Arc::new(tempfile::tempdir().expect("a folder"));
    let open = |_| -> Arc<dyn Store> {
        let folder = Folder::open(place.path().join("runs")).expect("a folder");
        Arc::new(InPlace {
            store: PeekLock::open(Arc::new(folder), over_objects(&clock)).expect("a folder"),
            _place: Arc::clone(&place),
        })
    };
    ((0..count).map(open).collect(), clock)
}

/// Several processes, as one store: each request goes to another of them.
struct Many {
    stores: Vec<Arc<dyn Store>>,
    next: AtomicUsize,
}

impl Store for Many {
    fn submit(&self, requests: Vec<Request>) {
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        self.stores[next % self.stores.len()].submit(requests);
    }

    fn read(&self, query: Query) -> Boxed<'_, Result<Answer, Error>> {
        self.stores[0].read(query)
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        self.stores[0].clock()
    }

    fn listen(&self, listener: Arc<dyn Listener>) {
        for store in &self.stores {
            store.listen(Arc::clone(&listener));
        }
    }

    fn watch_closely(&self, closely: bool) {
        self.stores[0].watch_closely(closely);
    }

    fn close(&self) {
        for store in &self.stores {
            store.close();
        }
    }
}

fn postgres_of_many() -> (Arc<dyn Store>, Arc<ManualClock>) {
    let (stores, clock) = postgres_handles(3);
    let next = AtomicUsize::new(0);
    (Arc::new(Many { stores, next }), clock)
}

mod in_memory {
    roundel_store::conformance!(crate::memory);
}

mod in_sqlite {
    roundel_store::conformance!(crate::sqlite);
}

#[test]
fn si_13_memory_answers_and_keeps_the_same_in_batches() {
    let open = || {
        let (store, clock) = memory();
        (vec![store], clock)
    };
    lists::play(lists::record, open);
}

#[test]
fn si_22_sqlite_answers_and_keeps_what_memory_does() {
    lists::play(lists::record, || sqlite_handles(1));
}

#[test]
fn g7_two_handles_on_one_file_answer_and_keep_what_one_does() {
    lists::play(lists::record_lane_by_lane, || sqlite_handles(2));
}

mod in_objects {
    roundel_store::conformance!(crate::objects);
}

#[test]
fn ro_60_objects_answer_and_keep_what_memory_does() {
    lists::play(lists::record, || object_handles(1));
}

#[test]
fn ro_60_two_handles_on_one_shelf_answer_and_keep_what_one_does() {
    lists::play(lists::record_lane_by_lane, || object_handles(2));
}

#[test]
fn ro_60_two_handles_on_one_folder_answer_and_keep_what_one_does() {
    lists::play_some(FEW, lists::record_lane_by_lane, || folder_handles(2));
}

mod in_postgres {
    roundel_store::conformance!(crate::postgres);
}

mod in_postgres_of_many {
    roundel_store::conformance! { @of crate::postgres_of_many;
        claims {
            ro_10_claimers_get_distinct_runs_and_none_gets_nothing
        }
        signals {
            si_04_send_and_suspend_never_pass_each_other
            si_04_offer_and_wait_never_pass_each_other
            si_03_several_offers_of_one_batch_reach_several_waiters
        }
        threads {
            b8_as_many_claimers_as_runs_each_get_one
            ro_04_one_key_started_by_many_is_one_run
            c5_signals_of_many_are_all_kept_and_one_is_delivered
            inv16_offers_of_many_reach_each_waiter_once
            b4_a_takeover_and_a_commit_have_one_winner
            si_04_many_rounds_and_signals_lose_nothing
            a_claimant_that_takes_what_it_wakes_is_the_only_one
        }
    }
}

#[test]
fn si_22_postgres_answers_and_keeps_what_memory_does() {
    lists::play_some(FEW, lists::record, || postgres_handles(1));
}

#[test]
fn h21_two_processes_on_one_schema_answer_and_keep_what_one_does() {
    lists::play_some(FEW, lists::record_lane_by_lane, || postgres_handles(2));
}
