//! More runs in hand than are worked on: they begin together, stand in line, and are given back
//! when that takes long.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use roundel::{Attempt, Command, EngineBuilder, Failure};
use tokio::sync::Semaphore;

use super::sound::assert_sound;
use crate::support::{Db, all, soon, until};

const JOB: Command<u32, u32> = Command::named("job");
/// A lease that is lost does not come back while a test waits.
const LONG: Duration = Duration::from_secs(3600);
const AT_ONCE: usize = 2;
const MORE: usize = 10;

all![
    co_06_what_is_in_hand_stands_in_line,
    co_26_what_has_stood_in_line_for_long_goes_to_whoever_has_room,
    co_06_what_stands_in_line_is_given_back_at_a_shutdown,
];

/// Jobs that need a permit each; how many are worked on, and how many were at most.
#[derive(Clone)]
struct Shop {
    permits: Arc<Semaphore>,
    at_work: Arc<[AtomicUsize; 2]>,
}

impl Shop {
    fn with(permits: usize) -> Shop {
        Shop {
            permits: Arc::new(Semaphore::new(permits)),
            at_work: Arc::default(),
        }
    }

    fn set_up(&self) -> impl FnOnce(EngineBuilder) -> EngineBuilder {
        let shop = self.clone();
        let job = move |_: Attempt, number: u32| {
            let shop = shop.clone();
            async move {
                let now = shop.at_work[0].fetch_add(1, Ordering::SeqCst) + 1;
                shop.at_work[1].fetch_max(now, Ordering::SeqCst);
                shop.permits.acquire().await.expect("it is open").forget();
                shop.at_work[0].fetch_sub(1, Ordering::SeqCst);
                Ok::<_, Failure>(number * 2)
            }
        };
        |engine| {
            let engine = engine.handle(JOB, job).lease(LONG);
            engine.concurrency(AT_ONCE).in_hand(MORE)
        }
    }
}

async fn co_06_what_is_in_hand_stands_in_line(db: Db) {
    let shop = Shop::with(0);
    let process = db.start(shop.set_up()).await;
    let mut sent = Vec::new();
    for number in 0..20 {
        sent.push(process.send(JOB, &number).await.expect("it is sent"));
    }
    until("all that may be are in hand", || async {
        let most = (AT_ONCE + MORE) as u64;
        process.metrics().live == most && shop.at_work[0].load(Ordering::SeqCst) == AT_ONCE
    })
    .await;
    shop.permits.add_permits(20);
    for (number, job) in (0..).zip(&mut sent) {
        let result = soon("each", job.result()).await.expect("it is done");
        assert_eq!(result, number * 2);
    }
    assert_eq!(shop.at_work[1].load(Ordering::SeqCst), AT_ONCE);
    assert_sound(&db).await;
}

async fn co_26_what_has_stood_in_line_for_long_goes_to_whoever_has_room(db: Db) {
    let (stuck, well) = (Shop::with(0), Shop::with(1000));
    let first = db.start(stuck.set_up()).await;
    let mut sent = Vec::new();
    for number in 0..12 {
        sent.push(first.send(JOB, &number).await.expect("it is sent"));
    }
    let second = db.start(well.set_up()).await;
    until(
        "the other has done what the first is not working on",
        || async { second.metrics().runs_completed == 10 },
    )
    .await;
    assert_eq!(stuck.at_work[1].load(Ordering::SeqCst), AT_ONCE);
    stuck.permits.add_permits(2);
    for job in &mut sent {
        soon("each", job.result()).await.expect("it is done");
    }
    assert_sound(&db).await;
}

async fn co_06_what_stands_in_line_is_given_back_at_a_shutdown(db: Db) {
    let (stuck, well) = (Shop::with(0), Shop::with(1000));
    let set_up = stuck.set_up();
    let first = db
        .start(|engine| set_up(engine).drain(Duration::ZERO))
        .await;
    let mut sent = Vec::new();
    for number in 0..8 {
        sent.push(first.send(JOB, &number).await.expect("it is sent"));
    }
    first.shutdown().await;
    let second = db.start(well.set_up()).await;
    until("all are done", || async {
        second.metrics().runs_completed == 8
    })
    .await;
}
