//! Retries: pauses as the policy says, time-outs of one attempt and of all, across restarts.

use std::future::pending;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use roundel::future::join;
use roundel::{
    Attempt, Class, Cx, Entry, Error, Failure, Result, Retry, RunId, RunState, Signal, Workflow,
};

use super::sound::assert_sound;
use crate::support::{Db, Process, all, soon, until};

const TRY: Workflow<(), u32> = Workflow::named("try");
const GO: Signal<()> = Signal::named("go");

all![
    ro_40_pauses_between_attempts_are_those_of_the_policy,
    ro_40_jitter_draws_a_part_of_the_pause,
    ro_40_no_attempt_begins_before_its_time,
    ro_40_attempts_are_visible_and_the_last_is_known,
    ro_40_only_what_may_pass_is_tried_again,
    ro_40_one_attempt_may_take_so_long,
    ro_40_all_attempts_together_may_take_so_long,
    ro_40_no_attempt_is_planned_beyond_the_end,
    ro_40_the_total_time_goes_on_while_nobody_works,
    ro_40_after_a_restart_the_pause_goes_on_and_the_count_too,
    ro_40_a_step_is_tried_again_and_what_it_wrote_is_not_kept,
    ro_40_many_attempts_without_a_pause_are_each_recorded,
];

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// An engine whose `try` calls this effect, with this policy.
async fn start<F, Fut>(db: &Db, retry: Retry, effect: F) -> Process
where
    F: Fn(Attempt) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<u32>> + Send + 'static,
{
    let run = move |cx: Cx, (): ()| {
        let effect = effect.clone();
        async move { cx.effect("flaky", effect).retry(retry).await }
    };
    db.start(|engine| engine.register(TRY, run)).await
}

