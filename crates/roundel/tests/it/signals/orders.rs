//! What was sent before the wait began is there at once, in order (SI-02, SI-24).

use roundel::{Cx, Entry, Result, Sent, Signal};

use super::{GO, JOB, NEWS, Received, count, until_waits};
use crate::support::{Db, all, on_objects, soon};

all![
    si_02_a_signal_sent_before_the_wait_completes_it_at_once,
    si_02_signals_of_one_name_arrive_in_the_order_they_were_sent,
    si_02_each_name_has_its_own_order,
    si_02_what_was_sent_to_the_run_comes_before_what_was_offered,
    si_02_offers_go_to_the_one_who_waits_longest,
    si_11_a_signal_can_be_limited_to_those_sent_after_the_wait_began,
    si_24_a_dropped_signal_is_not_kept_and_the_next_arrives_once,
];

// RO-60: the same over objects.
on_objects![
    si_02_a_signal_sent_before_the_wait_completes_it_at_once,
    si_02_signals_of_one_name_arrive_in_the_order_they_were_sent,
    si_02_each_name_has_its_own_order,
    si_02_what_was_sent_to_the_run_comes_before_what_was_offered,
    si_02_offers_go_to_the_one_who_waits_longest,
    si_24_a_dropped_signal_is_not_kept_and_the_next_arrives_once,
];

const TAKE: Received = Received::named("take");
const TAKE_JOBS: Received = Received::named("take jobs");
const TAKE_BOTH: Received = Received::named("take both");
const TAKE_LIVE: Received = Received::named("take live");
const OTHER: Signal<u32> = Signal::named("other");
const LIVE: Signal<u32> = Signal::named("live").dropped_unless_awaited();

async fn take(cx: Cx, n: u32) -> Result<Vec<u32>> {
    cx.wait(GO).await?;
    let mut taken = Vec::new();
    for _ in 0..n {
        taken.push(cx.wait(NEWS).await?);
    }
    Ok(taken)
}

async fn take_jobs(cx: Cx, n: u32) -> Result<Vec<u32>> {
    cx.wait(GO).await?;
    let mut taken = Vec::new();
    for _ in 0..n {
        taken.push(cx.wait(JOB).await?);
    }
    Ok(taken)
}

/// Takes by turns, the other name first.
async fn take_both(cx: Cx, n: u32) -> Result<Vec<u32>> {
    cx.wait(GO).await?;
    let mut taken = Vec::new();
    for _ in 0..n {
        taken.push(cx.wait(OTHER).await?);
        taken.push(cx.wait(NEWS).await?);
    }
    Ok(taken)
}

async fn take_live(cx: Cx, n: u32) -> Result<Vec<u32>> {
    cx.wait(GO).await?;
    let mut taken = Vec::new();
    for _ in 0..n {
        taken.push(cx.wait(LIVE).await?);
        cx.wait(GO).await?;
    }
    Ok(taken)
}

async fn si_02_a_signal_sent_before_the_wait_completes_it_at_once(db: Db) {
    let process = db.start(|engine| engine.register(TAKE, take)).await;
    let mut run = process.start(TAKE, &1).await.unwrap();
    until_waits(&process, run.id()).await;
    let sent = process.signal(&run, NEWS, &7).await.unwrap();
    assert_eq!(sent, Sent::Queued);
    process.signal(&run, GO, &()).await.unwrap();
    assert_eq!(soon("the news", run.result()).await.unwrap(), [7]);
    let mail = db.dump().await.mail;
    assert_eq!(mail, [], "what was consumed is gone");
}

async fn si_02_signals_of_one_name_arrive_in_the_order_they_were_sent(db: Db) {
    let process = db.start(|engine| engine.register(TAKE, take)).await;
    let mut run = process.start(TAKE, &20).await.unwrap();
    until_waits(&process, run.id()).await;
    for value in 0..10 {
        let sent = process.signal(&run, NEWS, &value).await.unwrap();
        assert_eq!(sent, Sent::Queued, "signal {value}");
    }
    process.signal(&run, GO, &()).await.unwrap();
    for value in 10..20 {
        process.signal(&run, NEWS, &value).await.unwrap();
    }
    let taken = soon("all of them", run.result()).await.unwrap();
    assert_eq!(taken, (0..20).collect::<Vec<_>>());
}

async fn si_02_each_name_has_its_own_order(db: Db) {
    let process = db
        .start(|engine| engine.register(TAKE_BOTH, take_both))
        .await;
    let mut run = process.start(TAKE_BOTH, &3).await.unwrap();
    until_waits(&process, run.id()).await;
    for value in 0..3 {
        process.signal(&run, NEWS, &value).await.unwrap();
    }
    for value in 10..13 {
        process.signal(&run, OTHER, &value).await.unwrap();
    }
    process.signal(&run, GO, &()).await.unwrap();
    let taken = soon("all of them", run.result()).await.unwrap();
    assert_eq!(taken, [10, 0, 11, 1, 12, 2]);
}

