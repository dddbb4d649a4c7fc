//! Runs come back after whatever happened to their process (SI-15).

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use roundel::{Cx, EngineBuilder, Error, Failure, Result, RunState, Workflow, limits};
use roundel_core::Op;
use roundel_store::Ask;

use crate::rounds::sound::assert_sound;
use crate::support::{Db, Fault, all, soon, until};

all![
    si_15_recovery_says_what_it_took_up_and_a_second_one_changes_nothing,
    si_15_a_crash_at_any_point_of_a_recovery_and_of_the_next_is_harmless,
    si_15_a_worker_that_was_blocked_past_its_lease_takes_the_run_up_again,
    si_15_a_run_that_is_resumed_while_it_is_being_parked_goes_on,
];

const WORK: Workflow<u32, u32> = Workflow::named("work");
const BLOCK: Workflow<(), u32> = Workflow::named("block");
const NOTHING: Workflow<(), ()> = Workflow::named("nothing");
const STUBBORN: Workflow<(), u32> = Workflow::named("stubborn");

/// Three effects, each of which notes that it was called.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<(u32, u32)>>>);

impl Notes {
    fn register(&self, engine: EngineBuilder) -> EngineBuilder {
        let notes = self.clone();
        engine.register(WORK, move |cx: Cx, run: u32| {
            let notes = notes.clone();
            async move {
                let mut sum = 0;
                for place in 1..=3 {
                    let note = |_| async {
                        notes.0.lock().unwrap().push((run, place));
                        Ok::<_, Failure>(place)
                    };
                    sum += cx.effect("note", note).await?;
                }
                Ok(sum)
            }
        })
    }
}

async fn si_15_recovery_says_what_it_took_up_and_a_second_one_changes_nothing(db: Db) {
    const RUNS: u32 = 10;
    let (db, notes) = (db.with_manual_clock(), Notes::default());
    let first = db.start(|engine| notes.register(engine)).await;
    // Each gets as far as its first effect, whose end does not reach the database any more.
    first.store.rule(|ask| match ask {
        Ask::Op(Op::Commit(_)) => Fault::Silence,
        _ => Fault::Pass,
    });
    let mut runs = Vec::new();
    for run in 0..RUNS {
        runs.push(first.start(WORK, &run).await.unwrap().id());
    }
    until("all are at work", || async {
        notes.0.lock().unwrap().len() == RUNS as usize
    })
    .await;
    first.crash();
    let second = db.start(|engine| notes.register(engine)).await;
    db.advance(limits::LEASE);
    for run in &runs {
        let mut handle = second.handle(WORK, *run).await.unwrap();
        let sum = db.meanwhile("the sum", handle.result()).await.unwrap();
        assert_eq!(sum, 6);
    }
    second.shutdown().await;
    let metrics = second.metrics();
    let report = (metrics.replays, metrics.runs_completed, metrics.runs_parked);
    assert_eq!(report, (u64::from(RUNS), u64::from(RUNS), 0), "{metrics:?}");
    let before = assert_sound(&db).await;
    let third = db.start(|engine| notes.register(engine)).await;
    db.advance(limits::LEASE);
    until("it has looked", || async {
        third.metrics().claims_empty > 0
    })
    .await;
    let metrics = third.metrics();
    assert_eq!((metrics.replays, metrics.claims_with_runs), (0, 0));
    third.shutdown().await;
    assert_eq!(assert_sound(&db).await, before);
}

/// Goes on with the run, and dies at this request of its own. Returns whether it did.
async fn die_at(db: &Db, notes: &Notes, (key, point): (&str, u32), fault: Fault) -> bool {
    let process = db.start(|engine| notes.register(engine)).await;
    let mut requests = 0;
    process.store.rule(move |ask| {
        let counts = !matches!(ask, Ask::Op(Op::Renew(_) | Op::Register(_)));
        requests += u32::from(counts);
        if counts && requests == point {
            return fault;
        }
        Fault::Pass
    });
    db.advance(Duration::from_secs(60));
    let starting = process.start(WORK, &0).key(key.to_owned());
    let ended = process.unless_it_dies(async { starting.await?.result().await });
    let sum = db.meanwhile("the sum", ended).await;
    assert_eq!(sum.unwrap_or(6), 6);
    process.crash();
    sum.is_none()
}

