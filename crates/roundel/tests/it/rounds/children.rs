//! Child runs: what becomes of them reaches their parent, once, whatever happens in between.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use roundel::future::{join, join_all};
use roundel::{Class, Cx, Entry, Failure, Result, RunState, Signal, Workflow};

use super::sound::assert_sound;
use crate::support::{Db, Fault, Process, all, is_round, soon, until};

const PARENT: Workflow<u32, u32> = Workflow::named("parent");
const CHILD: Workflow<u32, u32> = Workflow::named("child");
const GO: Signal<u32> = Signal::named("go");

all![
    ro_30_the_output_of_a_child_reaches_its_parent,
    ro_30_the_failure_of_a_child_reaches_its_parent,
    ro_30_a_key_that_is_in_use_fails_the_call_at_once,
    ro_30_ids_are_unique_across_continue_as_new,
    ro_30_a_crash_at_any_round_loses_and_repeats_no_child,
    ro_30_a_child_that_nobody_waits_for_ends_before_its_parent,
    ro_30_a_child_starts_in_another_process,
];

/// Doubles even numbers; is against odd ones; panics at 13.
async fn child(cx: Cx, n: u32) -> Result<u32> {
    let doubled = cx.effect("double", move |_| async move { Ok::<_, Failure>(n * 2) });
    let doubled = doubled.await?;
    assert!(n != 13, "bad luck");
    if n % 2 == 1 {
        return Err(Failure::business("odd").with_code("odd").with_data(&n));
    }
    Ok(doubled)
}

async fn start<F, Fut>(db: &Db, parent: F) -> Process
where
    F: Fn(Cx, u32) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<u32>> + Send + 'static,
{
    let set_up = db.start(|engine| {
        let engine = engine.register(PARENT, parent).register(CHILD, child);
        engine.keep_in_memory(0, Duration::ZERO)
    });
    set_up.await
}

async fn ro_30_the_output_of_a_child_reaches_its_parent(db: Db) {
    let process = start(&db, |cx, n| async move {
        let inputs: Vec<u32> = (0..n).map(|i| i * 2).collect();
        let children = inputs.iter().map(|i| cx.child(CHILD, i));
        let outputs = join_all(children).await;
        let again = cx.child(CHILD, &2).await?;
        let sum: Result<u32> = outputs.into_iter().sum();
        Ok(sum? + again)
    })
    .await;
    let mut run = process.start(PARENT, &100).await.unwrap();
    assert_eq!(soon("the sum", run.result()).await.unwrap(), 19_804);
    let dump = assert_sound(&db).await;
    assert_eq!(dump.runs.len(), 102);
    assert!(dump.runs.iter().all(|row| row.root == run.id()));
}

async fn ro_30_the_failure_of_a_child_reaches_its_parent(db: Db) {
    let process = start(&db, |cx, n| async move {
        let (odd, bad) = join(cx.child(CHILD, &3), cx.child(CHILD, &13)).await;
        let (odd, bad) = (odd.unwrap_err(), bad.unwrap_err());
        assert_eq!((odd.class, odd.code.as_str()), (Class::Business, "odd"));
        assert_eq!(odd.data.unwrap().decode::<u32>().unwrap(), 3);
        assert_eq!((bad.class, bad.code.as_str()), (Class::Permanent, "panic"));
        assert!(bad.message.contains("bad luck"), "{bad}");
        // A failure that is handled is over.
        if n == 0 {
            return Ok(0);
        }
        cx.child(CHILD, &n).await
    })
    .await;
    let mut run = process.start(PARENT, &0).await.unwrap();
    assert_eq!(soon("the end", run.result()).await.unwrap(), 0);
    let mut run = process.start(PARENT, &5).await.unwrap();
    let error = soon("the end", run.result()).await.unwrap_err();
    assert!(error.to_string().contains("odd"), "{error}");
    let row = process.run(&run).await.unwrap().row;
    assert_eq!(row.state, RunState::Failed);
    assert_sound(&db).await;
}

async fn ro_30_a_key_that_is_in_use_fails_the_call_at_once(db: Db) {
    let process = start(&db, |cx, n| async move {
        let taken = cx.child(CHILD, &n).key("taken").await.unwrap_err();
        assert_eq!(taken.code, "conflict");
        assert!(taken.message.contains("taken"), "{taken}");
        let first = cx.child(CHILD, &n).key("mine").await?;
        // The same request again: a child must be new, or who would wait for it?
        let again = cx.child(CHILD, &n).key("mine").await.unwrap_err();
        assert_eq!(again.code, "conflict");
        Ok(first)
    })
    .await;
    let mut user = process.start(CHILD, &6).key("taken").await.unwrap();
    soon("the user's own", user.result()).await.unwrap();
    let mut run = process.start(PARENT, &4).await.unwrap();
    assert_eq!(soon("the end", run.result()).await.unwrap(), 8);
    let dump = assert_sound(&db).await;
    assert_eq!(dump.runs.len(), 3, "no child was made for the others");
}

