//! Runs that wait for a condition on their own state, which others patch.

use std::time::Duration;

use roundel::future::{Either, join, select};
use roundel::{
    Cx, Entry, Error, Failure, Name, Patched, Payload, Result, RunState, Signal, Workflow,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::rounds::sound::assert_sound;
use crate::support::{Db, Process, all, soon, until};

/// What a payment waits for, in any order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Papers {
    signed: bool,
    paid: bool,
    note: String,
}

const PAPERS: Workflow<String, Papers> = Workflow::named("papers");
const GO: Signal<()> = Signal::named("go");
const LONG: Duration = Duration::from_secs(3600);

all![
    co_22_a_condition_that_holds_passes_at_once,
    co_22_a_patch_that_makes_it_true_wakes_the_run,
    co_22_a_patch_while_nobody_waits_changes_the_state_only,
    co_22_unrelated_patches_do_not_restart_the_time_out,
    co_22_a_time_out_rolls_back_or_parks_as_declared,
    co_22_what_was_patched_while_no_process_ran_is_seen_and_replayed,
    co_22_a_run_that_changes_its_own_state_wakes_itself,
    co_22_a_condition_that_is_not_polled_holds_nothing_up,
    co_22_no_patch_is_lost_between_the_look_and_the_wait,
    co_22_a_run_that_waits_for_a_condition_can_be_cancelled,
    co_22_a_state_that_does_not_fit_fails_the_call,
];

fn complete(papers: &Papers) -> bool {
    papers.signed && papers.paid
}

/// Does what its input says.
async fn papers(cx: Cx, plan: String) -> Result<Papers> {
    let undone = |_| async { Ok::<_, Failure>(()) };
    match plan.as_str() {
        "ready" => {
            let ready = json!({ "signed": true, "paid": true });
            cx.set_state(&ready).await?;
        }
        "late" => cx.wait(GO).await?,
        _ => {}
    }
    cx.effect("file", |_| async { Ok::<_, Failure>(()) })
        .undo(undone)
        .await?;
    match plan.as_str() {
        "rolls back" => cx.wait_until(complete).within(LONG).await,
        "parks" => cx.wait_until(complete).within(LONG).or_park().await,
        "itself" => {
            let signs = async {
                cx.merge_state(&json!({ "signed": true })).await?;
                cx.sleep(Duration::from_millis(1)).await;
                cx.merge_state(&json!({ "paid": true })).await
            };
            let (papers, signed) = join(cx.wait_until(complete), signs).await;
            signed.and(papers)
        }
        "unpolled" => {
            let paid = cx.wait_until(|papers: &Papers| papers.paid);
            match select(paid, cx.wait(GO)).await {
                Either::Left((papers, _)) => papers,
                Either::Right((went, paid)) => {
                    went?;
                    cx.wait(GO).await?;
                    paid.await
                }
            }
        }
        "twice" => {
            let seen = cx.wait_until(complete).await?;
            cx.wait(GO).await?;
            Ok(seen)
        }
        _ => cx.wait_until(complete).await,
    }
}

async fn start(db: &Db) -> Process {
    db.start(|engine| engine.register(PAPERS, papers)).await
}

async fn waits(process: &Process, key: &str) {
    until("it waits", || async {
        let row = process.run(key).await.unwrap().row;
        row.state == RunState::Waiting && row.waits > 0
    })
    .await;
}

async fn patch(process: &Process, key: &str, patch: serde_json::Value) {
    let patched = process.patch_state(key, &patch, None).await.unwrap();
    assert!(matches!(patched, Patched::Changed(_)), "{patched:?}");
}

/// The entries of the run's journal.
async fn entries(process: &Process, key: &str) -> Vec<Entry> {
    process.journal(key).await.unwrap()
}

async fn co_22_a_condition_that_holds_passes_at_once(db: Db) {
    let process = start(&db).await;
    let mut run = process
        .start(PAPERS, &"ready".to_owned())
        .key("p")
        .await
        .unwrap();
    let seen = soon("its end", run.result()).await.unwrap();
    assert!(complete(&seen));
    let waited = |entry: &Entry| format!("{entry:?}").starts_with("Begun { call: 3");
    assert!(
        !entries(&process, "p").await.iter().any(waited),
        "no wait began"
    );
    assert_sound(&db).await;
}

