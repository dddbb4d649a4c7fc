//! Verified deploys: what would become of runs in flight with other code, without a trace of having
//! looked.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use roundel::{
    Begun, Cx, Divergence, Entry, Error, Failure, Judged, Result, RunId, RunState, Signal, Tally,
    Tx, Undo, Unfit, Verdict, Verdicts, Workflow,
};
use roundel_core::{Claim, Lane, Name, Op, Register, Release, Reply, Round, Then, Timestamp};
use roundel_store::ask;

use crate::support::{Db, Process, all, may_seal, soon, until};

const RUN: Workflow<u32, u32> = Workflow::named("run");
const SECOND: Workflow<u32, u32> = Workflow::named("run").version(2);
const BACK: Workflow<u32, u32> = Workflow::named("back");
const TEXT: Workflow<String, u32> = Workflow::named("run");
const GO: Signal<u32> = Signal::named("go");
const FREE: Undo<u32> = Undo::named("free");

all![
    e5_a_check_gives_each_run_its_verdict_and_changes_nothing,
    e5_a_check_names_the_entry_and_both_sides,
    e8_a_version_that_is_missing_pins_its_runs,
    e5_what_is_parked_already_is_told_and_not_in_the_way,
    e5_an_engine_refuses_parks_or_goes_as_chosen,
    e5_a_run_that_was_asked_to_end_is_not_parked,
    sc_30_a_rollback_is_rehearsed_to_where_it_stands,
    sc_30_an_undo_that_is_not_registered_is_found,
    ro_13_a_journal_that_cannot_be_read_is_found,
    e11_values_that_do_not_fit_the_types_are_found,
    e5_a_check_opens_no_resource_and_says_how_far_it_came,
    e5_a_check_pages_through_many_runs,
];

/// Which code runs.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Code {
    Old,
    /// Asks for a step of another name.
    Other,
    /// Goes on differently, after what any journal here has.
    Longer,
    /// Opens a resource before its second call.
    Opens,
}

/// Counts what user code outside the journal is called.
#[derive(Clone, Default)]
struct Calls(Arc<AtomicU32>);

impl Calls {
    fn one(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn count(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }
}

async fn run(cx: Cx, (code, calls): (Code, Calls), n: u32) -> Result<u32> {
    let name = match code {
        Code::Other => "book",
        _ => "reserve",
    };
    let step = cx.step(name, |_: Tx| {
        calls.one();
        async move { Ok::<_, Failure>(n) }
    });
    let sum = step.await?;
    if code == Code::Opens {
        cx.resource(async { calls.one() }).await;
    }
    let effect = cx.effect("charge", |_| {
        calls.one();
        async move { Ok::<_, Failure>(1) }
    });
    let sum = sum + effect.await?;
    let sum = sum + cx.wait(GO).await?;
    if code == Code::Longer {
        cx.sleep(std::time::Duration::from_millis(1)).await;
    }
    Ok(sum)
}

async fn start(db: &Db, code: Code, calls: &Calls) -> Process {
    let with = (code, calls.clone());
    let run = move |cx, n| run(cx, with.clone(), n);
    db.start(|engine| engine.register(RUN, run)).await
}

/// A process that knows this code, and takes no work.
async fn idle(db: &Db, code: Code, calls: &Calls) -> Process {
    let with = (code, calls.clone());
    let run = move |cx, n| run(cx, with.clone(), n);
    db.start(|engine| engine.register(RUN, run).idle()).await
}

/// Runs of the old code that wait for their signals.
async fn waiting(db: &Db, count: u32) -> Vec<RunId> {
    let process = start(db, Code::Old, &Calls::default()).await;
    let mut runs = Vec::new();
    for n in 0..count {
        let started = process.start(RUN, &n).key(format!("order-{n}"));
        runs.push(started.await.unwrap().id());
    }
    for run in &runs {
        until("it waits", async || {
            process.run(*run).await.unwrap().row.waits == 1
        })
        .await;
    }
    process.shutdown().await;
    runs
}

async fn check(process: &Process) -> (Verdicts, Vec<Judged>) {
    let mut judged = Vec::new();
    let told = |_: &Verdicts, run: &Judged| judged.push(run.clone());
    let verdicts = soon("a check", process.check(told)).await.unwrap();
    (verdicts, judged)
}

fn words(judged: &[Judged]) -> Vec<&'static str> {
    judged.iter().map(|run| run.verdict.as_str()).collect()
}

