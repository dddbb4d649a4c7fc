//! Starting with a signal, in one commit (SI-17).

use roundel::{Cx, Result, RunState, Sent, Workflow};
use roundel_core::Op;
use roundel_store::Ask;

use super::{GO, NEWS, Received, until_waits};
use crate::support::{Db, Fault, all, soon};

all![
    si_17_a_run_is_started_and_gets_the_signal_in_one_commit,
    si_17_a_run_that_exists_gets_the_signal,
    si_17_the_key_may_be_said_after_the_signal,
    si_17_a_run_that_has_ended_is_not_started_again_and_the_sender_is_told,
    si_17_a_start_that_fails_leaves_neither_run_nor_signal,
    a_run_that_reads_its_state_first_goes_on,
];

const TAKE: Received = Received::named("take");
const READ: Workflow<(), Option<u32>> = Workflow::named("read");

async fn take(cx: Cx, n: u32) -> Result<Vec<u32>> {
    let mut taken = Vec::new();
    for _ in 0..n {
        taken.push(cx.wait(NEWS).await?);
    }
    Ok(taken)
}

async fn read(cx: Cx, (): ()) -> Result<Option<u32>> {
    cx.state().await
}

async fn si_17_a_run_is_started_and_gets_the_signal_in_one_commit(db: Db) {
    let process = db.start(|engine| engine.register(TAKE, take)).await;
    process.store.rule(|ask| match ask {
        Ask::Op(Op::Signal(_)) => Fault::CrashBefore,
        _ => Fault::Pass,
    });
    let mut run = process.start(TAKE, &1).with_signal(NEWS, &7).await.unwrap();
    assert!(run.is_new());
    assert_eq!(run.sent(), Some(Sent::Queued));
    assert_eq!(soon("the signal", run.result()).await.unwrap(), [7]);
    // Also when no worker is at hand.
    let client = db.start(|engine| engine).await;
    let starting = client.start(TAKE, &2).key("later");
    let run = starting.with_signal(NEWS, &8).await.unwrap();
    let mut run = process.handle(TAKE, run.id()).await.unwrap();
    client.signal(&run, NEWS, &9).await.unwrap();
    assert_eq!(soon("the signals", run.result()).await.unwrap(), [8, 9]);
}

async fn si_17_a_run_that_exists_gets_the_signal(db: Db) {
    let process = db.start(|engine| engine.register(TAKE, take)).await;
    let start = || process.start(TAKE, &2).key("mine");
    let mut run = start().with_signal(NEWS, &1).await.unwrap();
    until_waits(&process, run.id()).await;
    let again = start().with_signal(NEWS, &2).await.unwrap();
    assert_eq!((again.id(), again.is_new()), (run.id(), false));
    assert_eq!(again.sent(), Some(Sent::Delivered(run.id())));
    assert_eq!(soon("both", run.result()).await.unwrap(), [1, 2]);
}

async fn si_17_the_key_may_be_said_after_the_signal(db: Db) {
    let process = db.start(|engine| engine.register(TAKE, take)).await;
    let start = |value| {
        let starting = process.start(TAKE, &2).with_signal(NEWS, &value);
        starting.key("mine")
    };
    let mut run = start(1).await.unwrap();
    until_waits(&process, run.id()).await;
    let again = start(2).await.unwrap();
    assert_eq!(again.sent(), Some(Sent::Delivered(run.id())));
    assert_eq!(soon("both", run.result()).await.unwrap(), [1, 2]);
}

async fn si_17_a_run_that_has_ended_is_not_started_again_and_the_sender_is_told(db: Db) {
    let process = db.start(|engine| engine.register(TAKE, take)).await;
    let start = || process.start(TAKE, &1).key("mine").with_signal(NEWS, &1);
    let mut run = start().await.unwrap();
    soon("the end", run.result()).await.unwrap();
    let again = start().await.unwrap();
    assert!(!again.is_new());
    assert_eq!(again.sent(), Some(Sent::TargetEnded(RunState::Completed)));
    assert_eq!(
        process.start(TAKE, &1).key("mine").await.unwrap().sent(),
        None
    );
}

async fn si_17_a_start_that_fails_leaves_neither_run_nor_signal(db: Db) {
    let process = db.start(|engine| engine.register(TAKE, take)).await;
    process.start(TAKE, &1).key("mine").await.unwrap();
    let before = db.dump().await;
    let other = process.start(TAKE, &2).key("mine");
    other.with_signal(NEWS, &1).await.unwrap_err();
    process.store.once(Fault::Unavailable, |_| true);
    let other = process.start(TAKE, &2).key("yours");
    other.with_signal(GO, &()).await.unwrap_err();
    let after = db.dump().await;
    assert_eq!((after.runs, after.mail), (before.runs, before.mail));
}

async fn a_run_that_reads_its_state_first_goes_on(db: Db) {
    let process = db.start(|engine| engine.register(READ, read)).await;
    let mut run = process.start(READ, &()).await.unwrap();
    assert_eq!(soon("the state", run.result()).await.unwrap(), None);
}
