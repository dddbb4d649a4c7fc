//! Continue as new: one commit ends an execution and begins the next; what was meant for the run
//! stays, what was meant for a call of the old execution goes.

use std::time::Duration;

use roundel::future::{Either, select};
use roundel::{Cancelled, Cx, Entry, Failure, Result, RunId, RunState, Sent, Signal, To, Workflow};
use roundel_core::{Op, Then};
use roundel_store::Ask;

use super::sound::assert_sound;
use crate::support::{Db, Fault, Process, all, on_objects, soon, until};

const LOOP: Workflow<u32, Vec<u32>> = Workflow::named("loop");
const PARENT: Workflow<u32, Vec<u32>> = Workflow::named("parent");
const IDLE: Workflow<(), u32> = Workflow::named("idle");
const RED: Signal<u32> = Signal::named("red");
const BLUE: Signal<u32> = Signal::named("blue").offerable();

all![
    ro_31_killed_before_or_after_the_commit_there_is_one_next_execution,
    ro_31_signals_that_arrive_meanwhile_go_to_the_successor_in_order,
    ro_31_parent_key_labels_and_state_survive,
    ro_31_a_message_matched_to_a_call_of_the_old_execution_goes_to_the_right_one,
    ro_31_the_end_of_a_run_watched_by_the_old_execution_is_ignored,
    ro_31_children_of_the_old_execution_have_ended,
    ro_31_a_cancel_meanwhile_is_heard_by_the_successor,
    ro_31_each_execution_has_a_journal_of_its_own,
];

// RO-60: the same over objects.
on_objects![
    ro_31_killed_before_or_after_the_commit_there_is_one_next_execution,
    ro_31_signals_that_arrive_meanwhile_go_to_the_successor_in_order,
    ro_31_parent_key_labels_and_state_survive,
    ro_31_a_message_matched_to_a_call_of_the_old_execution_goes_to_the_right_one,
    ro_31_the_end_of_a_run_watched_by_the_old_execution_is_ignored,
    ro_31_children_of_the_old_execution_have_ended,
    ro_31_a_cancel_meanwhile_is_heard_by_the_successor,
    ro_31_each_execution_has_a_journal_of_its_own,
];

fn is_anew(ask: &Ask) -> bool {
    matches!(ask, Ask::Op(Op::Commit(round)) if matches!(round.then, Then::ContinueAsNew(..)))
}

async fn idle(cx: Cx, (): ()) -> Result<u32> {
    cx.wait(RED).await
}

async fn start<F, Fut>(db: &Db, run: F) -> Process
where
    F: Fn(Cx, u32) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Vec<u32>>> + Send + 'static,
{
    let set_up = db.start(|engine| engine.register(LOOP, run).register(IDLE, idle));
    set_up.await
}

/// Three executions, each with a step of its own; says in which rows the steps left.
async fn counts(cx: Cx, n: u32) -> Result<Vec<u32>> {
    let rows = cx.step("count", move |tx| async move {
        let table = "CREATE TABLE IF NOT EXISTS executions (n INTEGER, place INTEGER)";
        tx.execute(table, ()).await?;
        let insert = "INSERT INTO executions VALUES ($1, (SELECT count(*) FROM executions))";
        tx.execute(insert, (i64::from(n),)).await?;
        let rows = tx.query("SELECT n FROM executions ORDER BY place", ());
        let rows = rows.await?;
        let numbers = rows.iter().map(|row| row.get::<i64>(0));
        let numbers: Result<Vec<i64>, _> = numbers.collect();
        Ok::<_, Failure>(numbers?)
    });
    let rows = rows.await?;
    if n < 3 {
        return cx.continue_as_new(&(n + 1)).await;
    }
    Ok(rows
        .into_iter()
        .map(|n| u32::try_from(n).unwrap())
        .collect())
}

