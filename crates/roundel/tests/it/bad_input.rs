//! Bad input: a clear error, and nothing is lost. Beside each offender a good run completes.

use std::path::Path;
use std::time::Duration;

use roundel::{
    Cx, Engine, EngineBuilder, Error, Failure, Refusal, Result, RunState, Sent, Signal, Tx,
    Workflow, limits,
};

use crate::support::{Db, all, sizes_differ};

const GOOD: Workflow<u32, u32> = Workflow::named("good");
const BAD: Workflow<String, u32> = Workflow::named("bad");
const NUMBER: Signal<u32> = Signal::named("number");
const TEXT: Signal<String> = Signal::named("number");

async fn good(cx: Cx, n: u32) -> Result<u32> {
    cx.step("note", |tx| async move {
        tx.execute("CREATE TABLE IF NOT EXISTS notes (n INTEGER)", ())
            .await?;
        tx.execute("INSERT INTO notes VALUES ($1)", (i64::from(n),))
            .await?;
        Ok::<_, Failure>(n)
    })
    .await
}

/// Does in a step what must not be done there.
async fn misbehave(tx: Tx, how: &str) -> Result<u32> {
    match how {
        "panic" => panic!("the step gave up"),
        "foreign" => tokio::time::sleep(Duration::from_millis(1)).await,
        sql => {
            tx.execute("CREATE TABLE IF NOT EXISTS half (n INTEGER UNIQUE)", ())
                .await?;
            tx.execute("INSERT INTO half VALUES (1)", ()).await?;
            tx.execute(sql, ()).await?;
        }
    }
    Ok(1)
}

async fn bad(cx: Cx, how: String) -> Result<u32> {
    // It has tries left, and needs none: nothing of this gets better by itself.
    cx.step("misbehave", |tx| misbehave(tx, &how)).await
}

fn both_workflows(engine: EngineBuilder) -> EngineBuilder {
    engine.register(GOOD, good).register(BAD, bad)
}

/// The offender is parked with this in its reason, and good runs beside it complete.
async fn is_parked_for(db: &Db, how: &str, words: &[&str]) {
    let process = db.start(both_workflows).await;
    let mut offender = process
        .start(BAD, &how.to_owned())
        .await
        .expect("it starts");
    let mut neighbour = process.start(GOOD, &7).await.expect("it starts");
    match offender.result().await {
        Err(Error::Parked { reason, .. }) => {
            let origin = reason.origin.as_ref().expect("a step failed");
            // In memory the engine has no tables that a step could write to.
            let missing = reason.to_string().contains("no such table");
            assert!(missing || origin.attempt == 1, "{how} was tried again");
            for word in words {
                let said = reason.to_string();
                assert!(said.contains(word), "{how}: `{said}` does not say `{word}`");
            }
        }
        other => panic!("{how}: not parked: {other:?}"),
    }
    assert_eq!(
        neighbour.result().await.expect("a good run completes"),
        7,
        "{how}"
    );
    process.engine.shutdown().await;
}

async fn a_step_that_panics_is_parked_with_what_it_said(db: Db) {
    is_parked_for(&db, "panic", &["panicked", "the step gave up"]).await;
}

async fn a_step_that_awaits_something_foreign_is_refused(db: Db) {
    is_parked_for(&db, "foreign", &["awaited something other", "effect"]).await;
}

async fn e15_a_step_cannot_end_its_transaction(db: Db) {
    for sql in [
        "COMMIT",
        "ROLLBACK",
        "SAVEPOINT mine",
        "ATTACH ':memory:' AS other",
    ] {
        is_parked_for(&db, sql, &["may not do this"]).await;
    }
    // Only SQLite has statements that end the transaction by themselves.
    if !db.is_on_server() {
        is_parked_for(&db, "INSERT OR ROLLBACK INTO half VALUES (1)", &[]).await;
    }
}

