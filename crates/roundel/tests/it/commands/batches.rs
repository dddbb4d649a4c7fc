//! Batches: sent whole or not at all, finished when every command has ended, followed once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use roundel::{
    Attempt, Batch, BatchEnd, BatchState, Command, Cx, Error, Failure, Refusal, Result, Retry,
    RunState, Tx, Workflow,
};

use crate::rounds::sound::assert_sound;
use crate::support::{Db, Process, all, soon, until};

const QUICK: Retry = Retry::fixed(2, Duration::from_millis(5));
const MAIL: Command<u32, u32> = Command::named("mail").retry(QUICK);
const REPORT: Command<String, ()> = Command::named("report").retry(QUICK);
const NIGHT: Workflow<String, BatchEnd> = Workflow::named("night");

all![
    co_11_a_batch_is_finished_when_all_have_ended_and_is_followed_once,
    co_11_the_same_batch_again_is_the_first_and_another_is_a_conflict,
    co_11_one_id_in_use_refuses_all_and_empty_is_an_error,
    co_11_a_parked_command_makes_its_batch_wait_for_the_operator,
    co_11_a_cancelled_batch_ends_what_has_not_ended_and_keeps_the_replies,
    co_11_a_workflow_waits_for_a_batch,
    co_11_a_step_sends_a_batch_with_its_writes_or_not_at_all,
    co_11_batches_are_listed_in_pages,
    co_11_an_ended_batch_is_pruned_with_its_commands,
    co_11_the_counters_are_right_with_concurrent_workers,
];

/// Handles by number: 13 is broken until mended, 0 is refused.
#[derive(Clone, Default)]
struct Post {
    mended: Arc<AtomicU32>,
    reports: Arc<AtomicU32>,
}

async fn night(cx: Cx, how: String) -> Result<BatchEnd> {
    if how == "waits" {
        return cx.batch(mails(&[1, 0, 2])).await;
    }
    let in_step = cx.step("send", |tx: Tx| {
        let how = how.clone();
        async move {
            mails(&[1, 2]).key("in-step").send(&tx).await?;
            match how.as_str() {
                "fails" => Err(Failure::business("not tonight")),
                _ => Ok(()),
            }
        }
    });
    in_step.await?;
    let sent = cx.send_batch(mails(&[3]).key("spawned")).await?;
    cx.wait_for::<BatchEnd>(sent).await
}

/// A batch of these, each under its number as its id.
fn mails(numbers: &[u32]) -> Batch {
    let member = |number: &u32| MAIL.member(number).key(number.to_string());
    numbers.iter().map(member).collect()
}

async fn start(db: &Db, post: &Post) -> Process {
    let (post, reports) = (post.clone(), post.clone());
    let set_up = db.start(|engine| {
        let mail = move |_: Attempt, number: u32| {
            let mended = post.mended.load(Ordering::Relaxed) > 0;
            async move {
                match number {
                    0 => Err(Failure::business("no address")),
                    13 if !mended => Err(Failure::permanent("the printer is broken")),
                    number => Ok(number),
                }
            }
        };
        let report = move |_: Attempt, _: String| {
            reports.reports.fetch_add(1, Ordering::Relaxed);
            async move { Ok::<_, Failure>(()) }
        };
        let engine = engine.handle(MAIL, mail).handle(REPORT, report);
        engine.register(NIGHT, night)
    });
    set_up.await
}

async fn co_11_a_batch_is_finished_when_all_have_ended_and_is_followed_once(db: Db) {
    let post = Post::default();
    let process = start(&db, &post).await;
    let batch = mails(&[1, 2, 0]).then(REPORT.member(&"done".to_owned()).key("r"));
    let mut sent = process.batch(batch).await.unwrap();
    let end = soon("its end", sent.result()).await.unwrap();
    assert_eq!((end.commands, end.failed), (3, 1));
    let mut report = process.sent(REPORT, "r").await.unwrap();
    soon("the report", report.result()).await.unwrap();
    assert_eq!(post.reports.load(Ordering::Relaxed), 1);
    let view = process.batch_view(&sent).await.unwrap();
    assert_eq!((view.state(), view.commands()), (BatchState::Finished, 3));
    assert_eq!(view.count(RunState::Failed), 1);
    // Each command is one, and has its reply.
    let mut mail = process.sent(MAIL, "2").await.unwrap();
    assert_eq!(soon("a reply", mail.result()).await.unwrap(), 2);
    assert_sound(&db).await;
}

