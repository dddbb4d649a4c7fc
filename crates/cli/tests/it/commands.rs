//! Starting, signalling, offering, listing, showing: good use, for people and for programs.

use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

use roundel::{Attempt, Cx, Engine, Failure, Workflow};
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

#[tokio::test(flavor = "multi_thread")]
async fn co_30_a_queue_is_limited_paused_and_resumed_and_why_says_so() {
    let place = Place::new().await;
    place
        .run(&["start", "greet", "\"Ada\"", "--key", "ada"])
        .ok();
    let args = [
        "queues",
        "set",
        "greet",
        "--concurrency",
        "2",
        "--rate",
        "9/1m",
    ];
    assert_eq!(place.run(&args).ok().out, "`greet`: 2 at once, 9 in 60s\n");
    let pause = ["queues", "pause", "greet", "--operator", "ada", "--json"];
    let told = place.run(&pause).ok().json();
    assert_eq!(
        (&told["paused"], &told["in_hand"]),
        (&json!(true), &json!(0))
    );
    assert_eq!(told["rate"], json!({"count": 9, "per_ms": 60_000}));
    let why = place.run(&["runs", "why", "ada"]).ok().out;
    assert!(why.contains("which is paused"), "{why}");
    let listed = place.run(&["queues"]).ok().out;
    for part in ["greet", "paused", "9 in 1 min"] {
        assert!(listed.contains(part), "`{part}` is missing:\n{listed}");
    }
    let args = [
        "queues",
        "set",
        "greet",
        "--rate",
        "none",
        "--concurrency",
        "none",
    ];
    place.run(&args).ok();
    let resumed = place.run(&["queues", "resume", "greet"]).ok().out;
    assert_eq!(resumed, "`greet`: no limits\n");
    let audit = lines(&place.run(&["audit", "--json"]).ok().out);
    let actions: Vec<&Value> = audit.iter().map(|row| &row["action"]).collect();
    assert_eq!(actions, ["limit", "pause", "limit", "resume"]);
    for wrong in ["0", "many", "9", "9/soon"] {
        let flag = if wrong.contains('9') {
            "--rate"
        } else {
            "--concurrency"
        };
        let told = place.run(&["queues", "set", "greet", flag, wrong]);
        assert_ne!(told.code, 0, "{wrong}");
    }
    let worker = place.worker().await;
    place.run(&["start", "greet", "\"Bob\"", "--wait"]).ok();
    worker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn co_30_why_names_the_flow_key_that_is_full() {
    const HOLD: Workflow<u32, u32> = Workflow::named("hold");
    let place = Place::new().await;
    let limit = ["queues", "set", "hold", "--per-key", "1"];
    assert_eq!(place.run(&limit).ok().out, "`hold`: 1 of a key\n");
    let (go, gate) = tokio::sync::watch::channel(false);
    let holds = move |cx: Cx, number: u32| {
        let gate = gate.clone();
        async move {
            let held = |_: Attempt| {
                let mut gate = gate.clone();
                async move {
                    let _ = gate.wait_for(|go| *go).await;
                    Ok::<u32, Failure>(number)
                }
            };
            cx.effect("hold", held).await
        }
    };
    let engine = Engine::open(place.db()).register(HOLD, holds);
    let engine = engine.start().await.expect("an engine");
    let start = ["start", "hold", "1", "--key", "one", "--flow-key", "ada"];
    place.run(&start).ok();
    let send = ["commands", "send", "hold", "1", "--id", "two"];
    place
        .run(&[&send[..], &["--flow-key", "ada"]].concat())
        .ok();
    let in_hand = || place.run(&["queues", "--json"]).ok().json();
    while in_hand()["in_hand_by_key"] != json!({"ada": 1}) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let why = |key| place.run(&["runs", "why", key]).ok().out;
    let both = why("one") + &why("hold:two");
    let full = "flow key `ada` in `hold`: 1 are in hand, and 1 may be at once";
    assert!(both.contains(full), "{both}");
    go.send_replace(true);
    for key in ["one", "hold:two"] {
        let mut handle = engine.handle(HOLD, key).await.unwrap();
        assert_eq!(handle.result().await.unwrap(), 1);
    }
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn co_30_why_names_the_limit_and_the_rate_that_hold_a_command_back() {
    let place = Place::new().await;
    let engine = Engine::open(place.db()).register(
        Workflow::<u32, u32>::named("nap"),
        |cx: Cx, number| async move {
            cx.sleep(Duration::ZERO).await;
            Ok::<u32, Failure>(number)
        },
    );
    let stuck = |_: Attempt, _: u32| std::future::pending::<Result<u32, Failure>>();
    let engine = engine.handle(roundel::Command::<u32, u32>::named("hold"), stuck);
    place
        .run(&["queues", "set", "hold", "--concurrency", "1"])
        .ok();
    place.run(&["queues", "set", "nap", "--rate", "1/1h"]).ok();
    for id in ["1", "2"] {
        place
            .run(&["commands", "send", "hold", id, "--id", id])
            .ok();
        place.run(&["start", "nap", id, "--key", id]).ok();
    }
    let engine = engine.start().await.expect("an engine");
    let why = |runs: [&str; 2]| {
        runs.map(|run| place.run(&["runs", "why", run]).ok().out)
            .concat()
    };
    for (runs, held_back) in [
        (
            ["hold:1", "hold:2"],
            "for its queue `hold`: 1 are in hand, and 1 may be at once",
        ),
        (
            ["1", "2"],
            "for its queue `nap`: 1 in 1 h are used up, the next in 5",
        ),
    ] {
        let end = std::time::Instant::now() + Duration::from_secs(30);
        while !why(runs).contains(held_back) {
            assert!(std::time::Instant::now() < end, "{}", why(runs));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    engine.shutdown().await;
}

/// What a program has stored hides nothing from those who list it.
#[tokio::test(flavor = "multi_thread")]
async fn n4_json_that_fits_into_no_value_is_shown_as_text() {
    let place = Place::new().await;
    let engine = Engine::open(place.db()).start().await.expect("an engine");
    let ada = engine.operator("ada").expect("a name");
    for (key, text) in [
        ("large", "[1e999]".to_owned()),
        ("deep", ["[".repeat(200), "]".repeat(200)].concat()),
    ] {
        let payload = roundel::Payload::parse(&text).expect("JSON");
        let name = roundel::Name::new("odd").expect("a name");
        let start = ada.start_named(name.clone(), payload.clone()).key(key);
        start.await.expect("it starts");
        let arrival = roundel::Arrival::named(name, payload).id(key);
        engine.append(arrival).await.expect("it is kept");
        let shown = place.run(&["runs", "show", key, "--json"]).ok().json();
        let input = &shown["journal"][0]["entry"]["started"]["input"];
        assert!(input.to_string().contains('"'), "{shown}");
        for list in [
            &["parked", "show", key][..],
            &["commands", "list", "odd"],
            &["facts", "incoming"],
            &["audit"],
        ] {
            let told = place.run(&[list, &["--json"]].concat()).ok();
            assert!(!lines(&told.out).is_empty(), "{list:?}");
        }
        let start = ["start", "odd", &text];
        place.run(&start).fails(2, &["JSON"]);
    }
    engine.shutdown().await;
}
