//! Limits of queues hold for all processes, and are changed while they work.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use roundel::{Attempt, Command, Cx, Error, Failure, Name, Refusal, Result, RunState, Workflow};
use tokio::sync::Semaphore;

use crate::rounds::sound::assert_sound;
use crate::support::{Db, Process, all, soon, until};

const PACK: Command<u32, u32> = Command::named("pack");
const SHIP: Command<u32, u32> = Command::named("ship");
const WORKS: Workflow<u32, u32> = Workflow::named("works");
const AT_ONCE: Workflow<u32, u32> = Workflow::named("at_once");

all![
    co_30_co_06_no_more_are_in_hand_than_the_limit_in_all_processes,
    co_30_what_is_paused_waits_and_other_queues_do_not,
    co_30_whoever_starts_a_run_here_does_not_run_what_it_was_not_given,
    co_30_a_queue_is_limited_while_it_works,
    co_30_a_rate_is_kept,
    co_30_no_more_of_a_flow_key_are_in_hand_than_may_be,
    co_30_a_busy_flow_key_does_not_keep_another_waiting,
    co_30_priority_and_delay_hold_in_a_queue_with_limits,
    co_30_k7_the_permits_of_a_process_that_is_lost_come_back,
    co_30_a_command_that_waits_for_a_permit_can_be_cancelled,
    co_30_what_is_paused_and_resumed_is_audited_and_what_cannot_be_is_refused,
];

/// Counts what is in hand, and lets through as many as it is told.
#[derive(Clone)]
struct Bench {
    in_hand: Arc<AtomicU32>,
    most: Arc<AtomicU32>,
    done: Arc<AtomicU32>,
    go: Arc<Semaphore>,
}

impl Bench {
    fn new() -> Bench {
        Bench {
            in_hand: Arc::default(),
            most: Arc::default(),
            done: Arc::default(),
            go: Arc::new(Semaphore::new(0)),
        }
    }

    async fn pack(self, number: u32) -> Result<u32> {
        let in_hand = self.in_hand.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(in_hand, Ordering::SeqCst);
        let may = self.go.acquire().await.expect("it stays open");
        may.forget();
        self.in_hand.fetch_sub(1, Ordering::SeqCst);
        self.done.fetch_add(1, Ordering::SeqCst);
        Ok(number)
    }

    fn in_hand(&self) -> u32 {
        self.in_hand.load(Ordering::SeqCst)
    }

    fn most(&self) -> u32 {
        self.most.load(Ordering::SeqCst)
    }

    async fn start(&self, db: &Db) -> Process {
        self.start_with(db, Duration::from_secs(30)).await
    }

    async fn start_with(&self, db: &Db, lease: Duration) -> Process {
        let bench = self.clone();
        let set_up = db.start(|engine| {
            let packs = move |_: Attempt, number| bench.clone().pack(number);
            let ships = |_: Attempt, number: u32| async move { Ok::<_, roundel::Failure>(number) };
            engine.handle(PACK, packs).handle(SHIP, ships).lease(lease)
        });
        set_up.await
    }
}

async fn permits(process: &Process) -> u32 {
    process.queues().await.unwrap()[0].permits
}

async fn co_30_co_06_no_more_are_in_hand_than_the_limit_in_all_processes(db: Db) {
    let bench = Bench::new();
    let (one, two) = (bench.start(&db).await, bench.start(&db).await);
    one.queue(PACK).concurrency(3).set().await.unwrap();
    let mut sent = Vec::new();
    for number in 0..20 {
        let by = if number % 2 == 0 { &one } else { &two };
        sent.push(by.send(PACK, &number).await.unwrap());
    }
    until("three are in hand", || async { bench.in_hand() == 3 }).await;
    assert_eq!(permits(&two).await, 3);
    bench.go.add_permits(20);
    for (number, handle) in (0..).zip(&mut sent) {
        assert_eq!(soon("reply", handle.result()).await.unwrap(), number);
    }
    assert_eq!(bench.most(), 3);
    until("all permits are back", || async {
        permits(&one).await == 0
    })
    .await;
    assert_sound(&db).await;
}

async fn co_30_what_is_paused_waits_and_other_queues_do_not(db: Db) {
    let bench = Bench::new();
    let process = bench.start(&db).await;
    bench.go.add_permits(9);
    process.queue(PACK).pause().await.unwrap();
    let mut packed = process.send(PACK, &1).await.unwrap();
    let mut shipped = process.send(SHIP, &2).await.unwrap();
    assert_eq!(soon("reply", shipped.result()).await.unwrap(), 2);
    assert_eq!(
        process.run(packed.id()).await.unwrap().row.state,
        RunState::Ready
    );
    assert_eq!(bench.most(), 0);
    process.queue(PACK).resume().await.unwrap();
    assert_eq!(soon("reply", packed.result()).await.unwrap(), 1);
    assert_sound(&db).await;
}

