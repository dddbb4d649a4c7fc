//! Starting, signalling, offering, listing, showing: good use, for people and for programs.

use std::io::Write;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::support::{Place, said};

fn lines(text: &str) -> Vec<Value> {
    let parsed = text.lines().map(serde_json::from_str);
    parsed.map(|line| line.expect("JSON")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_started_awaited_and_shown() {
    let place = Place::new().await;
    let worker = place.worker().await;
    let told = place.run(&["start", "greet", "\"Ada\"", "--wait"]).ok();
    assert_eq!(told.out, "\"hello Ada\"\n");
    let args = [
        "start", "greet", "\"Bob\"", "--wait", "--json", "--key", "bob",
    ];
    let told = place.run(&args).ok().json();
    assert_eq!(
        (&told["value"], &told["new"]),
        (&json!("hello Bob"), &json!(true))
    );
    let again = place.run(&args).ok().json();
    assert_eq!(
        (&again["run"], &again["new"]),
        (&told["run"], &json!(false))
    );
    worker.shutdown().await;

    let shown = place.run(&["runs", "show", "bob"]).ok().out;
    for part in [
        "greet",
        "bob",
        "completed",
        "effect `say`",
        "\"hello Bob\"",
        "4 entries",
    ] {
        assert!(shown.contains(part), "`{part}` is missing:\n{shown}");
    }
    let shown = place.run(&["runs", "show", "bob", "--json"]).ok().json();
    assert_eq!(shown["run"], told["run"]);
    assert_eq!(shown["outcome"]["value"], "hello Bob");
    assert_eq!(shown["journal"].as_array().map(Vec::len), Some(4));
    assert_eq!(shown["journal"][3]["entry"]["ended"]["state"], "completed");
    let id = told["run"].as_str().expect("an id");
    let shown = place
        .run(&["runs", "show", &id[..35], "--json"])
        .ok()
        .json();
    assert_eq!(shown["run"], told["run"], "by the beginning of its id");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_fails_or_takes_too_long_has_its_code() {
    let place = Place::new().await;
    let worker = place.worker().await;
    let refused = place.run(&["start", "refuse", "--wait"]);
    refused.fails(1, &["we are closed", "failed"]);
    worker.shutdown().await;
    let waited = place.run(&["start", "greet", "\"x\"", "--wait", "--timeout", "0s"]);
    waited.fails(5, &["is ready after", "runs show"]);
    place.run(&["start", "greet", "1", "--key", "k"]).ok();
    place
        .run(&["start", "greet", "2", "--key", "k"])
        .fails(1, &["was used for another"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn signals_and_offers_say_what_became_of_them() {
    let place = Place::new().await;
    let worker = place.worker().await;
    let start = ["start", "ask", "\"well?\"", "--key", "q"];
    place.run(&start).ok();
    let waits = || {
        let shown = place.run(&["runs", "show", "q", "--json"]).ok().json();
        shown["why"]
            .to_string()
            .contains("for signal `answer`, until ")
    };
    while !waits() {
        tokio::task::yield_now().await;
    }
    worker.shutdown().await;
    let shown = place.run(&["runs", "show", "q"]).ok().out;
    for part in [
        "waiting",
        "for signal `answer`, until",
        "1 child",
        "child `greet` begins",
    ] {
        assert!(shown.contains(part), "`{part}` is missing:\n{shown}");
    }

    let sent = place
        .run(&["signal", "q", "other", "{\"a\": 1}", "--json"])
        .ok()
        .json();
    assert_eq!(sent["sent"], "queued");
    let sent = place
        .run(&["signal", "q", "answer", "\"fine\"", "--key", "once"])
        .ok();
    assert!(sent.out.starts_with("delivered to "), "{sent:?}");
    let sent = place.run(&[
        "signal", "q", "answer", "\"fine\"", "--key", "once", "--json",
    ]);
    assert_eq!(
        sent.ok().json()["sent"],
        "delivered",
        "the first answer again"
    );
    let shown = place.run(&["runs", "show", "q"]).ok().out;
    assert!(shown.contains("2 messages in its mailbox"), "{shown}");
    assert!(shown.contains("{\"a\": 1}"), "{shown}");

    let worker = place.worker().await;
    let told = place.run(&[&start[..], &["--wait"]].concat()).ok();
    assert_eq!(told.out, "\"hello well?: fine\"\n");
    worker.shutdown().await;
    let late = place.run(&["signal", "q", "answer", "1", "--json"]);
    late.fails(1, &["was not sent", "completed"]);
    assert_eq!(
        late.json(),
        json!({"sent": "target_ended", "state": "completed"})
    );
    let offered = place.run(&["offer", "job", "[1]", "--json"]).ok().json();
    assert_eq!(offered["sent"], "queued");
    assert!(place.run(&["offer", "job"]).ok().out.contains("kept"));
}

#[tokio::test(flavor = "multi_thread")]
async fn payloads_come_from_files_and_standard_input() {
    let place = Place::new().await;
    std::fs::write(place.folder.path().join("in.json"), "{\"big\": 1}\n").expect("a file");
    place
        .run(&["start", "greet", "@in.json", "--key", "file"])
        .ok();
    let mut command = place.command(&["start", "greet", "-", "--key", "stdin", "--db", "runs.db"]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    child
        .stdin
        .take()
        .expect("a pipe")
        .write_all(b"[1,\n 2]")
        .expect("written");
    assert!(child.wait().expect("it ends").success());
    for (key, input) in [("file", json!({"big": 1})), ("stdin", json!([1, 2]))] {
        let shown = place.run(&["runs", "show", key, "--json"]).ok().json();
        assert_eq!(shown["journal"][0]["entry"]["started"]["input"], input);
    }
    let long = format!("\"{}\"", "x".repeat(500));
    place.run(&["start", "greet", &long, "--key", "long"]).ok();
    let shown = place.run(&["runs", "show", "long"]).ok().out;
    assert!(shown.contains('…') && !shown.contains(&long), "{shown}");
    let shown = place.run(&["runs", "show", "long", "--full"]).ok().out;
    assert!(shown.contains(&long), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_are_listed_in_pages_and_filtered() {
    let place = Place::new().await;
    for number in 0..5 {
        let key = format!("k{number}");
        let city = if number % 2 == 0 {
            "city=Bern"
        } else {
            "city=Oslo"
        };
        place
            .run(&["start", "greet", "1", "--key", &key, "--label", city])
            .ok();
    }
    place
        .run(&["start", "other", "--key", "o", "--namespace", "apart"])
        .ok();
    let keys = |args: &[&str]| -> Vec<String> {
        let listed = place
            .run(&[&["runs", "list", "--json"], args].concat())
            .ok();
        let keys = lines(&listed.out).into_iter();
        keys.map(|run| run["key"].as_str().expect("a key").to_owned())
            .collect()
    };
    assert_eq!(keys(&[]), ["k4", "k3", "k2", "k1", "k0"]);
    assert_eq!(keys(&["--label", "city=Oslo"]), ["k3", "k1"]);
    assert_eq!(keys(&["--state", "completed"]), Vec::<String>::new());
    assert_eq!(keys(&["--workflow", "greet", "--limit", "1"]), ["k4"]);
    assert_eq!(keys(&["--namespace", "apart"]), ["o"]);
    let page = place.run(&["runs", "list", "--limit", "2"]).ok();
    let after = page
        .err
        .split("--after ")
        .nth(1)
        .expect("there are more")
        .trim();
    assert_eq!(keys(&["--limit", "2", "--after", after]), ["k2", "k1"]);
    assert!(page.out.starts_with("run "), "{page:?}");
    let none = place.run(&["runs", "list", "--workflow", "nope"]).ok();
    assert!(
        none.out.is_empty() && none.err.contains("no runs like that"),
        "{none:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_database_is_found_by_flag_environment_or_in_the_folder() {
    let place = Place::new().await;
    let file = place.db();
    let mut command = place.command(&["runs", "list"]);
    assert_eq!(said(command.env("ROUNDEL_DB", &file)).code, 0);
    let mut command = place.command(&["runs", "list"]);
    assert_eq!(said(&mut command).code, 4);
    std::fs::rename(&file, place.folder.path().join("roundel.db")).expect("moved");
    assert_eq!(said(&mut command).code, 0);
    let mut command = place.command(&["--db", "nowhere.db", "runs", "list"]);
    assert_eq!(said(&mut command).code, 4, "the flag may stand first");
}

#[test]
fn completions_and_help_are_there() {
    let place = Place::empty();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = said(&mut place.command(&["completions", shell])).ok().out;
        assert!(
            script.contains("verify") && script.contains("cancel"),
            "{shell}"
        );
    }
    let help = said(&mut place.command(&["--help"])).ok().out;
    for part in ["Exit codes:", "3  there is no such run", "ROUNDEL_DB"] {
        assert!(help.contains(part), "`{part}` is missing:\n{help}");
    }
}
