//! Programs elsewhere that handle commands over HTTP: what they may do, and what becomes of those
//! that die or come back too late. The guide's program in Python is one of them.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command as Program, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use roundel::{Command, Handle};
use roundel_server::{Limits, Role};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use crate::support::{Answer, PATIENCE, Place};

const GREET: Command<Value, Value> = Command::named("greet");

async fn work(place: &Place, role: Role, what: &str, body: &Value) -> Answer {
    let line = format!("POST /api/v1/default/work/{what}");
    place.ask(role, &line, Some(body)).await
}

async fn send(place: &Place, id: &'static str, payload: Value) -> Handle<Value> {
    place.engine.send(GREET, &payload).key(id).await.unwrap()
}

/// The one command that a claim brings.
async fn claim(place: &Place, more: &Value) -> (Value, Value) {
    let mut body = json!({"queues": ["greet"], "limit": 1, "wait_ms": 10_000});
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    let claimed = work(place, Role::Worker, "claim", &body).await.ok().json();
    assert_eq!(claimed["items"].as_array().unwrap().len(), 1, "{claimed}");
    (claimed["worker"].clone(), claimed["items"][0].clone())
}

#[tokio::test]
async fn h9_a_worker_claims_extends_completes_fails_releases_and_goes() {
    let place = Place::new().await;
    let mut sent = send(&place, "c-1", json!({"name": "Ada"})).await;
    let (worker, got) = claim(&place, &json!({"name": "snake"})).await;
    assert_eq!((&got["id"], &got["attempt"]), (&json!("c-1"), &json!(1)));
    assert_eq!(got["payload"], json!({"name": "Ada"}));
    let token = json!({"token": got["token"]});
    let extended = work(&place, Role::Worker, "extend", &token).await.ok();
    assert_eq!(extended.json(), json!({"cancel": false}));
    let workers = place
        .ask(Role::Viewer, "GET /api/v1/default/workers", None)
        .await;
    let workers = workers.ok().json();
    let known = |one: &Value| one["name"] == "snake (worker)";
    assert!(
        workers["items"].as_array().unwrap().iter().any(known),
        "{workers}"
    );

    let reply = json!({"token": got["token"], "result": {"text": "Hello"}});
    for _ in 0..2 {
        let taken = work(&place, Role::Worker, "complete", &reply)
            .await
            .ok()
            .json();
        assert_eq!(taken, json!({"state": "completed", "retry_at": null}));
    }
    assert_eq!(sent.result().await.unwrap(), json!({"text": "Hello"}));
    let other = json!({"token": got["token"], "result": {"text": "Bye"}});
    work(&place, Role::Worker, "complete", &other)
        .await
        .is(409, "lease_lost");

    send(&place, "c-2", json!({})).await;
    let (_, got) = claim(&place, &json!({"worker": worker})).await;
    let token = json!({"token": got["token"]});
    work(&place, Role::Worker, "release", &token).await.ok();
    work(&place, Role::Worker, "release", &token)
        .await
        .is(409, "lease_lost");
    let (_, got) = claim(&place, &json!({"worker": worker})).await;
    assert_eq!(got["id"], "c-2");
    let failure = json!({"token": got["token"], "class": "transient", "message": "not now",
        "attempts": 2, "pause_ms": 1});
    let taken = work(&place, Role::Worker, "fail", &failure)
        .await
        .ok()
        .json();
    assert_eq!(taken["state"], "waiting", "{taken}");
    assert!(taken["retry_at"].is_u64(), "{taken}");
    let (_, got) = claim(&place, &json!({"worker": worker})).await;
    assert_eq!(got["attempt"], 2);
    let failure = json!({"token": got["token"], "class": "permanent", "message": "never",
        "code": "e-7", "data": [1]});
    let taken = work(&place, Role::Worker, "fail", &failure)
        .await
        .ok()
        .json();
    assert_eq!(taken, json!({"state": "parked", "retry_at": null}));

    work(&place, Role::Worker, "leave", &json!({"worker": worker}))
        .await
        .ok();
    let workers = place
        .ask(Role::Viewer, "GET /api/v1/default/workers", None)
        .await;
    assert!(!workers.ok().body.contains("snake"));
    place.engine.shutdown().await;
}

