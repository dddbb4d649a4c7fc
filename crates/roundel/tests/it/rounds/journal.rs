//! The journal: gap-free, and what it says was done is never done again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use roundel::{Cx, Failure, Result, Signal, Workflow};
use roundel_store::Dump;

use super::sound::assert_sound;
use crate::support::{Db, Fault, Process, all, is_round, soon, until};

const TWENTY: Workflow<u32, Vec<u32>> = Workflow::named("twenty");
const LEDGER: Workflow<(), BTreeMap<String, usize>> = Workflow::named("ledger");
const MIXED: Workflow<(), u32> = Workflow::named("mixed");
const GO: Signal<u32> = Signal::named("go");
const STEPS: u32 = 20;

all![
    ro_20_entries_are_gap_free_with_one_terminal_and_a_beginning_for_each_end,
    ro_21_killed_anywhere_in_twenty_steps_each_is_done_once,
    ro_21_effects_that_ended_are_not_called_again,
    ro_21_the_idempotency_key_is_the_same_after_a_crash,
];

/// Twenty steps of the same name; each leaves a row in the ledger and tells its own number.
async fn twenty(cx: Cx, number: u32) -> Result<Vec<u32>> {
    let mut seen = Vec::new();
    for i in 0..STEPS {
        let step = cx.step("same", move |tx| async move {
            let table = "CREATE TABLE IF NOT EXISTS ledger (entry TEXT)";
            tx.execute(table, ()).await?;
            let insert = "INSERT INTO ledger VALUES ($1)";
            tx.execute(insert, (format!("{number}/{i}"),)).await?;
            Ok::<_, Failure>(i * i)
        });
        seen.push(step.await?);
    }
    Ok(seen)
}

/// How often each entry is in the ledger.
async fn ledger(cx: Cx, (): ()) -> Result<BTreeMap<String, usize>> {
    cx.step("read", |tx| async move {
        let rows = tx.query("SELECT entry FROM ledger", ()).await?;
        let mut counts = BTreeMap::new();
        for row in rows {
            *counts.entry(row.get::<String>(0)?).or_default() += 1;
        }
        Ok::<_, Failure>(counts)
    })
    .await
}

async fn start(db: &Db) -> Process {
    let set_up = db.start(|engine| engine.register(TWENTY, twenty).register(LEDGER, ledger));
    set_up.await
}

async fn ro_21_killed_anywhere_in_twenty_steps_each_is_done_once(db: Db) {
    let db = db.with_manual_clock();
    let squares: Vec<u32> = (0..STEPS).map(|i| i * i).collect();
    let mut number = 0;
    for strike in 0..=STEPS {
        for fault in [Fault::CrashBefore, Fault::CrashAfter] {
            number += 1;
            let first = start(&db).await;
            let mut left = strike;
            first.store.rule(move |ask| match left {
                _ if !is_round(ask) => Fault::Pass,
                0 => fault,
                _ => {
                    left -= 1;
                    Fault::Pass
                }
            });
            let key = number.to_string();
            let begun = first.start(TWENTY, &number).key(key.clone());
            let begun = tokio::spawn(begun.into_future());
            until("it crashed", || async { first.store.is_cut() }).await;
            begun.abort();
            first.crash();
            db.advance(Duration::from_secs(31));
            let second = start(&db).await;
            let mut run = second.start(TWENTY, &number).key(key).await.unwrap();
            let seen = db.meanwhile("the end", run.result()).await.unwrap();
            assert_eq!(seen, squares, "{strike} {fault:?}");
            second.shutdown().await;
        }
    }
    let process = start(&db).await;
    let mut run = process.start(LEDGER, &()).await.unwrap();
    let counts = db.meanwhile("the ledger", run.result()).await.unwrap();
    assert_eq!(counts.len() as u32, number * STEPS, "every entry");
    assert!(counts.values().all(|count| *count == 1), "once: {counts:?}");
    assert_sound(&db).await;
}

/// Calls `tell` in each of ten effects.
fn told(seen: &Arc<Mutex<Vec<(u32, String)>>>) -> impl Fn(Cx, u32) -> Told + Send + Sync + use<> {
    let seen = seen.clone();
    move |cx, _| {
        let seen = seen.clone();
        Box::pin(async move {
            let mut values = Vec::new();
            for i in 0..10 {
                let seen = seen.clone();
                let effect = cx.effect("same", move |attempt| {
                    seen.lock().unwrap().push((i, attempt.key()));
                    async move { Ok::<_, Failure>(i) }
                });
                values.push(effect.await?);
            }
            Ok(values)
        })
    }
}