/// What a run's next attempt waits for.
async fn pause(db: &Db, process: &Process, run: RunId, attempts: u32) -> Duration {
    let begun = std::time::Instant::now();
    loop {
        let journal = process.journal(run).await.unwrap();
        let failed = journal
            .iter()
            .filter(|entry| matches!(entry, Entry::Attempted { .. }));
        let failed = failed.count() == attempts as usize;
        let row = process.run(run).await.unwrap().row;
        if let (true, RunState::Waiting, Some(at)) = (failed, row.state, row.timer_at) {
            return at.since(db.now());
        }
        assert!(begun.elapsed() < secs(60), "no attempt has failed");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// The pauses between all attempts of an effect that always fails.
async fn pauses(db: &Db, retry: Retry) -> Vec<Duration> {
    let process = start(db, retry, |_| async { Err(Failure::transient("no")) }).await;
    let mut run = process.start(TRY, &()).await.unwrap();
    let mut pauses = Vec::new();
    for attempt in 1..retry.attempts {
        let next = pause(db, &process, run.id(), attempt).await;
        pauses.push(next);
        db.advance(next);
    }
    let result = soon("the last", run.result()).await;
    let Err(Error::Parked { reason, .. }) = result else {
        panic!("{result:?}")
    };
    assert_eq!(reason.class, Class::Exhausted);
    assert_eq!(reason.attempts.len() + 1, retry.attempts as usize);
    process.shutdown().await;
    pauses
}

async fn ro_40_pauses_between_attempts_are_those_of_the_policy(db: Db) {
    let db = db.with_manual_clock();
    let exponential = Retry::exponential(6).first(secs(1)).jitter(0.0);
    for (retry, expected) in [
        (Retry::none(), vec![]),
        (Retry::fixed(4, secs(7)), vec![7, 7, 7]),
        (Retry::linear(4, secs(2)), vec![2, 4, 6]),
        (Retry::linear(4, secs(2)).cap(secs(5)), vec![2, 4, 5]),
        (exponential, vec![1, 2, 4, 8, 16]),
        (exponential.cap(secs(3)), vec![1, 2, 3, 3, 3]),
    ] {
        let expected: Vec<Duration> = expected.into_iter().map(secs).collect();
        assert_eq!(pauses(&db, retry).await, expected, "{retry:?}");
    }
    assert_sound(&db).await;
}

async fn ro_40_jitter_draws_a_part_of_the_pause(db: Db) {
    let db = db.with_manual_clock();
    let drawn = pauses(&db, Retry::fixed(21, secs(100)).jitter(0.5)).await;
    assert!(
        drawn
            .iter()
            .all(|pause| (secs(50)..=secs(100)).contains(pause)),
        "{drawn:?}"
    );
    let (least, most) = (drawn.iter().min(), drawn.iter().max());
    let spread = *most.unwrap() - *least.unwrap();
    assert!(spread > Duration::from_millis(12_600), "{drawn:?}");
}

async fn ro_40_no_attempt_begins_before_its_time(db: Db) {
    let db = db.with_manual_clock();
    let seen = Arc::new(AtomicU32::new(0));
    let count = seen.clone();
    let process = start(&db, Retry::fixed(2, secs(100)), move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        async { Err(Failure::transient("no")) }
    })
    .await;
    let mut run = process.start(TRY, &()).await.unwrap();
    let wait = pause(&db, &process, run.id(), 1).await;
    db.advance(wait - Duration::from_micros(1));
    tokio::time::sleep(Duration::from_millis(30)).await;
    assert_eq!(seen.load(Ordering::Relaxed), 1, "too early");
    db.advance(Duration::from_micros(1));
    soon("the last", run.result()).await.unwrap_err();
    assert_eq!(seen.load(Ordering::Relaxed), 2);
}

async fn ro_40_attempts_are_visible_and_the_last_is_known(db: Db) {
    let db = db.with_manual_clock();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let list = seen.clone();
    let process = start(&db, Retry::fixed(3, secs(1)), move |attempt| {
        let mut list = list.lock().unwrap();
        list.push((attempt.number(), attempt.is_last(), attempt.key()));
        async { Err(Failure::transient("no")) }
    })
    .await;
    let mut run = process.start(TRY, &()).await.unwrap();
    db.meanwhile("the last", run.result()).await.unwrap_err();
    let seen = seen.lock().unwrap().clone();
    let (_, _, key) = seen[0].clone();
    let expected = [(1, false), (2, false), (3, true)];
    assert_eq!(seen, expected.map(|(n, last)| (n, last, key.clone())));
}

async fn ro_40_only_what_may_pass_is_tried_again(db: Db) {
    for failure in [Failure::business("no"), Failure::permanent("broken")] {
        let class = failure.class;
        let seen = Arc::new(AtomicU32::new(0));
        let count = seen.clone();
        let process = start(&db, Retry::fixed(3, secs(1)), move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            let failure = failure.clone();
            async move { Err(failure) }
        })
        .await;
        let mut run = process.start(TRY, &()).await.unwrap();
        let result = soon("the end", run.result()).await;
        match (class, result) {
            (Class::Business, Err(Error::Failed { failure, .. })) => {
                assert_eq!(failure.class, class);
            }
            (Class::Permanent, Err(Error::Parked { reason, .. })) => {
                assert_eq!(reason.class, class);
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(seen.load(Ordering::Relaxed), 1);
        process.shutdown().await;
    }
}

/// Says when it is dropped.
struct Dropped(Arc<AtomicU32>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// An effect that hangs until its third attempt; counts begun and dropped attempts.
fn hanging(
    begun: &Arc<AtomicU32>,
    dropped: &Arc<AtomicU32>,
) -> impl Fn(Attempt) -> std::pin::Pin<Box<dyn Future<Output = Result<u32>> + Send>>
+ Clone
+ Send
+ Sync
+ 'static {
    let (begun, dropped) = (begun.clone(), dropped.clone());
    move |attempt| {
        let held = Dropped(dropped.clone());
        begun.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            let _held = held;
            if attempt.number() < 3 {
                pending::<()>().await;
            }
            Ok(attempt.number())
        })
    }
}

