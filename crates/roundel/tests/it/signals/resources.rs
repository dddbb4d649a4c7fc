//! What a workflow opened is opened again on resume and closed in reverse order (SI-20).

use std::sync::{Arc, Mutex};
use std::time::Duration;

use roundel::{Cx, EngineBuilder, Failure, Result, Workflow};

use super::{GO, HOUR, until_waits};
use crate::support::{Db, Process, all, soon, until};

all![
    si_20_resources_are_closed_in_reverse_order_on_success,
    si_20_resources_are_closed_in_reverse_order_on_failure,
    si_20_resources_are_closed_when_the_run_begins_anew,
    si_20_resources_are_closed_when_the_run_is_cancelled,
    si_20_resources_are_closed_when_the_code_panics,
    si_20_resources_are_opened_again_when_the_run_is_resumed,
    si_20_a_resource_that_takes_time_to_open_is_waited_for,
];

/// How a run with two resources ends.
const HOLD: Workflow<String, String> = Workflow::named("hold");

/// What was opened and closed, in order.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn note(&self, what: String) {
        self.0.lock().unwrap().push(what);
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    async fn open(&self, name: &'static str) -> Connection {
        self.note(format!("open {name}"));
        Connection(name, self.clone())
    }

    fn register(&self, engine: EngineBuilder) -> EngineBuilder {
        let log = self.clone();
        engine.register(HOLD, move |cx: Cx, how: String| hold(cx, how, log.clone()))
    }
}

struct Connection(&'static str, Log);

impl Drop for Connection {
    fn drop(&mut self) {
        self.1.note(format!("close {}", self.0));
    }
}

async fn hold(cx: Cx, how: String, log: Log) -> Result<String> {
    let _first = cx.resource(log.open("a")).await;
    let second = cx.resource(log.open("b")).await;
    cx.wait(GO).await?;
    match how.as_str() {
        "fail" => Err(Failure::business("no")),
        "anew" => cx.continue_as_new(&"end".to_owned()).await,
        "panic" => panic!("as asked"),
        _ => Ok(second.0.to_owned()),
    }
}

const OPENED: [&str; 2] = ["open a", "open b"];
const CLOSED: [&str; 2] = ["close b", "close a"];

/// Starts a run that will end like this and waits until it has opened what it opens.
async fn opened(db: &Db, log: &Log, how: &str) -> (Process, roundel::Handle<String>) {
    let process = db.start(|engine| log.register(engine)).await;
    let run = process.start(HOLD, &how.to_owned()).await.unwrap();
    until_waits(&process, run.id()).await;
    assert_eq!(log.take(), OPENED, "open while it waits in memory");
    (process, run)
}

async fn si_20_resources_are_closed_in_reverse_order_on_success(db: Db) {
    let log = Log::default();
    let (process, mut run) = opened(&db, &log, "end").await;
    process.signal(&run, GO, &()).await.unwrap();
    assert_eq!(soon("the end", run.result()).await.unwrap(), "b");
    assert_eq!(log.take(), CLOSED);
}

async fn si_20_resources_are_closed_in_reverse_order_on_failure(db: Db) {
    let log = Log::default();
    let (process, mut run) = opened(&db, &log, "fail").await;
    process.signal(&run, GO, &()).await.unwrap();
    soon("the end", run.result()).await.unwrap_err();
    assert_eq!(log.take(), CLOSED);
}

async fn si_20_resources_are_closed_when_the_run_begins_anew(db: Db) {
    let log = Log::default();
    let (process, mut run) = opened(&db, &log, "anew").await;
    process.signal(&run, GO, &()).await.unwrap();
    until("the next execution opened its own", || async {
        log.len() == 4
    })
    .await;
    assert_eq!(log.take(), [CLOSED, OPENED].concat());
    process.signal(&run, GO, &()).await.unwrap();
    soon("the end", run.result()).await.unwrap();
    assert_eq!(log.take(), CLOSED);
}

async fn si_20_resources_are_closed_when_the_run_is_cancelled(db: Db) {
    let log = Log::default();
    let (process, mut run) = opened(&db, &log, "end").await;
    process.cancel(&run).await.unwrap();
    soon("the end", run.result()).await.unwrap_err();
    assert_eq!(log.take(), CLOSED);
}

async fn si_20_resources_are_closed_when_the_code_panics(db: Db) {
    let log = Log::default();
    let (process, mut run) = opened(&db, &log, "panic").await;
    process.signal(&run, GO, &()).await.unwrap();
    soon("the end", run.result()).await.unwrap_err();
    assert_eq!(log.take(), CLOSED);
}

async fn si_20_resources_are_opened_again_when_the_run_is_resumed(db: Db) {
    let log = Log::default();
    let no_room = |engine| log.register(engine).keep_in_memory(0, HOUR);
    let first = db.start(no_room).await;
    let run = first.start(HOLD, &"end".to_owned()).await.unwrap().id();
    until("it left memory", || async { log.len() == 4 }).await;
    assert_eq!(log.take(), [OPENED, CLOSED].concat());
    first.signal(run, GO, &()).await.unwrap();
    let mut handle = first.handle(HOLD, run).await.unwrap();
    assert_eq!(soon("the end", handle.result()).await.unwrap(), "b");
    assert_eq!(log.take(), [OPENED, CLOSED].concat());
    // And by another process.
    let run = first.start(HOLD, &"end".to_owned()).await.unwrap().id();
    until("it left memory", || async { log.len() == 4 }).await;
    first.shutdown().await;
    log.take();
    let second = db.start(|engine| log.register(engine)).await;
    assert_eq!(log.len(), 0, "what waits is not opened");
    second.signal(run, GO, &()).await.unwrap();
    let mut handle = second.handle(HOLD, run).await.unwrap();
    soon("the end", handle.result()).await.unwrap();
    assert_eq!(log.take(), [OPENED, CLOSED].concat());
}

async fn si_20_a_resource_that_takes_time_to_open_is_waited_for(db: Db) {
    const SLOW: Workflow<(), u32> = Workflow::named("slow");
    async fn slow(cx: Cx, (): ()) -> Result<u32> {
        let open = async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            7
        };
        let opened = cx.resource(open).await;
        let read = |_| async { Ok::<_, Failure>(opened) };
        cx.effect("read", read).await
    }
    let process = db.start(|engine| engine.register(SLOW, slow)).await;
    let mut run = process.start(SLOW, &()).await.unwrap();
    assert_eq!(soon("the end", run.result()).await.unwrap(), 7);
}
