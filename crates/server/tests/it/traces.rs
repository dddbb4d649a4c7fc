//! Traces: what a collector is told of runs, and what becomes of runs when it does not listen.

use std::future::IntoFuture;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use roundel::{Attempt, Cx, Engine, Failure, Result as RunResult, Retry, Trace, Workflow};
use roundel_server::{Limits, Role, Told, Traces};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::support::{DOUBLE, PATIENCE, Place};

const TRIP: Workflow<String, String> = Workflow::named("trip");
const HOTEL: Workflow<String, u32> = Workflow::named("hotel");
const SECRET: &str = "canary-4711";
const HEADER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// What a call was told to send to services.
type Heard = Arc<Mutex<Option<String>>>;

async fn hotel(cx: Cx, _: String) -> RunResult<u32> {
    cx.step("room", |_| async { Ok::<_, Failure>(7) }).await
}

fn trip(heard: Heard) -> impl Fn(Cx, String) -> futures::Ran + Send + Sync + 'static {
    move |cx: Cx, secret: String| {
        let heard = heard.clone();
        Box::pin(async move {
            let call = move |attempt: Attempt| {
                let (heard, secret) = (heard.clone(), secret.clone());
                async move {
                    *heard.lock().unwrap() = attempt.traceparent();
                    match attempt.number() {
                        1 => Err(Failure::transient(secret).with_code("busy")),
                        _ => Ok(secret),
                    }
                }
            };
            let pause = Retry::fixed(3, Duration::from_millis(1));
            let paid = cx.effect("pay", call).retry(pause).await?;
            cx.child(HOTEL, &paid).await?;
            Ok(paid)
        })
    }
}

mod futures {
    pub(super) type Ran = std::pin::Pin<Box<dyn Future<Output = roundel::Result<String>> + Send>>;
}

/// A collector: takes what it is told, or answers otherwise.
async fn collector(answer: &'static str) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let told = Arc::new(Mutex::new(Vec::new()));
    let keeps = told.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let keeps = keeps.clone();
            tokio::spawn(async move {
                let mut said = Vec::new();
                let mut part = [0; 65536];
                while let Ok(read @ 1..) = stream.read(&mut part).await {
                    said.extend_from_slice(&part[..read]);
                    let text = String::from_utf8_lossy(&said);
                    let Some((head, body)) = text.split_once("\r\n\r\n") else {
                        continue;
                    };
                    let length = head.split("Content-Length: ").nth(1).unwrap();
                    let length: usize = length.lines().next().unwrap().parse().unwrap();
                    if body.len() >= length {
                        assert!(head.starts_with("POST /v1/traces HTTP/1.1"), "{head}");
                        keeps.lock().unwrap().push(body.to_owned());
                        break;
                    }
                }
                let _ = stream.write_all(answer.as_bytes()).await;
            });
        }
    });
    (url, told)
}

const TAKEN: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}";
const BUSY: &str = "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

fn spans(told: &Mutex<Vec<String>>) -> Vec<Value> {
    let told = told.lock().unwrap();
    let bodies = told
        .iter()
        .map(|body| serde_json::from_str::<Value>(body).unwrap());
    bodies
        .flat_map(|body| {
            let spans = &body["resourceSpans"][0]["scopeSpans"][0]["spans"];
            spans.as_array().unwrap().clone()
        })
        .collect()
}

fn named<'s>(spans: &'s [Value], name: &str) -> &'s Value {
    let found = spans.iter().find(|span| span["name"] == name);
    found.unwrap_or_else(|| panic!("no `{name}` in {spans:#?}"))
}

fn attribute<'s>(of: &'s Value, name: &str) -> &'s Value {
    let all = of["attributes"].as_array().unwrap();
    let found = all.iter().find(|one| one["key"] == name);
    &found.unwrap_or_else(|| panic!("no `{name}` in {of:#}"))["value"]
}

