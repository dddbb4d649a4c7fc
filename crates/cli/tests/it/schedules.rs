//! Schedules from the shell.

use roundel::{Cx, Engine, Failure, Workflow};
use serde_json::{Value, json};

use crate::support::Place;

const REPORT: Workflow<String, String> = Workflow::named("report");

async fn worker(place: &Place) -> Engine {
    let report = |_: Cx, what: String| async move { Ok::<_, Failure>(what) };
    let engine = Engine::open(place.db()).register(REPORT, report);
    engine.start().await.expect("an engine")
}

const ADD: [&str; 9] = [
    "schedules",
    "add",
    "nightly",
    "--workflow",
    "report",
    "--input",
    "\"sales\"",
    "--cron",
    "30 3 * * mon-fri",
];

#[tokio::test(flavor = "multi_thread")]
async fn fa_20_schedules_are_set_and_looked_at_from_the_shell() {
    let place = Place::new().await;
    let add = [&ADD[..], &["--zone", "Europe/Zurich", "--overlap", "queue"]].concat();
    let said = place.run(&add).ok().out;
    assert!(said.contains("`nightly` is new; next: 2"), "{said}");
    let again = place.run(&[&add[..], &["--json"]].concat()).ok().json();
    assert_eq!(
        (&again["set"], &again["state"]),
        (&json!("as it was"), &json!("on"))
    );
    let changed = place.run(&[&ADD[..], &["--catch-up", "all", "--json"]].concat());
    let changed = changed.ok().json();
    assert_eq!(
        (&changed["set"], &changed["catch_up"]),
        (&json!("changed"), &json!("all"))
    );
    let every = [
        "schedules",
        "add",
        "mails",
        "--command",
        "mail",
        "--every",
        "15min",
    ];
    place.run(&every).ok();
    let list = place.run(&["schedules", "list"]).ok().out;
    for part in [
        "nightly",
        "at 03:30, Monday to Friday, in UTC",
        "report",
        "mails",
        "every 15 min",
        "in ",
    ] {
        assert!(list.contains(part), "`{part}` is missing:\n{list}");
    }
    let lines = place.run(&["schedules", "list", "--json"]).ok().out;
    let lines: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(
        (&lines[0]["name"], &lines[0]["command"]),
        (&json!("mails"), &json!("mail"))
    );
    let next = place
        .run(&["schedules", "next", "nightly", "--count", "3"])
        .ok()
        .out;
    assert_eq!(next.lines().count(), 3);
    assert!(
        next.lines().all(|line| line.ends_with("T03:30:00Z")),
        "{next}"
    );
    let page = ["schedules", "list", "--limit", "1"];
    assert!(place.run(&page).ok().err.contains("there are more"));
}

#[tokio::test(flavor = "multi_thread")]
async fn fa_20_schedules_are_paused_run_and_removed_from_the_shell() {
    let place = Place::new().await;
    place.run(&ADD).ok();
    let paused = place
        .run(&["schedules", "pause", "nightly", "--reason", "inventory"])
        .ok();
    assert!(paused.out.contains("paused"), "{paused:?}");
    let next = place.run(&["schedules", "next", "nightly"]).ok();
    assert!(
        next.out.is_empty() && next.err.contains("paused"),
        "{next:?}"
    );
    let run = place
        .run(&["schedules", "run", "nightly", "--json"])
        .ok()
        .json();
    let days = ["--from", "2026-01-05", "--to", "2026-01-09T12:00:00+01:00"];
    let backfill = [&["schedules", "backfill", "nightly", "--json"][..], &days].concat();
    assert_eq!(place.run(&backfill).ok().json(), json!({ "times": 5 }));
    let engine = worker(&place).await;
    for key in [run["key"].as_str().unwrap(), "nightly@2026-01-09T03:30:00Z"] {
        let found = async || engine.handle(REPORT, key.to_owned()).await;
        while found().await.is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        assert_eq!(found().await.unwrap().result().await.unwrap(), "sales");
    }
    engine.shutdown().await;
    let resumed = place
        .run(&["schedules", "resume", "nightly", "--json"])
        .ok()
        .json();
    assert_eq!(
        (&resumed["state"], &resumed["started"]),
        (&json!("on"), &json!(6))
    );
    let shown = place.run(&["schedules", "show", "nightly"]).ok().out;
    for part in [
        "6 started",
        "2026-01-05T03:30:00Z",
        "is skipped while",
        "\"sales\"",
    ] {
        assert!(shown.contains(part), "`{part}` is missing:\n{shown}");
    }
    let audit = place.run(&["audit"]).ok().out;
    assert!(audit.contains("inventory"), "{audit}");
    place.run(&["schedules", "remove", "nightly"]).ok();
    let none = place.run(&["schedules", "list"]).ok();
    assert!(none.err.contains("no schedules"), "{none:?}");
    place.run(&["verify"]).ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn fa_20_what_is_no_schedule_is_refused_with_what_to_say() {
    let place = Place::new().await;
    for (extra, code, part) in [
        (&["--every", "2h"][..], 2, "cannot be used with"),
        (&["--zone", "Mars"], 2, "no time zone `Mars`"),
        (&["--overlap", "never"], 2, "skip, queue, allow"),
    ] {
        let said = place.run(&[&ADD[..], extra].concat());
        said.fails(code, &[part]);
    }
    let no_times = ["schedules", "add", "x", "--workflow", "report"];
    place.run(&no_times).fails(2, &["--cron"]);
    let past = [
        "schedules",
        "add",
        "x",
        "--workflow",
        "r",
        "--once",
        "2020-01-01",
    ];
    place.run(&past).fails(2, &["no such time is ahead"]);
    for part in ["show", "pause", "resume", "run", "next", "remove"] {
        let said = place.run(&["schedules", part, "none"]);
        said.fails(3, &["schedule `none`", "schedules list"]);
    }
}
