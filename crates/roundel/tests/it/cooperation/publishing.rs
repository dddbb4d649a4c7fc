//! Publishing: one run for each workflow that subscribes, waited for with all that it sets off.

use std::sync::Mutex;
use std::time::Duration;

use roundel::{Cx, Failure, Result, RunId, RunState, Signal, Topic, Workflow, child_failures};

use roundel_core::Op;
use roundel_store::Ask;

use super::trace::Trace;
use crate::support::{Db, Fault, Process, all, until};

const ORDER: Workflow<u32, u32> = Workflow::named("order");
const STOCK: Workflow<u32, u32> = Workflow::named("stock");
const MAIL: Workflow<u32, u32> = Workflow::named("mail");
const LABEL: Workflow<u32, u32> = Workflow::named("label");
const PLACED: Topic<u32> = Topic::named("placed");
const PACKED: Topic<u32> = Topic::named("packed");
const GO: Signal<u32> = Signal::named("go");

all![
    sc_01_each_subscribed_workflow_starts_one_run_per_publication,
    sc_10_a_parent_goes_on_when_all_below_have_ended,
    sc_03_what_a_step_publishes_is_waited_for,
    sc_04_a_lost_notification_costs_time_only,
    sc_11_a_step_that_set_nothing_off_goes_on_at_once_on_the_same_worker,
    sc_01_a_process_works_on_nothing_before_it_has_subscribed,
    sc_12_a_topic_without_subscribers_lets_the_step_go_on,
    sc_15_a_later_subscription_joins_nothing,
    sc_22_a_failure_is_seen_when_all_siblings_have_ended,
    sc_27_a_handled_failure_is_consumed,
    sc_62_the_outputs_of_many_children_come_in_order,
    sc_41_a_cancel_reaches_what_was_published,
];

/// The run of this workflow that waits for something, once there is one.
async fn waiting(process: &Process, workflow: &'static str) -> RunId {
    let found = Mutex::new(None);
    until("a run waits", async || {
        let runs = process.runs().of(workflow).unwrap().fetch().await.unwrap();
        let mut runs = runs.items.iter().map(|run| &run.row);
        let waits = runs.find(|row| row.state == RunState::Waiting);
        *found.lock().unwrap() = waits.map(|row| row.id);
        waits.is_some()
    })
    .await;
    found.into_inner().unwrap().unwrap()
}

async fn plus(cx: Cx, of: u32) -> Result<u32> {
    cx.step("add", |_| async move { Ok::<_, Failure>(of + 1) })
        .await
}

async fn sc_01_each_subscribed_workflow_starts_one_run_per_publication(db: Db) {
    let order = |cx: Cx, of: u32| async move {
        let ended = cx.publish(PLACED, &of).await?;
        assert_eq!(cx.ended(), ended);
        let workflows: Vec<&str> = ended.iter().map(|end| end.workflow()).collect();
        assert_eq!(workflows, ["mail", "stock"]);
        ended.iter().map(|end| end.output::<u32>()).sum()
    };
    let process = db.start(|engine| {
        let engine = engine.register(ORDER, order).register(STOCK, plus);
        let engine = engine.register(MAIL, plus).subscribe(PLACED, STOCK);
        engine.subscribe(PLACED, MAIL)
    });
    let process = process.await;
    assert_eq!(
        process
            .start(ORDER, &7)
            .await
            .unwrap()
            .result()
            .await
            .unwrap(),
        16
    );
    // From outside too, where nobody waits.
    let published = process.publish(PLACED, &3).await.unwrap();
    assert_eq!((published.new, published.heard), (true, 2));
    until("they are there", async || {
        let stats = process.stats().await.unwrap();
        let done = |name: &str| {
            let mut all = stats.runs.iter();
            all.any(|run| run.0.as_str() == name && run.2 == RunState::Completed && run.3 == 2)
        };
        done("stock") && done("mail")
    })
    .await;
}

