//! Lists of what is not a run: workers, the audit, schedules.

use roundel_server::{Limits, Role};
use serde_json::{Value, json};

use crate::support::{BROKEN, DOUBLE, PATIENCE, Place, WAITS};

#[tokio::test]
async fn ro_50_workers_are_listed_with_what_they_run_in_this_namespace_and_hold() {
    let place = Place::new().await;
    let other = place.engine.in_namespace("other").unwrap();
    let payload = roundel::Payload::parse("1").unwrap();
    let named = roundel::Name::constant("double");
    other.start_named(named, payload).await.unwrap();
    place.engine.start(WAITS, &1).await.unwrap();
    let line = "GET /api/v1/default/workers";
    let listed = place.ask(Role::Viewer, line, None).await.ok().json();
    let [worker] = listed["items"].as_array().unwrap().as_slice() else {
        panic!("{listed}");
    };
    let can_run = worker["can_run"].as_array().unwrap();
    for name in ["double", "broken", "waits"] {
        let here = json!({"workflow": name, "version": 1});
        assert!(can_run.contains(&here), "{listed}");
    }
    assert!(worker["leases"].is_u64(), "{listed}");
    place.engine.shutdown().await;
}

#[tokio::test]
async fn co_12_the_audit_is_read_from_either_end() {
    let place = Place::new().await;
    for queue in ["one", "two", "three"] {
        let line = format!("POST /api/v1/default/queues/{queue}/pause");
        place
            .ask(Role::Operator, &line, Some(&json!({"reason": queue})))
            .await
            .ok();
    }
    let reasons = async |more: &str| {
        let mut found = Vec::new();
        let mut cursor = String::new();
        loop {
            let line = format!("GET /api/v1/default/audit?limit=2{more}{cursor}");
            let page = place.ask(Role::Operator, &line, None).await.ok().json();
            let items = page["items"].as_array().unwrap().clone();
            found.extend(items.into_iter().map(|row| row["reason"].clone()));
            match &page["next"] {
                Value::String(next) => cursor = format!("&cursor={next}"),
                _ => return found,
            }
        }
    };
    assert_eq!(reasons("").await, ["one", "two", "three"]);
    assert_eq!(reasons("&newest_first=true").await, ["three", "two", "one"]);
    place.engine.shutdown().await;
}

#[tokio::test]
async fn fa_20_a_schedule_is_told_in_words_with_its_next_times() {
    let place = Place::new().await;
    let asked = json!({"workflow": "double", "cron": "30 3 * * mon-fri", "zone": "Europe/Zurich"});
    let line = "PUT /api/v1/default/schedules/nightly";
    let set = place.ask(Role::Operator, line, Some(&asked)).await.ok();
    let schedule = &set.json()["schedule"];
    let words = "at 03:30, Monday to Friday, in Europe/Zurich";
    assert_eq!(schedule["words"], words);
    let times = schedule["times"].as_array().unwrap();
    assert_eq!((times.len(), &times[0]), (3, &schedule["next"]));
    place.engine.shutdown().await;
}

#[tokio::test]
async fn co_11_commands_of_a_batch_are_sent_together_or_not_at_all() {
    let place = Place::new().await;
    let send = async |key: &str, ids: [&str; 2]| {
        let commands = ids.map(|id| json!({"queue": "mail", "payload": id, "id": id}));
        let body = json!({"key": key, "commands": commands, "then": {"queue": "report"}});
        let line = "POST /api/v1/default/batches";
        place.ask(Role::Submitter, line, Some(&body)).await
    };
    let first = send("day", ["a", "b"]).await.ok().json();
    assert_eq!(first["new"], true);
    let again = send("day", ["a", "b"]).await.ok().json();
    assert_eq!(
        (&again["new"], &again["run"]),
        (&json!(false), &first["run"])
    );
    assert_ne!(
        send("next", ["c", "b"]).await.status,
        200,
        "an id is in use"
    );
    let line = "GET /api/v1/default/commands/mail";
    let listed = place.ask(Role::Viewer, line, None).await.ok().json();
    assert_eq!(listed["items"].as_array().unwrap().len(), 2, "{listed}");
    place.engine.shutdown().await;
}