async fn si_15_a_crash_at_any_point_of_a_recovery_and_of_the_next_is_harmless(db: Db) {
    let db = db.with_manual_clock();
    for fault in [Fault::CrashBefore, Fault::CrashAfter] {
        for point in 1.. {
            let (notes, key) = (Notes::default(), format!("{fault:?} {point}"));
            // The first dies at its second round; recovery dies, and so does the next.
            die_at(&db, &notes, (&key, 3), fault).await;
            let died = die_at(&db, &notes, (&key, point), fault).await;
            die_at(&db, &notes, (&key, point), fault).await;
            assert!(!die_at(&db, &notes, (&key, u32::MAX), fault).await);
            let noted = notes.0.lock().unwrap().clone();
            let mut places: Vec<u32> = noted.iter().map(|(_, place)| *place).collect();
            assert!(
                places.is_sorted(),
                "none is called once its result is known"
            );
            places.dedup();
            assert_eq!(places, [1, 2, 3], "{key}");
            if !died {
                assert!(point > 3, "a recovery has its points");
                break;
            }
        }
    }
    let dump = assert_sound(&db).await;
    let ended = |row: &roundel_core::RunRow| row.state == RunState::Completed;
    assert!(dump.runs.iter().all(ended), "none is parked for it");
}

async fn nothing(_: Cx, (): ()) -> Result<()> {
    Ok(())
}

/// Blocks its thread in the first call, once it has said so, until it is told to go on.
struct Blocker {
    calls: AtomicU32,
    said: Sender<()>,
    told: Mutex<Receiver<()>>,
}

impl Blocker {
    fn call(&self) -> u32 {
        let call = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        if call == 1 {
            self.said.send(()).expect("the test waits");
            let told = self.told.lock().expect("only one blocks");
            let _ = told.recv_timeout(Duration::from_secs(10));
        }
        call
    }
}

async fn si_15_a_worker_that_was_blocked_past_its_lease_takes_the_run_up_again(db: Db) {
    let db = db.with_manual_clock();
    let lease = Duration::from_millis(150);
    let ((said, blocked), (tell, told)) = (channel(), channel());
    let (calls, told) = (AtomicU32::new(0), Mutex::new(told));
    let blocker = Arc::new(Blocker { calls, said, told });
    let block = move |cx: Cx, (): ()| {
        let blocker = blocker.clone();
        async move {
            let call = |_| async { Ok::<_, Failure>(blocker.call()) };
            cx.effect("block", call).await
        }
    };
    let process = db
        .start(|engine| {
            let engine = engine.register(BLOCK, block);
            engine.register(NOTHING, nothing).lease(lease)
        })
        .await;
    let mut run = process.start(BLOCK, &()).await.unwrap();
    blocked.recv().unwrap();
    let epoch = process.run(&run).await.unwrap().row.epoch;
    // The lease ends; the renewal hears of it, then the same process claims the run again.
    let renewals = Arc::new(AtomicU32::new(0));
    let counted = renewals.clone();
    process.store.rule(move |ask| {
        let renewal = matches!(ask, Ask::Op(Op::Renew(_)));
        counted.fetch_add(u32::from(renewal), Ordering::SeqCst);
        Fault::Pass
    });
    db.advance(lease);
    until("the lease was found to be lost", || async {
        renewals.load(Ordering::SeqCst) >= 2
    })
    .await;
    let mut other = process.start(NOTHING, &()).priority(1).await.unwrap();
    soon("another run", other.result()).await.unwrap();
    until("the run is claimed again", || async {
        process.run(&run).await.unwrap().row.epoch > epoch
    })
    .await;
    tell.send(()).unwrap();
    assert!(soon("the end", run.result()).await.unwrap() <= 2);
}

async fn si_15_a_run_that_is_resumed_while_it_is_being_parked_goes_on(db: Db) {
    let calls = Arc::new(AtomicU32::new(0));
    let stubborn = {
        let calls = calls.clone();
        move |_: Cx, (): ()| {
            let call = calls.fetch_add(1, Ordering::SeqCst);
            async move {
                if call < 100 {
                    return Err(Failure::permanent("not yet"));
                }
                Ok(call)
            }
        }
    };
    let process = db.start(|engine| engine.register(STUBBORN, stubborn)).await;
    let mut run = process.start(STUBBORN, &()).await.unwrap();
    loop {
        match soon("the next attempt", run.result()).await {
            Ok(calls) => break assert_eq!(calls, 100),
            Err(Error::Parked { .. }) => process.resume(&run).await.unwrap(),
            Err(error) => panic!("{error}"),
        }
    }
}
