//! Connections that are lost at any moment: nothing is lost, nothing is doubled.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use roundel_core::RunId;
use roundel_store::{Depth, Error, Postgres, Store, verify};
use roundel_testpg::{Schema, schema};
use sqlx::{Connection, PgConnection};

use crate::tools::{claimed, commit, dump, open, register, round, sql, wait_for};

const KILL: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
     WHERE application_name = $1 ORDER BY random() LIMIT 1";

/// Ends so many connections of the stores, one after the other.
fn kill(schema: &Schema, count: u64, over: &AtomicBool) {
    wait_for(async {
        let mut connection = PgConnection::connect(&schema.address()).await.expect("one");
        let mut killed = 0;
        while killed < count {
            let killing = sqlx::query(KILL).bind(schema.name());
            let done = killing.execute(&mut connection).await.expect("it may");
            killed += done.rows_affected();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    over.store(true, Ordering::Relaxed);
}

/// Commits so many rounds of one run at least, and goes on until it is over. Whatever is answered,
/// each is there once in the end. Returns how many.
fn rounds(store: &Postgres, run: RunId, count: u64, over: &AtomicBool) -> u64 {
    let mut epoch = 1;
    while epoch <= count || !over.load(Ordering::Relaxed) {
        match commit(store, round(run, epoch)) {
            Ok(committed) => epoch = committed.epoch,
            Err(Error::Unavailable(_)) => {}
            Err(Error::Unknown(_)) => {
                let rows = dump(store).runs;
                epoch = rows.iter().find(|row| row.id == run).expect("there").epoch;
            }
            Err(other) => panic!("{other} to round {epoch}"),
        }
    }
    epoch - 1
}

#[test]
fn h3_terminated_connections_lose_and_double_nothing() {
    const ROUNDS: u64 = 60;
    const KILLED: u64 = 12;
    let Some(schema) = schema() else { return };
    let schema = Arc::new(schema);
    let stores = Arc::new([open(&schema), open(&schema)]);
    register(&stores[0]);
    let runs: Vec<RunId> = (1..=6).map(|number| claimed(&stores[0], number)).collect();
    let over = Arc::new(AtomicBool::new(false));
    let killer = {
        let (schema, over) = (Arc::clone(&schema), Arc::clone(&over));
        thread::spawn(move || kill(&schema, KILLED, &over))
    };
    let workers: Vec<_> = (runs.iter().enumerate())
        .map(|(at, run)| {
            let (stores, run, over) = (Arc::clone(&stores), *run, Arc::clone(&over));
            thread::spawn(move || rounds(&stores[at % 2], run, ROUNDS, &over))
        })
        .collect();
    killer.join().expect("the killer");
    let workers = workers.into_iter().map(|worker| worker.join());
    let committed: Vec<u64> = workers.map(|rounds| rounds.expect("a worker")).collect();
    let dump = dump(&stores[0]);
    for (run, rounds) in runs.iter().zip(committed) {
        let row = dump.runs.iter().find(|row| row.id == *run).expect("there");
        assert_eq!((row.head, row.epoch), (rounds + 1, rounds + 1));
        let journal = dump.journal.iter().filter(|row| row.run == *run);
        assert_eq!(journal.count() as u64, rounds + 1);
    }
    let mut found = Vec::new();
    let verified = verify(&stores[1], Depth::Rows, |_, violations| {
        found.extend(violations);
    });
    wait_for(verified).expect("it is read");
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn a4_a_process_that_was_idle_for_long_is_taken_for_gone_and_goes_on() {
    let Some(schema) = schema() else { return };
    let store = open(&schema);
    register(&store);
    let run = claimed(&store, 1);
    let table = ["\"", schema.name(), "\".roundel_committer "].concat();
    let old = ["UPDATE ", &table, "SET at = 0"].concat();
    assert_eq!(crate::tools::sql(&schema, &old), 1);
    // Whoever opens forgets those who have not been heard of for long.
    let other = open(&schema);
    let gone = ["DELETE FROM ", &table, "WHERE at = 0"].concat();
    assert_eq!(crate::tools::sql(&schema, &gone), 0, "it is gone already");
    rounds(&store, run, 5, &AtomicBool::new(true));
    let row = dump(&other).runs.into_iter().find(|row| row.id == run);
    assert_eq!(row.expect("there").head, 6);
}

/// Fails so often, as a server does that makes a transaction give way.
const HITS: &str = "CREATE SEQUENCE hits";
const GIVES_WAY: &str = "\
CREATE FUNCTION gives_way() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF nextval(TG_TABLE_SCHEMA || '.hits') <= 3 THEN
        RAISE EXCEPTION 'give way' USING ERRCODE = TG_ARGV[0];
    END IF;
    RETURN NEW;
END $$";

/// A round whose first three tries fail with this code is committed by the fourth, once.
fn is_tried_again(code: &str, kept: bool) {
    let Some(schema) = schema() else { return };
    let store = open(&schema);
    register(&store);
    let run = claimed(&store, 1);
    if !kept {
        // Somebody else has written the row: it is decided over locked ones.
        sql(&schema, "UPDATE roundel_run SET changed_at = changed_at");
    }
    sql(&schema, HITS);
    sql(&schema, GIVES_WAY);
    let trigger = [
        "CREATE TRIGGER gives_way BEFORE INSERT ON roundel_journal FOR EACH ROW ",
        "EXECUTE FUNCTION gives_way('",
        code,
        "')",
    ]
    .concat();
    sql(&schema, &trigger);
    commit(&store, round(run, 1)).expect("a round");
    assert_eq!(dump(&store).journal.len(), 2, "{code}");
    assert_eq!(sql(&schema, "SELECT FROM hits WHERE last_value >= 4"), 1);
    assert!(store.metrics().retries >= 3, "{code}");
    store.close();
}

#[test]
fn h6_whoever_the_server_makes_give_way_is_tried_again_whatever_the_code() {
    for code in ["40001", "40P01", "55P03"] {
        is_tried_again(code, true);
        is_tried_again(code, false);
    }
}

/// Ends its own connection, the first time.
const DIES: &str = "\
CREATE FUNCTION dies() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF nextval(TG_TABLE_SCHEMA || '.hits') = 1 THEN
        PERFORM pg_terminate_backend(pg_backend_pid());
    END IF;
    RETURN NEW;
END $$";
const ITS_TRIGGER: &str = "CREATE TRIGGER dies BEFORE INSERT ON roundel_journal FOR EACH ROW \
     EXECUTE FUNCTION dies()";

#[test]
fn a5_a_round_alone_that_was_not_answered_is_looked_for_in_its_journal() {
    let Some(schema) = schema() else { return };
    let store = open(&schema);
    register(&store);
    let run = claimed(&store, 1);
    for statement in [HITS, DIES, ITS_TRIGGER] {
        sql(&schema, statement);
    }
    commit(&store, round(run, 1)).expect("a round");
    assert_eq!(dump(&store).journal.len(), 2);
    store.close();
}
