//! Rollback: newest first, what a call set off before the call itself, each undo once.

use std::time::Duration;

use roundel::{
    Begun, Cx, Failure, Remainder, Result, Retry, RunId, RunState, Signal, Topic, Tx, Undone,
    Workflow,
};

use super::ledger::{ends, reserve, state};
use super::trace::Trace;
use crate::support::{Db, all, until};

const ORDER: Workflow<u32, u32> = Workflow::named("order");
const STOCK: Workflow<u32, u32> = Workflow::named("stock");
const LABEL: Workflow<u32, u32> = Workflow::named("label");
const PLACED: Topic<u32> = Topic::named("placed");
const PACKED: Topic<u32> = Topic::named("packed");
const FAIL: Signal<u32> = Signal::named("fail");
const PARENT: Signal<RunId> = Signal::named("parent");

all![
    sc_21_a_failure_undoes_what_was_done_before_newest_first,
    sc_23_the_order_is_the_reverse_through_all_levels,
    sc_24_a_failing_undo_ends_as_rollback_failed_and_can_be_retried_skipped_or_accepted,
    sc_28_a_loop_is_undone_as_often_as_it_ran,
    sc_29_a_completed_tree_is_undone_on_request,
    sc_34_an_effect_that_began_is_undone_unless_it_did_not_happen,
    sc_40_a_cancelled_run_undoes_what_it_did,
    sc_42_an_undo_cannot_be_cancelled,
    d11_a_rollback_goes_on_after_a_crash,
    sc_22_a_scope_that_settles_while_the_run_fails_holds_nothing_up,
];

async fn sc_21_a_failure_undoes_what_was_done_before_newest_first(db: Db) {
    for keep in [0, 100] {
        let trace = Trace::default();
        let order = {
            let trace = trace.clone();
            move |cx: Cx, of: u32| {
                let trace = trace.clone();
                async move {
                    reserve(&cx, &trace, format!("a{of}")).await?;
                    reserve(&cx, &trace, format!("b{of}")).await?;
                    cx.sleep(Duration::from_millis(1)).await;
                    reserve(&cx, &trace, format!("c{of}")).await?;
                    cx.step("pay", |_| async {
                        Err::<u32, _>(Failure::business("no money"))
                    })
                    .await
                }
            }
        };
        let process = db.start(|engine| {
            let engine = engine.register(ORDER, order);
            engine.keep_in_memory(keep, Duration::from_secs(60))
        });
        let process = process.await;
        let mut order = process.start(ORDER, &1).await.unwrap();
        let failure = order.result().await.unwrap_err();
        assert!(failure.to_string().contains("no money"), "{failure}");
        assert_eq!(state(&process, order.id()).await, RunState::RolledBack);
        assert_eq!(trace.all(), ["undo c1", "undo b1", "undo a1"]);
        process.shutdown().await;
    }
}

/// A tree of three levels: order publishes to stock, which publishes to label.
fn tree(trace: &Trace) -> impl Fn(roundel::EngineBuilder) -> roundel::EngineBuilder + use<> {
    let trace = trace.clone();
    move |engine| {
        let (one, two, three) = (trace.clone(), trace.clone(), trace.clone());
        let order = move |cx: Cx, of: u32| {
            let trace = one.clone();
            async move {
                reserve(&cx, &trace, "order 1".into()).await?;
                cx.publish(PLACED, &of).await?;
                reserve(&cx, &trace, "order 2".into()).await?;
                match of {
                    0 => Err(Failure::business("no")),
                    of => Ok(of),
                }
            }
        };
        let stock = move |cx: Cx, of: u32| {
            let trace = two.clone();
            async move {
                reserve(&cx, &trace, "stock 1".into()).await?;
                cx.publish(PACKED, &of).await?;
                reserve(&cx, &trace, "stock 2".into()).await?;
                Ok(of)
            }
        };
        let label = move |cx: Cx, of: u32| {
            let trace = three.clone();
            async move {
                reserve(&cx, &trace, "label 1".into()).await?;
                reserve(&cx, &trace, "label 2".into()).await?;
                Ok(of)
            }
        };
        let engine = engine.register(ORDER, order).register(STOCK, stock);
        let engine = engine.register(LABEL, label).subscribe(PLACED, STOCK);
        engine.subscribe(PACKED, LABEL)
    }
}

