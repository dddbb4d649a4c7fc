//! Times that come, with one process, two, or none.

use std::time::Duration;

use roundel::{CatchUp, Overlap, ScheduleSet, Timestamp};

use super::{
    END, HOUR, MAIL, MINUTE, REPORT, SLOW, at, has_done, has_started, is_at_rest, is_settled, keys,
    start, started,
};
use crate::support::{BEGINNING, Db, Fault, all, is_round, on_objects, soon, until};

all![
    fa_20_each_time_of_an_interval_is_started_once,
    fa_20_two_engines_start_each_time_once,
    fa_20_a_crash_at_any_commit_loses_and_doubles_no_time,
    fa_20_a_cron_starts_at_the_times_of_its_zone,
    fa_20_once_is_once,
    fa_20_commands_are_sent_under_keys_of_their_queue,
    fa_20_a_time_is_skipped_while_the_last_run_goes_on,
    fa_20_a_time_waits_for_the_end_of_the_last_run,
    fa_20_runs_may_overlap,
    fa_20_c13_what_was_missed_is_made_up_for,
    fa_20_a_schedule_goes_on_for_many_executions,
];

on_objects![
    fa_20_two_engines_start_each_time_once,
    fa_20_a_time_waits_for_the_end_of_the_last_run,
];

fn hour(number: u32) -> Timestamp {
    BEGINNING.after(HOUR * number)
}

async fn fa_20_each_time_of_an_interval_is_started_once(db: Db) {
    let db = db.with_manual_clock();
    let engine = start(&db).await;
    let timed = REPORT.timed(&"sales".to_owned()).every(HOUR);
    let handle = engine.schedule("hourly");
    assert_eq!(handle.set(timed.clone()).await.unwrap(), ScheduleSet::New);
    for number in 1..=3 {
        is_at_rest(&engine, "hourly").await;
        let next = handle.next(2).await.unwrap();
        assert_eq!(next, [hour(number), hour(number + 1)]);
        db.advance(HOUR);
        has_done(&engine, "hourly", number as usize).await;
    }
    let expected = [1, 2, 3].map(|number| at("hourly", hour(number)));
    assert_eq!(keys(&engine, "hourly").await, expected);
    let run = engine.handle(REPORT, expected[1].clone()).await;
    let result = soon("its end", run.unwrap().result()).await;
    assert_eq!(result.unwrap(), Some(hour(2)), "it knows its time");
    // A program that begins again says the same.
    assert_eq!(handle.set(timed).await.unwrap(), ScheduleSet::Same);
    is_at_rest(&engine, "hourly").await;
    let view = handle.show().await.unwrap();
    assert_eq!((view.state.done.started, view.state.done.missed), (3, 0));
    assert_eq!(view.state.done.recent.len(), 3);
}

async fn fa_20_two_engines_start_each_time_once(db: Db) {
    let db = db.with_manual_clock();
    let (one, other) = (start(&db).await, start(&db).await);
    // Both set it, at once.
    let timed = || REPORT.timed(&"sales".to_owned()).every(HOUR);
    let (first, second) = (one.schedule("both"), other.schedule("both"));
    let set = roundel::future::join(first.set(timed()), second.set(timed())).await;
    let set = [set.0.unwrap(), set.1.unwrap()];
    let new = set.iter().filter(|set| **set == ScheduleSet::New);
    assert_eq!(new.count(), 1, "{set:?}");
    for number in 1..=6 {
        is_at_rest(&one, "both").await;
        db.advance(HOUR);
        has_done(&one, "both", number).await;
    }
    is_at_rest(&one, "both").await;
    let expected: Vec<_> = (1..=6).map(|number| at("both", hour(number))).collect();
    assert_eq!(keys(&other, "both").await, expected);
}

async fn fa_20_a_crash_at_any_commit_loses_and_doubles_no_time(db: Db) {
    let db = db.with_manual_clock();
    let engine = start(&db).await;
    let timed = REPORT.timed(&"sales".to_owned()).every(HOUR);
    engine.schedule("hourly").set(timed).await.unwrap();
    is_at_rest(&engine, "hourly").await;
    engine.crash();
    let mut number = 0;
    for fault in [Fault::CrashBefore, Fault::CrashAfter] {
        for strike in 0..6 {
            number += 1;
            let mut commit = 0;
            let dies = start(&db).await;
            dies.store.rule(move |ask| {
                commit += i32::from(is_round(ask));
                if is_round(ask) && commit == strike + 1 {
                    fault
                } else {
                    Fault::Pass
                }
            });
            db.advance(hour(number).since(db.now()));
            // It may need fewer commits than that.
            let died = async || dies.store.is_cut() || has_settled(&dies, number).await;
            until("it crashed, or was done", died).await;
            dies.crash();
            db.advance(Duration::from_secs(31));
            let lives = start(&db).await;
            let all = async {
                has_done(&lives, "hourly", number as usize).await;
                is_at_rest(&lives, "hourly").await;
            };
            db.meanwhile("the start", all).await;
            let expected: Vec<_> = (1..=number)
                .map(|number| at("hourly", hour(number)))
                .collect();
            assert_eq!(keys(&lives, "hourly").await, expected, "{fault:?} {strike}");
            lives.shutdown().await;
        }
    }
}

