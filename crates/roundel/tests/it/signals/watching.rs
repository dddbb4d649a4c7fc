//! Waiting for another run's end (SI-16).

use std::time::Duration;

use roundel::future::{self, Either};
use roundel::{Class, Cx, EngineBuilder, Failure, Result, RunId, Workflow};
use uuid::Uuid;

use super::{GO, HOUR, NEWS, until_waits};
use crate::support::{Db, all, soon};

all![
    si_16_the_end_of_another_run_brings_its_value,
    si_16_a_run_that_has_already_ended_answers_at_once,
    si_16_a_failure_and_a_cancel_are_outcomes_too,
    si_16_a_run_that_does_not_exist_is_an_error_at_once,
    si_16_in_one_wait_with_a_signal_and_a_timer_the_run_may_win,
    si_16_in_one_wait_with_a_signal_and_a_timer_the_signal_may_win,
    si_16_in_one_wait_with_a_signal_and_a_timer_the_timer_may_win,
    si_16_the_outcome_survives_a_restart_of_the_one_who_waits,
];

const WATCHED: Workflow<(), u32> = Workflow::named("watched");
const WATCH: Workflow<RunId, String> = Workflow::named("watch");
const WATCH_ANY: Workflow<RunId, String> = Workflow::named("watch any");

async fn watched(cx: Cx, (): ()) -> Result<u32> {
    match cx.wait(NEWS).await? {
        0 => Err(Failure::business("nothing").with_code("zero")),
        value => Ok(value),
    }
}

fn told(outcome: Result<u32>) -> String {
    match outcome {
        Ok(value) => format!("value {value}"),
        Err(failure) => format!("{:?} {}", failure.class, failure.code),
    }
}

async fn watch(cx: Cx, run: RunId) -> Result<String> {
    let outcome = cx.wait_for::<u32>(run).await;
    cx.wait(GO).await?;
    Ok(told(outcome))
}

async fn watch_any(cx: Cx, run: RunId) -> Result<String> {
    let others = future::select(cx.wait(NEWS), cx.sleep(HOUR));
    let first = match future::select(cx.wait_for::<u32>(run), others).await {
        Either::Left((outcome, _)) => told(outcome),
        Either::Right((Either::Left((value, _)), _)) => format!("signal {}", value?),
        Either::Right((Either::Right(((), _)), _)) => "timer".into(),
    };
    cx.wait(GO).await?;
    Ok(first)
}

fn all(engine: EngineBuilder) -> EngineBuilder {
    let engine = engine.register(WATCHED, watched);
    engine.register(WATCH, watch).register(WATCH_ANY, watch_any)
}

async fn si_16_the_end_of_another_run_brings_its_value(db: Db) {
    let process = db.start(all).await;
    let run = process.start(WATCHED, &()).await.unwrap();
    let mut watchers = Vec::new();
    for _ in 0..3 {
        let watcher = process.start(WATCH, &run.id()).await.unwrap();
        until_waits(&process, watcher.id()).await;
        watchers.push(watcher);
    }
    process.signal(&run, NEWS, &7).await.unwrap();
    for watcher in &mut watchers {
        process.signal(&*watcher, GO, &()).await.unwrap();
        let told = soon("the value", watcher.result()).await.unwrap();
        assert_eq!(told, "value 7");
    }
    let dump = db.dump().await;
    assert_eq!((dump.watches, dump.mail), (Vec::new(), Vec::new()));
}

async fn si_16_a_run_that_has_already_ended_answers_at_once(db: Db) {
    let process = db.start(all).await;
    let mut run = process.start(WATCHED, &()).await.unwrap();
    process.signal(&run, NEWS, &7).await.unwrap();
    soon("the end", run.result()).await.unwrap();
    let mut watcher = process.start(WATCH, &run.id()).await.unwrap();
    process.signal(&watcher, GO, &()).await.unwrap();
    let told = soon("the value", watcher.result()).await.unwrap();
    assert_eq!(told, "value 7");
}

