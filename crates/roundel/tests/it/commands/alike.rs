//! Of several commands that are alike, one is handled: the first of a time, or the last.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use roundel::{Attempt, Command, Failure, RunState};

use crate::rounds::sound::assert_sound;
use crate::support::{Db, Process, all, soon, until};

const MAIL: Command<u32, u32> = Command::named("mail");
const FAX: Command<u32, u32> = Command::named("fax");
const MINUTE: Duration = Duration::from_secs(60);

all![
    co_30_commands_that_are_alike_are_answered_with_the_first,
    co_30_a_debounced_command_is_the_last_once_nobody_comes_any_more,
    co_30_of_many_that_are_alike_and_sent_at_once_one_is_handled,
];

async fn start(db: &Db, handled: &Arc<AtomicU32>) -> Process {
    let handled = handled.clone();
    let handler = move |_: Attempt, number: u32| {
        handled.fetch_add(1, Ordering::Relaxed);
        async move { Ok::<_, Failure>(number) }
    };
    let start = db.start(|engine| engine.handle(MAIL, handler.clone()).handle(FAX, handler));
    start.await
}

async fn co_30_commands_that_are_alike_are_answered_with_the_first(db: Db) {
    let db = db.with_manual_clock();
    let handled = Arc::new(AtomicU32::new(0));
    let process = start(&db, &handled).await;
    let mut first = process.send(MAIL, &1).dedupe("anna", MINUTE).await.unwrap();
    assert_eq!(soon("reply", first.result()).await.unwrap(), 1);
    db.advance(MINUTE / 2);
    let mut again = process.send(MAIL, &2).dedupe("anna", MINUTE).await.unwrap();
    assert_eq!(again.id(), first.id(), "also if it has ended");
    assert_eq!(soon("reply", again.result()).await.unwrap(), 1);
    let other = process.send(MAIL, &3).dedupe("bert", MINUTE).await.unwrap();
    let elsewhere = process.send(FAX, &4).dedupe("anna", MINUTE).await.unwrap();
    for mut sent in [other, elsewhere] {
        assert_ne!(sent.id(), first.id());
        soon("reply", sent.result()).await.unwrap();
    }
    db.advance(MINUTE);
    let mut late = process.send(MAIL, &5).dedupe("anna", MINUTE).await.unwrap();
    assert_eq!(soon("reply", late.result()).await.unwrap(), 5);
    // What is gone stands for nothing.
    process.delete(late.id()).await.unwrap();
    let mut new = process.send(MAIL, &6).dedupe("anna", MINUTE).await.unwrap();
    assert_eq!(soon("reply", new.result()).await.unwrap(), 6);
    assert_eq!(handled.load(Ordering::Relaxed), 5);
    assert_sound(&db).await;
}

async fn co_30_a_debounced_command_is_the_last_once_nobody_comes_any_more(db: Db) {
    let db = db.with_manual_clock();
    let handled = Arc::new(AtomicU32::new(0));
    let process = start(&db, &handled).await;
    let mut first = process
        .send(MAIL, &1)
        .debounce("anna", MINUTE)
        .await
        .unwrap();
    for number in 2..=4 {
        db.advance(MINUTE * 2 / 3);
        let sent = process.send(MAIL, &number).debounce("anna", MINUTE);
        assert_eq!(sent.await.unwrap().id(), first.id());
    }
    let row = process.run(first.id()).await.unwrap().row;
    assert_eq!((row.state, row.execution), (RunState::Ready, 4));
    assert_eq!(handled.load(Ordering::Relaxed), 0);
    db.advance(MINUTE);
    assert_eq!(soon("reply", first.result()).await.unwrap(), 4);
    let mut next = process
        .send(MAIL, &5)
        .debounce("anna", MINUTE)
        .await
        .unwrap();
    assert_ne!(next.id(), first.id(), "it has begun");
    db.advance(MINUTE);
    assert_eq!(soon("reply", next.result()).await.unwrap(), 5);
    assert_eq!(handled.load(Ordering::Relaxed), 2);
    assert_sound(&db).await;
}

async fn co_30_of_many_that_are_alike_and_sent_at_once_one_is_handled(db: Db) {
    let handled = Arc::new(AtomicU32::new(0));
    let process = start(&db, &handled).await;
    let sends = (0..20_u32).map(|number| {
        let client = process.client().clone();
        tokio::spawn(async move {
            let sent = client.send(MAIL, &number).dedupe("anna", MINUTE * 60);
            sent.await.unwrap().id()
        })
    });
    let sends: Vec<_> = sends.collect();
    let mut runs = Vec::new();
    for sent in sends {
        runs.push(sent.await.unwrap());
    }
    runs.dedup();
    assert_eq!(runs.len(), 1, "{runs:?}");
    until("it is handled", async || {
        process.run(runs[0]).await.unwrap().row.state == RunState::Completed
    })
    .await;
    assert_eq!(handled.load(Ordering::Relaxed), 1);
    assert_sound(&db).await;
}
