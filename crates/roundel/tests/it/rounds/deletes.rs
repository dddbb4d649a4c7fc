//! Deleting runs: whole trees, not while they run unless forced; what comes late recreates nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use roundel::{Cx, Error, Failure, Refusal, Result, RunId, RunState, Sent, Signal, Workflow};
use tokio::sync::Semaphore;

use super::sound::assert_sound;
use crate::support::{Db, Process, all, soon, until};

const WAIT: Workflow<(), u32> = Workflow::named("wait");
const TREE: Workflow<u32, u32> = Workflow::named("tree");
const WATCH: Workflow<RunId, String> = Workflow::named("watch");
const GO: Signal<u32> = Signal::named("go").offerable();

all![
    ro_51_a_run_that_has_ended_is_deleted_with_all_that_was_kept_of_it,
    ro_51_a_run_that_has_not_ended_is_not_deleted_unless_forced,
    ro_51_a_tree_is_deleted_whole,
    ro_51_a_part_of_a_tree_that_runs_is_not_deleted_unless_forced,
    ro_51_a_late_result_recreates_nothing,
    ro_51_whoever_waits_for_a_deleted_run_is_told,
    ro_51_an_offer_it_had_goes_to_the_next,
];

async fn wait(cx: Cx, (): ()) -> Result<u32> {
    cx.wait(GO).await
}

async fn tree(cx: Cx, level: u32) -> Result<u32> {
    if level == 0 {
        return cx.wait(GO).await;
    }
    let children = (0..3).map(|_| cx.child(TREE, &(level - 1)));
    let children = roundel::future::join_all(children).await;
    Ok(children.into_iter().filter_map(Result::ok).sum())
}

async fn watch(cx: Cx, run: RunId) -> Result<String> {
    match cx.wait_for::<u32>(run).await {
        Ok(value) => Ok(value.to_string()),
        Err(failure) => Ok(failure.code),
    }
}

async fn start(db: &Db) -> Process {
    let set_up = db.start(|engine| {
        let engine = engine.register(WAIT, wait).register(TREE, tree);
        engine.register(WATCH, watch)
    });
    set_up.await
}

/// Waits until so many runs wait.
async fn waiting(process: &Process, count: usize) {
    until("they wait", || async {
        let page = process.runs().in_state(RunState::Waiting).limit(100);
        page.fetch().await.unwrap().items.len() == count
    })
    .await;
}

async fn ro_51_a_run_that_has_ended_is_deleted_with_all_that_was_kept_of_it(db: Db) {
    let process = start(&db).await;
    let run = process.start(WAIT, &()).key("it").label("of", "it");
    let mut run = run.await.unwrap();
    process.patch_state(&run, &1, None).await.unwrap();
    for n in 0..3 {
        let key = n.to_string();
        process.signal(&run, GO, &n).key(key).await.unwrap();
    }
    soon("its end", run.result()).await.unwrap();
    assert_eq!(process.delete("it").await.unwrap(), 1);
    let dump = assert_sound(&db).await;
    assert!(dump.runs.is_empty() && dump.journal.is_empty());
    assert!(dump.labels.is_empty() && dump.keys.is_empty());
    assert!(dump.mail.is_empty() && dump.states.is_empty());
    let result = soon("an answer", run.result()).await;
    assert!(matches!(result, Err(Error::NoSuchRun(_))), "{result:?}");
    // Its key is free again.
    assert!(process.start(WAIT, &()).key("it").await.unwrap().is_new());
}

async fn ro_51_a_run_that_has_not_ended_is_not_deleted_unless_forced(db: Db) {
    let process = start(&db).await;
    let mut run = process.start(WAIT, &()).key("it").await.unwrap();
    waiting(&process, 1).await;
    let refused = process.delete("it").await.unwrap_err();
    let Error::Refused(Refusal::NotEnded { run: named, state }) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!((named, state), (run.id(), RunState::Waiting));
    assert_eq!(process.delete_forced("it").await.unwrap(), 1);
    let result = soon("an answer", run.result()).await;
    assert!(matches!(result, Err(Error::NoSuchRun(_))), "{result:?}");
    let sent = process.signal("it", GO, &1).await.unwrap();
    assert_eq!(sent, Sent::TargetUnknown);
    let dump = assert_sound(&db).await;
    assert!(dump.runs.is_empty() && dump.waits.is_empty());
}

async fn ro_51_a_tree_is_deleted_whole(db: Db) {
    let process = start(&db).await;
    let mut run = process.start(TREE, &2).await.unwrap();
    waiting(&process, 13).await;
    for _ in 0..9 {
        process.offer(GO, &1).await.unwrap();
    }
    assert_eq!(soon("its end", run.result()).await.unwrap(), 9);
    assert_eq!(process.delete(&run).await.unwrap(), 13);
    assert!(assert_sound(&db).await.runs.is_empty());
}

