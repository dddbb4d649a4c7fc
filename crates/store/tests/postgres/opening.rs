//! What is opened, and what is refused with a word on what to do.

use std::sync::{Arc, Barrier};
use std::thread;

use roundel_store::{Error, Postgres, PostgresOptions, Store};
use roundel_testpg::{Server, Sync, schema};

use crate::tools::{address, claimed, commit, dump, open, options, register, round, sql};

fn refusal(opened: Result<Postgres, Error>) -> String {
    match opened {
        Err(Error::Unusable(message)) => message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn many_that_start_at_once_make_the_tables_once() {
    let Some(schema) = schema() else { return };
    let (schema, barrier) = (Arc::new(schema), Arc::new(Barrier::new(8)));
    let opening = |_| {
        let (schema, barrier) = (Arc::clone(&schema), Arc::clone(&barrier));
        thread::spawn(move || {
            barrier.wait();
            let store = open(&schema);
            (register(&store), dump(&store).lanes.len())
        })
    };
    let opening: Vec<_> = (0..8).map(opening).collect();
    for opened in opening {
        let (lane, lanes) = opened.join().expect("it opens");
        assert_eq!((lane.0, lanes), (1, 1));
    }
}

#[test]
fn a_schema_of_a_newer_version_is_refused() {
    let Some(schema) = schema() else { return };
    drop(open(&schema));
    sql(
        &schema,
        "UPDATE roundel_meta SET value = 99 WHERE name = 'schema'",
    );
    let message = refusal(Postgres::open(&address(&schema), options(&schema)));
    assert!(message.contains("version 99"), "{message}");
    assert!(message.contains("use the newer program"), "{message}");
}

#[test]
fn a_schema_without_tables_is_made_only_if_that_is_asked_for() {
    let Some(schema) = schema() else { return };
    let create = false;
    let look = PostgresOptions {
        create,
        ..options(&schema)
    };
    let message = refusal(Postgres::open(&address(&schema), look.clone()));
    assert!(message.contains("lacks 0001_runs"), "{message}");
    drop(open(&schema));
    Postgres::open(&address(&schema), look).expect("now it is there");
}

#[test]
fn h15_a_schemas_name_cannot_become_a_statement() {
    for name in ["", "a\"; DROP TABLE x; --", "Runs", "1st", "pg_temp", "é"] {
        let schema = name.to_owned();
        let options = PostgresOptions {
            schema,
            ..PostgresOptions::default()
        };
        let message = refusal(Postgres::open("postgres://nowhere.invalid/x", options));
        assert!(
            message.contains("no name for a schema"),
            "{name}: {message}"
        );
    }
}

#[test]
fn a_server_that_is_not_there_is_said_within_the_time_for_it() {
    let options = PostgresOptions::default();
    let opened = Postgres::open("postgres://user@127.0.0.1:1/none", options);
    assert!(matches!(opened, Err(Error::Unavailable(_))), "{opened:?}");
    let message = refusal(Postgres::open("mysql://x", PostgresOptions::default()));
    assert!(message.contains("postgres://user"), "{message}");
}

#[test]
fn h8_behind_a_pooler_nothing_is_kept_between_transactions() {
    let Some(schema) = schema() else { return };
    let pooled = true;
    let options = PostgresOptions {
        pooled,
        ..options(&schema)
    };
    let store = Postgres::open(&address(&schema), options).expect("a database");
    register(&store);
    let run = claimed(&store, 1);
    for epoch in 1..4 {
        commit(&store, round(run, epoch)).expect("a round");
    }
    assert_eq!(dump(&store).journal.len(), 4);
    store.close();
}

#[test]
fn h8_processes_that_share_connections_lose_and_double_nothing() {
    const ROUNDS: u64 = 20;
    let (Some(schema), Some(pooler)) = (schema(), roundel_testpg::pooler()) else {
        return;
    };
    let address = schema.address_at(pooler.address());
    let open = || {
        let options = PostgresOptions {
            pooled: true,
            ..options(&schema)
        };
        Postgres::open(&address, options).expect("a database")
    };
    let stores = [open(), open()];
    register(&stores[0]);
    let runs: Vec<_> = (1..=6).map(|number| claimed(&stores[0], number)).collect();
    std::thread::scope(|scope| {
        for (at, run) in runs.iter().enumerate() {
            let store = &stores[at % 2];
            scope.spawn(move || {
                for epoch in 1..=ROUNDS {
                    commit(store, round(*run, epoch)).expect("a round");
                }
            });
        }
    });
    let dump = dump(&stores[1]);
    assert_eq!(dump.journal.len() as u64, 6 * (ROUNDS + 1));
    let heads = dump.runs.iter().map(|row| (row.head, row.epoch));
    assert!(heads.eq([(ROUNDS + 1, ROUNDS + 1); 6]));
}

#[test]
fn h10_a_replica_is_refused_and_said_to_be_one() {
    // The server that others share must not become one.
    let binaries = match roundel_testpg::Binaries::find() {
        Ok(binaries) => binaries,
        Err(why) => return roundel_testpg::untested("h10: a replica is refused", &why),
    };
    let server = Server::start(&binaries, Sync::Off).expect("a server");
    let open = || Postgres::open(server.address(), PostgresOptions::default());
    drop(open().expect("a primary"));
    server.start_as_replica().expect("a replica");
    match open() {
        Err(Error::Unavailable(why)) => assert!(why.contains("is a replica"), "{why}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn h15_tables_of_the_same_names_elsewhere_are_not_taken_for_ours() {
    let (Some(schema), Some(decoy)) = (schema(), schema()) else {
        return;
    };
    for table in [
        "roundel_run",
        "roundel_journal",
        "roundel_lane",
        "roundel_meta",
    ] {
        sql(&decoy, &format!("CREATE TABLE {table} (nothing integer)"));
    }
    // The user's own path leads to the others.
    let store = Postgres::open(&address(&decoy), options(&schema)).expect("a database");
    register(&store);
    let run = claimed(&store, 1);
    commit(&store, round(run, 1)).expect("a round");
    assert_eq!(dump(&store).journal.len(), 2);
    assert_eq!(sql(&decoy, "SELECT FROM roundel_run"), 0);
    store.close();
}
