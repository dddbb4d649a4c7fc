//! Runs that are in the file besides those that are measured: ended, or asleep for a month.

use std::time::{Duration, Instant};

use roundel::{Cx, Engine, EngineBuilder, Result as RunResult, Workflow};
use tokio::task::JoinSet;

use crate::tasks::all_of;

const EMPTY: Workflow<(), ()> = Workflow::named("bench-empty");
pub(crate) const SLEEPY: Workflow<(), ()> = Workflow::named("bench-sleepy");
/// Started at once.
const AT_ONCE: u64 = 2000;
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
            for first in (0..total).step_by(AT_ONCE as usize) {
                if begin.elapsed() > patience {
                    break;
                }
                if first % 100_000 == 0 {
                    progress(&format!("filling the file: {first} of {total}"));
                }
                let mut tasks = JoinSet::new();
                let last = total.min(first + AT_ONCE);
                for _ in first..last {
                    let client = engine.client();
                    tasks.spawn(async move {
                        if sleeps {
                            return client.start(SLEEPY, &()).await.map(drop);
                        }
                        client.start(EMPTY, &()).await?.result().await
                    });
                }
                all_of(tasks).await?;
                there += last - first;
            }
        }
        at_rest(engine).await;
        tokio::time::sleep(SETTLE).await;
        Ok(there)
    }
}

/// Waits until the engine has nothing in hand.
pub(crate) async fn at_rest(engine: &Engine) {
    while engine.metrics().live > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
