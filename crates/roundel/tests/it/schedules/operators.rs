//! What people ask of schedules: pause, resume, run now, backfill, change, remove.

use roundel::{Error, Overlap, ScheduleSet, Timestamp, limits};

use super::{HOUR, MINUTE, REPORT, SLOW, at, has_started, is_at_rest, is_settled, keys, start};
use crate::support::{BEGINNING, Db, all, on_objects, until};

all![
    fa_20_what_is_paused_starts_nothing_until_it_is_resumed,
    fa_20_what_was_paused_while_nobody_was_there_owes_nothing,
    fa_20_run_now_starts_one_beside_its_times,
    fa_20_a_range_of_the_past_is_started_once,
    fa_20_a_range_that_reaches_ahead_ends_now,
    fa_20_what_is_asked_for_waits_where_runs_may_not_overlap,
    fa_20_what_is_removed_starts_nothing_and_can_be_set_again,
    fa_20_what_operators_do_to_schedules_is_audited,
    fa_20_what_is_no_schedule_is_refused,
    fa_20_schedules_are_listed_newest_first_in_pages,
];

on_objects![fa_20_what_is_paused_starts_nothing_until_it_is_resumed];

fn hour(number: u32) -> Timestamp {
    BEGINNING.after(HOUR * number)
}

async fn fa_20_what_is_paused_starts_nothing_until_it_is_resumed(db: Db) {
    let db = db.with_manual_clock();
    let engine = start(&db).await;
    let handle = engine.schedule("hourly");
    let timed = REPORT.timed(&"sales".to_owned()).every(HOUR);
    handle.set(timed).await.unwrap();
    is_at_rest(&engine, "hourly").await;
    handle.pause().await.unwrap();
    assert!(handle.show().await.unwrap().state.paused);
    assert_eq!(handle.next(3).await.unwrap(), []);
    until("it has seen that", async || {
        handle.show().await.unwrap().state.done.next.is_none()
    })
    .await;
    db.advance(HOUR * 3 + MINUTE);
    handle.resume().await.unwrap();
    assert_eq!(handle.next(1).await.unwrap(), [hour(4)]);
    until("it has seen that", async || {
        handle.show().await.unwrap().state.done.next == Some(hour(4))
    })
    .await;
    is_at_rest(&engine, "hourly").await;
    assert!(keys(&engine, "hourly").await.is_empty(), "nothing is owed");
    db.advance(HOUR - MINUTE);
    has_started(&engine, "hourly", 1).await;
    assert_eq!(keys(&engine, "hourly").await, [at("hourly", hour(4))]);
    // Resumed twice is resumed once: what came since is not given up.
    handle.resume().await.unwrap();
}

async fn fa_20_what_was_paused_while_nobody_was_there_owes_nothing(db: Db) {
    let db = db.with_manual_clock();
    let engine = start(&db).await;
    let timed = REPORT.timed(&"sales".to_owned()).every(HOUR);
    let timed = timed.catch_up(roundel::CatchUp::All);
    engine.schedule("hourly").set(timed).await.unwrap();
    is_at_rest(&engine, "hourly").await;
    engine.shutdown().await;
    let client = db.start(|engine| engine).await;
    client.schedule("hourly").pause().await.unwrap();
    db.advance(HOUR * 3 + MINUTE);
    client.schedule("hourly").resume().await.unwrap();
    client.shutdown().await;
    db.advance(HOUR);
    let engine = start(&db).await;
    has_started(&engine, "hourly", 1).await;
    is_settled(&engine, "hourly").await;
    assert_eq!(keys(&engine, "hourly").await, [at("hourly", hour(4))]);
}

async fn fa_20_run_now_starts_one_beside_its_times(db: Db) {
    let db = db.with_manual_clock();
    let engine = start(&db).await;
    let handle = engine.schedule("hourly");
    let timed = REPORT.timed(&"sales".to_owned()).every(HOUR);
    handle.set(timed).await.unwrap();
    handle.pause().await.unwrap();
    let key = handle.run_now().await.unwrap();
    has_started(&engine, "hourly", 1).await;
    assert_eq!(keys(&engine, "hourly").await, [key.as_str()]);
    let mut run = engine.handle(REPORT, key).await.unwrap();
    assert_eq!(run.result().await.unwrap(), Some(BEGINNING));
    is_at_rest(&engine, "hourly").await;
    assert!(handle.show().await.unwrap().state.asked.is_empty());
}

