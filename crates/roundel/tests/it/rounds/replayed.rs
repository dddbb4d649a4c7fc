//! A run in memory and the same run replayed from its journal are in the same state after every
//! entry: whatever is dropped from memory, and wherever its process is killed, the journal and the
//! result are those of a run to which nothing happened.

use std::time::Duration;

use roundel::future::{Either, join3, select};
use roundel::{Cx, Entry, Error, Failure, Result, Retry, RunId, Sent, Signal, Workflow};
use roundel_core::{Call, Outcome};

use super::sound::assert_sound;
use crate::support::{Db, Fault, Process, all, is_round, until};

const ZOO: Workflow<u32, String> = Workflow::named("zoo");
const CUB: Workflow<u32, u32> = Workflow::named("cub");
const IDLE: Workflow<(), u32> = Workflow::named("idle");
const RED: Signal<u32> = Signal::named("red");
const BLUE: Signal<u32> = Signal::named("blue").offerable();
const GREEN: Signal<u32> = Signal::named("green");
const GO: Signal<u32> = Signal::named("go");
const NEVER: Signal<u32> = Signal::named("never");

all![
    ro_25_dropped_from_memory_at_every_wait_it_is_the_same,
    ro_25_killed_after_every_round_it_is_the_same,
];

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

async fn cub(cx: Cx, n: u32) -> Result<u32> {
    cx.effect("grow", move |_| async move { Ok::<_, Failure>(n + 1) })
        .await
}

async fn idle(cx: Cx, (): ()) -> Result<u32> {
    cx.wait(RED).await
}

/// One of everything that a workflow can do.
async fn zoo(cx: Cx, n: u32) -> Result<String> {
    let one = cx.step("one", move |_| async move { Ok::<_, Failure>(n) });
    let mut seen = vec![one.await?];
    let two = cx.effect("two", |attempt| async move {
        match attempt.number() {
            3 => Ok(attempt.number()),
            _ => Err(Failure::transient("not yet")),
        }
    });
    seen.push(two.retry(Retry::fixed(3, ms(20))).await?);
    let fails = cx.effect("fails", |_| async {
        Err::<u32, _>(Failure::business("no"))
    });
    seen.push(
        fails
            .await
            .unwrap_or_else(|failure| failure.message.len() as u32),
    );
    let same = (cx.now().await?, cx.uuid().await?, cx.random().await?);
    seen.push(cx.child(CUB, &n).await?);
    // What comes from outside is all there from here on, so that nothing hangs on when it came.
    cx.wait(GO).await?;
    let effect = |value: u32| cx.effect("join", move |_| async move { Ok::<_, Failure>(value) });
    let (three, four, five) = join3(effect(3), effect(4), cx.wait(RED)).await;
    seen.extend([three?, four?, five?]);
    let long = cx.sleep(Duration::from_secs(100_000));
    if let Either::Left((six, _)) = select(cx.wait(BLUE), long).await {
        seen.push(six?);
    }
    if let Either::Right((seven, _)) = select(cx.child(IDLE, &()), cx.wait(BLUE)).await {
        seen.push(seven?);
    }
    cx.set_state(&seen).await?;
    let state: Option<Vec<u32>> = cx.state().await?;
    assert_eq!(state.as_ref(), Some(&seen));
    let own = cx.signal(cx.run(), GREEN, &8).await?;
    assert_eq!(own, Sent::Queued);
    seen.push(cx.wait(GREEN).await?);
    let spawned = cx.spawn(CUB, &8).await?;
    seen.push(cx.wait_for::<u32>(spawned).await?);
    let late = cx.wait(NEVER).within(ms(50)).await.unwrap_err();
    assert_eq!(late.code, "timed_out");
    cx.sleep(ms(20)).await;
    let again = cx.now().await?;
    assert!(again >= same.0);
    Ok(format!("{seen:?}"))
}

const EXPECTED: &str = "[7, 3, 2, 8, 3, 4, 5, 6, 7, 8, 9]";

async fn start(db: &Db, keep: usize) -> Process {
    let set_up = db.start(|engine| {
        let engine = engine.register(ZOO, zoo).register(CUB, cub);
        let engine = engine.register(IDLE, idle);
        engine.keep_in_memory(keep, Duration::from_secs(3600))
    });
    set_up.await
}

/// Starts the zoo with all it will wait for; perhaps the process does not live to tell.
async fn begin(process: &Process, key: &str) {
    let key = key.to_owned();
    let start = process.start(ZOO, &7).key(key.clone());
    let begun = tokio::spawn(start.into_future());
    until("it has begun", || async {
        process.store.is_cut() || begun.is_finished()
    })
    .await;
    begun.abort();
}

