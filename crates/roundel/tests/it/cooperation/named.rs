//! Undos that have a name: recorded with their arguments, they need no code of the workflow.

use std::time::Duration;

use roundel::{Cx, EngineBuilder, Failure, Retry, RunState, Tx, Undo, Undoing, Workflow};

use super::ledger::{ends, state};
use super::trace::Trace;
use crate::support::{Db, all, until};

const ORDER: Workflow<u32, u32> = Workflow::named("order");
const RELEASE: Undo<String> = Undo::named("release");
const REFUND: Undo<u32> = Undo::named("refund");

all![
    sc_35_a_named_undo_runs_though_the_code_has_changed,
    sc_35_a_named_undo_that_is_not_registered_parks_the_run,
    sc_34_a_named_undo_of_an_effect_that_failed_gets_its_key,
];

fn undos(engine: EngineBuilder, trace: &Trace) -> EngineBuilder {
    let (one, two) = (trace.clone(), trace.clone());
    let release = move |tx: Tx, item: String| {
        let trace = one.clone();
        async move {
            let gone = tx.execute("DELETE FROM stock WHERE item = $1", (item.as_str(),));
            assert_eq!(gone.await?, 1);
            trace.add(format!("release {item}"));
            Ok::<_, Failure>(())
        }
    };
    let refund = move |undoing: Undoing<u32>| {
        let trace = two.clone();
        async move {
            assert_ne!(undoing.key(), undoing.attempt().key());
            let value: Option<String> = undoing.value()?;
            assert!(value.as_deref().is_none_or(|key| key == undoing.key()));
            let paid = value.map_or("maybe", |_| "surely");
            trace.add(format!("refund {}, paid {paid}", undoing.args()));
            Ok::<_, Failure>(())
        }
    };
    engine
        .register_undo(RELEASE, release)
        .register_undo_effect(REFUND, refund)
}

async fn order(cx: Cx, of: u32) -> roundel::Result<u32> {
    let item = format!("item {of}");
    let reserve = cx.step("reserve", |tx: Tx| {
        let item = item.clone();
        async move {
            tx.execute("CREATE TABLE IF NOT EXISTS stock (item TEXT)", ())
                .await?;
            tx.execute("INSERT INTO stock VALUES ($1)", (item,)).await?;
            Ok::<_, Failure>(())
        }
    });
    reserve.undo_by(RELEASE, &item).await?;
    let pay = cx.effect("pay", |attempt| async move {
        match of {
            7 => Err(Failure::transient("no answer")),
            _ => Ok(attempt.key()),
        }
    });
    pay.undo_by(REFUND, &of).retry(Retry::none()).await?;
    match of {
        0 => Err(Failure::business("no")),
        of => Ok(of),
    }
}

async fn sc_35_a_named_undo_runs_though_the_code_has_changed(db: Db) {
    let trace = Trace::default();
    let process = db.start(|engine| undos(engine, &trace).register(ORDER, order));
    let process = process.await;
    let mut run = process.start(ORDER, &1).await.unwrap();
    run.result().await.unwrap();
    process.shutdown().await;
    // The same version is now other code, which never comes so far.
    let other = |cx: Cx, of: u32| async move {
        cx.sleep(Duration::from_secs(of.into())).await;
        Ok(of)
    };
    let process = db.start(|engine| undos(engine, &trace).register(ORDER, other));
    let process = process.await;
    process.undo(run.id()).await.unwrap();
    assert_eq!(ends(&process, run.id()).await, RunState::RolledBack);
    assert_eq!(trace.all(), ["refund 1, paid surely", "release item 1"]);
    assert_eq!(process.metrics().replays, 0);
}

async fn sc_35_a_named_undo_that_is_not_registered_parks_the_run(db: Db) {
    let trace = Trace::default();
    let process = db.start(|engine| engine.register(ORDER, order)).await;
    let mut live = process.start(ORDER, &0).await.unwrap();
    let parked = live.result().await.unwrap_err().to_string();
    assert!(parked.contains("`pay` is undone by `refund`"), "{parked}");
    assert!(parked.contains("register_undo"), "{parked}");
    let mut done = process.start(ORDER, &1).await.unwrap();
    done.result().await.unwrap();
    process.undo(done.id()).await.unwrap();
    until("it is parked", async || {
        state(&process, done.id()).await == RunState::Parked
    })
    .await;
    process.shutdown().await;
    let process = db.start(|engine| undos(engine, &trace).register(ORDER, order));
    let process = process.await;
    for (run, of) in [(live.id(), 0), (done.id(), 1)] {
        process.resume(run).await.unwrap();
        assert_eq!(ends(&process, run).await, RunState::RolledBack);
        let expected = [
            format!("refund {of}, paid surely"),
            format!("release item {of}"),
        ];
        assert_eq!(trace.all(), expected);
        trace.clear();
    }
}

async fn sc_34_a_named_undo_of_an_effect_that_failed_gets_its_key(db: Db) {
    let trace = Trace::default();
    let process = db.start(|engine| undos(engine, &trace).register(ORDER, order));
    let process = process.await;
    let run = process.start(ORDER, &7).await.unwrap().id();
    until("it is parked before any undo", async || {
        state(&process, run).await == RunState::Parked
    })
    .await;
    assert_eq!(trace.all(), Vec::<String>::new());
    process.undo(run).await.unwrap();
    assert_eq!(ends(&process, run).await, RunState::RolledBack);
    assert_eq!(trace.all(), ["refund 7, paid maybe", "release item 7"]);
}
