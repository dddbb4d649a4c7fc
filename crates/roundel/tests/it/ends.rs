//! Runs that end in any process are read off the database, once each.

use std::collections::BTreeSet;
use std::time::Duration;

use roundel::testkit::TestKit;
use roundel::{
    Clock, Cx, Ends, Engine, EngineBuilder, Keep, Result, RunId, Signal, SystemClock, Workflow,
};

const HEAR: Workflow<u32, u32> = Workflow::named("hear");
const TREE: Workflow<u32, u32> = Workflow::named("tree");
const GO: Signal<u32> = Signal::named("go");
const MINUTE: Duration = Duration::from_secs(60);

async fn hear(_: Cx, n: u32) -> Result<u32> {
    Ok(n)
}

async fn tree(cx: Cx, n: u32) -> Result<u32> {
    cx.child(HEAR, &n).await?;
    cx.wait(GO).await
}

fn app(engine: EngineBuilder) -> EngineBuilder {
    engine.register(HEAR, hear).register(TREE, tree)
}

fn told(ends: &mut Ends) -> Vec<RunId> {
    std::iter::from_fn(|| ends.try_next()).collect()
}

/// Ids are made by the machine's clock: the test kit's is ahead of it.
async fn ahead() -> TestKit {
    let day = Duration::from_secs(86_400);
    TestKit::open(app)
        .at(SystemClock::default().now().after(day))
        .await
}

#[tokio::test]
async fn h9_a_tree_is_told_once_its_root_has_ended_whoever_ended_it() {
    let kit = ahead().await;
    let before = kit.start(TREE, &1).await.unwrap();
    let gone = kit.start(HEAR, &0).await.unwrap();
    kit.settle().await;
    let mut ends = kit.ends_anywhere(100);
    kit.advance(MINUTE).await;
    assert_eq!(told(&mut ends), [], "one has not ended, one had before");
    kit.signal(before.id(), GO, &1).await.unwrap();
    kit.settle().await;
    kit.advance(10 * MINUTE).await;
    let all = told(&mut ends);
    assert_eq!((all.len(), all[0]), (2, before.id()), "the root first");
    assert!(!all.contains(&gone.id()) && ends.missed() == 0);
    kit.advance(24 * 60 * MINUTE).await;
    assert_eq!(told(&mut ends), [], "once");
}

#[tokio::test(start_paused = true)]
async fn ro_51_what_is_set_is_taken_up_within_minutes_where_no_program_says_anything() {
    let engine = app(Engine::in_memory()).start().await.unwrap();
    let mut run = engine.start(HEAR, &1).await.unwrap();
    run.result().await.unwrap();
    engine.start(TREE, &1).await.unwrap();
    tokio::time::sleep(3 * MINUTE).await;
    assert_eq!(engine.runs().fetch().await.unwrap().items.len(), 3);
    engine.keep(None, Some(Keep::Millis(0))).await.unwrap();
    tokio::time::sleep(3 * MINUTE).await;
    let left = engine.runs().fetch().await.unwrap().items;
    let names: BTreeSet<&str> = left.iter().map(|run| run.lane.workflow.as_str()).collect();
    assert_eq!(names, BTreeSet::from(["hear", "roundel.retention", "tree"]));
    assert_eq!(left.len(), 3, "a tree that goes on, and what says it");
    engine.shutdown().await;
}
