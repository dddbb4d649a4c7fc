//! Rollbacks that failed, and go on.

use std::time::Duration;

use roundel::{Cx, Failure, RunId, RunState, Tx, Workflow};

use super::trace::Trace;
use crate::support::{Db, Process, all, until};

const ORDER: Workflow<u32, u32> = Workflow::named("order");

all![sc_24_the_last_undo_of_all_fails_and_is_skipped_or_tried_again];

async fn ends(process: &Process, run: RunId) -> RunState {
    until("it has ended", async || {
        process.run(run).await.unwrap().row.state.has_ended()
    })
    .await;
    process.run(run).await.unwrap().row.state
}

/// Nothing is left to be undone after that, and what was undone before is code's all the same.
async fn sc_24_the_last_undo_of_all_fails_and_is_skipped_or_tried_again(db: Db) {
    let (trace, broken) = (Trace::default(), Trace::default());
    broken.add("yes");
    let order = {
        let (trace, broken) = (trace.clone(), broken.clone());
        move |cx: Cx, of: u32| {
            let (trace, broken) = (trace.clone(), broken.clone());
            async move {
                for name in ["first", "second"] {
                    let (trace, broken) = (trace.clone(), broken.clone());
                    let undo = move |_: Tx, (): ()| {
                        let stuck = name == "first" && !broken.all().is_empty();
                        trace.add(name);
                        async move {
                            match stuck {
                                true => Err(Failure::business("it is stuck")),
                                false => Ok(()),
                            }
                        }
                    };
                    let step = cx.step(name, |_| async { Ok::<_, Failure>(()) });
                    step.undo(undo).await?;
                }
                Err::<u32, _>(Failure::business(format!("no {of}")))
            }
        }
    };
    let process = db.start(|engine| {
        let engine = engine.register(ORDER, order);
        engine.keep_in_memory(0, Duration::from_secs(60))
    });
    let process = process.await;
    let mut stuck = Vec::new();
    for of in 1..=2 {
        let run = process.start(ORDER, &of).await.unwrap().id();
        assert_eq!(ends(&process, run).await, RunState::RollbackFailed);
        stuck.push(run);
    }
    assert_eq!(trace.all(), ["second", "first", "second", "first"]);
    trace.clear();
    process.resume_skipping(stuck[0]).await.unwrap();
    assert_eq!(ends(&process, stuck[0]).await, RunState::RolledBack);
    assert_eq!(trace.all(), Vec::<String>::new());
    broken.clear();
    process.resume(stuck[1]).await.unwrap();
    assert_eq!(ends(&process, stuck[1]).await, RunState::RolledBack);
    assert_eq!(trace.all(), ["first"]);
}