async fn e5_a_check_gives_each_run_its_verdict_and_changes_nothing(db: Db) {
    let runs = waiting(&db, 3).await;
    let before = db.dump().await;
    for (code, word) in [
        (Code::Old, "compatible"),
        (Code::Longer, "compatible"),
        (Code::Other, "diverges"),
    ] {
        let calls = Calls::default();
        let process = idle(&db, code, &calls).await;
        let (verdicts, judged) = check(&process).await;
        assert_eq!(words(&judged), [word; 3], "{code:?}");
        assert_eq!(verdicts.total().runs, 3);
        assert_eq!(calls.count(), 0, "no step and no effect runs");
        let mut found: Vec<RunId> = judged.iter().map(|run| run.run).collect();
        found.sort();
        assert_eq!(found, runs);
        process.shutdown().await;
        assert_eq!(db.dump().await, before, "{code:?}");
    }
    // It goes on with what was found to be so.
    let process = start(&db, Code::Longer, &Calls::default()).await;
    process.signal(runs[2], GO, &1).await.unwrap();
    let mut handle = process.handle(RUN, runs[2]).await.unwrap();
    assert_eq!(soon("it goes on", handle.result()).await.unwrap(), 4);
}

async fn e5_a_check_names_the_entry_and_both_sides(db: Db) {
    let runs = waiting(&db, 1).await;
    let process = idle(&db, Code::Other, &Calls::default()).await;
    let (verdicts, judged) = check(&process).await;
    let at = Divergence {
        entry: 2,
        recorded: "step `reserve`".into(),
        asked: "step `book`".into(),
    };
    let [judged] = &judged[..] else {
        panic!("{judged:?}")
    };
    assert_eq!(judged.verdict, Verdict::Diverges(at));
    assert_eq!(judged.key.as_ref().map(Name::as_str), Some("order-0"));
    assert_eq!((judged.run, judged.state), (runs[0], RunState::Waiting));
    let said = "it diverges at entry 2: the journal has step `reserve`, the code asks for step \
                `book`";
    assert_eq!(judged.sentence(), said);
    let tally = Tally {
        runs: 1,
        diverging: 1,
        ..Tally::default()
    };
    let lane = (Name::constant("run"), 1);
    assert_eq!(verdicts.lanes.get(&lane), Some(&tally));
    assert_eq!(tally.unfit(), 1);
}

async fn e8_a_version_that_is_missing_pins_its_runs(db: Db) {
    waiting(&db, 2).await;
    let second = |cx, n| run(cx, (Code::Other, Calls::default()), n);
    let set_up = db.start(|engine| engine.register(SECOND, second).idle());
    let process = set_up.await;
    let (verdicts, judged) = check(&process).await;
    assert_eq!(words(&judged), ["pin"; 2]);
    assert!(judged[0].sentence().contains("version 1 is not registered"));
    assert_eq!((verdicts.total().pinned, verdicts.total().unfit()), (2, 0));
    process.shutdown().await;
    // That is no reason to refuse: others may have it.
    let set_up = db.start(|engine| engine.register(SECOND, second).verified(Unfit::Refuse));
    let process = set_up.await;
    assert_eq!(process.check(|_, _| {}).await.unwrap().total().pinned, 2);
}

async fn e5_what_is_parked_already_is_told_and_not_in_the_way(db: Db) {
    let runs = waiting(&db, 1).await;
    let process = start(&db, Code::Other, &Calls::default()).await;
    process.signal(runs[0], GO, &1).await.unwrap();
    let mut handle = process.handle(RUN, runs[0]).await.unwrap();
    let result = soon("it parks", handle.result()).await;
    let Err(Error::Parked { reason, .. }) = result else {
        panic!("{result:?}")
    };
    let at = Divergence::told_by(&reason).expect("it says where");
    assert_eq!((at.entry, &*at.asked), (2, "step `book`"));
    let (verdicts, judged) = check(&process).await;
    assert_eq!(words(&judged), ["diverges"]);
    let total = verdicts.total();
    assert_eq!((total.diverging, total.parked, total.unfit()), (1, 1, 0));
    process.shutdown().await;
    // The code that mends it says so before anybody resumes it.
    let process = start(&db, Code::Old, &Calls::default()).await;
    let (_, judged) = check(&process).await;
    assert_eq!(words(&judged), ["compatible"]);
}

