//! Branches that run at the same time: what is undone, and in which order.

use std::time::Duration;

use roundel::future::{Either, join3, select};
use roundel::{Begun, Cx, Failure, Result, RunState, Workflow};

use super::ledger::{ends, state};
use super::trace::Trace;
use crate::support::{Db, all, until};

const ORDER: Workflow<u32, u32> = Workflow::named("order");

all![
    sc_35_concurrent_branches_are_undone_in_descending_order_of_completion,
    sc_34_an_effect_that_lost_a_select_is_undone,
    sc_34_an_effect_that_was_cancelled_while_it_ran_is_undone,
    inv9_a_child_that_lost_in_its_first_round_is_not_left_behind,
];

/// An effect that goes on when the gate has its name.
async fn pay(cx: &Cx, name: &'static str, (gate, trace): (&Trace, &Trace)) -> Result<u32> {
    let traced = trace.clone();
    cx.effect(name, |_| async move {
        trace.add(name);
        while !gate.all().iter().any(|open| open == name) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok::<_, Failure>(7)
    })
    .undo(move |begun: Begun<u32>| {
        let trace = traced.clone();
        async move {
            assert!(begun.key().len() > 36);
            trace.add(format!("undo {name} {:?}", begun.value()));
            Ok::<_, Failure>(())
        }
    })
    .await
}

async fn sc_35_concurrent_branches_are_undone_in_descending_order_of_completion(db: Db) {
    for keep in [0, 100] {
        let (trace, gate) = (Trace::default(), Trace::default());
        let order = {
            let (trace, gate) = (trace.clone(), gate.clone());
            move |cx: Cx, of: u32| {
                let (trace, gate) = (trace.clone(), gate.clone());
                async move {
                    let with = (&gate, &trace);
                    // Each opens the gate for the next when it is done.
                    let a = async { pay(&cx, "a", with).await.map(|_| trace.add("a done")) };
                    let b = async { pay(&cx, "b", with).await.map(|_| gate.add("a")) };
                    let c = async { pay(&cx, "c", with).await.map(|_| gate.add("b")) };
                    gate.add("c");
                    let (a, b, c) = join3(a, b, c).await;
                    a.and(b).and(c)?;
                    trace.clear();
                    cx.sleep(Duration::from_millis(1)).await;
                    Err::<u32, _>(Failure::business(format!("no {of}")))
                }
            }
        };
        let process = db.start(|engine| {
            let engine = engine.register(ORDER, order);
            engine.keep_in_memory(keep, Duration::from_secs(60))
        });
        let process = process.await;
        let mut run = process.start(ORDER, &1).await.unwrap();
        assert!(run.result().await.is_err());
        assert_eq!(state(&process, run.id()).await, RunState::RolledBack);
        let all: Vec<String> = trace.all();
        let undone: Vec<&str> = all.iter().map(String::as_str).collect();
        assert_eq!(
            undone,
            ["undo a Some(7)", "undo b Some(7)", "undo c Some(7)"]
        );
        process.shutdown().await;
    }
}

async fn sc_34_an_effect_that_lost_a_select_is_undone(db: Db) {
    for keep in [0, 100] {
        let (trace, gate) = (Trace::default(), Trace::default());
        gate.add("fast");
        let order = {
            let (trace, gate) = (trace.clone(), gate.clone());
            move |cx: Cx, of: u32| {
                let (trace, gate) = (trace.clone(), gate.clone());
                async move {
                    let with = (&gate, &trace);
                    let slow = Box::pin(pay(&cx, "slow", with));
                    let fast = Box::pin(pay(&cx, "fast", with));
                    match select(slow, fast).await {
                        Either::Left(_) => unreachable!("its gate is shut"),
                        Either::Right((paid, slow)) => {
                            drop(slow);
                            assert_eq!(paid?, 7);
                        }
                    }
                    cx.sleep(Duration::from_millis(1)).await;
                    trace.clear();
                    Err::<u32, _>(Failure::business(format!("no {of}")))
                }
            }
        };
        let process = db.start(|engine| {
            let engine = engine.register(ORDER, order);
            engine.keep_in_memory(keep, Duration::from_secs(60))
        });
        let process = process.await;
        let mut run = process.start(ORDER, &1).await.unwrap();
        assert!(run.result().await.is_err());
        assert_eq!(state(&process, run.id()).await, RunState::RolledBack);
        // The one that lost has only begun, and that was before the other was done.
        assert_eq!(trace.all(), ["undo fast Some(7)", "undo slow None"]);
        process.shutdown().await;
    }
}

async fn sc_34_an_effect_that_was_cancelled_while_it_ran_is_undone(db: Db) {
    let (trace, gate) = (Trace::default(), Trace::default());
    let order = {
        let (trace, gate) = (trace.clone(), gate.clone());
        move |cx: Cx, _: u32| {
            let (trace, gate) = (trace.clone(), gate.clone());
            async move { pay(&cx, "shut", (&gate, &trace)).await }
        }
    };
    let grace = Duration::from_millis(20);
    let process = db.start(|engine| engine.register(ORDER, order).grace(grace));
    let process = process.await;
    let run = process.start(ORDER, &1).await.unwrap().id();
    until("it runs", async || !trace.all().is_empty()).await;
    process.cancel(run).await.unwrap();
    assert_eq!(ends(&process, run).await, RunState::Cancelled);
    assert_eq!(trace.all(), ["shut", "undo shut None"]);
}

async fn inv9_a_child_that_lost_in_its_first_round_is_not_left_behind(db: Db) {
    const PARENT: Workflow<u32, u32> = Workflow::named("parent");
    let parent = |cx: Cx, of: u32| async move {
        match select(cx.child(ORDER, &of), cx.now()).await {
            Either::Left(_) => unreachable!("it sleeps"),
            Either::Right((now, _)) => now.map(|_| of),
        }
    };
    let order = |cx: Cx, of: u32| async move {
        cx.sleep(Duration::from_secs(3600)).await;
        Ok(of)
    };
    let process = db.start(|engine| engine.register(PARENT, parent).register(ORDER, order));
    let process = process.await;
    let run = process.start(PARENT, &1).await.unwrap().id();
    assert_eq!(ends(&process, run).await, RunState::Completed);
    let below = process.runs().of("order").unwrap().fetch().await.unwrap();
    let left = below.items.iter().filter(|run| !run.row.state.has_ended());
    assert_eq!(left.count(), 0);
}
