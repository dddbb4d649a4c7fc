//! Every request says what became of it (SI-03, SI-12, SI-23).

use roundel::{Cancelled, Cx, Error, Failure, Refusal, Result, RunId, RunState, Sent, Signal};
use uuid::Uuid;

use super::{JOB, NEWS, Told, until_is, until_waits};
use crate::support::{Db, all, soon};

all![
    si_03_a_signal_says_what_became_of_it,
    si_03_a_signal_to_an_ended_run_says_how_it_ended,
    si_03_an_offer_says_who_got_it_or_that_it_is_kept,
    si_03_what_a_workflow_sends_is_answered_too,
    si_12_a_repeated_signal_with_a_key_arrives_once,
    si_12_a_repeated_offer_with_a_key_arrives_once,
    si_12_a_key_used_for_something_else_is_refused,
    si_12_a_key_is_the_senders_for_one_target_and_one_name,
    si_23_a_cancel_says_what_became_of_it,
];

const LISTEN: Told = Told::named("listen");
const LISTEN_TWICE: Told = Told::named("listen twice");
const WORK: Told = Told::named("work");
const FAIL: Told = Told::named("fail");
const SEND: Told = Told::named("send");
const LIVE: Signal<u32> = Signal::named("live").dropped_unless_awaited();

async fn listen(cx: Cx, (): ()) -> Result<String> {
    Ok(cx.wait(NEWS).await?.to_string())
}

async fn listen_twice(cx: Cx, (): ()) -> Result<String> {
    Ok(format!("{} {}", cx.wait(NEWS).await?, cx.wait(NEWS).await?))
}

async fn work(cx: Cx, (): ()) -> Result<String> {
    Ok(cx.wait(JOB).await?.to_string())
}

async fn fail(_: Cx, (): ()) -> Result<String> {
    Err(Failure::business("no"))
}

/// Sends all kinds of things to the run with the key `target`, and says what became of them.
async fn send(cx: Cx, (): ()) -> Result<String> {
    let nobody = RunId(Uuid::nil());
    let answers = [
        cx.signal(nobody, NEWS, &0).await?,
        cx.signal("target", LIVE, &0).await?,
        cx.offer(JOB, &0).await?,
        cx.signal("target", NEWS, &1).await?,
    ];
    Ok(format!("{answers:?}"))
}

/// An id that no run has.
fn nobody() -> RunId {
    RunId(Uuid::now_v7())
}

async fn si_03_a_signal_says_what_became_of_it(db: Db) {
    let process = db.start(|engine| engine.register(LISTEN, listen)).await;
    let run = process.start(LISTEN, &()).key("mine").await.unwrap();
    until_waits(&process, run.id()).await;
    let dropped = process.signal(&run, LIVE, &1).await.unwrap();
    assert_eq!(dropped, Sent::Dropped);
    let queued = process.signal(&run, JOB, &1).await.unwrap();
    assert_eq!(queued, Sent::Queued);
    let delivered = process.signal("mine", NEWS, &1).await.unwrap();
    assert_eq!(delivered, Sent::Delivered(run.id()));
    let unknown = process.signal(nobody(), NEWS, &1).await.unwrap();
    assert_eq!(unknown, Sent::TargetUnknown);
    let unknown = process.signal("yours", NEWS, &1).await.unwrap();
    assert_eq!(unknown, Sent::TargetUnknown);
}

async fn si_03_a_signal_to_an_ended_run_says_how_it_ended(db: Db) {
    let process = db
        .start(|engine| engine.register(LISTEN, listen).register(FAIL, fail))
        .await;
    let mut completed = process.start(LISTEN, &()).await.unwrap();
    process.signal(&completed, NEWS, &1).await.unwrap();
    soon("the end", completed.result()).await.unwrap();
    let mut failed = process.start(FAIL, &()).await.unwrap();
    soon("the failure", failed.result()).await.unwrap_err();
    let mut cancelled = process.start(LISTEN, &()).await.unwrap();
    process.cancel(&cancelled).await.unwrap();
    soon("the end", cancelled.result()).await.unwrap_err();
    for (run, state) in [
        (completed.id(), RunState::Completed),
        (failed.id(), RunState::Failed),
        (cancelled.id(), RunState::Cancelled),
    ] {
        let sent = process.signal(run, NEWS, &1).await.unwrap();
        assert_eq!(sent, Sent::TargetEnded(state));
    }
    assert_eq!(db.dump().await.mail, [], "nothing is left behind");
}

async fn si_03_an_offer_says_who_got_it_or_that_it_is_kept(db: Db) {
    let process = db.start(|engine| engine.register(WORK, work)).await;
    assert_eq!(process.offer(JOB, &1).await.unwrap(), Sent::Queued);
    let mut first = process.start(WORK, &()).await.unwrap();
    assert_eq!(soon("the offer", first.result()).await.unwrap(), "1");
    let mut second = process.start(WORK, &()).await.unwrap();
    let sent = process.offer(JOB, &2).await.unwrap();
    assert_eq!(sent, Sent::Delivered(second.id()));
    assert_eq!(soon("the offer", second.result()).await.unwrap(), "2");
}

