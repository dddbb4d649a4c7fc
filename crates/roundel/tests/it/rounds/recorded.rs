//! Recorded values are the same in replay; panics are failures, recorded like others.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use roundel::{
    Class, Cx, Entry, Error, Failure, Result, RunState, Signal, Timestamp, Workflow, limits,
};

use super::sound::assert_sound;
use crate::support::{BEGINNING, Db, Process, all, soon, until};

const RUN: Workflow<u32, u32> = Workflow::named("run");
const STATE: Workflow<(), Option<u32>> = Workflow::named("state");
const GO: Signal<u32> = Signal::named("go");

all![
    ro_24_now_uuid_and_random_replay_identically,
    ro_24_the_time_is_the_stores,
    ro_24_random_numbers_use_all_their_bits,
    ro_24_a_state_read_first_is_read,
    ro_24_a_panic_in_an_effect_is_recorded,
    ro_24_a_panic_in_a_step_is_recorded_and_its_writes_are_gone,
    ro_24_a_panic_in_the_workflow_parks_it_and_the_worker_lives,
    ro_24_a_panic_before_the_first_call_and_one_without_text,
    ro_24_a_resource_is_opened_again_before_the_journal_is_matched,
];

async fn start<F, Fut>(db: &Db, run: F) -> Process
where
    F: Fn(Cx, u32) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<u32>> + Send + 'static,
{
    let set_up = db.start(|engine| {
        let engine = engine.register(RUN, run);
        engine.keep_in_memory(0, Duration::ZERO)
    });
    set_up.await
}

async fn ro_24_now_uuid_and_random_replay_identically(db: Db) {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let list = seen.clone();
    let process = start(&db, move |cx, n| {
        let list = list.clone();
        async move {
            let mut values = Vec::new();
            for _ in 0..n {
                let (now, id) = (cx.now().await?, cx.uuid().await?);
                values.push(format!("{now} {id} {}", cx.random().await?));
                cx.sleep(Duration::from_millis(1)).await;
            }
            list.lock().unwrap().push(values.join("\n"));
            cx.wait(GO).await?;
            list.lock().unwrap().push(values.join("\n"));
            Ok(n)
        }
    })
    .await;
    let mut run = process.start(RUN, &3).await.unwrap();
    until("it waits", || async {
        process.run(&run).await.unwrap().row.waits == 1
    })
    .await;
    process.signal(&run, GO, &1).await.unwrap();
    soon("the end", run.result()).await.unwrap();
    let seen = seen.lock().unwrap().clone();
    assert!(seen.len() >= 3, "it was replayed");
    assert!(seen.iter().all(|values| *values == seen[0]), "{seen:?}");
    let lines: Vec<&str> = seen[0].lines().collect();
    assert!(lines[0] != lines[1] && lines[1] != lines[2], "{lines:?}");
    assert_sound(&db).await;
}

async fn ro_24_the_time_is_the_stores(db: Db) {
    const NOW: Workflow<(), Timestamp> = Workflow::named("now");
    let db = db.with_manual_clock();
    let now = |cx: Cx, (): ()| async move { cx.now().await };
    let process = db.start(|engine| engine.register(NOW, now)).await;
    let mut run = process.start(NOW, &()).await.unwrap();
    assert_eq!(soon("the time", run.result()).await.unwrap(), BEGINNING);
    db.advance(Duration::from_secs(3600));
    let mut run = process.start(NOW, &()).await.unwrap();
    let later = BEGINNING.after(Duration::from_secs(3600));
    assert_eq!(soon("the time", run.result()).await.unwrap(), later);
}

async fn ro_24_random_numbers_use_all_their_bits(db: Db) {
    const BITS: Workflow<(), (u64, u64)> = Workflow::named("bits");
    let bits = |cx: Cx, (): ()| async move {
        let (mut ones, mut zeros) = (0, 0);
        for _ in 0..200 {
            let drawn = cx.random().await?;
            (ones, zeros) = (ones | drawn, zeros | !drawn);
        }
        Ok((ones, zeros))
    };
    let process = db.start(|engine| engine.register(BITS, bits)).await;
    let mut run = process.start(BITS, &()).await.unwrap();
    let seen = soon("the bits", run.result()).await.unwrap();
    assert_eq!(seen, (u64::MAX, u64::MAX));
}

async fn ro_24_a_state_read_first_is_read(db: Db) {
    let state = |cx: Cx, (): ()| async move { cx.state::<u32>().await };
    let process = db.start(|engine| engine.register(STATE, state)).await;
    let mut run = process.start(STATE, &()).await.unwrap();
    assert_eq!(soon("the state", run.result()).await.unwrap(), None);
    assert_sound(&db).await;
}

