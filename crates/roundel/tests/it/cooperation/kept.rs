//! Cancelled without undo: what was done stays, at all levels, and no code of the workflow runs.

use std::time::Duration;

use roundel::{Cancelled, Cx, Entry, Failure, Remedy, Retry, RunState, Workflow};

use super::ledger::{ends, reserve, state};
use super::trace::Trace;
use crate::rounds::sound::assert_sound;
use crate::support::{Db, Process, all, until};

const ORDER: Workflow<u32, u32> = Workflow::named("order");
const STOCK: Workflow<u32, u32> = Workflow::named("stock");

all![
    co_25_a_tree_is_cancelled_without_undo,
    co_25_a_run_that_works_is_cancelled_without_undo,
    co_25_a_parked_run_is_cancelled_without_undo,
];

/// An order whose child sleeps; both can be undone.
async fn a_tree(db: &Db, trace: &Trace, keep: usize) -> Process {
    let order = {
        let trace = trace.clone();
        move |cx: Cx, of: u32| {
            let trace = trace.clone();
            async move {
                reserve(&cx, &trace, format!("order{keep}")).await?;
                cx.child(STOCK, &of).await
            }
        }
    };
    let stock = {
        let trace = trace.clone();
        move |cx: Cx, of: u32| {
            let trace = trace.clone();
            async move {
                reserve(&cx, &trace, format!("stock{keep}")).await?;
                cx.sleep(Duration::from_secs(3600)).await;
                Ok(of)
            }
        }
    };
    db.start(|engine| {
        let engine = engine.register(ORDER, order).register(STOCK, stock);
        engine.keep_in_memory(keep, Duration::from_secs(60))
    })
    .await
}

async fn co_25_a_tree_is_cancelled_without_undo(db: Db) {
    for keep in [0, 100] {
        let trace = Trace::default();
        let process = a_tree(&db, &trace, keep).await;
        let order = process.start(ORDER, &1).await.unwrap().id();
        let stocks = || {
            process
                .runs()
                .of("stock")
                .unwrap()
                .in_state(RunState::Waiting)
        };
        until("the child sleeps", async || {
            !stocks().fetch().await.unwrap().items.is_empty()
        })
        .await;
        let stock = stocks().fetch().await.unwrap().items[0].row.id;
        let anna = process.operator("anna").unwrap().reason("it was delivered");
        let answer = anna.cancel_without_undo(order).await.unwrap();
        assert_eq!(answer, Cancelled::Requested);
        for run in [order, stock] {
            assert_eq!(ends(&process, run).await, RunState::Cancelled);
            let entries = process.journal(run).await.unwrap();
            assert!(entries.contains(&Entry::Kept), "{entries:?}");
        }
        assert_eq!(trace.all(), [""; 0], "nothing is undone");
        let audit = process.audit().fetch().await.unwrap().items;
        let (_, said) = &audit[0];
        assert_eq!(said.action, "cancel without undo");
        assert_eq!(said.reason, "it was delivered");
        process.shutdown().await;
    }
    assert_sound(&db).await;
}

async fn co_25_a_run_that_works_is_cancelled_without_undo(db: Db) {
    let (trace, begun) = (Trace::default(), Trace::default());
    let order = {
        let (trace, begun) = (trace.clone(), begun.clone());
        move |cx: Cx, _: u32| {
            let (trace, begun) = (trace.clone(), begun.clone());
            async move {
                reserve(&cx, &trace, "order".into()).await?;
                cx.effect("pay", |_| {
                    begun.add("pay");
                    std::future::pending::<Result<u32, Failure>>()
                })
                .await
            }
        }
    };
    let process = db.start(|engine| engine.register(ORDER, order)).await;
    let run = process.start(ORDER, &1).await.unwrap().id();
    until("it pays", async || !begun.all().is_empty()).await;
    process.cancel_without_undo(run).await.unwrap();
    assert_eq!(ends(&process, run).await, RunState::Cancelled);
    assert_eq!(trace.all(), [""; 0]);
    assert_sound(&db).await;
}

async fn co_25_a_parked_run_is_cancelled_without_undo(db: Db) {
    let trace = Trace::default();
    let order = {
        let trace = trace.clone();
        move |cx: Cx, _: u32| {
            let trace = trace.clone();
            async move {
                reserve(&cx, &trace, "order".into()).await?;
                let broken = |_| async { Err::<u32, _>(Failure::permanent("no till")) };
                cx.effect("pay", broken).retry(Retry::none()).await
            }
        }
    };
    let process = db.start(|engine| engine.register(ORDER, order)).await;
    let run = process.start(ORDER, &1).await.unwrap().id();
    until("it is parked", async || {
        state(&process, run).await == RunState::Parked
    })
    .await;
    let remedy = Remedy::CancelWithoutUndo;
    process.remedy(run, &remedy).await.unwrap();
    assert_eq!(ends(&process, run).await, RunState::Cancelled);
    assert_eq!(trace.all(), [""; 0]);
    process.remedy(run, &remedy).await.unwrap_err();
    assert_sound(&db).await;
}