/// A start that finds a free slot here brings its run to the first call before it is committed.
async fn co_30_whoever_starts_a_run_here_does_not_run_what_it_was_not_given(db: Db) {
    let begun = Arc::new(AtomicU32::new(0));
    let counted = begun.clone();
    let process = db
        .start(|engine| {
            let effect = move |cx: Cx, number: u32| {
                let begun = counted.clone();
                async move {
                    let work = || async { Ok::<_, Failure>(begun.fetch_add(1, Ordering::SeqCst)) };
                    cx.effect("work", |_| work()).await?;
                    Ok::<_, Failure>(number)
                }
            };
            let at_once = |_: Cx, number: u32| async move { Ok::<_, Failure>(number) };
            let engine = engine.register(WORKS, effect).register(AT_ONCE, at_once);
            engine.handle(
                SHIP,
                |_: Attempt, n: u32| async move { Ok::<_, Failure>(n) },
            )
        })
        .await;
    for workflow in ["works", "at_once"].map(Name::constant) {
        process.queue_named(workflow).pause().await.unwrap();
    }
    let mut works = process.start(WORKS, &1).await.unwrap();
    let mut at_once = process.start(AT_ONCE, &2).await.unwrap();
    let mut shipped = process.send(SHIP, &3).await.unwrap();
    assert_eq!(soon("reply", shipped.result()).await.unwrap(), 3);
    for run in [works.id(), at_once.id()] {
        let row = process.run(run).await.unwrap().row;
        assert_eq!((row.state, row.epoch, row.head), (RunState::Ready, 0, 1));
    }
    assert_eq!(begun.load(Ordering::SeqCst), 0);
    for workflow in ["works", "at_once"].map(Name::constant) {
        process.queue_named(workflow).resume().await.unwrap();
    }
    assert_eq!(soon("end", works.result()).await.unwrap(), 1);
    assert_eq!(soon("end", at_once.result()).await.unwrap(), 2);
    assert_eq!(begun.load(Ordering::SeqCst), 1);
    assert_sound(&db).await;
}

async fn co_30_a_queue_is_limited_while_it_works(db: Db) {
    let bench = Bench::new();
    let process = bench.start(&db).await;
    process.queue(PACK).concurrency(1).set().await.unwrap();
    let mut sent = Vec::new();
    for number in 0..6 {
        sent.push(process.send(PACK, &number).await.unwrap());
    }
    until("one is in hand", || async { bench.in_hand() == 1 }).await;
    process.queue(PACK).concurrency(4).set().await.unwrap();
    until("four are in hand", || async { bench.in_hand() == 4 }).await;
    process.queue(PACK).any_concurrency().set().await.unwrap();
    until("all are in hand", || async { bench.in_hand() == 6 }).await;
    bench.go.add_permits(6);
    for handle in &mut sent {
        soon("reply", handle.result()).await.unwrap();
    }
    assert_sound(&db).await;
}

async fn co_30_a_rate_is_kept(db: Db) {
    let bench = Bench::new();
    let process = bench.start(&db).await;
    bench.go.add_permits(9);
    let share = Duration::from_millis(40);
    process.queue(PACK).rate(2, share * 2).set().await.unwrap();
    let began = db.now();
    let mut sent = Vec::new();
    for number in 0..5 {
        sent.push(process.send(PACK, &number).await.unwrap());
    }
    for handle in &mut sent {
        soon("reply", handle.result()).await.unwrap();
    }
    // Two at once, and three that each wait for their share. A server's clock is not quite ours.
    assert!(db.now().since(began) >= share * 5 / 2);
    assert_sound(&db).await;
}

async fn co_30_no_more_of_a_flow_key_are_in_hand_than_may_be(db: Db) {
    let bench = Bench::new();
    let (one, two) = (bench.start(&db).await, bench.start(&db).await);
    one.queue(PACK).per_key(1).set().await.unwrap();
    let mut sent = Vec::new();
    for number in 0..12 {
        let by = if number % 2 == 0 { &one } else { &two };
        let key = ["ada", "bob", "eve"][number as usize % 3];
        sent.push(by.send(PACK, &number).flow_key(key).await.unwrap());
    }
    until("one of each is in hand", || async { bench.in_hand() == 3 }).await;
    let by_key = two.queues().await.unwrap().remove(0).by_key;
    let ones = ["ada", "bob", "eve"].map(|key| (Some(Name::constant(key)), 1));
    assert_eq!(by_key, ones.into());
    bench.go.add_permits(12);
    for (number, handle) in (0..).zip(&mut sent) {
        assert_eq!(soon("reply", handle.result()).await.unwrap(), number);
    }
    assert_eq!(bench.most(), 3);
    assert_sound(&db).await;
}