const REVERSED: [&str; 6] = [
    "undo order 2",
    "undo stock 2",
    "undo label 2",
    "undo label 1",
    "undo stock 1",
    "undo order 1",
];

async fn sc_23_the_order_is_the_reverse_through_all_levels(db: Db) {
    for keep in [0, 100] {
        let trace = Trace::default();
        let set_up = tree(&trace);
        let process = db.start(|engine| {
            let engine = set_up(engine);
            engine.keep_in_memory(keep, Duration::from_secs(60))
        });
        let process = process.await;
        let mut order = process.start(ORDER, &0).await.unwrap();
        assert!(order.result().await.is_err());
        assert_eq!(trace.all(), REVERSED);
        let all = process.runs().fetch().await.unwrap();
        let states = all.items.iter().map(|run| run.row.state);
        assert!(
            states.clone().all(|state| state == RunState::RolledBack),
            "{states:?}"
        );
        process.shutdown().await;
    }
}

async fn sc_29_a_completed_tree_is_undone_on_request(db: Db) {
    let trace = Trace::default();
    let process = db.start(tree(&trace)).await;
    let mut order = process.start(ORDER, &1).await.unwrap();
    assert_eq!(order.result().await.unwrap(), 1);
    assert_eq!(trace.all(), Vec::<String>::new());
    let partial = false;
    assert_eq!(
        process.undo(order.id()).await.unwrap(),
        Undone::Begun { partial }
    );
    assert_eq!(ends(&process, order.id()).await, RunState::RolledBack);
    assert_eq!(trace.all(), REVERSED);
    let again = process.undo(order.id()).await.unwrap();
    assert_eq!(again, Undone::Already(RunState::RolledBack));
    // A subtree alone: the rest stays, and is later undone without it.
    trace.clear();
    let mut order = process.start(ORDER, &1).await.unwrap();
    order.result().await.unwrap();
    let label = process.runs().of("label").unwrap().fetch().await.unwrap();
    let label = label.items[0].row.id;
    let partial = true;
    assert_eq!(
        process.undo(label).await.unwrap(),
        Undone::Begun { partial }
    );
    assert_eq!(ends(&process, label).await, RunState::RolledBack);
    assert_eq!(trace.all(), REVERSED[2..4]);
    process.undo(order.id()).await.unwrap();
    assert_eq!(ends(&process, order.id()).await, RunState::RolledBack);
    let rest = [&REVERSED[2..4], &REVERSED[..2], &REVERSED[4..]].concat();
    assert_eq!(trace.all(), rest);
}

