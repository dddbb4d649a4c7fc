//! Commands that a step sends: in the commit of the step's own writes, or not at all.

use std::collections::BTreeMap;
use std::future::IntoFuture;
use std::time::Duration;

use roundel::{Command, Cx, Failure, Result, Retry, RunState, Tx, Workflow};

use crate::rounds::sound::assert_sound;
use crate::support::{Db, Fault, Process, all, is_round, soon, until};

const QUICK: Retry = Retry::fixed(3, Duration::from_millis(5));
const SHIP: Command<String, ()> = Command::named("ship").retry(QUICK);
const SHIPPING: Workflow<String, ()> = Workflow::named("ship");
const PLACE: Workflow<String, ()> = Workflow::named("place");
const LEDGER: Workflow<(), BTreeMap<String, usize>> = Workflow::named("ledger");

all![
    co_01_what_a_step_sends_is_sent_with_its_writes_and_once,
    co_01_a_step_that_fails_sends_nothing,
    co_01_a_conflict_fails_the_step_and_writes_nothing,
    co_01_the_same_command_twice_in_one_step_is_one,
    co_01_killed_at_any_round_the_command_and_the_writes_are_there_together,
    co_01_a_delayed_command_waits,
    co_01_what_undoes_a_step_may_send_too,
];

async fn write(tx: &Tx, line: &str) -> Result<()> {
    let table = "CREATE TABLE IF NOT EXISTS ledger (line TEXT)";
    tx.execute(table, ()).await?;
    tx.execute("INSERT INTO ledger VALUES ($1)", (line,))
        .await?;
    Ok(())
}

/// How often each line is in the ledger.
async fn ledger(cx: Cx, (): ()) -> Result<BTreeMap<String, usize>> {
    cx.step("read", |tx| async move {
        let table = "CREATE TABLE IF NOT EXISTS ledger (line TEXT)";
        tx.execute(table, ()).await?;
        let mut counts = BTreeMap::new();
        for row in tx.query("SELECT line FROM ledger", ()).await? {
            *counts.entry(row.get::<String>(0)?).or_default() += 1;
        }
        Ok::<_, Failure>(counts)
    })
    .await
}

/// What is sent, and what happens then, is said by the input.
async fn place(cx: Cx, how: String) -> Result<()> {
    let placed = cx.step("place", |tx: Tx| {
        let how = how.clone();
        async move {
            write(&tx, "placed").await?;
            let (payload, other) = ("parcel".to_owned(), "letter".to_owned());
            let ship = SHIP.send(&tx, &payload);
            match how.as_str() {
                "unkeyed" => ship.await,
                "delayed" => ship.key("1").delay(Duration::from_secs(60)).await,
                "fails" => {
                    ship.key("1").await?;
                    Err(Failure::business("no stock"))
                }
                "twice" => {
                    ship.key("1").await?;
                    SHIP.send(&tx, &payload).key("1").await
                }
                "two payloads" => {
                    ship.key("1").await?;
                    SHIP.send(&tx, &other).key("1").await
                }
                _ => ship.key("1").await,
            }
        }
    });
    let undo = |tx: Tx, ()| async move {
        write(&tx, "undone").await?;
        SHIP.send(&tx, &"back".to_owned()).key("back").await
    };
    placed.retry(QUICK).undo(undo).await?;
    match how.as_str() {
        "fails later" => Err(Failure::business("nobody pays")),
        _ => Ok(()),
    }
}

async fn ship(tx: Tx, what: String) -> Result<()> {
    write(&tx, &format!("shipped {what}")).await
}

async fn start(db: &Db) -> Process {
    let set_up = db.start(|engine| {
        let engine = engine.register(PLACE, place).register(LEDGER, ledger);
        engine.handle_in_step(SHIP, ship)
    });
    set_up.await
}

async fn lines(process: &Process) -> Vec<(String, usize)> {
    let mut read = process.start(LEDGER, &()).await.unwrap();
    let lines = soon("the ledger", read.result()).await.unwrap();
    lines.into_iter().collect()
}

fn once(lines: &[&str]) -> Vec<(String, usize)> {
    lines.iter().map(|line| ((*line).to_owned(), 1)).collect()
}

/// Waits until the command of this id has ended.
async fn shipped(process: &Process, id: &str) {
    let mut command = process.sent(SHIP, id).await.unwrap();
    soon("the command", command.result()).await.unwrap();
}

async fn co_01_what_a_step_sends_is_sent_with_its_writes_and_once(db: Db) {
    let process = start(&db).await;
    for _ in 0..2 {
        let mut run = process.start(PLACE, &"works".to_owned()).await.unwrap();
        soon("its end", run.result()).await.unwrap();
    }
    shipped(&process, "1").await;
    let expected = vec![("placed".to_owned(), 2), ("shipped parcel".to_owned(), 1)];
    assert_eq!(lines(&process).await, expected);
    let mut run = process.start(PLACE, &"unkeyed".to_owned()).await.unwrap();
    soon("its end", run.result()).await.unwrap();
    let sent = process.runs().of("ship").unwrap().fetch().await.unwrap();
    assert_eq!(sent.items.len(), 2);
    let command = &process.run("ship:1").await.unwrap().row;
    assert!(command.parent.is_none(), "nobody waits for it");
    assert_sound(&db).await;
}

