//! Verification of a real file: what is damaged behind the store's back is found, and nothing else.

use roundel_core::check::{Invariant, Violation};
use roundel_core::{Name, Start};
use roundel_store::{Checked, Depth, Sqlite, Store, verify};
use rusqlite::Connection;

use crate::tools::{File, run, start, started, wait_for};

fn violations(store: &Sqlite) -> (Checked, Vec<Violation>) {
    let mut found = Vec::new();
    let told = |_: &Checked, some| found.extend(some);
    let checked = wait_for(verify(store, Depth::Entries, told)).unwrap();
    (checked, found)
}

/// Three runs, the second with a key and a label.
fn three(file: &File) {
    let store = file.open();
    for number in [1, 2, 3] {
        let keyed = Start {
            key: (number == 2).then(|| Name::constant("second")),
            labels: vec![(Name::constant("city"), "Bern".into())],
            ..start(number)
        };
        started(&store, keyed);
    }
    store.close();
}

/// Damage by SQL, the number of the run it hits, and the promise it breaks.
const DAMAGES: [(&str, u128, Invariant); 10] = [
    ("DELETE FROM roundel_journal", 0, Invariant::GapFree),
    (
        "UPDATE roundel_journal SET entries = '[]'",
        0,
        Invariant::GapFree,
    ),
    (
        "UPDATE roundel_journal SET epoch = 9",
        0,
        Invariant::Fencing,
    ),
    (
        "UPDATE roundel_run SET mail = 1",
        0,
        Invariant::NoLostMessage,
    ),
    (
        "UPDATE roundel_run SET ready_at = NULL",
        0,
        Invariant::Liveness,
    ),
    ("UPDATE roundel_run SET crashes = 3", 0, Invariant::Attempts),
    ("UPDATE roundel_run SET depth = 7", 0, Invariant::NoOrphan),
    ("UPDATE roundel_run SET lane = 99", 0, Invariant::NoOrphan),
    ("DELETE FROM roundel_key", 2, Invariant::OneKey),
    (
        "UPDATE roundel_key SET namespace = 'other'",
        2,
        Invariant::Isolation,
    ),
];

#[test]
fn damage_behind_the_stores_back_is_found() {
    for (sql, hit, invariant) in DAMAGES {
        let file = File::new();
        three(&file);
        let own = Connection::open(file.path()).unwrap();
        own.execute_batch(sql).unwrap();
        drop(own);
        let (checked, found) = violations(&file.open());
        let hits = if hit == 0 { 3 } else { 1 };
        assert_eq!(
            (checked.runs, checked.violations),
            (3, hits),
            "{sql}: {found:?}"
        );
        assert!(
            found.iter().all(|one| one.invariant == invariant),
            "{sql}: {found:?}"
        );
        assert!(
            hit == 0 || found[0].run == Some(run(hit)),
            "{sql}: {found:?}"
        );
    }
}

#[test]
fn inv10_rows_of_runs_that_are_not_there_are_found() {
    for (gone, left) in [
        ("", 0),
        (" WHERE id <> x'00000000000000000000000000000002'", 2),
    ] {
        let file = File::new();
        three(&file);
        if left > 0 {
            let own = Connection::open(file.path()).unwrap();
            own.execute_batch(&["DELETE FROM roundel_run", gone].concat())
                .unwrap();
        }
        let (checked, found) = violations(&file.open());
        assert_eq!(checked.runs, 3 - left);
        // A journal row and a label of each.
        assert_eq!(found.len() as u64, 2 * left, "{found:?}");
        let all = found.iter().all(|one| one.invariant == Invariant::NoOrphan);
        assert!(all, "{found:?}");
    }
}

#[test]
fn m3_a_page_ends_when_there_is_much_in_it_and_nothing_is_left_out() {
    let file = File::new();
    let store = file.open();
    let large = format!("\"{}\"", "x".repeat(1 << 20));
    for number in 1..=12 {
        let input = roundel_core::Payload::parse(&large).unwrap();
        started(
            &store,
            Start {
                input,
                ..start(number)
            },
        );
    }
    let mut pages = Vec::new();
    let told = |checked: &Checked, _| pages.push(checked.runs);
    let checked = wait_for(verify(&store, Depth::Entries, told)).unwrap();
    assert_eq!(
        (checked.runs, checked.rounds, checked.violations),
        (12, 12, 0)
    );
    assert!(pages.len() > 3 && pages[0] < 12, "{pages:?}");
}

#[test]
fn inv24_a_damaged_page_and_a_broken_foreign_key_are_found() {
    let file = File::new();
    three(&file);
    assert_eq!(
        Sqlite::integrity(&file.path(), || ()).unwrap(),
        Vec::<String>::new()
    );
    let own = Connection::open(file.path()).unwrap();
    own.pragma_update(None, "foreign_keys", false).unwrap();
    own.execute_batch(
        "CREATE TABLE a (id INTEGER PRIMARY KEY); \
         CREATE TABLE b (a INTEGER REFERENCES a (id)); INSERT INTO b VALUES (7); \
         PRAGMA wal_checkpoint(TRUNCATE)",
    )
    .unwrap();
    drop(own);
    let found = Sqlite::integrity(&file.path(), || ()).unwrap();
    assert_eq!(found, ["row 1 of b refers to a row of a that is not there"]);
    let mut bytes = std::fs::read(file.path()).unwrap();
    let page = bytes.len() / 4096 / 2 * 4096;
    bytes[page..page + 4096].fill(0xAB);
    std::fs::write(file.path(), bytes).unwrap();
    let found = Sqlite::integrity(&file.path(), || ()).unwrap();
    assert!(found.len() > 1, "{found:?}");
}

#[test]
fn l4_a_schema_is_read_without_a_change_and_a_newer_one_is_refused() {
    let file = File::new();
    assert!(Sqlite::schema(&file.path()).is_err(), "there is no file");
    assert!(!file.path().exists(), "and none was made");
    three(&file);
    let before = std::fs::read(file.path()).unwrap();
    let schema = Sqlite::schema(&file.path()).unwrap();
    assert_eq!((schema.found, schema.missing.len()), (schema.known, 0));
    assert_eq!(Sqlite::migrate(&file.path()).unwrap(), schema);
    assert_eq!(std::fs::read(file.path()).unwrap(), before);
    let own = Connection::open(file.path()).unwrap();
    own.execute_batch("UPDATE roundel_meta SET value = value + 1")
        .unwrap();
    let refused = Sqlite::schema(&file.path()).unwrap_err().to_string();
    assert!(refused.contains("newer version"), "{refused}");
}
