//! Processes that lack a key: runs are given back and neither failed nor parked, and values are
//! told to be sealed instead of being taken for something else.

use std::future::ready;
use std::time::Duration;

use roundel::{
    Cx, EngineBuilder, Error, Keys, Name, Payload, Result, RunState, Signal, Unfit, Wanted,
    Workflow, limits, masked,
};
use roundel_core::{SEALED, WorkerId};

use super::keys;
use crate::support::{Db, all, soon, until};

all![
    p6_a_run_that_cannot_be_read_is_given_back_and_goes_on_where_the_key_is,
    p6_a_message_that_cannot_be_read_is_kept_for_who_has_the_key,
    p6_a_claim_from_elsewhere_ends_although_it_finds_what_cannot_be_read,
    p6_without_the_key_values_are_told_to_be_sealed,
    p6_an_engine_that_checks_first_does_not_start_without_the_key,
];

const WAITS: Workflow<String, String> = Workflow::named("waits");
const GO: Signal<String> = Signal::named("go");

async fn waits(cx: Cx, input: String) -> Result<String> {
    cx.set_state(&serde_json::json!({ "input": &input }))
        .await?;
    let said = cx.wait(GO).await?;
    assert!(!said.starts_with(SEALED) && !input.starts_with(SEALED));
    Ok(format!("{input} {said}"))
}

fn set_up(engine: EngineBuilder) -> EngineBuilder {
    engine.register(WAITS, waits)
}

/// Others, without the one that sealed.
fn others() -> Keys {
    Keys::parse(&Keys::generate("another")).expect("new keys")
}

async fn p6_a_run_that_cannot_be_read_is_given_back_and_goes_on_where_the_key_is(db: Db) {
    let db = db.with_manual_clock();
    let first = db.start(|engine| set_up(engine).sealed(keys())).await;
    let run = first.start(WAITS, &"a".to_owned()).await.unwrap().id();
    until("it waits", async || {
        first.run(run).await.unwrap().row.state == RunState::Waiting
    })
    .await;
    first.shutdown().await;
    let client = db.start(|engine| engine.sealed(keys())).await;
    client.signal(run, GO, &"b".to_owned()).await.unwrap();
    client.shutdown().await;
    // It is left to who had it in memory for a moment.
    db.advance(limits::HEAD_START);
    for keys in [None, Some(others())] {
        let lacking = match keys {
            None => db.start(set_up).await,
            Some(keys) => db.start(|engine| set_up(engine).sealed(keys)).await,
        };
        for times in 1..=2 {
            until(&format!("it is given back {times}"), async || {
                lacking.metrics().runs_unread >= times
            })
            .await;
            // So long it is kept.
            db.advance(Duration::from_secs(6));
        }
        let row = lacking.run(run).await.unwrap().row;
        assert!(
            !row.state.has_ended() && row.state != RunState::Parked,
            "{row:?}"
        );
        assert_eq!(row.crashes, 0);
        db.meanwhile("it stops", lacking.shutdown()).await;
    }
    let second = db.start(|engine| set_up(engine).sealed(keys())).await;
    let mut handle = second.handle(WAITS, run).await.unwrap();
    let said = db.meanwhile("its end", handle.result()).await.unwrap();
    assert_eq!(said, "a b");
    second.shutdown().await;
}

async fn p6_a_claim_from_elsewhere_ends_although_it_finds_what_cannot_be_read(db: Db) {
    let db = db.with_manual_clock();
    let sender = db.start(|engine| engine.sealed(keys())).await;
    let queue = Name::new("work").expect("a name");
    let payload = Payload::encode("a").expect("a text");
    sender.send_named(queue.clone(), payload).await.unwrap();
    let lacking = db.start(|engine| engine).await;
    let worker = lacking.remote_worker(WorkerId::from_bytes([3; 16]), "elsewhere".to_owned());
    let wanted = Wanted {
        queues: vec![queue],
        limit: 1,
        lease: Duration::from_secs(30),
    };
    let claimed = db
        .meanwhile("its answer", worker.claim(&wanted, ready(())))
        .await;
    assert_eq!(claimed.unwrap().len(), 0);
    assert_eq!(lacking.metrics().runs_unread, 1);
}

