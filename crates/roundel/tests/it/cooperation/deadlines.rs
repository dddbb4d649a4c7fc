//! Deadlines: inherited, the earliest wins, and who misses one says who set it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use roundel::{
    Begun, Cx, Deadline, Failure, Result, Retry, RunId, RunState, Signal, Timestamp, Topic, Tx,
    Workflow, child_failures,
};

use super::trace::Trace;
use crate::support::{Db, Process, all, until};

const ORDER: Workflow<u32, u32> = Workflow::named("order");
const STOCK: Workflow<u32, u32> = Workflow::named("stock");
const LABEL: Workflow<u32, u32> = Workflow::named("label");
const PLACED: Topic<u32> = Topic::named("placed");
const GO: Signal<u32> = Signal::named("go");

const SOON: Duration = Duration::from_millis(400);
const LONG: Duration = Duration::from_secs(600);

all![
    d24_a_run_that_finishes_at_its_deadline_has_one_end,
    sc_43_a_missed_deadline_undoes_what_was_done_and_names_its_source,
    sc_43_a_run_with_nothing_to_undo_fails,
    sc_43_children_have_the_deadline_of_their_parent,
    sc_43_who_has_one_deadline_for_both_has_no_time_to_undo,
    sc_43_a_childs_earlier_deadline_wins,
    sc_43_a_deadline_cannot_be_extended,
    sc_43_a_child_whose_deadline_has_passed_runs_no_step,
    sc_43_a_missed_rollback_deadline_ends_as_rollback_failed,
    sc_43_a_deadline_survives_a_crash_and_a_new_execution,
    sc_42_an_operator_undoes_what_is_long_past_its_deadline,
];

async fn waits(cx: Cx, _: u32) -> Result<u32> {
    cx.wait(GO).await
}

/// A step that can be undone.
async fn reserve(cx: &Cx, trace: &Trace, item: &'static str) -> Result<()> {
    let traced = trace.clone();
    let step = cx.step("reserve", |_: Tx| async { Ok::<_, Failure>(()) });
    step.undo(move |_: Tx, ()| {
        traced.add(format!("undo {item}"));
        async { Ok::<_, Failure>(()) }
    })
    .await
}

async fn ends(process: &Process, run: RunId) -> RunState {
    until("it has ended", async || {
        process.run(run).await.unwrap().row.state.has_ended()
    })
    .await;
    process.run(run).await.unwrap().row.state
}

async fn failure_of(process: &Process, run: RunId) -> Failure {
    let row = process.run(run).await.unwrap().row;
    row.outcome.unwrap().into_result().unwrap_err()
}

fn deadline_of(failure: &Failure) -> Deadline {
    assert_eq!(failure.code, "deadline", "{failure}");
    failure.data.as_ref().unwrap().decode().unwrap()
}

async fn only(process: &Process, workflow: &'static str) -> RunId {
    let runs = process.runs().of(workflow).unwrap().fetch().await.unwrap();
    assert_eq!(runs.items.len(), 1);
    runs.items[0].row.id
}

async fn sc_43_a_missed_deadline_undoes_what_was_done_and_names_its_source(db: Db) {
    for keep in [0, 100] {
        let trace = Trace::default();
        let order = {
            let trace = trace.clone();
            move |cx: Cx, of: u32| {
                let trace = trace.clone();
                async move {
                    reserve(&cx, &trace, "a").await?;
                    reserve(&cx, &trace, "b").await?;
                    waits(cx, of).await
                }
            }
        };
        let process = db.start(|engine| {
            let engine = engine.register(ORDER, order);
            engine.keep_in_memory(keep, Duration::from_secs(60))
        });
        let process = process.await;
        let start = process.start(ORDER, &1).forward_deadline(SOON);
        let mut order = start.await.unwrap();
        assert!(order.result().await.is_err());
        assert_eq!(ends(&process, order.id()).await, RunState::RolledBack);
        let failure = failure_of(&process, order.id()).await;
        assert_eq!(deadline_of(&failure).set_by, order.id());
        assert!(failure.message.contains(&order.id().to_string()));
        assert_eq!(trace.all(), ["undo b", "undo a"]);
        process.shutdown().await;
    }
}

