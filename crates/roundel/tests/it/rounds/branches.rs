//! `select` and `join`: the order of the journal decides, live as in replay; what loses is let go
//! and consumes nothing.

use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt};
use roundel::future::{Either, join, join_all, select, select_all};
use roundel::{Cx, Entry, Failure, Result, RunState, Sent, Signal, Workflow};

use super::sound::assert_sound;
use crate::support::{Db, Process, all, soon, until};

const RACE: Workflow<(), String> = Workflow::named("race");
const MANY: Workflow<u64, u64> = Workflow::named("many");
const IDLE: Workflow<(), u32> = Workflow::named("idle");
const RED: Signal<u32> = Signal::named("red");
const BLUE: Signal<u32> = Signal::named("blue").offerable();

all![
    ro_23_in_one_batch_the_order_of_the_journal_decides,
    ro_23_a_child_that_lost_is_cancelled_and_replay_does_not_wait_for_it,
    ro_23_an_effect_that_lost_is_dropped_and_its_result_with_it,
    ro_23_a_wait_that_lost_at_once_takes_no_signal,
    ro_23_a_wait_of_no_time_still_takes_what_is_there,
    ro_23_nested_selects_and_joins,
    ro_23_two_thousand_branches_join,
    ro_23_two_thousand_branches_are_raced,
    ro_23_branches_of_steps_and_effects_do_not_starve_each_other,
    ro_23_a_step_that_loses_inside_its_own_transaction_leaves_nothing,
];

/// An engine that keeps nothing in memory, or one that keeps everything.
async fn start<I, O, F, Fut>(db: &Db, keep: usize, workflow: Workflow<I, O>, run: F) -> Process
where
    I: serde::de::DeserializeOwned + Send + 'static,
    O: serde::Serialize + Send + 'static,
    F: Fn(Cx, I) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<O>> + Send + 'static,
{
    let set_up = db.start(|engine| {
        let engine = engine.register(workflow, run).register(IDLE, idle);
        engine.keep_in_memory(keep, Duration::from_secs(60))
    });
    set_up.await
}

async fn idle(cx: Cx, (): ()) -> Result<u32> {
    cx.wait(RED).await
}

async fn ro_23_in_one_batch_the_order_of_the_journal_decides(db: Db) {
    let race = |cx: Cx, (): ()| async move {
        let mut order = String::new();
        let mut left = FuturesUnordered::new();
        for (signal, name) in [(RED, "r"), (BLUE, "b"), (RED, "R"), (BLUE, "B")] {
            let wait = cx.wait(signal);
            left.push(async move { wait.await.map(|value| format!("{name}{value} ")) });
        }
        while let Some(won) = left.next().await {
            order += &won?;
            cx.now().await?;
        }
        // Everything is replayed after this.
        cx.sleep(Duration::from_millis(1)).await;
        Ok(order)
    };
    for keep in [0, 10] {
        let process = start(&db, keep, RACE, race).await;
        let mut run = process.start(RACE, &()).await.unwrap();
        let ops = vec![
            process.signal(&run, BLUE, &1).op().unwrap(),
            process.signal(&run, RED, &2).op().unwrap(),
            process.signal(&run, RED, &3).op().unwrap(),
            process.signal(&run, BLUE, &4).op().unwrap(),
        ];
        for reply in process.at_once(ops).await {
            reply.unwrap();
        }
        let order = soon("the order", run.result()).await.unwrap();
        assert_eq!(order, "b1 r2 R3 B4 ", "keep {keep}");
        process.shutdown().await;
    }
    assert_sound(&db).await;
}

async fn ro_23_a_child_that_lost_is_cancelled_and_replay_does_not_wait_for_it(db: Db) {
    let race = |cx: Cx, (): ()| async move {
        let won = match select(cx.child(IDLE, &()), cx.wait(BLUE)).await {
            Either::Left(_) => "child",
            Either::Right(_) => "signal",
        };
        cx.wait(RED).await?;
        Ok(won.to_owned())
    };
    for keep in [0, 10] {
        let process = start(&db, keep, RACE, race).await;
        let mut run = process.start(RACE, &()).await.unwrap();
        process.signal(&run, BLUE, &1).await.unwrap();
        until("the child ends", || async {
            let children = process.children(&run, None, 10).await.unwrap().items;
            children.len() == 1 && children[0].row.state == RunState::Cancelled
        })
        .await;
        // Its end has been taken up, and the run is in memory or not.
        until("it waits", || async {
            let row = process.run(&run).await.unwrap().row;
            row.state == RunState::Waiting && row.mail == 0
        })
        .await;
        process.signal(&run, RED, &1).await.unwrap();
        assert_eq!(soon("the end", run.result()).await.unwrap(), "signal");
        process.shutdown().await;
    }
    assert_sound(&db).await;
}

