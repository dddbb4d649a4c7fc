//! A database that is busy, full, replaced or gone.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use roundel_core::{Delete, Op, Outcome, RunState, Target, Then};
use roundel_store::{Answered, Ask, Error, Options, Query, Request, Sink, Sqlite, Store, ask};
use rusqlite::Connection;

use crate::disk::{Disk, Plan};
use crate::tools::{
    File, SPACE, ask_all, claimed, commit, dump, payload, read, round, row, run, start, started,
};

#[test]
fn g1_a_write_lock_that_stays_makes_requests_fail_and_nothing_is_lost() {
    let file = File::new();
    let options = Options {
        busy_timeout: Duration::from_millis(5),
        ..file.options()
    };
    let store = Sqlite::open(&file.path(), options).unwrap();
    crate::tools::register(&store);
    let id = claimed(&store, 1);
    let other = Connection::open(file.path()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let refused = commit(&store, round(id, 1));
    assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
    assert!(refused.unwrap_err().is_passing());
    assert_eq!(store.metrics().busy, 4, "one try and three more");
    assert_eq!(row(&store, id).head, 1, "readers are not held up");
    other.execute_batch("COMMIT").unwrap();
    assert!(commit(&store, round(id, 1)).is_ok());
}

#[test]
fn g1_a_write_lock_that_goes_is_waited_for() {
    let file = File::new();
    let store = file.open_with_worker();
    let id = claimed(&store, 1);
    let other = Connection::open(file.path()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let (sink, answers) = crate::tools::collector();
    let ask = Ask::Op(Op::Commit(round(id, 1)));
    let request = roundel_store::Request {
        ask: Box::new(ask),
        tag: 0,
        sink,
    };
    roundel_store::Store::submit(&store, vec![request]);
    assert!(answers.recv_timeout(Duration::from_millis(30)).is_err());
    other.execute_batch("COMMIT").unwrap();
    assert!(answers.recv().unwrap().result.is_ok());
}

#[test]
fn g3_a_full_database_refuses_and_goes_on_when_there_is_room() {
    let file = File::new();
    let options = Options {
        max_bytes: Some(400_000),
        ..file.options()
    };
    let store = Sqlite::open(&file.path(), options).unwrap();
    crate::tools::register(&store);
    let large = payload(&format!("\"{}\"", "x".repeat(20_000)));
    let mut kept = Vec::new();
    let refused = loop {
        let number = kept.len() as u128 + 1;
        let id = match ask(&store, Op::Start(start(number))) {
            Ok(_) => run(number),
            Err(error) => break error,
        };
        let mut start = start(1000 + number);
        start.input = large.clone();
        match ask(&store, Op::Start(start)) {
            Ok(_) => kept.extend([id, run(1000 + number)]),
            Err(error) => break error,
        }
        assert!(kept.len() < 100, "the limit holds");
    };
    assert!(matches!(refused, Error::Unavailable(_)), "{refused:?}");
    let there = dump(&store);
    for id in &kept {
        assert!(
            there.runs.iter().any(|row| row.id == *id),
            "what was acknowledged is there"
        );
    }
    for id in kept.iter().filter(|id| **id >= run(1000)) {
        let delete = Delete {
            namespace: SPACE,
            target: Target::Run(*id),
            force: true,
        };
        let deleted = ask(&store, Op::Delete(delete));
        assert!(deleted.is_ok(), "{deleted:?}");
    }
    started(&store, start(5000));
}

#[test]
fn g9_a_deleted_file_stops_everything() {
    let file = File::new();
    let store = file.open_with_worker();
    let id = claimed(&store, 1);
    std::fs::remove_file(file.path()).unwrap();
    for _ in 0..2 {
        let refused = commit(&store, round(id, 1));
        let Err(Error::Unusable(message)) = refused else {
            panic!("{refused:?}");
        };
        assert!(
            message.contains("was deleted while it was open"),
            "{message}"
        );
    }
    assert!(matches!(
        read(&store, Query::Workers),
        Err(Error::Unusable(_))
    ));
    assert!(!file.path().exists());
}

#[test]
fn g9_a_replaced_file_stops_everything_and_is_left_alone() {
    let file = File::new();
    let store = file.open_with_worker();
    let id = claimed(&store, 1);
    let other = File::new();
    drop(other.open());
    std::fs::rename(other.path(), file.path()).unwrap();
    let before = std::fs::read(file.path()).unwrap();
    let refused = commit(&store, round(id, 1));
    let Err(Error::Unusable(message)) = refused else {
        panic!("{refused:?}");
    };
    assert!(
        message.contains("was replaced by another file"),
        "{message}"
    );
    drop(store);
    assert_eq!(std::fs::read(file.path()).unwrap(), before);
}

#[test]
fn a_request_that_cannot_be_written_is_refused_alone() {
    let file = File::new();
    let store = file.open_with_worker();
    let ids: Vec<_> = (1..10).map(|number| claimed(&store, number)).collect();
    let own = Connection::open(file.path()).unwrap();
    // Somebody damages one run: its state is none that this version knows.
    own.execute_batch(
        "PRAGMA ignore_check_constraints = ON; \
         UPDATE roundel_run SET state = 'teleported' WHERE hex(id) LIKE '%05'",
    )
    .unwrap();
    let asks = ids
        .iter()
        .map(|id| Ask::Op(Op::Commit(round(*id, 1))))
        .collect();
    for answer in ask_all(&store, asks) {
        match answer.tag {
            4 => {
                let Err(Error::Unusable(message)) = &answer.result else {
                    panic!("{answer:?}");
                };
                assert!(message.contains("teleported"), "{message}");
            }
            _ => assert!(answer.result.is_ok(), "{answer:?}"),
        }
    }
    assert!(store.metrics().retries > 0);
}

#[test]
fn a_batch_is_answered_in_one_call_and_costs_one_commit() {
    let file = File::new();
    let store = file.open_with_worker();
    let ids: Vec<_> = (1..=100).map(|number| claimed(&store, number)).collect();
    let before = store.metrics();
    let (sink, answers) = crate::tools::collector();
    let request = |id| roundel_store::Request {
        ask: Box::new(Ask::Op(Op::Commit(round(id, 1)))),
        tag: 0,
        sink: sink.clone(),
    };
    roundel_store::Store::submit(&store, ids.into_iter().map(request).collect());
    assert_eq!(
        answers
            .iter()
            .take(100)
            .filter(|answer| answer.result.is_ok())
            .count(),
        100
    );
    assert_eq!(*sink.calls.lock().unwrap(), 1);
    let after = store.metrics();
    assert_eq!(
        (
            after.batches - before.batches,
            after.requests - before.requests
        ),
        (1, 100)
    );
    assert!(after.bytes > before.bytes);
}

#[test]
fn refused_requests_refuse_alone() {
    let file = File::new();
    let store = file.open_with_worker();
    let id = claimed(&store, 1);
    let mut ends = round(id, 2);
    ends.then = Then::End(RunState::Completed, Outcome::Value(payload("1")));
    let rounds = [round(id, 1), round(id, 1), ends, round(id, 3)];
    let answers = ask_all(
        &store,
        rounds.map(|round| Ask::Op(Op::Commit(round))).into(),
    );
    let fine: Vec<bool> = answers.iter().map(|answer| answer.result.is_ok()).collect();
    assert_eq!(fine, [true, false, true, false]);
    assert_eq!(row(&store, id).state, RunState::Completed);
}

/// Asks again as soon as it is told that nothing happened.
struct Impatient {
    store: Arc<Sqlite>,
    done: mpsc::Sender<()>,
}

impl Impatient {
    fn ask(store: &Arc<Sqlite>, done: &mpsc::Sender<()>) {
        let sink = Impatient {
            store: Arc::clone(store),
            done: done.clone(),
        };
        let request = Request {
            ask: Box::new(Ask::Op(Op::Start(start(1)))),
            tag: 0,
            sink: Arc::new(sink),
        };
        store.submit(vec![request]);
    }
}

impl Sink for Impatient {
    fn deliver(&self, answers: Vec<Answered>) {
        for answer in answers {
            match answer.result {
                Ok(_) => self.done.send(()).unwrap(),
                Err(Error::Closed) => {}
                Err(_) => Impatient::ask(&self.store, &self.done),
            }
        }
    }
}

#[test]
fn g4_a_file_is_opened_again_however_impatient_its_clients_are() {
    let file = File::new();
    let disk = Disk::mount(file.folder.path(), Plan::Well);
    drop(file.open_with_worker());
    let store = Arc::new(file.open());
    let (done, all_done) = mpsc::channel();
    disk.fail_reads(true);
    for _ in 0..3 {
        Impatient::ask(&store, &done);
    }
    assert!(all_done.recv_timeout(Duration::from_millis(300)).is_err());
    disk.fail_reads(false);
    for _ in 0..3 {
        let patience = Duration::from_secs(10);
        let done = all_done.recv_timeout(patience);
        done.expect("the file is opened again");
    }
    store.close();
}
