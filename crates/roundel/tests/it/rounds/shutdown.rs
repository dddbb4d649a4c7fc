//! Shutdown: nothing in hand, gone at once; what runs gets its time; twice is fine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use roundel::{Cx, Error, Failure, RunState, Signal, Workflow};
use tokio::sync::Semaphore;

use super::sound::assert_sound;
use crate::support::{Db, Process, all, soon, until};

const HOLD: Workflow<u32, u32> = Workflow::named("hold");
const WAIT: Workflow<u32, u32> = Workflow::named("wait");
const GO: Signal<u32> = Signal::named("go");
const LONG: Duration = Duration::from_secs(3600);

all![
    ro_52_leases_are_renewed_while_it_drains,
    ro_52_running_work_gets_its_time,
    ro_52_an_idle_worker_stops_at_once,
    ro_52_what_does_not_end_in_time_is_given_back,
    ro_52_nothing_is_claimed_while_it_stops,
    ro_52_calling_twice_is_fine,
    ro_52_afterwards_everything_says_so,
    ro_52_an_engine_that_is_dropped_lets_go_of_its_database,
];

/// Effects that last until the gate opens.
#[derive(Clone)]
struct Gate {
    begun: Arc<AtomicU32>,
    open: Arc<Semaphore>,
}

impl Gate {
    fn new() -> Gate {
        Gate {
            begun: Arc::default(),
            open: Arc::new(Semaphore::new(0)),
        }
    }

