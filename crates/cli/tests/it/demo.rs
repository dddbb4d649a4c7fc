//! `roundel demo`: a small shop whose worker process is really killed.

use std::path::Path;
use std::process::{Command, Output};

use rusqlite::Connection;
use serde_json::Value;

fn demo(dir: &Path, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_roundel"));
    command.args(["demo", "--dir"]).arg(dir).args(more);
    command.output().expect("the command runs")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

/// The summary of a demo that went well.
fn summary(dir: &Path, more: &[&str]) -> Value {
    let output = demo(dir, &[&["--json"], more].concat());
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

fn count(db: &Connection, sql: &str) -> i64 {
    db.query_row(sql, (), |row| row.get(0)).expect("a number")
}

#[test]
fn a_demo_survives_its_kills_and_leaves_a_file_that_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let summary = summary(folder.path(), &["--orders", "12", "--seed", "11"]);
    assert_eq!(summary["adds_up"], true, "{summary}");
    assert_eq!(summary["orders"], 12, "{summary}");
    assert!(summary["kills"].as_u64() >= Some(1), "{summary}");
    assert!(summary["resumed"].as_u64() >= Some(1), "{summary}");
    assert!(summary["retries"].as_u64() >= Some(1), "{summary}");

    let db = Connection::open(folder.path().join("roundel-demo.db")).expect("the file");
    let number = |what: &str| summary[what].as_i64().expect("a number");
    let (declined, refused) = (number("declined"), number("refused"));
    assert_eq!((declined, refused), (1, 2), "{summary}");
    let (paid, shipped) = (12 - declined, 12 - declined - refused);
    let charged = "SELECT count(DISTINCT number) FROM ledger WHERE cents > 0";
    assert_eq!(count(&db, charged), paid);
    assert_eq!(count(&db, "SELECT count(*) FROM ledger"), paid + refused);
    assert_eq!(count(&db, "SELECT sum(cents < 0) FROM ledger"), refused);
    let sold = "SELECT sum(pieces) FROM orders WHERE status = 'shipped'";
    let gone = count(&db, "SELECT sum(had - remaining) FROM stock");
    assert_eq!(gone, count(&db, sold));
    assert_eq!(gone, count(&db, "SELECT count(*) FROM parcels"));
    drop(db);
    // Of three mirrors the carrier takes two, which then are taken back.
    for (what, times) in [
        ("steps", 12 + 12 + paid + shipped + gone + 2 * refused),
        ("effects", 12 + gone + 3 * refused),
        ("sleeps", paid),
        ("publications", 12 + paid),
        ("children", 12 + 12 + paid + gone + 3 * refused),
        ("undone", 2 * (declined + refused) + 6 * refused),
    ] {
        assert_eq!(summary[what], times, "{what}: {summary}");
    }
    let waits = |what: &str| summary[what].as_i64().expect("a number");
    assert_eq!(waits("signals") + waits("timeouts"), paid, "{summary}");
    assert!(waits("signals") > 0, "{summary}");

    for line in summary["next"].as_array().expect("commands") {
        let line = line.as_str().expect("a command");
        let output = Command::new("sh").args(["-c", line]).output();
        let output = output.expect("a shell");
        assert!(output.status.success(), "{line}: {}", text(&output.stderr));
        assert!(!output.stdout.is_empty(), "{line} says something");
    }
}

#[test]
fn a_demo_replaces_its_own_file_or_keeps_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let seeds = |name: &str| -> String {
        let db = Connection::open(folder.path().join(name)).expect("the file");
        let sql = "SELECT seed FROM made_by_roundel_demo";
        db.query_row(sql, (), |row| row.get(0)).expect("its mark")
    };
    for seed in ["1", "2"] {
        summary(folder.path(), &["--orders", "1", "--seed", seed]);
        assert_eq!(seeds("roundel-demo.db"), seed);
    }
    summary(folder.path(), &["--orders", "1", "--seed", "3", "--keep"]);
    assert_eq!(seeds("roundel-demo.db"), "2");
    assert_eq!(seeds("roundel-demo-2.db"), "3");
}

#[test]
fn a_demo_leaves_files_of_others_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("roundel-demo.db");
    let refused = |what: &str| {
        let output = demo(folder.path(), &["--orders", "1"]);
        let said = text(&output.stderr);
        assert!(!output.status.success(), "{what}");
        assert!(said.contains("was not made by the demo"), "{what}: {said}");
    };
    std::fs::write(&file, "notes").expect("a file");
    refused("a text");
    assert_eq!(std::fs::read(&file).expect("still there"), b"notes");
    std::fs::remove_file(&file).expect("removed");
    let db = Connection::open(&file).expect("a file");
    db.execute_batch("CREATE TABLE mine (a INTEGER); INSERT INTO mine VALUES (7)")
        .expect("a table");
    drop(db);
    refused("a database");
    let db = Connection::open(&file).expect("still there");
    assert_eq!(count(&db, "SELECT a FROM mine"), 7);
}

#[test]
fn a_demo_does_not_pull_the_file_from_under_another_program() {
    let folder = tempfile::tempdir().expect("a folder");
    summary(folder.path(), &["--orders", "1", "--seed", "1"]);
    let file = folder.path().join("roundel-demo.db");
    let db = Connection::open(&file).expect("the file");
    assert_eq!(count(&db, "SELECT count(*) FROM orders"), 1);
    let output = demo(folder.path(), &["--orders", "1"]);
    let said = text(&output.stderr);
    assert!(said.contains("in use by another program"), "{said}");
    assert_eq!(count(&db, "SELECT count(*) FROM orders"), 1);
}
