//! What an operator sees of structured cooperation, and does about it: topics, trees, why a run
//! waits, undo, and rollbacks that failed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use roundel::{
    Cx, Engine, EngineBuilder, Failure, Result, Retry, RunId, RunState, Signal, Topic, Tx, Workflow,
};
use serde_json::{Value, json};

use crate::support::{Place, said};

const ORDER: Workflow<u32, u32> = Workflow::named("order");
const STOCK: Workflow<u32, u32> = Workflow::named("stock");
const SHIP: Workflow<u32, u32> = Workflow::named("ship");
const LABEL: Workflow<u32, u32> = Workflow::named("label");
const PLACED: Topic<u32> = Topic::named("placed");
const SIGNED: Signal<u32> = Signal::named("signed");

/// What orders do, by their number.
const GOOD: u32 = 1;
const NO_COURIER: u32 = 2;
const STUCK: u32 = 3;
const UNSIGNED: u32 = 4;

async fn step(cx: &Cx, name: &'static str) -> Result<()> {
    let step = cx.step(name, |_| async { Ok::<_, Failure>(()) });
    step.undo(|_: Tx, ()| async { Ok::<_, Failure>(()) }).await
}

async fn order(cx: Cx, of: u32) -> Result<u32> {
    step(&cx, "reserve").await?;
    cx.publish(PLACED, &of).await?;
    step(&cx, "close").await?;
    Ok(of)
}

async fn stock(cx: Cx, of: u32) -> Result<u32> {
    step(&cx, "take").await?;
    Ok(of)
}

async fn label(cx: Cx, of: u32) -> Result<u32> {
    step(&cx, "print").await?;
    if of == UNSIGNED {
        cx.wait(SIGNED).await?;
    }
    Ok(of)
}

/// Prints a label; its own work cannot be undone while it is stuck.
async fn ship(cx: Cx, of: u32, mended: Arc<AtomicBool>) -> Result<u32> {
    let hand = cx.step("hand over", |_| async { Ok::<_, Failure>(()) });
    hand.undo(move |_: Tx, ()| {
        let ok = of != STUCK || mended.load(Ordering::SeqCst);
        async move {
            ok.then_some(())
                .ok_or(Failure::business("the courier has it"))
        }
    })
    .await?;
    cx.child(LABEL, &of).await?;
    match of {
        NO_COURIER | STUCK => Err(Failure::business("no courier")),
        of => Ok(of),
    }
}

/// The shop's worker, without the shipping.
fn shop(place: &Place) -> EngineBuilder {
    Engine::open(place.db())
        .register(ORDER, order)
        .register(STOCK, stock)
        .register(LABEL, label)
        .subscribe(PLACED, STOCK)
        .subscribe(PLACED, SHIP)
}

async fn open(place: &Place, mended: &Arc<AtomicBool>) -> Engine {
    let mended = mended.clone();
    let engine = shop(place).register(SHIP, move |cx, of| ship(cx, of, mended.clone()));
    engine.start().await.expect("an engine")
}

/// An order, under this key, and how it ended.
async fn place_order(engine: &Engine, of: u32, key: &'static str) -> RunState {
    let run = engine.start(ORDER, &of).key(key).await.expect("started");
    ended(engine, run.id()).await
}

async fn ended(engine: &Engine, run: RunId) -> RunState {
    let end = async {
        loop {
            let state = engine.run(run).await.expect("a run").row.state;
            if state.has_ended() {
                return state;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let end = tokio::time::timeout(Duration::from_secs(30), end).await;
    end.expect("it ends")
}

/// The run of this workflow; there is one.
fn only(place: &Place, workflow: &str) -> String {
    let listed = place.run(&["runs", "list", "--json", "--workflow", workflow]);
    let run = listed.ok().json();
    run["run"].as_str().expect("an id").to_owned()
}

fn contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "`{part}` is missing:\n{text}");
    }
}