/// Has it settled that time, and does it rest?
async fn has_settled(process: &crate::support::Process, number: u32) -> bool {
    let Ok(view) = process.schedule("hourly").show().await else {
        return false;
    };
    let Ok(run) = process.run(view.run).await else {
        return false;
    };
    view.state.done.until >= hour(number) && run.row.owner.is_none()
}

async fn fa_20_a_cron_starts_at_the_times_of_its_zone(db: Db) {
    let db = db.with_manual_clock();
    let engine = start(&db).await;
    // It begins on 14 November 2023 at 22:13:20 UTC: half past eleven in Zurich is ahead.
    let timed = REPORT.timed(&"sales".to_owned()).cron("30 23 * * *");
    let handle = engine.schedule("nightly");
    handle.set(timed.zone("Europe/Zurich")).await.unwrap();
    let first = "nightly@2023-11-14T22:30:00Z";
    is_at_rest(&engine, "nightly").await;
    db.advance(17 * MINUTE);
    has_done(&engine, "nightly", 1).await;
    assert_eq!(keys(&engine, "nightly").await, [first]);
    // It is changed: only what is ahead counts.
    let timed = REPORT.timed(&"sales".to_owned()).cron("0 * * * *");
    assert_eq!(handle.set(timed).await.unwrap(), ScheduleSet::Changed);
    until("it has seen that", async || {
        let view = handle.show().await.unwrap();
        view.state.done.next == view.next(engine.now(), 1).unwrap().first().copied()
    })
    .await;
    is_at_rest(&engine, "nightly").await;
    db.advance(30 * MINUTE);
    has_started(&engine, "nightly", 2).await;
    let expected = [first, "nightly@2023-11-14T23:00:00Z"];
    assert_eq!(keys(&engine, "nightly").await, expected);
}

async fn fa_20_once_is_once(db: Db) {
    let db = db.with_manual_clock();
    let engine = start(&db).await;
    let handle = engine.schedule("once");
    let late = handle.set(REPORT.timed(&"sales".to_owned()).once(BEGINNING));
    let late = late.await.unwrap_err().to_string();
    assert!(late.contains("no such time is ahead"), "{late}");
    let timed = REPORT.timed(&"sales".to_owned()).once(hour(1));
    handle.set(timed).await.unwrap();
    is_at_rest(&engine, "once").await;
    db.advance(HOUR);
    has_started(&engine, "once", 1).await;
    is_at_rest(&engine, "once").await;
    db.advance(100 * HOUR);
    assert_eq!(handle.next(5).await.unwrap(), []);
    assert_eq!(keys(&engine, "once").await, [at("once", hour(1))]);
}

async fn fa_20_commands_are_sent_under_keys_of_their_queue(db: Db) {
    let db = db.with_manual_clock();
    let engine = start(&db).await;
    let timed = MAIL.timed(&"ada".to_owned()).every(HOUR);
    engine.schedule("mails").set(timed).await.unwrap();
    is_at_rest(&engine, "mails").await;
    db.advance(HOUR);
    has_started(&engine, "mails", 1).await;
    let mut sent = engine.sent(MAIL, &at("mails", hour(1))).await.unwrap();
    let reply = soon("its reply", sent.result()).await;
    assert_eq!(reply.unwrap(), Some(hour(1)));
}

/// Lets hours pass, and returns how many runs there are after each.
async fn play(db: &Db, engine: &crate::support::Process, hours: u32) -> Vec<usize> {
    let mut counts = Vec::new();
    for _ in 0..hours {
        is_at_rest(engine, "slow").await;
        db.advance(HOUR);
        is_settled(engine, "slow").await;
        is_at_rest(engine, "slow").await;
        counts.push(started(engine, "slow").await.unwrap().len());
    }
    counts
}