async fn ro_31_killed_before_or_after_the_commit_there_is_one_next_execution(db: Db) {
    let db = db.with_manual_clock();
    let mut expected = Vec::new();
    for fault in [Fault::CrashBefore, Fault::CrashAfter] {
        for strike in 0..2 {
            let first = start(&db, counts).await;
            let mut left = strike;
            first.store.rule(move |ask| {
                if !is_anew(ask) {
                    return Fault::Pass;
                }
                left -= 1;
                if left == -1 { fault } else { Fault::Pass }
            });
            let run = first.start(LOOP, &1).await.unwrap().id();
            until("it crashed", || async { first.store.is_cut() }).await;
            first.crash();
            db.advance(Duration::from_secs(31));
            let second = start(&db, counts).await;
            let mut run = second.handle(LOOP, run).await.unwrap();
            expected.extend([1, 2, 3]);
            let result = db.meanwhile("the end", run.result()).await;
            assert_eq!(result.unwrap(), expected, "{fault:?} {strike}");
            assert_eq!(second.run(&run).await.unwrap().row.execution, 3);
            second.shutdown().await;
        }
    }
    assert_sound(&db).await;
}

/// Takes one signal in each execution, then all that are left.
async fn takes(cx: Cx, n: u32) -> Result<Vec<u32>> {
    if n < 3 {
        let seen: Option<Vec<u32>> = cx.state().await?;
        let mut seen = seen.unwrap_or_default();
        seen.push(cx.wait(RED).await?);
        cx.set_state(&seen).await?;
        return cx.continue_as_new(&(n + 1)).await;
    }
    let seen: Option<Vec<u32>> = cx.state().await?;
    let mut seen = seen.unwrap_or_default();
    seen.push(cx.wait(BLUE).await?);
    for _ in 0..3 {
        seen.push(cx.wait(RED).await?);
    }
    Ok(seen)
}

async fn ro_31_signals_that_arrive_meanwhile_go_to_the_successor_in_order(db: Db) {
    let process = start(&db, takes).await;
    let mut run = process.start(LOOP, &1).await.unwrap();
    process.store.once(Fault::Hold, is_anew);
    process.signal(&run, RED, &1).await.unwrap();
    until("it is on its way", || async { process.store.held() == 1 }).await;
    for value in [2, 3, 4] {
        let sent = process.signal(&run, RED, &value).await.unwrap();
        assert_eq!(sent, Sent::Queued);
    }
    process.signal(&run, BLUE, &9).await.unwrap();
    process.store.release();
    process.signal(&run, RED, &5).await.unwrap();
    let taken = soon("all", run.result()).await.unwrap();
    assert_eq!(taken, [1, 2, 9, 3, 4, 5]);
    assert_sound(&db).await;
}

async fn ro_31_parent_key_labels_and_state_survive(db: Db) {
    let parent = |cx: Cx, n: u32| async move { cx.child(LOOP, &n).key("the child").await };
    let set_up = db.start(|engine| {
        let engine = engine.register(LOOP, takes).register(PARENT, parent);
        engine.keep_in_memory(0, Duration::ZERO)
    });
    let process = set_up.await;
    let mut run = process.start(PARENT, &1).label("of", "it").await.unwrap();
    until("the child waits", || async {
        process.run("the child").await.is_ok()
    })
    .await;
    for value in 1..=5 {
        process.signal("the child", RED, &value).await.unwrap();
    }
    process.signal("the child", BLUE, &9).await.unwrap();
    let taken = soon("all", run.result()).await.unwrap();
    assert_eq!(taken, [1, 2, 9, 3, 4, 5]);
    let child = process.run("the child").await.unwrap();
    assert_eq!(child.row.parent.unwrap().run, run.id());
    assert_eq!(child.row.execution, 3);
    let labelled = process.runs().with_label("of", "it").unwrap();
    assert_eq!(labelled.fetch().await.unwrap().items.len(), 1);
    assert_sound(&db).await;
}

