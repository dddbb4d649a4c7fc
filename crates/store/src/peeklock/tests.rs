//! What the order of calls is for: each test does what a process may do that slept or died.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use roundel_core::{Op, Register, Reply, WorkerId};

use super::book::{Appended, Book};
use super::record::{Pieces, Record};
use super::{Folder, Objects, PeekLock, PeekLockOptions};
use crate::{Answer, Error, Query, Store, ask};

#[derive(Default)]
struct Shelf {
    objects: Mutex<BTreeMap<String, Vec<u8>>>,
    /// The next object that is made is not said to be.
    forgetful: Mutex<bool>,
}

impl Objects for Shelf {
    fn get(&self, key: &str) -> io::Result<Option<Vec<u8>>> {
        Ok(self.objects.lock().unwrap().get(key).cloned())
    }

    fn make(&self, key: &str, bytes: &[u8]) -> io::Result<bool> {
        let mut objects = self.objects.lock().unwrap();
        if objects.contains_key(key) {
            return Ok(false);
        }
        objects.insert(key.to_owned(), bytes.to_vec());
        if std::mem::take(&mut *self.forgetful.lock().unwrap()) {
            return Err(io::Error::other("the answer was lost"));
        }
        Ok(true)
    }

    fn list(&self, prefix: &str) -> io::Result<Vec<String>> {
        let objects = self.objects.lock().unwrap();
        let keys = objects.keys().filter(|key| key.starts_with(prefix));
        Ok(keys.cloned().collect())
    }

    fn remove(&self, key: &str) -> io::Result<()> {
        self.objects.lock().unwrap().remove(key);
        Ok(())
    }
}

fn book(shelf: &Arc<Shelf>, long: usize) -> Book {
    let mut book = Book::new(shelf.clone(), Duration::ZERO, long);
    book.catch_up().unwrap();
    book
}

fn record() -> Record {
    Record {
        id: uuid::Uuid::new_v4(),
        ..Record::default()
    }
}

fn append(book: &mut Book) {
    book.catch_up().unwrap();
    assert_eq!(book.append(&record()).unwrap(), Appended::Yes);
}

/// So many volumes are closed.
fn close(book: &mut Book, shelf: &Shelf, volumes: usize) {
    let closed = || shelf.list("closed/").unwrap().len();
    let goal = closed() + volumes;
    while closed() < goal {
        append(book);
        book.close_if_long().unwrap();
    }
}

#[test]
fn of_two_who_append_at_once_one_has_committed() {
    let shelf = Arc::new(Shelf::default());
    let (mut one, mut two) = (book(&shelf, 1 << 20), book(&shelf, 1 << 20));
    assert_eq!(one.append(&record()).unwrap(), Appended::Yes);
    assert_eq!(two.append(&record()).unwrap(), Appended::No);
}

#[test]
fn an_append_whose_answer_was_lost_can_be_repeated() {
    let shelf = Arc::new(Shelf::default());
    let mut one = book(&shelf, 1 << 20);
    let record = record();
    *shelf.forgetful.lock().unwrap() = true;
    one.append(&record).unwrap_err();
    assert_eq!(one.append(&record).unwrap(), Appended::Yes);
    assert_eq!(shelf.list("records/").unwrap().len(), 1);
}

#[test]
fn who_makes_a_record_again_that_was_removed_has_not_committed() {
    let shelf = Arc::new(Shelf::default());
    let mut sleeper = book(&shelf, 500);
    let mut other = book(&shelf, 500);
    close(&mut other, &shelf, 1);
    // Its place is free again.
    assert!(shelf.list("records/000000000000/").unwrap().is_empty());
    assert_eq!(sleeper.append(&record()).unwrap(), Appended::No);
    append(&mut sleeper);
}

#[test]
fn who_slept_does_not_believe_in_the_end_of_a_closed_volume() {
    let shelf = Arc::new(Shelf::default());
    let mut sleeper = book(&shelf, 500);
    close(&mut book(&shelf, 500), &shelf, 1);
    sleeper.catch_up().unwrap();
    assert_eq!(sleeper.append(&record()).unwrap(), Appended::Yes);
}

