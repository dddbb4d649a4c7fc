//! Cancel: durable, for everything below, at the next boundary; effects get a token and a grace
//! time.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use roundel::future::{join, select};
use roundel::{
    Cancelled, Class, Cx, Entry, Error, Failure, Result, RunState, Sent, Signal, Workflow,
};
use roundel_core::Op;
use roundel_store::Ask;

use super::sound::assert_sound;
use crate::support::{Db, Fault, Process, all, soon, until};

const TREE: Workflow<u32, u32> = Workflow::named("tree");
const BUSY: Workflow<(), u32> = Workflow::named("busy");
const QUICK: Workflow<(), u32> = Workflow::named("quick");
const GO: Signal<()> = Signal::named("go").offerable();
const GRACE: Duration = Duration::from_secs(5);

all![
    ro_32_cancel_reaches_children_and_theirs,
    ro_32_a_running_effect_gets_a_token,
    ro_32_what_ignores_the_token_is_abandoned_after_the_grace_time,
    ro_32_a_late_result_is_dropped,
    ro_32_what_is_queued_vanishes,
    ro_32_after_the_answer_nothing_new_begins,
    ro_32_a_child_that_ended_meanwhile_does_not_hold_it_up,
    ro_32_a_child_let_go_meanwhile_is_still_asked_to_end,
    ro_32_crashes_on_the_way_change_nothing,
    ro_32_cancel_in_another_process_reaches_a_running_effect,
    ro_32_a_parked_run_ends_when_asked,
    ro_32_a_future_that_wakes_itself_does_not_outlive_the_grace_time,
];

/// Waits for a signal; above level 0, with two children of the level below.
async fn tree(cx: Cx, level: u32) -> Result<u32> {
    if level == 0 {
        cx.wait(GO).await?;
        return Ok(1);
    }
    let below = level - 1;
    let (left, right) = join(cx.child(TREE, &below), cx.child(TREE, &below)).await;
    Ok(left? + right?)
}

async fn quick(_: Cx, (): ()) -> Result<u32> {
    Ok(7)
}

async fn start(db: &Db) -> Process {
    let set_up = db.start(|engine| {
        let engine = engine.register(TREE, tree).register(QUICK, quick);
        engine.grace(GRACE)
    });
    set_up.await
}

/// All runs that are in this state.
async fn count(process: &Process, state: RunState) -> usize {
    let page = process.runs().in_state(state).limit(100).fetch().await;
    page.unwrap().items.len()
}

fn is_cancelled<T>(result: &Result<T, Error>) -> bool {
    let Err(Error::Failed { state, failure, .. }) = result else {
        return false;
    };
    *state == RunState::Cancelled && failure.class == Class::Cancelled
}

async fn ro_32_cancel_reaches_children_and_theirs(db: Db) {
    let process = start(&db).await;
    let mut root = process.start(TREE, &2).await.unwrap();
    until("all wait", || async {
        count(&process, RunState::Waiting).await == 7
    })
    .await;
    let answer = process.cancel(&root).await.unwrap();
    assert_eq!(answer, Cancelled::Requested);
    let result = soon("the end", root.result()).await;
    assert!(is_cancelled(&result), "{result:?}");
    assert_eq!(count(&process, RunState::Cancelled).await, 7);
    let again = process.cancel(&root).await.unwrap();
    assert_eq!(again, Cancelled::AlreadyEnded(RunState::Cancelled));
    let dump = assert_sound(&db).await;
    for run in &dump.runs {
        // Nobody has ended before those below it.
        let below = dump.runs.iter().filter(|child| {
            let parent = child.parent.map(|parent| parent.run);
            parent == Some(run.id)
        });
        for child in below {
            assert!(child.changed_at <= run.changed_at);
        }
    }
}

/// An engine whose `busy` runs this effect.
async fn busy<F, Fut>(db: &Db, effect: F) -> Process
where
    F: Fn(roundel::Attempt) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<u32>> + Send + 'static,
{
    let busy = move |cx: Cx, (): ()| {
        let effect = effect.clone();
        async move { cx.effect("work", effect).await }
    };
    db.start(|engine| engine.register(BUSY, busy).grace(GRACE))
        .await
}

