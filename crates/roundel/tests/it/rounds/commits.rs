//! Rounds: what happened, happened once, whatever became of the commit and of its answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use roundel::{Cx, Entry, Error, Failure, Refusal, Result, RunState, Sent, Signal, Workflow};
use roundel_core::Op;
use roundel_store::Ask;

use super::sound::assert_sound;
use crate::support::{Db, Fault, Process, all, is_round, is_round_of, on_objects, soon, until};

const SUM: Workflow<u32, u32> = Workflow::named("sum");
const CALLS: Workflow<(), u32> = Workflow::named("calls");
const ASK: Workflow<(), Vec<u32>> = Workflow::named("ask");
const ANSWER: Signal<u32> = Signal::named("answer").offerable();
const LEASE: Duration = Duration::from_millis(200);

// Within milliseconds, which a server has no mind for.
all![
    ro_07_a_store_that_does_not_answer_leaves_the_outcome_unknown,
    a2_a_run_goes_on_when_all_hints_are_lost,
    ro_01_a_round_that_could_not_be_written_is_written_once,
    ro_02_killed_before_the_commit_a_message_is_taken_again,
    ro_03_killed_after_the_commit_nothing_is_repeated,
    ro_04_a_repeated_start_gives_the_first_run,
    ro_04_a_repeated_signal_has_one_effect,
    ro_04_a_timer_fires_once,
    ro_04_a_completion_of_a_worker_that_lost_the_run_is_refused,
    ro_05_completed_and_cancelled_are_never_both_recorded,
    ro_06_an_unknown_outcome_is_looked_up_before_anything_is_repeated,
    ro_06_a_start_whose_outcome_is_unknown_is_all_there_or_not_at_all,
];

// RO-60: the same over objects.
on_objects![
    ro_01_a_round_that_could_not_be_written_is_written_once,
    ro_02_killed_before_the_commit_a_message_is_taken_again,
    ro_03_killed_after_the_commit_nothing_is_repeated,
    ro_04_a_repeated_start_gives_the_first_run,
    ro_04_a_repeated_signal_has_one_effect,
    ro_04_a_timer_fires_once,
    ro_04_a_completion_of_a_worker_that_lost_the_run_is_refused,
    ro_05_completed_and_cancelled_are_never_both_recorded,
    ro_06_an_unknown_outcome_is_looked_up_before_anything_is_repeated,
    ro_06_a_start_whose_outcome_is_unknown_is_all_there_or_not_at_all,
];

async fn sum(cx: Cx, n: u32) -> Result<u32> {
    let mut sum = 0;
    for i in 0..n {
        sum += cx
            .effect("add", move |_| async move { Ok::<_, Failure>(i) })
            .await?;
    }
    Ok(sum)
}

/// A step, an effect, a child, an offer, a pause: one of each.
async fn calls(cx: Cx, (): ()) -> Result<u32> {
    let one = cx
        .step("one", |_| async { Ok::<_, Failure>(1_u32) })
        .await?;
    let two = cx
        .effect("two", |_| async { Ok::<_, Failure>(2_u32) })
        .await?;
    let three = cx.child(SUM, &3).await?;
    cx.offer(ANSWER, &4).await?;
    cx.sleep(Duration::from_millis(1)).await;
    Ok(one + two + three)
}

/// Three answers, in their order.
async fn ask(cx: Cx, (): ()) -> Result<Vec<u32>> {
    let mut answers = Vec::new();
    for _ in 0..3 {
        answers.push(cx.wait(ANSWER).await?);
    }
    Ok(answers)
}

async fn start(db: &Db) -> Process {
    let set_up = db.start(|engine| {
        let engine = engine.register(SUM, sum).register(CALLS, calls);
        engine.register(ASK, ask).lease(LEASE)
    });
    set_up.await
}

