//! What cannot be provoked from outside: commits that fail halfway, settings, old libraries.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use roundel_core::{Due, Fence, GateId, LaneId, Need, Op, Reply, Round, Rows, RunId, WorkerId};
use rusqlite::Connection;
use rusqlite::config::DbConfig;

use self::tools::{
    BEGIN, FLOW, File, SPACE, WORKER, ask_all, claimed, collector, commit, register, round, row,
    run, start, started,
};
use super::faults::Fault;
use super::load::Loads;
use super::{Options, Sqlite, Synchronous, open};
use crate::{Ask, Error, Request, Store, Tx, TxError, Work, Worked};

#[allow(dead_code)]
#[path = "../../tests/sqlite/tools.rs"]
mod tools;

fn inject(store: &Sqlite, faults: impl Into<VecDeque<Fault>>) {
    *store.shared.faults.lock().unwrap() = faults.into();
}

fn impatient(file: &File) -> Sqlite {
    let options = Options {
        answer_within: Duration::from_millis(300),
        busy_timeout: Duration::from_millis(5),
        ..file.options()
    };
    let store = Sqlite::open(&file.path(), options).unwrap();
    register(&store);
    store
}

#[test]
fn a5_a_commit_that_happened_but_failed_to_say_so_is_answered_as_what_it_is() {
    let file = File::new();
    let store = file.open_with_worker();
    let id = claimed(&store, 1);
    inject(&store, [Fault::LoseReply]);
    assert_eq!(commit(&store, round(id, 1)).unwrap().epoch, 2);
    assert_eq!(row(&store, id).head, 2, "once, not twice");
    assert!(commit(&store, round(id, 2)).is_ok());
}

#[test]
fn a5_a_commit_that_did_not_happen_is_done_again() {
    let file = File::new();
    let store = file.open_with_worker();
    let id = claimed(&store, 1);
    inject(&store, [Fault::Fail, Fault::Fail, Fault::LoseReply]);
    assert_eq!(commit(&store, round(id, 1)).unwrap().epoch, 2);
    assert_eq!(row(&store, id).head, 2);
    assert_eq!(store.metrics().retries, 3);
}

/// Counts its calls and writes a row.
struct Counted(RunId, Arc<AtomicUsize>);

impl Work for Counted {
    fn lease(&self) -> (RunId, WorkerId, Fence) {
        (self.0, WORKER, round(self.0, 1).fence())
    }

    fn run(&mut self, tx: Tx) -> Worked {
        self.1.fetch_add(1, Ordering::Relaxed);
        tx.sqlite(|own| own.execute_batch("CREATE TABLE own (x); INSERT INTO own VALUES (1)"))
            .unwrap();
        let round = round(self.0, 1);
        Worked { round, keep: true }
    }

    fn refused(&mut self, error: TxError) -> Round {
        panic!("{error}");
    }

    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any + Send> {
        self
    }
}

#[test]
fn ro_06_a_step_is_not_run_again_before_it_is_known_that_it_must() {
    for (fault, calls) in [(Fault::LoseReply, 1), (Fault::Fail, 2)] {
        let file = File::new();
        let store = file.open_with_worker();
        let id = claimed(&store, 1);
        let called = Arc::new(AtomicUsize::new(0));
        inject(&store, [fault]);
        let step = Ask::Work(Box::new(Counted(id, Arc::clone(&called))));
        let answers = ask_all(&store, vec![step]);
        assert!(
            matches!(answers[0].result, Ok(Reply::Committed(_))),
            "{answers:?}"
        );
        assert_eq!(called.load(Ordering::Relaxed), calls);
        let own = Connection::open(file.path()).unwrap();
        let count: i64 = own
            .query_row("SELECT count(*) FROM own", [], |row| row.get(0))
            .unwrap();
        assert_eq!(count, 1);
    }
}