async fn fa_20_a_range_of_the_past_is_started_once(db: Db) {
    let db = db.with_manual_clock();
    let engine = start(&db).await;
    let handle = engine.schedule("daily");
    let timed = REPORT.timed(&"sales".to_owned()).cron("0 0 * * *");
    handle.set(timed.overlap(Overlap::Allow)).await.unwrap();
    let day = |text: &str| format!("daily@2023-11-{text}T00:00:00Z");
    let midnight = |day: i64| Timestamp(1_699_920_000_000_000 - (14 - day) * 86_400_000_000);
    assert_eq!(at("daily", midnight(14)), day("14"));
    let filled = handle.backfill(midnight(11), midnight(13)).await;
    assert_eq!(filled.unwrap(), 3);
    has_started(&engine, "daily", 3).await;
    // What was started already is not started again.
    let filled = handle.backfill(midnight(12), midnight(14)).await;
    assert_eq!(filled.unwrap(), 3);
    has_started(&engine, "daily", 4).await;
    is_at_rest(&engine, "daily").await;
    let expected = ["11", "12", "13", "14"].map(day);
    assert_eq!(keys(&engine, "daily").await, expected);
    assert_eq!(handle.backfill(hour(1), hour(0)).await.unwrap(), 0);
    let years = handle.backfill(midnight(-3000), midnight(1)).await;
    let years = years.unwrap_err().to_string();
    assert!(years.contains(&limits::MADE_UP.to_string()), "{years}");
}

async fn fa_20_a_range_that_reaches_ahead_ends_now(db: Db) {
    let db = db.with_manual_clock();
    let engine = start(&db).await;
    let handle = engine.schedule("hourly");
    let timed = REPORT.timed(&"sales".to_owned()).cron("0 * * * *");
    handle.set(timed.overlap(Overlap::Allow)).await.unwrap();
    let next = handle.next(2).await.unwrap();
    let last = next[0].before(HOUR);
    assert_eq!(handle.backfill(last, next[1]).await.unwrap(), 1);
    assert_eq!(handle.backfill(next[0], next[1]).await.unwrap(), 0);
    has_started(&engine, "hourly", 1).await;
    is_at_rest(&engine, "hourly").await;
    assert_eq!(keys(&engine, "hourly").await, [at("hourly", last)]);
    // What was ahead comes when it is time.
    db.advance(HOUR);
    has_started(&engine, "hourly", 2).await;
    let expected = [last, next[0]].map(|time| at("hourly", time));
    assert_eq!(keys(&engine, "hourly").await, expected);
}

async fn fa_20_what_is_asked_for_waits_where_runs_may_not_overlap(db: Db) {
    let db = db.with_manual_clock();
    let engine = start(&db).await;
    let handle = engine.schedule("slow");
    let timed = SLOW.timed(&String::new()).every(HOUR);
    handle.set(timed).await.unwrap();
    handle.run_now().await.unwrap();
    handle.run_now().await.unwrap();
    is_settled(&engine, "slow").await;
    is_at_rest(&engine, "slow").await;
    assert_eq!(keys(&engine, "slow").await.len(), 1);
    let first = &super::started(&engine, "slow").await.unwrap()[0];
    engine.signal(first.row.id, super::END, &()).await.unwrap();
    has_started(&engine, "slow", 2).await;
}

