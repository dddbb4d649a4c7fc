//! Values that move: to other runs, executions, processes, keys and databases.

use std::time::Duration;

use roundel::{
    Command, Cx, EngineBuilder, Error, Failure, Keys, PublicationId, Refusal, Result, RunState,
    Sent, Signal, Topic, Tx, Undo, Workflow,
};
use roundel_core::{Context, Deadlines, Op, Payload, Publish};
use roundel_store::move_database;

use super::keys;
use crate::support::{Db, all, both, soon, until};

all![
    p6_what_is_sent_again_is_the_first_also_under_a_new_key,
    p6_what_was_begun_in_the_clear_or_under_an_old_key_goes_on,
    p3_what_a_run_left_is_passed_on_and_read_by_another,
    p3_what_was_recorded_for_an_undo_is_read_by_another_process,
];
both![p3_a_run_of_another_namespace_is_awaited_and_read_there];

const WAITS: Workflow<u32, u32> = Workflow::named("waits");
const TREE: Workflow<u32, u32> = Workflow::named("tree");
const SENDS: Workflow<(), String> = Workflow::named("sends");
const JOB: Command<u32, u32> = Command::named("job");
const GO: Signal<u32> = Signal::named("go").offerable();
const NEWS: Topic<u32> = Topic::named("news");
const BACK: Undo<u32> = Undo::named("back");

async fn waits(cx: Cx, input: u32) -> Result<u32> {
    Ok(input + cx.wait(GO).await?)
}

/// Spawns, in a call and in a step, under keys that others may have used.
async fn sends(cx: Cx, (): ()) -> Result<String> {
    let spawned = cx.spawn(WAITS, &1).key("waits-1").await;
    let told = |result: &Result<_, Failure>| match result {
        Ok(_) => "sent".to_owned(),
        Err(failure) => failure.code.clone(),
    };
    let first = told(&spawned.map(drop));
    let step = cx.step("send", async |tx: Tx| {
        JOB.send(&tx, &1).key("job-1").await?;
        Ok::<_, Failure>(())
    });
    Ok(format!("{first} {}", told(&step.await)))
}

fn set_up(engine: EngineBuilder) -> EngineBuilder {
    engine
        .register(WAITS, waits)
        .register(SENDS, sends)
        .handle(JOB, async |_: roundel::Attempt, n: u32| Ok::<_, Failure>(n))
        .subscribe(NEWS, WAITS)
}

/// Two sets of keys: the second after a change of the first.
fn changed() -> [Keys; 2] {
    let (old, new, resends) = (Keys::line("old"), Keys::line("new"), Keys::line("resends"));
    [format!("{old}{resends}"), format!("{new}{old}{resends}")]
        .map(|text| Keys::parse(&text).expect("keys"))
}

fn publication(id: PublicationId, value: u32) -> Op {
    Op::Publish(Publish {
        namespace: roundel::Name::constant("default"),
        id,
        topic: roundel::Name::constant("news"),
        payload: Payload::encode(&value).unwrap(),
        window: None,
        deadlines: Deadlines::default(),
        context: Context::default(),
    })
}

fn is_conflict<T>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(Error::Refused(Refusal::Conflict { .. })))
}

async fn p6_what_is_sent_again_is_the_first_also_under_a_new_key(db: Db) {
    let id = PublicationId::from_bytes([7; 16]);
    let mut first: Option<(_, _)> = None;
    for keys in changed() {
        let process = db.start(|engine| set_up(engine).sealed(keys)).await;
        let run = process.start(WAITS, &1).key("waits-1").await.unwrap().id();
        let mut job = process.send(JOB, &1).key("job-1").await.unwrap();
        assert_eq!(soon("the reply", job.result()).await.unwrap(), 1);
        let (known, job_known) = *first.get_or_insert((run, job.id()));
        assert_eq!((run, job.id()), (known, job_known));
        let sent = process
            .signal(run, Signal::<u32>::named("other"), &5)
            .key("s")
            .await;
        assert_eq!(sent.unwrap(), Sent::Queued);
        let offered = process
            .offer(Signal::<u32>::named("job"), &5)
            .key("o")
            .await;
        assert_eq!(offered.unwrap(), Sent::Queued);
        let published = process.at_once(vec![publication(id, 4)]).await.remove(0);
        assert!(published.is_ok(), "{published:?}");
        // Other values under these ids are another matter.
        assert!(is_conflict(&process.start(WAITS, &2).key("waits-1").await));
        assert!(is_conflict(&process.send(JOB, &2).key("job-1").await));
        let other = process
            .signal(run, Signal::<u32>::named("other"), &6)
            .key("s");
        assert!(is_conflict(&other.await));
        assert!(is_conflict(
            &process
                .offer(Signal::<u32>::named("job"), &6)
                .key("o")
                .await
        ));
        let other = process.at_once(vec![publication(id, 5)]).await.remove(0);
        assert!(is_conflict(&other));
        // Nor is it one from within a run.
        let mut sends = process.start(SENDS, &()).await.unwrap();
        assert_eq!(soon("its end", sends.result()).await.unwrap(), "sent sent");
        process.shutdown().await;
    }
    let dump = db.dump().await;
    let counts = (dump.mail.len(), dump.offers.len(), dump.publications.len());
    assert_eq!(counts, (1, 1, 1));
}

