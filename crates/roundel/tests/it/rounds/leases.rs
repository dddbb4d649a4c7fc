//! Leases: one owner at a time; they end by commit, by release, by time, and a late owner is
//! harmless.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use roundel::{Cx, Failure, Result, RunState, Sent, Signal, Workflow};
use roundel_core::{Lease, Op, Release, Renew, Reply, WorkerId};
use roundel_store::{Ask, ask};
use tokio::sync::Semaphore;

use super::sound::assert_sound;
use crate::support::{Db, Fault, Process, all, is_round, soon, until};

const RUN: Workflow<u32, u32> = Workflow::named("run");
const WAIT: Workflow<u32, Vec<u32>> = Workflow::named("wait");
const GO: Signal<u32> = Signal::named("go");
const LEASE: Duration = Duration::from_millis(150);

all![
    ro_10_concurrent_processes_share_the_runs_and_none_is_run_twice,
    ro_10_a_process_without_room_takes_the_next_when_one_waits,
    ro_11_a_lease_ends_by_release,
    ro_11_taken_over_commit_renewal_and_release_of_the_first_change_nothing,
    ro_11_expired_and_not_taken_over_the_commit_counts_and_the_renewal_does_not,
    ro_12_renewal_keeps_a_long_effect,
    ro_12_a_frozen_worker_that_thaws_is_harmless,
    ro_14_what_arrives_during_a_round_is_kept_and_not_part_of_it,
    ro_15_what_comes_for_a_run_that_is_gone_recreates_nothing,
    ro_16_the_oldest_due_is_claimed_first_within_its_priority,
    b17_a_worker_that_was_taken_for_gone_makes_itself_known_again,
];

/// An effect that lasts until the gate opens, and a count of those begun.
#[derive(Clone)]
struct Slow {
    begun: Arc<AtomicU32>,
    gate: Arc<Semaphore>,
}

impl Slow {
    fn new() -> Slow {
        Slow {
            begun: Arc::default(),
            gate: Arc::new(Semaphore::new(0)),
        }
    }

    async fn start(&self, db: &Db, lease: Duration) -> Process {
        let slow = self.clone();
        let run = move |cx: Cx, n: u32| {
            let slow = slow.clone();
            async move {
                let effect = move |_| {
                    let slow = slow.clone();
                    async move {
                        slow.begun.fetch_add(1, Ordering::Relaxed);
                        slow.gate.acquire().await?.forget();
                        Ok::<_, Failure>(n)
                    }
                };
                cx.effect("slow", effect).await
            }
        };
        let set_up = db.start(|engine| {
            let engine = engine.register(RUN, run).lease(lease);
            engine.drain(Duration::ZERO)
        });
        set_up.await
    }

    async fn begins(&self, count: u32) {
        until("it runs", || async {
            self.begun.load(Ordering::Relaxed) == count
        })
        .await;
    }
}

async fn ro_10_concurrent_processes_share_the_runs_and_none_is_run_twice(db: Db) {
    let counts = Arc::new(Mutex::new(vec![[0_u32; 3]; 60]));
    let mut processes = Vec::new();
    for process in 0..3 {
        let counts = counts.clone();
        let run = move |cx: Cx, n: u32| {
            let counts = counts.clone();
            async move {
                let effect = move |_| {
                    counts.lock().unwrap()[n as usize][process] += 1;
                    async move {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                        Ok::<_, Failure>(n)
                    }
                };
                cx.effect("count", effect).await
            }
        };
        let set_up = db.start(|engine| engine.register(RUN, run).concurrency(2));
        processes.push(set_up.await);
    }
    let client = db.start(|engine| engine).await;
    let mut runs = Vec::new();
    for n in 0..60 {
        runs.push(client.start(RUN, &n).await.unwrap());
    }
    for (n, run) in runs.iter_mut().enumerate() {
        let result = soon("all", run.result()).await.unwrap();
        assert_eq!(result, u32::try_from(n).unwrap());
    }
    let counts = counts.lock().unwrap().clone();
    let once = counts.iter().all(|count| count.iter().sum::<u32>() == 1);
    assert!(once, "{counts:?}");
    let worked = |process: usize| counts.iter().any(|count| count[process] > 0);
    assert!((0..3).filter(|process| worked(*process)).count() > 1);
    assert_sound(&db).await;
}

