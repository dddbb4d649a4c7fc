//! A run that keeps killing its worker is found out and parked, without its neighbours being
//! blamed; and a journal that nobody can read.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use roundel::{
    Cx, Error, Failure, Name, Result, RunId, RunState, Signal, Timestamp, Workflow, limits,
};
use roundel_core::{Claim, Lane, Op, Register, Reply, Round, Then, WorkerId};
use roundel_store::{Ask, Store, ask};
use tokio::sync::Semaphore;

use super::sound::assert_sound;
use crate::support::{Db, Fault, Faulty, Process, all, is_round_of, soon, until};

const POISON: Workflow<u32, u32> = Workflow::named("poison");
const INNOCENT: Workflow<u32, u32> = Workflow::named("innocent");
const GO: Signal<u32> = Signal::named("go");
const LEASE: Duration = Duration::from_secs(60);

all![
    ro_13_a_run_that_kills_its_worker_is_parked_and_its_neighbours_are_not,
    ro_13_progress_resets_the_count,
    ro_13_release_and_shutdown_never_count,
    ro_13_troubles_of_the_store_never_count,
    ro_13_a_suspect_that_lives_makes_room_for_the_next,
    ro_13_a_journal_that_cannot_be_decoded_parks_the_run,
];

/// What the code of a test can reach.
#[derive(Clone)]
struct World {
    /// The way to the database of the process that runs now.
    store: Arc<Mutex<Option<Arc<Faulty>>>>,
    /// Does the poison still kill?
    kills: Arc<AtomicU32>,
    /// Of so many calls, the last does not kill.
    spares: Option<u32>,
    /// Lets the poison kill.
    trigger: Arc<Semaphore>,
    /// Effects of innocents that have begun.
    running: Arc<AtomicU32>,
    /// Lets the effects of innocents end.
    gate: Arc<Semaphore>,
    lease: Duration,
}

impl World {
    fn new(kills: u32) -> World {
        World {
            store: Arc::default(),
            kills: Arc::new(AtomicU32::new(kills)),
            spares: None,
            trigger: Arc::new(Semaphore::new(1000)),
            running: Arc::default(),
            gate: Arc::new(Semaphore::new(0)),
            lease: LEASE,
        }
    }

    /// An effect that kills its process while there are kills left.
    async fn kill(self) -> Result<u32> {
        let fewer = |kills: u32| kills.checked_sub(1);
        let relaxed = Ordering::Relaxed;
        let call = self.kills.fetch_update(relaxed, relaxed, fewer);
        let spared = |call: u32| {
            self.spares
                .is_some_and(|of| (u32::MAX - call) % of == of - 1)
        };
        if call.is_ok_and(|call| !spared(call)) {
            self.trigger.acquire().await?.forget();
            let store = self.store.lock().unwrap().clone();
            store.expect("a process").cut();
            std::future::pending::<()>().await;
        }
        Ok(1)
    }

    async fn start(&self, db: &Db) -> Process {
        let (poison, innocent) = (self.clone(), self.clone());
        let poison = move |cx: Cx, n: u32| {
            let world = poison.clone();
            async move {
                let kill = move |_| world.clone().kill();
                let mut sum = 0;
                for _ in 0..n {
                    sum += cx.effect("kill", kill.clone()).await?;
                }
                Ok::<_, Failure>(sum)
            }
        };
        let innocent = move |cx: Cx, n: u32| {
            let world = innocent.clone();
            async move {
                let wait = move |_| {
                    let world = world.clone();
                    async move {
                        world.running.fetch_add(1, Ordering::Relaxed);
                        let _permit = world.gate.acquire().await;
                        Ok::<_, Failure>(n)
                    }
                };
                cx.effect("wait", wait).await
            }
        };
        let store = db.open();
        *self.store.lock().unwrap() = Some(store.clone());
        let set_up = db.start_over(store, |engine| {
            let engine = engine.register(POISON, poison);
            let engine = engine.register(INNOCENT, innocent);
            engine.lease(self.lease).drain(Duration::ZERO)
        });
        set_up.await
    }

    /// Starts a process, waits until it is killed, and buries it.
    async fn die(&self, db: &Db) {
        let process = self.start(db).await;
        let killed = until("it is killed", || async { process.store.is_cut() });
        db.meanwhile("a kill", killed).await;
        process.crash();
        db.advance(LEASE);
    }
}