async fn ro_32_a_running_effect_gets_a_token(db: Db) {
    let db = db.with_manual_clock();
    let told = Arc::new(AtomicU32::new(0));
    let seen = told.clone();
    let process = busy(&db, move |attempt| {
        let told = seen.clone();
        async move {
            told.fetch_add(1, Ordering::Relaxed);
            attempt.cancelled().await;
            tokio::task::yield_now().await;
            told.fetch_add(10, Ordering::Relaxed);
            Ok(1)
        }
    })
    .await;
    let mut run = process.start(BUSY, &()).await.unwrap();
    until("it runs", || async { told.load(Ordering::Relaxed) == 1 }).await;
    process.cancel(&run).await.unwrap();
    // It ends when the effect does: no time passes.
    let result = soon("the end", run.result()).await;
    assert!(is_cancelled(&result), "{result:?}");
    assert_eq!(told.load(Ordering::Relaxed), 11, "it was let finish");
    let journal = process.journal(&run).await.unwrap();
    let done = journal
        .iter()
        .any(|entry| matches!(entry, Entry::Done { .. }));
    assert!(!done, "what it returned is not recorded: {journal:?}");
    assert_sound(&db).await;
}

/// Says when it is dropped.
struct Dropped(Arc<AtomicU32>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

async fn ro_32_what_ignores_the_token_is_abandoned_after_the_grace_time(db: Db) {
    let db = db.with_manual_clock();
    let (told, dropped) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (tells, drops) = (told.clone(), dropped.clone());
    let process = busy(&db, move |attempt| {
        let (tells, held) = (tells.clone(), Dropped(drops.clone()));
        async move {
            let _held = held;
            attempt.cancelled().await;
            tells.fetch_add(1, Ordering::Relaxed);
            pending().await
        }
    })
    .await;
    let mut run = process.start(BUSY, &()).await.unwrap();
    process.cancel(&run).await.unwrap();
    until("it was told", || async {
        told.load(Ordering::Relaxed) == 1
    })
    .await;
    db.advance(GRACE - Duration::from_millis(1));
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(dropped.load(Ordering::Relaxed), 0, "the grace time lasts");
    assert_eq!(
        process.run(&run).await.unwrap().row.state,
        RunState::Running
    );
    db.advance(Duration::from_millis(1));
    let result = soon("the end", run.result()).await;
    assert!(is_cancelled(&result), "{result:?}");
    assert_eq!(dropped.load(Ordering::Relaxed), 1);
    assert_sound(&db).await;
}

async fn ro_32_a_late_result_is_dropped(db: Db) {
    let db = db.with_manual_clock();
    let process = busy(&db, |_| async { Ok(1) }).await;
    process.store.rule(|ask| match ask {
        Ask::Op(Op::Commit(_) | Op::Renew(_)) => Fault::Hold,
        _ => Fault::Pass,
    });
    let mut run = process.start(BUSY, &()).await.unwrap();
    until("its result is held", || async { process.store.held() > 0 }).await;
    process.cancel(&run).await.unwrap();
    process.store.mend();
    process.store.release();
    let result = soon("the end", run.result()).await;
    assert!(is_cancelled(&result), "{result:?}");
    let journal = process.journal(&run).await.unwrap();
    let forward = journal
        .iter()
        .any(|entry| matches!(entry, Entry::Done { .. }));
    assert!(!forward, "{journal:?}");
    assert_sound(&db).await;
}

async fn ro_32_what_is_queued_vanishes(db: Db) {
    let ran = Arc::new(AtomicU32::new(0));
    let seen = ran.clone();
    let client = db.start(|engine| engine).await;
    let delayed = client.start(QUICK, &()).delay(Duration::from_secs(3600));
    let mut delayed = delayed.await.unwrap();
    let mut queued = client.start(QUICK, &()).await.unwrap();
    for run in [delayed.id(), queued.id()] {
        assert_eq!(client.cancel(run).await.unwrap(), Cancelled::Requested);
    }
    let quick = move |_: Cx, (): ()| {
        seen.fetch_add(1, Ordering::Relaxed);
        async { Ok::<_, Failure>(7) }
    };
    let worker = db.start(|engine| engine.register(QUICK, quick)).await;
    let results = [
        soon("the delayed", delayed.result()).await,
        soon("the queued", queued.result()).await,
    ];
    assert!(results.iter().all(is_cancelled), "{results:?}");
    assert_eq!(ran.load(Ordering::Relaxed), 0, "no code ran");
    worker.shutdown().await;
    assert_sound(&db).await;
}

async fn ro_32_after_the_answer_nothing_new_begins(db: Db) {
    const TWO: Workflow<(), u32> = Workflow::named("two");
    let second = Arc::new(AtomicU32::new(0));
    let seen = second.clone();
    let two = move |cx: Cx, (): ()| {
        let seen = seen.clone();
        async move {
            let one = cx.effect("one", |_| async { Ok::<_, Failure>(1) }).await?;
            cx.effect("two", move |_| {
                seen.fetch_add(1, Ordering::Relaxed);
                async move { Ok::<_, Failure>(one + 1) }
            })
            .await
        }
    };
    let process = db.start(|engine| engine.register(TWO, two)).await;
    let is_commit = |ask: &Ask| matches!(ask, Ask::Op(Op::Commit(_)));
    process.store.once(Fault::Hold, is_commit);
    let mut run = process.start(TWO, &()).await.unwrap();
    until("the round is held", || async { process.store.held() == 1 }).await;
    process.cancel(&run).await.unwrap();
    process.store.release();
    let result = soon("the end", run.result()).await;
    assert!(is_cancelled(&result), "{result:?}");
    assert_eq!(second.load(Ordering::Relaxed), 0);
    let journal = process.journal(&run).await.unwrap();
    assert!(
        matches!(
            journal[..],
            [
                Entry::Started { .. },
                Entry::Begun { call: 1, .. },
                Entry::CancelSeen,
                Entry::Ended { .. }
            ]
        ),
        "{journal:?}"
    );
    assert_sound(&db).await;
}

async fn ro_32_a_child_that_ended_meanwhile_does_not_hold_it_up(db: Db) {
    const PAIR: Workflow<(), u32> = Workflow::named("pair");
    let pair = |cx: Cx, (): ()| async move {
        let one = async {
            cx.child(QUICK, &()).await?;
            cx.wait(GO).await
        };
        let (one, two) = join(one, cx.child(TREE, &0)).await;
        one?;
        two
    };
    let process = start_with(&db, PAIR, pair).await;
    hold_second_round(&process, PAIR).await;
    let dump = assert_sound(&db).await;
    let cancelled = dump
        .runs
        .iter()
        .filter(|run| run.state == RunState::Cancelled);
    assert_eq!((cancelled.count(), dump.runs.len()), (2, 3));
    let rounds = process.metrics().rounds;
    assert!(rounds < 16, "{rounds} rounds: it commits in circles");
}

async fn ro_32_a_child_let_go_meanwhile_is_still_asked_to_end(db: Db) {
    const EITHER: Workflow<(), u32> = Workflow::named("either");
    let either = |cx: Cx, (): ()| async move {
        let _ = select(cx.child(QUICK, &()), cx.child(TREE, &0)).await;
        cx.wait(GO).await?;
        Ok(1)
    };
    let process = start_with(&db, EITHER, either).await;
    hold_second_round(&process, EITHER).await;
    let dump = assert_sound(&db).await;
    let ended = dump.runs.iter().all(|run| run.state.has_ended());
    assert!(ended, "{:?}", dump.runs);
}

async fn start_with<F, Fut>(db: &Db, workflow: Workflow<(), u32>, function: F) -> Process
where
    F: Fn(Cx, ()) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<u32>> + Send + 'static,
{
    let set_up = db.start(|engine| {
        let engine = engine.register(TREE, tree).register(QUICK, quick);
        engine.register(workflow, function)
    });
    set_up.await
}

/// Starts a run, asks it to end while its second round is on its way, waits for the end.
async fn hold_second_round(process: &Process, workflow: Workflow<(), u32>) {
    process.store.once(
        Fault::Hold,
        |ask| matches!(ask, Ask::Op(Op::Commit(round)) if round.parent.is_none()),
    );
    let mut run = process.start(workflow, &()).await.unwrap();
    until("the round is held", || async { process.store.held() == 1 }).await;
    process.cancel(&run).await.unwrap();
    process.store.release();
    let result = soon("the end", run.result()).await;
    assert!(is_cancelled(&result), "{result:?}");
}

async fn ro_32_crashes_on_the_way_change_nothing(db: Db) {
    let db = db.with_manual_clock();
    for strike in 0.. {
        let first = start(&db).await;
        let root = first.start(TREE, &1).await.unwrap().id();
        until("all wait", || async {
            count(&first, RunState::Waiting).await == 3
        })
        .await;
        let mut left = strike;
        first.store.rule(move |ask| {
            if !matches!(ask, Ask::Op(Op::Commit(_))) {
                return Fault::Pass;
            }
            left -= 1;
            if left == -1 {
                Fault::CrashAfter
            } else {
                Fault::Pass
            }
        });
        first.cancel(root).await.unwrap();
        until("it crashed or ended", || async {
            let ended = first.run(root).await;
            first.store.is_cut() || ended.is_ok_and(|run| run.row.state.has_ended())
        })
        .await;
        let crashed = first.store.is_cut();
        first.crash();
        db.advance(Duration::from_secs(31));
        let second = start(&db).await;
        let mut root = second.handle(TREE, root).await.unwrap();
        let result = db.meanwhile("the end", root.result()).await;
        assert!(is_cancelled(&result), "strike {strike}: {result:?}");
        second.shutdown().await;
        if !crashed {
            assert!(strike >= 4, "{strike} rounds");
            break;
        }
    }
    let dump = assert_sound(&db).await;
    assert!(dump.runs.iter().all(|run| run.state == RunState::Cancelled));
}

async fn ro_32_cancel_in_another_process_reaches_a_running_effect(db: Db) {
    let process = busy(&db, |attempt| async move {
        attempt.cancelled().await;
        Ok(1)
    })
    .await;
    let other = db.start(|engine| engine).await;
    let run = process.start(BUSY, &()).await.unwrap();
    other.cancel(&run).await.unwrap();
    let mut run = other.handle(BUSY, &run).await.unwrap();
    let result = soon("the end", run.result()).await;
    assert!(is_cancelled(&result), "{result:?}");
    assert_sound(&db).await;
}

async fn ro_32_a_parked_run_ends_when_asked(db: Db) {
    let process = busy(&db, |_| async { Err(Failure::permanent("broken")) }).await;
    let mut run = process.start(BUSY, &()).await.unwrap();
    let parked = soon("it parks", run.result()).await;
    assert!(matches!(parked, Err(Error::Parked { .. })), "{parked:?}");
    let sent = process.cancel(&run).await.unwrap();
    assert_eq!(sent, Cancelled::Requested);
    until("it ends", || async {
        process.run(&run).await.unwrap().row.state == RunState::Cancelled
    })
    .await;
    let late = process.signal(&run, GO, &()).await.unwrap();
    assert_eq!(late, Sent::TargetEnded(RunState::Cancelled));
    assert_sound(&db).await;
}

async fn ro_32_a_future_that_wakes_itself_does_not_outlive_the_grace_time(db: Db) {
    let db = db.with_manual_clock();
    let told = Arc::new(AtomicU32::new(0));
    let tells = told.clone();
    let process = busy(&db, move |attempt| {
        let tells = tells.clone();
        async move {
            attempt.cancelled().await;
            tells.fetch_add(1, Ordering::Relaxed);
            std::future::poll_fn(|context| {
                context.waker().wake_by_ref();
                std::task::Poll::Pending
            })
            .await
        }
    })
    .await;
    let mut run = process.start(BUSY, &()).await.unwrap();
    process.cancel(&run).await.unwrap();
    until("it was told", || async {
        told.load(Ordering::Relaxed) == 1
    })
    .await;
    db.advance(GRACE);
    let result = soon("the end", run.result()).await;
    assert!(is_cancelled(&result), "{result:?}");
}
