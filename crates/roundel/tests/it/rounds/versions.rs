//! Registration and versions: a run is pinned to its version; whoever does not know it leaves it
//! alone; a rolling deploy fails nobody.

use std::time::Duration;

use roundel::{Cx, Engine, EngineBuilder, Error, Failure, Result, RunState, Signal, Workflow};

use super::sound::assert_sound;
use crate::support::{Db, Process, all, soon, until};

const RUN: Workflow<u32, u32> = Workflow::named("run");
const RUN_1: Workflow<u32, u32> = RUN.version(1);
const RUN_2: Workflow<u32, u32> = RUN.version(2);
const RUN_7: Workflow<u32, u32> = RUN.version(7);
const OTHER: Workflow<u32, u32> = Workflow::named("other");
const GO: Signal<u32> = Signal::named("go");

all![
    ro_26_an_unknown_workflow_waits_visibly_for_a_worker_that_knows_it,
    ro_26_an_unknown_version_waits_for_a_worker_that_knows_it,
    ro_27_new_runs_get_the_latest_version_or_the_one_asked_for,
    ro_27_a_busy_process_starts_the_same_version_as_an_idle_one,
    ro_27_a_run_is_pinned_to_the_version_it_started_with,
    ro_27_continue_as_new_may_upgrade,
    ro_27_three_workers_deploy_in_a_rolling_way,
];

#[tokio::test]
async fn ro_26_two_handlers_for_one_name_are_refused() {
    let error = Engine::in_memory()
        .register(RUN, plain)
        .register(RUN_1, plain)
        .start()
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Setup(_)), "{error:?}");
    let text = error.to_string();
    assert!(
        text.contains("`run` version 1 is registered twice"),
        "{text}"
    );
    let engine = Engine::in_memory().register(RUN, plain);
    let engine = engine.register(RUN_2, plain).register(OTHER, plain);
    engine.start().await.unwrap();
}

async fn plain(cx: Cx, n: u32) -> Result<u32> {
    Ok(n * 100 + cx.version())
}

/// Waits for a signal in the middle; tells its version.
async fn long(cx: Cx, n: u32) -> Result<u32> {
    let version = cx.version();
    let step = cx.step("one", move |_| async move { Ok::<_, Failure>(n) });
    let one = step.await?;
    let two = cx.wait(GO).await?;
    let three = cx.effect("three", |_| async { Ok::<_, Failure>(0) });
    Ok((one + two + three.await?) * 10 + version)
}

fn both_versions(engine: EngineBuilder) -> EngineBuilder {
    engine.register(RUN, long).register(RUN_2, long)
}

async fn state(process: &Process, key: &str) -> RunState {
    process.run(key).await.unwrap().row.state
}

async fn ro_26_an_unknown_workflow_waits_visibly_for_a_worker_that_knows_it(db: Db) {
    let process = db.start(|engine| engine.register(OTHER, plain)).await;
    let mut run = process.start(RUN, &3).key("it").await.unwrap();
    let mut known = process.start(OTHER, &4).await.unwrap();
    assert_eq!(soon("a known one", known.result()).await.unwrap(), 401);
    assert_eq!(state(&process, "it").await, RunState::Ready);
    let stats = process.stats().await.unwrap();
    let waiting = stats.runs.iter().find(|(name, ..)| name.as_str() == "run");
    let (_, version, state, count) = waiting.expect("it is counted");
    assert_eq!((*version, *state, *count), (1, RunState::Ready, 1));
    let claims = process.metrics().claims_with_runs;
    let knows = db.start(|engine| engine.register(RUN, plain)).await;
    assert_eq!(soon("the end", run.result()).await.unwrap(), 301);
    assert_eq!(process.metrics().claims_with_runs, claims, "not claimed");
    knows.shutdown().await;
    assert_sound(&db).await;
}

async fn ro_26_an_unknown_version_waits_for_a_worker_that_knows_it(db: Db) {
    let old = db.start(|engine| engine.register(RUN, plain)).await;
    let mut run = old.start(RUN_7, &3).key("it").await.unwrap();
    let mut known = old.start(RUN, &4).version(1).await.unwrap();
    assert_eq!(soon("a known one", known.result()).await.unwrap(), 401);
    assert_eq!(state(&old, "it").await, RunState::Ready);
    assert_eq!(old.run("it").await.unwrap().lane.version, 7);
    let new = db.start(|engine| engine.register(RUN_7, plain)).await;
    assert_eq!(soon("the end", run.result()).await.unwrap(), 307);
    new.shutdown().await;
    assert_sound(&db).await;
}

async fn ro_27_new_runs_get_the_latest_version_or_the_one_asked_for(db: Db) {
    let process = db
        .start(|engine| engine.register(RUN, plain).register(RUN_2, plain))
        .await;
    let client = db.start(|engine| engine).await;
    for by in [&process, &client] {
        let mut latest = by.start(RUN, &1).await.unwrap();
        assert_eq!(soon("the latest", latest.result()).await.unwrap(), 102);
        let mut exact = by.start(RUN_1, &1).await.unwrap();
        assert_eq!(soon("an exact one", exact.result()).await.unwrap(), 101);
        let mut said = by.start(RUN, &1).version(1).await.unwrap();
        assert_eq!(soon("an exact one", said.result()).await.unwrap(), 101);
    }
    assert_sound(&db).await;
}

