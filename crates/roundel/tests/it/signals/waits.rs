//! A run wakes on whatever comes first, and on nothing else (SI-01, SI-06, SI-07).

use std::time::Duration;

use roundel::future::{self, Either};
use roundel::{Cx, Entry, Result, Sent, Signal, limits};

use super::{GO, HOUR, NEWS, Told, count, until_waits};
use crate::support::{Db, all, soon};

all![
    si_01_a_run_waits_for_a_signal_and_gets_its_value,
    si_01_a_run_waits_for_a_timer,
    si_01_the_first_of_several_wakes_it_and_the_others_consume_nothing,
    si_01_a_timer_among_signals_wakes_it_when_none_comes,
    si_01_two_waits_in_one_run_for_one_name_get_one_signal_each,
    si_06_replay_takes_the_branch_that_won,
    si_06_a_lost_signal_that_came_meanwhile_does_not_win_in_replay,
    si_07_a_timer_that_lost_does_not_fire_later,
    si_07_a_time_out_of_a_wait_that_was_answered_does_nothing,
];

const ONE: Told = Told::named("one");
const TIMER: Told = Told::named("timer");
const RACE: Told = Told::named("race");
const TIMED: Told = Told::named("timed");
const PAIR: Told = Told::named("pair");
const LEFT: Signal<String> = Signal::named("left");
const RIGHT: Signal<String> = Signal::named("right");

async fn one(cx: Cx, (): ()) -> Result<String> {
    Ok(format!("news {}", cx.wait(NEWS).await?))
}

async fn timer(cx: Cx, (): ()) -> Result<String> {
    cx.sleep(HOUR).await;
    Ok("slept".into())
}

/// Whichever of two comes first; then, when told to go on, the other one.
async fn race(cx: Cx, (): ()) -> Result<String> {
    let (won, left) = match future::select(cx.wait(LEFT), cx.wait(RIGHT)).await {
        Either::Left((value, _)) => (value?, true),
        Either::Right((value, _)) => (value?, false),
    };
    cx.wait(GO).await?;
    let other = cx.wait(if left { RIGHT } else { LEFT }).await?;
    Ok(format!("{won} before {other}"))
}

/// A signal within an hour, then one more without a limit.
async fn timed(cx: Cx, (): ()) -> Result<String> {
    let first = match future::select(cx.wait(LEFT), cx.sleep(HOUR)).await {
        Either::Left((value, _)) => value?,
        Either::Right(((), _)) => "the timer".into(),
    };
    let second = match cx.wait(RIGHT).within(2 * HOUR).await {
        Ok(value) => value,
        Err(failure) => failure.code,
    };
    cx.wait(GO).await?;
    Ok(format!("{first}, {second}"))
}

async fn pair(cx: Cx, (): ()) -> Result<String> {
    let (first, second) = future::join(cx.wait(NEWS), cx.wait(NEWS)).await;
    Ok(format!("{} {}", first?, second?))
}

async fn si_01_a_run_waits_for_a_signal_and_gets_its_value(db: Db) {
    let process = db.start(|engine| engine.register(ONE, one)).await;
    let mut run = process.start(ONE, &()).await.unwrap();
    until_waits(&process, run.id()).await;
    let sent = process.signal(&run, NEWS, &7).await.unwrap();
    assert_eq!(sent, Sent::Delivered(run.id()));
    assert_eq!(soon("the news", run.result()).await.unwrap(), "news 7");
}

async fn si_01_a_run_waits_for_a_timer(db: Db) {
    let db = db.with_manual_clock();
    let process = db.start(|engine| engine.register(TIMER, timer)).await;
    let mut run = process.start(TIMER, &()).await.unwrap();
    until_waits(&process, run.id()).await;
    db.advance(HOUR - Duration::from_micros(1));
    tokio::time::sleep(Duration::from_millis(20)).await;
    until_waits(&process, run.id()).await;
    db.advance(Duration::from_micros(1));
    assert_eq!(soon("the timer", run.result()).await.unwrap(), "slept");
}

async fn si_01_the_first_of_several_wakes_it_and_the_others_consume_nothing(db: Db) {
    let process = db.start(|engine| engine.register(RACE, race)).await;
    let mut run = process.start(RACE, &()).await.unwrap();
    until_waits(&process, run.id()).await;
    let right = process.signal(&run, RIGHT, &"right".into()).await.unwrap();
    assert_eq!(right, Sent::Delivered(run.id()));
    until_waits(&process, run.id()).await;
    let waits = |name: &'static str| {
        move |entry: &Entry| match entry {
            Entry::Begun { what, .. } => what.signature() == ("wait", name),
            _ => false,
        }
    };
    assert_eq!(count(&process, run.id(), waits("go")).await, 1);
    let dropped = |entry: &Entry| matches!(entry, Entry::Dropped { call: 1 });
    assert_eq!(count(&process, run.id(), dropped).await, 1);
    // The lost wait is gone: what comes for it is kept for the next.
    let left = process.signal(&run, LEFT, &"left".into()).await.unwrap();
    assert_eq!(left, Sent::Queued);
    process.signal(&run, GO, &()).await.unwrap();
    let told = soon("both", run.result()).await.unwrap();
    assert_eq!(told, "right before left");
}