async fn sc_43_a_run_with_nothing_to_undo_fails(db: Db) {
    let process = db.start(|engine| engine.register(ORDER, waits)).await;
    let mut order = process.start(ORDER, &1).deadline(SOON).await.unwrap();
    assert!(order.result().await.is_err());
    assert_eq!(ends(&process, order.id()).await, RunState::Failed);
    deadline_of(&failure_of(&process, order.id()).await);
    // And one whose time is not over goes on.
    let mut order = process.start(ORDER, &1).deadline(LONG).await.unwrap();
    process.signal(&order, GO, &5).await.unwrap();
    assert_eq!(order.result().await.unwrap(), 5);
}

async fn sc_43_children_have_the_deadline_of_their_parent(db: Db) {
    let trace = Trace::default();
    let order = |cx: Cx, of: u32| async move {
        let stepped = cx.step("place", |tx| async move { PLACED.publish(&tx, &of) });
        stepped.await?;
        Ok(of)
    };
    let stock = {
        let trace = trace.clone();
        move |cx: Cx, of: u32| {
            let trace = trace.clone();
            async move {
                reserve(&cx, &trace, "stock").await?;
                cx.child(LABEL, &of).forward_deadline(LONG).await
            }
        }
    };
    let process = db.start(|engine| {
        let engine = engine.register(ORDER, order).register(STOCK, stock);
        engine.register(LABEL, waits).subscribe(PLACED, STOCK)
    });
    let process = process.await;
    let start = process.start(ORDER, &1).forward_deadline(SOON);
    let mut order = start.await.unwrap();
    assert!(order.result().await.is_err());
    let label = only(&process, "label").await;
    let row = process.run(label).await.unwrap().row;
    let set_by = row.deadlines.forward.map(|deadline| deadline.set_by);
    assert_eq!(set_by, Some(order.id()), "from the root, two levels up");
    // Whoever is first to take it up asks those below to end.
    let ended = [RunState::Failed, RunState::Cancelled];
    assert!(ended.contains(&row.state), "{:?}", row.state);
    let stock = process.run(only(&process, "stock").await).await.unwrap();
    let ended = [RunState::RolledBack, RunState::Cancelled];
    assert!(ended.contains(&stock.row.state), "{:?}", stock.row.state);
    let failure = failure_of(&process, order.id()).await;
    assert_eq!(deadline_of(&failure).set_by, order.id());
    assert_eq!(trace.all(), ["undo stock"]);
}

async fn sc_43_who_has_one_deadline_for_both_has_no_time_to_undo(db: Db) {
    let trace = Trace::default();
    let order = {
        let trace = trace.clone();
        move |cx: Cx, of: u32| {
            let trace = trace.clone();
            async move {
                reserve(&cx, &trace, "order").await?;
                cx.child(STOCK, &of).await
            }
        }
    };
    let stock = {
        let trace = trace.clone();
        move |cx: Cx, of: u32| {
            let trace = trace.clone();
            async move {
                reserve(&cx, &trace, "stock").await?;
                waits(cx, of).await
            }
        }
    };
    let process = db.start(|engine| engine.register(ORDER, order).register(STOCK, stock));
    let process = process.await;
    let mut order = process.start(ORDER, &1).deadline(SOON).await.unwrap();
    assert!(order.result().await.is_err());
    assert_eq!(ends(&process, order.id()).await, RunState::RollbackFailed);
    let stock = only(&process, "stock").await;
    assert_eq!(ends(&process, stock).await, RunState::RollbackFailed);
    let failure = failure_of(&process, stock).await;
    deadline_of(failure.cause.as_ref().unwrap());
    assert_eq!(trace.all(), Vec::<String>::new());
}

async fn sc_43_a_childs_earlier_deadline_wins(db: Db) {
    let order = |cx: Cx, of: u32| async move {
        let child = cx.child(STOCK, &of).forward_deadline(SOON).await;
        let by = deadline_of(&child.unwrap_err()).set_by;
        assert_eq!(by, cx.run(), "this run set it");
        let many = cx.children(STOCK, &[1, 2]).forward_deadline(SOON).await;
        for failed in child_failures(&many.unwrap_err()) {
            assert_eq!(deadline_of(failed.failure().unwrap()).set_by, cx.run());
        }
        let heard = cx.publish(PLACED, &of).deadline(SOON).await;
        let failed = child_failures(&heard.unwrap_err());
        assert_eq!(deadline_of(failed[0].failure().unwrap()).set_by, cx.run());
        Ok(of)
    };
    let process = db.start(|engine| {
        let engine = engine.register(ORDER, order).register(STOCK, waits);
        engine.subscribe(PLACED, STOCK)
    });
    let process = process.await;
    let mut order = process.start(ORDER, &7).deadline(LONG).await.unwrap();
    assert_eq!(order.result().await.unwrap(), 7);
}

