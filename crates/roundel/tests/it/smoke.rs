//! The calls of a workflow, each once.

use std::time::Duration;

use roundel::{Cx, Engine, Failure, Result, Retry, Sent, Signal, Workflow};

const FIVE: Workflow<u32, u32> = Workflow::named("five");
const NAP: Workflow<u64, ()> = Workflow::named("nap");
const ASK: Workflow<(), String> = Workflow::named("ask");
const PARENT: Workflow<u32, u32> = Workflow::named("parent");
const ANSWER: Signal<String> = Signal::named("answer").offerable();

async fn five(cx: Cx, n: u32) -> Result<u32> {
    let mut sum = 0;
    for i in 0..n {
        sum += cx
            .effect("add", |_| async move { Ok::<_, Failure>(i) })
            .await?;
    }
    Ok(sum)
}

async fn nap(cx: Cx, ms: u64) -> Result<()> {
    cx.sleep(Duration::from_millis(ms)).await;
    Ok(())
}

async fn ask(cx: Cx, (): ()) -> Result<String> {
    cx.wait(ANSWER).within(Duration::from_secs(5)).await
}

async fn parent(cx: Cx, n: u32) -> Result<u32> {
    let inputs: Vec<u32> = (0..n).collect();
    let children = inputs.iter().map(|i| cx.child(FIVE, i));
    let sums = roundel::future::try_join_all(children).await?;
    Ok(sums.into_iter().sum())
}

async fn engine() -> Engine {
    Engine::in_memory()
        .register(FIVE, five)
        .register(NAP, nap)
        .register(ASK, ask)
        .register(PARENT, parent)
        .start()
        .await
        .unwrap()
}

#[tokio::test]
async fn effects_run_and_return() {
    let engine = engine().await;
    assert_eq!(
        engine
            .start(FIVE, &5)
            .await
            .unwrap()
            .result()
            .await
            .unwrap(),
        10
    );
    engine.shutdown().await;
}

#[tokio::test]
async fn a_sleep_ends() {
    let engine = engine().await;
    engine
        .start(NAP, &20)
        .await
        .unwrap()
        .result()
        .await
        .unwrap();
}

#[tokio::test]
async fn a_signal_arrives() {
    let engine = engine().await;
    let mut run = engine.start(ASK, &()).await.unwrap();
    let sent = engine
        .signal(&run, ANSWER, &"yes".to_owned())
        .await
        .unwrap();
    assert_eq!(sent, Sent::Delivered(run.id()));
    assert_eq!(run.result().await.unwrap(), "yes");
    let mut run = engine.start(ASK, &()).await.unwrap();
    assert_eq!(
        engine.offer(ANSWER, &"ok".to_owned()).await.unwrap(),
        Sent::Delivered(run.id())
    );
    assert_eq!(run.result().await.unwrap(), "ok");
}

#[tokio::test]
async fn children_are_waited_for() {
    let engine = engine().await;
    assert_eq!(
        engine
            .start(PARENT, &40)
            .await
            .unwrap()
            .result()
            .await
            .unwrap(),
        9880
    );
}

#[tokio::test]
async fn retries_happen() {
    const FLAKY: Workflow<(), u32> = Workflow::named("flaky");
    async fn flaky(cx: Cx, (): ()) -> Result<u32> {
        cx.effect("try", |attempt| async move {
            if attempt.number() < 3 {
                Err(Failure::transient("no"))
            } else {
                Ok(attempt.number())
            }
        })
        .retry(Retry::fixed(3, Duration::from_millis(5)))
        .await
    }
    let engine = Engine::in_memory()
        .register(FLAKY, flaky)
        .start()
        .await
        .unwrap();
    assert_eq!(
        engine
            .start(FLAKY, &())
            .await
            .unwrap()
            .result()
            .await
            .unwrap(),
        3
    );
}