async fn e5_an_engine_refuses_parks_or_goes_as_chosen(db: Db) {
    let runs = waiting(&db, 2).await;
    let other = |cx, n| run(cx, (Code::Other, Calls::default()), n);
    let before = db.dump().await;
    let refused = may_seal(roundel::Engine::over(db.open()))
        .register(RUN, other)
        .verified(Unfit::Refuse)
        .start()
        .await;
    let error = refused.expect_err("it does not start");
    assert!(matches!(error, Error::Unfit(_)), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("2 of 2 runs in flight"), "{text}");
    assert!(text.contains("the code asks for step `book`"), "{text}");
    assert_eq!(db.dump().await, before, "nor is it known as a worker");

    let going = db.start(|engine| engine.register(RUN, other).verified(Unfit::Go));
    let going = going.await;
    let state = async |process: &Process, run| process.run(run).await.unwrap().row.state;
    assert_eq!(state(&going, runs[0]).await, RunState::Waiting);
    going.shutdown().await;

    let parking = db.start(|engine| engine.register(RUN, other).verified(Unfit::Park));
    let parking = parking.await;
    for run in &runs {
        assert_eq!(state(&parking, *run).await, RunState::Parked);
        let mut handle = parking.handle(RUN, *run).await.unwrap();
        let Err(Error::Parked { reason, .. }) = handle.result().await else {
            panic!("parked")
        };
        assert_eq!(reason.code, Divergence::CODE);
    }
    parking.shutdown().await;

    // The old code is back, and they are resumed: nothing was lost.
    let old = start(&db, Code::Old, &Calls::default()).await;
    for (n, run) in (0..).zip(&runs) {
        old.signal(*run, GO, &1).await.unwrap();
        old.resume(*run).await.unwrap();
        let mut handle = old.handle(RUN, *run).await.unwrap();
        assert_eq!(soon("it ends", handle.result()).await.unwrap(), n + 2);
    }
}

async fn e5_a_run_that_was_asked_to_end_is_not_parked(db: Db) {
    let runs = waiting(&db, 2).await;
    let client = db.start(|engine| engine).await;
    client.cancel(runs[0]).await.unwrap();
    let checking = idle(&db, Code::Other, &Calls::default()).await;
    let verdicts = checking.check_and_park(|_, _| {}).await.unwrap();
    // For that it needs no code, so it goes on.
    let total = verdicts.total();
    assert_eq!((total.compatible, total.diverging), (1, 1));
    assert_eq!(verdicts.parked, 1);
    let state = async |run| client.run(run).await.unwrap().row.state;
    assert_eq!(state(runs[0]).await, RunState::Ready);
    assert_eq!(state(runs[1]).await, RunState::Parked);
}

/// A run that undoes, and whose undo does not come back.
async fn back(cx: Cx, name: &'static str, n: u32) -> Result<u32> {
    let effect = cx.effect(name, |_| async move { Ok::<_, Failure>(n) });
    effect
        .undo(|_: Begun<u32>| std::future::pending::<Result<()>>())
        .await?;
    let named = cx.step("hold", |_: Tx| async move { Ok::<_, Failure>(n) });
    named.undo_by(FREE, &n).await?;
    Err(Failure::business("no"))
}

async fn rolling_back(db: &Db) -> RunId {
    let old = |cx, n| back(cx, "reserve", n);
    let free = |_: Tx, _: u32| async { Ok::<_, Failure>(()) };
    let set_up = db.start(|engine| engine.register(BACK, old).register_undo(FREE, free));
    let process = set_up.await;
    let run = process.start(BACK, &1).await.unwrap().id();
    until("it undoes its effect", async || {
        let journal = process.journal(run).await.unwrap();
        let undone = |entry: &Entry| matches!(entry, Entry::RollingBack { .. });
        let at = journal.iter().position(undone);
        at.is_some_and(|at| journal.len() >= at + 3)
    })
    .await;
    process.crash();
    run
}

async fn sc_30_a_rollback_is_rehearsed_to_where_it_stands(db: Db) {
    let run = rolling_back(&db).await;
    let before = db.dump().await;
    for (name, word) in [("reserve", "compatible"), ("book", "diverges")] {
        let code = move |cx, n| back(cx, name, n);
        let free = |_: Tx, _: u32| async { Ok::<_, Failure>(()) };
        let set_up = db.start(|engine| {
            let engine = engine.register(BACK, code).register_undo(FREE, free);
            engine.idle()
        });
        let process = set_up.await;
        let (_, judged) = check(&process).await;
        assert_eq!(words(&judged), [word]);
        assert_eq!(
            (judged[0].run, judged[0].state),
            (run, RunState::RollingBack)
        );
        process.shutdown().await;
    }
    assert_eq!(db.dump().await, before);
}