/// Runs `calls`, while each round in turn meets the fault; nothing may show in the end.
async fn calls_with(db: &Db, fault: Fault) {
    let process = start(db).await;
    for strike in 0.. {
        let mut left = strike;
        process.store.rule(move |ask| {
            let begun = matches!(ask, Ask::Op(Op::Start(start)) if start.parent.is_none());
            if begun || !is_round(ask) {
                return Fault::Pass;
            }
            left -= 1;
            if left == -1 { fault } else { Fault::Pass }
        });
        let before = process.store.struck();
        let mut run = process.start(CALLS, &()).await.unwrap();
        let result = soon("the calls", run.result()).await;
        assert_eq!(result.unwrap(), 6, "strike {strike}");
        if process.store.struck() == before {
            assert!(strike > 8, "{strike} rounds");
            break;
        }
    }
    process.store.mend();
    process.shutdown().await;
    let dump = assert_sound(db).await;
    let ended = dump.runs.iter().map(|run| run.state);
    assert!(ended.into_iter().all(|state| state == RunState::Completed));
    let offers = dump.offers.len();
    let runs = dump.runs.iter().filter(|run| run.parent.is_none()).count();
    assert_eq!(offers, runs, "one offer for each run");
    assert_eq!(dump.runs.len(), runs * 2, "one child for each run");
}

async fn ro_01_a_round_that_could_not_be_written_is_written_once(db: Db) {
    calls_with(&db, Fault::Unavailable).await;
}

async fn ro_06_an_unknown_outcome_is_looked_up_before_anything_is_repeated(db: Db) {
    calls_with(&db, Fault::LoseReply).await;
    calls_with(&db, Fault::LoseRequest).await;
}

async fn ro_02_killed_before_the_commit_a_message_is_taken_again(db: Db) {
    let first = start(&db).await;
    let run = first.start(ASK, &()).await.unwrap();
    let id = run.id();
    first.signal(id, ANSWER, &1).await.unwrap();
    until("the first is taken", || async {
        first.journal(id).await.unwrap().len() == 4
    })
    .await;
    // The second is matched; the round that would consume it never comes to be.
    first.store.once(Fault::CrashBefore, is_round);
    let sent = first.signal(id, ANSWER, &2).await.unwrap();
    assert_eq!(sent, Sent::Delivered(id));
    until("it crashed", || async { first.store.is_cut() }).await;
    first.crash();
    let second = start(&db).await;
    second.signal(id, ANSWER, &3).await.unwrap();
    let mut run = second.handle(ASK, id).await.unwrap();
    assert_eq!(soon("all", run.result()).await.unwrap(), [1, 2, 3]);
    assert_sound(&db).await;
}

async fn ro_03_killed_after_the_commit_nothing_is_repeated(db: Db) {
    let first = start(&db).await;
    let run = first.start(ASK, &()).await.unwrap();
    let id = run.id();
    first.store.once(Fault::CrashAfter, is_round);
    let sent = first.signal(id, ANSWER, &1).key("one").await.unwrap();
    assert_eq!(sent, Sent::Delivered(id));
    until("it crashed", || async { first.store.is_cut() }).await;
    first.crash();
    let second = start(&db).await;
    // The sender never heard, and sends again.
    let again = second.signal(id, ANSWER, &1).key("one").await.unwrap();
    assert_eq!(again, Sent::Delivered(id));
    second.signal(id, ANSWER, &2).await.unwrap();
    second.signal(id, ANSWER, &3).await.unwrap();
    let mut run = second.handle(ASK, id).await.unwrap();
    assert_eq!(soon("all", run.result()).await.unwrap(), [1, 2, 3]);
    assert_sound(&db).await;
}

