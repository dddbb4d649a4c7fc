//! Windows: whoever starts in it joins; later ones are refused and told so. And what was pinned and
//! never comes.

use std::sync::Mutex;
use std::time::Duration;

use roundel::{Cx, Failure, Joined, Result, RunState, Topic, Workflow};

use crate::support::{Db, Process, all, until};

const ORDER: Workflow<u32, u32> = Workflow::named("order");
const STEPS: Workflow<u32, u32> = Workflow::named("steps");
const STOCK: Workflow<u32, u32> = Workflow::named("stock");
const MAIL: Workflow<u32, u32> = Workflow::named("mail");
const PLACED: Topic<u32> = Topic::named("placed").window(Duration::from_secs(60));
const PINNED: Topic<u32> = Topic::named("pinned");

all![
    sc_14_the_parent_waits_for_the_window_and_for_all_that_started_in_it,
    sc_14_a_window_closes_in_replay_as_it_does_live,
    sc_41_a_cancel_does_not_wait_for_a_window,
    sc_13_a_run_that_nobody_begins_can_be_completed_from_outside,
];

async fn plus(cx: Cx, of: u32) -> Result<u32> {
    cx.step("add", |_| async move { Ok::<_, Failure>(of + 1) })
        .await
}

async fn order(cx: Cx, of: u32) -> Result<u32> {
    let ended = cx.publish(PLACED, &of).await?;
    ended.iter().map(|end| end.output::<u32>()).sum()
}

async fn steps(cx: Cx, of: u32) -> Result<u32> {
    let placed = cx.step("place", |tx| async move {
        PLACED.publish(&tx, &of)?;
        Ok::<_, Failure>(0)
    });
    let _: u32 = placed.await?;
    cx.ended().iter().map(|end| end.output::<u32>()).sum()
}

async fn start(db: &Db, keep: usize) -> Process {
    let set_up = db.start(|engine| {
        let engine = engine.register(ORDER, order).register(STOCK, plus);
        let engine = engine.register(MAIL, plus).register(STEPS, steps);
        let engine = engine.subscribe(PLACED, STOCK);
        engine.keep_in_memory(keep, Duration::from_secs(3600))
    });
    set_up.await
}

async fn ended(process: &Process, workflow: &'static str, count: usize) {
    until("they have ended", async || {
        let runs = process.runs().of(workflow).unwrap().fetch().await.unwrap();
        let done = |run: &&roundel::RunView| run.row.state == RunState::Completed;
        runs.items.iter().filter(done).count() == count
    })
    .await;
}

async fn sc_14_the_parent_waits_for_the_window_and_for_all_that_started_in_it(db: Db) {
    let db = db.with_manual_clock();
    let process = start(&db, 100).await;
    for workflow in [ORDER, STEPS] {
        process.unsubscribe("placed", "mail").await.unwrap();
        let mut order = process.start(workflow, &1).await.unwrap();
        let child = Mutex::new(None);
        until("what it published is done", async || {
            let stock = process.runs().of("stock").unwrap().fetch().await.unwrap();
            let its = |run: &&roundel::RunView| run.row.root == order.id();
            let found = stock.items.iter().find(its).map(|run| run.row.clone());
            let done = found.filter(|row| row.state == RunState::Completed);
            *child.lock().unwrap() = done;
            child.lock().unwrap().is_some()
        })
        .await;
        let stock = child.into_inner().unwrap().unwrap();
        let publication = stock.publication.unwrap();
        db.advance(Duration::from_secs(59));
        assert!(!process.run(order.id()).await.unwrap().row.state.has_ended());
        // One who subscribes now joins, once.
        assert!(process.subscribe("placed", "mail").await.unwrap());
        let joined = process.join(publication, "mail").await.unwrap();
        assert!(matches!(joined, Joined::Already(_)), "{joined:?}");
        until("it has ended", async || {
            let mail = process.runs().of("mail").unwrap().fetch().await.unwrap();
            let newest = mail.items.first();
            newest.is_some_and(|run| {
                run.row.publication == Some(publication) && run.row.state == RunState::Completed
            })
        })
        .await;
        db.advance(Duration::from_secs(2));
        assert_eq!(order.result().await.unwrap(), 4);
        let late = process.join(publication, "order").await.unwrap();
        assert_eq!(late, Joined::Late);
    }
}

async fn sc_14_a_window_closes_in_replay_as_it_does_live(db: Db) {
    let db = db.with_manual_clock();
    let process = start(&db, 0).await;
    let mut runs = Vec::new();
    for workflow in [ORDER, STEPS] {
        runs.push(process.start(workflow, &1).await.unwrap());
    }
    ended(&process, "stock", 2).await;
    db.advance(Duration::from_secs(61));
    for mut run in runs {
        assert_eq!(run.result().await.unwrap(), 2);
    }
}

async fn sc_41_a_cancel_does_not_wait_for_a_window(db: Db) {
    let db = db.with_manual_clock();
    let process = start(&db, 100).await;
    let mut order = process.start(ORDER, &1).await.unwrap();
    ended(&process, "stock", 1).await;
    process.cancel(order.id()).await.unwrap();
    assert!(order.result().await.is_err());
    let state = process.run(order.id()).await.unwrap().row.state;
    assert_eq!(state, RunState::Cancelled);
    let stock = process.runs().of("stock").unwrap().fetch().await.unwrap();
    assert_eq!(stock.items[0].row.state, RunState::RolledBack);
    let publication = stock.items[0].row.publication.unwrap();
    let late = process.join(publication, "mail").await.unwrap();
    assert_eq!(late, Joined::Late);
}

async fn sc_13_a_run_that_nobody_begins_can_be_completed_from_outside(db: Db) {
    let order = |cx: Cx, of: u32| async move {
        let ended = cx.publish(PINNED, &of).await?;
        ended.iter().map(|end| end.output::<u32>()).sum()
    };
    let process = db.start(|engine| engine.register(ORDER, order)).await;
    // SC-17: it was declared before it was ever deployed.
    process.subscribe("pinned", "absent").await.unwrap();
    let mut order = process.start(ORDER, &1).await.unwrap();
    until("it is pinned", async || {
        !process
            .runs()
            .of("absent")
            .unwrap()
            .fetch()
            .await
            .unwrap()
            .items
            .is_empty()
    })
    .await;
    let absent = process.runs().of("absent").unwrap().fetch().await.unwrap();
    let absent = absent.items[0].row.id;
    assert!(
        process.complete(order.id(), &1).await.is_err(),
        "it has begun"
    );
    process.complete(absent, &40).await.unwrap();
    assert_eq!(order.result().await.unwrap(), 40);
    assert!(process.complete(absent, &41).await.is_err(), "once");
}