async fn p6_what_was_begun_in_the_clear_or_under_an_old_key_goes_on(db: Db) {
    let [old, new] = changed();
    let mut runs = Vec::new();
    for keys in [None, Some(old)] {
        let set_up = |engine| match keys {
            None => set_up(engine),
            Some(keys) => set_up(engine).sealed(keys),
        };
        let process = db.start(set_up).await;
        let run = process.start(WAITS, &10).await.unwrap().id();
        until("it waits", async || {
            process.run(run).await.unwrap().row.state == RunState::Waiting
        })
        .await;
        let early = process.signal(run, Signal::<u32>::named("early"), &1).await;
        assert_eq!(early.unwrap(), Sent::Queued);
        runs.push(run);
        process.shutdown().await;
    }
    let process = db.start(|engine| set_up(engine).sealed(new)).await;
    for run in runs {
        process.signal(run, GO, &5).await.unwrap();
        let mut handle = process.handle(WAITS, run).await.unwrap();
        assert_eq!(soon("its end", handle.result()).await.unwrap(), 15);
    }
    process.shutdown().await;
}

async fn p3_what_a_run_left_is_passed_on_and_read_by_another(db: Db) {
    let ends = Workflow::<(), ()>::named("ends");
    let process = db
        .start(|engine| {
            let end = async |cx: Cx, (): ()| cx.wait(Signal::<()>::named("end")).await;
            set_up(engine).sealed(keys()).register(ends, end)
        })
        .await;
    let left = process.start(ends, &()).await.unwrap().id();
    for value in [1, 2] {
        process.signal(left, GO, &value).await.unwrap();
    }
    process
        .signal(left, Signal::<()>::named("end"), &())
        .await
        .unwrap();
    until("they are parked", async || {
        process.parked().only_signals().count().await.unwrap() == 2
    })
    .await;
    let mut one = process.start(WAITS, &10).await.unwrap();
    let mut two = process.start(WAITS, &20).await.unwrap();
    let parked = process.parked().only_signals().fetch().await.unwrap();
    for (trouble, remedy) in parked.items.iter().zip([
        roundel::Remedy::Replay(one.id().into()),
        roundel::Remedy::Offer,
    ]) {
        process.remedy(trouble.id(), &remedy).await.unwrap();
    }
    let sum = soon("one", one.result()).await.unwrap() + soon("two", two.result()).await.unwrap();
    assert_eq!(sum, 33);
    process.shutdown().await;
}

async fn p3_what_was_recorded_for_an_undo_is_read_by_another_process(db: Db) {
    let tree = async |cx: Cx, input: u32| {
        let child = cx.child(WAITS, &input).await?;
        let step = cx.step("write", async |_: Tx| Ok::<_, Failure>(7));
        Ok(child + step.undo_by(BACK, &70).await?)
    };
    let undone = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    let set_up = |engine: EngineBuilder| {
        let undone = undone.clone();
        let back = move |_: Tx, args: u32| {
            undone.store(args, std::sync::atomic::Ordering::SeqCst);
            async { Ok::<_, Failure>(()) }
        };
        set_up(engine)
            .sealed(keys())
            .register(TREE, tree)
            .register_undo(BACK, back)
    };
    let first = db.start(set_up).await;
    let run = first.start(TREE, &1).await.unwrap().id();
    until("the child waits", async || {
        let below = first.children(run, None, 10).await.unwrap();
        below
            .items
            .first()
            .is_some_and(|child| child.row.state == RunState::Waiting)
    })
    .await;
    first.shutdown().await;
    let second = db.start(set_up).await;
    assert!(matches!(
        second.offer(GO, &2).await.unwrap(),
        Sent::Delivered(_)
    ));
    let mut handle = second.handle(TREE, run).await.unwrap();
    assert_eq!(soon("its end", handle.result()).await.unwrap(), 10);
    second.shutdown().await;
    let third = db.start(set_up).await;
    third.undo(run).await.unwrap();
    until("it is undone", async || {
        third.run(run).await.unwrap().row.state == RunState::RolledBack
    })
    .await;
    assert_eq!(undone.load(std::sync::atomic::Ordering::SeqCst), 70);
    third.shutdown().await;
}

async fn p3_a_run_of_another_namespace_is_awaited_and_read_there(db: Db) {
    let process = db.start(|engine| set_up(engine).sealed(keys())).await;
    let other = db
        .start(|engine| set_up(engine).sealed(keys()).namespace("other"))
        .await;
    let there = process.in_namespace("other").unwrap();
    let mut run = there.start(WAITS, &1).await.unwrap();
    there.signal(run.id(), GO, &2).await.unwrap();
    assert_eq!(soon("its end", run.result()).await.unwrap(), 3);
    assert!(process.run(run.id()).await.is_err());
    for engine in [process, other] {
        engine.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p3_a_sealed_database_is_moved_and_checked_without_its_keys() {
    let (from, to) = (Db::sqlite(), Db::sqlite());
    let from = from.left_behind();
    let process = from.start(|engine| set_up(engine).sealed(keys())).await;
    let run = process.start(WAITS, &1).await.unwrap().id();
    process
        .schedule("hourly")
        .set(JOB.timed(&1).every(Duration::from_secs(3600)))
        .await
        .unwrap();
    until("it waits", async || {
        process.run(run).await.unwrap().row.state == RunState::Waiting
    })
    .await;
    process.shutdown().await;
    let (here, there) = (from.to_be_moved(), to.to_be_moved());
    let moved = tokio::task::spawn_blocking(move || move_database(&here, &there, &mut |_| {}));
    moved.await.unwrap().unwrap();
    let process = to.start(|engine| set_up(engine).sealed(keys())).await;
    process.signal(run, GO, &2).await.unwrap();
    let mut handle = process.handle(WAITS, run).await.unwrap();
    assert_eq!(soon("its end", handle.result()).await.unwrap(), 3);
    process.shutdown().await;
}
