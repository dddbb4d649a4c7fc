//! RO-60: a store without transactions. A process dies after every single call that it makes, with
//! the call done and its answer lost; another one takes over.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use roundel::{Cx, Engine, Error, Failure, Result, RunState, Sent, Signal, Tx, Workflow};
use roundel_store::{Folder, Objects, Store};

use crate::rounds::sound::assert_sound;
use crate::support::{Db, soon};

const JOURNEY: Workflow<(u32, Vec<i64>), Vec<i64>> = Workflow::named("journey");
const LEG: Workflow<i64, i64> = Workflow::named("leg");
const NEXT: Signal<i64> = Signal::named("next");

/// Processes that die side by side, each with a folder of its own.
const AT_ONCE: i64 = 8;

/// Calls are made until there were so many; the last one is made, and no one hears of it.
struct Dying {
    folder: Folder,
    left: AtomicI64,
}

impl Dying {
    fn call<T>(&self, call: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let left = self.left.fetch_sub(1, Ordering::SeqCst);
        if left > 1 {
            return call();
        }
        if left == 1 {
            let _ = call();
        }
        Err(io::Error::other("the process is dead"))
    }

    fn is_dead(&self) -> bool {
        self.left.load(Ordering::SeqCst) <= 0
    }
}

impl Objects for Dying {
    fn get(&self, key: &str) -> io::Result<Option<Vec<u8>>> {
        self.call(|| self.folder.get(key))
    }

    fn make(&self, key: &str, bytes: &[u8]) -> io::Result<bool> {
        self.call(|| self.folder.make(key, bytes))
    }

    fn list(&self, prefix: &str) -> io::Result<Vec<String>> {
        self.call(|| self.folder.list(prefix))
    }

    fn remove(&self, key: &str) -> io::Result<()> {
        self.call(|| self.folder.remove(key))
    }
}

async fn note(tx: Tx, value: i64) -> Result<i64, Failure> {
    let table = "CREATE TABLE IF NOT EXISTS visited (value INTEGER)";
    tx.execute(table, ()).await?;
    let insert = "INSERT INTO visited VALUES ($1)";
    tx.execute(insert, (value,)).await?;
    let rows = tx.query("SELECT count(*) FROM visited", ()).await?;
    Ok(rows[0].get(0)?)
}

async fn leg(cx: Cx, value: i64) -> Result<i64> {
    cx.effect("go", move |_| async move { Ok::<_, Failure>(value + 1) })
        .await
}

/// A signal, a child, a step, a pause; and all of it once more, as a new execution.
async fn journey(cx: Cx, (leg, mut seen): (u32, Vec<i64>)) -> Result<Vec<i64>> {
    let next = cx.wait(NEXT).await?;
    seen.push(cx.child(LEG, &next).await?);
    seen.push(cx.step("note", move |tx| note(tx, next)).await?);
    cx.sleep(Duration::from_millis(20)).await;
    if leg == 0 {
        return cx.continue_as_new(&(1, seen)).await;
    }
    Ok(seen)
}

async fn start(store: Arc<dyn Store>) -> Result<Engine, Error> {
    let engine = Engine::over(store).register(JOURNEY, journey);
    engine.register(LEG, leg).start().await
}

/// Two signals are sent before anybody waits for them; then the end is waited for.
async fn travel(db: &Db, engine: &Engine) -> Result<Vec<i64>, Error> {
    let client = engine.client();
    let mut run = client.start(JOURNEY, &(0, Vec::new())).key("one").await?;
    for (value, key) in [(10, "first"), (20, "second")] {
        let sent = client.signal(&run, NEXT, &value).key(key).await?;
        assert!(
            matches!(sent, Sent::Queued | Sent::Delivered(_)),
            "{sent:?}"
        );
    }
    db.meanwhile("the end", run.result()).await
}

/// Dies after so many calls; says whether it came so far.
async fn dies_after(calls: i64) -> bool {
    let db = Db::objects().with_manual_clock();
    let dying = Arc::new(Dying {
        folder: db.objects_in(),
        left: AtomicI64::new(calls),
    });
    // A process that dies when it is opened was never there.
    if let Ok(first) = db.open_objects(dying.clone()) {
        let lives = async {
            let engine = start(first.clone()).await?;
            travel(&db, &engine).await
        };
        let dies = async {
            while !dying.is_dead() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::select! {
            ended = lives => assert!(dying.is_dead() || ended.unwrap() == [11, 1, 21, 2]),
            () = dies => {}
        }
        first.cut();
    }
    // Whatever it had is free now.
    db.advance(Duration::from_secs(60));
    let second = db.open();
    let engine = start(second).await.unwrap();
    let ended = soon("the end", travel(&db, &engine)).await;
    assert_eq!(ended.unwrap(), [11, 1, 21, 2], "after {calls} calls");
    engine.shutdown().await;
    let dump = assert_sound(&db).await;
    assert_eq!(dump.runs.len(), 3, "after {calls} calls");
    let ended = dump.runs.iter().all(|run| run.state == RunState::Completed);
    assert!(ended, "after {calls} calls: {:?}", dump.runs);
    dying.is_dead()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ro_60_a_process_may_die_after_every_single_call() {
    let mut calls = 0;
    loop {
        // They mostly wait.
        let some = (1..=AT_ONCE).map(|n| tokio::spawn(dies_after(calls + n)));
        let some = futures::future::join_all(some).await;
        calls += AT_ONCE;
        if some.into_iter().any(|died| !died.expect("a passed test")) {
            break;
        }
    }
    assert!(calls > 60, "there were only {calls} calls");
}
