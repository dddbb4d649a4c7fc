//! Facts and documents from the shell.

use roundel::{Engine, Fact, Projection};
use serde_json::{Value, json};

use crate::support::Place;

const SAID: Fact<u64> = Fact::named("said");
const NOTED: Fact<String> = Fact::named("noted");

async fn recorded(place: &Place) {
    let sum = Projection::<u64>::named("sum").fold(
        SAID,
        |_| vec!["sums/all".into()],
        |sum, said| Ok(Some(sum.unwrap_or(0) + said)),
    );
    let engine = Engine::open(place.db()).name("till 7").project(sum);
    let engine = engine.start().await.expect("an engine");
    for said in 1..=4_u64 {
        let one = engine.record(SAID, &said).id(format!("s{said}"));
        one.stream("talk").await.expect("it is recorded");
    }
    let note = "a \u{1b}[31mnote".to_owned();
    let noted = engine.record(NOTED, &note).id("n");
    noted.await.expect("it is recorded");
    engine.shutdown().await;
}

fn ids(out: &str) -> Vec<String> {
    let id = |line: &str| {
        let line: Value = serde_json::from_str(line).expect("JSON");
        line["id"].as_str().expect("an id").to_owned()
    };
    out.lines().map(id).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn fa_05_facts_are_listed_in_pages_and_shown_with_their_envelope() {
    let place = Place::new().await;
    recorded(&place).await;
    let all = place.run(&["facts", "list", "--json"]).ok().out;
    assert_eq!(ids(&all), ["s1", "s2", "s3", "s4", "n"]);
    let page = place.run(&["facts", "list", "--limit", "2"]).ok();
    assert!(
        page.out.contains("s2") && !page.out.contains("s3"),
        "{}",
        page.out
    );
    assert!(page.err.contains("--after 2"), "{}", page.err);
    let rest = place.run(&["facts", "list", "--after", "2", "--kind", "said", "--json"]);
    assert_eq!(ids(&rest.ok().out), ["s3", "s4"]);
    let talk = place.run(&[
        "facts", "list", "--stream", "talk", "--after", "3", "--json",
    ]);
    assert_eq!(ids(&talk.ok().out), ["s4"]);
    let shown = place.run(&["facts", "show", "s3"]).ok().out;
    for part in [
        "said, version 1",
        "talk 3",
        "received by till 7",
        "says         3",
    ] {
        assert!(shown.contains(part), "`{part}` is missing:\n{shown}");
    }
    let shown = place.run(&["facts", "show", "s3", "--json"]).ok().json();
    assert_eq!((&shown["data"], &shown["run"]), (&json!(3), &json!(null)));
    assert!(!place.run(&["facts", "list"]).ok().out.contains('\u{1b}'));
    place
        .run(&["facts", "show", "s9"])
        .fails(3, &["no fact `s9`"]);
    place
        .run(&["facts", "list", "--after", "x"])
        .fails(2, &["`x` is no position"]);
    let checked = place.run(&["verify", "--json"]).ok().json();
    assert_eq!(
        (&checked["sound"], &checked["facts"]),
        (&json!(true), &json!(5))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_are_listed_and_printed() {
    let place = Place::new().await;
    recorded(&place).await;
    assert_eq!(
        place.run(&["documents", "get", "sums/all"]).ok().out,
        "10\n"
    );
    let listed = place
        .run(&["documents", "list", "sums/", "--json"])
        .ok()
        .json();
    assert_eq!(
        (&listed["version"], &listed["value"]),
        (&json!(4), &json!(10))
    );
    assert!(
        place
            .run(&["documents", "list"])
            .ok()
            .out
            .contains("sums/all")
    );
    place
        .run(&["documents", "get", "sums/none"])
        .fails(3, &["no document"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn inv19_a_stream_with_a_gap_is_found() {
    let place = Place::new().await;
    recorded(&place).await;
    place.sql("UPDATE roundel_fact SET stream_version = 9 WHERE id = 's3'");
    let found = place.run(&["verify", "--json"]).json();
    assert_eq!(found["violations"][0]["invariant"], "inv19_projections");
}

#[tokio::test(flavor = "multi_thread")]
async fn fa_06_facts_are_handed_in_listed_and_taken() {
    let place = Place::new().await;
    recorded(&place).await;
    let append = |args: &[&str]| {
        let mut all = vec!["facts", "append"];
        all.extend(args);
        place.run(&all)
    };
    let first = append(&["said", "5", "--id", "s5", "--needs", "s9", "--json"]);
    assert_eq!(first.ok().json()["answer"], json!("queued"));
    append(&["said", "6", "--id", "s6"]).ok();
    let known = append(&["said", "1", "--id", "s1", "--stream", "talk"]).ok();
    assert!(known.out.contains("recorded before"), "{}", known.out);
    append(&["said", "7", "--id", "s1"]).fails(1, &["`s1`"]);
    let ticked = place.run(&["tick", "--json"]).ok().json();
    assert_eq!(ticked["recorded"], json!(0), "nothing is folded here");
    let listed = place.run(&["facts", "incoming"]).ok().out;
    assert!(listed.contains("s5") && listed.contains("s6"), "{listed}");
    let sum = Projection::<u64>::named("sum").fold(
        SAID,
        |_| vec!["sums/all".into()],
        |sum, said| Ok(Some(sum.unwrap_or(0) + said)),
    );
    let engine = Engine::open(place.db()).project(sum).start().await;
    let engine = engine.expect("an engine");
    engine.tick(engine.now()).await.expect("it ticks");
    engine.shutdown().await;
    let waits = ["facts", "incoming", "--state", "waiting", "--json"];
    let waits = place.run(&waits).ok().json();
    assert_eq!(waits["missing"], json!(["s9"]));
    assert_eq!(waits["fact"]["id"], json!("s5"));
    let all = place.run(&["documents", "get", "sums/all"]).ok().out;
    assert_eq!(all.trim(), "16");
    place.run(&["verify"]).ok();
}