async fn co_11_the_same_batch_again_is_the_first_and_another_is_a_conflict(db: Db) {
    let process = start(&db, &Post::default()).await;
    let first = process.batch(mails(&[1, 2]).key("night")).await.unwrap();
    let mut again = process.batch(mails(&[1, 2]).key("night")).await.unwrap();
    assert!(first.is_new() && !again.is_new());
    assert_eq!(first.id(), again.id());
    let other = process.batch(mails(&[3]).key("night")).await.unwrap_err();
    assert!(other.to_string().contains("night"), "{other}");
    assert!(
        process.sent(MAIL, "3").await.is_err(),
        "nothing of it is there"
    );
    soon("its end", again.result()).await.unwrap();
    let mut found = process.sent_batch("night").await.unwrap();
    assert_eq!(soon("its end", found.result()).await.unwrap().commands, 2);
    let wrong = process.sent_batch("mail:1").await.unwrap_err();
    assert!(wrong.to_string().contains("is a run of `mail`"), "{wrong}");
}

async fn co_11_one_id_in_use_refuses_all_and_empty_is_an_error(db: Db) {
    let process = start(&db, &Post::default()).await;
    process.send(MAIL, &7).key("7").await.unwrap();
    for numbers in [&[5, 6, 7][..], &[5, 6, 5]] {
        let refused = process.batch(mails(numbers)).await.unwrap_err();
        let conflict = matches!(refused, Error::Refused(Refusal::Conflict { .. }));
        assert!(conflict, "{refused}");
        assert!(process.sent(MAIL, "5").await.is_err());
    }
    let empty = process.batch(Batch::new()).await.unwrap_err();
    assert!(empty.to_string().contains("at least one"), "{empty}");
    let large = process.batch((0..10_001).map(|number| MAIL.member(&number)).collect());
    let large = large.await.unwrap_err().to_string();
    assert!(
        large.contains("10000") && large.contains("split it"),
        "{large}"
    );
}

async fn co_11_a_parked_command_makes_its_batch_wait_for_the_operator(db: Db) {
    let post = Post::default();
    let process = start(&db, &post).await;
    let batch = mails(&[1, 13]).then(REPORT.member(&"done".to_owned()).key("r"));
    let mut sent = process.batch(batch).await.unwrap();
    until("one is parked, one has ended", || async {
        let view = process.batch_view(&sent).await.unwrap();
        view.count(RunState::Parked) == 1 && view.ended() == 1
    })
    .await;
    let view = process.batch_view(&sent).await.unwrap();
    assert_eq!(view.state(), BatchState::AwaitingOperator);
    assert!(!view.run.row.state.has_ended());
    assert_eq!(post.reports.load(Ordering::Relaxed), 0);
    post.mended.store(1, Ordering::Relaxed);
    process.resume("mail:13").await.unwrap();
    assert_eq!(soon("its end", sent.result()).await.unwrap().failed, 0);
    let mut report = process.sent(REPORT, "r").await.unwrap();
    soon("the report", report.result()).await.unwrap();
    assert_eq!(post.reports.load(Ordering::Relaxed), 1);
    assert_sound(&db).await;
}

async fn co_11_a_cancelled_batch_ends_what_has_not_ended_and_keeps_the_replies(db: Db) {
    let post = Post::default();
    let process = start(&db, &post).await;
    let batch = mails(&[1, 13]).with(MAIL.member(&5).key("5").delay(Duration::from_secs(3600)));
    let batch = batch.then(REPORT.member(&"done".to_owned()).key("r"));
    let mut sent = process.batch(batch).await.unwrap();
    until("one is parked, one has ended", || async {
        let view = process.batch_view(&sent).await.unwrap();
        view.count(RunState::Parked) == 1 && view.ended() == 1
    })
    .await;
    process.cancel(&sent).await.unwrap();
    soon("its end", sent.result()).await.unwrap_err();
    let view = process.batch_view(&sent).await.unwrap();
    assert_eq!(view.state(), BatchState::Cancelled);
    assert_eq!(view.count(RunState::Cancelled), 2);
    let mut mail = process.sent(MAIL, "1").await.unwrap();
    assert_eq!(soon("a reply", mail.result()).await.unwrap(), 1, "it stays");
    let mut report = process.sent(REPORT, "r").await.unwrap();
    soon("the report", report.result()).await.unwrap();
    assert_sound(&db).await;
}