async fn wait(cx: Cx, n: u32) -> Result<Vec<u32>> {
    let mut seen = Vec::new();
    for _ in 0..n {
        seen.push(cx.wait(GO).await?);
    }
    Ok(seen)
}

async fn ro_10_a_process_without_room_takes_the_next_when_one_waits(db: Db) {
    let set_up = db.start(|engine| engine.register(WAIT, wait).concurrency(1));
    let process = set_up.await;
    let mut runs = Vec::new();
    for _ in 0..5 {
        runs.push(process.start(WAIT, &1).await.unwrap());
    }
    until("all wait", || async {
        let page = process.runs().in_state(RunState::Waiting).fetch().await;
        page.unwrap().items.len() == 5
    })
    .await;
    for (n, run) in (0..).zip(&mut runs) {
        process.signal(&*run, GO, &n).await.unwrap();
        assert_eq!(soon("its signal", run.result()).await.unwrap(), [n]);
    }
    assert_sound(&db).await;
}

async fn ro_11_a_lease_ends_by_release(db: Db) {
    let slow = Slow::new();
    let first = slow.start(&db, Duration::from_secs(3600)).await;
    let run = first.start(RUN, &7).await.unwrap().id();
    slow.begins(1).await;
    first.shutdown().await;
    let second = slow.start(&db, Duration::from_secs(3600)).await;
    slow.begins(2).await;
    slow.gate.add_permits(1);
    let mut run = second.handle(RUN, run).await.unwrap();
    assert_eq!(soon("the end", run.result()).await.unwrap(), 7);
    assert!(!assert_sound(&db).await.runs[0].suspect);
}

fn owner(db_runs: &[roundel_core::RunRow]) -> WorkerId {
    db_runs[0].owner.expect("an owner")
}

async fn ro_11_taken_over_commit_renewal_and_release_of_the_first_change_nothing(db: Db) {
    let db = db.with_manual_clock();
    let slow = Slow::new();
    let first = slow.start(&db, LEASE).await;
    let run = first.start(RUN, &7).await.unwrap().id();
    slow.begins(1).await;
    let old = owner(&db.dump().await.runs);
    first.store.rule(|_| Fault::Hold);
    first.store.settled().await;
    db.advance(LEASE);
    let second = slow.start(&db, Duration::from_secs(3600)).await;
    slow.begins(2).await;
    let before = db.dump().await.runs;
    assert_ne!(owner(&before), old);
    let runs = vec![run];
    let (lease, leave) = (LEASE, false);
    let renewed = ask(
        &*second.store,
        Op::Renew(Renew {
            worker: old,
            runs: runs.clone(),
            lease,
        }),
    );
    let Ok(Reply::Renewed(renewed)) = renewed else {
        panic!("{renewed:?}")
    };
    assert_eq!(renewed[0].lease, Lease::Lost);
    let release = Op::Release(Release {
        worker: old,
        runs,
        leave,
    });
    assert_eq!(ask(&*second.store, release), Ok(Reply::Released(0)));
    // Its result comes too late, and so does all that it was about to ask.
    slow.gate.add_permits(1);
    until("its commit is held", || async {
        first.store.holds(is_round)
    })
    .await;
    first.store.mend();
    first.store.release();
    until("it noticed", || async { first.metrics().leases_lost > 0 }).await;
    first.shutdown().await;
    assert_eq!(db.dump().await.runs, before);
    slow.gate.add_permits(1);
    let mut run = second.handle(RUN, run).await.unwrap();
    assert_eq!(soon("the end", run.result()).await.unwrap(), 7);
    assert_sound(&db).await;
}