async fn sc_10_a_parent_goes_on_when_all_below_have_ended(db: Db) {
    let trace = Trace::default();
    let order = {
        let trace = trace.clone();
        move |cx: Cx, of: u32| {
            let trace = trace.clone();
            async move {
                cx.publish(PLACED, &of).await?;
                cx.effect("ship", |_| async {
                    trace.add("ship");
                    Ok::<_, Failure>(())
                })
                .await?;
                Ok(of)
            }
        }
    };
    let stock = |cx: Cx, of: u32| async move {
        cx.publish(PACKED, &of).await?;
        Ok(of)
    };
    let label = {
        let trace = trace.clone();
        move |cx: Cx, of: u32| {
            let trace = trace.clone();
            async move {
                cx.wait(GO).await?;
                trace.add("label");
                Ok(of)
            }
        }
    };
    let process = db.start(|engine| {
        let engine = engine.register(ORDER, order).register(STOCK, stock);
        let engine = engine.register(LABEL, label).subscribe(PLACED, STOCK);
        engine.subscribe(PACKED, LABEL)
    });
    let process = process.await;
    let mut order = process.start(ORDER, &1).await.unwrap();
    let label = waiting(&process, "label").await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(
        trace.all(),
        Vec::<String>::new(),
        "a grandchild delays the root"
    );
    process.signal(label, GO, &1).await.unwrap();
    assert_eq!(order.result().await.unwrap(), 1);
    assert_eq!(trace.all(), ["label", "ship"]);
}

async fn sc_03_what_a_step_publishes_is_waited_for(db: Db) {
    let order = |cx: Cx, of: u32| async move {
        let stepped = cx.step("place", |tx| async move {
            PLACED.publish(&tx, &of)?;
            PLACED.publish(&tx, &(of + 10))?;
            Ok::<_, Failure>(100)
        });
        let value: u32 = stepped.await?;
        let outputs: Result<Vec<u32>> = cx.ended().iter().map(|end| end.output()).collect();
        Ok(value + outputs?.iter().sum::<u32>())
    };
    let failing = |cx: Cx, of: u32| async move {
        let failed = cx.step("place", |tx| async move {
            PLACED.publish(&tx, &of)?;
            Err::<u32, _>(Failure::business("no"))
        });
        failed.await
    };
    const FAILING: Workflow<u32, u32> = Workflow::named("failing");
    let process = db.start(|engine| {
        let engine = engine.register(ORDER, order).register(STOCK, plus);
        let engine = engine.register(FAILING, failing);
        engine
            .subscribe(PLACED, STOCK)
            .keep_in_memory(0, Duration::ZERO)
    });
    let process = process.await;
    let sum = process.start(ORDER, &1).await.unwrap().result().await;
    assert_eq!(sum.unwrap(), 100 + 2 + 12);
    // SC-20: what a step that fails published does not exist.
    let mut failing = process.start(FAILING, &1).await.unwrap();
    assert!(failing.result().await.is_err());
    let stock = process.runs().of("stock").unwrap().fetch().await.unwrap();
    assert_eq!(stock.items.len(), 2);
    let state = process.run(failing.id()).await.unwrap().row.state;
    assert_eq!(state, RunState::Failed);
}

async fn sc_04_a_lost_notification_costs_time_only(db: Db) {
    let db = db.with_manual_clock();
    let order = |cx: Cx, of: u32| async move {
        let ended = cx.publish(PLACED, &of).await?;
        ended.iter().map(|end| end.output::<u32>()).sum()
    };
    // However slow this machine is, no lease ends while time flies.
    let works = db.start(|engine| {
        let engine = engine.lease(roundel::limits::LEASE).register(ORDER, order);
        let engine = engine.register(STOCK, plus).subscribe(PLACED, STOCK);
        engine.register(MAIL, plus).subscribe(PLACED, MAIL)
    });
    let works = works.await;
    works.store.lose_hints();
    let client = db.start(|engine| engine).await;
    client.store.lose_hints();
    let mut run = client.start(ORDER, &7).await.unwrap();
    let ended = tokio::spawn(async move { run.result().await });
    until("it has ended", || {
        db.advance(Duration::from_secs(1));
        std::future::ready(ended.is_finished())
    })
    .await;
    assert_eq!(ended.await.unwrap().unwrap(), 16);
    assert_eq!(db.dump().await.runs.len(), 3);
}

