//! A workflow without an end: it begins anew with what it has to remember, so that its journal
//! stays short. Its key, its state and its unread signals stay.

use roundel::{Cx, Engine, Result, RunState, Signal, Workflow};
use serde::{Deserialize, Serialize};

const METER: Workflow<Total, Total> = Workflow::named("meter");
const READING: Signal<u64> = Signal::named("reading");
const LAST: u64 = 0;

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Total {
    readings: u64,
    sum: u64,
}

async fn meter(cx: Cx, mut total: Total) -> Result<Total> {
    for _ in 0..10 {
        match cx.wait(READING).await? {
            LAST => return Ok(total),
            value => {
                total.readings += 1;
                total.sum += value;
            }
        }
    }
    cx.set_state(&total).await?; // others can read it
    cx.continue_as_new(&total).await
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let engine = Engine::open(folder.path().join("meter.db"))
        .register(METER, meter)
        .start()
        .await?;
    let mut run = engine.start(METER, &Total::default()).key("meter").await?;
    for value in 1..=35 {
        engine.signal("meter", READING, &value).await?;
    }
    engine.signal("meter", READING, &LAST).await?;

    let total = run.result().await?;
    let (readings, sum) = (35, 35 * 36 / 2);
    assert_eq!(total, Total { readings, sum });
    let view = engine.run("meter").await?;
    assert_eq!(view.row.state, RunState::Completed);
    assert_eq!(view.row.execution, 4);
    let entries = engine.journal("meter").await?.len();
    println!("{total:?} in 4 executions; the last one's journal has {entries} entries");
    let seen: Option<(Total, u64)> = engine.state("meter").await?;
    assert_eq!(seen.map(|(total, _)| total.readings), Some(30));
    engine.shutdown().await;
    Ok(())
}