async fn sc_43_a_deadline_cannot_be_extended(db: Db) {
    let order = |cx: Cx, of: u32| async move { cx.child(STOCK, &of).deadline(LONG).await };
    let process = db.start(|engine| engine.register(ORDER, order).register(STOCK, waits));
    let process = process.await;
    let mut order = process.start(ORDER, &1).deadline(SOON).await.unwrap();
    assert!(order.result().await.is_err());
    let row = process
        .run(only(&process, "stock").await)
        .await
        .unwrap()
        .row;
    let own = process.run(order.id()).await.unwrap().row.deadlines;
    assert_eq!(row.deadlines, own);
    assert!(row.state.has_ended());
}

async fn sc_43_a_child_whose_deadline_has_passed_runs_no_step(db: Db) {
    let steps = Arc::new(AtomicU32::new(0));
    let stock = {
        let steps = steps.clone();
        move |cx: Cx, of: u32| {
            let steps = steps.clone();
            async move {
                let step = cx.step("reserve", |_| async {
                    steps.fetch_add(1, Ordering::Relaxed);
                    Ok::<_, Failure>(of)
                });
                step.await?;
                cx.effect("pack", |_| async {
                    steps.fetch_add(1, Ordering::Relaxed);
                    Ok::<_, Failure>(of)
                })
                .await
            }
        }
    };
    let order = |cx: Cx, of: u32| async move {
        let past = Timestamp(1);
        let one = cx.child(STOCK, &of).forward_deadline(past).await;
        deadline_of(&one.unwrap_err());
        let all = cx.children(STOCK, &[1, 2]).forward_deadline(past).await;
        assert_eq!(child_failures(&all.unwrap_err()).len(), 2);
        Ok(of)
    };
    for keep in [0, 100] {
        let process = db.start(|engine| {
            let engine = engine.register(ORDER, order);
            let engine = engine.register(STOCK, stock.clone());
            engine.keep_in_memory(keep, Duration::from_secs(60))
        });
        let process = process.await;
        let mut order = process.start(ORDER, &1).await.unwrap();
        assert_eq!(order.result().await.unwrap(), 1);
        let past = process.start(STOCK, &1).deadline(Timestamp(1));
        assert!(past.await.unwrap().result().await.is_err());
        process.shutdown().await;
    }
    assert_eq!(steps.load(Ordering::Relaxed), 0);
}

async fn sc_43_a_missed_rollback_deadline_ends_as_rollback_failed(db: Db) {
    let trace = Trace::default();
    let stock = {
        let trace = trace.clone();
        move |cx: Cx, of: u32| {
            let trace = trace.clone();
            async move {
                reserve(&cx, &trace, "first").await?;
                let traced = trace.clone();
                let effect = cx.effect("pack", |_| async { Ok::<_, Failure>(()) });
                // Its undo would be tried for a long time.
                let undo = move |_: Begun<()>| {
                    traced.add("try");
                    async { Err::<(), _>(Failure::transient("not now")) }
                };
                effect
                    .retry(Retry::fixed(100, Duration::from_millis(10)))
                    .undo(undo)
                    .await?;
                Ok(of)
            }
        }
    };
    let order = {
        let trace = trace.clone();
        move |cx: Cx, of: u32| {
            let trace = trace.clone();
            async move {
                reserve(&cx, &trace, "order").await?;
                cx.child(STOCK, &of).await?;
                Err::<u32, _>(Failure::business("no money"))
            }
        }
    };
    let process = db.start(|engine| engine.register(ORDER, order).register(STOCK, stock));
    let process = process.await;
    let start = process.start(ORDER, &1).rollback_deadline(SOON);
    let mut order = start.await.unwrap();
    assert!(order.result().await.is_err());
    assert_eq!(ends(&process, order.id()).await, RunState::RollbackFailed);
    let stock = only(&process, "stock").await;
    assert_eq!(ends(&process, stock).await, RunState::RollbackFailed);
    let failure = failure_of(&process, stock).await;
    let late = failure.cause.expect("a cause");
    assert_eq!(deadline_of(&late).set_by, order.id());
    let tries = trace.all();
    assert!(tries.iter().all(|line| line == "try"), "{tries:?}");
    // An operator who leaves that undo out is not held to the deadline.
    process.resume_skipping(stock).await.unwrap();
    assert_eq!(ends(&process, stock).await, RunState::RolledBack);
    process.resume(order.id()).await.unwrap();
    assert_eq!(ends(&process, order.id()).await, RunState::RolledBack);
    let undone: Vec<String> = trace.all().split_off(tries.len());
    assert_eq!(undone, ["undo first", "undo order"]);
}