async fn sc_24_a_failing_undo_ends_as_rollback_failed_and_can_be_retried_skipped_or_accepted(
    db: Db,
) {
    let (trace, broken) = (Trace::default(), Trace::default());
    broken.add("yes");
    let order = {
        let (trace, broken) = (trace.clone(), broken.clone());
        move |cx: Cx, of: u32| {
            let (trace, broken) = (trace.clone(), broken.clone());
            async move {
                reserve(&cx, &trace, format!("first {of}")).await?;
                let undo = move |_: Tx, (): ()| {
                    let broken = !broken.all().is_empty();
                    async move {
                        match broken {
                            true => Err(Failure::business("it is stuck")),
                            false => Ok(()),
                        }
                    }
                };
                let stuck = cx.step("stick", |_| async { Ok::<_, Failure>(()) });
                stuck.undo(undo).await?;
                reserve(&cx, &trace, format!("last {of}")).await?;
                Err::<u32, _>(Failure::business("no"))
            }
        }
    };
    let parent = |cx: Cx, of: u32| async move { cx.child(ORDER, &of).await };
    const PARENT: Workflow<u32, u32> = Workflow::named("parent");
    let process = db.start(|engine| engine.register(ORDER, order).register(PARENT, parent));
    let process = process.await;
    let mut stuck = Vec::new();
    for of in 1..=3 {
        let mut run = process.start(ORDER, &of).await.unwrap();
        let failure = run.result().await.unwrap_err();
        assert!(failure.to_string().contains("it is stuck"), "{failure}");
        assert_eq!(state(&process, run.id()).await, RunState::RollbackFailed);
        // It says what remains, newest first.
        let row = process.run(run.id()).await.unwrap().row;
        let failure = row.outcome.unwrap().into_result().unwrap_err();
        let left = Remainder::told_by(&failure).unwrap();
        let calls = left.calls.iter().map(|of| (of.call, of.name.as_str()));
        assert_eq!(calls.collect::<Vec<_>>(), [(2, "stick"), (1, "reserve")]);
        assert_eq!((left.count, left.because.message.as_str()), (2, "no"));
        stuck.push(run.id());
    }
    assert_eq!(trace.all(), ["undo last 1", "undo last 2", "undo last 3"]);
    // The failure travels up.
    let mut parent = process.start(PARENT, &4).await.unwrap();
    let failure = parent.result().await.unwrap_err();
    assert!(failure.to_string().contains("it is stuck"), "{failure}");
    assert_eq!(state(&process, parent.id()).await, RunState::RollbackFailed);
    trace.clear();
    process.resume_skipping(stuck[0]).await.unwrap();
    assert_eq!(ends(&process, stuck[0]).await, RunState::RolledBack);
    process.resume(stuck[1]).await.unwrap();
    assert_eq!(ends(&process, stuck[1]).await, RunState::RollbackFailed);
    broken.clear();
    process.resume(stuck[1]).await.unwrap();
    assert_eq!(ends(&process, stuck[1]).await, RunState::RolledBack);
    assert_eq!(trace.all(), ["undo first 1", "undo first 2"]);
    process.accept(stuck[2]).await.unwrap();
    assert_eq!(state(&process, stuck[2]).await, RunState::RollbackFailed);
    assert!(
        process.accept(stuck[1]).await.is_err(),
        "it has been undone"
    );
}

async fn sc_28_a_loop_is_undone_as_often_as_it_ran(db: Db) {
    let trace = Trace::default();
    let order = {
        let trace = trace.clone();
        move |cx: Cx, of: u32| {
            let trace = trace.clone();
            async move {
                for round in 0..of {
                    reserve(&cx, &trace, format!("{round}")).await?;
                    cx.child(STOCK, &round).await?;
                }
                Err::<u32, _>(Failure::business("no"))
            }
        }
    };
    let stock = {
        let trace = trace.clone();
        move |cx: Cx, of: u32| {
            let trace = trace.clone();
            async move {
                reserve(&cx, &trace, format!("child {of}")).await?;
                Ok(of)
            }
        }
    };
    let process = db.start(|engine| engine.register(ORDER, order).register(STOCK, stock));
    let process = process.await;
    let mut order = process.start(ORDER, &3).await.unwrap();
    assert!(order.result().await.is_err());
    let expected: Vec<String> = (0..3)
        .rev()
        .flat_map(|round| [format!("undo child {round}"), format!("undo {round}")])
        .collect();
    assert_eq!(trace.all(), expected);
}