#[tokio::test]
async fn n18_n21_what_one_was_given_is_nobody_elses() {
    let place = Place::new().await;
    send(&place, "c-1", json!({})).await;
    let (worker, got) = claim(&place, &json!({})).await;
    let token = got["token"].as_str().unwrap();
    let worker = worker.as_str().unwrap();
    // Another token, which may do the same: to that one, these words say nothing.
    for (what, body) in [
        ("extend", json!({"token": token})),
        ("complete", json!({"token": token})),
        (
            "fail",
            json!({"token": token, "class": "permanent", "message": "x"}),
        ),
        ("release", json!({"token": token})),
    ] {
        work(&place, Role::Admin, what, &body)
            .await
            .is(409, "lease_lost");
    }
    let claim = json!({"queues": ["greet"], "worker": worker});
    work(&place, Role::Admin, "claim", &claim)
        .await
        .is(400, "bad_request");
    let leave = json!({"worker": worker});
    work(&place, Role::Admin, "leave", &leave)
        .await
        .is(400, "bad_request");
    // Made up, changed, or of another kind.
    let changed = token.replacen(|digit: char| digit != '0', "0", 1);
    for word in [
        "",
        "x",
        &changed,
        worker,
        &token[2..],
        &"0".repeat(token.len()),
    ] {
        let body = json!({"token": word});
        work(&place, Role::Worker, "complete", &body)
            .await
            .is(409, "lease_lost");
        let body = json!({"queues": ["greet"], "worker": format!("{word}0")});
        work(&place, Role::Worker, "claim", &body)
            .await
            .is(400, "bad_request");
    }
    // The engine's own, and more than there is.
    for (name, value) in [
        ("queues", json!(["roundel.batch"])),
        ("queues", json!([])),
        ("queues", json!(vec!["q"; 65])),
        ("limit", json!(0)),
        ("limit", json!(101)),
        ("lease_ms", json!(99)),
        ("lease_ms", json!(3_600_001)),
        ("name", json!("")),
        ("name", json!("x".repeat(101))),
        ("name", json!("a\0b")),
    ] {
        let mut body = json!({"queues": ["greet"]});
        body[name] = value;
        let answer = work(&place, Role::Worker, "claim", &body).await;
        assert_eq!(answer.status, 400, "{body}: {answer:?}");
    }
    let body = json!({"token": token, "result": 1});
    work(&place, Role::Worker, "complete", &body).await.ok();
    place.engine.shutdown().await;
}

#[tokio::test]
async fn m7_so_many_wait_and_who_has_gone_is_given_nothing() {
    let limits = Limits {
        polls: 1,
        ..Limits::default()
    };
    let place = Place::with(limits).await;
    let body = json!({"queues": ["greet"], "wait_ms": 20_000}).to_string();
    let bytes = format!(
        "POST /api/v1/default/work/claim HTTP/1.1\r\nHost: localhost\r\n\
         Authorization: Bearer {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n\
         {body}",
        place.token(Role::Worker),
        body.len()
    );
    let address = place.address();
    let mut gone = tokio::net::TcpStream::connect(address).await.unwrap();
    gone.write_all(bytes.as_bytes()).await.unwrap();
    // Once it waits, there is no more place to wait, but one may ask.
    let second = json!({"queues": ["greet"], "wait_ms": 1});
    let begin = Instant::now();
    while work(&place, Role::Worker, "claim", &second).await.status != 503 {
        assert!(begin.elapsed() < PATIENCE, "nobody waits");
    }
    let now = json!({"queues": ["greet"]});
    work(&place, Role::Worker, "claim", &now).await.ok();
    drop(gone);
    let begin = Instant::now();
    while work(&place, Role::Worker, "claim", &second).await.status != 200 {
        assert!(begin.elapsed() < PATIENCE, "its place is not given back");
    }
    send(&place, "c-1", json!({})).await;
    claim(&place, &json!({})).await;
    // Who waits when the server stops is told at once.
    let waits = json!({"queues": ["greet"], "wait_ms": 20_000});
    let begin = Instant::now();
    let waiting = work(&place, Role::Worker, "claim", &waits);
    let stopping = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        place.server.clone()
    };
    tokio::select! {
        _ = waiting => panic!("there was something to claim"),
        _ = stopping => {}
    }
    place.serving.stop().await;
    assert!(begin.elapsed() < Duration::from_secs(15));
    place.engine.shutdown().await;
}

