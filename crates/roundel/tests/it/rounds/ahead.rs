//! First rounds that are made ahead of the claim: whatever becomes of the claim, of the round and
//! of their answers, in whatever order, somebody drives the run, and only one.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use roundel::future::{Either, select, try_join_all};
use roundel::{Cx, Failure, Handle, Result, Signal, Workflow};
use roundel_core::Op;
use roundel_store::Ask;
use tokio::sync::Semaphore;

use crate::support::{Db, Fault, Process, all, is_round_of, soon, until};

const BUSY: Workflow<(), ()> = Workflow::named("busy");
const WAITS: Workflow<bool, u32> = Workflow::named("waits");
const CROWD: Workflow<u64, ()> = Workflow::named("crowd");
const FAMILY: Workflow<u64, u64> = Workflow::named("family");
const CHILD: Workflow<u64, u64> = Workflow::named("child");
const ONE: Signal<u32> = Signal::named("one");
const TWO: Signal<u32> = Signal::named("two");
/// A lease that is lost does not come back while a test waits, and nothing is renewed.
const LONG: Duration = Duration::from_secs(3600);

all![
    no_more_runs_are_worked_on_at_once_than_was_said,
    a_signal_that_comes_before_the_claim_is_answered_reaches_the_run,
    a_run_that_was_woken_before_its_claim_is_answered_is_driven_once,
    whatever_becomes_of_the_claim_and_of_the_round_behind_it_the_run_goes_on,
    a_cancel_between_the_start_and_the_claim_is_heard,
    a_run_that_is_deleted_between_the_start_and_the_claim_is_forgotten,
    children_of_a_first_round_begin_without_their_journals,
    children_of_a_start_that_another_stands_for_are_not_begun,
];

/// Takes a signal, beside an effect that never ends if it is told so; then another one beside one.
async fn waits(cx: Cx, beside: bool) -> Result<u32> {
    let idle = |name: &'static str| cx.effect(name, |_| pending::<Result<u32, Failure>>());
    let one = if beside {
        match select(idle("first"), cx.wait(ONE)).await {
            Either::Left((never, _)) => never?,
            Either::Right((one, _)) => one?,
        }
    } else {
        cx.wait(ONE).await?
    };
    match select(idle("second"), cx.wait(TWO)).await {
        Either::Left((never, _)) => never,
        Either::Right((two, _)) => Ok(one + two?),
    }
}

/// A process with room for one run, and that room is taken until there is a permit.
async fn full(db: &Db) -> (Process, Arc<Semaphore>) {
    let permits = Arc::new(Semaphore::new(0));
    let room = permits.clone();
    let busy = move |cx: Cx, (): ()| {
        let room = room.clone();
        async move {
            let effect = move |_| {
                let room = room.clone();
                async move {
                    room.acquire().await.expect("it is open").forget();
                    Ok::<_, Failure>(())
                }
            };
            cx.effect("busy", effect).await
        }
    };
    let set_up = db.start(|engine| {
        let engine = engine.register(BUSY, busy).register(WAITS, waits);
        engine.concurrency(1).lease(LONG)
    });
    let process = set_up.await;
    process.start(BUSY, &()).await.expect("it starts");
    until("there is no room", || async { process.metrics().live == 1 }).await;
    (process, permits)
}

/// A run whose first round is committed behind a claim whose answer is held.
async fn claimed_unheard(db: &Db, beside: bool) -> (Process, Handle<u32>) {
    let (process, permits) = full(db).await;
    let run = process.start(WAITS, &beside).await.expect("it starts");
    let claims = |ask: &Ask| matches!(ask, Ask::Op(Op::Claim(_)));
    process.store.once(Fault::HoldReply, claims);
    permits.add_permits(1);
    let id = run.id();
    until("its first round is there", || async {
        let journal = process.journal(id).await.expect("a journal");
        journal.len() > 1 && process.store.held() == 1
    })
    .await;
    (process, run)
}

async fn a_signal_that_comes_before_the_claim_is_answered_reaches_the_run(db: Db) {
    let (process, mut run) = claimed_unheard(&db, true).await;
    process.signal(&run, ONE, &1).await.expect("it is sent");
    process.store.release();
    process.signal(&run, TWO, &2).await.expect("it is sent");
    assert_eq!(soon("both", run.result()).await.expect("a result"), 3);
}

async fn a_run_that_was_woken_before_its_claim_is_answered_is_driven_once(db: Db) {
    let (process, mut run) = claimed_unheard(&db, false).await;
    process.signal(&run, ONE, &1).await.expect("it is sent");
    tokio::time::sleep(Duration::from_millis(50)).await;
    process.store.release();
    let id = run.id();
    until("it waits for the second", || async {
        process.journal(id).await.expect("a journal").len() > 4
    })
    .await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    process.signal(&run, TWO, &2).await.expect("it is sent");
    assert_eq!(soon("both", run.result()).await.expect("a result"), 3);
    let metrics = process.metrics();
    assert_eq!(
        (metrics.leases_lost, metrics.rounds_fenced),
        (0, 0),
        "{metrics:?}"
    );
}

