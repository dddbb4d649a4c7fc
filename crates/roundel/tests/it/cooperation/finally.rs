//! What is done in any case, once; and workflows that run again and again.

use std::time::Duration;

use roundel::{Cx, EngineBuilder, Failure, Result, RunState, Signal, Timestamp, Tx, Workflow};
use serde::{Deserialize, Serialize};

use super::ledger::{ends, over_or_dead, reserve, state};
use super::trace::Trace;
use crate::support::{BEGINNING, Db, Fault, all, is_round, until};

const ORDER: Workflow<u32, u32> = Workflow::named("order");
const GO: Signal<u32> = Signal::named("go");

all![
    sc_51_finally_runs_once_after_success_after_failure_and_in_rollback,
    sc_51_finally_runs_once_whenever_the_worker_dies,
    sc_50_a_periodic_workflow_runs_n_times_at_its_period,
];

const COMPLETES: u32 = 0;
const FAILS: u32 = 1;
const SLEEPS: u32 = 2;
const BEGINS_ANEW: u32 = 3;

async fn order(cx: Cx, of: u32, trace: Trace) -> Result<u32> {
    reserve(&cx, &trace, format!("before {of}")).await?;
    for name in ["unlock", "sweep"] {
        let trace = trace.clone();
        let work = move |tx: Tx| {
            let trace = trace.clone();
            async move {
                tx.execute("CREATE TABLE IF NOT EXISTS done (name TEXT)", ())
                    .await?;
                tx.execute("INSERT INTO done VALUES ($1)", (name,)).await?;
                trace.add(name);
                Ok::<_, Failure>(())
            }
        };
        cx.finally(name, work).await?;
    }
    reserve(&cx, &trace, format!("after {of}")).await?;
    match of {
        FAILS => Err(Failure::business("no")),
        BEGINS_ANEW => cx.continue_as_new(&COMPLETES).await,
        SLEEPS => {
            cx.wait(GO).within(Duration::from_secs(3600)).await?;
            Ok(of)
        }
        _ => Ok(of),
    }
}

fn set_up(trace: &Trace) -> impl Fn(EngineBuilder) -> EngineBuilder + use<> {
    let trace = trace.clone();
    move |engine| {
        let trace = trace.clone();
        let order = move |cx: Cx, of: u32| order(cx, of, trace.clone());
        engine
            .register(ORDER, order)
            .lease(Duration::from_millis(100))
    }
}

async fn sc_51_finally_runs_once_after_success_after_failure_and_in_rollback(db: Db) {
    for keep in [0, 100] {
        let trace = Trace::default();
        let set_up = set_up(&trace);
        let process = db.start(|engine| {
            let engine = set_up(engine);
            engine.keep_in_memory(keep, Duration::from_secs(60))
        });
        let process = process.await;
        let run = process.start(ORDER, &COMPLETES).await.unwrap().id();
        assert_eq!(ends(&process, run).await, RunState::Completed);
        assert_eq!(trace.all(), ["sweep", "unlock"]);
        // It is done, and not done again.
        trace.clear();
        process.undo(run).await.unwrap();
        assert_eq!(ends(&process, run).await, RunState::RolledBack);
        assert_eq!(trace.all(), ["undo after 0", "undo before 0"]);
        // In rollback it has its place.
        trace.clear();
        let run = process.start(ORDER, &FAILS).await.unwrap().id();
        assert_eq!(ends(&process, run).await, RunState::RolledBack);
        let undone = |of: u32| {
            let (after, before) = (format!("undo after {of}"), format!("undo before {of}"));
            [after, "sweep".into(), "unlock".into(), before]
        };
        assert_eq!(trace.all(), undone(FAILS));
        trace.clear();
        let run = process.start(ORDER, &SLEEPS).await.unwrap().id();
        until("it waits", async || {
            state(&process, run).await == RunState::Waiting
        })
        .await;
        process.cancel(run).await.unwrap();
        assert_eq!(ends(&process, run).await, RunState::Cancelled);
        assert_eq!(trace.all(), undone(SLEEPS));
        // Each execution does its own before the next begins.
        trace.clear();
        let run = process.start(ORDER, &BEGINS_ANEW).await.unwrap().id();
        assert_eq!(ends(&process, run).await, RunState::Completed);
        assert_eq!(trace.all(), ["sweep", "unlock", "sweep", "unlock"]);
        process.undo(run).await.unwrap();
        assert_eq!(ends(&process, run).await, RunState::RolledBack);
        let undone: Vec<String> = [COMPLETES, BEGINS_ANEW]
            .iter()
            .flat_map(|of| [format!("undo after {of}"), format!("undo before {of}")])
            .collect();
        assert_eq!(trace.all()[4..], undone);
        process.shutdown().await;
    }
}