async fn si_01_a_timer_among_signals_wakes_it_when_none_comes(db: Db) {
    let db = db.with_manual_clock();
    let process = db.start(|engine| engine.register(TIMED, timed)).await;
    let mut run = process.start(TIMED, &()).await.unwrap();
    until_waits(&process, run.id()).await;
    db.advance(HOUR);
    let second = |entry: &Entry| matches!(entry, Entry::Begun { call: 3, .. });
    while count(&process, run.id(), second).await == 0 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let late = process.signal(&run, LEFT, &"late".into()).await.unwrap();
    assert_eq!(late, Sent::Queued);
    db.advance(2 * HOUR);
    process.signal(&run, GO, &()).await.unwrap();
    let told = soon("the end", run.result()).await.unwrap();
    assert_eq!(told, "the timer, timed_out");
}

async fn si_01_two_waits_in_one_run_for_one_name_get_one_signal_each(db: Db) {
    let process = db.start(|engine| engine.register(PAIR, pair)).await;
    let mut run = process.start(PAIR, &()).await.unwrap();
    until_waits(&process, run.id()).await;
    for value in [1, 2] {
        let sent = process.signal(&run, NEWS, &value).await.unwrap();
        assert_eq!(sent, Sent::Delivered(run.id()), "signal {value}");
    }
    assert_eq!(soon("both", run.result()).await.unwrap(), "1 2");
}

async fn si_06_replay_takes_the_branch_that_won(db: Db) {
    let db = db.with_manual_clock();
    let first = db.start(|engine| engine.register(TIMED, timed)).await;
    let run = first.start(TIMED, &()).await.unwrap().id();
    until_waits(&first, run).await;
    first.signal(run, LEFT, &"left".into()).await.unwrap();
    until_waits(&first, run).await;
    first.crash();
    // In replay the timer is long overdue, and must not win.
    db.advance(HOUR + HOUR / 2);
    let second = db.start(|engine| engine.register(TIMED, timed)).await;
    second.signal(run, RIGHT, &"right".into()).await.unwrap();
    second.signal(run, GO, &()).await.unwrap();
    db.advance(limits::HEAD_START);
    let mut handle = second.handle(TIMED, run).await.unwrap();
    let told = soon("the end", handle.result()).await.unwrap();
    assert_eq!(told, "left, right");
    assert_eq!(second.metrics().replays, 1);
}

async fn si_06_a_lost_signal_that_came_meanwhile_does_not_win_in_replay(db: Db) {
    let first = db.start(|engine| engine.register(RACE, race)).await;
    let run = first.start(RACE, &()).await.unwrap().id();
    until_waits(&first, run).await;
    first.signal(run, RIGHT, &"right".into()).await.unwrap();
    until_waits(&first, run).await;
    let left = first.signal(run, LEFT, &"left".into()).await.unwrap();
    assert_eq!(left, Sent::Queued);
    first.crash();
    let second = db.start(|engine| engine.register(RACE, race)).await;
    second.signal(run, GO, &()).await.unwrap();
    let mut handle = second.handle(RACE, run).await.unwrap();
    let told = soon("the end", handle.result()).await.unwrap();
    assert_eq!(told, "right before left");
}

async fn si_07_a_timer_that_lost_does_not_fire_later(db: Db) {
    let db = db.with_manual_clock();
    let process = db
        .start(|engine| engine.register(RACE_TIMER, race_timer))
        .await;
    let mut run = process.start(RACE_TIMER, &()).await.unwrap();
    until_waits(&process, run.id()).await;
    assert!(process.run(&run).await.unwrap().row.timer_at.is_some());
    process.signal(&run, LEFT, &"left".into()).await.unwrap();
    until_waits(&process, run.id()).await;
    let before = process.run(&run).await.unwrap().row;
    assert_eq!(before.timer_at, None);
    db.advance(3 * HOUR);
    tokio::time::sleep(Duration::from_millis(20)).await;
    let after = process.run(&run).await.unwrap().row;
    assert_eq!(after, before, "nothing happened when the time came");
    process.signal(&run, GO, &()).await.unwrap();
    assert_eq!(soon("the end", run.result()).await.unwrap(), "left");
}

const RACE_TIMER: Told = Told::named("race timer");

async fn race_timer(cx: Cx, (): ()) -> Result<String> {
    let first = match future::select(cx.wait(LEFT), cx.sleep(HOUR)).await {
        Either::Left((value, _)) => value?,
        Either::Right(((), _)) => "the timer".into(),
    };
    cx.wait(GO).await?;
    Ok(first)
}

async fn si_07_a_time_out_of_a_wait_that_was_answered_does_nothing(db: Db) {
    let db = db.with_manual_clock();
    let process = db.start(|engine| engine.register(LIMITED, limited)).await;
    let mut run = process.start(LIMITED, &()).await.unwrap();
    until_waits(&process, run.id()).await;
    process.signal(&run, NEWS, &1).await.unwrap();
    until_waits(&process, run.id()).await;
    let before = process.run(&run).await.unwrap().row;
    assert_eq!(before.timer_at, None);
    db.advance(3 * HOUR);
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(process.run(&run).await.unwrap().row, before);
    process.signal(&run, GO, &()).await.unwrap();
    assert_eq!(soon("the end", run.result()).await.unwrap(), "1");
}

const LIMITED: Told = Told::named("limited");

async fn limited(cx: Cx, (): ()) -> Result<String> {
    let value = cx.wait(NEWS).within(HOUR).await?;
    cx.wait(GO).await?;
    Ok(value.to_string())
}
