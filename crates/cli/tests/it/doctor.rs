//! `doctor`: what is wrong is found, and what is well is left alone.

use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::support::{GREET, Place, Said, said};

fn findings(told: &Said) -> Vec<Value> {
    let lines = told.out.lines();
    lines
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

/// How bad it is, and what is said of it.
fn about(told: &Said, about: &str) -> (String, String) {
    let all = findings(told);
    let found = all.iter().filter(|finding| finding["about"] == about);
    let worst = found.max_by_key(|finding| finding["level"].as_str().map(str::len));
    let worst = worst.unwrap_or_else(|| panic!("nothing about {about}: {told:?}"));
    let level = worst["level"].as_str().unwrap().to_owned();
    assert_eq!(level == "fine", worst["advice"] == "", "{worst}");
    (level, worst["found"].as_str().unwrap().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_well_is_said_to_be() {
    let place = Place::new().await;
    let worker = place.worker().await;
    let told = place.run(&["doctor", "--json"]).ok();
    for thing in [
        "schema",
        "integrity",
        "permissions",
        "log",
        "disk",
        "workers",
        "parked",
    ] {
        assert_eq!(about(&told, thing).0, "fine", "{thing}: {told:?}");
    }
    let told = place.run(&["doctor"]).ok();
    assert!(told.out.ends_with("all is well\n"), "{told:?}");
    worker.shutdown().await;
    let told = place.run(&["doctor", "--json"]).ok();
    assert_eq!(about(&told, "workers").0, "unwise");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_the_rows_is_found() {
    let place = Place::new().await;
    let worker = place.worker().await;
    place.run(&["start", "break", "--key", "b"]).ok();
    while place.run(&["parked", "count", "--json"]).ok().json()["parked"] != 1 {}
    place.run(&["start", "nobody", "--key", "n"]).ok();
    place
        .run(&["start", "greet", "--version", "7", "\"Ada\""])
        .ok();
    place.run(&["queues", "pause", "mail"]).ok();
    place.sql("UPDATE roundel_queue SET changed_at = changed_at - 7200000000");
    let told = place.run(&["doctor", "--json"]);
    assert_eq!(told.code, 1, "{told:?}");
    assert_eq!(about(&told, "parked").0, "wrong");
    assert_eq!(about(&told, "queues").0, "unwise");
    let all = findings(&told);
    let lacks = all.iter().filter(|finding| finding["about"] == "versions");
    let lacks: Vec<String> = lacks.map(|finding| finding["found"].to_string()).collect();
    assert_eq!(lacks.len(), 2, "{lacks:?}");
    assert!(
        lacks.iter().any(|text| text.contains("`greet` version 7")),
        "{lacks:?}"
    );
    assert!(
        lacks.iter().any(|text| text.contains("`nobody` version 1")),
        "{lacks:?}"
    );
    worker.shutdown().await;
    // A lease that ran out long ago, and a worker whose clock is ahead.
    place.sql(
        "UPDATE roundel_run SET state = 'running', owner = randomblob(16), \
         lease_until = created_at - 900000000, ready_at = created_at - 900000000 WHERE key = 'n'",
    );
    let told = place.run(&["doctor", "--json"]);
    assert_eq!(about(&told, "leases").0, "wrong", "{told:?}");
    let text = place.run(&["doctor"]);
    assert!(text.out.contains("wrong") && text.code == 1, "{text:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_the_file_is_found() {
    let place = Place::new().await;
    let worker = place.worker().await;
    for _ in 0..50 {
        worker
            .start(GREET, &"Ada".repeat(500))
            .await
            .unwrap()
            .result()
            .await
            .unwrap();
    }
    worker.shutdown().await;
    std::fs::set_permissions(place.db(), std::fs::Permissions::from_mode(0o644)).unwrap();
    let told = place.run(&["doctor", "--json"]).ok();
    let (level, found) = about(&told, "permissions");
    assert_eq!(
        (level.as_str(), found.contains("644")),
        ("unwise", true),
        "{told:?}"
    );
    place.sql("UPDATE roundel_meta SET value = value - 1 WHERE name = 'schema'");
    let told = place.run(&["doctor", "--json"]);
    assert_eq!(
        (told.code, about(&told, "schema").0.as_str()),
        (1, "wrong"),
        "{told:?}"
    );
    assert_eq!(about(&told, "opening").0, "wrong");
    place.sql("UPDATE roundel_meta SET value = value + 1 WHERE name = 'schema'");
    // A page in the middle is lost.
    let mut bytes = std::fs::read(place.db()).unwrap();
    let page = bytes.len() / 4096 / 2 * 4096;
    bytes[page..page + 4096].fill(0xA5);
    std::fs::write(place.db(), bytes).unwrap();
    let told = place.run(&["doctor", "--json"]);
    assert_eq!(
        (told.code, about(&told, "integrity").0.as_str()),
        (1, "wrong"),
        "{told:?}"
    );
    said(&mut place.command(&["doctor", "--db", "no.db"])).fails(4, &["there is no database"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_looked_at_too() {
    let Some(schema) = roundel_testpg::schema() else {
        return;
    };
    let (url, name) = (schema.address(), schema.name());
    let place = Place::empty();
    let on = ["--db", url.as_str(), "--schema", name];
    said(place.command(&["migrate"]).args(on)).ok();
    let told = said(place.command(&["doctor", "--json"]).args(on));
    for thing in ["schema", "clock", "transactions", "connections", "parked"] {
        let level = about(&told, thing).0;
        assert!(
            level == "fine" || thing == "transactions",
            "{thing}: {told:?}"
        );
    }
    // A server for tests may be set to forget: then that is said, and is the answer no.
    let (level, found) = about(&told, "durability");
    assert_eq!(told.code == 1, level == "wrong", "{found}: {told:?}");
}