async fn ro_31_a_message_matched_to_a_call_of_the_old_execution_goes_to_the_right_one(db: Db) {
    let process = start(&db, |cx, n| async move {
        if n == 1 {
            let lost = cx.wait(RED);
            let won = cx.effect("quick", |_| async { Ok::<_, Failure>(1) });
            let _ = select(lost, std::pin::pin!(won)).await;
            return cx.continue_as_new(&2).await;
        }
        // The same call number, another signal.
        let blue = cx.wait(BLUE).await?;
        Ok(vec![blue, cx.wait(RED).await?])
    })
    .await;
    process.store.once(Fault::Hold, is_anew);
    let mut run = process.start(LOOP, &1).await.unwrap();
    until("it is on its way", || async { process.store.held() == 1 }).await;
    // The old wait is still open: what comes is matched to it.
    let sent = process.signal(&run, RED, &7).await.unwrap();
    assert_eq!(sent, Sent::Delivered(run.id()));
    process.store.release();
    process.signal(&run, BLUE, &8).await.unwrap();
    assert_eq!(soon("both", run.result()).await.unwrap(), [8, 7]);
    assert_sound(&db).await;
}

async fn ro_31_the_end_of_a_run_watched_by_the_old_execution_is_ignored(db: Db) {
    const WATCH: Workflow<(RunId, u32), u32> = Workflow::named("watch");
    let watch = |cx: Cx, (run, n): (RunId, u32)| async move {
        let ended = cx.wait_for::<u32>(run);
        match select(ended, cx.wait(BLUE)).await {
            Either::Left((ended, _)) => Ok(ended? + n * 100),
            Either::Right(_) => cx.continue_as_new(&(run, n + 1)).await,
        }
    };
    let set_up = db.start(|engine| engine.register(WATCH, watch).register(IDLE, idle));
    let process = set_up.await;
    let watched = process.start(IDLE, &()).await.unwrap();
    let mut run = process.start(WATCH, &(watched.id(), 1)).await.unwrap();
    for _ in 0..2 {
        process.signal(&run, BLUE, &0).await.unwrap();
    }
    until("it continued", || async {
        let row = process.run(&run).await.unwrap().row;
        row.execution == 3 && row.state == RunState::Waiting
    })
    .await;
    process.signal(&watched, RED, &7).await.unwrap();
    assert_eq!(soon("the end", run.result()).await.unwrap(), 307);
    let dump = assert_sound(&db).await;
    assert_eq!(dump.mail.len(), 0, "nothing is left of the others");
}

async fn ro_31_children_of_the_old_execution_have_ended(db: Db) {
    let process = start(&db, |cx, n| async move {
        if n == 1 {
            let _ = select(cx.child(IDLE, &()), cx.wait(BLUE)).await;
            return cx.continue_as_new(&2).await;
        }
        Ok(vec![n])
    })
    .await;
    let mut run = process.start(LOOP, &1).await.unwrap();
    process.signal(&run, BLUE, &0).await.unwrap();
    assert_eq!(soon("the end", run.result()).await.unwrap(), [2]);
    let children = process.children(&run, None, 10).await.unwrap().items;
    assert_eq!(children[0].row.state, RunState::Cancelled);
    assert_sound(&db).await;
}

async fn ro_31_a_cancel_meanwhile_is_heard_by_the_successor(db: Db) {
    let process = start(&db, takes).await;
    let mut run = process.start(LOOP, &1).await.unwrap();
    process.store.once(Fault::Hold, is_anew);
    process.signal(&run, RED, &1).await.unwrap();
    until("it is on its way", || async { process.store.held() == 1 }).await;
    let answer = process.cancel(&run).await.unwrap();
    assert_eq!(answer, Cancelled::Requested);
    process.store.release();
    soon("the end", run.result()).await.unwrap_err();
    let row = process.run(&run).await.unwrap().row;
    assert_eq!((row.state, row.execution), (RunState::Cancelled, 1));
    assert_sound(&db).await;
}

async fn ro_31_each_execution_has_a_journal_of_its_own(db: Db) {
    let process = start(&db, counts).await;
    let mut run = process.start(LOOP, &1).key("it").await.unwrap();
    soon("the end", run.result()).await.unwrap();
    for execution in 1..=3 {
        let journal = process.journal_of(run.id(), execution).await.unwrap();
        let last = matches!(journal.last(), Some(Entry::Continued)) == (execution < 3);
        assert!(journal.len() == 3 && last, "{execution}: {journal:?}");
    }
    let current = process.journal(To::from("it")).await.unwrap();
    let third = process.journal_of(run.id(), 3).await.unwrap();
    assert_eq!(current, third);
    assert_sound(&db).await;
}