async fn ro_51_a_part_of_a_tree_that_runs_is_not_deleted_unless_forced(db: Db) {
    let process = start(&db).await;
    let mut run = process.start(TREE, &2).await.unwrap();
    waiting(&process, 13).await;
    let children = process.children(&run, None, 10).await.unwrap().items;
    let part = children[0].row.id;
    let below = process.children(part, None, 10).await.unwrap().items;
    for child in &below {
        process.signal(child.row.id, GO, &1).await.unwrap();
    }
    until("the part has ended", || async {
        process.run(part).await.unwrap().row.state == RunState::Completed
    })
    .await;
    // It has ended, but the root has not, and may still ask for it.
    let refused = process.delete(part).await.unwrap_err();
    let text = refused.to_string();
    assert!(text.contains(&run.id().to_string()), "{text}");
    assert_eq!(process.delete_forced(part).await.unwrap(), 4);
    // One that runs: the parent is told, and goes on.
    let other = children[1].row.id;
    assert_eq!(process.delete_forced(other).await.unwrap(), 4);
    for _ in 0..3 {
        process.offer(GO, &1).await.unwrap();
    }
    assert_eq!(soon("its end", run.result()).await.unwrap(), 6);
    assert_eq!(assert_sound(&db).await.runs.len(), 5);
}

async fn ro_51_a_late_result_recreates_nothing(db: Db) {
    const HOLD: Workflow<u32, u32> = Workflow::named("hold");
    let (begun, gate) = (Arc::new(AtomicU32::new(0)), Arc::new(Semaphore::new(0)));
    let (count, open) = (begun.clone(), gate.clone());
    let hold = move |cx: Cx, n: u32| {
        let (count, open) = (count.clone(), open.clone());
        async move {
            let effect = move |_| {
                let (count, open) = (count.clone(), open.clone());
                async move {
                    count.fetch_add(1, Ordering::Relaxed);
                    open.acquire().await?.forget();
                    Ok::<_, Failure>(n)
                }
            };
            cx.effect("hold", effect.clone()).await?;
            cx.effect("again", effect).await
        }
    };
    let process = db.start(|engine| engine.register(HOLD, hold)).await;
    let run = process.start(HOLD, &1).key("it").await.unwrap();
    until("it runs", || async { begun.load(Ordering::Relaxed) == 1 }).await;
    assert!(process.delete("it").await.is_err(), "it runs");
    process.delete_forced("it").await.unwrap();
    // The name is taken by another before the result comes.
    let mut other = process.start(HOLD, &2).key("it").await.unwrap();
    until("it runs", || async { begun.load(Ordering::Relaxed) == 2 }).await;
    gate.add_permits(100);
    assert_eq!(soon("the other", other.result()).await.unwrap(), 2);
    until("it noticed", || async { process.metrics().live == 0 }).await;
    let dump = assert_sound(&db).await;
    assert_eq!((dump.runs.len(), dump.runs[0].id), (1, other.id()));
    assert_ne!(other.id(), run.id());
    assert_eq!(begun.load(Ordering::Relaxed), 3, "its next never began");
}

async fn ro_51_whoever_waits_for_a_deleted_run_is_told(db: Db) {
    let process = start(&db).await;
    let run = process.start(WAIT, &()).await.unwrap();
    let mut watcher = process.start(WATCH, &run.id()).await.unwrap();
    waiting(&process, 2).await;
    process.delete_forced(&run).await.unwrap();
    let told = soon("it is told", watcher.result()).await.unwrap();
    assert_eq!(told, "deleted");
    let mut late = process.start(WATCH, &run.id()).await.unwrap();
    let told = soon("it is told", late.result()).await.unwrap();
    assert_eq!(told, "unknown_run");
    assert_sound(&db).await;
}

async fn ro_51_an_offer_it_had_goes_to_the_next(db: Db) {
    let client = db.start(|engine| engine).await;
    let worker = start(&db).await;
    let first = worker.start(WAIT, &()).await.unwrap();
    waiting(&worker, 1).await;
    worker.shutdown().await;
    // Matched to one whom nobody works on, who then goes.
    let sent = client.offer(GO, &7).await.unwrap();
    assert_eq!(sent, Sent::Delivered(first.id()));
    client.delete_forced(&first).await.unwrap();
    let worker = start(&db).await;
    let mut second = worker.start(WAIT, &()).await.unwrap();
    assert_eq!(soon("the offer", second.result()).await.unwrap(), 7);
    assert_sound(&db).await;
}