async fn co_11_a_workflow_waits_for_a_batch(db: Db) {
    let process = start(&db, &Post::default()).await;
    let mut run = process.start(NIGHT, &"waits".to_owned()).await.unwrap();
    let end = soon("its end", run.result()).await.unwrap();
    assert_eq!((end.commands, end.failed), (3, 1));
    assert_sound(&db).await;
}

async fn co_11_a_step_sends_a_batch_with_its_writes_or_not_at_all(db: Db) {
    let process = start(&db, &Post::default()).await;
    let mut run = process.start(NIGHT, &"fails".to_owned()).await.unwrap();
    soon("its end", run.result()).await.unwrap_err();
    assert!(process.sent_batch("in-step").await.is_err());
    let mut run = process.start(NIGHT, &"works".to_owned()).await.unwrap();
    let end = soon("its end", run.result()).await.unwrap();
    assert_eq!((end.commands, end.failed), (1, 0));
    let mut sent = process.sent_batch("in-step").await.unwrap();
    assert_eq!(soon("its end", sent.result()).await.unwrap().commands, 2);
    assert_sound(&db).await;
}

async fn co_11_batches_are_listed_in_pages(db: Db) {
    let process = start(&db, &Post::default()).await;
    for number in 1..=3 {
        let batch = mails(&[number]).key(format!("b{number}")).label("of", "me");
        let mut sent = process.batch(batch).await.unwrap();
        soon("its end", sent.result()).await.unwrap();
    }
    let page = process.batches().limit(2).fetch().await.unwrap();
    assert!(page.more);
    let keys = page.items.iter().map(|batch| batch.run.row.key.as_ref());
    let keys: Vec<&str> = keys.map(|key| key.unwrap().as_str()).collect();
    assert_eq!(keys, ["b3", "b2"]);
    let last = page.items[1].run.row.id;
    let rest = process.batches().after(last).fetch().await.unwrap();
    assert_eq!((rest.items.len(), rest.more), (1, false));
    assert_eq!(rest.items[0].commands(), 1);
}

async fn co_11_an_ended_batch_is_pruned_with_its_commands(db: Db) {
    let process = start(&db, &Post::default()).await;
    let mut sent = process.batch(mails(&[1, 2])).await.unwrap();
    soon("its end", sent.result()).await.unwrap();
    let open = process.batch(mails(&[3, 13])).await.unwrap();
    until("what can end has ended", || async {
        let view = process.batch_view(&open).await.unwrap();
        view.count(RunState::Parked) == 1 && view.ended() == 1
    })
    .await;
    soon(
        "the end",
        process
            .prune(process.now().after(Duration::from_secs(60)))
            .into_future(),
    )
    .await
    .unwrap();
    assert!(
        process.sent(MAIL, "1").await.is_err(),
        "it went with its batch"
    );
    assert!(
        process.sent(MAIL, "3").await.is_ok(),
        "its batch has not ended"
    );
    assert_sound(&db).await;
}

async fn co_11_the_counters_are_right_with_concurrent_workers(db: Db) {
    let post = Post::default();
    let (one, two) = (start(&db, &post).await, start(&db, &post).await);
    let members = (0..1_000).map(|number| MAIL.member(&(number % 5)));
    let batch: Batch = members.collect();
    let batch = batch.then(REPORT.member(&"done".to_owned()).key("r"));
    let mut sent = one.batch(batch).await.unwrap();
    let end = soon("its end", sent.result()).await.unwrap();
    assert_eq!((end.commands, end.failed), (1_000, 200));
    let view = two.batch_view(&sent).await.unwrap();
    assert_eq!(view.count(RunState::Completed), 800);
    let mut report = two.sent(REPORT, "r").await.unwrap();
    soon("the report", report.result()).await.unwrap();
    assert_eq!(post.reports.load(Ordering::Relaxed), 1);
    assert_sound(&db).await;
}