async fn ro_40_one_attempt_may_take_so_long(db: Db) {
    let db = db.with_manual_clock();
    let (begun, dropped) = (Arc::default(), Arc::default());
    let effect = hanging(&begun, &dropped);
    let run = move |cx: Cx, (): ()| {
        let effect = effect.clone();
        async move {
            let effect = cx.effect("slow", effect).attempt_timeout(secs(10));
            effect.retry(Retry::fixed(3, secs(1))).await
        }
    };
    let process = db.start(|engine| engine.register(TRY, run)).await;
    let mut run = process.start(TRY, &()).await.unwrap();
    for attempt in 1..=2 {
        until("it runs", || async {
            begun.load(Ordering::Relaxed) == attempt
        })
        .await;
        assert_eq!(dropped.load(Ordering::Relaxed), attempt - 1);
        db.advance(secs(10));
        let next = pause(&db, &process, run.id(), attempt).await;
        assert_eq!(next, secs(1));
        assert_eq!(dropped.load(Ordering::Relaxed), attempt, "it was stopped");
        db.advance(next);
    }
    assert_eq!(soon("the third", run.result()).await.unwrap(), 3);
    let journal = process.journal(&run).await.unwrap();
    let codes: Vec<&str> = journal
        .iter()
        .filter_map(|entry| match entry {
            Entry::Attempted { failure, .. } => Some(failure.code.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(codes, ["timed_out", "timed_out"]);
    assert_sound(&db).await;
}

/// An engine whose `try` may take 25 s in all, and 10 s for each attempt, 5 s apart.
async fn limited(db: &Db, begun: &Arc<AtomicU32>) -> Process {
    let effect = hanging(begun, &Arc::default());
    let run = move |cx: Cx, (): ()| {
        let effect = effect.clone();
        async move {
            let effect = cx.effect("slow", effect).attempt_timeout(secs(10));
            let effect = effect.retry(Retry::fixed(9, secs(5))).timeout(secs(25));
            effect.await
        }
    };
    let set_up = db.start(|engine| engine.register(TRY, run).lease(secs(3600)));
    set_up.await
}

async fn ro_40_all_attempts_together_may_take_so_long(db: Db) {
    let db = db.with_manual_clock();
    let begun = Arc::default();
    let process = limited(&db, &begun).await;
    let mut run = process.start(TRY, &()).await.unwrap();
    until("it runs", || async { begun.load(Ordering::Relaxed) == 1 }).await;
    db.advance(secs(10));
    let next = pause(&db, &process, run.id(), 1).await;
    db.advance(next);
    until("it runs", || async { begun.load(Ordering::Relaxed) == 2 }).await;
    db.advance(secs(10));
    let result = soon("the end", run.result()).await;
    let Err(Error::Parked { reason, .. }) = result else {
        panic!("{result:?}")
    };
    assert_eq!(reason.class, Class::Exhausted);
    assert_eq!(reason.code, "timed_out");
    assert_eq!(reason.attempts.len(), 1, "{reason:?}");
    assert_eq!(begun.load(Ordering::Relaxed), 2);
    assert_sound(&db).await;
}

async fn ro_40_no_attempt_is_planned_beyond_the_end(db: Db) {
    let db = db.with_manual_clock();
    let run = |cx: Cx, (): ()| async move {
        let effect = cx.effect("fails", |_| async {
            Err::<u32, _>(Failure::transient("no"))
        });
        let effect = effect.retry(Retry::fixed(9, secs(10)));
        effect.timeout(secs(15)).await
    };
    let process = db.start(|engine| engine.register(TRY, run)).await;
    let mut run = process.start(TRY, &()).await.unwrap();
    let next = pause(&db, &process, run.id(), 1).await;
    assert_eq!(next, secs(10));
    db.advance(next);
    // The next would begin after 20 s: it ends now.
    let result = soon("the end", run.result()).await;
    let Err(Error::Parked { reason, .. }) = result else {
        panic!("{result:?}")
    };
    assert_eq!(reason.class, Class::Exhausted);
    assert_eq!(reason.attempts.len(), 1);
}

async fn ro_40_the_total_time_goes_on_while_nobody_works(db: Db) {
    let db = db.with_manual_clock();
    let begun = Arc::default();
    let first = limited(&db, &begun).await;
    let run = first.start(TRY, &()).await.unwrap().id();
    until("it runs", || async { begun.load(Ordering::Relaxed) == 1 }).await;
    first.crash();
    db.advance(secs(3601));
    let second = limited(&db, &begun).await;
    let mut run = second.handle(TRY, run).await.unwrap();
    let result = db.meanwhile("the end", run.result()).await;
    let Err(Error::Parked { reason, .. }) = result else {
        panic!("{result:?}")
    };
    assert_eq!(reason.code, "timed_out");
    assert_sound(&db).await;
}

async fn ro_40_after_a_restart_the_pause_goes_on_and_the_count_too(db: Db) {
    let db = db.with_manual_clock();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let set_up = || {
        let list = seen.clone();
        let run = move |cx: Cx, (): ()| {
            let list = list.clone();
            async move {
                let flaky = cx.effect("flaky", |attempt: Attempt| {
                    list.lock().unwrap().push(attempt.number());
                    async { Err::<u32, _>(Failure::transient("no")) }
                });
                let flaky = flaky.retry(Retry::fixed(3, secs(100)));
                let (result, signal) = join(flaky, cx.wait(GO)).await;
                signal?;
                result
            }
        };
        db.start(move |engine| engine.register(TRY, run))
    };
    let first = set_up().await;
    let run = first.start(TRY, &()).await.unwrap().id();
    db.advance(pause(&db, &first, run, 1).await);
    assert_eq!(pause(&db, &first, run, 2).await, secs(100));
    first.crash();
    db.advance(secs(50));
    let second = set_up().await;
    second.signal(run, GO, &()).await.unwrap();
    // The signal wakes it in the middle of the second pause.
    let length = || async { second.journal(run).await.unwrap().len() };
    let wait = async {
        while length().await < 6 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    db.meanwhile("it took the signal", wait).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(*seen.lock().unwrap(), [1, 2], "too early");
    db.advance(secs(50));
    let mut run = second.handle(TRY, run).await.unwrap();
    db.meanwhile("the end", run.result()).await.unwrap_err();
    assert_eq!(*seen.lock().unwrap(), [1, 2, 3]);
    assert_sound(&db).await;
}

async fn ro_40_a_step_is_tried_again_and_what_it_wrote_is_not_kept(db: Db) {
    let db = db.with_manual_clock();
    let tries = Arc::new(AtomicU32::new(0));
    let count = tries.clone();
    let run = move |cx: Cx, (): ()| {
        let count = count.clone();
        async move {
            let step = cx.step("write", move |tx| {
                let attempt = count.fetch_add(1, Ordering::Relaxed);
                async move {
                    tx.execute("CREATE TABLE IF NOT EXISTS seen (n INTEGER)", ())
                        .await?;
                    tx.execute("INSERT INTO seen VALUES (1)", ()).await?;
                    if attempt < 2 {
                        return Err(Failure::transient("not yet"));
                    }
                    let rows = tx.query("SELECT n FROM seen", ()).await?;
                    Ok(u32::try_from(rows.len()).unwrap_or(0))
                }
            });
            step.retry(Retry::linear(3, secs(10))).await
        }
    };
    let process = db.start(|engine| engine.register(TRY, run)).await;
    let mut run = process.start(TRY, &()).await.unwrap();
    for (attempt, expected) in [(1, 10), (2, 20)] {
        let next = pause(&db, &process, run.id(), attempt).await;
        assert_eq!(next, secs(expected));
        db.advance(next);
    }
    assert_eq!(soon("the third", run.result()).await.unwrap(), 1);
    assert_eq!(tries.load(Ordering::Relaxed), 3);
    assert_sound(&db).await;
}

async fn ro_40_many_attempts_without_a_pause_are_each_recorded(db: Db) {
    let process = start(
        &db,
        Retry::fixed(500, Duration::ZERO),
        |attempt| async move {
            if attempt.is_last() {
                return Ok(attempt.number());
            }
            Err(Failure::transient("no"))
        },
    )
    .await;
    let mut run = process.start(TRY, &()).await.unwrap();
    assert_eq!(soon("the last", run.result()).await.unwrap(), 500);
    let rounds = process.metrics().rounds;
    assert!(rounds >= 500, "{rounds}");
    assert_sound(&db).await;
}