async fn co_30_a_busy_flow_key_does_not_keep_another_waiting(db: Db) {
    let order: Arc<Mutex<Vec<u32>>> = Arc::default();
    let sender = db.start(|engine| engine).await;
    sender.queue(PACK).concurrency(1).set().await.unwrap();
    let mut sent = Vec::new();
    for number in 0..20 {
        let busy = sender.send(PACK, &number).flow_key("busy");
        sent.push(busy.await.unwrap().id());
    }
    let quiet = sender.send(PACK, &99).flow_key("quiet");
    sent.push(quiet.await.unwrap().id());
    let noted = order.clone();
    let process = db
        .start(|engine| {
            let packs = move |_: Attempt, number: u32| {
                noted.lock().unwrap().push(number);
                async move { Ok::<_, Failure>(number) }
            };
            engine.handle(PACK, packs)
        })
        .await;
    for id in sent {
        until("it has ended", || async {
            process.run(id).await.unwrap().row.state.has_ended()
        })
        .await;
    }
    let order = order.lock().unwrap().clone();
    assert_eq!(order[..3], [0, 99, 1], "{order:?}");
    assert_sound(&db).await;
}

async fn co_30_priority_and_delay_hold_in_a_queue_with_limits(db: Db) {
    let bench = Bench::new();
    let process = bench.start(&db).await;
    process.queue(PACK).pause().await.unwrap();
    let later = Duration::from_secs(3600);
    let delayed = process.send(PACK, &1).delay(later).priority(-9);
    let delayed = delayed.await.unwrap();
    let mut usual = process.send(PACK, &2).await.unwrap();
    let mut urgent = process.send(PACK, &3).priority(-1).await.unwrap();
    process.queue(PACK).concurrency(1).set().await.unwrap();
    process.queue(PACK).resume().await.unwrap();
    until("one is in hand", || async { bench.in_hand() == 1 }).await;
    let state = process.run(urgent.id()).await.unwrap().row.state;
    assert_eq!(state, RunState::Running);
    bench.go.add_permits(2);
    assert_eq!(soon("reply", urgent.result()).await.unwrap(), 3);
    assert_eq!(soon("reply", usual.result()).await.unwrap(), 2);
    let row = process.run(delayed.id()).await.unwrap().row;
    assert_eq!((row.state, row.head), (RunState::Ready, 1));
    process.cancel(delayed.id()).await.unwrap();
    assert_sound(&db).await;
}

async fn co_30_k7_the_permits_of_a_process_that_is_lost_come_back(db: Db) {
    let lost = Bench::new();
    let lease = Duration::from_secs(1);
    let first = lost.start_with(&db, lease).await;
    first.queue(PACK).concurrency(2).set().await.unwrap();
    let mut ids = Vec::new();
    for number in 0..4 {
        ids.push(first.send(PACK, &number).await.unwrap().id());
    }
    until("two are in hand", || async { lost.in_hand() >= 2 }).await;
    first.crash();
    let bench = Bench::new();
    bench.go.add_permits(9);
    let second = bench.start_with(&db, lease).await;
    until("all are done", || async {
        let mut done = 0;
        for id in &ids {
            let state = second.run(*id).await.unwrap().row.state;
            done += u32::from(state == RunState::Completed);
        }
        done == 4
    })
    .await;
    assert!(bench.most() <= 2);
    assert_sound(&db).await;
}

async fn co_30_a_command_that_waits_for_a_permit_can_be_cancelled(db: Db) {
    let bench = Bench::new();
    let process = bench.start(&db).await;
    process.queue(PACK).concurrency(1).set().await.unwrap();
    let mut first = process.send(PACK, &1).await.unwrap();
    until("it is in hand", || async { bench.in_hand() == 1 }).await;
    let mut second = process.send(PACK, &2).await.unwrap();
    let mut third = process.send(PACK, &3).await.unwrap();
    process.cancel(second.id()).await.unwrap();
    let failure = soon("end", second.result()).await.unwrap_err();
    assert!(failure.to_string().contains("cancelled"), "{failure}");
    bench.go.add_permits(2);
    assert_eq!(soon("reply", first.result()).await.unwrap(), 1);
    assert_eq!(soon("reply", third.result()).await.unwrap(), 3);
    assert_sound(&db).await;
}

async fn co_30_what_is_paused_and_resumed_is_audited_and_what_cannot_be_is_refused(db: Db) {
    let bench = Bench::new();
    let process = bench.start(&db).await;
    let ada = process.operator("ada").unwrap().reason("stock-taking");
    ada.queue(PACK).pause().await.unwrap();
    ada.queue(PACK).resume().await.unwrap();
    let zero = ada.queue(PACK).concurrency(0).set().await.unwrap_err();
    assert!(
        matches!(zero, Error::Refused(Refusal::Zero { .. })),
        "{zero}"
    );
    assert!(zero.to_string().contains("pause the queue"), "{zero}");
    let rows = process.audit().fetch().await.unwrap().items;
    let told: Vec<_> = rows
        .iter()
        .map(|(_, row)| (&*row.action, &*row.answer))
        .collect();
    assert_eq!(told, [("pause", "paused"), ("resume", "no limits")]);
    assert_eq!(
        (&*rows[0].1.target, &*rows[0].1.reason),
        ("pack", "stock-taking")
    );
    assert_sound(&db).await;
}