/// Ends what was started first and goes on.
async fn end(engine: &crate::support::Process, number: usize) {
    let runs = started(engine, "slow").await.unwrap();
    engine.signal(runs[number].row.id, END, &()).await.unwrap();
    let mut run = engine.handle(SLOW, runs[number].row.id).await.unwrap();
    soon("its end", run.result()).await.unwrap();
}

async fn fa_20_a_time_is_skipped_while_the_last_run_goes_on(db: Db) {
    let db = db.with_manual_clock();
    let engine = start(&db).await;
    let handle = engine.schedule("slow");
    let timed = SLOW.timed(&String::new()).every(HOUR);
    handle.set(timed).await.unwrap();
    assert_eq!(play(&db, &engine, 3).await, [1, 1, 1]);
    end(&engine, 0).await;
    until("it knows", async || {
        handle.show().await.unwrap().state.done.running.is_none()
    })
    .await;
    assert_eq!(play(&db, &engine, 2).await, [2, 2]);
    let expected = [1, 4].map(|number| at("slow", hour(number)));
    assert_eq!(keys(&engine, "slow").await, expected);
    assert_eq!(handle.show().await.unwrap().state.done.skipped, 3);
}

async fn fa_20_a_time_waits_for_the_end_of_the_last_run(db: Db) {
    let db = db.with_manual_clock();
    let engine = start(&db).await;
    let timed = SLOW
        .timed(&String::new())
        .every(HOUR)
        .overlap(Overlap::Queue);
    engine.schedule("slow").set(timed).await.unwrap();
    assert_eq!(play(&db, &engine, 3).await, [1, 1, 1]);
    end(&engine, 0).await;
    has_started(&engine, "slow", 2).await;
    let expected = [1, 2].map(|number| at("slow", hour(number)));
    assert_eq!(keys(&engine, "slow").await, expected, "one time waited");
    is_at_rest(&engine, "slow").await;
    let done = engine.schedule("slow").show().await.unwrap().state.done;
    assert_eq!((done.skipped, done.waiting.len()), (1, 0));
}

async fn fa_20_runs_may_overlap(db: Db) {
    let db = db.with_manual_clock();
    let engine = start(&db).await;
    let timed = SLOW
        .timed(&String::new())
        .every(HOUR)
        .overlap(Overlap::Allow);
    engine.schedule("slow").set(timed).await.unwrap();
    assert_eq!(play(&db, &engine, 3).await, [1, 2, 3]);
}

async fn fa_20_c13_what_was_missed_is_made_up_for(db: Db) {
    let db = db.with_manual_clock();
    let engine = start(&db).await;
    for (name, catch_up) in [
        ("none", CatchUp::None),
        ("one", CatchUp::One),
        ("all", CatchUp::All),
    ] {
        let timed = REPORT
            .timed(&name.to_owned())
            .every(HOUR)
            .catch_up(catch_up);
        engine.schedule(name).set(timed).await.unwrap();
        is_at_rest(&engine, name).await;
    }
    engine.shutdown().await;
    db.advance(HOUR * 5 + 30 * MINUTE);
    let engine = start(&db).await;
    for (name, expected) in [
        ("none", vec![]),
        ("one", vec![5]),
        ("all", vec![1, 2, 3, 4, 5]),
    ] {
        is_settled(&engine, name).await;
        let expected: Vec<_> = expected
            .into_iter()
            .map(|number| at(name, hour(number)))
            .collect();
        has_started(&engine, name, expected.len()).await;
        is_at_rest(&engine, name).await;
        assert_eq!(keys(&engine, name).await, expected);
        let next = engine.schedule(name).next(1).await.unwrap();
        assert_eq!(next, [hour(6)]);
    }
}

async fn fa_20_a_schedule_goes_on_for_many_executions(db: Db) {
    let db = db.with_manual_clock();
    let engine = start(&db).await;
    let timed = REPORT
        .timed(&"sales".to_owned())
        .every(MINUTE)
        .overlap(Overlap::Allow);
    let handle = engine.schedule("often");
    handle.set(timed).await.unwrap();
    for number in 1..=120 {
        db.advance(MINUTE);
        has_started(&engine, "often", number).await;
        is_at_rest(&engine, "often").await;
    }
    let view = handle.show().await.unwrap();
    assert_eq!((view.state.done.started, view.state.done.missed), (120, 0));
    let row = engine.run(view.run).await.unwrap().row;
    assert!(row.execution > 2, "execution {}", row.execution);
    assert!(row.head < 1000, "{} entries", row.head);
    let dump = db.dump().await;
    let rows = dump.journal.iter().filter(|row| row.run == view.run);
    let rows = rows.count();
    assert!(rows <= 4 * 120 + 20, "{rows} rows for 120 starts");
}
