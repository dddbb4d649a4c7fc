//! Ending runs: those that are named, and all that fit.

use crate::support::Place;

async fn with_runs(count: usize) -> Place {
    let place = Place::new().await;
    for number in 0..count {
        let key = format!("k{number}");
        place.run(&["start", "greet", "\"x\"", "--key", &key]).ok();
    }
    place
}

/// How many are in this state.
fn count(place: &Place, state: &str) -> usize {
    let listed = place
        .run(&["runs", "list", "--json", "--state", state])
        .ok();
    listed.out.lines().count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_named_run_is_cancelled_once() {
    let place = with_runs(2).await;
    let told = place.run(&["runs", "cancel", "k0"]).ok();
    assert_eq!(told.out, "1 run asked to end\n");
    let worker = place.worker().await;
    while count(&place, "cancelled") < 1 {
        tokio::task::yield_now().await;
    }
    worker.shutdown().await;
    place
        .run(&["runs", "cancel", "k0"])
        .fails(1, &["had ended (cancelled)"]);
    let told = place.run(&["runs", "cancel", "k0", "--json"]);
    told.fails(1, &["had ended"]);
    assert_eq!(told.json()["runs"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn o6_many_are_ended_only_when_that_is_meant() {
    let place = with_runs(3).await;
    let asked = place.run(&["runs", "cancel", "--workflow", "greet"]);
    asked.fails(2, &["cancel 3 runs and all below?", "--yes", "--dry-run"]);
    let told = place.run(&["runs", "cancel", "--all", "--dry-run"]).ok();
    assert_eq!(told.out, "3 runs to cancel\n");
    let told = place
        .run(&["runs", "delete", "--all", "--dry-run", "--json"])
        .ok();
    assert_eq!(told.json()["found"], 0, "none has ended");
    let told = place
        .run(&["runs", "cancel", "--all", "--yes", "--json"])
        .ok()
        .json();
    assert_eq!((&told["runs"], &told["refused"]), (&3.into(), &0.into()));
    let worker = place.worker().await;
    while count(&place, "cancelled") < 3 {
        tokio::task::yield_now().await;
    }
    worker.shutdown().await;
    place
        .run(&["runs", "delete", "--all"])
        .fails(2, &["delete 3 runs and all below?"]);
    let told = place
        .run(&["runs", "delete", "--state", "cancelled", "--yes"])
        .ok();
    assert_eq!(told.out, "3 runs deleted\n");
    assert_eq!(place.run(&["runs", "list", "--json"]).ok().out, "");
    let told = place.run(&["runs", "delete", "--all", "--yes"]).ok();
    assert_eq!(told.out, "0 runs deleted\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_live_run_is_deleted_only_by_force() {
    let place = with_runs(1).await;
    place
        .run(&["runs", "delete", "k0"])
        .fails(1, &["is ready", "--force"]);
    assert_eq!(count(&place, "ready"), 1);
    let told = place
        .run(&["runs", "delete", "k0", "--force", "--json"])
        .ok()
        .json();
    assert_eq!(told["runs"], 1);
    place.run(&["runs", "show", "k0"]).fails(3, &["k0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parked_run_says_why_and_is_resumed() {
    let place = with_runs(1).await;
    place
        .run(&["runs", "resume", "k0"])
        .fails(1, &["is ready, not parked"]);
    let reason = "{\"failure\":{\"class\":\"permanent\",\"code\":\"\",\"message\":\"no disk\"}}";
    let outcome = format!("outcome = '{reason}'");
    place.sql(
        &[
            "UPDATE roundel_run SET state = 'parked', ready_at = NULL, ",
            &outcome,
        ]
        .concat(),
    );
    let shown = place.run(&["runs", "show", "k0"]).ok().out;
    assert!(
        shown.contains("no disk") && shown.contains("runs resume"),
        "{shown}"
    );
    assert_eq!(count(&place, "parked"), 1);
    place.run(&["runs", "resume", "k0"]).ok();
    assert_eq!(count(&place, "ready"), 1);
}
