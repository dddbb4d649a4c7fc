//! What the workers run: walks of many steps, each of which leaves a row in the user's own table.

use std::time::Duration;

use roundel::{Cx, Result, Signal, Tx, Workflow};

pub(crate) const WALK: Workflow<u32, u32> = Workflow::named("walk");
pub(crate) const ERRAND: Workflow<u32, u32> = Workflow::named("errand");
pub(crate) const GO: Signal<u32> = Signal::named("go");

pub(crate) const STEPS: u32 = 20;
/// What the effect and the signal bring.
const EFFECT: u32 = 1;
pub(crate) const SIGNAL: u32 = 1_000;

/// The user's own table.
pub(crate) const LEDGER: &str = "CREATE TABLE ledger (run TEXT NOT NULL, step INTEGER NOT NULL)";

async fn note(tx: Tx, run: String, step: u32) -> Result<u32> {
    tx.execute(
        "INSERT INTO ledger (run, step) VALUES ($1, $2)",
        (run, i64::from(step)),
    )
    .await?;
    Ok(step)
}

/// Twenty steps; between some of them an effect, a pause, a signal, a child.
pub(crate) async fn walk(cx: Cx, number: u32) -> Result<u32> {
    let mut sum = 0;
    for step in 0..STEPS {
        match step {
            5 => sum += cx.effect("call", |_| call(number)).await?,
            9 => cx.sleep(Duration::from_millis(15)).await,
            13 => sum += cx.wait(GO).await?,
            17 => sum += cx.child(ERRAND, &number).await?,
            _ => {}
        }
        sum += cx
            .step("note", |tx| note(tx, cx.run().to_string(), step))
            .await?;
    }
    Ok(sum)
}

/// What a walk of this number returns when nothing was lost and nothing came twice.
pub(crate) fn expected(number: u32) -> u32 {
    (0..STEPS).sum::<u32>() + EFFECT + SIGNAL + number
}

/// Something outside, which takes its time now and then.
async fn call(number: u32) -> Result<u32> {
    if number.is_multiple_of(4) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(EFFECT)
}

pub(crate) async fn errand(cx: Cx, number: u32) -> Result<u32> {
    cx.step("note", |tx| note(tx, cx.run().to_string(), STEPS))
        .await?;
    Ok(number)
}
