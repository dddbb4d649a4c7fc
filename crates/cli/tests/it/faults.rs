//! Every command, with what it cannot work with: a helpful error, a code of its own, and no change.

use crate::support::{Place, said};

/// Every command that needs a database, with arguments that are right.
const COMMANDS: [&[&str]; 10] = [
    &["runs", "list"],
    &["runs", "show", "k"],
    &["runs", "cancel", "k"],
    &["runs", "resume", "k"],
    &["runs", "delete", "k"],
    &["start", "greet"],
    &["signal", "k", "answer"],
    &["offer", "job"],
    &["verify"],
    &["migrate", "--dry-run"],
];

#[test]
fn a_missing_file_is_said_and_none_is_made() {
    for args in COMMANDS.iter().chain([&["migrate"] as &[&str]].iter()) {
        let place = Place::empty();
        let said = place.run(args);
        said.fails(
            4,
            &["there is no database", "runs.db", "--db or ROUNDEL_DB"],
        );
        let files = std::fs::read_dir(place.folder.path()).expect("the folder");
        assert_eq!(files.count(), 0, "{args:?} made something");
    }
}

#[test]
fn a_foreign_file_is_said_and_left_alone() {
    for args in COMMANDS {
        let place = Place::empty();
        std::fs::write(place.db(), "dear diary").expect("a text");
        place
            .run(args)
            .fails(4, &["is not an SQLite database", "left alone"]);
        assert_eq!(std::fs::read(place.db()).expect("the text"), b"dear diary");

        let place = Place::empty();
        place.sql("CREATE TABLE customer (name TEXT)");
        let before = std::fs::read(place.db()).expect("the file");
        place
            .run(args)
            .fails(4, &["has no tables of roundel", "none were made"]);
        assert_eq!(
            std::fs::read(place.db()).expect("the file"),
            before,
            "{args:?}"
        );
    }
}

#[test]
fn a_folder_is_no_database() {
    let place = Place::empty();
    std::fs::create_dir(place.db()).expect("a folder");
    for args in COMMANDS {
        place.run(args).fails(4, &["is a folder, not a database"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn l4_a_newer_schema_is_said_and_left_alone() {
    let place = Place::new().await;
    place.sql("UPDATE roundel_meta SET value = 9999 WHERE name = 'schema'");
    let before = std::fs::read(place.db()).expect("the file");
    for args in COMMANDS {
        place
            .run(args)
            .fails(4, &["schema version 9999", "a newer version of roundel"]);
        assert_eq!(
            std::fs::read(place.db()).expect("the file"),
            before,
            "{args:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_run_is_said_with_what_to_do() {
    let place = Place::new().await;
    let id = "0199aaaa-0000-7000-8000-000000000000";
    for args in [
        &["runs", "show"] as &[&str],
        &["runs", "cancel"],
        &["runs", "resume"],
        &["runs", "delete"],
        &["runs", "delete", "--force"],
        &["signal"],
    ] {
        for name in [id, "no-such-key"] {
            let mut args = [args, &[name]].concat();
            if args[0] == "signal" {
                args.push("answer");
            }
            let parts = [name, "namespace `default`", "runs list"];
            place.run(&args).fails(3, &parts);
            let json = [&args[..], &["--json"]].concat();
            place.run(&json).fails(3, &parts);
        }
    }
    place.run(&["runs", "show", "0199"]).fails(3, &["`0199`"]);
    let other = ["runs", "show", "k", "--namespace", "other"];
    place.run(&other).fails(3, &["namespace `other`"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_arguments_are_explained_and_nothing_is_done() {
    let place = Place::new().await;
    let wrong: [(&[&str], &str); 22] = [
        (&["runs", "lst"], "list"),
        (&["runs", "list", "--state", "gone"], "waiting"),
        (&["runs", "list", "--limit", "0"], "1..=1000"),
        (&["runs", "list", "--after", "yesterday"], "--after"),
        (&["runs", "list", "--label", "city"], "name=value"),
        (&["runs", "list", "--workflow", ""], "a name is empty"),
        (&["runs", "show"], "<RUN>"),
        (&["runs", "show", "k", "--execution", "x"], "--execution"),
        (&["runs", "cancel"], "<RUN>"),
        (&["runs", "cancel", "k", "--all"], "--all"),
        (&["runs", "delete", "k", "--workflow", "w"], "--workflow"),
        (&["start"], "<WORKFLOW>"),
        (&["start", "greet", "{"], "line 1, column 1"),
        (&["start", "greet", "hello"], "'\"hello\"'"),
        (
            &["start", "greet", "@missing.json"],
            "missing.json could not be read",
        ),
        (&["start", "a\nb"], "control character"),
        (&["start", "greet", "1", "--delay", "soon"], "90s"),
        (&["start", "greet", "1", "--timeout", "1s"], "--wait"),
        (&["signal", "k"], "<SIGNAL>"),
        (&["offer", "job", "[1,"], "is not JSON"),
        (&["verify", "--deep"], "--deep"),
        (&["runs", "list", "--namespace", "."], "not names"),
    ];
    for (args, part) in wrong {
        place.run(args).fails(2, &[part]);
    }
    said(&mut place.command(&[]))
        .code
        .eq(&2)
        .then_some(())
        .expect("usage");
    said(&mut place.command(&["bench", "w1", "--seconds", "x"])).fails(2, &["--seconds"]);
    said(&mut place.command(&["completions", "tcl"])).fails(2, &["bash"]);
    assert_eq!(place.run(&["runs", "list", "--json"]).ok().out, "");
}
