//! Rollback through the executions before a continue-as-new.

use std::time::Duration;

use roundel::{Begun, Cx, EngineBuilder, Failure, Result, RunState, Undone, Workflow};

use super::ledger::{ends, over_or_dead, reserve, state};
use super::trace::Trace;
use crate::support::{Db, all, until};

const LOOP: Workflow<u32, u32> = Workflow::named("loop");
const STOCK: Workflow<u32, u32> = Workflow::named("stock");

/// From this input on, the loop does nothing more: it fails, completes, or sleeps.
const FAILS: [u32; 2] = [3, 33];
const COMPLETES: u32 = 13;
const SLEEPS: u32 = 23;

// Not on a server: a process that crashes there loses its connections, and is told so at once.
all![
    sc_36_a_rollback_through_them_goes_on_after_a_crash,
    sc_36_a_failure_reaches_the_executions_before_newest_first,
    sc_36_what_was_declared_settled_stays,
    sc_36_an_undo_on_request_reaches_them_too,
    sc_36_a_cancel_reaches_them_though_the_last_did_nothing,
    sc_36_an_execution_of_a_version_that_is_not_here_parks_the_run,
];

/// Each execution reserves, pays, has a child that reserves, and goes on. The second settles if
/// it is to.
async fn goes_on(cx: Cx, of: u32, trace: Trace, settles: bool) -> Result<u32> {
    match of {
        _ if FAILS.contains(&of) => return Err(Failure::business("no")),
        COMPLETES => return Ok(of),
        SLEEPS => cx.sleep(Duration::from_secs(3600)).await,
        _ => {}
    }
    reserve(&cx, &trace, format!("loop {of}")).await?;
    cx.child(STOCK, &of).await?;
    let key = move |begun: Begun<String>| {
        let trace = trace.clone();
        async move {
            assert_eq!(Some(begun.key()), begun.value().map(String::as_str));
            assert_ne!(begun.attempt().key(), begun.key());
            trace.add(format!("refund {of}"));
            Ok::<_, Failure>(())
        }
    };
    let paid = cx.effect(
        "pay",
        |attempt| async move { Ok::<_, Failure>(attempt.key()) },
    );
    paid.undo(key).await?;
    let anew = cx.continue_as_new(&(of + 1));
    match settles && cx.execution() == 2 {
        true => anew.settled().await,
        false => anew.await,
    }
}

fn set_up(trace: &Trace, settles: bool) -> impl Fn(EngineBuilder) -> EngineBuilder + use<> {
    let trace = trace.clone();
    move |engine| {
        let (one, two) = (trace.clone(), trace.clone());
        let order = move |cx: Cx, of: u32| goes_on(cx, of, one.clone(), settles);
        let stock = move |cx: Cx, of: u32| {
            let trace = two.clone();
            async move {
                reserve(&cx, &trace, format!("stock {of}")).await?;
                Ok(of)
            }
        };
        engine.register(LOOP, order).register(STOCK, stock)
    }
}

/// What undoing the executions of these inputs looks like.
fn undone(of: impl IntoIterator<Item = u32>) -> Vec<String> {
    let each = |of| {
        let stock = format!("undo stock {of}");
        [format!("refund {of}"), stock, format!("undo loop {of}")]
    };
    of.into_iter().flat_map(each).collect()
}

async fn sc_36_a_failure_reaches_the_executions_before_newest_first(db: Db) {
    for keep in [0, 100] {
        let trace = Trace::default();
        let set_up = set_up(&trace, false);
        let process = db.start(|engine| {
            let engine = set_up(engine);
            engine.keep_in_memory(keep, Duration::from_secs(60))
        });
        let process = process.await;
        let mut run = process.start(LOOP, &0).await.unwrap();
        let failure = run.result().await.unwrap_err();
        assert!(failure.to_string().contains("no"), "{failure}");
        assert_eq!(trace.all(), undone([2, 1, 0]));
        assert_eq!(state(&process, run.id()).await, RunState::RolledBack);
        process.shutdown().await;
    }
}

async fn sc_36_what_was_declared_settled_stays(db: Db) {
    let trace = Trace::default();
    let process = db.start(set_up(&trace, true)).await;
    let mut run = process.start(LOOP, &0).await.unwrap();
    assert!(run.result().await.is_err());
    assert_eq!(trace.all(), undone([2]));
    // Nothing is left: it has failed, and there is nothing to undo.
    let mut run = process.start(LOOP, &31).await.unwrap();
    assert!(run.result().await.is_err());
    assert_eq!(state(&process, run.id()).await, RunState::Failed);
    let mut run = process.start(LOOP, &11).await.unwrap();
    run.result().await.unwrap();
    process.undo(run.id()).await.unwrap();
    assert_eq!(ends(&process, run.id()).await, RunState::RolledBack);
    assert_eq!(trace.all(), undone([2]));
}

