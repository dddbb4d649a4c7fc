//! Metrics: every outcome is counted by its class, and gauges follow.

use std::sync::Arc;
use std::time::Duration;

use roundel::{Cx, Failure, Metrics, Result, Retry, Signal, Workflow};
use roundel_core::Op;
use roundel_store::Ask;
use tokio::sync::Semaphore;

use crate::support::{Db, Fault, Process, all, is_round, is_round_of, soon, until};

const DO: Workflow<String, u32> = Workflow::named("do");
const WAIT: Workflow<(), u32> = Workflow::named("wait");
const GO: Signal<u32> = Signal::named("go");

all![
    ro_53_runs_are_counted_by_how_they_end,
    ro_53_failures_are_counted_by_class,
    ro_53_claims_are_counted_by_result,
    ro_53_rounds_and_lost_leases_are_counted,
    ro_53_gauges_follow,
    ro_53_the_time_waited_for_the_store_is_a_histogram,
];

/// Does what is asked for.
async fn act(cx: Cx, what: String) -> Result<u32> {
    let retry = Retry::fixed(3, Duration::from_millis(1));
    let fail = |failure: Failure| {
        let effect = cx.effect("fail", move |_| {
            let failure = failure.clone();
            async move { Err::<u32, _>(failure) }
        });
        effect.retry(retry)
    };
    match what.as_str() {
        "wait" => cx.wait(GO).await,
        "business" => fail(Failure::business("no")).await,
        "permanent" => fail(Failure::permanent("broken")).await,
        "transient" => fail(Failure::transient("slow")).await,
        "step" => {
            let step = cx.step("fail", |_| async { Err::<u32, _>(Failure::business("no")) });
            step.await
        }
        "slow" => {
            let slow = cx.effect("slow", |_| std::future::pending::<Result<u32>>());
            slow.timeout(Duration::from_millis(5)).await
        }
        _ => Ok(1),
    }
}

async fn start(db: &Db) -> Process {
    db.start(|engine| engine.register(DO, act)).await
}

/// Runs this to its end, or until it is parked.
async fn run(process: &Process, what: &str) {
    let mut run = process.start(DO, &what.to_owned()).await.unwrap();
    let _ = soon(what, run.result()).await;
}

/// Waits until it has been counted: that comes after the answer.
async fn counted(process: &Process, what: &str, so: impl Fn(&Metrics) -> bool) {
    until(what, || async { so(&process.metrics()) }).await;
}

async fn ro_53_runs_are_counted_by_how_they_end(db: Db) {
    let process = start(&db).await;
    run(&process, "complete").await;
    run(&process, "business").await;
    run(&process, "permanent").await;
    let waits = process.start(DO, &"wait".to_owned()).await.unwrap();
    process.cancel(&waits).await.unwrap();
    // One that does not begin here at once is counted too.
    let late = process.start(DO, &String::new());
    late.delay(Duration::from_millis(1)).await.unwrap();
    counted(&process, "all ends are counted", |seen| {
        let ended = (seen.runs_completed, seen.runs_failed, seen.runs_cancelled);
        (ended, seen.runs_parked, seen.runs_started) == ((2, 1, 1), 1, 5)
    })
    .await;
    // The same start again starts nothing.
    for _ in 0..2 {
        let again = process.start(DO, &String::new()).key("it");
        again.delay(Duration::from_millis(1)).await.unwrap();
    }
    counted(&process, "it is counted once", |seen| {
        seen.runs_started == 6
    })
    .await;
}

async fn ro_53_failures_are_counted_by_class(db: Db) {
    let process = start(&db).await;
    let classes = |seen: Metrics| {
        (
            seen.failures_business,
            seen.failures_transient,
            seen.failures_permanent,
        )
    };
    for (what, expected) in [
        ("business", (1, 0, 0)),
        ("step", (2, 0, 0)),
        ("permanent", (2, 0, 1)),
        // Two that may pass, and the one with which they are used up.
        ("transient", (2, 2, 2)),
        ("slow", (2, 2, 3)),
    ] {
        run(&process, what).await;
        assert_eq!(classes(process.metrics()), expected, "{what}");
    }
}

async fn ro_53_claims_are_counted_by_result(db: Db) {
    let db = db.with_manual_clock();
    let process = start(&db).await;
    counted(&process, "one that found nothing", |seen| {
        seen.claims_empty > 0 && seen.claims_with_runs == 0
    })
    .await;
    let client = db.start(|engine| engine).await;
    client.start(DO, &String::new()).await.unwrap();
    counted(&process, "one that found it", |seen| {
        seen.claims_with_runs == 1
    })
    .await;
    let is_claim = |ask: &Ask| matches!(ask, Ask::Op(Op::Claim(_)));
    process.store.once(Fault::Unavailable, is_claim);
    client.start(DO, &String::new()).await.unwrap();
    counted(&process, "one that failed", |seen| seen.claims_failed == 1).await;
    let again = until("it is tried again", || async {
        process.metrics().claims_with_runs == 2
    });
    db.meanwhile("another", again).await;
}