async fn e18_a_durable_call_inside_a_step_or_an_effect_is_refused(db: Db) {
    const NESTS: Workflow<String, ()> = Workflow::named("nests");
    async fn call(cx: Cx, how: &str) -> Result<()> {
        match how.split_once(' ').expect("two words").1 {
            "sleep" => cx.sleep(Duration::from_millis(1)).await,
            "now" => drop(cx.now().await),
            "wait" => drop(cx.wait(NUMBER).await?),
            "effect" => cx.effect("in", |_| async { Ok::<_, Failure>(()) }).await?,
            "step" => cx.step("in", |_| async { Ok::<_, Failure>(()) }).await?,
            "child" => drop(cx.child(GOOD, &1).await?),
            other => panic!("{other}?"),
        }
        Ok(())
    }
    async fn nests(cx: Cx, how: String) -> Result<()> {
        let (inner, how) = (&cx, how.as_str());
        if how.starts_with("step") {
            cx.step("out", |_| call(inner.clone(), how)).await
        } else {
            cx.effect("out", |_| call(inner.clone(), how)).await
        }
    }
    let register = |engine: EngineBuilder| both_workflows(engine).register(NESTS, nests);
    let process = db.start(register).await;
    for outer in ["step", "effect"] {
        for inner in ["sleep", "now", "wait", "effect", "step", "child"] {
            let how = format!("{outer} {inner}");
            let mut run = process.start(NESTS, &how).await.expect("it starts");
            match run.result().await {
                Err(Error::Parked { reason, .. }) => {
                    assert_eq!(reason.code, "misplaced_call", "{how}: {reason}");
                    assert!(reason.to_string().contains(outer), "{how}: {reason}");
                }
                other => panic!("{how}: not parked: {other:?}"),
            }
        }
    }
    let mut good = process.start(GOOD, &7).await.expect("it starts");
    assert_eq!(good.result().await.expect("it completes"), 7);
}

async fn e16_a_step_cannot_write_engine_tables(db: Db) {
    is_parked_for(&db, "DELETE FROM roundel_run", &[]).await;
    is_parked_for(
        &db,
        "CREATE TABLE roundel_mine (n INTEGER)",
        &["belong to the engine"],
    )
    .await;
}

async fn what_a_refused_step_wrote_is_gone(db: Db) {
    is_parked_for(&db, "COMMIT", &[]).await;
    const LOOK: Workflow<(), i64> = Workflow::named("look");
    async fn look(cx: Cx, (): ()) -> Result<i64> {
        cx.step("look", |tx| async move {
            // There is no table, unless something of that step was kept.
            let rows = tx.query_one("SELECT count(*) FROM half", ()).await;
            Ok::<i64, Failure>(rows.map_or(Ok(-1), |row| row.get(0))?)
        })
        .await
    }
    let process = db.start(|engine| engine.register(LOOK, look)).await;
    let mut run = process.start(LOOK, &()).await.expect("it starts");
    assert_eq!(run.result().await.expect("it looks"), -1);
}

async fn e13_a_transaction_that_escapes_its_step_is_of_no_use(db: Db) {
    const LEAK: Workflow<(), String> = Workflow::named("leak");
    async fn leak(cx: Cx, (): ()) -> Result<String> {
        let kept = std::sync::Mutex::new(None);
        cx.step("leak", |tx| {
            *kept.lock().expect("alone") = Some(tx);
            async { Ok::<_, Failure>(()) }
        })
        .await?;
        let tx = kept.lock().expect("alone").take().expect("it escaped");
        let error = tx.execute("SELECT 1", ()).await.expect_err("it is over");
        Ok(error.to_string())
    }
    let process = db.start(|engine| engine.register(LEAK, leak)).await;
    let mut run = process.start(LEAK, &()).await.expect("it starts");
    let said = run.result().await.expect("it goes on");
    assert!(said.contains("step"), "`{said}` does not speak of the step");
}

