//! Of several commands that are alike, one is handled: the first of a time, or the last.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use roundel::{Attempt, Command, Cx, Failure, Result, RunState, Workflow};

use crate::rounds::sound::assert_sound;
use crate::support::{Db, Process, all, soon, until};

const MAIL: Command<u32, u32> = Command::named("mail");
const FAX: Command<u32, u32> = Command::named("fax");
const MINUTE: Duration = Duration::from_secs(60);

all![
    co_30_commands_that_are_alike_are_answered_with_the_first,
    co_30_a_debounced_command_is_the_last_once_nobody_comes_any_more,
    co_30_of_many_that_are_alike_and_sent_at_once_one_is_handled,
    co_30_what_steps_send_is_deduped_and_debounced_with_what_others_send,
    co_30_a_workflow_waits_for_the_reply_of_the_one_that_stands_for_its_own,
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

const TELL: Workflow<u32, ()> = Workflow::named("tell");
const ASK: Workflow<u32, u32> = Workflow::named("ask");

/// One step sends two of each kind.
async fn tell(cx: Cx, number: u32) -> Result<()> {
    let sends = |tx| async move {
        for number in [number, number + 1] {
            MAIL.send(&tx, &number).dedupe("anna", MINUTE).await?;
            FAX.send(&tx, &number).debounce("anna", MINUTE).await?;
        }
        Ok::<_, Failure>(())
    };
    cx.step("tell", sends).await
}

async fn ask(cx: Cx, number: u32) -> Result<u32> {
    let run = cx.send(MAIL, &number).dedupe("anna", MINUTE).await?;
    cx.wait_for(run).await
}

async fn both(db: &Db, handled: &Arc<AtomicU32>) -> Process {
    let handled = handled.clone();
    let handler = move |_: Attempt, number: u32| {
        handled.fetch_add(1, Ordering::Relaxed);
        async move { Ok::<_, Failure>(number) }
    };
    let engine = db.start(|engine| {
        let engine = engine.handle(MAIL, handler.clone()).handle(FAX, handler);
        engine.register(TELL, tell).register(ASK, ask)
    });
    engine.await
}

async fn co_30_what_steps_send_is_deduped_and_debounced_with_what_others_send(db: Db) {
    let db = db.with_manual_clock();
    let handled = Arc::new(AtomicU32::new(0));
    let process = both(&db, &handled).await;
    for number in [10, 20] {
        let mut told = process.start(TELL, &number).await.unwrap();
        soon("the steps", told.result()).await.unwrap();
    }
    let mut mail = process.send(MAIL, &3).dedupe("anna", MINUTE).await.unwrap();
    assert!(!mail.is_new());
    assert_eq!(soon("the first", mail.result()).await.unwrap(), 10);
    let row = async |command| {
        let page = process.runs().of(command).unwrap().fetch().await.unwrap();
        assert_eq!(page.items.len(), 1);
        page.items[0].row.clone()
    };
    let fax = row("fax").await;
    assert_eq!((fax.state, fax.execution), (RunState::Ready, 4));
    db.advance(MINUTE);
    until("the last is handled", async || {
        row("fax").await.state == RunState::Completed
    })
    .await;
    let mut fax = process.handle(FAX_RUN, fax.id).await.unwrap();
    assert_eq!(soon("the last", fax.result()).await.unwrap(), 21);
    assert_eq!(handled.load(Ordering::Relaxed), 2);
    assert_sound(&db).await;
}

const FAX_RUN: Workflow<u32, u32> = Workflow::named("fax");

async fn co_30_a_workflow_waits_for_the_reply_of_the_one_that_stands_for_its_own(db: Db) {
    let db = db.with_manual_clock();
    let handled = Arc::new(AtomicU32::new(0));
    let process = both(&db, &handled).await;
    let mut first = process.start(ASK, &1).await.unwrap();
    assert_eq!(soon("its own", first.result()).await.unwrap(), 1);
    let mut second = process.start(ASK, &2).await.unwrap();
    assert_eq!(soon("the other's", second.result()).await.unwrap(), 1);
    db.advance(MINUTE);
    let mut third = process.start(ASK, &3).await.unwrap();
    assert_eq!(soon("its own", third.result()).await.unwrap(), 3);
    assert_eq!(handled.load(Ordering::Relaxed), 2);
    assert_sound(&db).await;
}