async fn ro_04_a_repeated_start_gives_the_first_run(db: Db) {
    let process = start(&db).await;
    let mut first = process.start(SUM, &4).key("mine").await.unwrap();
    let mut again = process.start(SUM, &4).key("mine").await.unwrap();
    assert!(first.is_new() && !again.is_new());
    assert_eq!(first.id(), again.id());
    assert_eq!(soon("the first", first.result()).await.unwrap(), 6);
    assert_eq!(soon("the same", again.result()).await.unwrap(), 6);
    let ended = process.start(SUM, &4).key("mine").await.unwrap();
    assert!(!ended.is_new(), "also when it has ended");
    let other = process.start(SUM, &5).key("mine").await;
    assert!(matches!(
        other,
        Err(Error::Refused(Refusal::Conflict { .. }))
    ));
    assert_eq!(assert_sound(&db).await.runs.len(), 1);
}

async fn ro_04_a_repeated_signal_has_one_effect(db: Db) {
    let process = start(&db).await;
    let mut run = process.start(ASK, &()).await.unwrap();
    for value in [1, 1, 2, 2, 3] {
        let key = format!("key {value}");
        process.signal(&run, ANSWER, &value).key(key).await.unwrap();
    }
    assert_eq!(soon("all", run.result()).await.unwrap(), [1, 2, 3]);
    let late = process.signal(&run, ANSWER, &1).key("key 1").await.unwrap();
    assert_eq!(late, Sent::Delivered(run.id()), "the first answer again");
    assert_sound(&db).await;
}

async fn ro_04_a_timer_fires_once(db: Db) {
    const TICKS: Workflow<(), u32> = Workflow::named("ticks");
    let db = db.with_manual_clock();
    let ticks = |cx: Cx, (): ()| async move {
        for _ in 0..3 {
            cx.sleep(Duration::from_secs(60)).await;
        }
        Ok::<_, Failure>(3)
    };
    let one = db.start(|engine| engine.register(TICKS, ticks)).await;
    let two = db.start(|engine| engine.register(TICKS, ticks)).await;
    let mut run = one.start(TICKS, &()).await.unwrap();
    for tick in 1..=3 {
        let id = run.id();
        until("it sleeps", || async {
            one.journal(id).await.unwrap().len() == tick * 2
        })
        .await;
        db.advance(Duration::from_secs(59));
        assert_eq!(one.journal(id).await.unwrap().len(), tick * 2, "too early");
        db.advance(Duration::from_secs(1));
    }
    assert_eq!(soon("the ticks", run.result()).await.unwrap(), 3);
    let journal = two.journal(run.id()).await.unwrap();
    let done = journal.iter().filter(|e| matches!(e, Entry::Done { .. }));
    assert_eq!(done.count(), 3);
    assert_sound(&db).await;
}

async fn ro_04_a_completion_of_a_worker_that_lost_the_run_is_refused(db: Db) {
    let db = db.with_manual_clock();
    let first = start(&db).await;
    first.store.rule(|ask| match ask {
        Ask::Op(Op::Start(_)) => Fault::Pass,
        _ => Fault::Hold,
    });
    let mut run = first.start(SUM, &2).await.unwrap();
    until("its completion is held", || async {
        first.store.holds(|ask| is_round_of(ask, run.id()))
    })
    .await;
    first.store.settled().await;
    db.advance(LEASE * 3);
    let second = start(&db).await;
    let mut taken = second.handle(SUM, run.id()).await.unwrap();
    assert_eq!(soon("the sum", taken.result()).await.unwrap(), 1);
    let before = assert_sound(&db).await;
    first.store.mend();
    first.store.release();
    assert_eq!(soon("the sum", run.result()).await.unwrap(), 1);
    until("it noticed", || async {
        first.metrics().rounds_fenced == 1
    })
    .await;
    let after = assert_sound(&db).await;
    assert_eq!(before.journal, after.journal);
    assert_eq!(before.runs, after.runs);
}

