//! Code that no longer matches the journal: parked with both sides shown, nothing touched, and on
//! again once mended.

use std::time::Duration;

use roundel::{Class, Cx, Entry, Error, Failure, Result, RunId, RunState, Signal, Workflow};

use super::sound::assert_sound;
use crate::support::{Db, Process, all, soon, until};

const RUN: Workflow<u32, u32> = Workflow::named("run");
const GO: Signal<u32> = Signal::named("go");

all![
    ro_22_a_change_of_code_parks_the_run_and_shows_both_sides,
    ro_22_what_is_parked_stays_so_until_the_code_is_mended,
    ro_22_other_runs_are_not_affected,
    ro_22_code_that_matches_so_far_goes_on,
];

/// Which code runs.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Code {
    Old,
    OtherName,
    OtherKind,
    Inserted,
    Removed,
    Swapped,
    OtherBranch,
    Returns,
    Longer,
}

async fn run(cx: Cx, code: Code, n: u32) -> Result<u32> {
    let effect = |name: &'static str| cx.effect(name, move |_| async move { Ok::<_, Failure>(n) });
    if code == Code::Returns {
        return Ok(0);
    }
    if code == Code::Inserted {
        cx.now().await?;
    }
    let mut sum = 0;
    if code == Code::Swapped {
        sum += cx.step("second", |_| async { Ok::<_, Failure>(1) }).await?;
    }
    match code {
        Code::OtherKind => sum += cx.step("first", |_| async { Ok::<_, Failure>(1) }).await?,
        Code::OtherName => sum += effect("1st").await?,
        Code::Removed => {}
        _ => sum += effect("first").await?,
    }
    if code != Code::Swapped {
        sum += cx.step("second", |_| async { Ok::<_, Failure>(1) }).await?;
    }
    match code {
        Code::OtherBranch => sum += cx.child(RUN, &1).await?,
        _ => sum += cx.wait(GO).await?,
    }
    if code == Code::Longer {
        cx.sleep(Duration::from_millis(1)).await;
        sum += effect("third").await?;
    }
    Ok(sum)
}

async fn start(db: &Db, code: Code) -> Process {
    let run = move |cx, n| run(cx, code, n);
    db.start(|engine| engine.register(RUN, run)).await
}

/// A run of the old code that waits for its signal, and its journal.
async fn waiting(db: &Db) -> (RunId, Vec<Entry>) {
    let process = start(db, Code::Old).await;
    let run = process.start(RUN, &5).await.unwrap().id();
    until("it waits", || async {
        process.run(run).await.unwrap().row.waits == 1
    })
    .await;
    let journal = process.journal(run).await.unwrap();
    process.shutdown().await;
    (run, journal)
}

async fn ro_22_a_change_of_code_parks_the_run_and_shows_both_sides(db: Db) {
    for (code, recorded, asked) in [
        (Code::OtherName, "effect `first`", "effect `1st`"),
        (Code::OtherKind, "effect `first`", "step `first`"),
        (Code::Inserted, "effect `first`", "record `now`"),
        (Code::Removed, "effect `first`", "step `second`"),
        (Code::Swapped, "effect `first`", "step `second`"),
        (Code::OtherBranch, "wait `go`", "child `run`"),
        (Code::Returns, "effect `first`", "nothing more: it returned"),
    ] {
        let (run, before) = waiting(&db).await;
        let process = start(&db, code).await;
        process.signal(run, GO, &2).await.unwrap();
        let mut handle = process.handle(RUN, run).await.unwrap();
        let result = soon("it parks", handle.result()).await;
        let Err(Error::Parked { reason, .. }) = result else {
            panic!("{code:?}: {result:?}")
        };
        assert_eq!(
            (reason.class, &*reason.code),
            (Class::Permanent, "diverged")
        );
        let both = format!("the journal has {recorded}, the code asked for {asked};");
        assert!(reason.message.contains(&both), "{code:?}: {reason}");
        assert!(reason.message.contains(&run.to_string()), "{reason}");
        assert_eq!(process.journal(run).await.unwrap(), before, "{code:?}");
        until("it is counted", || async {
            process.metrics().runs_parked == 1
        })
        .await;
        process.shutdown().await;
        // The signal is still there, and so is everything else.
        let mended = start(&db, Code::Old).await;
        mended.resume(run).await.unwrap();
        let mut handle = mended.handle(RUN, run).await.unwrap();
        assert_eq!(soon("the end", handle.result()).await.unwrap(), 8);
        mended.shutdown().await;
    }
    assert_sound(&db).await;
}

async fn ro_22_what_is_parked_stays_so_until_the_code_is_mended(db: Db) {
    let (run, before) = waiting(&db).await;
    let process = start(&db, Code::OtherName).await;
    process.signal(run, GO, &2).await.unwrap();
    for _ in 0..3 {
        let mut handle = process.handle(RUN, run).await.unwrap();
        let result = soon("it parks", handle.result()).await;
        assert!(matches!(result, Err(Error::Parked { .. })), "{result:?}");
        assert_eq!(process.journal(run).await.unwrap(), before);
        let parked = process.runs().in_state(RunState::Parked).fetch().await;
        assert_eq!(parked.unwrap().items.len(), 1, "an operator sees it");
        process.resume(run).await.unwrap();
    }
    assert_sound(&db).await;
}

async fn ro_22_other_runs_are_not_affected(db: Db) {
    let (run, _) = waiting(&db).await;
    let process = start(&db, Code::OtherName).await;
    process.signal(run, GO, &2).await.unwrap();
    let mut other = process.start(RUN, &7).await.unwrap();
    process.signal(&other, GO, &1).await.unwrap();
    assert_eq!(soon("another", other.result()).await.unwrap(), 9);
    let mut handle = process.handle(RUN, run).await.unwrap();
    soon("it parks", handle.result()).await.unwrap_err();
    let error = process.resume(&other).await.unwrap_err();
    assert!(
        error.to_string().contains("completed, not parked"),
        "{error}"
    );
    assert_sound(&db).await;
}

async fn ro_22_code_that_matches_so_far_goes_on(db: Db) {
    let (run, _) = waiting(&db).await;
    let process = start(&db, Code::Longer).await;
    process.signal(run, GO, &2).await.unwrap();
    let mut handle = process.handle(RUN, run).await.unwrap();
    assert_eq!(soon("the end", handle.result()).await.unwrap(), 13);
    assert_sound(&db).await;
}