async fn fa_20_what_is_removed_starts_nothing_and_can_be_set_again(db: Db) {
    let db = db.with_manual_clock();
    let engine = start(&db).await;
    let handle = engine.schedule("hourly");
    let timed = || REPORT.timed(&"sales".to_owned()).every(HOUR);
    handle.set(timed()).await.unwrap();
    is_at_rest(&engine, "hourly").await;
    handle.remove().await.unwrap();
    assert!(matches!(handle.show().await, Err(Error::NoSuchRun(_))));
    db.advance(HOUR * 2);
    assert_eq!(handle.set(timed()).await.unwrap(), ScheduleSet::New);
    is_at_rest(&engine, "hourly").await;
    // Somebody may end its run, too.
    let run = handle.show().await.unwrap().run;
    engine.cancel(run).await.unwrap();
    until("it has ended", async || {
        engine.run(run).await.unwrap().row.state.has_ended()
    })
    .await;
    assert_eq!(handle.next(1).await.unwrap(), []);
    assert_eq!(handle.set(timed()).await.unwrap(), ScheduleSet::New);
    is_at_rest(&engine, "hourly").await;
    db.advance(HOUR);
    has_started(&engine, "hourly", 1).await;
    assert_eq!(keys(&engine, "hourly").await, [at("hourly", hour(3))]);
}

async fn fa_20_what_operators_do_to_schedules_is_audited(db: Db) {
    let db = db.with_manual_clock();
    let engine = start(&db).await;
    let ada = engine.operator("ada").unwrap().reason("inventory");
    let handle = ada.schedule("hourly");
    let timed = REPORT.timed(&"sales".to_owned()).every(HOUR);
    handle.set(timed).await.unwrap();
    handle.pause().await.unwrap();
    handle.resume().await.unwrap();
    handle.run_now().await.unwrap();
    handle.remove().await.unwrap();
    let audit = engine.audit().fetch().await.unwrap();
    let actions = audit.items.iter().map(|(_, row)| row.action.as_str());
    let expected = ["start", "patch", "patch", "patch", "delete"];
    assert_eq!(actions.collect::<Vec<_>>(), expected);
    let about = |view: &roundel::AuditView| view.1.target.contains("hourly");
    assert!(audit.items.iter().all(about));
}

async fn fa_20_what_is_no_schedule_is_refused(db: Db) {
    let engine = db.start(|engine| engine).await;
    let refused = |name: String, timed: roundel::Timed| {
        let handle = engine.schedule(name);
        async move { handle.set(timed).await.unwrap_err().to_string() }
    };
    let report = || REPORT.timed(&"sales".to_owned());
    for (timed, part) in [
        (report(), "say cron, every or once"),
        (report().cron("61 * * * *"), "`61` is no minute"),
        (report().cron("0 0 30 2 *"), "no such time is ahead"),
        (report().cron("@daily").zone("Mars"), "no time zone `Mars`"),
        (report().every(HOUR / 7200), "shorter"),
        (
            report().every(HOUR).zone("UTC"),
            "for cron expressions only",
        ),
    ] {
        let text = refused("it".into(), timed).await;
        assert!(text.contains(part), "{text}");
    }
    let long = "x".repeat(limits::SCHEDULE_BYTES + 1);
    let text = refused(long, report().every(HOUR)).await;
    assert!(text.contains("128"), "{text}");
    for asked in [
        engine.schedule("none").pause().await,
        engine.schedule("none").resume().await,
        engine.schedule("none").remove().await,
        engine.schedule("none").run_now().await.map(drop),
        engine.schedule("none").next(1).await.map(drop),
    ] {
        let text = asked.unwrap_err().to_string();
        assert!(text.contains("schedule `none`"), "{text}");
    }
}

async fn fa_20_schedules_are_listed_newest_first_in_pages(db: Db) {
    let engine = db.start(|engine| engine).await;
    for name in ["a", "b", "c"] {
        let timed = REPORT.timed(&name.to_owned()).every(HOUR);
        engine.schedule(name).set(timed).await.unwrap();
    }
    let page = engine.schedules(None, 2).await.unwrap();
    let names: Vec<_> = page.items.iter().map(|view| view.name.as_str()).collect();
    assert_eq!((names, page.more), (vec!["c", "b"], true));
    let rest = engine.schedules(Some(page.items[1].run), 2).await.unwrap();
    assert_eq!((rest.items[0].name.as_str(), rest.more), ("a", false));
    assert_eq!(rest.items[0].timetable.input.as_str(), r#""a""#);
    assert_eq!(rest.items[0].next(engine.now(), 3).unwrap().len(), 3);
}