async fn sc_34_an_effect_that_began_is_undone_unless_it_did_not_happen(db: Db) {
    let trace = Trace::default();
    let order = {
        let trace = trace.clone();
        move |cx: Cx, of: u32| {
            let trace = trace.clone();
            async move {
                let charge = |name: &'static str, result: Result<u32>| {
                    let trace = trace.clone();
                    cx.effect(name, move |_| {
                        let result = result.clone();
                        async move { result }
                    })
                    .retry(Retry::none())
                    .undo(move |begun: Begun<u32>| {
                        let trace = trace.clone();
                        async move {
                            let ends = begun.key().ends_with(begun.attempt().key().as_str());
                            assert!(!ends, "the keys differ");
                            trace.add(format!("{name} {:?}", begun.value()));
                            Ok::<_, Failure>(())
                        }
                    })
                };
                charge("paid", Ok(of)).await?;
                let slow = Failure::transient("no answer");
                charge("unsure", Err(slow)).await.unwrap_err();
                let declined = Failure::business("declined").did_not_happen();
                charge("declined", Err(declined)).await
            }
        }
    };
    let process = db.start(|engine| engine.register(ORDER, order)).await;
    let mut order = process.start(ORDER, &7).await.unwrap();
    assert!(order.result().await.is_err());
    assert_eq!(state(&process, order.id()).await, RunState::RolledBack);
    assert_eq!(trace.all(), ["unsure None", "paid Some(7)"]);
}

async fn sc_40_a_cancelled_run_undoes_what_it_did(db: Db) {
    for keep in [0, 100] {
        let trace = Trace::default();
        let order = {
            let trace = trace.clone();
            move |cx: Cx, of: u32| {
                let trace = trace.clone();
                async move {
                    reserve(&cx, &trace, "order".into()).await?;
                    cx.child(STOCK, &of).await
                }
            }
        };
        let stock = {
            let trace = trace.clone();
            move |cx: Cx, of: u32| {
                let trace = trace.clone();
                async move {
                    reserve(&cx, &trace, "stock".into()).await?;
                    cx.sleep(Duration::from_secs(3600)).await;
                    Ok(of)
                }
            }
        };
        let process = db.start(|engine| {
            let engine = engine.register(ORDER, order).register(STOCK, stock);
            engine.keep_in_memory(keep, Duration::from_secs(60))
        });
        let process = process.await;
        let mut order = process.start(ORDER, &1).await.unwrap();
        until("the child sleeps", async || {
            let stock = process.runs().of("stock").unwrap().fetch().await.unwrap();
            let mut runs = stock.items.iter();
            runs.any(|run| run.row.state == RunState::Waiting)
        })
        .await;
        process.cancel(order.id()).await.unwrap();
        assert!(order.result().await.is_err());
        assert_eq!(state(&process, order.id()).await, RunState::Cancelled);
        assert_eq!(trace.all(), ["undo stock", "undo order"]);
        process.shutdown().await;
    }
}

async fn sc_42_an_undo_cannot_be_cancelled(db: Db) {
    let (trace, gate) = (Trace::default(), Trace::default());
    let order = {
        let (trace, gate) = (trace.clone(), gate.clone());
        move |cx: Cx, of: u32| {
            let (trace, gate) = (trace.clone(), gate.clone());
            async move {
                reserve(&cx, &trace, "order".into()).await?;
                let undo = move |_: Begun<u32>| {
                    let gate = gate.clone();
                    async move {
                        while gate.all().is_empty() {
                            tokio::time::sleep(Duration::from_millis(1)).await;
                        }
                        Ok::<_, Failure>(())
                    }
                };
                let paid = cx.effect("pay", |_| async move { Ok::<_, Failure>(of) });
                paid.undo(undo).await?;
                Err::<u32, _>(Failure::business("no"))
            }
        }
    };
    let process = db.start(|engine| engine.register(ORDER, order)).await;
    let mut order = process.start(ORDER, &1).await.unwrap();
    until("it rolls back", async || {
        state(&process, order.id()).await == RunState::RollingBack
    })
    .await;
    let answer = process.cancel(order.id()).await.unwrap();
    assert_eq!(answer, roundel::Cancelled::RollingBack);
    gate.add("open");
    assert!(order.result().await.is_err());
    assert_eq!(state(&process, order.id()).await, RunState::RolledBack);
    assert_eq!(trace.all(), ["undo order"]);
}