async fn ro_05_completed_and_cancelled_are_never_both_recorded(db: Db) {
    let process = start(&db).await;
    let mut seen = [0, 0];
    for round in 0..40 {
        let mut run = process.start(SUM, &(round % 4)).await.unwrap();
        let cancelled = process.cancel(&run).await.unwrap();
        let result = soon("an end", run.result()).await;
        let row = process.run(&run).await.unwrap().row;
        match (result, row.state) {
            (Ok(_), RunState::Completed) => seen[0] += 1,
            (Err(Error::Failed { state, .. }), RunState::Cancelled) => {
                assert_eq!(state, RunState::Cancelled);
                seen[1] += 1;
            }
            other => panic!("{other:?} after {cancelled:?}"),
        }
    }
    assert_eq!(seen[0] + seen[1], 40);
    assert_sound(&db).await;
}

async fn ro_06_a_start_whose_outcome_is_unknown_is_all_there_or_not_at_all(db: Db) {
    let process = start(&db).await;
    for (fault, there) in [(Fault::LoseReply, true), (Fault::LoseRequest, false)] {
        let key = format!("{fault:?}");
        process.store.once(fault, is_round);
        let first = process.start(SUM, &4).key(key.clone()).await;
        assert!(matches!(first, Err(Error::Unknown(_))), "{first:?}");
        let mut again = process.start(SUM, &4).key(key).await.unwrap();
        assert_eq!(again.is_new(), !there, "{fault:?}");
        assert_eq!(soon("the sum", again.result()).await.unwrap(), 6);
    }
    assert_eq!(assert_sound(&db).await.runs.len(), 2);
}

async fn ro_07_a_store_that_does_not_answer_leaves_the_outcome_unknown(db: Db) {
    let process = db.start(|engine| engine.register(ASK, ask)).await;
    let limit = Duration::from_millis(50);
    let hasty = db.start(|engine| engine.answer_within(limit)).await;
    let mut run = process.start(ASK, &()).await.unwrap();
    let is_signal = |ask: &Ask| matches!(ask, Ask::Op(Op::Signal(_)));
    hasty.store.once(Fault::Hold, is_signal);
    let sent = hasty.signal(run.id(), ANSWER, &1).key("one").await;
    assert!(matches!(sent, Err(Error::Unknown(_))), "{sent:?}");
    hasty.store.release();
    for (value, key) in [(1, "one"), (2, "two"), (3, "three")] {
        let sent = process.signal(&run, ANSWER, &value).key(key);
        let sent = sent.await.unwrap();
        assert!(
            matches!(sent, Sent::Delivered(_) | Sent::Queued),
            "{sent:?}"
        );
    }
    assert_eq!(soon("all", run.result()).await.unwrap(), [1, 2, 3]);
    hasty.store.once(Fault::Hold, is_round);
    let started = hasty.start(ASK, &()).key("it").await;
    assert!(matches!(started, Err(Error::Unknown(_))), "{started:?}");
    hasty.store.release();
    until("it is known", || async { process.run("it").await.is_ok() }).await;
    assert!(!process.start(ASK, &()).key("it").await.unwrap().is_new());
    assert_sound(&db).await;
}

async fn a2_a_run_goes_on_when_all_hints_are_lost(db: Db) {
    let db = db.with_manual_clock();
    let executed = Arc::new(AtomicU32::new(0));
    let seen = executed.clone();
    let process = db
        .start(|engine| {
            // However slow this machine is, no lease ends while time flies.
            let engine = engine.lease(roundel::limits::LEASE);
            engine.register(SUM, move |cx, n| {
                seen.fetch_add(1, Ordering::Relaxed);
                sum(cx, n)
            })
        })
        .await;
    process.store.lose_hints();
    let client = db.start(|engine| engine).await;
    client.store.lose_hints();
    let mut run = client.start(SUM, &4).await.unwrap();
    let result = tokio::spawn(async move { run.result().await });
    until("it has ended", || {
        db.advance(Duration::from_secs(1));
        std::future::ready(result.is_finished())
    })
    .await;
    assert_eq!(result.await.unwrap().unwrap(), 6);
    assert_eq!(executed.load(Ordering::Relaxed), 1);
}
