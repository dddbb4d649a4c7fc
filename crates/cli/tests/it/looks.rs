//! How it looks: colours where they are seen, nothing that steers a terminal, pipes that end early.

use std::process::Stdio;

use crate::support::{Place, said};

async fn with_a_run() -> Place {
    let place = Place::new().await;
    let worker = place.worker().await;
    place
        .run(&[
            "start",
            "greet",
            "\"\u{9b}2J\u{202e}x\"",
            "--wait",
            "--key",
            "k",
        ])
        .ok();
    worker.shutdown().await;
    place
}

#[tokio::test(flavor = "multi_thread")]
async fn there_are_no_colours_in_a_file_unless_they_are_asked_for() {
    let place = with_a_run().await;
    for args in [
        &["runs", "list"] as &[&str],
        &["runs", "show", "k"],
        &["verify"],
    ] {
        let plain = place.run(args).ok().out;
        assert!(!plain.contains('\x1b'), "{plain:?}");
        let coloured = [args, &["--color", "always"]].concat();
        assert!(
            place.run(&coloured).ok().out.contains("\x1b[32m"),
            "{args:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn p2_what_a_payload_holds_does_not_steer_the_terminal() {
    let place = with_a_run().await;
    for more in [&[] as &[&str], &["--full"]] {
        let shown = place.run(&[&["runs", "show", "k"], more].concat()).ok().out;
        assert!(!shown.contains(['\u{9b}', '\u{202e}']), "{shown:?}");
        assert!(shown.contains("\\u{9b}2J\\u{202e}x"), "{shown:?}");
    }
}

/// `script` gives a terminal, where there is one to be had.
#[tokio::test(flavor = "multi_thread")]
async fn tables_fit_the_terminal() {
    let place = with_a_run().await;
    let key = "a key that is far too long for a narrow terminal ".repeat(3);
    place
        .run(&[
            "start",
            "greet",
            "\"x\"",
            "--key",
            key.trim(),
            "--label",
            "city=Bern",
        ])
        .ok();
    let program = env!("CARGO_BIN_EXE_roundel");
    for width in [60, 80, 200] {
        for command in ["runs list", "runs show k"] {
            let line = format!("stty rows 24 cols {width}; {program} {command} --db runs.db");
            let mut script = std::process::Command::new("script");
            script
                .args(["-qec", &line, "/dev/null"])
                .current_dir(place.folder.path());
            script
                .env_remove("COLUMNS")
                .env("NO_COLOR", "1")
                .stdin(Stdio::null());
            if script.output().is_err() {
                return;
            }
            let shown = said(&mut script).out;
            assert!(!shown.contains("\x1b[1m"), "NO_COLOR is set: {shown:?}");
            let colours = said(script.env_remove("NO_COLOR").env("TERM", "xterm")).out;
            assert!(colours.contains("\x1b[1m"), "a terminal: {colours:?}");
            let widest = shown
                .lines()
                .map(|line| line.trim_end().chars().count())
                .max();
            assert!(
                widest <= Some(width),
                "{command} in {width} columns:\n{shown}"
            );
            assert!(shown.contains("completed"), "{shown}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_goes_away_is_no_error() {
    let place = with_a_run().await;
    let mut child = place
        .command(&["runs", "show", "k", "--db", "runs.db"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && err.is_empty(), "{err}");
}
