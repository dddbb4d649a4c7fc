//! Behind a web handler: a request is answered once its run is durable, and a request that is sent
//! again gets the same run. The handlers are plain functions here; any web framework can call them.

use std::time::Duration;

use roundel::{Client, Cx, Engine, Error, Failure, Refusal, Result, Workflow};
use serde::{Deserialize, Serialize};

const TRANSFER: Workflow<Transfer, u64> = Workflow::named("transfer");

#[derive(Clone, Serialize, Deserialize)]
struct Transfer {
    from: String,
    to: String,
    cents: u64,
}

async fn transfer(cx: Cx, order: Transfer) -> Result<u64> {
    cx.sleep(Duration::from_millis(50)).await;
    let Transfer { from, to, cents } = &order;
    cx.effect("transfer", |attempt| async move {
        println!("{from} to {to}: {cents} cents, under {}", attempt.key());
        Ok::<_, Failure>(*cents)
    })
    .await
}

/// `POST /transfers`, with the header `Idempotency-Key`. Gives status and body.
async fn post_transfer(engine: &Client, key: &str, order: &Transfer) -> (u16, String) {
    match engine.start(TRANSFER, order).key(key.to_owned()).await {
        Ok(run) if run.is_new() => (202, run.id().to_string()),
        Ok(run) => (200, run.id().to_string()),
        // The same key with another body: the client has a bug.
        Err(Error::Refused(refusal @ Refusal::Conflict { .. })) => (409, refusal.to_string()),
        Err(error @ Error::BadName(_)) => (400, error.to_string()),
        // Nothing is lost: the client sends the request again, with the same key.
        Err(error) => (503, error.to_string()),
    }
}

/// `GET /transfers/{key}`.
async fn get_transfer(engine: &Client, key: &str) -> (u16, String) {
    match engine.run(key).await {
        Ok(run) => (200, run.row.state.as_str().to_owned()),
        Err(Error::NoSuchRun(_)) => (404, "no such transfer".to_owned()),
        Err(error) => (503, error.to_string()),
    }
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let engine = Engine::open(folder.path().join("bank.db"))
        .register(TRANSFER, transfer)
        .start()
        .await?;
    let order = Transfer {
        from: "Ada".into(),
        to: "Grace".into(),
        cents: 1250,
    };

    let (status, first) = post_transfer(&engine, "a-1", &order).await;
    assert_eq!(status, 202);
    let again = post_transfer(&engine, "a-1", &order).await;
    assert_eq!(again, (200, first), "the same request is the same run");
    let mut other = order.clone();
    other.cents = 9999;
    let (status, said) = post_transfer(&engine, "a-1", &other).await;
    assert_eq!(status, 409, "{said}");
    println!("409: {said}");
    assert_eq!(get_transfer(&engine, "a-2").await.0, 404);

    let paid = engine.handle(TRANSFER, "a-1").await?.result().await?;
    assert_eq!(paid, 1250);
    let now = get_transfer(&engine, "a-1").await;
    assert_eq!(now, (200, "completed".to_owned()));
    engine.shutdown().await;
    Ok(())
}