async fn whatever_becomes_of_the_claim_and_of_the_round_behind_it_the_run_goes_on(db: Db) {
    use Fault::{LoseReply, LoseRequest, Pass, Unavailable};
    let (process, permits) = full(&db).await;
    for claim in [Pass, Unavailable, LoseRequest, LoseReply] {
        for round in [Pass, Unavailable, LoseRequest, LoseReply] {
            let mut run = process.start(WAITS, &true).await.expect("it starts");
            let (id, mut left) = (run.id(), [1, 1]);
            process.store.rule(move |ask| {
                let (which, fault) = match ask {
                    Ask::Op(Op::Claim(_)) => (0, claim),
                    ask if is_round_of(ask, id) => (1, round),
                    _ => return Pass,
                };
                let first = std::mem::take(&mut left[which]) == 1;
                if first { fault } else { Pass }
            });
            permits.add_permits(1);
            process.signal(&run, ONE, &1).await.expect("it is sent");
            process.signal(&run, TWO, &2).await.expect("it is sent");
            let what = format!("the end after {claim:?} and {round:?}");
            assert_eq!(soon(&what, run.result()).await.expect(&what), 3);
            process.store.mend();
            until("there is room", || async { process.metrics().live == 0 }).await;
            process.start(BUSY, &()).await.expect("it starts");
            until("there is no room", || async { process.metrics().live == 1 }).await;
        }
    }
}

async fn a_cancel_between_the_start_and_the_claim_is_heard(db: Db) {
    for beside in [true, false] {
        let (process, permits) = full(&db).await;
        let mut run = process.start(WAITS, &beside).await.expect("it starts");
        process.cancel(&run).await.expect("it is marked");
        permits.add_permits(1);
        let result = soon("the end", run.result()).await;
        assert!(
            matches!(result, Err(roundel::Error::Failed { .. })),
            "{result:?}"
        );
        process.shutdown().await;
    }
}

async fn a_run_that_is_deleted_between_the_start_and_the_claim_is_forgotten(db: Db) {
    let (process, permits) = full(&db).await;
    let run = process.start(WAITS, &true).await.expect("it starts");
    let mut other = process.start(WAITS, &true).await.expect("it starts");
    process.delete_forced(&run).await.expect("it is gone");
    permits.add_permits(1);
    process.signal(&other, ONE, &1).await.expect("it is sent");
    process.signal(&other, TWO, &2).await.expect("it is sent");
    assert_eq!(
        soon("the other", other.result()).await.expect("a result"),
        3
    );
    until("nobody is left", || async { process.metrics().live == 0 }).await;
}

async fn no_more_runs_are_worked_on_at_once_than_was_said(db: Db) {
    const ROOM: usize = 3;
    let at_once = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    let seen = at_once.clone();
    let crowd = move |cx: Cx, slow: u64| {
        let seen = seen.clone();
        async move {
            // Code that takes its time before its first call.
            std::thread::sleep(Duration::from_millis(slow));
            let effect = move |_| {
                let seen = seen.clone();
                async move {
                    let now = seen[0].fetch_add(1, Ordering::SeqCst) + 1;
                    seen[1].fetch_max(now, Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_millis(3)).await;
                    seen[0].fetch_sub(1, Ordering::SeqCst);
                    Ok::<_, Failure>(())
                }
            };
            cx.effect("look around", effect).await
        }
    };
    let set_up = db.start(|engine| engine.register(CROWD, crowd).concurrency(ROOM).lease(LONG));
    let process = set_up.await;
    let starts = (0..120).map(|n| process.start(CROWD, &(n % 3)).into_future());
    let mut runs = futures::future::try_join_all(starts)
        .await
        .expect("they start");
    for run in &mut runs {
        soon("the end of each", run.result())
            .await
            .expect("it ends");
    }
    assert_eq!(at_once[1].load(Ordering::SeqCst), ROOM);
}

/// A process for runs whose children count how often one of them was begun.
async fn with_children(db: &Db) -> (Process, Arc<AtomicUsize>) {
    let begun = Arc::new(AtomicUsize::new(0));
    let counted = begun.clone();
    let child = move |cx: Cx, number: u64| {
        counted.fetch_add(1, Ordering::SeqCst);
        async move {
            let work = |_| async move { Ok::<_, Failure>(number) };
            cx.effect("work", work).await
        }
    };
    let family = |cx: Cx, children: u64| async move {
        let children = (0..children).map(|number| cx.child(CHILD, &number));
        let numbers = try_join_all(children).await?;
        Ok(numbers.into_iter().sum())
    };
    let set_up = db.start(|engine| {
        let engine = engine.register(FAMILY, family).register(CHILD, child);
        engine.lease(LONG)
    });
    (set_up.await, begun)
}

async fn children_of_a_first_round_begin_without_their_journals(db: Db) {
    const CHILDREN: u64 = 40;
    let (process, begun) = with_children(&db).await;
    let mut run = process.start(FAMILY, &CHILDREN).await.expect("it starts");
    let sum = soon("its end", run.result()).await.expect("a result");
    assert_eq!(sum, CHILDREN * (CHILDREN - 1) / 2);
    assert_eq!(begun.load(Ordering::SeqCst) as u64, CHILDREN);
    // A claim that was on its way already may be too early for some.
    let metrics = process.metrics();
    assert!(metrics.found_in_memory >= CHILDREN / 2, "{metrics:?}");
}

async fn children_of_a_start_that_another_stands_for_are_not_begun(db: Db) {
    let (process, begun) = with_children(&db).await;
    for (key, children) in [("one", 3), ("one", 3), ("one", 3), ("two", 5)] {
        let start = process.start(FAMILY, &children).key(key);
        let mut run = start.await.expect("it starts");
        soon("its end", run.result()).await.expect("a result");
    }
    assert_eq!(begun.load(Ordering::SeqCst), 8);
}