async fn sc_01_a_process_works_on_nothing_before_it_has_subscribed(db: Db) {
    let client = db.start(|engine| engine).await;
    let mut run = client.start(ORDER, &7).await.unwrap();
    let order = |cx: Cx, of: u32| async move {
        let ended = cx.publish(PLACED, &of).await?;
        ended.iter().map(|end| end.output::<u32>()).sum()
    };
    let store = db.open();
    let subscribes = |ask: &Ask| matches!(ask, Ask::Op(Op::Subscribe(_)));
    store.once(Fault::Hold, subscribes);
    let works = db.start_over(store.clone(), |engine| {
        let engine = engine.register(ORDER, order).register(STOCK, plus);
        let engine = engine.register(MAIL, plus).subscribe(PLACED, STOCK);
        engine.subscribe(PLACED, MAIL)
    });
    let release = async {
        until("it subscribes", async || store.held() == 1).await;
        // Time enough to do what it must not.
        tokio::time::sleep(Duration::from_millis(200)).await;
        store.release();
    };
    let (works, ()) = tokio::join!(works, release);
    assert_eq!(run.result().await.unwrap(), 16, "both have heard it");
    works.shutdown().await;
}

async fn sc_11_a_step_that_set_nothing_off_goes_on_at_once_on_the_same_worker(db: Db) {
    let order = |cx: Cx, of: u32| async move {
        let mut sum = of;
        for _ in 0..5 {
            sum = cx
                .step("add", move |_| async move { Ok::<_, Failure>(sum + 1) })
                .await?;
        }
        Ok(sum)
    };
    let one = db.start(|engine| engine.register(ORDER, order)).await;
    let two = db.start(|engine| engine.register(ORDER, order)).await;
    let mut run = one.start(ORDER, &1).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 6);
    let dump = db.dump().await;
    assert_eq!(dump.latches, [], "nothing was set off, nothing is counted");
    // Nobody else ever had it, and it was never begun anew from its journal.
    assert_eq!((one.metrics().replays, two.metrics().rounds), (0, 0));
}

async fn sc_12_a_topic_without_subscribers_lets_the_step_go_on(db: Db) {
    let order = |cx: Cx, of: u32| async move { Ok(cx.publish(PLACED, &of).await?.len() as u32) };
    let process = db.start(|engine| engine.register(ORDER, order)).await;
    assert_eq!(
        process
            .start(ORDER, &1)
            .await
            .unwrap()
            .result()
            .await
            .unwrap(),
        0
    );
    assert_eq!(process.publish(PLACED, &1).await.unwrap().heard, 0);
}

async fn sc_15_a_later_subscription_joins_nothing(db: Db) {
    let order = |cx: Cx, of: u32| async move { Ok(cx.publish(PLACED, &of).await?.len() as u32) };
    let waits = |cx: Cx, _: u32| async move { cx.wait(GO).await };
    let process = db.start(|engine| {
        let engine = engine.register(ORDER, order).register(STOCK, waits);
        engine.register(MAIL, plus).subscribe(PLACED, STOCK)
    });
    let process = process.await;
    let mut order = process.start(ORDER, &1).await.unwrap();
    let stock = waiting(&process, "stock").await;
    assert!(process.subscribe("placed", "mail").await.unwrap());
    assert!(!process.subscribe("placed", "mail").await.unwrap());
    // SC-16: and ending one changes nothing for what is under way.
    assert!(process.unsubscribe("placed", "stock").await.unwrap());
    process.signal(stock, GO, &1).await.unwrap();
    assert_eq!(order.result().await.unwrap(), 1);
    assert_eq!(
        process
            .start(ORDER, &1)
            .await
            .unwrap()
            .result()
            .await
            .unwrap(),
        1
    );
    let mail = process.runs().of("mail").unwrap().fetch().await.unwrap();
    assert_eq!(mail.items.len(), 1);
}