fn lines(text: &str) -> Vec<Value> {
    let parsed = text.lines().map(serde_json::from_str);
    parsed.map(|line| line.expect("JSON")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn sc_12_topics_show_who_subscribes_and_what_nobody_heard() {
    let place = Place::new().await;
    let none = place.run(&["topics"]).ok();
    contains(&none.err, &["no topics in namespace `default`"]);
    let sent = place.run(&["publish", "placed", "7"]).ok();
    contains(&sent.out, &["0 runs started"]);
    contains(&sent.err, &["nobody subscribes to `placed`"]);
    let told = place.run(&["topics", "subscribe", "placed", "stock"]).ok();
    contains(&told.out, &["`stock` subscribes now to `placed`"]);
    let again = ["topics", "subscribe", "placed", "stock", "--json"];
    let again = place.run(&again).ok().json();
    assert_eq!(again["changed"], false);
    place.run(&["topics", "subscribe", "placed", "ship"]).ok();
    let sent = place.run(&["publish", "placed", "{\"n\": 8}", "--json"]);
    let sent = sent.ok().json();
    assert_eq!(sent["heard"], 2);
    let shown = place.run(&["topics"]).ok().out;
    contains(&shown, &["placed", "ship stock", "published", "unheard"]);
    let shown = place.run(&["topics", "--json"]).ok().json();
    assert_eq!(
        (&shown["publications"], &shown["unheard"]),
        (&json!(2), &json!(1))
    );
    assert_eq!(shown["subscribers"][1]["workflow"], "stock");
    let all = place.run(&["topics", "show", "placed", "--json"]).ok();
    let all = lines(&all.out);
    assert_eq!(all[0]["publication"], sent["publication"], "newest first");
    assert_eq!(all[1]["payload"], 7);
    let page = place.run(&["topics", "show", "placed", "--limit", "1"]);
    let page = page.ok();
    contains(&page.out, &["{\"n\": 8}", "a client"]);
    let after = page.err.split("--after ").nth(1).expect("there are more");
    let rest = ["topics", "show", "placed", "--after", after.trim()];
    contains(&place.run(&rest).ok().out, &["unheard", "7"]);
    let told = place.run(&["topics", "unsubscribe", "placed", "ship"]).ok();
    contains(&told.out, &["subscribes no longer"]);
    let sent = place.run(&["publish", "placed", "--json"]).ok().json();
    assert_eq!(sent["heard"], 1);
    place
        .run(&["publish", "placed", "{"])
        .fails(2, &["is not JSON"]);
    place.run(&["topics", "subscribe", "", "x"]).fails(2, &[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_shows_what_was_set_off_and_what_became_of_it() {
    let place = Place::empty();
    let engine = open(&place, &Arc::default()).await;
    let state = place_order(&engine, NO_COURIER, "o").await;
    assert_eq!(state, RunState::RolledBack);
    engine.shutdown().await;
    let tree = place.run(&["runs", "tree", "o"]).ok().out;
    contains(
        &tree,
        &[
            "order o",
            "publish `placed`: 2 runs",
            "├─ ship",
            "│  └─ child label",
            "└─ stock",
            "no courier",
            "undone from +",
        ],
    );
    let label = only(&place, "label");
    let whole = place.run(&["runs", "tree", &label]).ok().out;
    assert_eq!(whole, tree, "from the root");
    let part = place.run(&["runs", "tree", &label, "--below"]).ok().out;
    assert!(
        part.starts_with("label ") && !part.contains("order"),
        "{part}"
    );
    let shown = place.run(&["runs", "tree", "o", "--json"]).ok().json();
    let why = shown["rolled_back_why"].as_str().expect("a reason");
    contains(why, &["1 of 2 runs that publish `placed` set off failed"]);
    let ship = &shown["children"][0];
    assert_eq!(ship["set_off_by"], "publish `placed`");
    assert_eq!(ship["children"][0]["run"], label);
    assert_eq!(ship["children"][0]["state"], "rolled_back");
    assert_eq!(shown["left_out"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn o4_of_a_large_tree_some_is_shown_and_the_rest_is_counted() {
    let place = Place::empty();
    const MANY: Workflow<u32, u32> = Workflow::named("many");
    let many = |cx: Cx, of: u32| async move {
        let all: Vec<u32> = (0..of).collect();
        cx.children(STOCK, &all).await?;
        Ok(of)
    };
    let engine = shop(&place).register(MANY, many).start().await;
    let engine = engine.expect("an engine");
    let run = engine.start(MANY, &40).key("m").await.expect("started");
    assert_eq!(ended(&engine, run.id()).await, RunState::Completed);
    engine.shutdown().await;
    let tree = place.run(&["runs", "tree", "m", "--limit", "11"]).ok();
    contains(&tree.out, &["children `stock`: 10 runs", "… 30 more"]);
    contains(&tree.err, &["30 runs are left out"]);
    let args = ["runs", "tree", "m", "--limit", "11", "--json"];
    assert_eq!(place.run(&args).ok().json()["left_out"], 30);
    let whole = place.run(&["runs", "tree", "m"]).ok();
    assert!(
        whole.err.is_empty() && whole.out.contains(": 40 runs"),
        "{whole:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn sc_13_a_subscriber_that_runs_nowhere_is_named_and_can_be_completed() {
    let place = Place::empty();
    let engine = shop(&place).start().await.expect("an engine");
    let order = engine.start(ORDER, &GOOD).key("o").await.expect("started");
    loop {
        let runs = engine.runs().in_state(RunState::Completed);
        if runs.fetch().await.expect("runs").items.len() == 1 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    // As if that had been a while ago.
    place.sql("UPDATE roundel_run SET ready_at = ready_at - 60000000 WHERE state = 'ready'");
    let ship = only(&place, "ship");
    let why = place.run(&["runs", "why", "o"]).ok().out;
    contains(
        &why,
        &[
            &format!("`order` o waits for run {ship} of `ship`, which waits for a worker, since 1"),
            "the one that is registered does not have version 1 of `ship`, which subscribes to \
             `placed`.",
            "for all that subscribe to `placed`, since",
            "ship ready",
        ],
    );
    assert!(!why.contains("stock"), "it has ended:\n{why}");
    let shown = place.run(&["runs", "why", "o", "--json"]).ok().json();
    let below = &shown["causes"][0]["waits_for"][0];
    assert_eq!(below["run"], ship);
    assert!(below["causes"][0]["since"].is_number());
    let told = place.run(&["runs", "complete", &ship, "9"]).ok();
    contains(&told.out, &["whoever waits for it goes on"]);
    assert_eq!(ended(&engine, order.id()).await, RunState::Completed);
    engine.shutdown().await;
    let why = place.run(&["runs", "why", "o"]).ok().out;
    assert_eq!(
        why,
        "`order` o waits for nothing: it has ended (completed).\n"
    );
    place
        .run(&["runs", "complete", "o"])
        .fails(1, &["completed"]);
    place.run(&["runs", "complete", "x"]).fails(3, &["`x`"]);
    place.run(&["runs", "why", "x"]).fails(3, &["`x`"]);
    place.run(&["runs", "tree", "x"]).fails(3, &["`x`"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn why_follows_down_to_the_signal_that_a_childs_child_waits_for() {
    let place = Place::empty();
    let engine = open(&place, &Arc::default()).await;
    let order = engine.start(ORDER, &UNSIGNED).key("o").await;
    let order = order.expect("started").id();
    loop {
        let why = place.run(&["runs", "why", "o"]).ok().out;
        if why.contains("for signal `signed`") {
            contains(
                &why,
                &[
                    "of `label`, which waits for signal `signed`",
                    "ship waiting",
                ],
            );
            break;
        }
    }
    let label = only(&place, "label");
    place
        .run(&["runs", "undo", "o", "--yes"])
        .fails(1, &["waiting"]);
    let preview = place.run(&["runs", "undo", "o", "--preview"]);
    preview.fails(1, &["only a run that completed or is parked"]);
    place.run(&["signal", &label, "signed", "1"]).ok();
    assert_eq!(ended(&engine, order).await, RunState::Completed);
    engine.shutdown().await;
}

/// Waits for what its input says.
async fn wait_for(cx: Cx, what: String, gate: Arc<tokio::sync::Notify>) -> Result<()> {
    match what.as_str() {
        "time" => cx.sleep(Duration::from_secs(3600)).await,
        "effect" => {
            let gated = || async {
                gate.notified().await;
                Ok::<_, Failure>(())
            };
            cx.effect("call", |_| gated()).await?;
        }
        "retry" => {
            let busy = || async { Err::<(), _>(Failure::transient("busy")) };
            let again = Retry::exponential(9).first(Duration::from_secs(3600));
            cx.effect("call", |_| busy()).retry(again).await?;
        }
        _ => return Err(Failure::permanent("no disk")),
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn why_names_what_is_in_the_way_whatever_it_is() {
    const WAITS: Workflow<String, ()> = Workflow::named("waits");
    let place = Place::empty();
    let gate = Arc::new(tokio::sync::Notify::new());
    let opened = gate.clone();
    let waits = move |cx, what| wait_for(cx, what, opened.clone());
    let engine = Engine::open(place.db()).register(WAITS, waits);
    let engine = engine.start().await.expect("an engine");
    for (what, parts) in [
        (
            "time",
            &["`waits` time waits until ", "(in 59 min"] as &[&str],
        ),
        ("effect", &["`waits` effect is leased to ", " more"]),
        (
            "retry",
            &["waits to try effect `call` again after attempt 1"],
        ),
        ("disk", &["`waits` disk is parked: no disk", "runs resume"]),
    ] {
        engine
            .start(WAITS, &what.to_owned())
            .key(what)
            .await
            .expect("started");
        let found = async {
            loop {
                let why = place.run(&["runs", "why", what]).ok().out;
                if parts.iter().all(|part| why.contains(part)) {
                    return;
                }
            }
        };
        let found = tokio::time::timeout(Duration::from_secs(20), found).await;
        let why = || place.run(&["runs", "why", what]).ok().out;
        assert!(found.is_ok(), "{parts:?} is missing:\n{}", why());
    }
    let start = [
        "start",
        "waits",
        "\"time\"",
        "--version",
        "9",
        "--key",
        "old",
    ];
    place.run(&start).ok();
    let long_ago = "UPDATE roundel_run SET ready_at = ready_at - 60000000 WHERE key = 'old'";
    place.sql(long_ago);
    let why = place.run(&["runs", "why", "old"]).ok().out;
    contains(
        &why,
        &["the one that is registered does not have version 9 of `waits`.\n"],
    );
    // Who registered before that was kept does not say.
    place.sql("UPDATE roundel_worker SET lanes = NULL");
    let why = place.run(&["runs", "why", "old"]).ok().out;
    contains(&why, &["is one running that has version 9 of `waits`?\n"]);
    gate.notify_waiters();
    engine.shutdown().await;
    let why = place.run(&["runs", "why", "old"]).ok().out;
    contains(
        &why,
        &["none of any kind is registered: start one that has version 9"],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn why_says_who_has_the_version_and_names_the_deadline_and_who_set_it() {
    const OUTER: Workflow<String, ()> = Workflow::named("outer");
    const WAITS: Workflow<String, ()> = Workflow::named("waits");
    let place = Place::empty();
    let outer = |cx: Cx, what: String| async move {
        cx.child(WAITS, &what).await?;
        Ok(())
    };
    let waits = |cx: Cx, what| wait_for(cx, what, Arc::default());
    let engine = Engine::open(place.db()).register(OUTER, outer);
    let engine = engine.register(WAITS, waits).name("desk 7");
    let engine = engine.start().await.expect("an engine");
    let start = engine.start(OUTER, &"time".to_owned()).key("o");
    let hour = Duration::from_secs(3600);
    let start = start.forward_deadline(hour).rollback_deadline(2 * hour);
    let outer = start.await.expect("started").id();
    let why = loop {
        let why = place.run(&["runs", "why", "o"]).ok().out;
        if why.contains("waits until") {
            break why;
        }
    };
    contains(
        &why,
        &[" to end; it was started with that", " UTC (in 59 min"],
    );
    contains(&why, &[&format!(" to end; run {outer} set that")]);
    assert!(!why.contains("to be undone"), "it goes forward:\n{why}");
    place.sql("UPDATE roundel_run SET forward_by = forward_by - 7200000000, undo = 2");
    let why = place.run(&["runs", "why", "o"]).ok().out;
    contains(&why, &["it has until ", " to be undone; "]);
    // One that nobody takes, though somebody could.
    place.sql("UPDATE roundel_run SET ready_at = 1, state = 'ready', owner = NULL, undo = 0");
    let why = place.run(&["runs", "why", "o"]).ok().out;
    contains(
        &why,
        &[
            "desk 7 has version 1 of `outer`, and was last seen ",
            "it had until ",
        ],
    );
    drop(engine);
}

#[tokio::test(flavor = "multi_thread")]
async fn sc_29_undo_is_previewed_asked_for_and_done() {
    let place = Place::empty();
    let engine = open(&place, &Arc::default()).await;
    assert_eq!(place_order(&engine, GOOD, "o").await, RunState::Completed);
    let preview = place.run(&["runs", "undo", "o", "--preview", "--json"]);
    let preview = preview.ok().json();
    let names = |undos: &Value| -> Vec<String> {
        let undos = undos.as_array().expect("a list").iter();
        undos
            .map(|undo| {
                let text = |name: &str| undo[name].as_str().expect("a name").to_owned();
                format!("{} {}", text("workflow"), text("name"))
            })
            .collect()
    };
    let expected = [
        "order close",
        "label print",
        "ship hand over",
        "stock take",
        "order reserve",
    ];
    assert_eq!(names(&preview["undos"]), expected);
    assert_eq!(preview["partial"], false);
    let shown = place.run(&["runs", "undo", "o", "--preview"]).ok().out;
    contains(&shown, &["would undo 5 calls of 4 runs", "hand over"]);
    let ship = only(&place, "ship");
    let part = place.run(&["runs", "undo", &ship, "--preview"]).ok().out;
    contains(&part, &["would undo 2 calls of 2 runs, a part of its tree"]);
    let asked = place.run(&["runs", "undo", "o"]);
    asked.fails(2, &["5 calls of 4 runs?", "--yes"]);
    let order = engine.run("o").await.expect("a run").row.id;
    assert_eq!(ended(&engine, order).await, RunState::Completed);
    let told = place.run(&["runs", "undo", "o", "--yes", "--json"]).ok();
    assert_eq!(told.json()["undo"], "begun");
    assert_eq!(ended(&engine, order).await, RunState::RolledBack);
    let again = place.run(&["runs", "undo", "o", "--yes"]).ok().out;
    contains(&again, &["nothing to do", "rolled_back"]);
    engine.shutdown().await;
    // What was undone is what the preview said: in the order of the journals.
    let tree = place.run(&["runs", "tree", "o"]).ok().out;
    assert_eq!(tree.matches("rolled_back").count(), 4, "{tree}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sc_24_a_rollback_that_failed_is_listed_until_it_is_retried_skipped_or_accepted() {
    let place = Place::empty();
    let mended = Arc::new(AtomicBool::new(false));
    let engine = open(&place, &mended).await;
    for key in ["a", "b", "c"] {
        let state = place_order(&engine, STUCK, key).await;
        assert_eq!(state, RunState::RollbackFailed);
    }
    let listed = || -> Vec<String> {
        let args = ["runs", "list", "--state", "parked", "--json"];
        let runs = lines(&place.run(&args).ok().out);
        let ships = runs.iter().filter(|run| run["workflow"] == "ship");
        ships
            .map(|run| run["run"].as_str().expect("an id").to_owned())
            .collect()
    };
    let [c, b, a] = listed().try_into().expect("three");
    let args = ["runs", "list", "--state", "parked", "--limit", "2"];
    let page = place.run(&args).ok();
    assert_eq!(page.out.lines().count(), 3, "a head and two: {page:?}");
    contains(&page.err, &["there are more"]);
    let why = place.run(&["runs", "why", &a]).ok().out;
    contains(
        &why,
        &[
            "needs an operator",
            "the courier has it",
            "--skip",
            "runs accept",
        ],
    );
    place.run(&["runs", "accept", &a]).ok();
    assert_eq!(listed(), [c.clone(), b.clone()]);
    place.run(&["runs", "resume", &b, "--skip"]).ok();
    let id = |text: &str| text.parse::<RunId>().expect("an id");
    assert_eq!(ended(&engine, id(&b)).await, RunState::RolledBack);
    mended.store(true, Ordering::SeqCst);
    place.run(&["runs", "resume", &c]).ok();
    assert_eq!(ended(&engine, id(&c)).await, RunState::RolledBack);
    assert_eq!(listed(), [""; 0]);
    engine.shutdown().await;
    place
        .run(&["runs", "accept", &b])
        .fails(1, &["no rollback of it has failed"]);
    place
        .run(&["runs", "resume", &b, "--skip"])
        .fails(1, &["no rollback"]);
    place.run(&["runs", "accept", "x"]).fails(3, &["`x`"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn trees_and_causes_fit_the_terminal() {
    let place = Place::empty();
    let engine = open(&place, &Arc::default()).await;
    place_order(&engine, STUCK, "a-rather-long-key-of-an-order-of-somebody").await;
    engine.shutdown().await;
    let ship = only(&place, "ship");
    let program = env!("CARGO_BIN_EXE_roundel");
    for width in [60, 80] {
        for command in ["runs tree", "runs why", "topics", "topics show placed"] {
            let run = if command.starts_with("runs") {
                &ship
            } else {
                ""
            };
            let line = format!("stty rows 24 cols {width}; {program} {command} {run} --db runs.db");
            let mut script = std::process::Command::new("script");
            script
                .args(["-qec", &line, "/dev/null"])
                .current_dir(place.folder.path())
                .env_remove("COLUMNS")
                .env("NO_COLOR", "1")
                .stdin(std::process::Stdio::null());
            if script.output().is_err() {
                return;
            }
            let shown = said(&mut script).out;
            let widest = shown.lines().map(|line| line.trim_end().chars().count());
            let widest = widest.max();
            assert!(
                widest <= Some(width),
                "{command} in {width} columns:\n{shown}"
            );
            assert!(!shown.is_empty() && !shown.contains("error"), "{shown}");
        }
    }
}
