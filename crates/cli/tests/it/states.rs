//! Patching a run's own state from the shell.

use roundel::{Cx, Engine, Failure, Workflow};
use serde_json::{Value, json};

use crate::support::Place;

const APPROVAL: Workflow<(), Value> = Workflow::named("approval");

async fn approval(cx: Cx, (): ()) -> Result<Value, Failure> {
    let approved = |state: &Value| state["approved"] == true;
    cx.wait_until(approved).await
}

async fn worker(place: &Place) -> Engine {
    let engine = Engine::open(place.db()).register(APPROVAL, approval);
    engine.start().await.expect("an engine")
}

#[tokio::test(flavor = "multi_thread")]
async fn co_23_a_state_is_merged_checked_and_audited_from_the_shell() {
    let place = Place::new().await;
    place.run(&["start", "approval", "--key", "a"]).ok();
    let patch = |patch: &str, flags: &[&str]| {
        let args = ["runs", "patch", "a", patch, "--operator", "ada"];
        place.run(&[&args[..], flags].concat())
    };
    let told = patch(r#"{"by": "ada", "cents": 5}"#, &["--if-version", "0"]).ok();
    assert_eq!(told.out, "version 1: {\"by\":\"ada\",\"cents\":5}\n");
    let late = patch(r#"{"cents": 6}"#, &["--if-version", "0"]);
    late.fails(1, &["has version 1, not 0", "runs show a"]);
    let merge = r#"{"by": null, "cents": 7}"#;
    let told = patch(merge, &["--reason", "a ticket", "--json"])
        .ok()
        .json();
    assert_eq!(told, json!({"version": 2, "state": {"cents": 7}}));
    let shown = place.run(&["runs", "show", "a", "--json"]).ok().json();
    assert_eq!(
        (&shown["state_version"], &shown["state_value"]),
        (&json!(2), &json!({"cents": 7}))
    );

    let engine = worker(&place).await;
    let waits = ["runs", "why", "a"];
    while !place.run(&waits).ok().out.contains("its state to be as") {
        tokio::task::yield_now().await;
    }
    patch(r#"{"approved": true}"#, &[]).ok();
    let mut run = engine.handle(APPROVAL, "a").await.expect("it is there");
    let end = json!({"cents": 7, "approved": true});
    assert_eq!(run.result().await.expect("it goes on"), end);
    patch(r#"{"cents": 0}"#, &[]).fails(1, &["has ended (completed)", "kept in the audit"]);
    engine.shutdown().await;

    let audit = place.run(&["audit", "--by", "ada", "--json"]).ok().out;
    let rows = audit.lines().map(serde_json::from_str::<Value>);
    let rows: Vec<Value> = rows.map(|row| row.expect("JSON")).collect();
    let answers: Vec<&str> = rows
        .iter()
        .filter_map(|row| row["answer"].as_str())
        .collect();
    let expected = [
        "version 1",
        "refused: version is 1",
        "version 2",
        "version 3",
        "had ended: completed",
    ];
    assert_eq!(answers, expected);
    assert_eq!(rows[2]["reason"], "a ticket");
    assert_eq!(rows[4]["detail"], json!({"cents": 0}), "late data is kept");
    place
        .run(&["runs", "patch", "nobody", "{}"])
        .fails(3, &["there is no run", "nobody"]);
    place
        .run(&["runs", "patch", "a", "{"])
        .fails(2, &["is not JSON"]);
}
