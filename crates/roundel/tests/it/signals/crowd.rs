//! Runs that wait cost no memory (SI-09).

use std::time::Duration;

use roundel::{Cx, EngineBuilder, Result, RunId, RunState, Sent, Workflow};

use super::{HOUR, JOB, NEWS};
use crate::support::{Db, Process, all, soon, until};

all![
    si_09_waiting_runs_are_not_held_in_memory,
    si_09_an_offer_reaches_one_that_is_not_loaded,
    si_09_those_that_are_due_are_loaded_and_no_others,
];

/// A hundred thousand take too long for every change; what matters is that they are many more
/// than there is room for.
const CROWD: u32 = 3_000;
const ROOM: usize = 8;

const WORK: Workflow<u32, u32> = Workflow::named("work");
const NAP: Workflow<u64, u64> = Workflow::named("nap");

async fn work(cx: Cx, _: u32) -> Result<u32> {
    cx.wait(JOB).await
}

async fn nap(cx: Cx, hours: u64) -> Result<u64> {
    cx.sleep(HOUR * u32::try_from(hours).expect("a few")).await;
    Ok(hours)
}

fn with_little_room(engine: EngineBuilder) -> EngineBuilder {
    let engine = engine.register(WORK, work).register(NAP, nap);
    engine.keep_in_memory(ROOM, HOUR)
}

/// Starts many, in order, and waits until all of them wait.
async fn crowd(process: &Process) -> Vec<RunId> {
    let mut runs = Vec::new();
    for number in 0..CROWD {
        runs.push(process.start(WORK, &number).await.unwrap().id());
    }
    until("nobody is at work", || async {
        process.metrics().live == 0
    })
    .await;
    runs
}

async fn si_09_waiting_runs_are_not_held_in_memory(db: Db) {
    let process = db.start(with_little_room).await;
    let runs = crowd(&process).await;
    let metrics = process.metrics();
    assert!(metrics.cached <= ROOM as u64, "{metrics:?}");
    let waiting = process.stats().await.unwrap().runs;
    let all = (RunState::Waiting, u64::from(CROWD));
    assert_eq!((waiting[0].2, waiting[0].3), all);
    // Nor are they after each of them was loaded for something that came.
    for run in &runs[..200] {
        process.signal(*run, NEWS, &1).await.unwrap();
        process.signal(*run, JOB, &1).await.unwrap();
    }
    until("all are answered", || async {
        process.metrics().runs_completed == 200
    })
    .await;
    let metrics = process.metrics();
    assert!(metrics.cached <= ROOM as u64, "{metrics:?}");
    assert!(metrics.replays >= 190, "{metrics:?}");
}

async fn si_09_an_offer_reaches_one_that_is_not_loaded(db: Db) {
    let process = db.start(with_little_room).await;
    let runs = crowd(&process).await;
    for (place, run) in runs[..20].iter().enumerate() {
        let value = u32::try_from(place).unwrap();
        let sent = process.offer(JOB, &value).await.unwrap();
        assert_eq!(sent, Sent::Delivered(*run), "the longest waiting");
        let mut handle = process.handle(WORK, *run).await.unwrap();
        assert_eq!(soon("the offer", handle.result()).await.unwrap(), value);
    }
    assert!(process.metrics().replays >= 20);
    process.crash();
    // Nor need it be loaded anywhere.
    let other = db.start(with_little_room).await;
    assert_eq!(other.metrics().cached, 0);
    let sent = other.offer(JOB, &20).await.unwrap();
    assert_eq!(sent, Sent::Delivered(runs[20]));
    let mut handle = other.handle(WORK, runs[20]).await.unwrap();
    assert_eq!(soon("the offer", handle.result()).await.unwrap(), 20);
}

async fn si_09_those_that_are_due_are_loaded_and_no_others(db: Db) {
    let db = db.with_manual_clock();
    let first = db.start(with_little_room).await;
    for hours in 1..=100 {
        first.start(NAP, &hours).await.unwrap();
    }
    until("nobody is at work", || async { first.metrics().live == 0 }).await;
    first.crash();
    let second = db.start(with_little_room).await;
    db.advance(HOUR * 10);
    until("ten have slept", || async {
        second.metrics().runs_completed == 10
    })
    .await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    let metrics = second.metrics();
    assert_eq!((metrics.runs_completed, metrics.replays), (10, 10));
    assert_eq!(metrics.cached, 0);
}
