//! Statements of an operator's own.

use roundel_core::limits::SQL_TIME;
use roundel_store::{
    Answer, Error, Postgres, PostgresOptions, Query, Statement, Store, Table, Value,
};

use crate::tools::{claimed, dump, open, options, register, sql as outside, wait_for};

fn sql(store: &Postgres, text: &str, limit: usize) -> Result<Table, Error> {
    let text = text.to_owned();
    match wait_for(store.read(Query::Sql(Statement { text, limit })))? {
        Answer::Table(table) => Ok(table),
        other => panic!("{other:?}"),
    }
}

fn refused(store: &Postgres, text: &str) -> String {
    match sql(store, text, 10) {
        Err(Error::Statement(why)) => why,
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn a_statement_gives_columns_and_rows_up_to_a_limit() {
    let Some(schema) = roundel_testpg::schema() else {
        return;
    };
    let store = open(&schema);
    register(&store);
    for number in 1..=5 {
        claimed(&store, number);
    }
    let all = "SELECT state, count(*) AS runs FROM roundel_run GROUP BY state";
    let table = sql(&store, all, 10).unwrap();
    assert_eq!(table.columns, ["state", "runs"]);
    let row = vec![Value::Text("running".into()), Value::Integer(5)];
    assert_eq!((table.rows, table.more), (vec![row], false));
    let some = sql(&store, "SELECT id FROM roundel_run", 3).unwrap();
    assert_eq!((some.rows.len(), some.more), (3, true));
    let none = sql(&store, "SELECT id FROM roundel_run WHERE false", 3).unwrap();
    assert_eq!((none.columns, none.rows), (vec!["id".to_owned()], vec![]));
    let Ok(Answer::Table(views)) = wait_for(store.read(Query::Views)) else {
        panic!("no views")
    };
    assert_eq!(views.columns, ["kind", "name", "columns"]);
    let named = |name: &str| {
        views
            .rows
            .iter()
            .any(|row| row[1] == Value::Text(name.into()))
    };
    assert!(named("roundel_entry") && named("roundel_run"), "{views:?}");
    let strange = refused(&store, "SELECT ARRAY[1, 2] AS list");
    assert!(strange.contains("CAST(list AS TEXT)"), "{strange}");
}

#[test]
fn n9_a_statement_cannot_change_anything() {
    let Some(schema) = roundel_testpg::schema() else {
        return;
    };
    let store = open(&schema);
    register(&store);
    claimed(&store, 1);
    let before = dump(&store);
    let write = "DO $$ BEGIN SET TRANSACTION READ WRITE; DELETE FROM roundel_run; END $$";
    for text in [
        "DELETE FROM roundel_run",
        "DELETE FROM roundel_run RETURNING id",
        "WITH gone AS (DELETE FROM roundel_run RETURNING id) SELECT * FROM gone",
        "CREATE TABLE mine (a int)",
        "CREATE TEMP TABLE mine (a int)",
        "SELECT * INTO mine FROM roundel_run",
        "BEGIN",
        "COMMIT",
        "SET TRANSACTION READ WRITE",
        "COPY roundel_run TO STDOUT",
        "LOCK TABLE roundel_run",
        "SELECT id FROM roundel_run FOR UPDATE",
        write,
        "SELECT 1; DELETE FROM roundel_run",
        "COMMIT; DELETE FROM roundel_run",
        "SELECT $1::text",
        "SELEC 1",
        "SELECT * FROM nothing",
        "",
    ] {
        refused(&store, text);
    }
    assert_eq!(dump(&store), before);
    let lock = "SELECT set_config('statement_timeout', '0', false)";
    sql(&store, lock, 1).unwrap();
    let shown = sql(&store, "SHOW statement_timeout", 1).unwrap();
    assert_eq!(shown.rows[0][0], Value::Text("2s".into()));
}

#[test]
fn g17_a_statement_that_runs_away_is_stopped() {
    let Some(schema) = roundel_testpg::schema() else {
        return;
    };
    let store = open(&schema);
    outside(&schema, "SELECT 1");
    let began = std::time::Instant::now();
    std::thread::scope(|scope| {
        let two: Vec<_> = (0..2)
            .map(|_| scope.spawn(|| refused(&store, "SELECT pg_sleep(60)")))
            .collect();
        std::thread::sleep(SQL_TIME / 2);
        dump(&store);
        let third = sql(&store, "SELECT 1", 1);
        assert!(matches!(third, Err(Error::Unavailable(_))), "{third:?}");
        for stopped in two {
            let why = stopped.join().unwrap();
            assert!(why.contains("stopped after 2s"), "{why}");
        }
    });
    assert!(began.elapsed() < SQL_TIME * 3, "{:?}", began.elapsed());
    let many = "SELECT repeat('x', 1000000) FROM generate_series(1, 100)";
    let table = sql(&store, many, 1_000).unwrap();
    assert!(table.more && table.rows.len() < 20, "{}", table.rows.len());
    sql(&store, "SELECT 1", 1).unwrap();
}

#[test]
fn a_statement_comes_as_the_reader_if_there_is_one() {
    let Some(schema) = roundel_testpg::schema() else {
        return;
    };
    let store = open(&schema);
    claimed_one(&store);
    outside(&schema, "CREATE TABLE wages (who TEXT)");
    let reader = format!("{}_reader", schema.name());
    // A role is the server's, not the schema's: it has the schema's name, and goes at the end.
    let of_reader = |texts: &[&str]| {
        for text in texts {
            let text = text
                .replace("SPACE", schema.name())
                .replace("READER", &reader);
            outside(&schema, &text);
        }
    };
    of_reader(&[
        "CREATE ROLE READER LOGIN PASSWORD 'reading'",
        "GRANT USAGE ON SCHEMA SPACE TO READER",
        "GRANT SELECT ON roundel_run TO READER",
    ]);
    let (scheme, rest) = schema
        .address()
        .split_once("://")
        .map(|(a, b)| (a.to_owned(), b.to_owned()))
        .unwrap();
    let host = rest
        .split_once('@')
        .map_or(rest.clone(), |(_, host)| host.to_owned());
    let options = PostgresOptions {
        reader: Some(format!("{scheme}://{reader}:reading@{host}")),
        ..options(&schema)
    };
    let read = Postgres::open(&schema.address(), options).expect("a database");
    let who = sql(
        &read,
        "SELECT current_user::text AS who, count(*) AS runs FROM roundel_run",
        1,
    );
    let row = vec![Value::Text(reader.clone()), Value::Integer(1)];
    assert_eq!(who.expect("it may read that").rows, [row]);
    for text in [
        "SELECT * FROM wages",
        "SELECT * FROM roundel_audit",
        "SELECT pg_read_file('PG_VERSION')",
        "SELECT set_config('role', 'postgres', false), set_config('role', 'none', false), \
         query_to_xml('SELECT * FROM wages', true, true, '')::text",
    ] {
        let why = refused(&read, text);
        assert!(why.contains("permission denied"), "{text}: {why}");
    }
    // The engine itself does not come that way.
    claimed(&read, 2);
    read.close();
    drop(store);
    of_reader(&["DROP OWNED BY READER", "DROP ROLE READER"]);
}

fn claimed_one(store: &Postgres) {
    register(store);
    claimed(store, 1);
}