async fn sc_51_finally_runs_once_whenever_the_worker_dies(db: Db) {
    let count = |cx: Cx, _: u32| async move {
        let count = cx.step("count", |tx: Tx| async move {
            let rows = tx.query("SELECT count(*) FROM done", ()).await?;
            Ok::<u32, Failure>(rows[0].get::<i64>(0)? as u32)
        });
        count.await
    };
    const COUNT: Workflow<u32, u32> = Workflow::named("count");
    let mut expected = 0;
    for (of, end) in [
        (COMPLETES, RunState::Completed),
        (FAILS, RunState::RolledBack),
        (BEGINS_ANEW, RunState::Completed),
    ] {
        for rounds in 0_u32.. {
            let trace = Trace::default();
            let set_up = set_up(&trace);
            let first = db.start(&set_up).await;
            let mut seen = 0;
            first.store.rule(move |ask| {
                seen += u32::from(is_round(ask));
                // The first is that of the start.
                match seen > rounds + 1 {
                    true => Fault::CrashBefore,
                    false => Fault::Pass,
                }
            });
            let run = first.start(ORDER, &of).await.unwrap().id();
            over_or_dead(&first, run).await;
            let died = first.store.is_cut();
            first.crash();
            let second = db
                .start(|engine| set_up(engine).register(COUNT, count))
                .await;
            assert_eq!(ends(&second, run).await, end);
            expected += if of == BEGINS_ANEW { 4 } else { 2 };
            let mut counted = second.start(COUNT, &0).await.unwrap();
            assert_eq!(
                counted.result().await.unwrap(),
                expected,
                "{of} at {rounds}"
            );
            // The items are taken again by the next.
            second.undo(run).await.unwrap();
            assert_eq!(ends(&second, run).await, RunState::RolledBack);
            second.shutdown().await;
            if !died {
                assert!(rounds > 3, "{rounds}");
                break;
            }
        }
    }
}

#[derive(Clone, Serialize, Deserialize)]
struct Beat {
    due: Timestamp,
    left: u32,
}

const BEAT: Workflow<Beat, ()> = Workflow::named("beat");
const PERIOD: Duration = Duration::from_secs(60);

async fn sc_50_a_periodic_workflow_runs_n_times_at_its_period(db: Db) {
    let db = db.with_manual_clock();
    let trace = Trace::default();
    let beat = {
        let trace = trace.clone();
        move |cx: Cx, beat: Beat| {
            let trace = trace.clone();
            async move {
                // The successor first: whatever becomes of this one, the next comes.
                if beat.left > 1 {
                    let (due, left) = (beat.due.after(PERIOD), beat.left - 1);
                    cx.spawn(BEAT, &Beat { due, left }).at(due).await?;
                }
                let now = cx.now().await?;
                trace.add(format!("{}", now.since(BEGINNING).as_secs()));
                match beat.left {
                    3 => Err(Failure::business("this one fails")),
                    _ => Ok(()),
                }
            }
        }
    };
    let process = db.start(|engine| engine.register(BEAT, beat)).await;
    let due = BEGINNING;
    process.start(BEAT, &Beat { due, left: 5 }).await.unwrap();
    for beats in 1..=5 {
        // A lease of one that is still at it would end with the time that is set next.
        until("it has ended", async || {
            let runs = process.runs().of("beat").unwrap().fetch().await.unwrap();
            let ended = runs.items.iter().filter(|run| run.row.state.has_ended());
            ended.count() == beats
        })
        .await;
        // Not before its time.
        db.advance(PERIOD - Duration::from_millis(1));
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(trace.all().len(), beats);
        db.advance(Duration::from_millis(1));
    }
    db.advance(PERIOD * 3);
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(trace.all(), ["0", "60", "120", "180", "240"]);
}
