//! A worker that stops when it is asked to, and gives back what it could not finish, so that the
//! next process goes on at once.

use std::path::Path;
use std::time::Duration;

use roundel::{Cx, Engine, Failure, Result, RunState, Workflow};
use tokio::sync::oneshot;

const CLEAN: Workflow<u32, u32> = Workflow::named("clean");

/// Cleans so many rooms, one after the other.
async fn clean(cx: Cx, rooms: u32) -> Result<u32> {
    for _ in 0..rooms {
        cx.effect("room", |_| async {
            tokio::time::sleep(Duration::from_millis(10)).await;
            Ok::<_, Failure>(())
        })
        .await?;
    }
    Ok(rooms)
}

/// Works until `stop` comes. In a service that is `tokio::signal::ctrl_c()`, or SIGTERM.
async fn work(file: &Path, stop: oneshot::Receiver<()>) -> Result<(), roundel::Error> {
    let engine = Engine::open(file)
        .register(CLEAN, clean)
        .drain(Duration::from_millis(100)) // so long to finish what is in hand
        .start()
        .await?;
    let _ = stop.await;
    engine.shutdown().await;
    Ok(())
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("house.db");
    // A client: it has no workflows, so it runs nothing.
    let client = Engine::open(&file).start().await?;

    let (stop, stopped) = oneshot::channel();
    let worker = tokio::spawn({
        let file = file.clone();
        async move { work(&file, stopped).await }
    });
    let mut run = client.start(CLEAN, &100).key("house").version(1).await?;
    while client.journal("house").await?.len() < 4 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let _ = stop.send(());
    worker.await??;
    let (state, done) = {
        let row = client.run("house").await?.row;
        (row.state, row.head)
    };
    assert_eq!(state, RunState::Ready, "given back, not left to time out");
    println!("the first worker stopped after {done} entries");

    let (stop, stopped) = oneshot::channel();
    let worker = tokio::spawn(async move { work(&file, stopped).await });
    assert_eq!(run.result().await?, 100);
    println!("the second did the rest");
    let _ = stop.send(());
    worker.await??;
    client.shutdown().await;
    Ok(())
}
