//! Whoever can write the database changes or moves what is sealed: it does not open, and the run
//! that needs it is parked with what was found.

use roundel::{Cx, EngineBuilder, Error, Failure, Result, RunId, RunState, Signal, Workflow};
use rusqlite::Connection;

use super::keys;
use crate::support::{Db, soon, until};

const WAITS: Workflow<u32, u32> = Workflow::named("waits");
const GO: Signal<u32> = Signal::named("go");
const STOP: Signal<u32> = Signal::named("stop");

async fn waits(cx: Cx, input: u32) -> Result<u32> {
    let effect = cx.effect("call", async |_| Ok::<_, Failure>(100)).await?;
    cx.set_state(&serde_json::json!({ "a": 1, "b": 2 })).await?;
    Ok(input + effect + cx.wait(GO).await?)
}

fn set_up(engine: EngineBuilder) -> EngineBuilder {
    engine.sealed(keys()).register(WAITS, waits)
}

/// Two runs that wait, and a process that has them no longer in memory; between the two, somebody
/// does this to the database.
async fn after(
    change: impl Fn(&Connection, [RunId; 2]),
) -> (Db, crate::support::Process, [RunId; 2]) {
    let db = Db::sqlite();
    let process = db.start(set_up).await;
    let mut runs = Vec::new();
    for input in [1, 2] {
        let run = process.start(WAITS, &input).await.unwrap().id();
        until("it waits", async || {
            process.run(run).await.unwrap().row.state == RunState::Waiting
        })
        .await;
        runs.push(run);
    }
    process.shutdown().await;
    let runs = [runs[0], runs[1]];
    change(&file(&db), runs);
    let process = db.start(set_up).await;
    (db, process, runs)
}

fn file(db: &Db) -> Connection {
    let roundel_store::Place::File(path) = db.to_be_moved() else {
        unreachable!("a file")
    };
    Connection::open(path).unwrap()
}

/// What a run is parked with once it has got its signal.
async fn why(process: &crate::support::Process, run: RunId) -> Option<Failure> {
    process.signal(run, GO, &1000).await.unwrap();
    let mut handle = process.handle(WAITS, run).await.unwrap();
    match soon("its end", handle.result()).await {
        Ok(_) => None,
        Err(Error::Parked { reason, .. }) => Some(*reason),
        Err(error) => panic!("{error}"),
    }
}

fn assert_broken(run: RunId, why: Option<Failure>) {
    let why = why.expect("it is parked");
    assert_eq!(why.code, "sealed", "{why}");
    let text = why.to_string();
    assert!(
        text.contains(&run.to_string()) && text.contains("key `one`"),
        "{text}"
    );
}

/// The round that holds what its effect came to.
fn entries(db: &Connection, run: RunId) -> String {
    let sql = "SELECT entries FROM roundel_journal WHERE run = ?1 AND entries LIKE '%\"done\"%'";
    db.query_row(sql, [run.as_bytes()], |row| row.get(0))
        .unwrap()
}

fn write(db: &Connection, run: RunId, entries: &str) {
    let sql = "UPDATE roundel_journal SET entries = ?2 \
               WHERE run = ?1 AND entries LIKE '%\"done\"%'";
    assert_eq!(db.execute(sql, (run.as_bytes(), entries)).unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p3_a_byte_that_was_changed_parks_the_run_that_needs_it_and_no_other() {
    let flip = |db: &Connection, [run, _]: [RunId; 2]| {
        let text = entries(db, run);
        let at = text.find("roundel:sealed:1:one:").unwrap() + 60;
        let other = if &text[at..=at] == "A" { "B" } else { "A" };
        write(
            db,
            run,
            &format!("{}{other}{}", &text[..at], &text[at + 1..]),
        );
    };
    let (db, process, [run, other]) = after(flip).await;
    assert_broken(run, why(&process, run).await);
    assert_eq!(why(&process, other).await.map(|why| why.to_string()), None);
    process.shutdown().await;
    drop(db);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p3_a_result_that_was_put_into_another_runs_journal_does_not_open() {
    let swap = |db: &Connection, [run, other]: [RunId; 2]| {
        let [one, two] = [run, other].map(|run| entries(db, run));
        write(db, run, &two);
        write(db, other, &one);
    };
    let (db, process, runs) = after(swap).await;
    for run in runs {
        assert_broken(run, why(&process, run).await);
    }
    process.shutdown().await;
    drop(db);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p3_a_message_that_takes_the_place_of_another_of_its_run_does_not_open() {
    let (db, process, [run, _]) = after(|_, _| {}).await;
    process.shutdown().await;
    let client = db.start(|engine| engine.sealed(keys())).await;
    client.signal(run, STOP, &7).await.unwrap();
    client.signal(run, GO, &1).await.unwrap();
    client.shutdown().await;
    let swap = "UPDATE roundel_mail SET body = \
                (SELECT body FROM roundel_mail WHERE name = 'stop') WHERE name = 'go'";
    assert_eq!(file(&db).execute(swap, []).unwrap(), 1);
    let process = db.start(set_up).await;
    let mut handle = process.handle(WAITS, run).await.unwrap();
    let Err(Error::Parked { reason, .. }) = soon("its end", handle.result()).await else {
        panic!("it is parked")
    };
    assert_broken(run, Some(*reason));
    process.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p3_a_database_of_another_namespace_opens_nothing() {
    let rename = |db: &Connection, _: [RunId; 2]| {
        let sql = "UPDATE roundel_lane SET namespace = 'other' WHERE namespace = 'default'";
        assert!(db.execute(sql, []).unwrap() > 0);
    };
    let (db, process, [run, _]) = after(rename).await;
    let other = db.start(|engine| set_up(engine).namespace("other")).await;
    assert_broken(run, why(&other, run).await);
    for process in [process, other] {
        process.shutdown().await;
    }
    std::mem::forget(db.damaged_on_purpose());
}