async fn ro_24_a_panic_in_an_effect_is_recorded(db: Db) {
    let calls = Arc::new(AtomicU32::new(0));
    let count = calls.clone();
    let process = start(&db, move |cx, n| {
        let count = count.clone();
        async move {
            let bad = cx.effect("bad", |_| {
                count.fetch_add(1, Ordering::Relaxed);
                async move {
                    tokio::task::yield_now().await;
                    if n > 0 {
                        panic!("number {n} is {}", "x".repeat(10_000));
                    }
                    Ok::<u32, Failure>(0)
                }
            });
            let failure = bad.await.unwrap_err();
            assert_eq!(failure.class, Class::Permanent);
            assert_eq!(failure.code, "panic");
            assert!(failure.message.contains("number 7 is xxx"), "{failure}");
            assert!(failure.message.len() < limits::MESSAGE_BYTES + 10);
            cx.sleep(Duration::from_millis(1)).await;
            Ok(n)
        }
    })
    .await;
    let mut run = process.start(RUN, &7).await.unwrap();
    assert_eq!(soon("the end", run.result()).await.unwrap(), 7);
    assert_eq!(calls.load(Ordering::Relaxed), 1, "not again in replay");
    assert_sound(&db).await;
}

async fn ro_24_a_panic_in_a_step_is_recorded_and_its_writes_are_gone(db: Db) {
    let process = start(&db, |cx, n| async move {
        let bad = cx.step("bad", |tx| async move {
            tx.execute("CREATE TABLE IF NOT EXISTS seen (n INTEGER)", ())
                .await?;
            tx.execute("INSERT INTO seen VALUES (1)", ()).await?;
            assert!(n != 7, "seven");
            Ok::<u32, Failure>(0)
        });
        let failure = bad.await.unwrap_err();
        assert_eq!(failure.code, "panic");
        cx.sleep(Duration::from_millis(1)).await;
        let count = cx.step("count", |tx| async move {
            tx.execute("CREATE TABLE IF NOT EXISTS seen (n INTEGER)", ())
                .await?;
            let rows = tx.query("SELECT n FROM seen", ()).await?;
            Ok::<_, Failure>(rows.len())
        });
        assert_eq!(count.await?, 0);
        Ok(n)
    })
    .await;
    let mut run = process.start(RUN, &7).await.unwrap();
    assert_eq!(soon("the end", run.result()).await.unwrap(), 7);
    assert_sound(&db).await;
}

async fn ro_24_a_panic_in_the_workflow_parks_it_and_the_worker_lives(db: Db) {
    let process = start(&db, |cx, n| async move {
        let value = cx.effect("quick", move |_| async move { Ok::<_, Failure>(n) });
        let value = value.await?;
        assert!(value != 7, "seven in the workflow");
        Ok(value)
    })
    .await;
    let mut bad = process.start(RUN, &7).await.unwrap();
    let result = soon("it parks", bad.result()).await;
    let Err(Error::Parked { reason, .. }) = result else {
        panic!("{result:?}")
    };
    assert_eq!(reason.code, "panic");
    assert!(reason.message.contains("seven in the workflow"), "{reason}");
    let mut good = process.start(RUN, &8).await.unwrap();
    assert_eq!(soon("another", good.result()).await.unwrap(), 8);
    process.shutdown().await;
    // Code that does not panic goes on from the journal.
    let mended = start(&db, |cx, n| async move {
        let value = cx.effect("quick", move |_| async move { Ok::<_, Failure>(n) });
        value.await
    })
    .await;
    mended.resume(&bad).await.unwrap();
    let mut bad = mended.handle(RUN, &bad).await.unwrap();
    assert_eq!(soon("it goes on", bad.result()).await.unwrap(), 7);
    assert_sound(&db).await;
}

async fn ro_24_a_panic_before_the_first_call_and_one_without_text(db: Db) {
    let process = start(&db, |_, n| {
        assert!(n != 1, "not even a future");
        async move {
            if n == 2 {
                std::panic::panic_any(42);
            }
            Ok(n)
        }
    })
    .await;
    for (input, text) in [(1, "not even a future"), (2, "not text")] {
        let mut run = process.start(RUN, &input).await.unwrap();
        let error = soon("it parks", run.result()).await.unwrap_err();
        assert!(error.to_string().contains(text), "{error}");
        let row = process.run(&run).await.unwrap().row;
        assert_eq!(row.state, RunState::Parked);
        let journal = process.journal(&run).await.unwrap();
        assert!(matches!(journal[..], [Entry::Started { .. }]));
    }
    let mut run = process.start(RUN, &3).await.unwrap();
    assert_eq!(soon("another", run.result()).await.unwrap(), 3);
    assert_sound(&db).await;
}

async fn ro_24_a_resource_is_opened_again_before_the_journal_is_matched(db: Db) {
    let opened = Arc::new(AtomicU32::new(0));
    let count = opened.clone();
    let process = start(&db, move |cx, n| {
        let count = count.clone();
        async move {
            let open = async {
                tokio::time::sleep(Duration::from_millis(2)).await;
                count.fetch_add(1, Ordering::Relaxed);
            };
            cx.resource(open).await;
            for _ in 0..n {
                cx.wait(GO).await?;
            }
            Ok(n)
        }
    })
    .await;
    let mut run = process.start(RUN, &3).await.unwrap();
    for sent in 1..=3 {
        until("it waits", || async {
            let row = process.run(&run).await.unwrap().row;
            let left = process.metrics().live == 0;
            left && (row.state, row.head) == (RunState::Waiting, sent * 2)
        })
        .await;
        process.signal(&run, GO, &1).await.unwrap();
    }
    assert_eq!(soon("the end", run.result()).await.unwrap(), 3);
    assert_eq!(opened.load(Ordering::Relaxed), 4, "once for each resume");
    assert_sound(&db).await;
}