fn assert_timed(span: &Value) {
    let time = |name: &str| span[name].as_str().unwrap().parse::<u64>().unwrap();
    let (start, end) = (time("startTimeUnixNano"), time("endTimeUnixNano"));
    assert!(
        start <= end && start > 1_600_000_000_000_000_000,
        "{span:#}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h9_who_only_watches_tells_of_what_others_end() {
    let (url, told) = collector(TAKEN).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("runs.db");
    let worker = Engine::open(&file).register(TRIP, trip(Heard::default()));
    let worker = worker.register(HOTEL, hotel).start().await.unwrap();
    let watcher = Engine::open(&file).start().await.unwrap();
    let telling = Traces::to(&url).unwrap().watch(&watcher);
    let mut run = worker.start(TRIP, &SECRET.to_owned()).await.unwrap();
    run.result().await.unwrap();
    let until = Instant::now() + PATIENCE;
    while telling.told().spans == 0 {
        assert!(Instant::now() < until, "{:?}", telling.told());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let counts = telling.stop().await;
    let spans = spans(&told);
    assert_eq!((counts.spans, counts.runs_dropped), (spans.len() as u64, 0));
    let (trip, hotel) = (named(&spans, "trip"), named(&spans, "hotel"));
    assert_eq!(trip["traceId"], hotel["traceId"]);
    watcher.shutdown().await;
    worker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h9_a_tree_of_runs_is_one_trace_from_the_caller_to_the_called() {
    let (url, told) = collector(TAKEN).await;
    let heard = Heard::default();
    let engine = Engine::in_memory().register(TRIP, trip(heard.clone()));
    let place = Place::over(engine.register(HOTEL, hotel), Limits::default()).await;
    let telling = Traces::to(&url)
        .unwrap()
        .service("shop")
        .follow(&place.engine);
    let token = place.token(Role::Submitter);
    let headers = format!("Authorization: Bearer {token}\r\ntraceparent: {HEADER}\r\n");
    let body = json!({"workflow": "trip", "input": SECRET});
    let line = "POST /api/v1/default/runs";
    let run = place.send(line, &headers, Some(&body)).await.ok().json();
    let run: roundel::RunId = run["run"].as_str().unwrap().parse().unwrap();
    let mut handle = place.engine.handle(TRIP, run).await.unwrap();
    assert_eq!(handle.result().await.unwrap(), SECRET);
    let counts = telling.stop().await;

    let spans = spans(&told);
    assert_eq!(
        counts,
        Told {
            spans: spans.len() as u64,
            ..Told::default()
        }
    );
    let trace = "0af7651916cd43dd8448eb211c80319c";
    assert!(
        spans.iter().all(|span| span["traceId"] == trace),
        "{spans:#?}"
    );
    let trip = named(&spans, "trip");
    assert_eq!(trip["parentSpanId"], "b7ad6b7169203331", "the caller's");
    assert_eq!(attribute(trip, "roundel.state")["stringValue"], "completed");
    let rounds = trip["events"].as_array().unwrap();
    assert!(rounds.iter().all(|event| event["name"] == "round") && rounds.len() >= 3);
    let pay = named(&spans, "effect pay");
    assert_eq!(pay["parentSpanId"], trip["spanId"]);
    let failed = &pay["events"][0];
    assert_eq!(attribute(failed, "roundel.attempt")["intValue"], "1");
    assert_eq!(
        attribute(failed, "roundel.failure.code")["stringValue"],
        "busy"
    );
    assert_eq!(attribute(pay, "roundel.attempts")["intValue"], "2");
    // What is called is told that it is below the effect.
    let header = heard.lock().unwrap().clone().unwrap();
    let said = Trace::parse(&header).unwrap();
    assert_eq!(
        format!("{:016x}", said.span),
        pay["spanId"].as_str().unwrap()
    );
    assert_eq!(format!("{:032x}", said.id), trace);
    // What is set off is below the call that did.
    let (child, hotel) = (named(&spans, "child hotel"), named(&spans, "hotel"));
    assert_eq!(hotel["parentSpanId"], child["spanId"]);
    assert_eq!(hotel["links"][0]["spanId"], trip["spanId"]);
    assert_eq!(named(&spans, "step room")["parentSpanId"], hotel["spanId"]);
    spans.iter().for_each(assert_timed);
    // P1: nothing of what was given, returned or said.
    let all = told.lock().unwrap().join("\n");
    assert!(!all.contains(SECRET), "{all}");
    assert!(all.contains("\"shop\""), "{all}");
    place.engine.shutdown().await;
}

#[tokio::test]
async fn without_a_caller_the_root_is_the_trace() {
    let (url, told) = collector(TAKEN).await;
    let place = Place::new().await;
    let telling = Traces::to(&url).unwrap().follow(&place.engine);
    let none = Traces::to(&url).unwrap().part(0.0).follow(&place.engine);
    let mut run = place.engine.start(DOUBLE, &4).await.unwrap();
    run.result().await.unwrap();
    let counts = (telling.stop().await, none.stop().await);
    assert_eq!((counts.0.spans, counts.1.spans), (1, 0));
    let span = &spans(&told)[0];
    let root = run.id().to_string().replace('-', "");
    assert_eq!(
        (&span["traceId"], &span["name"]),
        (&json!(root), &json!("double"))
    );
    assert_eq!(span.get("parentSpanId"), None);
    place.engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m3_a_collector_that_does_not_listen_holds_nobody_up() {
    // One takes nothing; one does not even answer; to one nobody can speak.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nowhere = {
        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
        closed.local_addr().unwrap()
    };
    let place = Place::new().await;
    let busy = collector(BUSY).await.0;
    let urls = [
        busy,
        format!("http://{}", silent.local_addr().unwrap()),
        format!("http://{nowhere}"),
    ];
    let telling = urls.map(|url| Traces::to(&url).unwrap().room(10).follow(&place.engine));
    let begin = Instant::now();
    let runs = (0..2000).map(|number| place.engine.start(DOUBLE, &number).into_future());
    let runs = futures_util::future::join_all(runs).await;
    for run in runs {
        run.unwrap().result().await.unwrap();
    }
    assert!(begin.elapsed() < PATIENCE, "{:?}", begin.elapsed());
    // More ended than there was room for, and what was tried was not taken: both are counted.
    for telling in telling {
        let begin = Instant::now();
        loop {
            let told = telling.told();
            assert_eq!(told.spans, 0);
            if told.runs_dropped > 0 && told.spans_dropped > 0 {
                break;
            }
            assert!(begin.elapsed() < PATIENCE * 2, "{told:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    place.engine.shutdown().await;
}