#[tokio::test]
async fn co_23_a_state_is_patched_in_the_version_that_was_seen() {
    let place = Place::new().await;
    let run = place.engine.start(WAITS, &1).await.unwrap().id();
    let patch = async |number: u64, version: u64| {
        let body = json!({"patch": {"a": number}, "if_version": version, "reason": "why"});
        let line = format!("POST /api/v1/default/runs/{run}/patch");
        place.ask(Role::Operator, &line, Some(&body)).await
    };
    let patched = patch(1, 0).await.ok().json();
    assert_eq!(patched, json!({"version": 1, "state": {"a": 1}}));
    patch(2, 0).await.is(409, "stale");
    assert_eq!(patch(2, 1).await.ok().json()["version"], 2);
    place.engine.shutdown().await;
}

#[tokio::test]
async fn fa_20_times_of_the_past_are_made_up_for() {
    let place = Place::new().await;
    let asked = json!({"workflow": "double", "input": 1, "cron": "0 0 * * *"});
    let line = "PUT /api/v1/default/schedules/daily";
    place.ask(Role::Operator, line, Some(&asked)).await.ok();
    let line = "POST /api/v1/default/schedules/daily/backfill";
    let days = json!({"first": "2026-01-01T00:00:00Z", "last": "2026-01-03T00:00:00Z"});
    let made = place.ask(Role::Operator, line, Some(&days)).await.ok();
    assert_eq!(made.json(), json!({"times": 3}));
    let strange = json!({"first": "yesterday", "last": "today"});
    let refused = place.ask(Role::Operator, line, Some(&strange)).await;
    refused.is(400, "bad_request");
    place.engine.shutdown().await;
}

/// A list to its end, in so many requests; what each brought.
async fn followed(place: &Place, path: &str) -> Vec<Value> {
    let (mut pages, mut cursor) = (Vec::new(), String::new());
    loop {
        let line = format!("GET /api/v1/default/{path}{cursor}");
        let page = place.ask(Role::Viewer, &line, None).await.ok().json();
        let next = page["next"].as_str().map(str::to_owned);
        pages.push(page);
        match next {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return pages,
        }
    }
}

#[tokio::test]
async fn ro_50_one_request_looks_at_so_much_and_says_where_to_go_on() {
    let few = Limits {
        look: 4,
        ..Limits::default()
    };
    let place = Place::with(few).await;
    let (mut rare, mut broken) = (Vec::new(), Vec::new());
    for number in 0..3 {
        rare.push(place.engine.start(WAITS, &1).await.unwrap().id());
        let run = place.engine.start(BROKEN, &1).await.unwrap().id();
        broken.push(run);
        for _ in 0..5 + number {
            place
                .engine
                .start(DOUBLE, &1)
                .await
                .unwrap()
                .result()
                .await
                .unwrap();
        }
    }
    let begin = std::time::Instant::now();
    while place.engine.parked().count().await.unwrap() < broken.len() {
        assert!(begin.elapsed() < PATIENCE, "they were not parked");
    }
    for (path, runs) in [
        ("runs?workflow=waits", &rare),
        ("runs?workflow=broken&limit=1", &broken),
        ("commands/waits?limit=9", &rare),
    ] {
        let pages = followed(&place, path).await;
        let of = |page: &Value| page["items"].as_array().unwrap().clone();
        let found: Vec<Value> = pages
            .iter()
            .flat_map(of)
            .map(|run| run["run"].clone())
            .collect();
        let expected: Vec<Value> = runs.iter().rev().map(|run| json!(run)).collect();
        assert_eq!(found, expected, "{path}");
        assert!(pages.len() >= 24 / 4, "{path}: {} requests", pages.len());
        assert!(pages.iter().any(|page| of(page).is_empty()), "{path}");
        let (last, others) = pages.split_last().unwrap();
        assert_eq!(last["looked_to"], json!(null), "all was looked at");
        let times: Vec<i64> = others
            .iter()
            .map(|page| page["looked_to"].as_i64().unwrap())
            .collect();
        assert!(
            times.is_sorted_by(|later, earlier| later >= earlier),
            "{times:?}"
        );
    }
    // What is parked has a way of its own.
    for path in ["runs?state=parked", "parked?code=permanent"] {
        let pages = followed(&place, path).await;
        assert_eq!(pages.len(), 1, "{path}: {pages:?}");
    }
    let pages = followed(&place, "runs?workflow=never").await;
    assert_eq!(
        pages,
        [json!({"items": [], "next": null, "looked_to": null})]
    );
    place.engine.shutdown().await;
}