async fn ro_11_expired_and_not_taken_over_the_commit_counts_and_the_renewal_does_not(db: Db) {
    let db = db.with_manual_clock();
    let slow = Slow::new();
    let process = slow.start(&db, LEASE).await;
    let mut run = process.start(RUN, &7).await.unwrap();
    slow.begins(1).await;
    process.store.rule(|ask| match ask {
        Ask::Op(Op::Renew(_) | Op::Claim(_)) => Fault::Unavailable,
        _ => Fault::Pass,
    });
    process.store.settled().await;
    db.advance(LEASE * 3);
    let worker = owner(&db.dump().await.runs);
    let (runs, lease) = (vec![run.id()], LEASE);
    let other = db.open();
    let renewed = ask(
        &*other,
        Op::Renew(Renew {
            worker,
            runs,
            lease,
        }),
    );
    let Ok(Reply::Renewed(renewed)) = renewed else {
        panic!("{renewed:?}")
    };
    assert_eq!(renewed[0].lease, Lease::Lost, "it is not revived");
    slow.gate.add_permits(1);
    assert_eq!(soon("the end", run.result()).await.unwrap(), 7);
    assert_eq!(slow.begun.load(Ordering::Relaxed), 1);
    assert_eq!(process.metrics().rounds_fenced, 0);
    assert_sound(&db).await;
}

async fn ro_12_renewal_keeps_a_long_effect(db: Db) {
    let db = db.with_manual_clock();
    let slow = Slow::new();
    let renewals = Arc::new(AtomicU32::new(0));
    let first = slow.start(&db, LEASE).await;
    let count = renewals.clone();
    first.store.rule(move |ask| {
        let renewal = matches!(ask, Ask::Op(Op::Renew(_)));
        count.fetch_add(u32::from(renewal), Ordering::Relaxed);
        Fault::Pass
    });
    let mut run = first.start(RUN, &7).await.unwrap();
    slow.begins(1).await;
    let second = slow.start(&db, LEASE).await;
    // Two renewals begin after the time has passed: the first of them has been answered.
    for _ in 0..5 {
        let before = renewals.load(Ordering::Relaxed);
        until("it renewed", || async {
            renewals.load(Ordering::Relaxed) > before + 1
        })
        .await;
        db.advance(LEASE - Duration::from_millis(1));
    }
    slow.gate.add_permits(1);
    assert_eq!(soon("the end", run.result()).await.unwrap(), 7);
    assert_eq!(slow.begun.load(Ordering::Relaxed), 1, "nobody took it");
    second.shutdown().await;
    assert_sound(&db).await;
}

async fn ro_12_a_frozen_worker_that_thaws_is_harmless(db: Db) {
    let db = db.with_manual_clock();
    let slow = Slow::new();
    let first = slow.start(&db, LEASE).await;
    let mut runs = Vec::new();
    for n in 0..5 {
        runs.push(first.start(RUN, &n).await.unwrap());
    }
    slow.begins(5).await;
    first.store.rule(|_| Fault::Hold);
    slow.gate.add_permits(100);
    until("it is frozen", || async { first.store.held() >= 5 }).await;
    first.store.settled().await;
    db.advance(LEASE * 3);
    let second = slow.start(&db, LEASE).await;
    for (n, run) in (0..).zip(&runs) {
        let mut run = second.handle(RUN, run).await.unwrap();
        assert_eq!(db.meanwhile("it", run.result()).await.unwrap(), n);
    }
    second.shutdown().await;
    let before = assert_sound(&db).await;
    first.store.mend();
    first.store.release();
    for (n, run) in (0..).zip(&mut runs) {
        assert_eq!(db.meanwhile("it", run.result()).await.unwrap(), n);
    }
    let after = assert_sound(&db).await;
    assert_eq!(before.runs, after.runs);
    assert_eq!(before.journal, after.journal);
    // It goes on with what is new.
    let mut run = first.start(RUN, &9).await.unwrap();
    assert_eq!(db.meanwhile("it", run.result()).await.unwrap(), 9);
}