async fn ro_23_an_effect_that_lost_is_dropped_and_its_result_with_it(db: Db) {
    struct Dropped(Arc<AtomicU32>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let (begun, dropped) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (begins, drops) = (begun.clone(), dropped.clone());
    let race = move |cx: Cx, (): ()| {
        let (begins, drops) = (begins.clone(), drops.clone());
        async move {
            let slow = cx.effect("slow", |_| {
                let held = Dropped(drops.clone());
                begins.fetch_add(1, Ordering::Relaxed);
                async move {
                    let _held = held;
                    pending::<Result<u32>>().await
                }
            });
            let won = match select(pin!(slow), cx.wait(BLUE)).await {
                Either::Left(_) => "effect",
                Either::Right(_) => "signal",
            };
            cx.sleep(Duration::from_millis(1)).await;
            Ok(won.to_owned())
        }
    };
    let process = start(&db, 0, RACE, race).await;
    let mut run = process.start(RACE, &()).await.unwrap();
    until("it runs", || async { begun.load(Ordering::Relaxed) == 1 }).await;
    process.signal(&run, BLUE, &1).await.unwrap();
    assert_eq!(soon("the end", run.result()).await.unwrap(), "signal");
    assert_eq!(dropped.load(Ordering::Relaxed), 1);
    assert_eq!(begun.load(Ordering::Relaxed), 1, "replay did not call it");
    let journal = process.journal(&run).await.unwrap();
    let ended = |entry: &Entry| matches!(entry, Entry::Done { call: 1, .. });
    assert!(!journal.iter().any(ended), "{journal:?}");
    assert_sound(&db).await;
}

async fn ro_23_a_wait_that_lost_at_once_takes_no_signal(db: Db) {
    let race = |cx: Cx, (): ()| async move {
        for signal in [RED, BLUE] {
            let _ = select(cx.wait(signal), cx.now()).await;
        }
        cx.sleep(Duration::from_millis(150)).await;
        let (red, blue) = join(cx.wait(RED), cx.wait(BLUE)).await;
        Ok(format!("{} {}", red?, blue?))
    };
    let process = start(&db, 10, RACE, race).await;
    let mut run = process.start(RACE, &()).await.unwrap();
    let red = process.signal(&run, RED, &1).await.unwrap();
    let blue = process.offer(BLUE, &2).await.unwrap();
    assert_eq!((red, blue), (Sent::Queued, Sent::Queued), "nobody waits");
    let rounds = process.metrics().rounds;
    assert_eq!(soon("both", run.result()).await.unwrap(), "1 2");
    let more = process.metrics().rounds - rounds;
    assert!(more < 10, "{more} rounds: it commits in circles");
    assert_sound(&db).await;
}

async fn ro_23_a_wait_of_no_time_still_takes_what_is_there(db: Db) {
    let race = |cx: Cx, (): ()| async move {
        cx.wait(BLUE).await?;
        let there = cx.wait(RED).within(Duration::ZERO).await?;
        let none = cx.wait(RED).within(Duration::ZERO).await;
        Ok(format!("{there} {}", none.unwrap_err().code))
    };
    let process = start(&db, 10, RACE, race).await;
    let mut run = process.start(RACE, &()).await.unwrap();
    process.signal(&run, RED, &1).await.unwrap();
    process.signal(&run, BLUE, &2).await.unwrap();
    assert_eq!(soon("both", run.result()).await.unwrap(), "1 timed_out");
    assert_sound(&db).await;
}

async fn ro_23_nested_selects_and_joins(db: Db) {
    let race = |cx: Cx, (): ()| async move {
        let effect = |value: u32| {
            cx.effect("quick", move |_| async move {
                tokio::task::yield_now().await;
                Ok::<_, Failure>(value)
            })
        };
        let inner = async {
            let lost = select(cx.wait(RED), cx.sleep(Duration::from_secs(3600)));
            match select(lost, pin!(effect(1))).await {
                Either::Left(_) => 0,
                Either::Right((value, _)) => value.unwrap_or(0),
            }
        };
        let outer = join(inner, async {
            let (one, two) = join(effect(2), effect(3)).await;
            one.unwrap_or(0) + two.unwrap_or(0)
        });
        let never = join(cx.wait(RED), cx.child(IDLE, &()));
        let sum = match select(Box::pin(outer), Box::pin(never)).await {
            Either::Left(((one, five), _)) => one + five,
            Either::Right(_) => 0,
        };
        cx.sleep(Duration::from_millis(1)).await;
        let red = cx.wait(RED).await?;
        Ok(format!("{sum} {red}"))
    };
    for keep in [0, 10] {
        let process = start(&db, keep, RACE, race).await;
        let mut run = process.start(RACE, &()).await.unwrap();
        until("all others lost", || async {
            process.run(&run).await.unwrap().row.waits == 1
        })
        .await;
        process.signal(&run, RED, &7).await.unwrap();
        assert_eq!(soon("the sum", run.result()).await.unwrap(), "6 7");
        process.shutdown().await;
    }
    assert_sound(&db).await;
}

async fn ro_23_two_thousand_branches_join(db: Db) {
    let many = |cx: Cx, n: u64| async move {
        let branches = (0..n).map(|i| {
            let cx = cx.clone();
            async move {
                let value = cx
                    .effect("value", move |_| async move {
                        if i % 3 == 0 {
                            tokio::task::yield_now().await;
                        }
                        Ok::<_, Failure>(i)
                    })
                    .await?;
                if i % 2 == 0 {
                    cx.sleep(Duration::from_millis(i % 7)).await;
                }
                Ok::<_, Failure>(value)
            }
        });
        let values = join_all(branches).await;
        values.into_iter().sum()
    };
    let process = start(&db, 0, MANY, many).await;
    let mut run = process.start(MANY, &2000).await.unwrap();
    assert_eq!(soon("the sum", run.result()).await.unwrap(), 1_999_000);
    assert_sound(&db).await;
}

async fn ro_23_two_thousand_branches_are_raced(db: Db) {
    let many = |cx: Cx, n: u64| async move {
        let mut left: Vec<_> = (0..n).map(|_| cx.wait(RED)).collect();
        let mut seen = Vec::new();
        for _ in 0..3 {
            let (value, index, others) = select_all(left).await;
            seen.push(u64::from(value?) * 10_000 + index as u64);
            left = others;
        }
        drop(left);
        cx.sleep(Duration::from_millis(1)).await;
        Ok(seen.into_iter().sum())
    };
    let process = start(&db, 0, MANY, many).await;
    let mut run = process.start(MANY, &2000).await.unwrap();
    for value in 1..=3 {
        process.signal(&run, RED, &value).await.unwrap();
    }
    // Each time the wait that began first wins; the last one of the others takes its place.
    let seen = soon("the winners", run.result()).await.unwrap();
    assert_eq!(seen / 10_000, 6);
    let dump = assert_sound(&db).await;
    assert_eq!(dump.waits.len(), 0);
}

async fn ro_23_branches_of_steps_and_effects_do_not_starve_each_other(db: Db) {
    let many = |cx: Cx, n: u64| async move {
        let branches = (0..n).map(|i| {
            let cx = cx.clone();
            async move {
                let mut sum = 0;
                for round in 0..3_u64 {
                    sum += cx
                        .step("step", |_| async move { Ok::<_, Failure>(i) })
                        .await?;
                    sum += cx
                        .effect("effect", move |_| async move {
                            for _ in 0..(i + round) % 5 {
                                tokio::time::sleep(Duration::from_micros(300)).await;
                            }
                            Ok::<_, Failure>(i)
                        })
                        .await?;
                }
                Ok::<_, Failure>(sum)
            }
        });
        let sums = join_all(branches).await;
        sums.into_iter().sum()
    };
    let process = start(&db, 10, MANY, many).await;
    let mut run = process.start(MANY, &60).await.unwrap();
    assert_eq!(soon("the sum", run.result()).await.unwrap(), 1770 * 6);
    assert_sound(&db).await;
}

async fn ro_23_a_step_that_loses_inside_its_own_transaction_leaves_nothing(db: Db) {
    let race = |cx: Cx, (): ()| async move {
        // Ready once the closure of the step beside it has run, which is inside the transaction.
        let ran = AtomicU32::new(0);
        let opened = cx.resource(std::future::poll_fn(|_| {
            match ran.load(Ordering::Relaxed) {
                0 => std::task::Poll::Pending,
                _ => std::task::Poll::Ready(()),
            }
        }));
        let step = cx.step("lost", |tx| {
            ran.fetch_add(1, Ordering::Relaxed);
            async move {
                tx.execute("CREATE TABLE IF NOT EXISTS seen (n INTEGER)", ())
                    .await?;
                tx.execute("INSERT INTO seen VALUES (1)", ()).await?;
                Ok::<_, Failure>(1_u32)
            }
        });
        let _ = select(step, opened).await;
        let count = cx
            .step("count", |tx| async move {
                tx.execute("CREATE TABLE IF NOT EXISTS seen (n INTEGER)", ())
                    .await?;
                let rows = tx.query("SELECT n FROM seen", ()).await?;
                Ok::<_, Failure>(rows.len())
            })
            .await?;
        Ok(count.to_string())
    };
    let process = start(&db, 10, RACE, race).await;
    let mut run = process.start(RACE, &()).await.unwrap();
    let count = soon("the count", run.result()).await.unwrap();
    assert_eq!(count, "0", "what it wrote went with it");
    let journal = process.journal(&run).await.unwrap();
    let kept = |entry: &Entry| matches!(entry, Entry::Did { call: 1, .. });
    assert!(!journal.iter().any(kept), "{journal:?}");
    assert_sound(&db).await;
}