async fn p6_a_message_that_cannot_be_read_is_kept_for_who_has_the_key(db: Db) {
    let db = db.with_manual_clock();
    let plain = db.start(set_up).await;
    let client = db.start(|engine| engine.sealed(keys())).await;
    let run = plain.start(WAITS, &"a".to_owned()).await.unwrap().id();
    until("it waits", async || {
        plain.run(run).await.unwrap().row.state == RunState::Waiting
    })
    .await;
    client.signal(run, GO, &"b".to_owned()).await.unwrap();
    until("it is given back", async || {
        plain.metrics().runs_unread >= 1
    })
    .await;
    assert!(!plain.run(run).await.unwrap().row.state.has_ended());
    plain.crash();
    db.advance(limits::LEASE);
    let second = db.start(|engine| set_up(engine).sealed(keys())).await;
    let mut handle = second.handle(WAITS, run).await.unwrap();
    let said = db.meanwhile("its end", handle.result()).await.unwrap();
    assert_eq!(
        said, "a b",
        "what was begun in the clear is read all the same"
    );
    for process in [client, second] {
        process.shutdown().await;
    }
}

async fn p6_without_the_key_values_are_told_to_be_sealed(db: Db) {
    let process = db.start(|engine| set_up(engine).sealed(keys())).await;
    let mut run = process.start(WAITS, &"a".to_owned()).await.unwrap();
    process.signal(run.id(), GO, &"b".to_owned()).await.unwrap();
    assert_eq!(soon("its end", run.result()).await.unwrap(), "a b");
    let nightly = WAITS
        .timed(&"c".to_owned())
        .every(Duration::from_secs(3600));
    process.schedule("hourly").set(nightly).await.unwrap();
    for lacking in [
        db.start(|engine| engine).await,
        db.start(|engine| engine.sealed(others())).await,
    ] {
        let mut handle = lacking.handle(WAITS, run.id()).await.unwrap();
        let told = soon("its end", handle.result()).await.unwrap_err();
        let state = lacking
            .state::<serde_json::Value>(run.id())
            .await
            .unwrap_err();
        let schedule = lacking.schedule("hourly").show().await.unwrap_err();
        for error in [told, state, schedule] {
            let error = error.to_string();
            assert!(
                error.contains("key `one`") && error.contains("--key-file"),
                "{error}"
            );
            assert!(!error.contains(SEALED), "{error}");
        }
        let rounds = lacking.rounds(run.id(), 1).await.unwrap();
        let shown = String::from_utf8(rounds[0].entries.clone()).unwrap();
        assert!(
            masked(&shown).contains(r#""input":"encrypted (key one)""#),
            "{shown}"
        );
        lacking.shutdown().await;
    }
    process.shutdown().await;
}

async fn p6_an_engine_that_checks_first_does_not_start_without_the_key(db: Db) {
    let process = db.start(|engine| set_up(engine).sealed(keys())).await;
    let run = process.start(WAITS, &"a".to_owned()).await.unwrap().id();
    until("it waits", async || {
        process.run(run).await.unwrap().row.state == RunState::Waiting
    })
    .await;
    process.shutdown().await;
    for unfit in [Unfit::Refuse, Unfit::Park] {
        let store = db.open();
        let engine = set_up(roundel::Engine::over(store.clone())).verified(unfit);
        let refused = engine.start().await.unwrap_err();
        assert!(matches!(refused, Error::Setup(_)), "{refused}");
        assert!(refused.to_string().contains("key `one`"), "{refused}");
        roundel_store::Store::close(&*store);
    }
    let checked = db
        .start(|engine| set_up(engine).sealed(keys()).verified(Unfit::Refuse))
        .await;
    assert_eq!(checked.run(run).await.unwrap().row.state, RunState::Waiting);
    checked.shutdown().await;
}
