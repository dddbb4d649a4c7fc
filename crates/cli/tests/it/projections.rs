//! Projections from the shell: how far they are, built anew, past what they cannot fold in.

use roundel::{Engine, Fact, Failure, Projection};
use serde_json::{Value, json};

use crate::support::Place;

const SAID: Fact<u64> = Fact::named("said");

fn sum(name: &'static str) -> Projection<u64> {
    Projection::named(name).fold(
        SAID,
        move |_| vec![format!("{name}/all")],
        |sum, said| match said {
            13 => Err(Failure::business("thirteen \u{1b}[31mis not said")),
            said => Ok(Some(sum.unwrap_or(0) + said)),
        },
    )
}

async fn process(place: &Place) -> Engine {
    let engine = Engine::open(place.db())
        .project(sum("inline"))
        .project(sum("after").following());
    engine.start().await.expect("an engine")
}

fn listed(place: &Place) -> Vec<Value> {
    let said = place.run(&["projections", "list", "--json"]).ok().out;
    let line = |line: &str| serde_json::from_str(line).expect("JSON");
    said.lines().map(line).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn fa_12_projections_are_listed_and_rebuilt_by_a_process_that_has_them() {
    let place = Place::new().await;
    let none = place.run(&["projections", "list"]).ok();
    assert!(none.err.contains("no projections"), "{none:?}");
    let engine = process(&place).await;
    for said in 1..=4 {
        engine.record(SAID, &said).await.expect("it is recorded");
    }
    engine.catch_up().await.expect("all is folded");
    let shown = place.run(&["projections", "list"]).ok().out;
    for part in ["after", "inline", "all facts", "in every commit"] {
        assert!(shown.contains(part), "`{part}` is missing:\n{shown}");
    }
    // While a process is there that has it.
    let done = place.run(&["projections", "rebuild", "inline"]).ok();
    assert!(done.out.contains("built from 4 facts"), "{done:?}");
    engine.shutdown().await;
    // And while none is.
    let args = ["projections", "rebuild", "after", "--no-wait", "--json"];
    let begun = place.run(&args).ok().json();
    assert_eq!(begun["projection"]["next"]["facts"], 0, "{begun}");
    let shown = place.run(&["projections", "list"]).ok().out;
    assert!(shown.contains("being built: 0 of 4 facts"), "{shown}");
    let engine = process(&place).await;
    engine.catch_up().await.expect("it is built");
    let live = |at: usize| listed(&place)[at]["projection"]["live"]["generation"].clone();
    assert_eq!((live(0), live(1)), (json!(1), json!(1)));
    let got = place.run(&["documents", "get", "inline/all"]).ok().out;
    assert_eq!(got.trim(), "10");
    place
        .run(&["projections", "rebuild", "nothing"])
        .fails(3, &["`nothing`"]);
    let audited = place.run(&["audit", "--json"]).ok().out;
    assert_eq!(audited.matches("\"rebuild\"").count(), 2, "{audited}");
    let checked = place.run(&["verify", "--json"]).ok().json();
    assert_eq!(checked["sound"], true, "{checked}");
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn j2_a_fact_that_stops_a_projection_is_shown_and_skipped() {
    let place = Place::new().await;
    let after = || Engine::open(place.db()).project(sum("after").following());
    let engine = after().start().await.expect("an engine");
    for (id, said) in [("one", 1), ("bad", 13), ("two", 2)] {
        let recorded = engine.record(SAID, &said).id(id).await;
        recorded.expect("it is recorded all the same");
    }
    engine.catch_up().await.expect("as far as it goes");
    let shown = place.run(&["projections", "list"]).ok().out;
    assert!(shown.contains("stuck at bad: "), "{shown}");
    assert!(!shown.contains('\u{1b}'), "{shown}");
    place
        .run(&["projections", "skip", "after", "one"])
        .fails(1, &["`after`", "`one`"]);
    let skip = ["projections", "skip", "after", "bad", "--operator", "ada"];
    let skipped = place.run(&[&skip[..], &["--reason", "a joke"]].concat());
    assert_eq!(skipped.ok().out.trim(), "skipped");
    engine.catch_up().await.expect("it goes on");
    assert_eq!(listed(&place)[0]["projection"]["live"]["facts"], 3);
    let got = place.run(&["documents", "get", "after/all"]).ok().out;
    assert_eq!(got.trim(), "3");
    let audited = place.run(&["audit"]).ok().out;
    for part in ["ada", "a joke", "skip fact", "after: bad"] {
        assert!(audited.contains(part), "`{part}` is missing:\n{audited}");
    }
    engine.shutdown().await;
}