async fn ro_53_rounds_and_lost_leases_are_counted(db: Db) {
    let db = db.with_manual_clock();
    let process = start(&db).await;
    run(&process, "complete").await;
    counted(&process, "one round", |seen| seen.rounds == 1).await;
    process.store.once(Fault::Unavailable, |ask| {
        matches!(ask, Ask::Op(Op::Commit(_)))
    });
    let business = process.start(DO, &"business".to_owned()).await.unwrap();
    let mut business = process.handle(DO, &business).await.unwrap();
    let result = db.meanwhile("it is sent again", business.result()).await;
    result.unwrap_err();
    counted(&process, "two more", |seen| {
        (seen.rounds, seen.rounds_retried) == (3, 1)
    })
    .await;
    // Frozen until somebody else has it.
    process.store.rule(|ask| match ask {
        Ask::Op(Op::Start(_)) => Fault::Pass,
        _ => Fault::Hold,
    });
    let run = process.start(DO, &"business".to_owned()).await.unwrap();
    until("its round is held", || async {
        process.store.holds(|ask| is_round_of(ask, run.id()))
    })
    .await;
    process.store.settled().await;
    db.advance(Duration::from_secs(31));
    let other = start(&db).await;
    let mut taken = other.handle(DO, &run).await.unwrap();
    let result = db.meanwhile("the end", taken.result()).await;
    result.unwrap_err();
    process.store.mend();
    process.store.release();
    counted(&process, "it lost", |seen| {
        (seen.rounds_fenced, seen.leases_lost) == (1, 1)
    })
    .await;
    assert_eq!(other.metrics().replays, 1);
}

async fn ro_53_gauges_follow(db: Db) {
    let gate = Arc::new(Semaphore::new(0));
    let held = gate.clone();
    let wait = move |cx: Cx, (): ()| {
        let held = held.clone();
        async move {
            let signal = cx.wait(GO).await?;
            let effect = move |_| {
                let held = held.clone();
                async move {
                    held.acquire().await?.forget();
                    Ok::<_, Failure>(signal)
                }
            };
            cx.effect("hold", effect).await
        }
    };
    let process = db.start(|engine| engine.register(WAIT, wait)).await;
    let mut runs = Vec::new();
    for _ in 0..3 {
        runs.push(process.start(WAIT, &()).await.unwrap());
    }
    counted(&process, "three wait", |seen| {
        (seen.live, seen.cached) == (0, 3)
    })
    .await;
    for run in &runs[..2] {
        process.signal(run, GO, &1).await.unwrap();
    }
    counted(&process, "two are worked on", |seen| {
        (seen.live, seen.cached, seen.found_in_memory) == (2, 1, 2)
    })
    .await;
    gate.add_permits(2);
    counted(&process, "one is left", |seen| {
        (seen.live, seen.cached) == (0, 1)
    })
    .await;
    process.shutdown().await;
    assert_eq!(process.metrics().cached, 0);
}

async fn ro_53_the_time_waited_for_the_store_is_a_histogram(db: Db) {
    let process = start(&db).await;
    for _ in 0..5 {
        run(&process, "complete").await;
    }
    let before = process.metrics().store_waits;
    assert!(before.count() >= 5, "{before:?}");
    let sum: u64 = before.buckets().map(|(_, count)| count).sum();
    assert_eq!(sum, before.count());
    // One that the store holds for a while is in a bucket of its own.
    process.store.once(Fault::Hold, is_round);
    let client = process.client();
    let held = tokio::spawn(async move { client.start(DO, &String::new()).await });
    until("it is held", || async { process.store.held() == 1 }).await;
    tokio::time::sleep(Duration::from_millis(60)).await;
    process.store.release();
    held.await.unwrap().unwrap();
    let after = process.metrics().store_waits;
    assert!(after.total() >= before.total() + Duration::from_millis(60));
    let slow = |waits: roundel::Waits| {
        let slow = waits
            .buckets()
            .filter(|(most, _)| most.is_none_or(|most| most >= Duration::from_millis(60)));
        slow.map(|(_, count)| count).sum::<u64>()
    };
    assert!(slow(after) > slow(before), "{after:?}");
}