async fn ro_27_a_busy_process_starts_the_same_version_as_an_idle_one(db: Db) {
    // Somebody has a newer version already; this process does not.
    let newer = db.start(|engine| engine.register(RUN_2, plain)).await;
    let process = db
        .start(|engine| engine.register(RUN, plain).concurrency(1))
        .await;
    let mut versions = Vec::new();
    for delay in [Duration::ZERO, Duration::from_millis(1)] {
        let mut run = process.start(RUN, &0).delay(delay).await.unwrap();
        versions.push(soon("the end", run.result()).await.unwrap());
    }
    let mut run = process.start(RUN, &0).await.unwrap();
    versions.push(soon("the end", run.result()).await.unwrap());
    assert_eq!(versions, [1, 1, 1], "its own latest, however it starts");
    newer.shutdown().await;
}

async fn ro_27_a_run_is_pinned_to_the_version_it_started_with(db: Db) {
    let old = db.start(|engine| engine.register(RUN, long)).await;
    old.start(RUN, &3).key("it").await.unwrap();
    until("it waits", || async {
        state(&old, "it").await == RunState::Waiting
    })
    .await;
    old.shutdown().await;
    let new = db.start(|engine| engine.register(RUN_2, long)).await;
    new.signal("it", GO, &2).await.unwrap();
    let mut latest = new.start(RUN, &1).key("new").await.unwrap();
    new.signal("new", GO, &1).await.unwrap();
    assert_eq!(soon("a new one", latest.result()).await.unwrap(), 22);
    assert_eq!(state(&new, "it").await, RunState::Ready, "not its version");
    let old = db.start(|engine| engine.register(RUN, long)).await;
    let mut run = old.handle(RUN, "it").await.unwrap();
    assert_eq!(soon("the end", run.result()).await.unwrap(), 51);
    assert_sound(&db).await;
}

async fn ro_27_continue_as_new_may_upgrade(db: Db) {
    async fn upgrades(cx: Cx, n: u32) -> Result<u32> {
        if cx.execution() == 1 {
            cx.wait(GO).await?;
            return cx.continue_as_new(&(n + 1)).version(2).await;
        }
        plain(cx, n).await
    }
    // In one process that has both, and in two that have one each.
    let one = db
        .start(|engine| engine.register(RUN, upgrades).register(RUN_2, upgrades))
        .await;
    let mut run = one.start(RUN_1, &3).await.unwrap();
    one.signal(&run, GO, &0).await.unwrap();
    assert_eq!(soon("the end", run.result()).await.unwrap(), 402);
    one.shutdown().await;
    let old = db.start(|engine| engine.register(RUN, upgrades)).await;
    let new = db.start(|engine| engine.register(RUN_2, upgrades)).await;
    let mut run = old.start(RUN_1, &3).await.unwrap();
    old.signal(&run, GO, &0).await.unwrap();
    assert_eq!(soon("the end", run.result()).await.unwrap(), 402);
    assert_eq!(new.run(&run).await.unwrap().lane.version, 2);
    assert_sound(&db).await;
}

async fn ro_27_three_workers_deploy_in_a_rolling_way(db: Db) {
    let mut workers = Vec::new();
    for _ in 0..3 {
        workers.push(db.start(|engine| engine.register(RUN, long)).await);
    }
    let client = db.start(|engine| engine).await;
    let mut runs = Vec::new();
    // First those that know both come, one by one, then those that know the new one only.
    for phase in 0..2 {
        for worker in 0..3 {
            for _ in 0..4 {
                let n = u32::try_from(runs.len()).unwrap();
                runs.push(client.start(RUN, &n).await.unwrap());
            }
            if phase == 1 {
                // The last of the old ones ends before nobody knows it any more.
                for run in &runs {
                    client.signal(run, GO, &1).key("go").await.unwrap();
                }
                until("no old ones are left", || async {
                    let stats = client.stats().await.unwrap();
                    let ended = |state: RunState| state.has_ended();
                    let mut of = stats.runs.iter();
                    of.all(|(_, version, state, _)| *version == 2 || ended(*state))
                })
                .await;
            }
            let old: Process = workers.remove(0);
            workers.push(match phase {
                0 => db.start(both_versions).await,
                _ => db.start(|engine| engine.register(RUN_2, long)).await,
            });
            old.shutdown().await;
            let _ = worker;
        }
    }
    for run in &runs {
        client.signal(run, GO, &1).key("go").await.unwrap();
    }
    let mut seen = [0, 0];
    for (n, run) in (0..).zip(&mut runs) {
        let result: u32 = soon("all", run.result()).await.unwrap();
        assert_eq!(result / 10, n + 1);
        seen[(result % 10) as usize - 1] += 1;
    }
    assert!(seen[0] >= 4 && seen[1] >= 12, "{seen:?}");
    assert_sound(&db).await;
}
