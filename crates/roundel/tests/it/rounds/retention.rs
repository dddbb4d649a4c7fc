//! What ended long ago goes by itself; what has not ended, and what is needed, stays.

use std::time::Duration;

use roundel::{Cx, Keep, Name, Result, Retention, RunState, Signal, Topic, Workflow};

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
    ro_51_what_is_set_goes_before_what_a_program_says,
    ro_51_what_is_set_outlives_the_run_that_says_it,
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

const HEARD: Name = Name::constant("hear");
const SAYS: &str = "roundel.retention";

/// How many runs of the tests' own there are, of a workflow.
async fn count(process: &Process, workflow: &'static str) -> usize {
    let runs = process.runs().of(workflow).unwrap().limit(100);
    runs.fetch().await.unwrap().items.len()
}

async fn ended(process: &Process) {
    let mut heard = process.start(HEAR, &1).await.unwrap();
    let mut tree = process.start(TREE, &1).await.unwrap();
    soon("its end", heard.result()).await.unwrap();
    process.offer(GO, &1).await.unwrap();
    soon("its end", tree.result()).await.unwrap();
}

async fn ro_51_what_is_set_goes_before_what_a_program_says(db: Db) {
    let process = start(&db, Some(KEPT)).await;
    assert!(process.retention().await.unwrap().is_empty());
    let client = process.operator("ada").unwrap().reason("a strike");
    let set = client.keep(None, Some(Keep::Ever)).await.unwrap();
    assert_eq!((set.ended, set.workflows.len()), (Some(Keep::Ever), 0));
    ended(&process).await;
    tokio::time::sleep(3 * KEPT).await;
    assert_eq!(
        (count(&process, "hear").await, count(&process, "tree").await),
        (2, 1),
        "a child and two roots"
    );
    // Of one workflow something else; the child of a tree goes with its root.
    let set = client.keep(Some(HEARD), Some(Keep::Millis(0))).await;
    let both = Retention {
        ended: Some(Keep::Ever),
        workflows: [(HEARD, Keep::Millis(0))].into(),
    };
    assert_eq!(set.unwrap(), both);
    assert_eq!(process.retention().await.unwrap(), both);
    until("one goes", || async { count(&process, "hear").await == 1 }).await;
    tokio::time::sleep(3 * KEPT).await;
    assert_eq!(count(&process, "tree").await, 1);
    // The program has its word again.
    client.keep(Some(HEARD), None).await.unwrap();
    assert!(client.keep(None, None).await.unwrap().is_empty());
    until("all go", || async { count(&process, "tree").await == 0 }).await;
    let audit = process.audit().fetch().await.unwrap().items;
    let asked = audit.iter().filter(|(_, row)| row.action == "patch");
    assert_eq!(asked.count(), 4, "{audit:?}");
    let dump = assert_sound(&db).await;
    assert_eq!(dump.runs.len(), 1, "what says it: {:?}", dump.runs);
}

async fn ro_51_what_is_set_outlives_the_run_that_says_it(db: Db) {
    let process = start(&db, Some(KEPT)).await;
    let nothing = process.keep(Some(HEARD), None).await.unwrap();
    assert!(nothing.is_empty() && process.runs().fetch().await.unwrap().items.is_empty());
    process.keep(Some(HEARD), Some(Keep::Ever)).await.unwrap();
    process.cancel_without_undo(SAYS.to_owned()).await.unwrap();
    let mut run = process.start(HEAR, &1).await.unwrap();
    soon("its end", run.result()).await.unwrap();
    tokio::time::sleep(3 * KEPT).await;
    assert_eq!(count(&process, "hear").await, 1, "it holds all the same");
    let set = process.keep(None, Some(Keep::Ever)).await.unwrap();
    assert_eq!((set.ended, set.workflows.len()), (Some(Keep::Ever), 1));
    assert_eq!(process.retention().await.unwrap(), set);
    let soon = process.keep(Some(HEARD), Some(Keep::Millis(0)));
    assert_eq!(soon.await.unwrap().ended, Some(Keep::Ever));
    until("it goes", || async { count(&process, "hear").await == 0 }).await;
    // Somebody else's run under that key says nothing.
    process.delete_forced(SAYS.to_owned()).await.unwrap();
    let foreign = process.start(WAIT, &1).key(SAYS).await.unwrap();
    assert!(process.retention().await.is_err());
    assert!(process.keep(None, Some(Keep::Millis(0))).await.is_err());
    assert!(process.own_state(foreign.id()).await.unwrap().is_none());
}
