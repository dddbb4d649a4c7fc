//! One list of tests, on every store.

use std::sync::Arc;

use roundel_core::Timestamp;
use roundel_store::conformance::lists;
use roundel_store::{
    Answer, Boxed, Clock, Error, Listener, ManualClock, Memory, Options, Query, Request, Sqlite,
    Store, Synchronous,
};
use tempfile::TempDir;

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
        Arc::new(InFolder {
            store,
            _folder: Arc::clone(&folder),
        })
    };
    ((0..count).map(open).collect(), clock)
}

/// A store whose file goes when it goes.
struct InFolder {
    store: Sqlite,
    _folder: Arc<TempDir>,
}

impl Store for InFolder {
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