async fn si_03_what_a_workflow_sends_is_answered_too(db: Db) {
    let process = db
        .start(|engine| {
            let engine = engine.register(LISTEN, listen).register(SEND, send);
            engine.register(WORK, work)
        })
        .await;
    let target = process.start(LISTEN, &()).key("target").await.unwrap();
    let worker = process.start(WORK, &()).await.unwrap();
    until_waits(&process, target.id()).await;
    until_waits(&process, worker.id()).await;
    let mut sender = process.start(SEND, &()).await.unwrap();
    let expected = [
        Sent::TargetUnknown,
        Sent::Dropped,
        Sent::Delivered(worker.id()),
        Sent::Delivered(target.id()),
    ];
    let told = soon("the answers", sender.result()).await.unwrap();
    assert_eq!(told, format!("{expected:?}"));
    until_is(&process, target.id(), RunState::Completed).await;
    until_is(&process, worker.id(), RunState::Completed).await;
}

async fn si_12_a_repeated_signal_with_a_key_arrives_once(db: Db) {
    let process = db
        .start(|engine| engine.register(LISTEN_TWICE, listen_twice))
        .await;
    let mut run = process.start(LISTEN_TWICE, &()).await.unwrap();
    until_waits(&process, run.id()).await;
    for _ in 0..3 {
        let sent = process.signal(&run, NEWS, &1).key("first").await.unwrap();
        assert_eq!(
            sent,
            Sent::Delivered(run.id()),
            "the first answer, each time"
        );
    }
    until_waits(&process, run.id()).await;
    process.signal(&run, NEWS, &1).key("second").await.unwrap();
    assert_eq!(soon("both", run.result()).await.unwrap(), "1 1");
    let sent = process.signal(&run, NEWS, &1).key("first").await.unwrap();
    assert_eq!(sent, Sent::Delivered(run.id()), "also after the end");
}

async fn si_12_a_repeated_offer_with_a_key_arrives_once(db: Db) {
    let process = db.start(|engine| engine.register(WORK, work)).await;
    for _ in 0..3 {
        let sent = process.offer(JOB, &1).key("first").await.unwrap();
        assert_eq!(sent, Sent::Queued);
    }
    let mut run = process.start(WORK, &()).await.unwrap();
    assert_eq!(soon("the offer", run.result()).await.unwrap(), "1");
    let other = process.start(WORK, &()).await.unwrap();
    until_waits(&process, other.id()).await;
    let sent = process.offer(JOB, &1).key("first").await.unwrap();
    assert_eq!(sent, Sent::Queued, "the first answer");
    until_waits(&process, other.id()).await;
    let offers = db.dump().await.offers;
    assert_eq!(offers, []);
}

async fn si_12_a_key_used_for_something_else_is_refused(db: Db) {
    let process = db.start(|engine| engine.register(LISTEN, listen)).await;
    let mut run = process.start(LISTEN, &()).await.unwrap();
    process.signal(&run, NEWS, &1).key("mine").await.unwrap();
    let error = process
        .signal(&run, NEWS, &2)
        .key("mine")
        .await
        .unwrap_err();
    assert!(
        matches!(&error, Error::Refused(Refusal::Conflict { key }) if key.as_str() == "mine"),
        "{error}"
    );
    assert!(
        error
            .to_string()
            .contains("`mine` was used for another request"),
        "{error}"
    );
    let error = process.signal(&run, JOB, &1).key("mine").await.unwrap_err();
    assert!(
        matches!(error, Error::Refused(Refusal::Conflict { .. })),
        "{error}"
    );
    process.offer(JOB, &1).key("offer").await.unwrap();
    let error = process.offer(JOB, &2).key("offer").await.unwrap_err();
    assert!(
        matches!(error, Error::Refused(Refusal::Conflict { .. })),
        "{error}"
    );
    assert_eq!(soon("the first", run.result()).await.unwrap(), "1");
}

async fn si_12_a_key_is_the_senders_for_one_target_and_one_name(db: Db) {
    let process = db
        .start(|engine| engine.register(LISTEN, listen).register(WORK, work))
        .await;
    let mut runs = Vec::new();
    for _ in 0..2 {
        let run = process.start(LISTEN, &()).await.unwrap();
        until_waits(&process, run.id()).await;
        let sent = process.signal(&run, NEWS, &1).key("key").await.unwrap();
        assert_eq!(sent, Sent::Delivered(run.id()));
        runs.push(run);
    }
    for run in &mut runs {
        assert_eq!(soon("the news", run.result()).await.unwrap(), "1");
    }
    let run = process.start(WORK, &()).await.unwrap();
    until_waits(&process, run.id()).await;
    let sent = process.offer(JOB, &1).key("key").await.unwrap();
    assert_eq!(
        sent,
        Sent::Delivered(run.id()),
        "offers have keys of their own"
    );
}

async fn si_23_a_cancel_says_what_became_of_it(db: Db) {
    let process = db.start(|engine| engine.register(LISTEN, listen)).await;
    let mut run = process.start(LISTEN, &()).key("mine").await.unwrap();
    until_waits(&process, run.id()).await;
    assert_eq!(process.cancel("mine").await.unwrap(), Cancelled::Requested);
    let error = soon("the end", run.result()).await.unwrap_err();
    assert!(
        matches!(
            &error,
            Error::Failed {
                state: RunState::Cancelled,
                ..
            }
        ),
        "{error}"
    );
    let again = process.cancel(&run).await.unwrap();
    assert_eq!(again, Cancelled::AlreadyEnded(RunState::Cancelled));
    let mut done = process.start(LISTEN, &()).await.unwrap();
    process.signal(&done, NEWS, &1).await.unwrap();
    soon("the end", done.result()).await.unwrap();
    let late = process.cancel(&done).await.unwrap();
    assert_eq!(late, Cancelled::AlreadyEnded(RunState::Completed));
    for unknown in [nobody().into(), roundel::To::from("yours")] {
        let answer = process.cancel(unknown).await.unwrap();
        assert_eq!(answer, Cancelled::TargetUnknown);
    }
}
