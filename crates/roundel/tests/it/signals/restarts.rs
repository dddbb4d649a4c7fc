//! Waiting runs outlive their process (SI-08), and a shutdown loses nothing (SI-21).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use roundel::{Cx, EngineBuilder, Entry, Error, Failure, Result, RunState, Sent, Workflow, limits};

use super::{GO, HOUR, NEWS, Told, count, until_waits};
use crate::support::{Db, all, soon, until};

all![
    si_08_waiting_runs_are_resumed_by_another_process,
    si_08_overdue_timers_fire_at_once_and_once,
    si_08_a_run_of_an_unknown_workflow_waits_for_who_knows_it,
    si_21_a_shutdown_lets_what_is_in_hand_finish,
    si_21_a_shutdown_gives_back_what_does_not_finish,
    si_21_a_shutdown_leaves_no_timer_behind,
    si_21_a_shutdown_twice_is_fine_and_later_calls_say_so,
];

const LISTEN: Told = Told::named("listen");
const REMIND: Workflow<u32, u32> = Workflow::named("remind");
const SLOW: Told = Told::named("slow");

async fn listen(cx: Cx, (): ()) -> Result<String> {
    let first = cx.wait(NEWS).await?;
    let second = cx.wait(NEWS).await?;
    Ok(format!("{first} {second}"))
}

/// Counts how often each reminder was given.
#[derive(Clone, Default)]
struct Reminders(Arc<AtomicU32>);

impl Reminders {
    fn register(&self, engine: EngineBuilder) -> EngineBuilder {
        let given = self.0.clone();
        engine.register(REMIND, move |cx: Cx, minutes: u32| {
            let given = given.clone();
            async move {
                cx.sleep(Duration::from_secs(u64::from(minutes) * 60)).await;
                let remind = |_| async { Ok::<_, Failure>(given.fetch_add(1, Ordering::SeqCst)) };
                cx.effect("remind", remind).await?;
                Ok(minutes)
            }
        })
    }
}

async fn si_08_waiting_runs_are_resumed_by_another_process(db: Db) {
    let first = db.start(|engine| engine.register(LISTEN, listen)).await;
    let (stopped, crashed) = (
        first.start(LISTEN, &()).key("a").await.unwrap().id(),
        first.start(LISTEN, &()).key("b").await.unwrap().id(),
    );
    for run in [stopped, crashed] {
        first.signal(run, NEWS, &1).await.unwrap();
        until_waits(&first, run).await;
    }
    first.shutdown().await;
    drop(first);
    let second = db.start(|engine| engine.register(LISTEN, listen)).await;
    assert_eq!(second.metrics().replays, 0, "what waits is left alone");
    let sent = second.signal("a", NEWS, &2).await.unwrap();
    assert_eq!(sent, Sent::Delivered(stopped));
    let mut run = second.handle(LISTEN, "a").await.unwrap();
    assert_eq!(soon("the end", run.result()).await.unwrap(), "1 2");
    second.crash();
    let third = db.start(|engine| engine.register(LISTEN, listen)).await;
    let sent = third.signal("b", NEWS, &3).await.unwrap();
    assert_eq!(sent, Sent::Delivered(crashed));
    let mut run = third.handle(LISTEN, "b").await.unwrap();
    assert_eq!(soon("the end", run.result()).await.unwrap(), "1 3");
}

async fn si_08_overdue_timers_fire_at_once_and_once(db: Db) {
    const RUNS: u32 = 20;
    let (db, reminders) = (db.with_manual_clock(), Reminders::default());
    let first = db.start(|engine| reminders.register(engine)).await;
    let mut runs = Vec::new();
    for minutes in 1..=RUNS {
        let run = first.start(REMIND, &minutes).await.unwrap().id();
        until_waits(&first, run).await;
        runs.push(run);
    }
    first.crash();
    db.advance(24 * HOUR);
    // No time passes from here on: what is overdue does not wait for anything.
    let second = db.start(|engine| reminders.register(engine)).await;
    for (run, minutes) in runs.iter().zip(1..) {
        let mut handle = second.handle(REMIND, *run).await.unwrap();
        let slept = soon("the reminder", handle.result()).await.unwrap();
        assert_eq!(slept, minutes);
        let fired = |entry: &Entry| matches!(entry, Entry::Done { call: 1, .. });
        assert_eq!(count(&second, *run, fired).await, 1);
    }
    assert_eq!(reminders.0.load(Ordering::SeqCst), RUNS, "each once");
    second.shutdown().await;
    drop(second);
    let third = db.start(|engine| reminders.register(engine)).await;
    db.advance(24 * HOUR);
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(reminders.0.load(Ordering::SeqCst), RUNS, "and never again");
    assert_eq!(third.metrics().claims_with_runs, 0);
}