async fn sc_36_an_undo_on_request_reaches_them_too(db: Db) {
    let trace = Trace::default();
    let process = db.start(set_up(&trace, false)).await;
    let mut run = process.start(LOOP, &11).await.unwrap();
    assert_eq!(run.result().await.unwrap(), COMPLETES);
    let partial = false;
    assert_eq!(
        process.undo(run.id()).await.unwrap(),
        Undone::Begun { partial }
    );
    assert_eq!(ends(&process, run.id()).await, RunState::RolledBack);
    assert_eq!(trace.all(), undone([12, 11]));
}

async fn sc_36_a_cancel_reaches_them_though_the_last_did_nothing(db: Db) {
    for keep in [0, 100] {
        let trace = Trace::default();
        let set_up = set_up(&trace, false);
        let process = db.start(|engine| {
            let engine = set_up(engine);
            engine.keep_in_memory(keep, Duration::from_secs(60))
        });
        let process = process.await;
        let mut run = process.start(LOOP, &21).await.unwrap();
        until("it sleeps", async || {
            let row = process.run(run.id()).await.unwrap().row;
            (row.execution, row.state) == (3, RunState::Waiting)
        })
        .await;
        process.cancel(run.id()).await.unwrap();
        assert!(run.result().await.is_err());
        assert_eq!(state(&process, run.id()).await, RunState::Cancelled);
        assert_eq!(trace.all(), undone([22, 21]));
        process.shutdown().await;
    }
}

async fn sc_36_a_rollback_through_them_goes_on_after_a_crash(db: Db) {
    // Dies before each of its rounds in turn, until it needs no more of them.
    let lease = Duration::from_millis(100);
    for rounds in 0.. {
        let trace = Trace::default();
        let set_up = set_up(&trace, false);
        let first = db.start(|engine| set_up(engine).lease(lease)).await;
        let mut run = first.start(LOOP, &11).await.unwrap();
        run.result().await.unwrap();
        let run = run.id();
        let mut seen = 0;
        first.store.rule(move |ask| {
            seen += u32::from(crate::support::is_round_of(ask, run));
            match seen > rounds {
                true => crate::support::Fault::CrashBefore,
                false => crate::support::Fault::Pass,
            }
        });
        first.undo(run).await.unwrap();
        over_or_dead(&first, run).await;
        let died = first.store.is_cut();
        first.crash();
        let second = db.start(|engine| set_up(engine).lease(lease)).await;
        assert_eq!(ends(&second, run).await, RunState::RolledBack);
        // Steps are undone once; what is outside may be asked for again.
        let mut all = trace.all();
        all.dedup();
        assert_eq!(all, undone([12, 11]), "{rounds}");
        second.shutdown().await;
        if !died {
            assert!(rounds > 6, "{rounds}");
            return;
        }
    }
}

async fn sc_36_an_execution_of_a_version_that_is_not_here_parks_the_run(db: Db) {
    const SECOND: Workflow<u32, u32> = Workflow::named("loop").version(2);
    let trace = Trace::default();
    let first = {
        let trace = trace.clone();
        move |cx: Cx, of: u32| {
            let trace = trace.clone();
            async move {
                reserve(&cx, &trace, "first".into()).await?;
                cx.continue_as_new(&of).version(2).await
            }
        }
    };
    let second = |_: Cx, of: u32| async move { Ok::<_, Failure>(of) };
    let both = |engine: EngineBuilder| {
        engine
            .register(LOOP, first.clone())
            .register(SECOND, second)
    };
    let process = db.start(both).await;
    let start = process.start(Workflow::<u32, u32>::named("loop").version(1), &1);
    let mut run = start.await.unwrap();
    run.result().await.unwrap();
    process.shutdown().await;
    let process = db.start(|engine| engine.register(SECOND, second)).await;
    process.undo(run.id()).await.unwrap();
    until("it is parked", async || {
        state(&process, run.id()).await == RunState::Parked
    })
    .await;
    let reason = process.run(run.id()).await.unwrap().row.outcome;
    let reason = format!("{reason:?}");
    assert!(reason.contains("version 1 of `loop`"), "{reason}");
    assert_eq!(trace.all(), Vec::<String>::new());
    process.shutdown().await;
    let process = db.start(both).await;
    process.resume(run.id()).await.unwrap();
    assert_eq!(ends(&process, run.id()).await, RunState::RolledBack);
    assert_eq!(trace.all(), ["undo first"]);
}
