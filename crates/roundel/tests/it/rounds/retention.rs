//! What ended long ago goes by itself; what has not ended, and what is needed, stays.

use std::time::Duration;

use roundel::{Cx, Result, RunState, Signal, Topic, Workflow};

use super::sound::assert_sound;
use crate::support::{Db, Process, all, soon, until};

const WAIT: Workflow<u32, u32> = Workflow::named("wait");
const HEAR: Workflow<u32, u32> = Workflow::named("hear");
const TREE: Workflow<u32, u32> = Workflow::named("tree");
const GO: Signal<u32> = Signal::named("go").offerable();
const NEWS: Topic<u32> = Topic::named("news");
const KEPT: Duration = Duration::from_millis(200);

all![
    ro_51_what_ended_long_ago_goes_by_itself,
    ro_51_a_tree_is_kept_until_its_root_has_ended,
    ro_51_what_clients_published_goes_once_nothing_of_it_is_left,
    ro_51_what_has_just_ended_is_kept,
];

async fn wait(cx: Cx, _: u32) -> Result<u32> {
    cx.wait(GO).await
}

async fn hear(_: Cx, n: u32) -> Result<u32> {
    Ok(n)
}

/// A child that ends at once, then one that waits.
async fn tree(cx: Cx, n: u32) -> Result<u32> {
    cx.child(HEAR, &n).await?;
    cx.child(WAIT, &n).await
}

async fn start(db: &Db, keep: Option<Duration>) -> Process {
    let set_up = db.start(|engine| {
        let engine = engine.register(WAIT, wait).register(HEAR, hear);
        let engine = engine.register(TREE, tree);
        match keep {
            Some(keep) => engine.keep_ended(keep),
            None => engine,
        }
    });
    set_up.await
}

async fn left(process: &Process, count: usize) {
    until("only these are left", || async {
        let page = process.runs().limit(100).fetch().await.unwrap();
        page.items.len() == count
    })
    .await;
}

async fn ro_51_what_ended_long_ago_goes_by_itself(db: Db) {
    let process = start(&db, Some(KEPT)).await;
    let waits = process.start(WAIT, &1).key("it").await.unwrap();
    for n in 0..20 {
        let mut run = process.start(HEAR, &n).label("of", "it").await.unwrap();
        soon("its end", run.result()).await.unwrap();
    }
    left(&process, 1).await;
    until("they are counted", || async {
        process.metrics().runs_pruned == 20
    })
    .await;
    let dump = assert_sound(&db).await;
    assert_eq!((dump.runs.len(), dump.runs[0].id), (1, waits.id()));
    assert!(dump.labels.is_empty() && dump.keys.len() == 1);
}

async fn ro_51_a_tree_is_kept_until_its_root_has_ended(db: Db) {
    let process = start(&db, Some(KEPT)).await;
    let mut run = process.start(TREE, &1).await.unwrap();
    until("it waits", || async {
        let page = process.runs().in_state(RunState::Waiting).fetch().await;
        page.unwrap().items.len() == 2
    })
    .await;
    tokio::time::sleep(3 * KEPT).await;
    let page = process.runs().fetch().await.unwrap();
    assert_eq!(page.items.len(), 3, "its first child has long ended");
    process.offer(GO, &1).await.unwrap();
    assert_eq!(soon("its end", run.result()).await.unwrap(), 1);
    left(&process, 0).await;
    assert!(assert_sound(&db).await.journal.is_empty());
}

async fn ro_51_what_clients_published_goes_once_nothing_of_it_is_left(db: Db) {
    let process = start(&db, Some(KEPT)).await;
    process.publish(NEWS, &0).await.unwrap();
    process.subscribe("news", "wait").await.unwrap();
    let heard = process.publish(NEWS, &1).await.unwrap();
    let publications = || async {
        let topic = roundel::Name::new("news").unwrap();
        process.publications(topic, None, 10).await.unwrap().items
    };
    until("the one that nobody heard goes", || async {
        publications().await.len() == 1
    })
    .await;
    tokio::time::sleep(3 * KEPT).await;
    assert_eq!(publications().await[0].0, heard.id, "its run waits");
    process.offer(GO, &1).await.unwrap();
    until("the other goes too", || async {
        publications().await.is_empty()
    })
    .await;
    let dump = assert_sound(&db).await;
    assert!(dump.runs.is_empty() && dump.publications.is_empty());
}

async fn ro_51_what_has_just_ended_is_kept(db: Db) {
    let process = start(&db, None).await;
    let mut run = process.start(HEAR, &1).await.unwrap();
    soon("its end", run.result()).await.unwrap();
    process.publish(NEWS, &0).await.unwrap();
    let ended = process.run(&run).await.unwrap().row.changed_at;
    assert_eq!(process.prune(ended).await.unwrap(), 0);
    let dump = assert_sound(&db).await;
    assert_eq!((dump.runs.len(), dump.publications.len()), (1, 1));
    let later = roundel::Timestamp(ended.0 + 3_600_000_000);
    assert_eq!(process.prune(later).await.unwrap(), 1);
    let dump = assert_sound(&db).await;
    assert!(dump.runs.is_empty() && dump.publications.is_empty());
}
