//! What becomes of a run that is late, as its workflow declares: parked, failed, or rolled back.

use std::time::Duration;

use roundel::{Cx, Deadline, Failure, Result, RunId, RunState, Signal, Tx, Workflow};

use super::ledger::{ends, state};
use super::trace::Trace;
use crate::rounds::sound::assert_sound;
use crate::support::{Db, Process, all, soon, until};

const STOCK: Workflow<u32, u32> = Workflow::named("stock");
const GO: Signal<u32> = Signal::named("go");
const LONG: Duration = Duration::from_secs(600);

all![
    co_24_a_run_that_is_parked_when_late_goes_on_when_an_operator_wants_it,
    co_24_a_run_that_was_parked_for_being_late_is_undone_or_cancelled,
    co_24_a_run_that_fails_when_late_undoes_nothing,
    co_24_a_run_that_rolls_back_when_late_really_undoes_its_steps,
];

const PARKED: Workflow<u32, u32> = Workflow::named("order").parked_when_late();
const FAILED: Workflow<u32, u32> = Workflow::named("order").failed_when_late();
const UNDONE: Workflow<u32, u32> = Workflow::named("order");

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

/// An order that waits, alone or, if it is even, for a child that does.
async fn started(db: &Db, order: Workflow<u32, u32>, trace: &Trace, keep: usize) -> Process {
    let (above, below) = (trace.clone(), trace.clone());
    let placed = move |cx: Cx, of: u32| {
        let trace = above.clone();
        async move {
            reserve(&cx, &trace, "order").await?;
            match of % 2 {
                0 => cx.child(STOCK, &of).await,
                _ => cx.wait(GO).await,
            }
        }
    };
    let stock = move |cx: Cx, _: u32| {
        let trace = below.clone();
        async move {
            reserve(&cx, &trace, "stock").await?;
            cx.wait(GO).await
        }
    };
    let start = db.start(|engine| {
        let engine = engine.register(order, placed).register(STOCK, stock);
        engine.keep_in_memory(keep, Duration::from_secs(60))
    });
    start.await
}

async fn waits(process: &Process, workflow: &'static str) -> RunId {
    let runs = process.runs().of(workflow).unwrap();
    let waiting = runs.in_state(RunState::Waiting);
    until("it waits", async || {
        !waiting.fetch().await.unwrap().items.is_empty()
    })
    .await;
    waiting.fetch().await.unwrap().items[0].row.id
}

async fn parked(process: &Process, run: RunId) -> Failure {
    until("it is parked", async || {
        state(process, run).await == RunState::Parked
    })
    .await;
    let row = process.run(run).await.unwrap().row;
    row.outcome.unwrap().into_result().unwrap_err()
}

async fn co_24_a_run_that_is_parked_when_late_goes_on_when_an_operator_wants_it(db: Db) {
    let db = db.with_manual_clock();
    for keep in [0, 100] {
        let trace = Trace::default();
        let process = started(&db, PARKED, &trace, keep).await;
        let start = process.start(PARKED, &1).forward_deadline(LONG);
        let mut order = start.await.unwrap();
        waits(&process, "order").await;
        db.advance(LONG * 2);
        let why = parked(&process, order.id()).await;
        assert_eq!(why.code, Deadline::CODE);
        assert_eq!(trace.all(), [""; 0], "nothing is undone");
        process.resume(order.id()).await.unwrap();
        waits(&process, "order").await;
        db.advance(LONG);
        let row = process.run(order.id()).await.unwrap().row;
        assert_eq!(row.deadlines.forward, None, "it may take its time");
        process.signal(order.id(), GO, &7).await.unwrap();
        assert_eq!(soon("it goes on", order.result()).await.unwrap(), 7);
        process.shutdown().await;
    }
    assert_sound(&db).await;
}

async fn co_24_a_run_that_was_parked_for_being_late_is_undone_or_cancelled(db: Db) {
    let db = db.with_manual_clock();
    let trace = Trace::default();
    let process = started(&db, PARKED, &trace, 0).await;
    for (undo, end) in [(true, RunState::RolledBack), (false, RunState::Cancelled)] {
        let start = process.start(PARKED, &1).forward_deadline(LONG);
        let order = start.await.unwrap().id();
        waits(&process, "order").await;
        db.advance(LONG * 2);
        parked(&process, order).await;
        match undo {
            true => drop(process.undo(order).await.unwrap()),
            false => drop(process.cancel_without_undo(order).await.unwrap()),
        }
        assert_eq!(ends(&process, order).await, end);
        assert_eq!(trace.all(), ["undo order"], "the first only");
    }
    assert_sound(&db).await;
}

async fn co_24_a_run_that_fails_when_late_undoes_nothing(db: Db) {
    let db = db.with_manual_clock();
    for keep in [0, 100] {
        let trace = Trace::default();
        let process = started(&db, FAILED, &trace, keep).await;
        let start = process.start(FAILED, &2).forward_deadline(LONG);
        let mut order = start.await.unwrap();
        let stock = waits(&process, "stock").await;
        db.advance(LONG * 2);
        let failure = soon("it fails", order.result()).await.unwrap_err();
        assert!(failure.to_string().contains("missed"), "{failure}");
        assert_eq!(ends(&process, order.id()).await, RunState::Failed);
        // What is below has the same deadline, and may have been quicker to say so.
        let below = ends(&process, stock).await;
        assert!([RunState::Cancelled, RunState::RolledBack].contains(&below));
        let undone = trace.all();
        assert!(!undone.contains(&"undo order".to_owned()), "{undone:?}");
        process.shutdown().await;
    }
    assert_sound(&db).await;
}

async fn co_24_a_run_that_rolls_back_when_late_really_undoes_its_steps(db: Db) {
    let db = db.with_manual_clock();
    let trace = Trace::default();
    let process = started(&db, UNDONE, &trace, 0).await;
    let start = process.start(UNDONE, &2).forward_deadline(LONG);
    let mut order = start.await.unwrap();
    waits(&process, "stock").await;
    db.advance(LONG * 2);
    soon("it fails", order.result()).await.unwrap_err();
    assert_eq!(ends(&process, order.id()).await, RunState::RolledBack);
    assert_eq!(trace.all(), ["undo stock", "undo order"]);
    assert_sound(&db).await;
}
