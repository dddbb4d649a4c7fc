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
async fn ro_51_what_ended_long_ago_is_pruned() {
    let place = with_runs(1).await;
    let worker = place.worker().await;
    place.run(&["start", "greet", "\"Ada\"", "--wait"]).ok();
    worker.shutdown().await;
    let prune = ["retention", "run", "--older-than"];
    place
        .run(&[&prune[..], &["1h"]].concat())
        .fails(2, &["--yes"]);
    let told = place.run(&[&prune[..], &["1h", "--yes"]].concat()).ok();
    assert_eq!(told.out, "0 runs removed\n");
    let told = place.run(&[&prune[..], &["0s", "--yes", "--json"]].concat());
    assert!(told.ok().json()["runs"].as_u64() >= Some(1));
    assert_eq!(count(&place, "completed"), 0);
    place
        .run(&[&prune[..], &["soon", "--yes"]].concat())
        .fails(2, &["3d"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_kept_is_counted_with_what_is_below_it_and_removed_by_workflow() {
    let place = Place::new().await;
    let worker = place.worker().await;
    place.run(&["start", "ask", "\"why\"", "--key", "a"]).ok();
    place.run(&["signal", "a", "answer", "\"so\""]).ok();
    place.run(&["start", "greet", "\"Ada\"", "--wait"]).ok();
    while count(&place, "completed") < 3 {}
    worker.shutdown().await;
    // By workflow, trees and the runs in them.
    let kept = |args: &[&str]| {
        let told = place.run(args).ok().out;
        let lines = told.lines().map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
            format!("{} {} {}", line["workflow"], line["trees"], line["runs"])
        });
        lines.collect::<Vec<_>>().join(", ")
    };
    let all = "\"ask\" 1 2, \"greet\" 1 1";
    let run = ["retention", "run", "--older-than", "0s", "--json"];
    assert_eq!(kept(&["retention", "show", "--json"]), all);
    assert_eq!(kept(&[&run[..], &["--dry-run"]].concat()), all);
    let old = ["retention", "show", "--older-than", "1h", "--json"];
    assert_eq!(kept(&old), "");
    let greet = [&run[..], &["--workflow", "greet"]].concat();
    assert_eq!(
        kept(&[&greet[..], &["--dry-run"]].concat()),
        "\"greet\" 1 1"
    );
    let removed = place.run(&[&greet[..], &["--yes"]].concat()).ok();
    assert_eq!(removed.json()["runs"], 1);
    assert!(
        removed.err.contains("\"phase\":\"removing\""),
        "{removed:?}"
    );
    assert_eq!(kept(&["retention", "show", "--json"]), "\"ask\" 1 2");
    let removed = place.run(&[&run[..], &["--yes"]].concat()).ok();
    assert_eq!(removed.json()["runs"], 2);
    let shown = place.run(&["retention", "show"]).ok();
    assert!(shown.err.contains("keep_ended"), "{shown:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn how_long_things_are_kept_is_set_shown_and_taken_back() {
    let place = Place::new().await;
    let set = |args: &[&str]| place.run(&[&["retention", "set"], args].concat());
    let json = |args: &[&str]| set(&[args, &["--json"]].concat()).ok().out;
    assert_eq!(json(&["program"]), "{\"ended\":null,\"workflows\":{}}\n");
    let said = set(&["30d", "--operator", "ada", "--reason", "law"]).ok();
    assert!(said.out.contains("the rest 30"), "{said:?}");
    assert_eq!(
        json(&["ever", "--workflow", "greet"]),
        "{\"ended\":2592000000,\"workflows\":{\"greet\":\"ever\"}}\n"
    );
    let shown = place.run(&["retention", "show"]).ok().err;
    assert!(shown.contains("`greet` for ever, the rest 30"), "{shown}");
    let audit = place.run(&["audit", "--json"]).ok().out;
    assert!(audit.contains("ada") && audit.contains("law"), "{audit}");
    json(&["program"]);
    let none = json(&["program", "--workflow", "greet"]);
    assert_eq!(none, "{\"ended\":null,\"workflows\":{}}\n");
    set(&["soon"]).fails(2, &["3d"]);
    place.run(&["verify"]).ok();
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

#[tokio::test(flavor = "multi_thread")]
async fn co_10_a_parked_run_begins_anew_with_another_input() {
    let place = Place::new().await;
    let mut start = vec!["start", "greet", "\"Ada\"", "--key", "k0"];
    place.run(&start).ok();
    let resume = ["runs", "resume", "k0", "--input", "\"Bob\""];
    place.run(&resume).fails(1, &["is ready, not parked"]);
    place.sql(
        "UPDATE roundel_run SET state = 'parked', ready_at = NULL, outcome = \
               '{\"failure\":{\"class\":\"permanent\",\"code\":\"\",\"message\":\"no\"}}'",
    );
    place
        .run(&["runs", "resume", "nobody", "--input", "1"])
        .fails(3, &["nobody"]);
    place
        .run(&["runs", "resume", "k0", "--input", "{"])
        .fails(2, &["JSON"]);
    place.run(&resume).ok();
    let worker = place.worker().await;
    // The first start's answer, which waits for the run that was begun anew.
    start.push("--wait");
    assert_eq!(place.run(&start).ok().out, "\"hello Bob\"\n");
    worker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn co_12_who_ended_a_run_and_why_is_kept_and_cannot_be_changed() {
    let place = with_runs(3).await;
    let signed = ["--operator", "anna", "--reason", "ticket 7"];
    place
        .run(&[&["runs", "cancel", "k0"][..], &signed].concat())
        .ok();
    place
        .run(&["runs", "delete", "k1", "--force", "--operator", "bert"])
        .ok();
    let told = place.run(&["audit", "--json"]).ok();
    let rows: Vec<serde_json::Value> = told
        .out
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let said = |row: &serde_json::Value| {
        ["operator", "reason", "action", "target", "answer"]
            .map(|key| row[key].as_str().unwrap_or_default().to_owned())
    };
    let rows: Vec<_> = rows.iter().map(said).collect();
    let expected = [
        ["anna", "ticket 7", "cancel", "k0", "requested"],
        ["bert", "", "delete", "k1", "1 runs"],
    ];
    assert_eq!(rows, expected.map(|row| row.map(str::to_owned)));
    let shown = place.run(&["audit", "--by", "anna"]).ok();
    assert!(
        shown.out.contains("ticket 7") && !shown.out.contains("bert"),
        "{shown:?}"
    );
    let of = place.run(&["audit", "--run", "k0", "--json"]).ok();
    assert_eq!(of.out.lines().count(), 1);
    let sound = place.run(&["audit", "verify", "--json"]).ok().json();
    assert_eq!((&sound["sound"], &sound["rows"]), (&true.into(), &2.into()));
    let seal = sound["seal"].as_str().expect("a seal").to_owned();
    place.run(&["audit", "verify", "--seal", &seal]).ok();
    place.sql("DELETE FROM roundel_audit WHERE number = 2");
    let cut = place.run(&["audit", "verify", "--seal", &seal]);
    assert_eq!(cut.code, 1, "the last rows are missing: {cut:?}");
    place.sql("UPDATE roundel_audit SET operator = 'carl'");
    let changed = place.run(&["audit", "verify"]);
    assert_eq!(changed.code, 1, "{changed:?}");
    let verified = place.run(&["verify", "--rows-only"]);
    assert_eq!(verified.code, 1);
    assert!(verified.out.contains("inv26_audit"), "{verified:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn co_10_what_is_parked_is_shown_grouped_and_ended() {
    let place = Place::new().await;
    let none = place.run(&["parked", "groups"]).ok();
    assert!(
        none.out.is_empty() && none.err.contains("nothing"),
        "{none:?}"
    );
    for key in ["a", "b", "c"] {
        place.run(&["start", "break", "--key", key]).ok();
    }
    let worker = place.worker().await;
    while place.run(&["parked", "count"]).ok().out.trim() != "3" {
        tokio::task::yield_now().await;
    }
    worker.shutdown().await;
    let listed = place
        .run(&["parked", "list", "--json", "--limit", "2"])
        .ok();
    assert_eq!(listed.out.lines().count(), 2);
    let listed = place.run(&["parked", "list", "--workflow", "break"]).ok();
    assert!(listed.out.contains("reason"), "{listed:?}");
    let group = place.run(&["parked", "groups", "--json"]).ok().json();
    assert_eq!(group["count"], 3, "{group}");
    let fingerprint = group["fingerprint"].as_str().expect("a text").to_owned();
    let shown = place.run(&["parked", "show", "a", "--json"]).ok().json();
    assert_eq!(shown["fingerprint"], group["fingerprint"]);
    let of_group = ["--group", &fingerprint];
    let dry = [&["parked", "cancel", "--dry-run"][..], &of_group].concat();
    assert_eq!(place.run(&dry).ok().out, "3 runs to cancel\n");
    let asked = [&["parked", "cancel"][..], &of_group].concat();
    place.run(&asked).fails(2, &["cancel 3 runs?", "--yes"]);
    let by_hand = [
        "parked",
        "complete",
        "a",
        "--value",
        "1",
        "--operator",
        "anna",
    ];
    place.run(&by_hand).ok();
    place
        .run(&["parked", "retry", "a"])
        .fails(1, &["completed, not parked"]);
    let done = [
        &["parked", "cancel", "--yes", "--json", "--most", "1"][..],
        &of_group,
    ]
    .concat();
    let done = place.run(&done).ok().json();
    assert_eq!((&done["done"], &done["more"]), (&1.into(), &true.into()));
    let audit = place.run(&["audit", "--json"]).ok();
    assert_eq!(audit.out.lines().count(), 2, "{audit:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn co_25_runs_are_cancelled_without_undo() {
    let place = Place::new().await;
    for key in ["a", "b"] {
        place.run(&["start", "break", "--key", key]).ok();
    }
    let worker = place.worker().await;
    while place.run(&["parked", "count"]).ok().out.trim() != "2" {
        tokio::task::yield_now().await;
    }
    worker.shutdown().await;
    place.run(&["parked", "cancel", "a", "--without-undo"]).ok();
    let told = place.run(&["runs", "cancel", "b", "--without-undo"]).ok();
    assert_eq!(told.out, "1 run asked to end\n");
    assert_eq!(count(&place, "cancelled"), 2);
    let audit = place.run(&["audit", "--json"]).ok().out;
    let said = audit.matches("cancel without undo").count();
    assert_eq!(said, 2, "{audit}");
}

#[tokio::test(flavor = "multi_thread")]
async fn si_10_parked_signals_are_listed_replayed_and_discarded() {
    let place = Place::new().await;
    for key in ["a", "b"] {
        place.run(&["start", "greet", "null", "--key", key]).ok();
    }
    for value in ["1", "2", "3"] {
        place.run(&["signal", "a", "news", value]).ok();
    }
    place.run(&["runs", "cancel", "a"]).ok();
    assert_eq!(place.run(&["parked", "count"]).ok().out, "3\n");
    let listed = place.run(&["parked", "list", "--json"]).ok();
    let ids: Vec<String> = listed
        .out
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"))
        .map(|row| row["id"].as_str().expect("an id").to_owned())
        .collect();
    assert!(ids[0].ends_with("/3") && ids[2].ends_with("/1"), "{ids:?}");
    let listed = place.run(&["parked", "list"]).ok();
    assert!(listed.out.contains("signal_unread"), "{listed:?}");
    let shown = place
        .run(&["parked", "show", &ids[1], "--json"])
        .ok()
        .json();
    assert_eq!(
        (&shown["signal"], &shown["value"]),
        (&"news".into(), &2.into())
    );
    place
        .run(&["parked", "retry", &ids[0]])
        .fails(1, &["is a signal", "replay"]);
    place
        .run(&["parked", "replay", &ids[0], "--to", "a"])
        .fails(1, &["cancelled", "stays parked"]);
    place.run(&["parked", "replay", &ids[2], "--to", "b"]).ok();
    let mailbox = place.run(&["runs", "show", "b"]).ok();
    assert!(mailbox.out.contains("news"), "{mailbox:?}");
    let all = ["parked", "discard", "--workflow", "greet", "--dry-run"];
    assert_eq!(place.run(&all).ok().out, "2 signals to discard\n");
    let all = [
        "parked",
        "discard",
        "--workflow",
        "greet",
        "--yes",
        "--operator",
        "anna",
    ];
    assert_eq!(place.run(&all).ok().out, "discard: 2 signals done\n");
    place
        .run(&["parked", "show", &ids[1]])
        .fails(3, &["no parked signal"]);
    let audit = place.run(&["audit", "--by", "anna"]).ok();
    assert!(audit.out.contains("discard"), "{audit:?}");
}