async fn si_16_a_failure_and_a_cancel_are_outcomes_too(db: Db) {
    let process = db.start(all).await;
    for cancel in [false, true] {
        let run = process.start(WATCHED, &()).await.unwrap();
        let mut watcher = process.start(WATCH, &run.id()).await.unwrap();
        until_waits(&process, watcher.id()).await;
        if cancel {
            process.cancel(&run).await.unwrap();
        } else {
            process.signal(&run, NEWS, &0).await.unwrap();
        }
        process.signal(&watcher, GO, &()).await.unwrap();
        let told = soon("the outcome", watcher.result()).await.unwrap();
        let expected = if cancel {
            format!("{:?} cancelled", Class::Cancelled)
        } else {
            format!("{:?} zero", Class::Business)
        };
        assert_eq!(told, expected);
    }
}

async fn si_16_a_run_that_does_not_exist_is_an_error_at_once(db: Db) {
    let process = db.start(all).await;
    let nobody = RunId(Uuid::now_v7());
    let mut watcher = process.start(WATCH, &nobody).await.unwrap();
    process.signal(&watcher, GO, &()).await.unwrap();
    let told = soon("the error", watcher.result()).await.unwrap();
    assert_eq!(told, "Business unknown_run");
}

async fn si_16_in_one_wait_with_a_signal_and_a_timer_the_run_may_win(db: Db) {
    let db = db.with_manual_clock();
    let process = db.start(all).await;
    let mut run = process.start(WATCHED, &()).await.unwrap();
    let mut watcher = process.start(WATCH_ANY, &run.id()).await.unwrap();
    until_waits(&process, watcher.id()).await;
    process.signal(&run, NEWS, &7).await.unwrap();
    soon("the other's end", run.result()).await.unwrap();
    until_waits(&process, watcher.id()).await;
    db.advance(2 * HOUR);
    process.signal(&watcher, NEWS, &8).await.unwrap();
    process.signal(&watcher, GO, &()).await.unwrap();
    let told = soon("the winner", watcher.result()).await.unwrap();
    assert_eq!(told, "value 7");
}

async fn si_16_in_one_wait_with_a_signal_and_a_timer_the_signal_may_win(db: Db) {
    let db = db.with_manual_clock();
    let process = db.start(all).await;
    let mut run = process.start(WATCHED, &()).await.unwrap();
    let mut watcher = process.start(WATCH_ANY, &run.id()).await.unwrap();
    until_waits(&process, watcher.id()).await;
    process.signal(&watcher, NEWS, &8).await.unwrap();
    until_waits(&process, watcher.id()).await;
    // What loses does nothing when it comes, and nothing of it is left.
    process.signal(&run, NEWS, &7).await.unwrap();
    soon("the other's end", run.result()).await.unwrap();
    db.advance(2 * HOUR);
    process.signal(&watcher, GO, &()).await.unwrap();
    let told = soon("the winner", watcher.result()).await.unwrap();
    assert_eq!(told, "signal 8");
    let dump = db.dump().await;
    assert_eq!((dump.watches, dump.mail), (Vec::new(), Vec::new()));
}

async fn si_16_in_one_wait_with_a_signal_and_a_timer_the_timer_may_win(db: Db) {
    let db = db.with_manual_clock();
    let process = db.start(all).await;
    let run = process.start(WATCHED, &()).await.unwrap();
    let mut watcher = process.start(WATCH_ANY, &run.id()).await.unwrap();
    until_waits(&process, watcher.id()).await;
    db.advance(HOUR);
    let sent = process.signal(&watcher, GO, &()).await.unwrap();
    let told = soon("the winner", watcher.result()).await.unwrap();
    assert_eq!(told, "timer", "{sent:?}");
}

async fn si_16_the_outcome_survives_a_restart_of_the_one_who_waits(db: Db) {
    let first = db.start(all).await;
    let run = first.start(WATCHED, &()).await.unwrap().id();
    let watcher = first.start(WATCH, &run).await.unwrap().id();
    until_waits(&first, watcher).await;
    first.crash();
    let short = |engine| all(engine).lease(Duration::from_millis(200));
    let second = db.start(short).await;
    second.signal(run, NEWS, &7).await.unwrap();
    let mut ended = second.handle(WATCHED, run).await.unwrap();
    soon("the other's end", ended.result()).await.unwrap();
    second.crash();
    let third = db.start(short).await;
    third.signal(watcher, GO, &()).await.unwrap();
    let mut watcher = third.handle(WATCH, watcher).await.unwrap();
    let told = soon("the value", watcher.result()).await.unwrap();
    assert_eq!(told, "value 7");
}
