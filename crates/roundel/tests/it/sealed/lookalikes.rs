//! Values of users that begin as what is sealed does: they are refused where they come in, or a run
//! would wait for a key that is nowhere.

use roundel::{
    Cx, EngineBuilder, Error, Failure, Name, Payload, Result, RunState, Signal, Workflow,
};
use roundel_core::SEALED;
use serde_json::json;

use super::keys;
use crate::support::{Db, all, soon, until};

all![
    p6_e10_a_value_that_looks_sealed_is_refused_where_it_comes_in,
    p6_e10_what_looks_sealed_in_a_run_is_its_own_failure,
];

const SAYS: Workflow<String, String> = Workflow::named("says");
const GO: Signal<String> = Signal::named("go");

fn lie() -> String {
    format!("{SEALED}nobody:aQ")
}

async fn says(cx: Cx, what: String) -> Result<String> {
    match what.as_str() {
        "effect" => cx.effect("says", async |_| Ok::<_, Failure>(lie())).await,
        "failure" => {
            let fails = async |_| Err::<String, _>(Failure::business(lie()).with_data(&lie()));
            cx.effect("fails", fails).await
        }
        "state" => {
            cx.set_state(&json!({ "a": [lie()] })).await?;
            Ok(what)
        }
        "output" => Ok(lie()),
        _ => cx.wait(GO).await,
    }
}

fn set_up(engine: EngineBuilder) -> EngineBuilder {
    engine.register(SAYS, says)
}

/// Whether it was refused for how it looks.
fn is_refused<T>(answer: std::result::Result<T, Error>) -> bool {
    answer.is_err_and(|error| error.to_string().contains("put something before it"))
}

async fn p6_e10_a_value_that_looks_sealed_is_refused_where_it_comes_in(db: Db) {
    let named = |name: &'static str| Name::new(name).expect("a name");
    let value = || Payload::encode(&lie()).expect("a text");
    for keys in [None, Some(keys())] {
        let process = match keys {
            None => db.start(set_up).await,
            Some(keys) => db.start(|engine| set_up(engine).sealed(keys)).await,
        };
        assert!(is_refused(process.start(SAYS, &lie()).await));
        assert!(is_refused(
            process.start_named(named("says"), value()).await
        ));
        assert!(is_refused(
            process.send_named(named("queue"), value()).await
        ));
        let run = process.start(SAYS, &"wait".to_owned()).await.unwrap().id();
        assert!(is_refused(process.signal(run, GO, &lie()).await));
        assert!(is_refused(
            process.signal_named(run, named("go"), value()).await
        ));
        assert!(is_refused(process.offer_named(named("go"), value()).await));
        assert!(is_refused(
            process.publish_named(named("topic"), value()).await
        ));
        let patch = json!({ "a": { "b": lie() } });
        assert!(is_refused(process.patch_state(run, &patch, None).await));
        // Within a value it is nobody's business.
        let within = vec![lie()];
        process
            .signal_named(run, named("other"), Payload::encode(&within).unwrap())
            .await
            .unwrap();
        process.signal(run, GO, &"go".to_owned()).await.unwrap();
        until("it has ended", async || {
            process.run(run).await.unwrap().row.state == RunState::Completed
        })
        .await;
        process.shutdown().await;
    }
}

async fn p6_e10_what_looks_sealed_in_a_run_is_its_own_failure(db: Db) {
    let process = db.start(set_up).await;
    for what in ["effect", "state", "output"] {
        let run = process.start(SAYS, &what.to_owned()).await.unwrap().id();
        until("an operator is asked", async || {
            process.run(run).await.unwrap().row.state == RunState::Parked
        })
        .await;
    }
    let mut run = process.start(SAYS, &"failure".to_owned()).await.unwrap();
    match soon("its end", run.result()).await {
        Err(Error::Failed { failure, .. }) => {
            assert_eq!(failure.message, format!(" {}", lie()));
            let data = failure.data.expect("it came with some");
            assert_eq!(data.decode::<String>().unwrap(), format!(" {}", lie()));
        }
        other => panic!("{other:?}"),
    }
}