/// The program of the guide, and what it prints.
struct Python {
    child: Child,
    lines: Receiver<String>,
}

impl Python {
    fn start(place: &Place) -> std::io::Result<Python> {
        let mut child = Program::new("python3")
            .arg("-u")
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/worker.py"))
            .args([&format!("http://{}", place.address()), "default", "greet"])
            .env("ROUNDEL_TOKEN", place.token(Role::Worker))
            .env("LEASE_MS", "1000")
            .stdout(Stdio::piped())
            .spawn()?;
        let (sender, lines) = channel();
        let out = BufReader::new(child.stdout.take().expect("a pipe"));
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Ok(Python { child, lines })
    }

    /// It prints this next.
    fn says(&self, line: &str) {
        let said = self.lines.recv_timeout(PATIENCE);
        assert_eq!(said.as_deref(), Ok(line));
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let sent = Program::new("kill").args([name, &id]).status();
        assert!(sent.unwrap().success());
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h9_a_program_in_python_works_dies_and_comes_back_too_late() {
    let place = Place::new().await;
    let first = match Python::start(&place) {
        Ok(python) => python,
        Err(why) => return untested(&why),
    };
    let mut one = send(&place, "c-1", json!({"name": "Ada"})).await;
    first.says("c-1 begun");
    first.says("c-1 completed");
    let reply = one.result().await.unwrap();
    assert_eq!(reply["text"], "Hello, Ada!", "{reply}");
    let mut two = send(&place, "c-2", json!({})).await;
    first.says("c-2 begun");
    first.says("c-2 failed");
    let failed = two.result().await.unwrap_err().to_string();
    assert!(failed.contains("nobody to greet"), "{failed}");

    // It dies in the middle: another gets the command, under the same idempotency key.
    let mut three = send(&place, "c-3", json!({"name": "Bea", "seconds": 2})).await;
    first.says("c-3 begun");
    first.signal("-KILL");
    let second = Python::start(&place).unwrap();
    second.says("c-3 begun");
    second.says("c-3 completed");
    let reply = three.result().await.unwrap();
    assert!(
        reply["key"]
            .as_str()
            .unwrap()
            .starts_with(&three.id().to_string())
    );

    // It stops until another has answered: what it says then counts no more.
    let mut four = send(&place, "c-4", json!({"name": "Eve", "seconds": 2})).await;
    second.says("c-4 begun");
    second.signal("-STOP");
    let third = Python::start(&place).unwrap();
    third.says("c-4 begun");
    third.says("c-4 completed");
    second.signal("-CONT");
    second.says("c-4 lost");
    assert_eq!(four.result().await.unwrap()["text"], "Hello, Eve!");
    drop((first, second, third));
    place.engine.shutdown().await;
}

/// Says that a test proved nothing, for want of Python.
fn untested(why: &std::io::Error) {
    assert!(!roundel_testpg::is_ci(), "this test needs python3: {why}");
    let test = "h9_a_program_in_python_works_dies_and_comes_back_too_late (python)";
    roundel_testpg::note(test, why);
}