async fn sc_30_an_undo_that_is_not_registered_is_found(db: Db) {
    rolling_back(&db).await;
    let code = |cx, n| back(cx, "reserve", n);
    let process = db.start(|engine| engine.register(BACK, code).idle()).await;
    let (verdicts, judged) = check(&process).await;
    let Verdict::Stuck(failure) = &judged[0].verdict else {
        panic!("{judged:?}")
    };
    assert!(failure.message.contains("`free`"), "{failure}");
    assert_eq!(verdicts.total().unfit(), 1);
}

/// Commits what a newer program might have.
fn commit_unknown_entry(process: &Process, run: RunId) {
    let store = &*process.store;
    let worker = roundel_core::WorkerId(uuid::Uuid::new_v4());
    let lane = Lane {
        namespace: Name::constant("default"),
        workflow: Name::constant("run"),
        version: 1,
    };
    let register = Op::Register(Register {
        worker,
        name: "newer".into(),
        lanes: vec![lane],
    });
    let Ok(Reply::Registered(lanes)) = ask(store, register) else {
        panic!("not registered")
    };
    let claim = Op::Claim(Claim {
        worker,
        lanes,
        limit: 1,
        lease: std::time::Duration::from_secs(30),
    });
    let Ok(Reply::Claimed { runs, .. }) = ask(store, claim) else {
        panic!("not claimed")
    };
    let mut round = Round::new(run, worker, runs[0].epoch);
    round.entries = br#"[{"teleported":{"call":1}}]"#.to_vec();
    round.count = 1;
    round.timer_at = Some(Timestamp(1));
    round.then = Then::Suspend;
    ask(store, Op::Commit(round)).expect("committed");
    let release = Release {
        worker,
        runs: vec![run],
        leave: true,
    };
    ask(store, Op::Release(release)).expect("released");
}

async fn ro_13_a_journal_that_cannot_be_read_is_found(db: Db) {
    let db = db.damaged_on_purpose();
    let client = db.start(|engine| engine).await;
    let run = client.start(RUN, &7).await.unwrap().id();
    commit_unknown_entry(&client, run);
    let process = idle(&db, Code::Old, &Calls::default()).await;
    let (verdicts, judged) = check(&process).await;
    let Verdict::Stuck(failure) = &judged[0].verdict else {
        panic!("{judged:?}")
    };
    assert_eq!(failure.code, "undecodable_journal");
    assert!(failure.message.contains("entry 2"), "{failure}");
    assert_eq!(verdicts.total().stuck, 1);
}

async fn e11_values_that_do_not_fit_the_types_are_found(db: Db) {
    let client = db.start(|engine| engine).await;
    client.start(RUN, &7).await.unwrap();
    let text = |_: Cx, _: String| async { Ok::<_, Failure>(1_u32) };
    let process = db.start(|engine| engine.register(TEXT, text).idle()).await;
    let (_, judged) = check(&process).await;
    let Verdict::Stuck(failure) = &judged[0].verdict else {
        panic!("{judged:?}")
    };
    assert_eq!(failure.code, "undecodable");
    assert!(failure.message.contains("String"), "{failure}");
}

async fn e5_a_check_opens_no_resource_and_says_how_far_it_came(db: Db) {
    waiting(&db, 1).await;
    let calls = Calls::default();
    let process = idle(&db, Code::Opens, &calls).await;
    let (verdicts, judged) = check(&process).await;
    assert_eq!(judged[0].verdict, Verdict::UpTo(3));
    assert_eq!((verdicts.total().up_to, verdicts.total().unfit()), (1, 0));
    assert_eq!(calls.count(), 0);
}

async fn e5_a_check_pages_through_many_runs(db: Db) {
    let client = db.start(|engine| engine).await;
    for n in 0..450 {
        client.start(RUN, &n).await.unwrap();
    }
    let process = idle(&db, Code::Old, &Calls::default()).await;
    let (verdicts, judged) = check(&process).await;
    assert_eq!(verdicts.total().compatible, 450);
    let mut runs: Vec<RunId> = judged.iter().map(|run| run.run).collect();
    runs.sort();
    runs.dedup();
    assert_eq!(runs.len(), 450);
}

#[tokio::test]
async fn a_program_without_workflows_has_nothing_to_check_against() {
    let engine = roundel::Engine::in_memory().start().await.unwrap();
    let error = engine.check(|_, _| {}).await.unwrap_err();
    assert!(matches!(error, Error::Setup(_)), "{error:?}");
}
