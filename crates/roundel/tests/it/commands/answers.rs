//! A command is answered once, whoever ends it; what has ended is not handled; who stops waits for
//! what is in hand; what nobody tells of is found.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use roundel::{Attempt, Command, Cx, Entry, Failure, Retry, RunState, Workflow};
use roundel_core::Op;
use roundel_store::Ask;
use tokio::sync::Notify;

use crate::rounds::sound::assert_sound;
use crate::support::{Db, Fault, Process, all, soon, until};

const WORK: Command<u32, u32> = Command::named("work").retry(Retry::none());
const CALLS: Workflow<u32, u32> = Workflow::named("calls");

all![
    co_02_what_has_ended_before_it_was_taken_up_is_not_handled,
    co_03_a_command_is_answered_once_whatever_operators_do,
    co_03_who_waits_for_no_reply_gets_no_message,
    k10_who_stopped_waiting_finds_the_reply_later,
    co_04_what_nobody_knows_is_tried_again_and_a_panic_is_parked_at_once,
    co_06_a_stop_waits_for_what_is_in_hand,
    co_06_a_command_that_nobody_tells_of_is_found_by_the_sweep,
    co_06_after_an_outage_work_goes_on_by_itself,
];

/// What is given 0 is parked.
async fn start(db: &Db, handled: &Arc<AtomicU32>) -> Process {
    let handled = handled.clone();
    let handler = move |_: Attempt, number: u32| {
        handled.fetch_add(1, Ordering::Relaxed);
        async move {
            match number {
                0 => Err(Failure::permanent("broken")),
                number => Ok(number),
            }
        }
    };
    let calls = |cx: Cx, number: u32| async move { cx.call(WORK, &number).key("it").await };
    let engine = db.start(|engine| engine.handle(WORK, handler).register(CALLS, calls));
    engine.await
}

async fn co_02_what_has_ended_before_it_was_taken_up_is_not_handled(db: Db) {
    let client = db.start(|engine| engine).await;
    client.send(WORK, &1).key("cancelled").await.unwrap();
    client.send(WORK, &2).key("completed").await.unwrap();
    client.send(WORK, &3).key("left").await.unwrap();
    client.cancel("work:cancelled").await.unwrap();
    client.complete("work:completed", &20).await.unwrap();
    let handled = Arc::new(AtomicU32::new(0));
    let process = start(&db, &handled).await;
    let mut left = process.sent(WORK, "left").await.unwrap();
    assert_eq!(soon("its reply", left.result()).await.unwrap(), 3);
    let mut completed = process.sent(WORK, "completed").await.unwrap();
    assert_eq!(soon("its reply", completed.result()).await.unwrap(), 20);
    assert_eq!(handled.load(Ordering::Relaxed), 1, "only what is left");
    let dump = assert_sound(&db).await;
    let due = dump.runs.iter().filter(|run| run.ready_at.is_some());
    assert_eq!(due.count(), 0);
}

async fn co_03_a_command_is_answered_once_whatever_operators_do(db: Db) {
    let handled = Arc::new(AtomicU32::new(0));
    let process = start(&db, &handled).await;
    for turn in 0..6_u32 {
        let mut called = process.start(CALLS, &0).await.unwrap();
        until("it is parked", async || {
            process.parked().count().await.unwrap() == 1
        })
        .await;
        let client = process.client();
        // In whatever order they arrive, one of them ends it.
        let (value, payload) = (10 + turn, 7_u32);
        let complete = client.complete("work:it", &value);
        let cancel = client.cancel("work:it");
        let anew = client.resume_with("work:it", &payload);
        let _ = match turn % 3 {
            0 => tokio::join!(complete, cancel, anew),
            1 => {
                let (cancel, anew, complete) = tokio::join!(cancel, anew, complete);
                (complete, cancel, anew)
            }
            _ => {
                let (anew, complete, cancel) = tokio::join!(anew, complete, cancel);
                (complete, cancel, anew)
            }
        };
        let reply = soon("its reply", called.result()).await;
        let command = process.run("work:it").await.unwrap().row;
        let told = command.outcome.clone();
        assert!(command.state.has_ended(), "{:?}", command.state);
        let expected = [value, payload].map(Some);
        assert!(reply.is_err() || expected.contains(&reply.ok()));
        // Whoever comes later changes nothing.
        let _ = client.complete("work:it", &99_u32).await;
        let _ = client.cancel("work:it").await;
        assert!(client.resume("work:it").await.is_err());
        assert_eq!(process.run("work:it").await.unwrap().row.outcome, told);
        let journal = process.journal("work:it").await.unwrap();
        let ends = |entry: &&Entry| matches!(entry, Entry::Ended { .. });
        assert_eq!(journal.iter().filter(ends).count(), 1, "{journal:?}");
        process.delete(&called).await.unwrap();
    }
    assert_sound(&db).await;
}