async fn co_22_a_patch_that_makes_it_true_wakes_the_run(db: Db) {
    let process = start(&db).await;
    let mut run = process
        .start(PAPERS, &String::new())
        .key("p")
        .await
        .unwrap();
    waits(&process, "p").await;
    let before = entries(&process, "p").await;
    for note in ["a", "b", "c"] {
        patch(&process, "p", json!({ "note": note })).await;
        waits(&process, "p").await;
    }
    patch(&process, "p", json!({ "signed": true })).await;
    until("it has looked", || async {
        let row = process.run("p").await.unwrap().row;
        row.state == RunState::Waiting && row.matched == 0
    })
    .await;
    assert_eq!(
        entries(&process, "p").await,
        before,
        "looking in vain is not recorded"
    );
    // Only if nobody was faster: the fifth version is what it becomes.
    let late = process
        .patch_state("p", &json!({ "paid": true }), Some(3))
        .await;
    assert_eq!(late.unwrap(), Patched::VersionIs(4));
    let set = process
        .patch_state("p", &json!({ "paid": true }), Some(4))
        .await;
    assert!(matches!(set.unwrap(), Patched::Changed(_)));
    let seen = soon("its end", run.result()).await.unwrap();
    assert_eq!((seen.note.as_str(), complete(&seen)), ("c", true));
    assert_sound(&db).await;
}

async fn co_22_a_patch_while_nobody_waits_changes_the_state_only(db: Db) {
    let process = start(&db).await;
    let mut run = process
        .start(PAPERS, &"late".to_owned())
        .key("p")
        .await
        .unwrap();
    waits(&process, "p").await;
    let before = process.run("p").await.unwrap().row;
    patch(&process, "p", json!({ "signed": true, "paid": true })).await;
    let after = process.run("p").await.unwrap().row;
    let told = |row: &roundel_core::RunRow| (row.state, row.epoch, row.head, row.mail, row.news_at);
    assert_eq!(told(&after), told(&before));
    process.signal("p", GO, &()).await.unwrap();
    assert!(complete(&soon("its end", run.result()).await.unwrap()));
    assert_sound(&db).await;
}

async fn co_22_unrelated_patches_do_not_restart_the_time_out(db: Db) {
    let db = db.with_manual_clock();
    let process = start(&db).await;
    let run = process
        .start(PAPERS, &"rolls back".to_owned())
        .key("p")
        .await;
    let mut run = run.unwrap();
    waits(&process, "p").await;
    let due = process.run("p").await.unwrap().row.timer_at;
    for note in ["a", "b"] {
        db.advance(LONG / 3);
        patch(&process, "p", json!({ "note": note })).await;
        until("it has looked", || async {
            let row = process.run("p").await.unwrap().row;
            row.state == RunState::Waiting && row.matched == 0
        })
        .await;
        assert_eq!(process.run("p").await.unwrap().row.timer_at, due);
    }
    db.advance(LONG / 3);
    let late = soon("its end", run.result()).await.unwrap_err();
    assert!(late.to_string().contains("in time"), "{late}");
    assert_sound(&db).await;
}

async fn co_22_a_time_out_rolls_back_or_parks_as_declared(db: Db) {
    let db = db.with_manual_clock();
    let process = start(&db).await;
    for plan in ["rolls back", "parks"] {
        process
            .start(PAPERS, &plan.to_owned())
            .key(plan)
            .await
            .unwrap();
        waits(&process, plan).await;
    }
    db.advance(LONG);
    let stands = async |key: &str, state| {
        until("where it stands", || async {
            process.run(key).await.unwrap().row.state == state
        })
        .await;
    };
    stands("rolls back", RunState::RolledBack).await;
    stands("parks", RunState::Parked).await;
    // As long as nothing has changed, it is parked again.
    let before = process.run("parks").await.unwrap().row.epoch;
    process.resume("parks").await.unwrap();
    until("it is parked again", || async {
        let row = process.run("parks").await.unwrap().row;
        row.state == RunState::Parked && row.epoch > before
    })
    .await;
    patch(&process, "parks", json!({ "signed": true, "paid": true })).await;
    process.resume("parks").await.unwrap();
    stands("parks", RunState::Completed).await;
    assert_sound(&db).await;
}

async fn co_22_what_was_patched_while_no_process_ran_is_seen_and_replayed(db: Db) {
    let db = db.with_manual_clock();
    let process = start(&db).await;
    process
        .start(PAPERS, &"twice".to_owned())
        .key("p")
        .await
        .unwrap();
    waits(&process, "p").await;
    process.crash();
    let client = db.start(|engine| engine).await;
    let first = json!({ "signed": true, "paid": true, "note": "first" });
    client.patch_state("p", &first, None).await.unwrap();
    db.advance(LONG);
    let process = start(&db).await;
    until("it has passed", || {
        db.advance(Duration::from_secs(1));
        async {
            let row = process.run("p").await.unwrap().row;
            row.state == RunState::Waiting && row.matched == 0
        }
    })
    .await;
    process.crash();
    // What it saw is what it saw.
    let later = json!({ "paid": false, "note": "later" });
    client.patch_state("p", &later, None).await.unwrap();
    client.signal("p", GO, &()).await.unwrap();
    db.advance(LONG);
    let process = start(&db).await;
    let mut run = process.handle(PAPERS, "p").await.unwrap();
    let seen = tokio::spawn(async move { run.result().await });
    until("its end", || {
        db.advance(Duration::from_secs(1));
        std::future::ready(seen.is_finished())
    })
    .await;
    assert_eq!(seen.await.unwrap().unwrap().note, "first");
    assert_sound(&db).await;
}