async fn si_02_what_was_sent_to_the_run_comes_before_what_was_offered(db: Db) {
    let process = db
        .start(|engine| engine.register(TAKE_JOBS, take_jobs))
        .await;
    let mut run = process.start(TAKE_JOBS, &4).await.unwrap();
    until_waits(&process, run.id()).await;
    for value in [1, 2] {
        assert_eq!(process.offer(JOB, &value).await.unwrap(), Sent::Queued);
    }
    for value in [11, 12] {
        let sent = process.signal(&run, JOB, &value).await.unwrap();
        assert_eq!(sent, Sent::Queued);
    }
    process.signal(&run, GO, &()).await.unwrap();
    let taken = soon("all of them", run.result()).await.unwrap();
    assert_eq!(taken, [11, 12, 1, 2]);
    assert_eq!(db.dump().await.offers, [], "what was consumed is gone");
}

async fn si_02_offers_go_to_the_one_who_waits_longest(db: Db) {
    let process = db
        .start(|engine| engine.register(TAKE_JOBS, take_jobs))
        .await;
    let mut runs = Vec::new();
    for _ in 0..3 {
        let run = process.start(TAKE_JOBS, &1).await.unwrap();
        until_waits(&process, run.id()).await;
        runs.push(run);
    }
    // They begin to wait in another order than they were started in.
    for place in [2, 0, 1] {
        process.signal(&runs[place], GO, &()).await.unwrap();
        let began = |entry: &Entry| matches!(entry, Entry::Begun { call: 2, .. });
        while count(&process, runs[place].id(), began).await == 0 {
            tokio::task::yield_now().await;
        }
        until_waits(&process, runs[place].id()).await;
    }
    for (value, place) in [(20, 2), (21, 0), (22, 1)] {
        let sent = process.offer(JOB, &value).await.unwrap();
        assert_eq!(sent, Sent::Delivered(runs[place].id()));
        let taken = soon("the offer", runs[place].result()).await.unwrap();
        assert_eq!(taken, [value]);
    }
    assert_eq!(process.offer(JOB, &23).await.unwrap(), Sent::Queued);
}

async fn si_11_a_signal_can_be_limited_to_those_sent_after_the_wait_began(db: Db) {
    let first = db
        .start(|engine| engine.register(TAKE_LIVE, take_live))
        .await;
    let run = first.start(TAKE_LIVE, &1).await.unwrap().id();
    until_waits(&first, run).await;
    for value in 1..=3 {
        let sent = first.signal(run, LIVE, &value).await.unwrap();
        assert_eq!(sent, Sent::Dropped, "the wait has not begun");
    }
    first.signal(run, GO, &()).await.unwrap();
    let began = |entry: &Entry| matches!(entry, Entry::Begun { call: 2, .. });
    while count(&first, run, began).await == 0 {
        tokio::task::yield_now().await;
    }
    until_waits(&first, run).await;
    first.crash();
    // Nor does a restart bring the earlier ones back.
    let second = db
        .start(|engine| engine.register(TAKE_LIVE, take_live))
        .await;
    let sent = second.signal(run, LIVE, &4).await.unwrap();
    assert_eq!(sent, Sent::Delivered(run));
    second.signal(run, GO, &()).await.unwrap();
    let mut handle = second.handle(TAKE_LIVE, run).await.unwrap();
    assert_eq!(soon("the signal", handle.result()).await.unwrap(), [4]);
}

async fn si_24_a_dropped_signal_is_not_kept_and_the_next_arrives_once(db: Db) {
    let process = db
        .start(|engine| engine.register(TAKE_LIVE, take_live))
        .await;
    let mut run = process.start(TAKE_LIVE, &2).await.unwrap();
    until_waits(&process, run.id()).await;
    let sent = process.signal(&run, LIVE, &1).await.unwrap();
    assert_eq!(sent, Sent::Dropped);
    assert_eq!(db.dump().await.mail, [], "a dropped signal leaves nothing");
    for value in [2, 4] {
        process.signal(&run, GO, &()).await.unwrap();
        let open = |entry: &Entry| matches!(entry, Entry::Begun { call, .. } if *call == value);
        while count(&process, run.id(), open).await == 0 {
            tokio::task::yield_now().await;
        }
        until_waits(&process, run.id()).await;
        let sent = process.signal(&run, LIVE, &value).await.unwrap();
        assert_eq!(sent, Sent::Delivered(run.id()));
        // The wait has its signal: the next is nobody's.
        let sent = process.signal(&run, LIVE, &100).await.unwrap();
        assert_eq!(sent, Sent::Dropped);
    }
    process.signal(&run, GO, &()).await.unwrap();
    let taken = soon("both", run.result()).await.unwrap();
    assert_eq!(taken, [2, 4]);
}