async fn ro_13_a_run_that_kills_its_worker_is_parked_and_its_neighbours_are_not(db: Db) {
    let db = db.with_manual_clock();
    let mut world = World::new(u32::MAX);
    world.trigger = Arc::new(Semaphore::new(0));
    let mut poison = None;
    let mut innocents = Vec::new();
    // The first kill makes suspects, the others count. A new innocent runs in each process, and
    // those of the process before end beside the poison.
    for n in 0..=limits::CRASHES {
        let process = world.start(&db).await;
        let before = world.running.load(Ordering::Relaxed);
        innocents.push(process.start(INNOCENT, &n).await.unwrap().id());
        begun(&db, &world, before + 1).await;
        if poison.is_none() {
            poison = Some(process.start(POISON, &1).await.unwrap().id());
        }
        let left = u32::MAX - 1 - n;
        let begun = until("the poison runs", || async {
            world.kills.load(Ordering::Relaxed) == left
        });
        db.meanwhile("the poison", begun).await;
        world.trigger.add_permits(1);
        until("it is killed", || async { process.store.is_cut() }).await;
        process.crash();
        world.gate.add_permits(1);
        db.advance(LEASE);
    }
    let poison = poison.unwrap();
    world.gate.add_permits(100);
    let last = world.start(&db).await;
    let mut run = last.handle(POISON, poison).await.unwrap();
    let result = db.meanwhile("it parks", run.result()).await;
    let Err(Error::Parked { reason, .. }) = result else {
        panic!("{result:?}")
    };
    assert_eq!(reason.code, "crashed_worker");
    assert!(reason.message.contains("stopped 3 times"), "{reason}");
    for (n, run) in (0..).zip(innocents) {
        let mut run = last.handle(INNOCENT, run).await.unwrap();
        assert_eq!(db.meanwhile("it", run.result()).await.unwrap(), n);
    }
    // Once it kills no longer, an operator lets it go on.
    world.kills.store(0, Ordering::Relaxed);
    last.resume(poison).await.unwrap();
    assert_eq!(db.meanwhile("the end", run.result()).await.unwrap(), 1);
    last.shutdown().await;
    assert_sound(&db).await;
}

async fn ro_13_progress_resets_the_count(db: Db) {
    let db = db.with_manual_clock();
    let mut world = World::new(u32::MAX);
    // Each of three effects kills three times: once without a charge, twice in the slot.
    world.spares = Some(4);
    let first = world.start(&db).await;
    let run = first.start(POISON, &3).await.unwrap().id();
    until("it is killed", || async { first.store.is_cut() }).await;
    first.crash();
    db.advance(LEASE);
    for _ in 1..9 {
        world.die(&db).await;
    }
    let last = world.start(&db).await;
    let mut run = last.handle(POISON, run).await.unwrap();
    assert_eq!(db.meanwhile("the end", run.result()).await.unwrap(), 3);
    assert_eq!(u32::MAX - world.kills.load(Ordering::Relaxed), 12);
    assert_sound(&db).await;
}

/// A run whose lease ended by time, so that it is a suspect.
async fn suspect(db: &Db, world: &World) -> RunId {
    let first = world.start(db).await;
    let run = first.start(INNOCENT, &7).await.unwrap().id();
    until("it runs", || async {
        world.running.load(Ordering::Relaxed) == 1
    })
    .await;
    first.crash();
    db.advance(LEASE);
    run
}

/// Waits until that many effects of innocents have begun.
async fn begun(db: &Db, world: &World, count: u32) {
    let running = until("it runs", || async {
        world.running.load(Ordering::Relaxed) >= count
    });
    db.meanwhile("it runs", running).await;
}

async fn ro_13_release_and_shutdown_never_count(db: Db) {
    let db = db.with_manual_clock();
    let world = World::new(0);
    let run = suspect(&db, &world).await;
    for time in 0..limits::CRASHES + 2 {
        let process = world.start(&db).await;
        begun(&db, &world, time + 2).await;
        process.shutdown().await;
        let row = db.dump().await.runs.remove(0);
        assert_eq!((row.state, row.crashes), (RunState::Ready, 0));
    }
    world.gate.add_permits(1);
    let last = world.start(&db).await;
    let mut run = last.handle(INNOCENT, run).await.unwrap();
    assert_eq!(db.meanwhile("the end", run.result()).await.unwrap(), 7);
    assert_sound(&db).await;
}

