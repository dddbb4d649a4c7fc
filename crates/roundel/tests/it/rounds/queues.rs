//! More runs than a process works on at once: they wait, and nobody forgets them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use roundel::{Cx, EngineBuilder, Failure, Workflow};
use roundel_core::Op;
use roundel_store::Ask;
use tokio::sync::Semaphore;

use crate::support::{Db, Fault, all, soon};

const JOB: Workflow<u32, u32> = Workflow::named("job");
const JOBS: u32 = 300;
/// Takes up room until it is let go.
const HOLD: Workflow<(), bool> = Workflow::named("hold");
/// So many are worked on at once.
const ROOM: usize = 4;
/// A lease that is lost does not come back while a test waits.
const LONG: Duration = Duration::from_secs(3600);

/// How often each job's effect ran.
type Counts = Arc<Mutex<BTreeMap<u32, u32>>>;

fn worker(counts: &Counts) -> impl FnOnce(EngineBuilder) -> EngineBuilder {
    let counts = counts.clone();
    let job = move |cx: Cx, n: u32| {
        let counts = counts.clone();
        async move {
            let effect = move |_| {
                *counts.lock().unwrap().entry(n).or_default() += 1;
                async move { Ok::<_, Failure>(n * 2) }
            };
            cx.effect("count", effect).await
        }
    };
    |engine| engine.register(JOB, job).concurrency(ROOM).lease(LONG)
}

async fn send_all(process: &crate::support::Process) -> Vec<roundel::Handle<u32>> {
    let mut senders = tokio::task::JoinSet::new();
    for first in 0..20 {
        let client = process.client();
        senders.spawn(async move {
            let mut sent = Vec::new();
            for n in (first..JOBS).step_by(20) {
                sent.push((n, client.start(JOB, &n).await.expect("it starts")));
            }
            sent
        });
    }
    let mut sent: Vec<_> = senders.join_all().await.into_iter().flatten().collect();
    sent.sort_by_key(|(n, _)| *n);
    sent.into_iter().map(|(_, run)| run).collect()
}

async fn all_end(mut runs: Vec<roundel::Handle<u32>>) {
    for (n, run) in (0..).zip(&mut runs) {
        let result = soon("the end of every job", run.result()).await;
        assert_eq!(result.expect("a result"), n * 2);
    }
}

async fn a_queue_longer_than_the_room_is_worked_off_from_memory(db: Db) {
    let counts = Counts::default();
    let gate = Arc::new(Semaphore::new(0));
    let (work, held) = (worker(&counts), gate.clone());
    let hold = move |cx: Cx, (): ()| {
        let gate = held.clone();
        async move {
            let wait = move |_| {
                let gate = gate.clone();
                async move { Ok::<_, Failure>(gate.acquire().await.is_err()) }
            };
            cx.effect("hold", wait).await
        }
    };
    let process = db.start(|engine| work(engine).register(HOLD, hold)).await;
    let mut holding = Vec::new();
    for _ in 0..ROOM {
        holding.push(process.start(HOLD, &()).await.expect("it starts"));
    }
    let sent = send_all(&process).await;
    gate.close();
    all_end(sent).await;
    for run in &mut holding {
        soon("its end", run.result()).await.expect("it was let go");
    }
    let counts = counts.lock().unwrap().clone();
    assert!(counts.len() == JOBS as usize && counts.values().all(|times| *times == 1));
    let metrics = process.metrics();
    assert_eq!(
        (metrics.replays, metrics.leases_lost),
        (0, 0),
        "{metrics:?}"
    );
    assert!(metrics.found_in_memory > 0, "{metrics:?}");
}

async fn a_queue_is_worked_off_although_claims_and_rounds_fail(db: Db) {
    for every in [3_u64, 5, 7] {
        let counts = Counts::default();
        let process = db.start(worker(&counts)).await;
        // Each is as likely to fail as any other: a rhythm would hit every claim that brings as
        // many rounds along, and nothing else.
        let mut random = every;
        let mut left = 400;
        process.store.rule(move |ask| {
            if left == 0 || !matches!(ask, Ask::Op(Op::Claim(_) | Op::Commit(_))) {
                return Fault::Pass;
            }
            left -= 1;
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            if (random >> 33).is_multiple_of(every) {
                Fault::Unavailable
            } else {
                Fault::Pass
            }
        });
        all_end(send_all(&process).await).await;
        let counts = counts.lock().unwrap().clone();
        assert!(counts.len() == JOBS as usize && counts.values().all(|times| *times == 1));
        process.shutdown().await;
    }
}

async fn two_processes_work_off_one_queue_and_each_job_once(db: Db) {
    let counts = Counts::default();
    let processes = [
        db.start(worker(&counts)).await,
        db.start(worker(&counts)).await,
    ];
    let (one, other) = tokio::join!(send_all(&processes[0]), send_all(&processes[1]));
    all_end(one).await;
    all_end(other).await;
    let counts = counts.lock().unwrap().clone();
    assert!(counts.len() == JOBS as usize && counts.values().all(|times| *times == 2));
}

async fn what_is_delayed_or_urgent_waits_its_turn(db: Db) {
    let counts = Counts::default();
    let process = db.start(worker(&counts)).await;
    let late = process
        .start(JOB, &1000)
        .delay(LONG)
        .await
        .expect("it starts");
    let mut urgent = process
        .start(JOB, &2000)
        .priority(-5)
        .await
        .expect("it starts");
    all_end(send_all(&process).await).await;
    assert_eq!(
        soon("the urgent", urgent.result()).await.expect("it ends"),
        4000
    );
    assert!(
        !counts.lock().unwrap().contains_key(&1000),
        "not before its time"
    );
    process.cancel(&late).await.expect("it is let go");
}

async fn ro_13_a_process_that_stops_keeps_no_lease_however_busy_it_is(db: Db) {
    for round in 0..30 {
        let counts = Counts::default();
        let process = db.start(worker(&counts)).await;
        send_all(&process).await;
        tokio::time::sleep(Duration::from_micros(300 * round)).await;
        process.shutdown().await;
        let dump = db.dump().await;
        let leased = dump.runs.iter().filter(|run| run.owner.is_some()).count();
        assert_eq!(leased, 0, "after stop {round}");
    }
}

all![
    ro_13_a_process_that_stops_keeps_no_lease_however_busy_it_is,
    a_queue_longer_than_the_room_is_worked_off_from_memory,
    a_queue_is_worked_off_although_claims_and_rounds_fail,
    two_processes_work_off_one_queue_and_each_job_once,
    what_is_delayed_or_urgent_waits_its_turn,
];