#[test]
fn who_committed_before_the_volume_was_closed_learns_it_afterwards() {
    let shelf = Arc::new(Shelf::default());
    let mut sleeper = book(&shelf, 500);
    let record = record();
    *shelf.forgetful.lock().unwrap() = true;
    sleeper.append(&record).unwrap_err();
    let mut other = book(&shelf, 500);
    close(&mut other, &shelf, 1);
    assert_eq!(sleeper.append(&record).unwrap(), Appended::Yes);
}

#[test]
fn who_slept_for_long_does_not_know_and_says_so() {
    let shelf = Arc::new(Shelf::default());
    let mut sleeper = book(&shelf, 500);
    let record = record();
    *shelf.forgetful.lock().unwrap() = true;
    sleeper.append(&record).unwrap_err();
    let mut other = book(&shelf, 500);
    close(&mut other, &shelf, 4);
    assert_eq!(sleeper.append(&record).unwrap(), Appended::Perhaps);
    append(&mut sleeper);
}

#[test]
fn a_volume_that_was_closed_and_not_begun_is_begun_by_the_next() {
    let shelf = Arc::new(Shelf::default());
    let mut one = book(&shelf, 500);
    append(&mut one);
    let last = Record {
        closes: true,
        ..record()
    };
    shelf
        .make("records/000000000000/000000000002", &last.encode())
        .unwrap();
    drop(one);
    let mut two = book(&shelf, 500);
    append(&mut two);
    assert!(shelf.get("closed/000000000000").unwrap().is_some());
    let first = "records/000000000001/000000000001";
    assert!(shelf.get(first).unwrap().is_some());
}

#[test]
fn what_was_removed_makes_room() {
    let shelf = Arc::new(Shelf::default());
    let mut one = book(&shelf, 500);
    close(&mut one, &shelf, 20);
    assert!(shelf.list("records/").unwrap().len() < 20);
    assert!(shelf.list("beginnings/").unwrap().len() <= 2);
}

#[test]
fn pieces_make_the_second_of_the_first() {
    let large: Vec<u8> = (0..20_000_u32).map(|n| (n % 251) as u8).collect();
    let mut changed = large.clone();
    changed[9_000] ^= 1;
    changed.truncate(17_001);
    let cases = [(vec![], large.clone()), (large.clone(), changed)];
    for (before, after) in cases {
        let pieces = Pieces::between(&before, &after);
        let mut image = before;
        pieces.apply(&mut image);
        assert!(image == after);
    }
    assert!(Pieces::between(&large, &large).is_nothing());
}

fn register(store: &dyn Store) -> Result<Reply, Error> {
    let register = Register {
        worker: WorkerId::from_bytes([7; 16]),
        name: "a worker".to_owned(),
        lanes: Vec::new(),
    };
    ask(store, Op::Register(register))
}

#[test]
fn an_object_that_was_damaged_is_named_and_nothing_is_guessed() {
    let folder = tempfile::tempdir().unwrap();
    let open = || {
        let objects = Folder::open(folder.path()).unwrap();
        PeekLock::open(Arc::new(objects), PeekLockOptions::default())
    };
    let store = open().unwrap();
    register(&store).unwrap();
    store.close();
    let path = folder.path().join("records/000000000000/000000000001");
    let mut bytes = std::fs::read(&path).unwrap();
    let last = bytes.len() - 3;
    bytes[last] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let Err(Error::Unusable(why)) = open() else {
        panic!("it was opened")
    };
    assert!(why.contains("records/000000000000/000000000001"), "{why}");
}

#[test]
fn what_was_committed_is_there_when_it_is_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    for _ in 0..3 {
        let objects = Folder::open(folder.path()).unwrap();
        let store = PeekLock::open(Arc::new(objects), PeekLockOptions::default()).unwrap();
        register(&store).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let answer = runtime.unwrap().block_on(store.read(Query::Dump));
        let Ok(Answer::Dump(dump)) = answer else {
            panic!("{answer:?}")
        };
        assert_eq!(dump.workers.len(), 1);
        store.close();
        assert_eq!(register(&store), Err(Error::Closed));
    }
}