async fn ro_13_troubles_of_the_store_never_count(db: Db) {
    let db = db.with_manual_clock();
    let world = World::new(0);
    let run = suspect(&db, &world).await;
    let last = world.start(&db).await;
    let mut left = 8;
    last.store.rule(move |ask| {
        if left == 0 || !is_round_of(ask, run) {
            return Fault::Pass;
        }
        left -= 1;
        if left % 2 == 0 {
            Fault::Unavailable
        } else {
            Fault::LoseRequest
        }
    });
    world.gate.add_permits(100);
    let mut run = last.handle(INNOCENT, run).await.unwrap();
    assert_eq!(db.meanwhile("the end", run.result()).await.unwrap(), 7);
    assert_eq!(last.store.struck(), 8);
    let row = assert_sound(&db).await.runs.remove(0);
    assert_eq!((row.crashes, row.suspect), (0, false));
}

async fn ro_13_a_suspect_that_lives_makes_room_for_the_next(db: Db) {
    let db = db.with_manual_clock();
    let mut world = World::new(0);
    world.lease = Duration::from_millis(300);
    let first = world.start(&db).await;
    for n in 0..3 {
        first.start(INNOCENT, &n).await.unwrap();
    }
    until("all run", || async {
        world.running.load(Ordering::Relaxed) == 3
    })
    .await;
    first.crash();
    db.advance(world.lease);
    let last = world.start(&db).await;
    // One at a time, but none has to end before the next begins, and no time passes.
    until("all run again", || async {
        world.running.load(Ordering::Relaxed) == 6
    })
    .await;
    world.gate.add_permits(100);
    until("all end", || async {
        let page = last.runs().in_state(RunState::Completed).fetch().await;
        page.unwrap().items.len() == 3
    })
    .await;
    assert_sound(&db).await;
}

/// Commits an entry that this version does not know, as a newer one might.
fn commit_unknown_entry(store: &Faulty, run: RunId) {
    let worker = WorkerId(uuid::Uuid::new_v4());
    let lane = Lane {
        namespace: Name::constant("default"),
        workflow: Name::constant("innocent"),
        version: 1,
    };
    let register = Op::Register(Register {
        worker,
        name: "newer".into(),
        lanes: vec![lane],
    });
    let Ok(Reply::Registered(lanes)) = ask(store, register) else {
        panic!("not registered")
    };
    let claim = Op::Claim(Claim {
        worker,
        lanes,
        limit: 1,
        lease: LEASE,
    });
    let Ok(Reply::Claimed { runs, .. }) = ask(store, claim) else {
        panic!("not claimed")
    };
    assert_eq!(runs[0].run, run);
    let mut round = Round::new(run, worker, runs[0].epoch);
    round.entries = br#"[{"teleported":{"call":1}}]"#.to_vec();
    round.count = 1;
    round.timer_at = Some(Timestamp(1));
    round.then = Then::Suspend;
    ask(store, Op::Commit(round)).expect("committed");
    let release = roundel_core::Release {
        worker,
        runs: vec![run],
        leave: true,
    };
    ask(store, Op::Release(release)).expect("released");
}

async fn ro_13_a_journal_that_cannot_be_decoded_parks_the_run(db: Db) {
    let db = db.damaged_on_purpose();
    let world = World::new(0);
    world.gate.add_permits(100);
    let client = db.start(|engine| engine).await;
    let run = client.start(INNOCENT, &7).await.unwrap().id();
    commit_unknown_entry(&client.store, run);
    let process = world.start(&db).await;
    // The first attempt to park it fails for reasons that are not its own.
    process
        .store
        .once(Fault::Unavailable, move |ask: &Ask| is_round_of(ask, run));
    let mut handle = process.handle(INNOCENT, run).await.unwrap();
    let result = soon("it parks", handle.result()).await;
    let Err(Error::Parked { reason, .. }) = result else {
        panic!("{result:?}")
    };
    assert_eq!(reason.code, "undecodable_journal");
    assert!(reason.message.contains("teleported"), "{reason}");
    let mut other = process.start(INNOCENT, &8).await.unwrap();
    assert_eq!(soon("another", other.result()).await.unwrap(), 8);
    let error = process.journal(run).await.unwrap_err();
    assert!(error.to_string().contains("teleported"), "{error}");
    let sent = process.signal(run, GO, &1).await;
    assert!(sent.is_ok(), "it still takes messages: {sent:?}");
    let _: &dyn Store = &*process.store;
}