#[test]
fn ro_07_an_outcome_that_cannot_be_learnt_in_time_is_unknown() {
    for fault in [Fault::LoseReply, Fault::Fail] {
        let file = File::new();
        let store = impatient(&file);
        let id = claimed(&store, 1);
        let (begun, has_begun) = mpsc::channel();
        let (go_on, may_go_on) = mpsc::channel();
        inject(&store, [Fault::Hang(begun, may_go_on), fault]);
        let (sink, answers) = collector();
        let submit = |ask| {
            let sink = sink.clone();
            store.submit(vec![Request {
                ask: Box::new(ask),
                tag: 0,
                sink,
            }]);
        };
        submit(Ask::Op(Op::Start(start(2))));
        has_begun.recv().unwrap();
        submit(Ask::Op(Op::Commit(round(id, 1))));
        // A reader that stays makes it impossible to move the log.
        let reader = Connection::open(file.path()).unwrap();
        reader
            .execute_batch("BEGIN; SELECT count(*) FROM roundel_run")
            .unwrap();
        go_on.send(()).unwrap();
        assert!(answers.recv().unwrap().result.is_ok());
        let unknown = answers.recv().unwrap();
        assert!(
            matches!(unknown.result, Err(Error::Unknown(_))),
            "{unknown:?}"
        );
        drop(reader);
        let epoch = row(&store, id).epoch;
        assert!(
            commit(&store, round(id, epoch)).is_ok(),
            "the store goes on"
        );
    }
}

#[test]
fn ro_07_when_the_disk_hangs_everybody_is_told_in_time() {
    let file = File::new();
    let store = impatient(&file);
    let id = claimed(&store, 1);
    let (begun, has_begun) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel();
    inject(&store, [Fault::Hang(begun, may_go_on)]);
    let (sink, answers) = collector();
    for (tag, epoch) in [(1, 1), (2, 2)] {
        let ask = Ask::Op(Op::Commit(round(id, epoch)));
        let sink = sink.clone();
        store.submit(vec![Request {
            ask: Box::new(ask),
            tag,
            sink,
        }]);
        if tag == 1 {
            has_begun.recv().unwrap();
        }
    }
    let first = answers.recv().unwrap();
    assert_eq!(first.tag, 1);
    assert!(matches!(first.result, Err(Error::Unknown(_))), "{first:?}");
    let second = answers.recv().unwrap();
    assert!(
        matches!(second.result, Err(Error::Unavailable(_))),
        "{second:?}"
    );
    go_on.send(()).unwrap();
    started(&store, start(2));
    assert_eq!(row(&store, id).epoch, 2, "it happened after all");
}

#[test]
fn g18_every_connection_has_its_settings() {
    let file = File::new();
    drop(file.open());
    let writer = open::writer(&file.path(), &file.options()).unwrap();
    let reader = open::reader(&file.path(), &file.options()).unwrap();
    for connection in [&writer, &reader] {
        for (name, value) in [
            ("synchronous", 2),
            ("foreign_keys", 1),
            ("trusted_schema", 0),
            ("cell_size_check", 1),
            ("temp_store", 2),
            ("wal_autocheckpoint", 4000),
            ("journal_size_limit", 1 << 20),
        ] {
            let found = connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
            assert_eq!(found.unwrap(), value, "{name}");
        }
        assert!(
            connection
                .db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE)
                .unwrap()
        );
    }
    assert!(reader.execute_batch("DELETE FROM roundel_run").is_err());
    let mode = "PRAGMA journal_mode";
    let mode: String = writer.query_row(mode, [], |row| row.get(0)).unwrap();
    assert_eq!(mode, "wal");
}

#[test]
fn g18_a_file_that_was_taken_out_of_wal_mode_is_refused() {
    let file = File::new();
    drop(file.open());
    let own = Connection::open(file.path()).unwrap();
    own.pragma_update(None, "journal_mode", "DELETE").unwrap();
    let refused = open::writer(&file.path(), &file.options());
    assert!(matches!(refused, Err(Error::Unusable(_))), "{refused:?}");
}

#[test]
fn g6_an_old_library_is_refused() {
    assert_eq!(open::check_library(3_051_003), Ok(()));
    assert_eq!(open::check_library(3_054_000), Ok(()));
    let error = open::check_library(3_051_002).unwrap_err().to_string();
    assert!(
        error.contains("SQLite 3.51.2") && error.contains("3.51.3"),
        "{error}"
    );
}