async fn a_workflow_that_awaits_something_foreign_is_parked(db: Db) {
    const LOST: Workflow<(), ()> = Workflow::named("lost");
    async fn lost(_: Cx, (): ()) -> Result<()> {
        std::future::pending::<()>().await;
        Ok(())
    }
    let process = db.start(|engine| engine.register(LOST, lost)).await;
    let mut run = process.start(LOST, &()).await.expect("it starts");
    match run.result().await {
        Err(Error::Parked { reason, .. }) => assert_eq!(reason.code, "foreign_await"),
        other => panic!("not parked: {other:?}"),
    }
}

async fn e10_a_payload_is_refused_one_byte_over_the_limit(db: Db) {
    if sizes_differ() {
        return;
    }
    let process = db.start(both_workflows).await;
    let fits = "x".repeat(limits::PAYLOAD_BYTES - 2);
    process
        .start(BAD, &fits)
        .delay(Duration::from_secs(3600))
        .await
        .expect("it fits");
    let over = "x".repeat(limits::PAYLOAD_BYTES - 1);
    match process.start(BAD, &over).await {
        Err(Error::Value(text)) => assert!(text.contains("at most 4194304"), "{text}"),
        other => panic!("not refused: {other:?}"),
    }
    assert_eq!(
        process.stats().await.expect("counts").runs.len(),
        1,
        "one run is there"
    );
}

async fn e21_bad_names_are_refused_with_the_reason(db: Db) {
    let process = db.start(both_workflows).await;
    for (name, word) in [("", "empty"), ("a\nb", "control"), ("..", "not names")] {
        match process.start(GOOD, &1).key(name).await {
            Err(Error::BadName(error)) => assert!(error.to_string().contains(word), "{error}"),
            other => panic!("{name:?} was not refused: {other:?}"),
        }
    }
    let long = process
        .start(GOOD, &1)
        .key("k".repeat(limits::NAME_BYTES + 1))
        .await;
    assert!(matches!(long, Err(Error::BadName(_))), "{long:?}");
    let fits = process
        .start(GOOD, &1)
        .key("k".repeat(limits::NAME_BYTES))
        .await;
    assert!(fits.is_ok(), "{fits:?}");
}

async fn e11_an_input_that_does_not_fit_parks_the_run_and_no_other(db: Db) {
    const WRONG: Workflow<String, u32> = Workflow::named("good");
    let process = db.start(both_workflows).await;
    let mut wrong = process
        .start(WRONG, &"not a number".to_owned())
        .await
        .expect("it starts");
    match wrong.result().await {
        Err(Error::Parked { reason, .. }) => assert_eq!(reason.code, "undecodable"),
        other => panic!("not parked: {other:?}"),
    }
    let mut neighbour = process.start(GOOD, &3).await.expect("it starts");
    assert_eq!(neighbour.result().await.expect("it completes"), 3);
}

async fn c14_a_signal_that_does_not_fit_does_not_block_the_next(db: Db) {
    const PICKY: Workflow<(), (String, u32)> = Workflow::named("picky");
    async fn picky(cx: Cx, (): ()) -> Result<(String, u32)> {
        let first = cx.wait(NUMBER).await.expect_err("it does not fit");
        Ok((first.code, cx.wait(NUMBER).await?))
    }
    let process = db.start(|engine| engine.register(PICKY, picky)).await;
    let mut run = process.start(PICKY, &()).await.expect("it starts");
    let sent = process
        .signal(&run, TEXT, &"seven".to_owned())
        .await
        .expect("it is sent");
    assert!(
        matches!(sent, Sent::Delivered(_) | Sent::Queued),
        "{sent:?}"
    );
    process.signal(&run, NUMBER, &7).await.expect("it is sent");
    let answer = run.result().await.expect("it completes");
    assert_eq!(answer, ("undecodable".to_owned(), 7));
}

