//! Which files are opened, which are made, and which are left alone.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use roundel_core::Target;
use roundel_store::{Answer, Error, Options, Query, Sqlite, Store};
use rusqlite::Connection;

use crate::tools::{File, SPACE, claimed, dump, read, run, start, started};

/// The text of the refusal.
fn refusal(path: &Path, options: Options) -> String {
    match Sqlite::open(path, options) {
        Err(Error::Unusable(message)) => message,
        other => panic!("{other:?}"),
    }
}

fn says(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "`{part}` is missing in: {message}");
    }
}

#[test]
fn a_new_file_is_made_for_its_owner_alone_and_marked() {
    let file = File::new();
    let store = file.open();
    started(&store, start(1));
    let mode = fs::metadata(file.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let log = file.folder.path().join("runs.db-wal");
    let mode = fs::metadata(log).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let connection = Connection::open(file.path()).unwrap();
    let pragma = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    assert_eq!(pragma("application_id").unwrap(), 0x526E_646C);
    let mode: String = connection
        .pragma_query_value(None, "journal_mode", |row| row.get(0))
        .unwrap();
    assert_eq!(mode, "wal");
}

#[test]
fn the_tables_are_added_to_a_database_that_the_user_has() {
    let file = File::new();
    let own = Connection::open(file.path()).unwrap();
    own.execute_batch("CREATE TABLE customer (name TEXT); INSERT INTO customer VALUES ('Ada')")
        .unwrap();
    let store = file.open();
    started(&store, start(1));
    assert_eq!(dump(&store).runs.len(), 1);
    let name: String = own
        .query_row("SELECT name FROM customer", [], |row| row.get(0))
        .unwrap();
    assert_eq!(name, "Ada");
    let id: i64 = own
        .pragma_query_value(None, "application_id", |row| row.get(0))
        .unwrap();
    assert_eq!(id, 0, "the user's file stays the user's");
}

#[test]
fn nothing_is_created_where_that_was_not_asked_for() {
    let file = File::new();
    let options = || Options {
        create: false,
        ..file.options()
    };
    says(
        &refusal(&file.path(), options()),
        &["there is no database", "runs.db"],
    );
    assert!(!file.path().exists());
    let own = Connection::open(file.path()).unwrap();
    own.execute_batch("CREATE TABLE customer (name TEXT)")
        .unwrap();
    says(&refusal(&file.path(), options()), &["no tables of roundel"]);
    drop(file.open());
    assert!(Sqlite::open(&file.path(), options()).is_ok());
}

#[test]
fn g12_garbage_is_refused_and_left_as_it_is() {
    let file = File::new();
    for garbage in [&b"hello"[..], &[0; 4096], b"SQLite format 3"] {
        fs::write(file.path(), garbage).unwrap();
        says(
            &refusal(&file.path(), file.options()),
            &["not an SQLite database", "left alone"],
        );
        assert_eq!(fs::read(file.path()).unwrap(), garbage);
    }
}

#[test]
fn g12_a_truncated_or_damaged_database_is_refused_and_left_as_it_is() {
    let file = File::new();
    let store = file.open_with_worker();
    claimed(&store, 1);
    drop(store);
    let whole = fs::read(file.path()).unwrap();
    let mut damaged = whole.clone();
    damaged[100..4000].fill(0xAB);
    for broken in [&whole[..1000], &whole[..50], &damaged[..]] {
        fs::write(file.path(), broken).unwrap();
        says(
            &refusal(&file.path(), file.options()),
            &["damaged or not a database"],
        );
        assert_eq!(fs::read(file.path()).unwrap(), broken);
    }
}

#[test]
fn g12_a_database_of_another_program_is_refused() {
    let file = File::new();
    let own = Connection::open(file.path()).unwrap();
    own.execute_batch("PRAGMA application_id = 252006673; CREATE TABLE layer (x)")
        .unwrap();
    drop(own);
    let before = fs::read(file.path()).unwrap();
    says(
        &refusal(&file.path(), file.options()),
        &["another program", "0xf055111"],
    );
    assert_eq!(fs::read(file.path()).unwrap(), before);
}

#[test]
fn a_newer_schema_is_refused() {
    let file = File::new();
    drop(file.open());
    let own = Connection::open(file.path()).unwrap();
    own.execute_batch("UPDATE roundel_meta SET value = 99 WHERE name = 'schema'")
        .unwrap();
    says(
        &refusal(&file.path(), file.options()),
        &["schema version 99", "newer version"],
    );
}

#[test]
fn a_folder_and_a_missing_folder_are_refused() {
    let file = File::new();
    says(
        &refusal(file.folder.path(), file.options()),
        &["is a folder"],
    );
    let nowhere = file.folder.path().join("no/such/folder.db");
    says(&refusal(&nowhere, file.options()), &["cannot be used"]);
}

#[test]
fn g13_a_file_that_may_not_be_written_is_refused() {
    let file = File::new();
    drop(file.open());
    let set = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    set(&file.path(), 0o400);
    if fs::OpenOptions::new().write(true).open(file.path()).is_ok() {
        // A superuser may write to anything.
        return;
    }
    says(
        &refusal(&file.path(), file.options()),
        &["cannot be written to"],
    );
    set(&file.path(), 0o600);
    set(file.folder.path(), 0o500);
    says(&refusal(&file.path(), file.options()), &["folder"]);
    set(file.folder.path(), 0o700);
}

#[test]
fn several_may_open_a_new_file_at_once() {
    let file = File::new();
    std::thread::scope(|scope| {
        let opening = (0..4)
            .map(|_| scope.spawn(|| file.open()))
            .collect::<Vec<_>>();
        for (number, opened) in opening.into_iter().enumerate() {
            let store = opened.join().unwrap();
            started(&store, start(number as u128 + 1));
        }
    });
    assert_eq!(dump(&file.open()).runs.len(), 4);
}

#[test]
fn closing_twice_is_fine_and_answers_come_no_more() {
    let file = File::new();
    let store = file.open();
    started(&store, start(1));
    store.close();
    store.close();
    let answer = roundel_store::ask(&store, roundel_core::Op::Start(start(2)));
    assert_eq!(answer, Err(Error::Closed));
    let query = Query::Run(SPACE, Target::Run(run(1)));
    assert_eq!(read(&store, query.clone()), Err(Error::Closed));
    assert!(
        !file.folder.path().join("runs.db-wal").exists(),
        "the log was moved"
    );
    assert!(matches!(
        read(&file.open(), query),
        Ok(Answer::Run(Some(_)))
    ));
}
