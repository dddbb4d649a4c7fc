//! Subscribers that no process has: whoever waits for them can still end.

use std::time::Duration;

use roundel::{Cx, Failure, RunId, RunState, Topic, Tx, Workflow};

use super::trace::Trace;
use crate::support::{Db, Process, all, soon, until};

const ORDER: Workflow<u32, u32> = Workflow::named("order");
const CALLS: Workflow<u32, u32> = Workflow::named("calls");
const NOBODY: Workflow<u32, u32> = Workflow::named("nobody");
const PLACED: Topic<u32> = Topic::named("placed");

all![
    d2_who_waits_for_an_absent_subscriber_ends_at_its_deadline,
    d2_who_waits_for_an_absent_subscriber_ends_when_cancelled,
    d2_who_waits_for_a_child_that_nobody_runs_ends_when_cancelled,
    ro_32_a_run_that_nobody_has_begun_is_cancelled_at_once,
];

async fn start(db: &Db, trace: &Trace) -> Process {
    let trace = trace.clone();
    let order = move |cx: Cx, n: u32| {
        let trace = trace.clone();
        async move {
            let step = cx.step("reserve", |_: Tx| async { Ok::<_, Failure>(()) });
            step.undo(move |_: Tx, ()| {
                trace.add("undo".to_owned());
                async { Ok::<_, Failure>(()) }
            })
            .await?;
            cx.publish(PLACED, &n).await?;
            Ok(n)
        }
    };
    let calls = |cx: Cx, n: u32| async move { cx.child(NOBODY, &n).await };
    let set_up = db.start(|engine| engine.register(ORDER, order).register(CALLS, calls));
    let process = set_up.await;
    process.subscribe("placed", "absent").await.unwrap();
    process
}

async fn ended(process: &Process, run: RunId) -> RunState {
    until("it has ended", async || {
        process.run(run).await.unwrap().row.state.has_ended()
    })
    .await;
    process.run(run).await.unwrap().row.state
}

async fn below(process: &Process, run: RunId) -> RunState {
    let children = process.children(run, None, 10).await.unwrap().items;
    assert_eq!(children.len(), 1);
    children[0].row.state
}

async fn waits(process: &Process, run: RunId) {
    until("it waits for what it set off", async || {
        let children = process.children(run, None, 10).await.unwrap();
        children.items.len() == 1
    })
    .await;
}

async fn d2_who_waits_for_an_absent_subscriber_ends_at_its_deadline(db: Db) {
    let trace = Trace::default();
    let process = start(&db, &trace).await;
    let order = process.start(ORDER, &1);
    let run = order
        .forward_deadline(Duration::from_millis(500))
        .await
        .unwrap();
    assert_eq!(ended(&process, run.id()).await, RunState::RolledBack);
    assert_eq!(below(&process, run.id()).await, RunState::Cancelled);
    assert_eq!(trace.all(), ["undo"]);
}

async fn d2_who_waits_for_an_absent_subscriber_ends_when_cancelled(db: Db) {
    let trace = Trace::default();
    let process = start(&db, &trace).await;
    let run = process.start(ORDER, &1).await.unwrap();
    waits(&process, run.id()).await;
    process.cancel(&run).await.unwrap();
    assert_eq!(ended(&process, run.id()).await, RunState::Cancelled);
    assert_eq!(below(&process, run.id()).await, RunState::Cancelled);
    assert_eq!(trace.all(), ["undo"]);
}

async fn d2_who_waits_for_a_child_that_nobody_runs_ends_when_cancelled(db: Db) {
    let process = start(&db, &Trace::default()).await;
    let run = process.start(CALLS, &1).await.unwrap();
    waits(&process, run.id()).await;
    process.cancel(&run).await.unwrap();
    assert_eq!(ended(&process, run.id()).await, RunState::Cancelled);
    assert_eq!(below(&process, run.id()).await, RunState::Cancelled);
}

async fn ro_32_a_run_that_nobody_has_begun_is_cancelled_at_once(db: Db) {
    let process = start(&db, &Trace::default()).await;
    let mut run = process.start(NOBODY, &1).await.unwrap();
    process.cancel(&run).await.unwrap();
    let row = process.run(&run).await.unwrap().row;
    assert_eq!(row.state, RunState::Cancelled);
    let failure = soon("its end", run.result()).await.unwrap_err();
    assert!(failure.to_string().contains("cancelled"), "{failure}");
}