async fn e19_a_key_used_for_something_else_is_a_conflict(db: Db) {
    let process = db.start(both_workflows).await;
    let first = process.start(GOOD, &1).key("k").await.expect("it starts");
    let again = process.start(GOOD, &1).key("k").await.expect("it is found");
    assert_eq!((again.id(), again.is_new()), (first.id(), false));
    match process.start(GOOD, &2).key("k").await {
        Err(Error::Refused(Refusal::Conflict { key })) => assert_eq!(key.as_str(), "k"),
        other => panic!("not a conflict: {other:?}"),
    }
}

all![
    a_step_that_awaits_something_foreign_is_refused,
    e15_a_step_cannot_end_its_transaction,
    what_a_refused_step_wrote_is_gone,
    a_step_that_panics_is_parked_with_what_it_said,
    e16_a_step_cannot_write_engine_tables,
    e18_a_durable_call_inside_a_step_or_an_effect_is_refused,
    e13_a_transaction_that_escapes_its_step_is_of_no_use,
    a_workflow_that_awaits_something_foreign_is_parked,
    e10_a_payload_is_refused_one_byte_over_the_limit,
    e21_bad_names_are_refused_with_the_reason,
    e11_an_input_that_does_not_fit_parks_the_run_and_no_other,
    c14_a_signal_that_does_not_fit_does_not_block_the_next,
    e19_a_key_used_for_something_else_is_a_conflict,
];

async fn refusal(path: &Path) -> String {
    match Engine::open(path).register(GOOD, good).start().await {
        Err(Error::Unusable(text)) => text,
        other => panic!("{} was not refused: {other:?}", path.display()),
    }
}

#[tokio::test]
async fn g12_a_file_that_is_no_database_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("notes.txt");
    let text = "dear diary, ".repeat(1000);
    std::fs::write(&file, &text).expect("a file");
    let said = refusal(&file).await;
    assert!(said.contains("notes.txt"), "{said}");
    assert_eq!(std::fs::read_to_string(&file).expect("the file"), text);
}

#[tokio::test]
async fn g12_the_database_of_another_program_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("other.db");
    let other = rusqlite::Connection::open(&file).expect("a database");
    other
        .execute_batch("PRAGMA application_id = 252006673; CREATE TABLE theirs (n)")
        .expect("another program's");
    drop(other);
    let said = refusal(&file).await;
    assert!(said.contains("other.db"), "{said}");
    let other = rusqlite::Connection::open(&file).expect("a database");
    let count = "SELECT count(*) FROM sqlite_master";
    assert_eq!(
        other
            .query_row(count, [], |row| row.get::<_, i64>(0))
            .expect("a count"),
        1
    );
}

#[tokio::test]
async fn l4_a_newer_schema_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("new.db");
    let engine = Engine::open(&file)
        .register(GOOD, good)
        .start()
        .await
        .expect("an engine");
    engine.shutdown().await;
    let newer = rusqlite::Connection::open(&file).expect("a database");
    newer
        .execute("UPDATE roundel_meta SET value = value + 1000", ())
        .expect("a newer one");
    drop(newer);
    let said = refusal(&file).await;
    assert!(said.contains("newer"), "{said}");
}

#[tokio::test]
async fn a_folder_that_is_not_there_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let said = refusal(&folder.path().join("missing").join("shop.db")).await;
    assert!(said.contains("missing"), "{said}");
}

#[tokio::test]
async fn ro_26_a_workflow_registered_twice_is_refused_by_name() {
    match Engine::in_memory()
        .register(GOOD, good)
        .register(GOOD, good)
        .start()
        .await
    {
        Err(Error::Setup(text)) => assert!(text.contains("`good` version 1"), "{text}"),
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test]
async fn the_state_of_an_offender_is_parked_not_ended() {
    let db = Db::sqlite();
    let process = db.start(both_workflows).await;
    let mut run = process
        .start(BAD, &"panic".to_owned())
        .await
        .expect("it starts");
    run.result().await.expect_err("it is parked");
    let row = process.run(run.id()).await.expect("it is there").row;
    assert_eq!(row.state, RunState::Parked);
    assert_eq!(row.owner, None);
}