async fn sc_22_a_failure_is_seen_when_all_siblings_have_ended(db: Db) {
    let order = |cx: Cx, of: u32| async move {
        match cx.publish(PLACED, &of).await {
            Ok(_) => Ok(0),
            Err(failure) => {
                let failed = child_failures(&failure);
                assert_eq!(failed.len(), 1);
                assert_eq!(failed[0].workflow(), "mail");
                assert_eq!(failed[0].failure().unwrap().message, "no such address");
                Err(failure)
            }
        }
    };
    let fails = |_: Cx, _: u32| async move { Err::<u32, _>(Failure::business("no such address")) };
    let waits = |cx: Cx, _: u32| async move { cx.wait(GO).await };
    let process = db.start(|engine| {
        let engine = engine.register(ORDER, order).register(STOCK, waits);
        let engine = engine.register(MAIL, fails).subscribe(PLACED, STOCK);
        engine.subscribe(PLACED, MAIL)
    });
    let process = process.await;
    let mut order = process.start(ORDER, &1).await.unwrap();
    let stock = waiting(&process, "stock").await;
    until("the other has failed", async || {
        let mail = process.runs().of("mail").unwrap().fetch().await.unwrap();
        mail.items
            .iter()
            .any(|run| run.row.state == RunState::Failed)
    })
    .await;
    tokio::time::sleep(Duration::from_millis(30)).await;
    let state = process.run(order.id()).await.unwrap().row.state;
    assert!(!state.has_ended(), "{state:?}");
    process.signal(stock, GO, &1).await.unwrap();
    let failure = order.result().await.unwrap_err();
    assert!(failure.to_string().contains("1 of 2 runs"), "{failure}");
    // SC-21: the sibling had completed, and is undone.
    let stock = process.run(stock).await.unwrap().row.state;
    assert_eq!(stock, RunState::RolledBack);
}

async fn sc_27_a_handled_failure_is_consumed(db: Db) {
    let order = |cx: Cx, of: u32| async move {
        let failed = cx.publish(PLACED, &of).await.is_err();
        // SC-26: what is published while handling is waited for too.
        cx.publish(PACKED, &of).await?;
        cx.sleep(Duration::from_millis(1)).await;
        Ok(u32::from(failed))
    };
    let fails = |_: Cx, _: u32| async move { Err::<u32, _>(Failure::business("no")) };
    for keep in [0, 100] {
        let process = db.start(|engine| {
            let engine = engine.register(ORDER, order).register(MAIL, fails);
            let engine = engine.register(LABEL, plus).subscribe(PLACED, MAIL);
            let engine = engine.subscribe(PACKED, LABEL);
            engine.keep_in_memory(keep, Duration::from_secs(60))
        });
        let process = process.await;
        let mut order = process.start(ORDER, &1).await.unwrap();
        assert_eq!(order.result().await.unwrap(), 1);
        let state = process.run(order.id()).await.unwrap().row.state;
        assert_eq!(state, RunState::Completed);
        process.shutdown().await;
    }
}

async fn sc_62_the_outputs_of_many_children_come_in_order(db: Db) {
    let order = |cx: Cx, of: u32| async move {
        let inputs: Vec<u32> = (0..of).collect();
        let outputs = cx.children(STOCK, &inputs).await?;
        assert!(
            outputs
                .iter()
                .zip(&inputs)
                .all(|(out, input)| *out == input + 1)
        );
        Ok(outputs.len() as u32)
    };
    let process = db.start(|engine| engine.register(ORDER, order).register(STOCK, plus));
    let process = process.await;
    for many in [0, 1, 33, 300] {
        let mut order = process.start(ORDER, &many).await.unwrap();
        assert_eq!(order.result().await.unwrap(), many);
    }
}

async fn sc_41_a_cancel_reaches_what_was_published(db: Db) {
    let order = |cx: Cx, of: u32| async move {
        cx.publish(PLACED, &of).await?;
        Ok(of)
    };
    let waits = |cx: Cx, _: u32| async move { cx.wait(GO).await };
    let process = db.start(|engine| {
        let engine = engine.register(ORDER, order).register(STOCK, waits);
        engine.subscribe(PLACED, STOCK)
    });
    let process = process.await;
    let mut order = process.start(ORDER, &1).await.unwrap();
    waiting(&process, "stock").await;
    process.cancel(order.id()).await.unwrap();
    assert!(order.result().await.is_err());
    let stock = process.runs().of("stock").unwrap().fetch().await.unwrap();
    assert_eq!(stock.items[0].row.state, RunState::Cancelled);
}
