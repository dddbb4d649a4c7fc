//! Workflows that call commands and wait for the reply, and what operators and crashes do to them.

use std::sync::atomic::Ordering;
use std::time::Duration;

use roundel::{Attempt, Cx, Failure, Result, RunState, Workflow, limits};

use super::{BROKEN, CHARGE, REFUSES, Till, WELL, parked};
use crate::rounds::sound::assert_sound;
use crate::support::{Db, Process, all, soon, until};

const BUY: Workflow<u32, (String, String)> = Workflow::named("buy");

all![
    co_05_a_command_whose_process_died_is_taken_up_when_its_lease_ends,
    co_05_a_handler_may_take_longer_than_a_lease,
    co_20_a_business_failure_undoes_what_was_done_before,
    co_20_a_caller_goes_on_with_what_the_operator_decides,
    co_21_after_a_crash_nothing_is_done_again_and_side_values_are_the_same,
    co_23_two_patches_at_once_are_both_there_and_an_old_version_is_refused,
    co_26_one_bad_run_does_not_stop_the_others,
];

/// Counts what was held and let go in the till's second counter.
async fn buy(cx: Cx, till: Till, amount: u32) -> Result<(String, String)> {
    let (held, freed) = (till.clone(), till.clone());
    let hold = cx.effect("hold", move |_: Attempt| {
        held.held.fetch_add(1, Ordering::Relaxed);
        async { Ok::<_, Failure>(()) }
    });
    let free = move |_| {
        freed.held.fetch_add(100, Ordering::Relaxed);
        async { Ok::<_, Failure>(()) }
    };
    hold.undo(free).await?;
    let number = cx.uuid().await?.to_string();
    let paid = cx.call(CHARGE, &amount).key("it").await?;
    Ok((number, paid))
}

async fn start(db: &Db, till: &Till) -> Process {
    let (charge, buys) = (till.clone(), till.clone());
    let set_up = db.start(|engine| {
        let handler = move |_: Attempt, amount| {
            let till = charge.clone();
            async move { till.handle(amount) }
        };
        // However fast time passes in a test, no lease of this process ends.
        let engine = engine.lease(limits::LEASE).handle(CHARGE, handler);
        engine.register(BUY, move |cx, amount| buy(cx, buys.clone(), amount))
    });
    set_up.await
}

async fn until_parked(process: &Process) {
    until("it is parked", || async {
        !parked(process).await.is_empty()
    })
    .await;
}

async fn co_20_a_business_failure_undoes_what_was_done_before(db: Db) {
    let till = Till::new(REFUSES);
    let process = start(&db, &till).await;
    let mut run = process.start(BUY, &7).await.unwrap();
    let failed = soon("its end", run.result()).await.unwrap_err();
    assert!(failed.to_string().contains("no money"), "{failed}");
    let row = process.run(&run).await.unwrap().row;
    assert_eq!(row.state, RunState::RolledBack);
    assert_eq!(till.held.load(Ordering::Relaxed), 101, "held and let go");
    assert_sound(&db).await;
}

async fn co_20_a_caller_goes_on_with_what_the_operator_decides(db: Db) {
    let till = Till::new(BROKEN);
    let process = start(&db, &till).await;
    let mut run = process.start(BUY, &7).await.unwrap();
    until_parked(&process).await;
    process.complete("charge:it", &"in cash").await.unwrap();
    let (_, paid) = soon("its end", run.result()).await.unwrap();
    assert_eq!(paid, "in cash");
    process.delete(&run).await.unwrap();
    // Who is told that it will not be done undoes what was done before.
    let mut run = process.start(BUY, &7).await.unwrap();
    until_parked(&process).await;
    process.cancel("charge:it").await.unwrap();
    soon("its end", run.result()).await.unwrap_err();
    let row = process.run(&run).await.unwrap().row;
    assert_eq!(row.state, RunState::RolledBack);
    assert_eq!(till.held.load(Ordering::Relaxed), 102, "let go once");
    assert_sound(&db).await;
}

