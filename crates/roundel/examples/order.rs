//! An order: a step in the shop's own tables, a call to the card company, and a signature that may
//! not come in time.

use std::time::Duration;

use roundel::{Attempt, Cx, Engine, Failure, Result, Retry, Signal, Tx, Workflow};
use serde::{Deserialize, Serialize};

const FULFIL: Workflow<Order, String> = Workflow::named("fulfil");
const SIGNED: Signal<String> = Signal::named("signed");

#[derive(Serialize, Deserialize)]
struct Order {
    item: String,
    cents: u32,
    days: Duration,
}

async fn fulfil(cx: Cx, order: Order) -> Result<String> {
    let left = cx.step("reserve", |tx| reserve(tx, &order.item)).await?;
    let receipt = cx
        .effect("charge", |attempt| charge(attempt, order.cents))
        .retry(Retry::exponential(5).first(Duration::from_millis(20)))
        .attempt_timeout(Duration::from_secs(10))
        .await?;
    match cx.wait(SIGNED).within(order.days).await {
        Ok(name) => Ok(format!("{receipt}, signed by {name}, {left} left")),
        Err(late) if late.code == "timed_out" => Ok(format!("{receipt}, left at the door")),
        Err(other) => Err(other),
    }
}

/// Runs in the transaction that also records that it ran.
async fn reserve(tx: Tx, item: &str) -> Result<i64> {
    let sql = "UPDATE stock SET pieces = pieces - 1 WHERE item = $1 AND pieces > 0";
    if tx.execute(sql, (item,)).await? == 0 {
        return Err(Failure::business(format!("there is no {item} left")));
    }
    let sql = "SELECT pieces FROM stock WHERE item = $1";
    Ok(tx.query_one(sql, (item,)).await?.get(0)?)
}

/// Stands for a call over the network, which fails at first. The key is the same each time.
async fn charge(attempt: Attempt, cents: u32) -> Result<String> {
    match attempt.number() {
        1 => Err(Failure::transient("the card company does not answer")),
        number => Ok(format!("{cents} cents paid at attempt {number}")),
    }
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("shop.db");
    let tables = "CREATE TABLE stock (item TEXT PRIMARY KEY, pieces INTEGER NOT NULL);
                  INSERT INTO stock VALUES ('lamp', 2)";
    rusqlite::Connection::open(&file)?.execute_batch(tables)?;
    let engine = Engine::open(&file).register(FULFIL, fulfil).start().await?;
    let order = |days| Order {
        item: "lamp".into(),
        cents: 4900,
        days,
    };

    let patient = order(Duration::from_secs(14 * 24 * 3600));
    let mut run = engine.start(FULFIL, &patient).key("order-1").await?;
    engine.signal("order-1", SIGNED, &"Ada".to_owned()).await?;
    let said = run.result().await?;
    assert_eq!(said, "4900 cents paid at attempt 2, signed by Ada, 1 left");
    println!("order 1: {said}");

    let hasty = order(Duration::from_millis(50));
    let said = engine.start(FULFIL, &hasty).await?.result().await?;
    assert_eq!(said, "4900 cents paid at attempt 2, left at the door");
    println!("order 2: {said}");

    let refused = engine.start(FULFIL, &hasty).await?.result().await;
    let refused = refused.expect_err("there are no more").to_string();
    assert!(refused.contains("there is no lamp left"), "{refused}");
    println!("order 3: {refused}");
    engine.shutdown().await;
    Ok(())
}
