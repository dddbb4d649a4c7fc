//! `runs show --follow`: as it happens, to the end, and away.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use roundel::{Cx, Engine, Result as RunResult, Signal, Workflow};
use serde_json::Value;

use crate::support::{ASK, Place};

/// The command, and what it says, line by line.
struct Follows {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Follows {
    fn start(command: &mut Command) -> Follows {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let out = child.stdout.take().expect("its output");
        let lines = BufReader::new(out).lines();
        Follows { child, lines }
    }

    fn line(&mut self) -> String {
        self.lines.next().expect("one more line").expect("text")
    }

    fn json(&mut self) -> Value {
        let line = self.line();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    /// Lines up to one that says this.
    fn until(&mut self, part: &str) -> Vec<Value> {
        let mut lines = Vec::new();
        loop {
            lines.push(self.json());
            if lines
                .last()
                .is_some_and(|line| line.to_string().contains(part))
            {
                return lines;
            }
        }
    }

    fn rest(mut self) -> (Vec<String>, Option<i32>) {
        let rest: Vec<String> = self.lines.by_ref().map_while(Result::ok).collect();
        (rest, self.child.wait().expect("it ends").code())
    }
}

/// It goes with the test, whatever becomes of that.
impl Drop for Follows {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn follows(place: &Place, run: &str, more: &[&str]) -> Follows {
    let args = ["runs", "show", run, "--follow"];
    let mut command = place.command(&[&args[..], more].concat());
    Follows::start(command.args(["--db", "runs.db"]))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_happens_in_a_run_is_told_as_it_happens_until_it_ends() {
    let place = Place::new().await;
    let worker = place.worker().await;
    worker.start(ASK, &"why".to_owned()).key("k").await.unwrap();
    let mut told = follows(&place, "k", &["--json"]);
    let mut before = told.until("answer");
    place.run(&["signal", "k", "answer", "\"because\""]).ok();
    let (rest, code) = told.rest();
    assert_eq!(code, Some(0), "{rest:?}");
    let rest = rest.iter().map(|line| serde_json::from_str(line).unwrap());
    before.extend(rest);
    // Every entry once, in order, and the run itself at last.
    let run = before.pop().expect("the run");
    let numbers: Vec<u64> = before
        .iter()
        .map(|line| line["number"].as_u64().unwrap())
        .collect();
    let all: Vec<u64> = (1..=run["entries"].as_u64().unwrap()).collect();
    assert_eq!(numbers, all, "{before:?}");
    assert!(before.iter().all(|line| line["execution"] == 1));
    assert_eq!(run["state"], "completed");
    assert!(run["outcome"].to_string().contains("because"), "{run}");
    worker.shutdown().await;
    // One that has ended is told, and that is all; for people too.
    let (lines, code) = follows(&place, "k", &[]).rest();
    assert_eq!(code, Some(0), "{lines:?}");
    for part in ["started `ask`", "waits for signal `answer`", "result"] {
        let there = lines.iter().any(|line| line.contains(part));
        assert!(there || part.starts_with("waits"), "{part}: {lines:?}");
    }
}

const TWICE: Workflow<u32, u32> = Workflow::named("twice");
const GO: Signal<()> = Signal::named("go");

/// Waits, and goes on as new, until it has done so twice.
async fn twice(cx: Cx, times: u32) -> RunResult<u32> {
    cx.wait(GO).await?;
    match times {
        2 => Ok(times),
        _ => cx.continue_as_new(&(times + 1)).await,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_goes_on_as_new_is_followed_through_all_of_it() {
    let place = Place::empty();
    let engine = Engine::open(place.db()).register(TWICE, twice);
    let engine = engine.start().await.expect("an engine");
    engine.start(TWICE, &0).key("k").await.unwrap();
    let mut told = follows(&place, "k", &["--json"]);
    told.until("go");
    for _ in 0..3 {
        place.run(&["signal", "k", "go"]).ok();
    }
    let (rest, code) = told.rest();
    assert_eq!(code, Some(0), "{rest:?}");
    let lines: Vec<Value> = rest
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let (run, entries) = lines.split_last().expect("lines");
    assert_eq!(
        (&run["state"], &run["execution"]),
        (&"completed".into(), &3.into())
    );
    // Each is told to its end, however fast the next one began.
    for execution in 1..=2 {
        let goes_on = |line: &&Value| line["text"] == "continues as new";
        let of = entries.iter().filter(|line| line["execution"] == execution);
        assert_eq!(of.filter(goes_on).count(), 1, "{execution}: {entries:?}");
    }
    // Each execution's entries are numbered from 1 without gaps.
    for execution in 2..=3 {
        let of = entries.iter().filter(|line| line["execution"] == execution);
        let numbers: Vec<u64> = of.map(|line| line["number"].as_u64().unwrap()).collect();
        let all: Vec<u64> = (1..=numbers.len() as u64).collect();
        assert!(
            numbers.len() > 1 && numbers == all,
            "{execution}: {numbers:?}"
        );
    }
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_interrupted_leaves_cleanly_and_a_failure_is_the_answer_no() {
    let place = Place::new().await;
    let worker = place.worker().await;
    worker.start(ASK, &"why".to_owned()).key("k").await.unwrap();
    let mut told = follows(&place, "k", &["--json"]);
    told.until("answer");
    let id = told.child.id().to_string();
    let sent = Command::new("kill").args(["-INT", &id]).status();
    assert!(sent.expect("kill").success());
    let (rest, code) = told.rest();
    assert_eq!((rest.len(), code), (0, Some(0)), "{rest:?}");
    // Whoever does not read on is not written to for ever.
    let mut told = follows(&place, "k", &["--json"]);
    told.line();
    let Follows { child, lines } = &mut told;
    drop(std::mem::replace(lines, BufReader::new(empty()).lines()));
    place.run(&["signal", "k", "answer", "\"because\""]).ok();
    assert!(child.wait().expect("it ends").code() == Some(0));
    place.run(&["start", "refuse", "--key", "r"]).ok();
    let (lines, code) = follows(&place, "r", &[]).rest();
    assert_eq!(code, Some(1), "{lines:?}");
    assert!(
        lines.iter().any(|line| line.contains("we are closed")),
        "{lines:?}"
    );
    worker.shutdown().await;
}

/// An output that ends at once.
fn empty() -> ChildStdout {
    let mut child = Command::new("true")
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let out = child.stdout.take().expect("its output");
    child.wait().expect("it ends");
    out
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_parked_says_why_and_is_followed_on() {
    let place = Place::new().await;
    let worker = place.worker().await;
    place
        .run(&["start", "break", "--key", "b", "--delay", "1s"])
        .ok();
    let mut told = follows(&place, "b", &[]);
    while !told.line().contains("the machine is broken") {}
    place.run(&["parked", "cancel", "b"]).ok();
    let (rest, code) = told.rest();
    assert_eq!(code, Some(1), "{rest:?}");
    assert!(
        rest.iter().any(|line| line.contains("cancelled")),
        "{rest:?}"
    );
    worker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_on_a_server_is_followed_too() {
    let Some(schema) = roundel_testpg::schema() else {
        return;
    };
    let (url, name) = (schema.address(), schema.name().to_owned());
    let engine = Engine::open(&url)
        .schema(name.clone())
        .register(TWICE, twice);
    let engine = engine.start().await.expect("an engine");
    engine.start(TWICE, &2).key("k").await.unwrap();
    let place = Place::empty();
    let args = [
        "runs", "show", "k", "--follow", "--json", "--db", &url, "--schema", &name,
    ];
    let mut told = Follows::start(&mut place.command(&args));
    told.until("go");
    tokio::time::sleep(Duration::from_millis(50)).await;
    engine.signal("k", GO, &()).await.unwrap();
    let (rest, code) = told.rest();
    assert_eq!(code, Some(0), "{rest:?}");
    assert!(
        rest.last().is_some_and(|line| line.contains("completed")),
        "{rest:?}"
    );
    engine.shutdown().await;
}