    async fn start(&self, db: &Db, drain: Duration, lease: Duration) -> Process {
        let gate = self.clone();
        let hold = move |cx: Cx, n: u32| {
            let gate = gate.clone();
            async move {
                let effect = move |_| {
                    let gate = gate.clone();
                    async move {
                        gate.begun.fetch_add(1, Ordering::Relaxed);
                        gate.open.acquire().await?.forget();
                        Ok::<_, Failure>(n)
                    }
                };
                cx.effect("hold", effect).await
            }
        };
        let wait = |cx: Cx, _: u32| async move { cx.wait(GO).await };
        let set_up = db.start(|engine| {
            let engine = engine.register(HOLD, hold).register(WAIT, wait);
            engine.drain(drain).lease(lease)
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

async fn ro_52_an_idle_worker_stops_at_once(db: Db) {
    let process = Gate::new().start(&db, LONG, LONG).await;
    let mut waiting = Vec::new();
    for n in 0..10 {
        waiting.push(process.start(WAIT, &n).await.unwrap());
    }
    until("all wait", || async {
        let page = process.runs().in_state(RunState::Waiting).fetch().await;
        page.unwrap().items.len() == 10
    })
    .await;
    // Runs that wait hold nobody up, although the drain time is an hour.
    soon("the shutdown", process.shutdown()).await;
    let dump = assert_sound(&db).await;
    assert!(dump.workers.is_empty(), "{:?}", dump.workers);
    let next = Gate::new().start(&db, LONG, LONG).await;
    for run in &waiting {
        next.signal(run, GO, &7).await.unwrap();
        let mut run = next.handle(WAIT, run).await.unwrap();
        assert_eq!(soon("its signal", run.result()).await.unwrap(), 7);
    }
}

async fn ro_52_running_work_gets_its_time(db: Db) {
    let gate = Gate::new();
    let process = Arc::new(gate.start(&db, LONG, LONG).await);
    let mut run = process.start(HOLD, &7).await.unwrap();
    gate.begins(1).await;
    let stopping = process.clone();
    let stopped = tokio::spawn(async move { stopping.shutdown().await });
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(!stopped.is_finished(), "it waits for what runs");
    gate.open.add_permits(1);
    assert_eq!(soon("the end", run.result()).await.unwrap(), 7);
    soon("the shutdown", stopped).await.unwrap();
    let dump = assert_sound(&db).await;
    assert_eq!(dump.runs[0].state, RunState::Completed);
}

async fn ro_52_what_does_not_end_in_time_is_given_back(db: Db) {
    let gate = Gate::new();
    let drain = Duration::from_millis(50);
    let process = gate.start(&db, drain, LONG).await;
    let run = process.start(HOLD, &7).await.unwrap().id();
    gate.begins(1).await;
    let begun = Instant::now();
    soon("the shutdown", process.shutdown()).await;
    assert!(begun.elapsed() >= drain);
    let row = assert_sound(&db).await.runs.remove(0);
    assert_eq!((row.state, row.suspect), (RunState::Ready, false));
    // Somebody else has it at once, although the lease was for an hour.
    let next = gate.start(&db, drain, LONG).await;
    gate.begins(2).await;
    gate.open.add_permits(1);
    let mut run = next.handle(HOLD, run).await.unwrap();
    assert_eq!(soon("the end", run.result()).await.unwrap(), 7);
}

async fn ro_52_nothing_is_claimed_while_it_stops(db: Db) {
    let gate = Gate::new();
    let process = Arc::new(gate.start(&db, LONG, LONG).await);
    let client = db.start(|engine| engine).await;
    let waiting = process.start(WAIT, &0).await.unwrap();
    process.start(HOLD, &1).await.unwrap();
    gate.begins(1).await;
    let stopping = process.clone();
    let stopped = tokio::spawn(async move { stopping.shutdown().await });
    tokio::time::sleep(Duration::from_millis(20)).await;
    let new = client.start(HOLD, &2).await.unwrap();
    client.signal(&waiting, GO, &3).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(gate.begun.load(Ordering::Relaxed), 1, "not the new one");
    gate.open.add_permits(10);
    soon("the shutdown", stopped).await.unwrap();
    for run in [new.id(), waiting.id()] {
        let row = client.run(run).await.unwrap().row;
        assert_eq!((row.state, row.owner), (RunState::Ready, None));
    }
    assert_sound(&db).await;
}

async fn ro_52_calling_twice_is_fine(db: Db) {
    let gate = Gate::new();
    let process = gate.start(&db, LONG, LONG).await;
    let mut run = process.start(HOLD, &7).await.unwrap();
    gate.begins(1).await;
    gate.open.add_permits(1);
    let both = async { tokio::join!(process.shutdown(), process.shutdown()) };
    soon("both", both).await;
    soon("a third", process.shutdown()).await;
    let _ = soon("an answer", run.result()).await;
    let dump = assert_sound(&db).await;
    assert_eq!(dump.runs[0].state, RunState::Completed);
}

async fn ro_52_afterwards_everything_says_so(db: Db) {
    let process = Gate::new().start(&db, LONG, LONG).await;
    let mut run = process.start(WAIT, &7).await.unwrap();
    let client = process.client();
    process.shutdown().await;
    let closed = |error: Error| matches!(error, Error::Closed);
    assert!(closed(client.start(WAIT, &1).await.unwrap_err()));
    assert!(closed(client.signal(&run, GO, &1).await.unwrap_err()));
    assert!(closed(client.run(&run).await.unwrap_err()));
    assert!(closed(client.runs().fetch().await.unwrap_err()));
    let result = soon("an answer", run.result()).await;
    assert!(closed(result.unwrap_err()));
}

async fn ro_52_leases_are_renewed_while_it_drains(db: Db) {
    let db = db.with_manual_clock();
    let gate = Gate::new();
    let lease = Duration::from_millis(150);
    let process = Arc::new(gate.start(&db, LONG, lease).await);
    let mut run = process.start(HOLD, &7).await.unwrap();
    gate.begins(1).await;
    let stopping = process.clone();
    let stopped = tokio::spawn(async move { stopping.shutdown().await });
    let other = gate.start(&db, LONG, lease).await;
    for _ in 0..4 {
        let until_lease = db.now().after(lease);
        until("it renewed", || async {
            db.dump().await.runs[0].lease_until == Some(until_lease)
        })
        .await;
        db.advance(lease - Duration::from_millis(1));
    }
    gate.open.add_permits(1);
    assert_eq!(soon("the end", run.result()).await.unwrap(), 7);
    soon("the shutdown", stopped).await.unwrap();
    assert_eq!(gate.begun.load(Ordering::Relaxed), 1, "nobody took it");
    other.shutdown().await;
}

async fn ro_52_an_engine_that_is_dropped_lets_go_of_its_database(db: Db) {
    let gate = Gate::new();
    let process = gate.start(&db, Duration::ZERO, LONG).await;
    process.start(HOLD, &1).await.unwrap();
    let waiting = process.start(WAIT, &2).await.unwrap();
    until("it works", || async {
        gate.begun.load(Ordering::Relaxed) == 1
    })
    .await;
    let (store, client) = (Arc::downgrade(&process.store), process.client());
    drop((process, waiting));
    // Whoever has a client goes on.
    client.start(WAIT, &3).await.unwrap();
    drop(client);
    until("nobody has the store", || async {
        store.upgrade().is_none()
    })
    .await;
}