async fn d11_a_rollback_goes_on_after_a_crash(db: Db) {
    let trace = Trace::default();
    let (gate, set_up) = (Trace::default(), tree(&trace));
    let stuck = {
        let gate = gate.clone();
        move |cx: Cx, of: u32| {
            let gate = gate.clone();
            async move {
                cx.child(ORDER, &1).await?;
                let undo = move |_: Begun<u32>| {
                    let gate = gate.clone();
                    async move {
                        while gate.all().is_empty() {
                            tokio::time::sleep(Duration::from_millis(1)).await;
                        }
                        Ok::<_, Failure>(())
                    }
                };
                let paid = cx.effect("pay", |_| async move { Ok::<_, Failure>(of) });
                paid.undo(undo).await?;
                Err::<u32, _>(Failure::business("no"))
            }
        }
    };
    const TOP: Workflow<u32, u32> = Workflow::named("top");
    let lease = Duration::from_millis(300);
    let start = |stuck: &_| {
        let stuck = Clone::clone(stuck);
        db.start(|engine| set_up(engine).register(TOP, stuck).lease(lease))
    };
    let first = start(&stuck).await;
    let top = first.start(TOP, &1).await.unwrap().id();
    until("it rolls back", async || {
        state(&first, top).await == RunState::RollingBack
    })
    .await;
    first.crash();
    gate.add("open");
    let second = start(&stuck).await;
    assert_eq!(ends(&second, top).await, RunState::RolledBack);
    assert_eq!(trace.all(), REVERSED);
}

/// One branch publishes, the other fails as soon as what was published has ended: its end is told
/// and not read when the function is gone.
async fn sc_22_a_scope_that_settles_while_the_run_fails_holds_nothing_up(db: Db) {
    let trace = Trace::default();
    let order = {
        let trace = trace.clone();
        move |cx: Cx, of: u32| {
            let trace = trace.clone();
            async move {
                reserve(&cx, &trace, format!("order {of}")).await?;
                let published = cx.publish(PLACED, &of);
                let fails = async {
                    cx.wait(FAIL).await?;
                    Err::<u32, _>(Failure::business("no"))
                };
                roundel::future::try_join(published, fails).await?;
                Ok(of)
            }
        }
    };
    let stock = {
        let trace = trace.clone();
        move |cx: Cx, of: u32| {
            let trace = trace.clone();
            async move {
                reserve(&cx, &trace, format!("stock {of}")).await?;
                let parent: RunId = cx.wait(PARENT).await?;
                cx.signal(parent, FAIL, &0).await?;
                Ok(of)
            }
        }
    };
    for (of, keep) in [(1, 0), (2, 100)] {
        trace.clear();
        let (order, stock) = (order.clone(), stock.clone());
        let process = db.start(|engine| {
            let engine = engine.register(ORDER, order).register(STOCK, stock);
            let engine = engine.subscribe(PLACED, STOCK);
            engine.keep_in_memory(keep, Duration::from_secs(60))
        });
        let process = process.await;
        let mut order = process.start(ORDER, &of).await.unwrap();
        until("it waits", async || {
            let stock = process.runs().of("stock").unwrap().fetch().await.unwrap();
            let newest = stock.items.first().map(|run| run.row.clone());
            let waits = newest.filter(|row| row.state == RunState::Waiting);
            match waits {
                Some(row) => process.signal(row.id, PARENT, &order.id()).await.is_ok(),
                None => false,
            }
        })
        .await;
        assert!(order.result().await.is_err());
        assert_eq!(state(&process, order.id()).await, RunState::RolledBack);
        let expected = [format!("undo stock {of}"), format!("undo order {of}")];
        assert_eq!(trace.all(), expected);
        process.shutdown().await;
    }
}