async fn ro_14_what_arrives_during_a_round_is_kept_and_not_part_of_it(db: Db) {
    let process = db.start(|engine| engine.register(WAIT, wait)).await;
    let mut run = process.start(WAIT, &3).await.unwrap();
    process.store.once(Fault::Hold, is_round);
    let sent = process.signal(&run, GO, &1).await.unwrap();
    assert_eq!(sent, Sent::Delivered(run.id()));
    until("a round is held", || async { process.store.held() == 1 }).await;
    for value in [2, 3] {
        let sent = process.signal(&run, GO, &value).await.unwrap();
        assert_eq!(sent, Sent::Queued);
    }
    process.store.release();
    assert_eq!(soon("all", run.result()).await.unwrap(), [1, 2, 3]);
    let dump = assert_sound(&db).await;
    // One round for each: nothing came into a round that was under way.
    assert_eq!(dump.journal.len(), 4, "{:?}", dump.journal);
}

async fn ro_15_what_comes_for_a_run_that_is_gone_recreates_nothing(db: Db) {
    const WATCH: Workflow<roundel::RunId, u32> = Workflow::named("watch");
    let slow = Slow::new();
    let process = slow.start(&db, Duration::from_secs(30)).await;
    let watch = |cx: Cx, run| async move { cx.wait_for::<u32>(run).await };
    let other = db.start(|engine| engine.register(WATCH, watch)).await;
    let mut kept = process.start(RUN, &1).await.unwrap();
    let gone = process.start(RUN, &2).await.unwrap();
    slow.begins(2).await;
    let watcher = other.start(WATCH, &kept.id()).await.unwrap();
    until("it watches", || async {
        other.run(&watcher).await.unwrap().row.state == RunState::Waiting
    })
    .await;
    for run in [gone.id(), watcher.id()] {
        assert_eq!(other.delete_forced(run).await.unwrap(), 1);
    }
    slow.gate.add_permits(100);
    assert_eq!(soon("the end", kept.result()).await.unwrap(), 1);
    until("it is counted", || async {
        let seen = process.metrics();
        seen.rounds_fenced + seen.leases_lost > 0
    })
    .await;
    let dump = assert_sound(&db).await;
    assert_eq!(dump.runs.len(), 1);
    assert_eq!((dump.mail.len(), dump.watches.len()), (0, 0));
    let sent = process.signal(gone.id(), GO, &1).await.unwrap();
    assert_eq!(sent, Sent::TargetUnknown);
}

async fn ro_16_the_oldest_due_is_claimed_first_within_its_priority(db: Db) {
    let db = db.with_manual_clock();
    let client = db.start(|engine| engine).await;
    // In this order by time: 1, 2, 3, 4; by priority 3, then 1 and 4 and a late 2.
    for (n, priority, delay) in [(1, 0, 0), (2, 0, 60), (3, -5, 0), (4, 0, 0), (5, 7, 0)] {
        let start = client.start(RUN, &n).priority(priority);
        start.delay(Duration::from_secs(delay)).await.unwrap();
        db.advance(Duration::from_secs(1));
    }
    db.advance(Duration::from_secs(60));
    let order = Arc::new(Mutex::new(Vec::new()));
    let seen = order.clone();
    let run = move |_: Cx, n: u32| {
        seen.lock().unwrap().push(n);
        async move { Ok::<_, Failure>(n) }
    };
    let set_up = db.start(|engine| engine.register(RUN, run).concurrency(1));
    let worker = set_up.await;
    until("all ran", || async { order.lock().unwrap().len() == 5 }).await;
    assert_eq!(*order.lock().unwrap(), [3, 1, 4, 2, 5]);
    worker.shutdown().await;
}

async fn b17_a_worker_that_was_taken_for_gone_makes_itself_known_again(db: Db) {
    let run = |_: Cx, n: u32| async move { Ok(n) };
    let process = db.start(|engine| engine.register(RUN, run)).await;
    let client = db.start(|engine| engine).await;
    let worker = process.workers().await.unwrap()[0].id;
    let leave = Release {
        worker,
        runs: Vec::new(),
        leave: true,
    };
    ask(&*client.store, Op::Release(leave)).unwrap();
    assert!(process.workers().await.unwrap().is_empty());
    let mut handle = client.start(RUN, &7).await.unwrap();
    assert_eq!(soon("its end", handle.result()).await.unwrap(), 7);
    assert_eq!(process.workers().await.unwrap()[0].id, worker);
    client.shutdown().await;
    process.shutdown().await;
}
