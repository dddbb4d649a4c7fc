//! Failures are recorded like values (SI-19).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use roundel::{Class, Cx, EngineBuilder, Error, Failure, Result, Retry, RunState, Tx, Workflow};

use super::{GO, until_waits};
use crate::support::{Db, all, soon};

all![
    si_19_a_caught_failure_is_caught_again_in_replay,
    si_19_retries_happen_once_and_not_in_replay,
    si_19_exhausted_retries_carry_their_history,
    si_19_exhausted_retries_of_a_step_carry_their_history,
    si_19_retries_go_on_where_they_were_after_a_restart,
];

/// Tries as often as it is told, and says what came of it once it is told to go on.
const TRY: Workflow<Plan, String> = Workflow::named("try");

#[derive(Clone, Copy, serde::Serialize, serde::Deserialize)]
struct Plan {
    /// As a step, not as an effect.
    step: bool,
    /// How often it fails before it succeeds.
    fails: u32,
    /// How often it may be tried.
    attempts: u32,
}

/// Counts the calls of the code that fails.
#[derive(Clone, Default)]
struct Calls(Arc<AtomicU32>);

impl Calls {
    fn register(&self, engine: EngineBuilder) -> EngineBuilder {
        let calls = self.clone();
        engine.register(TRY, move |cx: Cx, plan: Plan| {
            attempt(cx, plan, calls.clone())
        })
    }

    fn count(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }

    fn call(&self, fails: u32) -> Result<u32> {
        let call = self.0.fetch_add(1, Ordering::SeqCst) + 1;
        if call <= fails {
            return Err(Failure::transient(format!("failed {call}")));
        }
        Ok(call)
    }
}

async fn attempt(cx: Cx, plan: Plan, calls: Calls) -> Result<String> {
    let retry = Retry::fixed(plan.attempts, Duration::from_secs(1));
    let tried = if plan.step {
        let step = |_: Tx| async { calls.call(plan.fails) };
        cx.step("try", step).retry(retry).await
    } else {
        let effect = |_| async { calls.call(plan.fails) };
        cx.effect("try", effect).retry(retry).await
    };
    cx.wait(GO).await?;
    Ok(match tried {
        Ok(call) => format!("call {call}"),
        Err(failure) => told(&failure),
    })
}

fn told(failure: &Failure) -> String {
    let attempts: Vec<String> = failure
        .attempts
        .iter()
        .map(|attempt| format!("{}: {}", attempt.attempt, attempt.message))
        .collect();
    let origin = failure.origin.as_ref().expect("it happened somewhere");
    format!(
        "{:?} {} [{}] at attempt {} of `{}`",
        failure.class,
        failure.message,
        attempts.join(", "),
        origin.attempt,
        origin.name
    )
}

/// Runs the plan in one process up to the wait, and to the end in another.
async fn in_two_processes(db: Db, plan: Plan) -> (String, u32) {
    let (db, calls) = (db.with_manual_clock(), Calls::default());
    let first = db.start(|engine| calls.register(engine)).await;
    let run = first.start(TRY, &plan).await.unwrap().id();
    let waits = async {
        loop {
            until_waits(&first, run).await;
            // It may have been taken up since.
            let row = first.run(run).await.unwrap().row;
            if row.state == RunState::Waiting && row.timer_at.is_none() {
                break;
            }
            db.advance(Duration::from_secs(1));
        }
    };
    soon("the wait", waits).await;
    let before = calls.count();
    first.crash();
    let second = db.start(|engine| calls.register(engine)).await;
    second.signal(run, GO, &()).await.unwrap();
    let mut handle = second.handle(TRY, run).await.unwrap();
    let told = db.meanwhile("the end", handle.result()).await.unwrap();
    assert_eq!(second.metrics().replays, 1);
    assert_eq!(calls.count(), before, "nothing is called again in replay");
    (told, before)
}

async fn si_19_a_caught_failure_is_caught_again_in_replay(db: Db) {
    let plan = Plan {
        step: false,
        fails: 1,
        attempts: 1,
    };
    let (told, calls) = in_two_processes(db, plan).await;
    assert_eq!(told, "Exhausted failed 1 [] at attempt 1 of `try`");
    assert_eq!(calls, 1);
}

async fn si_19_retries_happen_once_and_not_in_replay(db: Db) {
    let plan = Plan {
        step: false,
        fails: 2,
        attempts: 5,
    };
    let (told, calls) = in_two_processes(db, plan).await;
    assert_eq!((told.as_str(), calls), ("call 3", 3));
}

const HISTORY: &str = "Exhausted failed 3 [1: failed 1, 2: failed 2] at attempt 3 of `try`";

async fn si_19_exhausted_retries_carry_their_history(db: Db) {
    let plan = Plan {
        step: false,
        fails: 9,
        attempts: 3,
    };
    let (told, calls) = in_two_processes(db, plan).await;
    assert_eq!((told.as_str(), calls), (HISTORY, 3));
}

async fn si_19_exhausted_retries_of_a_step_carry_their_history(db: Db) {
    let plan = Plan {
        step: true,
        fails: 9,
        attempts: 3,
    };
    let (told, calls) = in_two_processes(db, plan).await;
    assert_eq!((told.as_str(), calls), (HISTORY, 3));
}

async fn si_19_retries_go_on_where_they_were_after_a_restart(db: Db) {
    const UNCAUGHT: Workflow<(), u32> = Workflow::named("uncaught");
    let (db, calls) = (db.with_manual_clock(), Calls::default());
    let set_up = |engine: EngineBuilder| {
        let calls = calls.clone();
        engine.register(UNCAUGHT, move |cx: Cx, (): ()| {
            let calls = calls.clone();
            async move {
                let effect = |_| async { calls.call(9) };
                let retry = Retry::fixed(4, Duration::from_secs(60));
                cx.effect("try", effect).retry(retry).await
            }
        })
    };
    let mut process = db.start(set_up).await;
    let run = process.start(UNCAUGHT, &()).await.unwrap().id();
    for attempt in 1..4 {
        until_waits(&process, run).await;
        assert_eq!(calls.count(), attempt);
        process.crash();
        process = db.start(set_up).await;
        db.advance(Duration::from_secs(60));
        while calls.count() == attempt {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    let mut handle = process.handle(UNCAUGHT, run).await.unwrap();
    let error = soon("the end", handle.result()).await.unwrap_err();
    let Error::Parked { reason, .. } = error else {
        panic!("a root run with an exhausted failure is parked: {error}")
    };
    assert_eq!(reason.class, Class::Exhausted);
    assert_eq!(reason.attempts.len(), 3);
    assert_eq!(calls.count(), 4);
    assert_eq!(process.run(run).await.unwrap().row.state, RunState::Parked);
}
