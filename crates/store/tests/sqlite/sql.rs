//! Statements of an operator's own.

use roundel_core::limits::{SQL_ANSWER, SQL_TIME};
use roundel_store::{Answer, Error, Query, Sqlite, Statement, Store, Table, Value};

use crate::tools::{File, dump, read, start, started};

fn sql(store: &Sqlite, text: &str, limit: usize) -> Result<Table, Error> {
    let text = text.to_owned();
    match read(store, Query::Sql(Statement { text, limit }))? {
        Answer::Table(table) => Ok(table),
        other => panic!("{other:?}"),
    }
}

fn refused(store: &Sqlite, text: &str) -> String {
    match sql(store, text, 10) {
        Err(Error::Statement(why)) => why,
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn a_statement_gives_columns_and_rows_up_to_a_limit() {
    let file = File::new();
    let store = file.open();
    for number in 1..=5 {
        started(&store, start(number));
    }
    let all = "SELECT state, count(*) AS runs FROM roundel_run GROUP BY state";
    let table = sql(&store, all, 10).unwrap();
    assert_eq!(table.columns, ["state", "runs"]);
    let row = vec![Value::Text("ready".into()), Value::Integer(5)];
    assert_eq!((table.rows, table.more), (vec![row], false));
    let some = sql(&store, "SELECT id FROM roundel_run;", 3).unwrap();
    assert_eq!((some.rows.len(), some.more), (3, true));
    let exactly = sql(&store, "SELECT id FROM roundel_run", 5).unwrap();
    assert_eq!((exactly.rows.len(), exactly.more), (5, false));
    let kinds = "SELECT NULL, 1.5, x'00ff', CAST(x'ff' AS TEXT) WHERE 1";
    let kinds = sql(&store, kinds, 1).unwrap().rows.remove(0);
    let bytes = |bytes: &[u8]| Value::Blob(bytes.to_vec());
    let wanted = [
        Value::Null,
        Value::Real(1.5),
        bytes(&[0, 255]),
        bytes(&[255]),
    ];
    assert_eq!(kinds, wanted);
    let Ok(Answer::Table(views)) = read(&store, Query::Views) else {
        panic!("no views")
    };
    assert_eq!(views.columns, ["kind", "name", "columns"]);
    assert_eq!(views.rows[0][0], Value::Text("view".into()));
    let named = |name: &str| {
        views
            .rows
            .iter()
            .any(|row| row[1] == Value::Text(name.into()))
    };
    assert!(named("roundel_entry") && named("roundel_run"), "{views:?}");
}

#[test]
fn n9_a_statement_cannot_change_anything() {
    let file = File::new();
    let store = file.open();
    started(&store, start(1));
    let before = dump(&store);
    for text in [
        "DELETE FROM roundel_run",
        "DELETE FROM roundel_run RETURNING id",
        "UPDATE roundel_run SET mail = 5",
        "INSERT INTO roundel_run (id) VALUES (1)",
        "CREATE TABLE mine (a)",
        "CREATE TEMP TABLE mine (a)",
        "DROP TABLE roundel_run",
        "ATTACH 'other.db' AS other",
        "DETACH main",
        "BEGIN",
        "BEGIN IMMEDIATE",
        "SAVEPOINT a",
        "PRAGMA query_only = 0",
        "PRAGMA wal_checkpoint(TRUNCATE)",
        "PRAGMA journal_mode = DELETE",
        "PRAGMA writable_schema = 1",
        "VACUUM",
        "VACUUM INTO 'copy.db'",
        "REINDEX",
        "ANALYZE",
        "SELECT load_extension('x')",
        "SELECT 1; DELETE FROM roundel_run",
        "SELECT $1",
        "SELEC 1",
        "SELECT * FROM nothing",
        "",
        " ; ",
    ] {
        refused(&store, text);
    }
    assert!(refused(&store, &"x".repeat(70_000)).contains("bytes"));
    assert_eq!(dump(&store), before);
    // And it is as good as before.
    assert_eq!(sql(&store, "SELECT 1", 1).unwrap().rows.len(), 1);
    sql(&store, "EXPLAIN QUERY PLAN SELECT * FROM roundel_run", 9).unwrap();
    sql(&store, "PRAGMA table_info(roundel_run)", 99).unwrap();
    let copies = std::fs::read_dir(file.folder.path()).unwrap();
    let names: Vec<_> = copies.map(|entry| entry.unwrap().file_name()).collect();
    let ours = |name: &std::ffi::OsString| name.to_string_lossy().starts_with("runs.db");
    assert!(names.iter().all(ours), "{names:?}");
}

#[test]
fn g17_a_statement_that_runs_away_is_stopped_and_nobody_waits_for_it() {
    let file = File::new();
    let store = file.open();
    let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) \
         SELECT max(i) FROM n";
    let began = std::time::Instant::now();
    std::thread::scope(|scope| {
        let two: Vec<_> = (0..2)
            .map(|_| scope.spawn(|| refused(&store, endless)))
            .collect();
        while began.elapsed() < SQL_TIME / 4 {
            // The engine reads and writes as ever, meanwhile.
            started(&store, start(began.elapsed().as_nanos()));
            dump(&store);
        }
        let third = sql(&store, "SELECT 1", 1);
        assert!(matches!(third, Err(Error::Unavailable(_))), "{third:?}");
        for stopped in two {
            let why = stopped.join().unwrap();
            assert!(why.contains("stopped after 2s"), "{why}");
        }
    });
    assert!(began.elapsed() < SQL_TIME * 3, "{:?}", began.elapsed());
    sql(&store, "SELECT 1", 1).unwrap();
}

#[test]
fn n9_an_answer_does_not_grow_without_bounds() {
    let file = File::new();
    let store = file.open();
    assert!(refused(&store, "SELECT zeroblob(1000000000)").contains("too big"));
    let large = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 1000) \
         SELECT zeroblob(1000000) FROM n";
    let table = sql(&store, large, 1_000).unwrap();
    assert!(table.more && table.rows.len() <= SQL_ANSWER / 1_000_000 + 1);
    store.close();
    let closed = sql(&store, "SELECT 1", 1);
    assert!(matches!(closed, Err(Error::Closed)), "{closed:?}");
}