async fn co_01_a_step_that_fails_sends_nothing(db: Db) {
    let process = start(&db).await;
    let mut run = process.start(PLACE, &"fails".to_owned()).await.unwrap();
    soon("its end", run.result()).await.unwrap_err();
    assert!(process.run("ship:1").await.is_err());
    assert_eq!(lines(&process).await, []);
}

async fn co_01_a_conflict_fails_the_step_and_writes_nothing(db: Db) {
    let process = start(&db).await;
    let first = process.send(SHIP, &"another".to_owned());
    soon("reply", first.key("1").await.unwrap().result())
        .await
        .unwrap();
    for how in ["works", "two payloads"] {
        let mut run = process.start(PLACE, &how.to_owned()).await.unwrap();
        soon("its end", run.result()).await.unwrap_err();
        let row = process.run(&run).await.unwrap().row;
        assert_eq!(row.state, RunState::Failed);
        let Some(roundel_core::Outcome::Failure(failure)) = row.outcome else {
            panic!("it failed")
        };
        assert_eq!(failure.code, "conflict");
        assert!(failure.message.contains("ship:1"), "{failure}");
    }
    assert_eq!(lines(&process).await, once(&["shipped another"]));
    assert_sound(&db).await;
}

async fn co_01_the_same_command_twice_in_one_step_is_one(db: Db) {
    let process = start(&db).await;
    let mut run = process.start(PLACE, &"twice".to_owned()).await.unwrap();
    soon("its end", run.result()).await.unwrap();
    shipped(&process, "1").await;
    assert_eq!(lines(&process).await, once(&["placed", "shipped parcel"]));
    let mut run = process
        .start(PLACE, &"two payloads".to_owned())
        .await
        .unwrap();
    let conflict = soon("its end", run.result()).await.unwrap_err();
    assert!(conflict.to_string().contains("ship:1"), "{conflict}");
}

async fn co_01_killed_at_any_round_the_command_and_the_writes_are_there_together(db: Db) {
    let db = db.with_manual_clock();
    for strike in 0..4 {
        for fault in [Fault::CrashBefore, Fault::CrashAfter] {
            let first = start(&db).await;
            let mut left = strike;
            first.store.rule(move |ask| match left {
                _ if !is_round(ask) => Fault::Pass,
                0 => fault,
                _ => {
                    left -= 1;
                    Fault::Pass
                }
            });
            // What it says may be lost with the process; under its key it is started once.
            let key = format!("{strike} {fault:?}");
            let begun = first.start(PLACE, &"unkeyed".to_owned()).key(key.clone());
            let begun = tokio::spawn(begun.into_future());
            until("it crashed", || async { first.store.is_cut() }).await;
            begun.abort();
            first.crash();
            db.advance(Duration::from_secs(31));
            let second = start(&db).await;
            let again = second.start(PLACE, &"unkeyed".to_owned()).key(key).await;
            let mut again = again.unwrap();
            db.meanwhile("its end", again.result()).await.unwrap();
            second.shutdown().await;
        }
    }
    let process = start(&db).await;
    let sent = process.runs().of("ship").unwrap().fetch().await.unwrap();
    assert_eq!(sent.items.len(), 8, "one for each that was placed");
    for run in sent.items {
        let mut command = process.handle(SHIPPING, run.row.id).await.unwrap();
        db.meanwhile("the command", command.result()).await.unwrap();
    }
    let mut read = process.start(LEDGER, &()).await.unwrap();
    let counts = db.meanwhile("the ledger", read.result()).await.unwrap();
    assert_eq!((counts["placed"], counts["shipped parcel"]), (8, 8));
    assert_sound(&db).await;
}

async fn co_01_a_delayed_command_waits(db: Db) {
    let db = db.with_manual_clock();
    let process = start(&db).await;
    let mut run = process.start(PLACE, &"delayed".to_owned()).await.unwrap();
    soon("its end", run.result()).await.unwrap();
    let row = process.run("ship:1").await.unwrap().row;
    let due = db.now().after(Duration::from_secs(60));
    assert_eq!((row.state, row.ready_at), (RunState::Ready, Some(due)));
    db.advance(Duration::from_secs(60));
    shipped(&process, "1").await;
}

async fn co_01_what_undoes_a_step_may_send_too(db: Db) {
    let process = start(&db).await;
    let mut run = process
        .start(PLACE, &"fails later".to_owned())
        .await
        .unwrap();
    soon("its end", run.result()).await.unwrap_err();
    shipped(&process, "1").await;
    shipped(&process, "back").await;
    let all = ["placed", "shipped back", "shipped parcel", "undone"];
    assert_eq!(lines(&process).await, once(&all));
    assert_sound(&db).await;
}