async fn si_08_a_run_of_an_unknown_workflow_waits_for_who_knows_it(db: Db) {
    let reminders = Reminders::default();
    let first = db.start(|engine| engine.register(LISTEN, listen)).await;
    let run = first.start(LISTEN, &()).await.unwrap().id();
    until_waits(&first, run).await;
    first.crash();
    let second = db.start(|engine| reminders.register(engine)).await;
    for value in [1, 2] {
        let sent = second.signal(run, NEWS, &value).await.unwrap();
        assert!(matches!(sent, Sent::Delivered(_) | Sent::Queued));
    }
    tokio::time::sleep(2 * limits::HEAD_START).await;
    let row = second.run(run).await.unwrap().row;
    assert_eq!((row.state, row.owner), (RunState::Ready, None));
    second.shutdown().await;
    let third = db.start(|engine| engine.register(LISTEN, listen)).await;
    let mut handle = third.handle(LISTEN, run).await.unwrap();
    assert_eq!(soon("the end", handle.result()).await.unwrap(), "1 2");
}

/// An effect that takes until it is told.
fn slow(engine: EngineBuilder, told: &Arc<tokio::sync::Semaphore>) -> EngineBuilder {
    let told = told.clone();
    engine.register(SLOW, move |cx: Cx, (): ()| {
        let told = told.clone();
        async move {
            let work = |_| async {
                told.acquire().await.expect("open").forget();
                Ok::<_, Failure>(())
            };
            cx.effect("work", work).await?;
            Ok("done".to_owned())
        }
    })
}

async fn si_21_a_shutdown_lets_what_is_in_hand_finish(db: Db) {
    let told = Arc::new(tokio::sync::Semaphore::new(0));
    let first = db.start(|engine| slow(engine, &told)).await;
    let mut run = first.start(SLOW, &()).await.unwrap();
    let (stop, go) = (first.shutdown(), async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        told.add_permits(1);
    });
    soon("the shutdown", async { tokio::join!(stop, go) }).await;
    assert_eq!(soon("the end", run.result()).await.unwrap(), "done");
    let dump = db.dump().await;
    assert_eq!(dump.workers, [], "it is no longer listed");
    assert_eq!(dump.runs[0].state, RunState::Completed);
}

async fn si_21_a_shutdown_gives_back_what_does_not_finish(db: Db) {
    let db = db.with_manual_clock();
    let told = Arc::new(tokio::sync::Semaphore::new(0));
    let drain = Duration::from_millis(50);
    let first = db.start(|engine| slow(engine, &told).drain(drain)).await;
    let run = first.start(SLOW, &()).await.unwrap().id();
    let idle = first.start(SLOW, &()).delay(HOUR).await.unwrap().id();
    soon("the shutdown", first.shutdown()).await;
    for row in db.dump().await.runs {
        assert_eq!((row.owner, row.suspect, row.crashes), (None, false, 0));
        assert_eq!(row.state, RunState::Ready);
    }
    // Without any time having passed, another process goes on.
    told.add_permits(2);
    let second = db.start(|engine| slow(engine, &told)).await;
    let mut handle = second.handle(SLOW, run).await.unwrap();
    assert_eq!(soon("the end", handle.result()).await.unwrap(), "done");
    db.advance(HOUR);
    let mut handle = second.handle(SLOW, idle).await.unwrap();
    assert_eq!(soon("the end", handle.result()).await.unwrap(), "done");
}

async fn si_21_a_shutdown_leaves_no_timer_behind(db: Db) {
    let (db, reminders) = (db.with_manual_clock(), Reminders::default());
    let first = db.start(|engine| reminders.register(engine)).await;
    let run = first.start(REMIND, &60).await.unwrap().id();
    until_waits(&first, run).await;
    soon("the shutdown", first.shutdown()).await;
    until("nobody waits for the clock", || async {
        db.advance_to_next().is_none()
    })
    .await;
    db.advance(HOUR);
    assert_eq!(reminders.0.load(Ordering::SeqCst), 0);
    assert_eq!(db.dump().await.runs[0].state, RunState::Waiting);
    let second = db.start(|engine| reminders.register(engine)).await;
    let mut handle = second.handle(REMIND, run).await.unwrap();
    soon("the reminder", handle.result()).await.unwrap();
    assert_eq!(reminders.0.load(Ordering::SeqCst), 1);
}

async fn si_21_a_shutdown_twice_is_fine_and_later_calls_say_so(db: Db) {
    let process = db.start(|engine| engine.register(LISTEN, listen)).await;
    let mut run = process.start(LISTEN, &()).await.unwrap();
    until_waits(&process, run.id()).await;
    soon("the shutdown", process.shutdown()).await;
    soon("the second", process.shutdown()).await;
    let error = process.start(LISTEN, &()).await.unwrap_err();
    assert!(matches!(error, Error::Closed), "{error}");
    let error = process.signal(&run, GO, &()).await.unwrap_err();
    assert!(matches!(error, Error::Closed), "{error}");
    let error = soon("an answer", run.result()).await.unwrap_err();
    assert!(matches!(error, Error::Closed), "{error}");
    assert!(error.to_string().contains("shut down"), "{error}");
}