type Told = std::pin::Pin<Box<dyn Future<Output = Result<Vec<u32>>> + Send>>;

async fn ro_21_effects_that_ended_are_not_called_again(db: Db) {
    let db = db.with_manual_clock();
    for strike in 1..=10 {
        let seen = Arc::default();
        let first = db
            .start(|engine| engine.register(TWENTY, told(&seen)))
            .await;
        let mut left = strike;
        first.store.rule(move |ask| match left {
            _ if !is_round(ask) => Fault::Pass,
            0 => Fault::CrashBefore,
            _ => {
                left -= 1;
                Fault::Pass
            }
        });
        let run = first.start(TWENTY, &0).await.unwrap().id();
        until("it crashed", || async { first.store.is_cut() }).await;
        first.crash();
        let ended = seen.lock().unwrap().len() - 1;
        db.advance(Duration::from_secs(31));
        let second = db
            .start(|engine| engine.register(TWENTY, told(&seen)))
            .await;
        let mut run = second.handle(TWENTY, run).await.unwrap();
        let values = db.meanwhile("the end", run.result()).await.unwrap();
        assert_eq!(values, (0..10).collect::<Vec<u32>>());
        // The one whose result was lost is called again, with the same key; no other is.
        let seen = seen.lock().unwrap().clone();
        assert_eq!(seen.len(), 11, "{seen:?}");
        assert_eq!(seen[ended], seen[ended + 1]);
        second.shutdown().await;
    }
    assert_sound(&db).await;
}

async fn ro_21_the_idempotency_key_is_the_same_after_a_crash(db: Db) {
    let seen = Arc::default();
    let process = db
        .start(|engine| engine.register(TWENTY, told(&seen)))
        .await;
    for _ in 0..2 {
        let mut run = process.start(TWENTY, &0).await.unwrap();
        soon("the end", run.result()).await.unwrap();
    }
    let mut keys: Vec<String> = seen
        .lock()
        .unwrap()
        .iter()
        .map(|(_, key)| key.clone())
        .collect();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 20, "and no two calls have the same");
}

/// Steps, effects, a child, a signal, an attempt that failed, a branch that lost.
async fn mixed(cx: Cx, (): ()) -> Result<u32> {
    let one = cx.step("one", |_| async { Ok::<_, Failure>(1) });
    let two = cx.effect("two", |attempt| async move {
        match attempt.number() {
            1 => Err(Failure::transient("not yet")),
            _ => Ok(2),
        }
    });
    let retry = roundel::Retry::fixed(2, Duration::from_millis(1));
    let (one, two) = roundel::future::join(one, two.retry(retry)).await;
    let lost = cx.sleep(Duration::from_secs(3600));
    let three = match roundel::future::select(cx.wait(GO), lost).await {
        roundel::future::Either::Left((three, _)) => three?,
        roundel::future::Either::Right(_) => 0,
    };
    let seen = cx.child(TWENTY, &0).await?.len();
    Ok(one? + two? + three + u32::try_from(seen).unwrap())
}

async fn mixed_dump(db: &Db) -> Dump {
    let set_up = db.start(|engine| engine.register(TWENTY, twenty).register(MIXED, mixed));
    let process = set_up.await;
    let mut run = process.start(MIXED, &()).await.unwrap();
    process.signal(&run, GO, &3).await.unwrap();
    assert_eq!(soon("the end", run.result()).await.unwrap(), 26);
    process.shutdown().await;
    assert_sound(db).await
}

async fn ro_20_entries_are_gap_free_with_one_terminal_and_a_beginning_for_each_end(db: Db) {
    let dump = mixed_dump(&db).await;
    let entries: u32 = dump.journal.iter().map(|row| row.count).sum();
    assert!(entries > 30, "{entries}");
    let epochs = dump.journal.iter().map(|row| (row.run, row.epoch));
    let mut last = BTreeMap::new();
    for (run, epoch) in epochs {
        let before = last.insert(run, epoch);
        assert!(before.is_none_or(|before| before < epoch), "{run}: {epoch}");
    }
}
