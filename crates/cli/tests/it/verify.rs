//! `verify` and `migrate`, on real files.

use std::io::{Seek, SeekFrom, Write};

use crate::support::Place;

async fn with_runs() -> Place {
    let place = Place::new().await;
    let worker = place.worker().await;
    place.run(&["start", "greet", "\"Ada\"", "--wait"]).ok();
    place.run(&["start", "refuse", "--key", "no"]).ok();
    worker.shutdown().await;
    place
        .run(&["start", "greet", "\"Bob\"", "--key", "bob"])
        .ok();
    place.run(&["signal", "bob", "hello"]).ok();
    place.run(&["offer", "job"]).ok();
    place
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sound_file_is_found_sound_and_not_changed() {
    let place = with_runs().await;
    let before = std::fs::read(place.db()).expect("the file");
    let told = place.run(&["verify"]).ok();
    assert!(told.out.contains("sound: everything"), "{told:?}");
    let told = place.run(&["verify", "--json"]).ok().json();
    let counts = (&told["runs"], &told["messages"], &told["offers"]);
    assert_eq!(counts, (&3.into(), &1.into(), &1.into()), "{told}");
    assert_eq!(
        (&told["sound"], &told["file_checked"]),
        (&true.into(), &true.into())
    );
    place.run(&["runs", "list"]).ok();
    place.run(&["runs", "show", "bob"]).ok();
    assert_eq!(std::fs::read(place.db()).expect("the file"), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_damaged_is_named() {
    let place = with_runs().await;
    place.sql("UPDATE roundel_run SET mail = 5 WHERE key = 'bob'");
    place.sql("DELETE FROM roundel_key WHERE key = 'no'");
    let told = place.run(&["verify", "--json"]);
    assert_eq!(told.code, 1, "{told:?}");
    let told = told.json();
    let names = told["violations"].as_array().expect("a list").iter();
    let names: Vec<&str> = names
        .map(|one| one["invariant"].as_str().expect("a word"))
        .collect();
    assert_eq!(names, ["inv18_one_key", "inv2_no_lost_message"]);
    let shown = place.run(&["verify"]);
    assert_eq!(shown.code, 1);
    for part in [
        "inv2_no_lost_message",
        "messages counted 5",
        "expected  1",
        "2 violations",
    ] {
        assert!(shown.out.contains(part), "`{part}` is missing: {shown:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_cannot_be_read_is_a_violation() {
    let place = with_runs().await;
    place.sql("UPDATE roundel_mail SET body = 'nonsense'");
    let told = place.run(&["verify", "--json"]);
    assert_eq!(told.code, 1, "{told:?}");
    assert_eq!(told.json()["violations"][0]["invariant"], "inv24_storage");
}

#[tokio::test(flavor = "multi_thread")]
async fn inv24_a_damaged_page_is_found() {
    let place = with_runs().await;
    place.sql("PRAGMA wal_checkpoint(TRUNCATE)");
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .open(place.db())
        .expect("the file");
    let pages = file.metadata().expect("its size").len() / 4096;
    file.seek(SeekFrom::Start(pages / 2 * 4096)).expect("there");
    file.write_all(&[0xAB; 4096]).expect("damaged");
    drop(file);
    let told = place.run(&["verify", "--json"]);
    assert_eq!(told.code, 1, "{told:?}");
    assert_eq!(told.json()["violations"][0]["invariant"], "inv24_storage");
}

#[tokio::test(flavor = "multi_thread")]
async fn migrate_says_what_is_there_and_changes_nothing_that_is_new() {
    let place = with_runs().await;
    let before = std::fs::read(place.db()).expect("the file");
    for args in [&["migrate", "--dry-run"] as &[&str], &["migrate"]] {
        let told = place.run(args).ok();
        assert!(told.out.contains("nothing to do"), "{told:?}");
        let told = place.run(&[args, &["--json"]].concat()).ok().json();
        assert_eq!(told["found"], told["known"]);
        assert_eq!(
            (&told["done"], told["missing"].as_array().map(Vec::len)),
            (&false.into(), Some(0))
        );
    }
    assert_eq!(std::fs::read(place.db()).expect("the file"), before);
}