async fn co_21_after_a_crash_nothing_is_done_again_and_side_values_are_the_same(db: Db) {
    let db = db.with_manual_clock();
    let till = Till::new(BROKEN);
    let process = start(&db, &till).await;
    let run = process.start(BUY, &7).key("b").await.unwrap().id();
    until_parked(&process).await;
    let recorded = serde_json::to_string(&process.journal(run).await.unwrap()).unwrap();
    process.crash();
    till.mood.store(WELL, Ordering::Relaxed);
    db.advance(Duration::from_secs(3600));
    let process = start(&db, &till).await;
    process.resume("charge:it").await.unwrap();
    let mut run = process.handle(BUY, "b").await.unwrap();
    let result = tokio::spawn(async move { run.result().await });
    // The process that is gone has a head start.
    until("its end", || {
        db.advance(Duration::from_secs(1));
        std::future::ready(result.is_finished())
    })
    .await;
    let (number, paid) = result.await.unwrap().unwrap();
    assert_eq!(paid, "charged 7");
    assert!(recorded.contains(&number), "as it was recorded");
    assert_eq!(till.held.load(Ordering::Relaxed), 1, "held once");
    assert_eq!(till.tries(), 2);
    assert_sound(&db).await;
}

async fn co_05_a_command_whose_process_died_is_taken_up_when_its_lease_ends(db: Db) {
    let db = db.with_manual_clock();
    let stuck = |_: Attempt, _: u32| std::future::pending::<Result<String>>();
    let process = db.start(|engine| engine.handle(CHARGE, stuck)).await;
    process.send(CHARGE, &7).key("it").await.unwrap();
    until("it is in hand", || async {
        let row = process.run("charge:it").await.unwrap().row;
        row.state == RunState::Running && row.head > 1
    })
    .await;
    process.crash();
    let till = Till::new(WELL);
    let process = start(&db, &till).await;
    let mut sent = process.sent(CHARGE, "it").await.unwrap();
    let reply = tokio::spawn(async move { sent.result().await });
    until("it is answered", || {
        db.advance(Duration::from_secs(1));
        std::future::ready(reply.is_finished())
    })
    .await;
    assert_eq!(reply.await.unwrap().unwrap(), "charged 7");
    assert_sound(&db).await;
}

async fn co_05_a_handler_may_take_longer_than_a_lease(db: Db) {
    let lease = Duration::from_millis(600);
    let slow = move |_: Attempt, _: u32| async move {
        tokio::time::sleep(2 * lease).await;
        Ok::<_, Failure>("at last".to_owned())
    };
    let set_up = db.start(|engine| engine.lease(lease).handle(CHARGE, slow));
    let process = set_up.await;
    let mut sent = process.send(CHARGE, &7).await.unwrap();
    assert_eq!(soon("reply", sent.result()).await.unwrap(), "at last");
}

async fn co_23_two_patches_at_once_are_both_there_and_an_old_version_is_refused(db: Db) {
    let till = Till::new(BROKEN);
    let process = start(&db, &till).await;
    let run = process.start(BUY, &7).await.unwrap();
    until_parked(&process).await;
    let (a, b) = (serde_json::json!({"a": 1}), serde_json::json!({"b": 2}));
    let patched = tokio::join!(
        process.patch_state(&run, &a, None),
        process.patch_state(&run, &b, None)
    );
    assert!(patched.0.is_ok() && patched.1.is_ok(), "{patched:?}");
    type State = std::collections::BTreeMap<String, u32>;
    let (state, version) = process.state::<State>(&run).await.unwrap().unwrap();
    assert_eq!((state["a"], state["b"], version), (1, 2, 2));
    let gone = serde_json::json!({"a": null});
    let old = process.patch_state(&run, &gone, Some(1)).await.unwrap();
    assert_eq!(old, roundel::Patched::VersionIs(2));
    process.patch_state(&run, &gone, Some(2)).await.unwrap();
    let (state, _) = process.state::<State>(&run).await.unwrap().unwrap();
    assert_eq!(state.keys().collect::<Vec<_>>(), ["b"], "null takes it out");
}

async fn co_26_one_bad_run_does_not_stop_the_others(db: Db) {
    let handler = |_: Attempt, amount: u32| async move {
        assert_ne!(amount, 3, "this one breaks whoever handles it");
        Ok::<_, Failure>(amount.to_string())
    };
    let process = db.start(|engine| engine.handle(CHARGE, handler)).await;
    for amount in 1..=5 {
        let send = process.send(CHARGE, &amount).key(amount.to_string());
        send.await.unwrap();
    }
    for amount in [1, 2, 4, 5_u32] {
        let mut sent = process.sent(CHARGE, &amount.to_string()).await.unwrap();
        let reply = soon("a reply", sent.result()).await.unwrap();
        assert_eq!(reply, amount.to_string());
    }
    until_parked(&process).await;
    assert_eq!(parked(&process).await.len(), 1);
}