async fn ro_30_ids_are_unique_across_continue_as_new(db: Db) {
    let process = start(&db, |cx, n| async move {
        let output = cx.child(CHILD, &(n * 2)).await?;
        assert_eq!(output, n * 4);
        if n < 5 {
            return cx.continue_as_new(&(n + 1)).await;
        }
        Ok(output)
    })
    .await;
    let mut run = process.start(PARENT, &1).await.unwrap();
    assert_eq!(soon("the end", run.result()).await.unwrap(), 20);
    let dump = assert_sound(&db).await;
    let children = dump.runs.iter().filter_map(|row| row.parent);
    let executions: BTreeSet<u32> = children.map(|parent| parent.execution).collect();
    assert_eq!(executions, BTreeSet::from([1, 2, 3, 4, 5]));
    assert_eq!(dump.runs.len(), 6);
}

async fn ro_30_a_crash_at_any_round_loses_and_repeats_no_child(db: Db) {
    let db = db.with_manual_clock();
    let ran = Arc::new(AtomicU32::new(0));
    let set_up = || {
        let ran = ran.clone();
        let child = move |cx: Cx, n: u32| {
            let ran = ran.clone();
            async move {
                let step = cx.step("once", |tx| async move {
                    tx.execute("CREATE TABLE IF NOT EXISTS ran (n INTEGER)", ())
                        .await?;
                    tx.execute("INSERT INTO ran VALUES (1)", ()).await?;
                    Ok::<_, Failure>(())
                });
                step.await?;
                ran.fetch_add(1, Ordering::Relaxed);
                Ok(n * 2)
            }
        };
        let parent = |cx: Cx, n: u32| async move {
            let (one, two) = join(cx.child(CHILD, &n), cx.child(CHILD, &n)).await;
            Ok(one? + two? + cx.child(CHILD, &n).await?)
        };
        db.start(move |engine| engine.register(PARENT, parent).register(CHILD, child))
    };
    let mut runs = 0;
    for (strike, fault) in (0..9).flat_map(|n| [(n, Fault::CrashBefore), (n, Fault::CrashAfter)]) {
        let first = set_up().await;
        let mut left = strike;
        first.store.rule(move |ask| {
            if !is_round(ask) {
                return Fault::Pass;
            }
            left -= 1;
            if left == -1 { fault } else { Fault::Pass }
        });
        let key = format!("{strike} {fault:?}");
        let started = first.start(PARENT, &1).key(key.clone());
        let _ = tokio::time::timeout(Duration::from_millis(40), started).await;
        until("it crashed or ended", || async {
            let ended = first.run(key.as_str()).await;
            first.store.is_cut() || ended.is_ok_and(|run| run.row.state.has_ended())
        })
        .await;
        first.crash();
        db.advance(Duration::from_secs(31));
        let second = set_up().await;
        let mut run = second.start(PARENT, &1).key(key).await.unwrap();
        let result = db.meanwhile("the end", run.result()).await;
        assert_eq!(result.unwrap(), 6, "{strike} {fault:?}");
        runs += 1;
        second.shutdown().await;
    }
    let dump = assert_sound(&db).await;
    assert_eq!(dump.runs.len(), runs * 4, "three children each");
    let steps = dump.journal.iter().filter(|row| {
        let entries = roundel_core::decode_entries(&row.entries).unwrap();
        entries
            .iter()
            .any(|entry| matches!(entry, Entry::Did { .. }))
    });
    assert_eq!(steps.count(), runs * 3);
}

async fn ro_30_a_child_that_nobody_waits_for_ends_before_its_parent(db: Db) {
    const LONG: Workflow<(), u32> = Workflow::named("long");
    let long = |cx: Cx, (): ()| async move { cx.wait(GO).await };
    let parent = |cx: Cx, n: u32| async move {
        let mut child = cx.child(LONG, &());
        let signal = cx.wait(GO);
        // Begun, and let go of by returning.
        match roundel::future::select(&mut child, signal).await {
            roundel::future::Either::Left(_) => Ok(0),
            roundel::future::Either::Right(_) => Ok(n),
        }
    };
    let set_up = db.start(|engine| engine.register(PARENT, parent).register(LONG, long));
    let process = set_up.await;
    let mut run = process.start(PARENT, &3).await.unwrap();
    process.signal(&run, GO, &1).await.unwrap();
    assert_eq!(soon("the end", run.result()).await.unwrap(), 3);
    let children = process.children(&run, None, 10).await.unwrap().items;
    assert_eq!(children[0].row.state, RunState::Cancelled);
    assert_sound(&db).await;
}

async fn ro_30_a_child_starts_in_another_process(db: Db) {
    let parent = |cx: Cx, n: u32| async move { cx.child(CHILD, &n).await };
    let one = db.start(|engine| engine.register(PARENT, parent)).await;
    let two = db.start(|engine| engine.register(CHILD, child)).await;
    let mut run = one.start(PARENT, &4).await.unwrap();
    assert_eq!(soon("the end", run.result()).await.unwrap(), 8);
    two.shutdown().await;
    assert_sound(&db).await;
}