/// Sends all that it waits for, and gives its result. Nothing comes of it if the process dies.
async fn feed(process: &Process, key: &str) -> Result<String, Error> {
    for (signal, value) in [(RED, 5_u32), (BLUE, 6), (BLUE, 7), (GO, 0)] {
        let sent = process.signal(key, signal, &value);
        sent.key(format!("{key} {value}")).await?;
    }
    process.handle(ZOO, key).await?.result().await
}

/// What an entry says, without what differs from run to run.
fn shown(entry: &Entry) -> String {
    let outcome = |outcome: &Outcome| match outcome {
        Outcome::Value(value) => value.as_str().to_owned(),
        Outcome::Failure(failure) => format!("{failure:?}"),
    };
    match entry {
        Entry::Begun { call, what } => format!("begun {call} {what}"),
        Entry::Did { call, what, .. } if matches!(what, Call::Record { .. }) => {
            format!("did {call} {what}")
        }
        Entry::Did {
            call,
            what,
            outcome: of,
        } => format!("did {call} {what} {}", outcome(of)),
        Entry::Done { call, outcome: of } => {
            let of = outcome(of);
            // The id of a spawned run.
            let id = of.trim_matches('"').parse::<RunId>().is_ok();
            format!("done {call} {}", if id { "an id" } else { &of })
        }
        Entry::Attempted { call, attempt, .. } => format!("attempted {call} {attempt}"),
        other => format!("{other:?}"),
    }
}

/// The journal, without the end of the child that lost: it comes when it comes.
async fn journal(process: &Process, key: &str) -> Vec<String> {
    let entries = process.journal(key).await.unwrap();
    let lost = |call: u32| entries.contains(&Entry::Dropped { call });
    let kept = entries.iter().filter(|entry| match entry {
        Entry::Done { call, .. } => !lost(*call),
        _ => true,
    });
    kept.map(shown).collect()
}

/// The journal of a run to which nothing happened.
async fn reference(db: &Db) -> Vec<String> {
    let process = start(db, 100).await;
    begin(&process, "reference").await;
    let result = db.meanwhile("the end", feed(&process, "reference")).await;
    assert_eq!(result.unwrap(), EXPECTED);
    assert_eq!(process.metrics().replays, 0, "nothing was replayed");
    let journal = journal(&process, "reference").await;
    process.shutdown().await;
    assert!(journal.len() > 40, "{journal:#?}");
    journal
}

async fn ro_25_dropped_from_memory_at_every_wait_it_is_the_same(db: Db) {
    let db = db.with_manual_clock();
    let reference = reference(&db).await;
    let process = start(&db, 0).await;
    begin(&process, "dropped").await;
    let result = db.meanwhile("the end", feed(&process, "dropped")).await;
    assert_eq!(result.unwrap(), EXPECTED);
    assert!(process.metrics().replays >= 3, "{:?}", process.metrics());
    assert_eq!(journal(&process, "dropped").await, reference);
    process.shutdown().await;
    assert_sound(&db).await;
}

async fn ro_25_killed_after_every_round_it_is_the_same(db: Db) {
    let db = db.with_manual_clock();
    let reference = reference(&db).await;
    for strike in 0.. {
        let key = format!("killed {strike}");
        let first = start(&db, 100).await;
        let mut left = strike;
        first.store.rule(move |ask| match left {
            _ if !is_round(ask) => Fault::Pass,
            0 => Fault::CrashAfter,
            _ => {
                left -= 1;
                Fault::Pass
            }
        });
        begin(&first, &key).await;
        let ended = {
            let crashed = until("it crashed", || async { first.store.is_cut() });
            let fed = select(Box::pin(feed(&first, &key)), Box::pin(crashed));
            match db.meanwhile("an end", fed).await {
                Either::Left((Ok(result), _)) => Some(result),
                _ => None,
            }
        };
        if let Some(result) = ended {
            assert_eq!(result, EXPECTED);
            assert!(strike > 20, "{strike} rounds");
            break;
        }
        first.crash();
        db.advance(Duration::from_secs(31));
        let second = start(&db, 100).await;
        let so_far = journal(&second, &key).await;
        let prefix = &reference[..so_far.len().min(reference.len())];
        assert_eq!(so_far, prefix, "strike {strike}");
        let result = db.meanwhile("the end", feed(&second, &key)).await;
        assert_eq!(result.unwrap(), EXPECTED, "strike {strike}");
        assert_eq!(journal(&second, &key).await, reference, "strike {strike}");
        second.shutdown().await;
    }
    assert_sound(&db).await;
}