async fn co_22_a_run_that_changes_its_own_state_wakes_itself(db: Db) {
    let process = start(&db).await;
    let run = process.start(PAPERS, &"itself".to_owned()).await;
    let mut run = run.unwrap();
    assert!(complete(&soon("its end", run.result()).await.unwrap()));
    assert_sound(&db).await;
}

async fn co_22_a_condition_that_is_not_polled_holds_nothing_up(db: Db) {
    let process = start(&db).await;
    let run = process.start(PAPERS, &"unpolled".to_owned()).key("p").await;
    let mut run = run.unwrap();
    waits(&process, "p").await;
    process.signal("p", GO, &()).await.unwrap();
    let waits_alone = |waits: u32| {
        let process = &process;
        move || async move {
            let row = process.run("p").await.unwrap().row;
            row.state == RunState::Waiting && row.waits == waits && row.matched == 0
        }
    };
    until("the first is passed over", waits_alone(2)).await;
    let before = process.run("p").await.unwrap().row.epoch;
    patch(&process, "p", json!({ "paid": true })).await;
    until("it has looked, and waits", || async {
        let row = process.run("p").await.unwrap().row;
        row.epoch > before && waits_alone(2)().await
    })
    .await;
    process.signal("p", GO, &()).await.unwrap();
    assert!(soon("its end", run.result()).await.unwrap().paid);
    assert_sound(&db).await;
}

async fn co_22_no_patch_is_lost_between_the_look_and_the_wait(db: Db) {
    let process = start(&db).await;
    let keys: Vec<String> = (0..12).map(|number| format!("p{number}")).collect();
    for key in &keys {
        process
            .start(PAPERS, &String::new())
            .key(key.clone())
            .await
            .unwrap();
    }
    let patches = keys.iter().flat_map(|key| {
        ["note", "signed", "paid"].map(|field| {
            let client = process.client();
            let key = key.clone();
            let value = match field {
                "note" => json!({ "note": "x" }),
                field => json!({ field: true }),
            };
            let patched = async move { client.patch_state(key, &value, None).await };
            (field, tokio::spawn(patched))
        })
    });
    let patches: Vec<_> = patches.collect();
    for (field, patched) in patches {
        match patched.await.unwrap().unwrap() {
            Patched::Changed(_) => {}
            // The run needs no note to end.
            Patched::TargetEnded(_) if field == "note" => {}
            other => panic!("{field}: {other:?}"),
        }
    }
    for key in &keys {
        let mut run = process.handle(PAPERS, key.clone()).await.unwrap();
        assert!(complete(&soon("its end", run.result()).await.unwrap()));
    }
    assert_sound(&db).await;
}

async fn co_22_a_run_that_waits_for_a_condition_can_be_cancelled(db: Db) {
    let process = start(&db).await;
    let mut run = process
        .start(PAPERS, &String::new())
        .key("p")
        .await
        .unwrap();
    waits(&process, "p").await;
    process.cancel("p").await.unwrap();
    soon("its end", run.result()).await.unwrap_err();
    let row = process.run("p").await.unwrap().row;
    assert_eq!((row.state, row.waits), (RunState::Cancelled, 0));
    let late = process
        .patch_state("p", &json!({ "paid": true }), None)
        .await;
    assert_eq!(late.unwrap(), Patched::TargetEnded(RunState::Cancelled));
    assert_sound(&db).await;
}

async fn co_22_a_state_that_does_not_fit_fails_the_call(db: Db) {
    let process = start(&db).await;
    process
        .start(PAPERS, &String::new())
        .key("p")
        .await
        .unwrap();
    waits(&process, "p").await;
    patch(&process, "p", json!({ "paid": "perhaps" })).await;
    until("it is parked", || async {
        process.run("p").await.unwrap().row.state == RunState::Parked
    })
    .await;
    // Mended, it goes on: what did not fit was not recorded.
    patch(&process, "p", json!({ "paid": true, "signed": true })).await;
    process.resume("p").await.unwrap();
    let mut run = process.handle(PAPERS, "p").await.unwrap();
    assert!(complete(&soon("its end", run.result()).await.unwrap()));
    let name = Name::new("roundel.state").unwrap();
    let sent = process
        .client()
        .signal_named("p", name, Payload::null())
        .await;
    assert!(matches!(sent, Err(Error::Refused(_))), "{sent:?}");
    assert_sound(&db).await;
}
