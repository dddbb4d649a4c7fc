//! Schedules in virtual time, with a crash after every round, and with every fault at every commit.

use std::time::Duration;

use roundel::testkit::{TestKit, World, explore};
use roundel::{Client, Cx, EngineBuilder, Error, Overlap, Tx, TxError, Workflow};
use roundel_core::mutant::{self, Mutant};

use super::{HOUR, REPORT, app, at, keys, started};
use crate::flows::{holds, lines, no_line_twice, write};

const NOTE: Workflow<(), ()> = Workflow::named("note");
/// Takes longer than until the next time.
const LONG: Workflow<(), ()> = Workflow::named("long");

#[tokio::test]
async fn fa_20_crashes_after_every_round_change_nothing() {
    let kit = TestKit::open(app).crash_after_every_round().await;
    let begun = kit.now();
    let timed = REPORT.timed(&"sales".to_owned()).every(HOUR);
    kit.schedule("hourly").set(timed).await.unwrap();
    kit.advance(HOUR * 30).await;
    let expected: Vec<_> = (1..=30)
        .map(|number| at("hourly", begun.after(HOUR * number)))
        .collect();
    assert_eq!(keys(&kit, "hourly").await, expected);
    assert!(kit.worker_crashes() > 30);
}

fn notes(engine: EngineBuilder) -> EngineBuilder {
    let engine = engine.register(NOTE, |cx: Cx, ()| async move {
        let at = cx.context(roundel::SCHEDULED_AT)?.expect("a time");
        cx.step("note", move |tx| write(tx, roundel::instant(at)))
            .await
    });
    engine.register(LONG, |cx: Cx, ()| async move {
        let at = cx.context(roundel::SCHEDULED_AT)?.expect("a time");
        let line = move |what: &str| format!("{what} {}", roundel::instant(at));
        cx.step("begin", move |tx| write(tx, line("begin"))).await?;
        cx.sleep(HOUR + HOUR / 2).await;
        cx.step("end", move |tx| write(tx, line("end"))).await
    })
}

async fn three_times(world: World) -> Result<(), Error> {
    world.always("a time is noted once", no_line_twice);
    let kit = world.open(notes).await;
    let set = |client: Client| async move {
        let timed = NOTE.timed(&()).cron("0 * * * *").overlap(Overlap::Allow);
        // Whoever comes late makes up for it.
        let timed = timed.catch_up(roundel::CatchUp::All).grace(Duration::ZERO);
        client.schedule("notes").set(timed).await
    };
    kit.request(set).await?;
    kit.advance(HOUR * 3).await;
    while started(&kit, "notes").await?.len() < 3 {
        kit.advance(HOUR / 60).await;
    }
    for run in started(&kit, "notes").await? {
        kit.handle(NOTE, run.row.id).await?.result().await?;
    }
    let noted = lines(&kit).await.unwrap();
    let first = ["01", "02", "03"].map(|hour| format!("2026-01-01T{hour}:00:00Z"));
    assert_eq!(noted[..3], first);
    kit.schedule("notes").remove().await
}

#[test]
fn fa_20_every_fault_at_every_commit_of_a_schedule() {
    holds(three_times, 1);
}

#[test]
fn fa_20_every_fault_at_every_commit_of_a_schedule_that_two_processes_keep() {
    holds(three_times, 2);
}

/// Waits until so many times are noted.
async fn noted(kit: &TestKit, many: usize) -> Vec<String> {
    loop {
        let noted = lines(kit).await.unwrap_or_default();
        if noted.len() >= many {
            return noted;
        }
        kit.advance(HOUR / 60).await;
    }
}

/// One comes; of three that pass while it is paused the first is asked for; one comes again.
async fn paused_and_filled(world: World) -> Result<(), Error> {
    world.always("a time is noted once", no_line_twice);
    let kit = world.open(notes).await;
    let set = |client: Client| async move {
        let timed = NOTE.timed(&()).cron("0 * * * *").overlap(Overlap::Allow);
        let timed = timed.catch_up(roundel::CatchUp::All).grace(Duration::ZERO);
        client.schedule("notes").set(timed).await
    };
    kit.request(set).await?;
    kit.advance(HOUR + HOUR / 4).await;
    noted(&kit, 1).await;
    let pause = |client: Client| async move { client.schedule("notes").pause().await };
    kit.request(pause).await?;
    kit.advance(HOUR * 2).await;
    assert_eq!(noted(&kit, 1).await.len(), 1, "nothing while it is paused");
    let fill = |client: Client| async move {
        let at = roundel::read_instant("2026-01-01T02:00:00Z").expect("a time");
        client.schedule("notes").backfill(at, at).await
    };
    assert_eq!(kit.request(fill).await?, 1);
    noted(&kit, 2).await;
    kit.advance(HOUR).await;
    let resume = |client: Client| async move { client.schedule("notes").resume().await };
    kit.request(resume).await?;
    kit.advance(HOUR).await;
    let noted = noted(&kit, 3).await;
    let expected = ["01", "02", "05"].map(|hour| format!("2026-01-01T{hour}:00:00Z"));
    assert_eq!(noted, expected);
    kit.schedule("notes").remove().await
}

#[test]
fn fa_20_what_is_paused_filled_and_resumed_is_started_once_whatever_breaks() {
    holds(paused_and_filled, 1);
    holds(paused_and_filled, 2);
}

/// At most one has begun and not ended.
async fn no_two_at_once(tx: Tx) -> Result<(), String> {
    let open = "SELECT count(*) FROM (SELECT substr(line, 7) AS at FROM line WHERE line LIKE \
                'begin %' EXCEPT SELECT substr(line, 5) FROM line WHERE line LIKE 'end %')";
    let open = match tx.query(open, ()).await {
        // No step has run yet.
        Err(TxError::Database(_)) => return Ok(()),
        other => other.map_err(|error| error.to_string())?,
    };
    let open: i64 = open[0].get(0).map_err(|error| error.to_string())?;
    match open {
        0 | 1 => Ok(()),
        open => Err(format!("{open} at once")),
    }
}

async fn one_at_a_time(world: World) -> Result<(), Error> {
    world.always("a line is written once", no_line_twice);
    world.always("one runs at a time", no_two_at_once);
    let kit = world.open(notes).await;
    let set = |client: Client| async move {
        let timed = LONG.timed(&()).cron("0 * * * *").overlap(Overlap::Queue);
        client.schedule("long").set(timed).await
    };
    kit.request(set).await?;
    while lines(&kit).await.unwrap_or_default().len() < 6 {
        kit.advance(HOUR / 2).await;
    }
    kit.schedule("long").remove().await
}

#[test]
fn fa_20_runs_do_not_overlap_whatever_breaks() {
    holds(one_at_a_time, 2);
}

#[test]
fn fa_20_bugs_of_schedules_are_found() {
    type Flow = fn(World) -> std::pin::Pin<Box<dyn Future<Output = Result<(), Error>>>>;
    let times: Flow = |world| Box::pin(three_times(world));
    let alone: Flow = |world| Box::pin(one_at_a_time(world));
    let paused: Flow = |world| Box::pin(paused_and_filled(world));
    for (bug, flow) in [
        (Mutant::TickFiredTwice, times),
        (Mutant::LateTickLost, times),
        (Mutant::OverlapIgnored, alone),
        (Mutant::PauseIgnored, paused),
        (Mutant::OwedAfterPause, paused),
    ] {
        let buggy = move |world: World| {
            mutant::switch(Some(bug));
            flow(world)
        };
        let found = explore(buggy).processes(2).find();
        assert!(found.is_err(), "{bug:?} is not found");
    }
}
