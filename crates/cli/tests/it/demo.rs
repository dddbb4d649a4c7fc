//! `roundel demo`: a small shop whose worker process is really killed.

use std::path::Path;
use std::process::{Command, Output};

use rusqlite::Connection;
use serde_json::Value;
use sqlx::postgres::PgConnection;
use sqlx::{Connection as _, Executor};

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
    let said = (text(&output.stderr), text(&output.stdout));
    assert!(output.status.success(), "{said:?}");
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

    what_is_next_can_be_typed(&summary, "");
}

fn what_is_next_can_be_typed(summary: &Value, password: &str) {
    for line in summary["next"].as_array().expect("commands") {
        let line = line.as_str().expect("a command");
        let mut shell = Command::new("sh");
        shell.args(["-c", line]).env("PGPASSWORD", password);
        let output = shell.output().expect("a shell");
        assert!(output.status.success(), "{line}: {}", text(&output.stderr));
        assert!(!output.stdout.is_empty(), "{line} says something");
    }
}

/// RO-60: without a database.
#[test]
fn a_demo_in_a_folder_of_objects_survives_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let arguments = ["--objects", "--orders", "12", "--seed", "11"];
    let found = summary(folder.path(), &arguments);
    assert_eq!(found["adds_up"], true, "{found}");
    assert!(found["kills"].as_u64() >= Some(1), "{found}");
    assert!(found["resumed"].as_u64() >= Some(1), "{found}");
    what_is_next_can_be_typed(&found, "");

    let other = folder.path().join("roundel-demo-objects");
    let mark = other.join("made-by-roundel-demo");
    let refused = |what: &str| {
        let output = demo(folder.path(), &["--objects", "--orders", "1"]);
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains(what), "{said}");
    };
    let held = std::fs::File::open(&mark).expect("its mark");
    held.lock().expect("nobody has it");
    refused("another demo works in");
    drop(held);
    std::fs::remove_file(&mark).expect("it is there");
    refused("was not made by the demo");
    assert!(other.join("objects").is_dir());
    for (arguments, said) in [
        (["migrate", "--dry-run"], "no schema to migrate"),
        (["move", "--to=moved.db"], "stay there"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_roundel"));
        command.args(arguments).arg("--db");
        command.arg(format!("folder:{}", other.join("objects").display()));
        let output = command.output().expect("the command runs");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(said), "{arguments:?}");
    }
}

/// On a server, whose schemas are its own from beginning to end.
#[tokio::test(flavor = "multi_thread")]
async fn a_demo_on_a_server_survives_too_and_leaves_the_schemas_of_others_alone() {
    let Some(server) = roundel_testpg::schema() else {
        return;
    };
    let (folder, url) = (tempfile::tempdir().expect("a folder"), server.address());
    let mut connection = PgConnection::connect(&url).await.expect("a connection");
    let arguments = ["--db", &url, "--orders", "12", "--seed", "11"];
    let found = summary(folder.path(), &arguments);
    assert_eq!(found["adds_up"], true, "{found}");
    assert!(found["kills"].as_u64() >= Some(1), "{found}");
    assert!(found["resumed"].as_u64() >= Some(1), "{found}");
    let numbers = ["orders", "declined", "refused", "effects", "children"];
    let on_a_file = summary(folder.path(), &["--orders", "12", "--seed", "11"]);
    for what in numbers {
        assert_eq!(found[what], on_a_file[what], "{what}");
    }
    // No password is shown.
    let user = url.split(['/', '@']).nth(2).expect("who connects");
    let password = user.split_once(':').map_or("", |(_, password)| password);
    assert!(password.is_empty() || !found.to_string().contains(password));
    what_is_next_can_be_typed(&found, password);

    let kept = summary(
        folder.path(),
        &["--db", &url, "--orders", "1", "--seed", "2", "--keep"],
    );
    let place = kept["place"].as_str().expect("a place");
    assert!(place.starts_with("schema roundel_demo_2 on "), "{place}");
    let seed = "SELECT seed FROM roundel_demo_shop.made_by_roundel_demo";
    let seed: String = sqlx::query_scalar(seed)
        .fetch_one(&mut connection)
        .await
        .expect("the first is kept");
    assert_eq!(seed, "11");

    let refused = |what: &str| {
        let output = demo(folder.path(), &["--db", &url, "--orders", "1"]);
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains(what), "{said}");
    };
    let hold = "SELECT pg_advisory_lock(hashtextextended('roundel_demo', 0))";
    connection.execute(hold).await.expect("it is free");
    refused("another demo works in the schema roundel_demo");
    let others = "SELECT pg_advisory_unlock_all(); \
                  DROP TABLE roundel_demo_shop.made_by_roundel_demo";
    connection.execute(others).await.expect("it is there");
    refused("was not made by the demo");
    let clean = "DROP SCHEMA roundel_demo, roundel_demo_shop, roundel_demo_2, \
                 roundel_demo_2_shop CASCADE";
    connection.execute(clean).await.expect("all are there");
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
