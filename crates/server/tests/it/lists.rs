//! Lists of what is not a run: workers, the audit, schedules.

use roundel_server::Role;
use serde_json::{Value, json};

use crate::support::{Place, WAITS};

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