#[test]
fn g5_the_log_stays_short_although_there_is_always_a_reader() {
    let file = File::new();
    let options = Options {
        synchronous: Synchronous::Normal,
        ..file.options()
    };
    let store = Sqlite::open(&file.path(), options).unwrap();
    register(&store);
    let id = claimed(&store, 1);
    let log = file.folder.path().join("runs.db-wal");
    let stop = AtomicBool::new(false);
    let mut longest = 0;
    std::thread::scope(|scope| {
        for pause in [5, 6, 7] {
            let (file, stop) = (&file, &stop);
            scope.spawn(move || {
                let reader = Connection::open(file.path()).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    let sql = "BEGIN; SELECT count(*) FROM roundel_run";
                    reader.execute_batch(sql).unwrap();
                    std::thread::sleep(Duration::from_millis(pause));
                    reader.execute_batch("COMMIT").unwrap();
                }
            });
        }
        for epoch in 1..=2000 {
            let mut large = round(id, epoch);
            large.entries.pop();
            large.entries.extend(vec![b' '; 10_000]);
            large.entries.push(b']');
            commit(&store, large).unwrap();
            longest = longest.max(std::fs::metadata(&log).unwrap().len());
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(longest < 5 << 20, "the log grew to {longest} bytes");
}

#[test]
fn statements_are_prepared_once_whatever_the_limits() {
    let file = File::new();
    drop(file.open_with_worker());
    let connection = open::writer(&file.path(), &file.options()).unwrap();
    let mut loads = Loads::new(&connection, BEGIN).unwrap();
    let mut rows = Rows::default();
    let gate = GateId {
        namespace: SPACE,
        name: FLOW,
    };
    for limit in 1..10 {
        for need in [
            Need::Due(Due {
                lanes: vec![(LaneId(1), limit)],
                ahead: Vec::new(),
                keyed: Vec::new(),
                limit,
            }),
            Need::Mail(run(1), FLOW, limit),
            Need::Offers(gate.clone(), limit),
            Need::Waiters(gate.clone(), limit),
        ] {
            loads.load(need, &mut rows, BEGIN).unwrap();
        }
    }
    assert_eq!(loads.prepared_again(), 0);
}

#[test]
fn rows_of_processes_long_gone_are_removed() {
    let file = File::new();
    for _ in 0..70 {
        started(&file.open(), start(1));
    }
    file.clock.advance(Duration::from_secs(48 * 3600));
    started(&file.open(), start(2));
    let own = Connection::open(file.path()).unwrap();
    let count = "SELECT count(*) FROM roundel_committer";
    let count: i64 = own.query_row(count, [], |row| row.get(0)).unwrap();
    assert!(count < 64, "{count}");
}

/// Copies a database as a crash would leave it.
fn crashed(file: &File) -> File {
    let copy = File::new();
    for name in ["runs.db", "runs.db-wal"] {
        let to = copy.folder.path().join(name);
        std::fs::copy(file.folder.path().join(name), to).unwrap();
    }
    copy
}

#[test]
fn the_log_is_made_long_ahead_of_its_use_and_nothing_is_lost() {
    let file = File::new();
    let stores = [file.open_with_worker(), file.open()];
    let log = file.folder.path().join("runs.db-wal");
    let mut ahead = false;
    for number in 1..=100_u128 {
        started(&stores[usize::from(number % 2 == 0)], start(number));
        let bytes = std::fs::read(&log).unwrap();
        ahead |=
            bytes.len() == 1 << 20 && bytes[bytes.len() - 4096..].iter().all(|byte| *byte == 0);
        if number.is_multiple_of(10) {
            let copy = crashed(&file);
            let found = copy.open();
            assert_eq!(row(&found, run(number)).head, 1, "the last one is there");
            assert_eq!(row(&found, run(1)).head, 1, "and the first");
        }
    }
    assert!(ahead, "it was filled with zeros");
}

#[test]
fn fa_16_by_default_it_waits_half_a_minute_for_others_and_tries_three_times_again() {
    let options = Options::default();
    assert_eq!(options.busy_timeout, Duration::from_secs(30));
    let tries = super::writer::BUSY_TRIES;
    assert_eq!(tries, 3);
    let waited = options.busy_wait() * (tries + 1);
    assert!(waited < options.answer_within, "they are told why");
    assert!(waited * 2 > options.busy_timeout, "{waited:?}");
    let hasty = Options {
        answer_within: Duration::from_secs(1),
        ..Options::default()
    };
    assert!(hasty.busy_wait() * (tries + 1) < hasty.answer_within);
}
