//! `move`: real files, a real server, real processes that are killed.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use crate::support::{Place, Said, said};

async fn with_runs() -> Place {
    let place = Place::new().await;
    let worker = place.worker().await;
    place.run(&["start", "greet", "\"Ada\"", "--wait"]).ok();
    worker.shutdown().await;
    let bob = ["start", "greet", "\"Bob\"", "--key", "bob"];
    place.run(&bob).ok();
    place.run(&["signal", "bob", "hello"]).ok();
    place.run(&["offer", "job"]).ok();
    place
}

/// What a list of runs says, without where it comes from.
fn listed(place: &Place, db: &[&str]) -> Said {
    said(place.command(&["runs", "list", "--json"]).args(db))
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_goes_and_the_source_says_where() {
    let place = with_runs().await;
    let before = place.run(&["runs", "list", "--json"]).ok().out;
    let told = place.run(&["move", "--to", "new.db"]).ok();
    for part in [
        "runs",
        "journal rows",
        "offers",
        "on both sides",
        "moved: every row",
    ] {
        assert!(told.out.contains(part), "`{part}` is missing: {told:?}");
    }
    for part in ["copying: ", "comparing: ", "checking: ", " of 2 runs"] {
        assert!(told.err.contains(part), "`{part}` is missing: {told:?}");
    }
    assert_eq!(listed(&place, &["--db", "new.db"]).ok().out, before);
    place
        .run(&["runs", "list"])
        .fails(4, &["runs.db was moved to", "new.db", "open that one"]);
    place
        .run(&["move", "--to", "third.db"])
        .fails(4, &["was moved to", "new.db"]);
    place
        .run(&["move", "--to", "new.db"])
        .fails(4, &["was moved there already", "is not empty", "runs"]);
    assert!(!place.folder.path().join("third.db").exists());
    // And on from there, for programs.
    let args = ["move", "--from", "new.db", "--to", "newer.db", "--json"];
    let told = said(&mut place.command(&args)).ok();
    let json = told.json();
    assert_eq!(
        (&json["rows"]["runs"], &json["rows"]["offers"]),
        (&2.into(), &1.into())
    );
    assert_eq!(json["digest"].as_str().map(str::len), Some(32), "{json}");
    for line in told.err.lines() {
        let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(line["of"], 2, "{line}");
    }
    assert_eq!(listed(&place, &["--db", "newer.db"]).ok().out, before);
    let verified = said(&mut place.command(&["verify", "--db", "newer.db"])).ok();
    assert!(verified.out.contains("sound: everything"), "{verified:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_moved_stays_and_nothing_is_left_behind() {
    let place = with_runs().await;
    let no_target = || assert!(!place.folder.path().join("new.db").exists());
    assert_eq!(place.run(&["move"]).code, 2);
    place
        .run(&["move", "--to", "./runs.db"])
        .fails(4, &["is where it is"]);
    place
        .run(&["move", "--from", "no.db", "--to", "new.db"])
        .fails(4, &["there is no database", "no.db"]);
    no_target();
    std::fs::write(place.folder.path().join("diary.txt"), "dear diary").expect("a text");
    place
        .run(&["move", "--to", "diary.txt"])
        .fails(4, &["is not an SQLite database"]);
    place.sql("UPDATE roundel_run SET mail = 5 WHERE key = 'bob'");
    let refused = place.run(&["move", "--to", "new.db"]);
    assert_eq!(refused.code, 4, "{refused:?}");
    for part in ["is not sound", "inv2_no_lost_message", "roundel verify"] {
        assert!(
            refused.err.contains(part),
            "`{part}` is missing: {refused:?}"
        );
    }
    no_target();
    place.sql("UPDATE roundel_run SET mail = 1 WHERE key = 'bob'");
    place.sql("UPDATE roundel_meta SET value = value - 1 WHERE name = 'schema'");
    place
        .run(&["move", "--to", "new.db"])
        .fails(4, &["schema version", "roundel migrate"]);
    no_target();
    place.sql("UPDATE roundel_meta SET value = value + 1 WHERE name = 'schema'");
    let worker = place.worker().await;
    place.run(&["runs", "list"]).ok();
    worker.shutdown().await;
    place.run(&["move", "--to", "new.db"]).ok();
}

/// Kills a move when it says that it does this. Whatever had been done by then, one of the two has
/// everything, and the other cannot be taken for it.
fn killed_at(place: &Place, phase: &str, to: &[&str], before: &str) -> bool {
    let mut command = place.command(&["move", "--db", "runs.db"]);
    let mut child = command
        .args(to)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let lines = BufReader::new(child.stderr.take().expect("its messages")).lines();
    for line in lines.map_while(Result::ok) {
        if line.starts_with(phase) {
            break;
        }
    }
    child.kill().expect("it is killed");
    child.wait().expect("it ends");
    let source = place.run(&["runs", "list", "--json"]);
    let refused = source.code == 4 && source.err.contains("was moved to");
    assert!(refused || source.ok().out == before, "at {phase}");
    refused
}

fn killed_and_moved(place: &Place, to: &[&str], target: &[&str], before: &str) {
    for phase in ["copying", "comparing", "checking"] {
        killed_at(place, phase, to, before);
    }
    let moved = said(place.command(&["move", "--db", "runs.db"]).args(to));
    let there = moved.err.contains("was moved there already");
    assert!(there || moved.code == 0, "{moved:?}");
    assert_eq!(listed(place, target).ok().out, before);
    place.run(&["runs", "list"]).fails(4, &["was moved to"]);
    let verified = said(place.command(&["verify", "--rows-only"]).args(target));
    assert_eq!(verified.code, 0, "{verified:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_that_is_killed_is_done_again() {
    let place = with_runs().await;
    let before = place.run(&["runs", "list", "--json"]).ok().out;
    killed_and_moved(&place, &["--to", "new.db"], &["--db", "new.db"], &before);
    let left = |end: &str| Path::new(place.folder.path()).join(format!("new.db{end}"));
    assert!(left("").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn to_a_server_and_back() {
    let Some(schema) = roundel_testpg::schema() else {
        return;
    };
    let (url, name) = (schema.address(), schema.name());
    let place = with_runs().await;
    let before = place.run(&["runs", "list", "--json"]).ok().out;
    let target = ["--db", url.as_str(), "--schema", name];
    killed_and_moved(
        &place,
        &["--to", &url, "--to-schema", name],
        &target,
        &before,
    );
    let told = said(place.command(&["move", "--to", "back.db"]).args(target)).ok();
    assert!(
        told.out.contains("postgres://") && !told.out.contains('@'),
        "{told:?}"
    );
    assert_eq!(listed(&place, &["--db", "back.db"]).ok().out, before);
    let refused = listed(&place, &target);
    refused.fails(4, &["was moved to", "back.db"]);
}