async fn co_03_who_waits_for_no_reply_gets_no_message(db: Db) {
    let handled = Arc::new(AtomicU32::new(0));
    let process = start(&db, &handled).await;
    let mut sent = process.send(WORK, &5).await.unwrap();
    assert_eq!(soon("its reply", sent.result()).await.unwrap(), 5);
    let dump = assert_sound(&db).await;
    assert!(dump.mail.is_empty() && dump.watches.is_empty());
    let row = &dump.runs[0];
    assert_eq!((row.state, row.ready_at), (RunState::Completed, None));
}

async fn k10_who_stopped_waiting_finds_the_reply_later(db: Db) {
    let client = db.start(|engine| engine).await;
    let mut sent = client.send(WORK, &8).key("late").await.unwrap();
    let waits = tokio::time::timeout(Duration::from_millis(1), sent.result());
    assert!(waits.await.is_err(), "nobody handles it");
    drop(sent);
    let handled = Arc::new(AtomicU32::new(0));
    let process = start(&db, &handled).await;
    until("it is handled", async || {
        process.run("work:late").await.unwrap().row.state == RunState::Completed
    })
    .await;
    // Also by one who never asked for it, and again.
    for asks in [client.client(), process.client()] {
        let mut found = asks.sent(WORK, "late").await.unwrap();
        assert_eq!(soon("its reply", found.result()).await.unwrap(), 8);
    }
    assert_eq!(handled.load(Ordering::Relaxed), 1);
}

async fn co_04_what_nobody_knows_is_tried_again_and_a_panic_is_parked_at_once(db: Db) {
    const SHAKY: Command<u32, u32> =
        Command::named("shaky").retry(Retry::fixed(3, Duration::from_millis(1)));
    let tries = Arc::new(AtomicU32::new(0));
    let tried = tries.clone();
    let handler = move |_: Attempt, number: u32| {
        let before = tried.fetch_add(1, Ordering::Relaxed);
        async move {
            assert!(number != 0, "zero is out of the question");
            match before {
                0 => Err(std::io::Error::other("something went wrong")),
                _ => Ok(number),
            }
        }
    };
    let process = db.start(|engine| engine.handle(SHAKY, handler)).await;
    let mut sent = process.send(SHAKY, &3).await.unwrap();
    assert_eq!(soon("its reply", sent.result()).await.unwrap(), 3);
    assert_eq!(tries.load(Ordering::Relaxed), 2);
    process.send(SHAKY, &0).await.unwrap();
    until("it is parked", async || {
        process.parked().count().await.unwrap() == 1
    })
    .await;
    assert_eq!(
        tries.load(Ordering::Relaxed),
        3,
        "only a change of code helps"
    );
    let parked = &process.parked().fetch().await.unwrap().items[0];
    let why = format!("{parked:?}");
    assert!(why.contains("zero is out of the question"), "{why}");
}

async fn co_06_a_stop_waits_for_what_is_in_hand(db: Db) {
    let (begun, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (tell, gate) = (begun.clone(), go.clone());
    let handler = move |_: Attempt, number: u32| {
        let (tell, gate) = (tell.clone(), gate.clone());
        async move {
            tell.notify_one();
            gate.notified().await;
            Ok::<u32, Failure>(number)
        }
    };
    let process = db.start(|engine| engine.handle(WORK, handler)).await;
    let first = process.send(WORK, &1).await.unwrap().id();
    soon("it begins", begun.notified()).await;
    let stopping = process.engine.shutdown();
    let finishing = async {
        tokio::task::yield_now().await;
        go.notify_one();
    };
    soon("it stops", async { tokio::join!(stopping, finishing) }).await;
    let dump = assert_sound(&db).await;
    let row = dump.runs.iter().find(|row| row.id == first).expect("it");
    assert_eq!(row.state, RunState::Completed);
}

async fn co_06_a_command_that_nobody_tells_of_is_found_by_the_sweep(db: Db) {
    let db = db.with_manual_clock();
    let handled = Arc::new(AtomicU32::new(0));
    let process = start(&db, &handled).await;
    process.store.lose_hints();
    let client = db.start(|engine| engine).await;
    client.store.lose_hints();
    let mut sent = client.send(WORK, &4).await.unwrap();
    let reply = tokio::spawn(async move { sent.result().await });
    until("it is answered", || {
        db.advance(Duration::from_secs(1));
        std::future::ready(reply.is_finished())
    })
    .await;
    assert_eq!(reply.await.unwrap().unwrap(), 4);
}

async fn co_06_after_an_outage_work_goes_on_by_itself(db: Db) {
    let handled = Arc::new(AtomicU32::new(0));
    let process = start(&db, &handled).await;
    let client = db.start(|engine| engine).await;
    process.store.rule(|ask| match ask {
        Ask::Op(Op::Claim(_) | Op::Commit(_) | Op::Start(_)) => Fault::Unavailable,
        _ => Fault::Pass,
    });
    let mut sent = client.send(WORK, &4).await.unwrap();
    until("claims fail", async || process.metrics().claims_failed > 2).await;
    process.store.mend();
    assert_eq!(soon("its reply", sent.result()).await.unwrap(), 4);
    assert_eq!(
        handled.load(Ordering::Relaxed),
        1,
        "the command is not to blame"
    );
    assert!(process.parked().fetch().await.unwrap().items.is_empty());
}