async fn sc_43_a_deadline_survives_a_crash_and_a_new_execution(db: Db) {
    let order = |cx: Cx, of: u32| async move {
        if of < 3 {
            cx.sleep(Duration::from_millis(1)).await;
            return cx.continue_as_new(&(of + 1)).await;
        }
        waits(cx, of).await
    };
    let db = db.with_manual_clock();
    let process = db.start(|engine| engine.register(ORDER, order)).await;
    let start = process.start(ORDER, &1).deadline(Duration::from_secs(50));
    let order_id = start.await.unwrap().id();
    until("it waits in its third execution", async || {
        db.advance(Duration::from_millis(1));
        let row = process.run(order_id).await.unwrap().row;
        row.execution == 3 && row.waits == 1
    })
    .await;
    process.crash();
    let process = db.start(|engine| engine.register(ORDER, order)).await;
    db.advance(Duration::from_secs(40));
    let state = process.run(order_id).await.unwrap().row.state;
    assert_eq!(state, RunState::Waiting);
    db.advance(Duration::from_secs(10));
    assert_eq!(ends(&process, order_id).await, RunState::Failed);
    deadline_of(&failure_of(&process, order_id).await);
}

async fn d24_a_run_that_finishes_at_its_deadline_has_one_end(db: Db) {
    let trace = Trace::default();
    let order = {
        let trace = trace.clone();
        move |cx: Cx, of: u32| {
            let trace = trace.clone();
            async move {
                reserve(&cx, &trace, "a").await?;
                cx.sleep(Duration::from_millis(20)).await;
                reserve(&cx, &trace, "b").await?;
                Ok(of)
            }
        }
    };
    let process = db.start(|engine| engine.register(ORDER, order)).await;
    let mut ended = Vec::new();
    for late in 0..24 {
        let deadline = Duration::from_millis(18) + Duration::from_micros(250) * late;
        let start = process.start(ORDER, &1).forward_deadline(deadline);
        ended.push(start.await.unwrap());
    }
    let mut rolled_back = 0;
    for mut order in ended {
        let result = order.result().await;
        match ends(&process, order.id()).await {
            RunState::Completed => assert_eq!(result.unwrap(), 1),
            state => {
                deadline_of(&failure_of(&process, order.id()).await);
                // On a busy machine the time may be over before there is anything to undo.
                assert!([RunState::RolledBack, RunState::Failed].contains(&state));
                rolled_back += usize::from(state == RunState::RolledBack);
            }
        }
    }
    let undone = trace.all().iter().filter(|line| *line == "undo a").count();
    assert_eq!(undone, rolled_back, "who rolled back undid the first, once");
}

async fn sc_42_an_operator_undoes_what_is_long_past_its_deadline(db: Db) {
    let trace = Trace::default();
    let order = {
        let trace = trace.clone();
        move |cx: Cx, of: u32| {
            let trace = trace.clone();
            async move {
                reserve(&cx, &trace, "order").await?;
                cx.child(STOCK, &of).await
            }
        }
    };
    let stock = {
        let trace = trace.clone();
        move |cx: Cx, of: u32| {
            let trace = trace.clone();
            async move {
                reserve(&cx, &trace, "stock").await?;
                Ok(of)
            }
        }
    };
    let db = db.with_manual_clock();
    let process = db.start(|engine| engine.register(ORDER, order).register(STOCK, stock));
    let process = process.await;
    let mut order = process.start(ORDER, &1).deadline(LONG).await.unwrap();
    assert_eq!(order.result().await.unwrap(), 1);
    db.advance(LONG * 2);
    process.undo(order.id()).await.unwrap();
    assert_eq!(ends(&process, order.id()).await, RunState::RolledBack);
    assert_eq!(trace.all(), ["undo stock", "undo order"]);
}
