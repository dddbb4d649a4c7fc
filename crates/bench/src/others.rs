//! Runs that are in the file besides those that are measured: ended, or asleep for a month.

use std::time::{Duration, Instant};

use roundel::{Client, Cx, Engine, EngineBuilder, Result as RunResult, Workflow};
use tokio::task::JoinSet;

const EMPTY: Workflow<(), ()> = Workflow::named("bench-empty");
pub(crate) const SLEEPY: Workflow<(), ()> = Workflow::named("bench-sleepy");
/// Started in one call, and such calls at once.
const PART: u64 = 250;
const PARTS: usize = 8;
/// The log is moved into the database a moment after the last commit.
const SETTLE: Duration = Duration::from_secs(if cfg!(test) { 0 } else { 2 });

/// How many.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Others {
    pub(crate) stored: u64,
    pub(crate) sleeping: u64,
}

async fn empty(_: Cx, (): ()) -> RunResult<()> {
    Ok(())
}

async fn sleepy(cx: Cx, (): ()) -> RunResult<()> {
    cx.sleep(Duration::from_secs(30 * 24 * 3600)).await;
    Ok(())
}

/// An engine that can run them.
pub(crate) fn register(builder: EngineBuilder) -> EngineBuilder {
    builder.register(EMPTY, empty).register(SLEEPY, sleepy)
}

impl Others {
    /// For so long at most; how many there are then.
    pub(crate) async fn put_into(
        self,
        engine: &Engine,
        patience: Duration,
        progress: &dyn Fn(&str),
    ) -> Result<u64, roundel::Error> {
        let begin = Instant::now();
        let mut there = 0;
        for (total, sleeps) in [(self.stored, false), (self.sleeping, true)] {
            let mut parts = JoinSet::new();
            for first in (0..total).step_by(PART as usize) {
                if begin.elapsed() > patience {
                    break;
                }
                if first % 100_000 == 0 {
                    progress(&format!("filling the file: {first} of {total}"));
                }
                if parts.len() == PARTS {
                    there += parts
                        .join_next()
                        .await
                        .expect("a part")
                        .expect("no panic")?;
                }
                let many = PART.min(total - first);
                parts.spawn(part(engine.client(), many, sleeps));
            }
            for ended in parts.join_all().await {
                there += ended?;
            }
        }
        at_rest(engine).await;
        tokio::time::sleep(SETTLE).await;
        Ok(there)
    }
}

/// So many that sleep; or that have ended, and are known to.
async fn part(client: Client, many: u64, sleeps: bool) -> Result<u64, roundel::Error> {
    let starts = (0..many).map(|_| match sleeps {
        true => client.start(SLEEPY, &()),
        false => client.start(EMPTY, &()),
    });
    for run in client.start_all(starts).await {
        let mut run = run?;
        if !sleeps {
            run.result().await?;
        }
    }
    Ok(many)
}

/// Waits until the engine has nothing in hand.
pub(crate) async fn at_rest(engine: &Engine) {
    while engine.metrics().live > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
