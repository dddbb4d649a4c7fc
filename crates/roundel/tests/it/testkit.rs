//! The test kit: virtual time, scripted effects, crashes, timelines.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::FutureExt;
use roundel::future::{Either, join_all, select};
use roundel::testkit::TestKit;
use roundel::{Cx, EngineBuilder, Error, Failure, Result, Retry, RunState, Signal, Workflow};

const DAY: Duration = Duration::from_secs(24 * 3600);
const SECOND: Duration = Duration::from_secs(1);

const REMIND: Workflow<String, String> = Workflow::named("remind");
const SIGN: Workflow<(), String> = Workflow::named("sign");
const CHARGE: Workflow<u32, String> = Workflow::named("charge");
const FAMILY: Workflow<u32, Vec<String>> = Workflow::named("family");
const FICKLE: Workflow<(), ()> = Workflow::named("fickle");
const DICE: Workflow<(), (u64, String)> = Workflow::named("dice");
const SIGNED: Signal<String> = Signal::named("signed");

async fn never(_: roundel::Attempt) -> Result<String> {
    panic!("a scripted effect does not run")
}

async fn remind(cx: Cx, to: String) -> Result<String> {
    cx.sleep(30 * DAY).await;
    let sent = cx.effect("mail", never).await?;
    Ok(format!("{sent} to {to}"))
}

async fn sign(cx: Cx, (): ()) -> Result<String> {
    match cx.wait(SIGNED).within(14 * DAY).await {
        Ok(by) => Ok(format!("signed by {by}")),
        Err(failure) if failure.code == "timed_out" => Ok("too late".into()),
        Err(failure) => Err(failure),
    }
}

async fn charge(cx: Cx, attempts: u32) -> Result<String> {
    let retry = Retry::fixed(attempts, 10 * SECOND);
    cx.effect("charge", never).retry(retry).await
}

async fn family(cx: Cx, children: u32) -> Result<Vec<String>> {
    let children = (0..children).map(|_| cx.child(CHARGE, &3));
    join_all(children).await.into_iter().collect()
}

/// Asks for another effect each time its function is run.
fn fickle(times: Arc<AtomicU32>) -> impl Fn(EngineBuilder) -> EngineBuilder + Send + Sync {
    move |engine| {
        let times = times.clone();
        engine.register(FICKLE, move |cx: Cx, ()| {
            let time = times.fetch_add(1, Ordering::Relaxed);
            async move {
                cx.effect(format!("part-{time}"), |_| async { Ok::<_, Failure>(()) })
                    .await?;
                cx.sleep(SECOND).await;
                Ok(())
            }
        })
    }
}

async fn dice(cx: Cx, (): ()) -> Result<(u64, String)> {
    Ok((cx.random().await?, cx.uuid().await?.to_string()))
}

fn app(engine: EngineBuilder) -> EngineBuilder {
    engine
        .register(REMIND, remind)
        .register(SIGN, sign)
        .register(CHARGE, charge)
        .register(FAMILY, family)
        .register(DICE, dice)
}

fn busy() -> Failure {
    Failure::transient("busy")
}

/// What a future that panics says.
async fn panic_of(future: impl Future) -> String {
    let panic = AssertUnwindSafe(future).catch_unwind().await.err();
    let panic = panic.expect("it panics");
    panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .expect("a message")
}

#[tokio::test]
async fn thirty_days_pass_at_once_and_exactly() {
    let kit = TestKit::open(app).await;
    kit.effect("mail").returns(&"sent");
    let mut run = kit.start(REMIND, &"ada".into()).await.unwrap();
    assert_eq!(run.result().await.unwrap(), "sent to ada");
    assert_eq!(kit.elapsed(), 30 * DAY);
    assert_eq!(kit.effect("mail").calls()[0].after, 30 * DAY);
}

#[tokio::test(start_paused = true)]
async fn time_that_is_paused_already_is_fine() {
    let kit = TestKit::open(app).await;
    kit.effect("mail").returns(&"sent");
    let mut run = kit.start(REMIND, &"ada".into()).await.unwrap();
    run.result().await.unwrap();
    assert_eq!(kit.elapsed(), 30 * DAY);
}

#[tokio::test]
async fn time_stands_still_while_the_test_does_not_wait() {
    let kit = TestKit::open(app).await;
    let run = kit.start(REMIND, &"ada".into()).await.unwrap();
    kit.settle().await;
    assert_eq!(kit.elapsed(), Duration::ZERO);
    let shown = kit.run(run.id()).await.unwrap();
    assert_eq!(shown.row.state, RunState::Waiting);
    kit.advance(30 * DAY - SECOND).await;
    assert_eq!(kit.elapsed(), 30 * DAY - SECOND);
    assert!(kit.effect("mail").calls().is_empty());
    kit.effect("mail").returns(&"sent");
    kit.advance(SECOND).await;
    assert_eq!(kit.effect("mail").calls().len(), 1);
}

#[tokio::test]
async fn settling_lets_no_time_pass_at_all() {
    const SHORT: Workflow<(), ()> = Workflow::named("short");
    let kit = TestKit::open(|engine| {
        engine.register(SHORT, |cx: Cx, ()| async move {
            cx.sleep(Duration::from_millis(1)).await;
            Ok(())
        })
    })
    .await;
    let mut run = kit.start(SHORT, &()).await.unwrap();
    let kit = Arc::new(kit);
    for _ in 0..5 {
        // Tokio's time passes, and a task that wakes first sees that the clock does not.
        let (first, settling) = (kit.clone(), kit.clone());
        let seen = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_nanos(1)).await;
            first.elapsed()
        });
        let settled = tokio::spawn(async move { settling.settle().await });
        settled.await.unwrap();
        assert_eq!(seen.await.unwrap(), Duration::ZERO);
        let state = kit.run(run.id()).await.unwrap().row.state;
        assert_eq!(state, RunState::Waiting);
    }
    assert_eq!(kit.elapsed(), Duration::ZERO);
    run.result().await.unwrap();
    assert_eq!(kit.elapsed(), Duration::from_millis(1));
}

#[tokio::test]
async fn an_attempt_that_hangs_too_long_is_given_up_for_the_next() {
    const IMPATIENT: Workflow<(), String> = Workflow::named("impatient");
    async fn impatient(cx: Cx, (): ()) -> Result<String> {
        let retry = Retry::fixed(2, 10 * SECOND);
        let charge = cx.effect("charge", never).attempt_timeout(5 * SECOND);
        charge.retry(retry).await
    }
    let kit = TestKit::open(|engine| engine.register(IMPATIENT, impatient)).await;
    kit.effect("charge").hangs().returns(&"paid");
    let mut run = kit.start(IMPATIENT, &()).await.unwrap();
    assert_eq!(run.result().await.unwrap(), "paid");
    assert_eq!(kit.elapsed(), 15 * SECOND);
}

#[tokio::test]
async fn scripted_failures_are_retried_by_virtual_time_under_one_key() {
    let kit = TestKit::open(app).await;
    kit.effect("charge")
        .fails_times(2, &busy())
        .returns(&"paid");
    let mut run = kit.start(CHARGE, &3).await.unwrap();
    assert_eq!(run.result().await.unwrap(), "paid");
    let calls = kit.effect("charge").calls();
    let seen: Vec<_> = calls
        .iter()
        .map(|call| (call.attempt, call.after))
        .collect();
    assert_eq!(
        seen,
        [(1, Duration::ZERO), (2, 10 * SECOND), (3, 20 * SECOND)]
    );
    assert!(
        calls
            .iter()
            .all(|call| call.key == calls[0].key && call.run == run.id())
    );
}

#[tokio::test]
async fn failures_beyond_the_last_attempt_park_the_run() {
    let kit = TestKit::open(app).await;
    kit.effect("charge").fails(busy());
    let mut run = kit.start(CHARGE, &3).await.unwrap();
    let error = run.result().await.unwrap_err();
    assert!(
        matches!(&error, Error::Parked { reason, .. } if reason.message == "busy"),
        "{error}"
    );
    assert_eq!(kit.effect("charge").calls().len(), 3);
}

#[tokio::test]
async fn a_signal_before_the_time_out_is_taken() {
    let kit = TestKit::open(app).await;
    let mut run = kit.start(SIGN, &()).await.unwrap();
    let signal = kit.signal(run.id(), SIGNED, &"Ada".into());
    kit.later(14 * DAY - Duration::from_millis(1), signal);
    assert_eq!(run.result().await.unwrap(), "signed by Ada");
    assert_eq!(kit.elapsed(), 14 * DAY - Duration::from_millis(1));
}

#[tokio::test]
async fn a_signal_after_the_time_out_is_too_late() {
    let kit = TestKit::open(app).await;
    let mut run = kit.start(SIGN, &()).await.unwrap();
    let signal = kit.signal(run.id(), SIGNED, &"Ada".into());
    kit.later(14 * DAY + Duration::from_millis(1), signal);
    assert_eq!(run.result().await.unwrap(), "too late");
    assert_eq!(kit.elapsed(), 14 * DAY);
}

#[tokio::test]
async fn what_hangs_goes_on_when_it_is_let_go() {
    let kit = TestKit::open(app).await;
    let charge = kit.effect("charge").hangs().returns(&"at last");
    let mut run = kit.start(CHARGE, &1).await.unwrap();
    // Longer than a lease: it is renewed by virtual time.
    kit.advance(3 * DAY).await;
    assert_eq!(charge.calls().len(), 1);
    kit.start(SIGN, &()).await.unwrap();
    kit.settle().await;
    let row = kit.run(run.id()).await.unwrap().row;
    assert!(
        !row.suspect,
        "a claim has not found that its lease has ended"
    );
    charge.let_go();
    assert_eq!(run.result().await.unwrap(), "at last");
    assert_eq!(charge.calls().len(), 1);
    assert_eq!(kit.elapsed(), 3 * DAY);
}

#[tokio::test]
async fn what_hangs_and_has_no_answer_says_so() {
    let kit = TestKit::open(app).await;
    let charge = kit.effect("charge").hangs();
    let mut run = kit.start(CHARGE, &1).await.unwrap();
    kit.settle().await;
    charge.let_go();
    let error = run.result().await.unwrap_err().to_string();
    assert!(error.contains("its script ends there"), "{error}");
}

#[tokio::test]
async fn a_crash_loses_what_was_in_memory_and_nothing_else() {
    let kit = TestKit::open(app).await;
    kit.effect("mail").hangs().returns(&"sent");
    let mut run = kit.start(REMIND, &"ada".into()).await.unwrap();
    kit.advance(10 * DAY).await;
    kit.crash().await;
    kit.advance(20 * DAY).await;
    kit.crash().await;
    kit.settle().await;
    let mail = kit.effect("mail");
    let keys: Vec<_> = mail
        .calls()
        .into_iter()
        .map(|call| (call.key, call.attempt))
        .collect();
    assert_eq!(keys.len(), 2, "once by each worker");
    assert_eq!(keys[0], keys[1]);
    let state = kit.run(run.id()).await.unwrap().row.state;
    assert_eq!(state, RunState::Running, "the same attempt hangs again");
    mail.let_go();
    assert_eq!(run.result().await.unwrap(), "sent to ada");
    assert_eq!(kit.elapsed(), 30 * DAY);
}

/// The same test, with and without crashes, comes to the same.
async fn whole_day(kit: &TestKit) -> (Vec<String>, String, String) {
    kit.effect("charge")
        .fails_times(2, &busy())
        .returns(&"paid");
    kit.effect("mail").returns(&"sent");
    let mut family = kit.start(FAMILY, &5).await.unwrap();
    let mut sign = kit.start(SIGN, &()).await.unwrap();
    let mut remind = kit.start(REMIND, &"ada".into()).await.unwrap();
    kit.later(DAY, kit.signal(sign.id(), SIGNED, &"Ada".into()));
    (
        family.result().await.unwrap(),
        sign.result().await.unwrap(),
        remind.result().await.unwrap(),
    )
}

#[tokio::test]
async fn crashes_after_every_round_change_nothing_for_code_that_replays() {
    let plain = TestKit::open(app).await;
    let crashing = TestKit::open(app).crash_after_every_round().await;
    let expected = whole_day(&plain).await;
    assert_eq!(whole_day(&crashing).await, expected);
    assert_eq!(expected.0, ["paid"; 5]);
    assert_eq!(crashing.elapsed(), plain.elapsed());
    let crashes = crashing.worker_crashes();
    assert!(crashes > 15, "there were only {crashes} crashes");
}

#[tokio::test]
async fn code_that_does_not_replay_is_found_out() {
    let kit = TestKit::open(fickle(Arc::default()))
        .crash_after_every_round()
        .await;
    let mut run = kit.start(FICKLE, &()).await.unwrap();
    let error = run.result().await.unwrap_err();
    let Error::Parked { reason, .. } = error else {
        panic!("{error}")
    };
    assert_eq!(reason.code, "diverged");
    assert!(reason.message.contains("effect `part-0`"), "{reason}");
    // Without crashes nobody notices.
    let kit = TestKit::open(fickle(Arc::default())).await;
    let mut run = kit.start(FICKLE, &()).await.unwrap();
    run.result().await.unwrap();
}

#[tokio::test]
async fn a_timeline_shows_what_happened_when() {
    let kit = TestKit::open(app).await;
    kit.effect("mail").fails(busy()).returns(&"sent");
    let mut run = kit.start(REMIND, &"ada".into()).await.unwrap();
    run.result().await.unwrap();
    let timeline = kit.timeline(run.id()).await;
    timeline
        .assert_calls(["sleep", "effect mail"])
        .assert_in_order(["effect mail"])
        .assert_never("effect refund");
    let text = timeline.to_string();
    for line in [
        "of workflow `remind`, completed",
        "        00:00:00  started with \"ada\"",
        "        00:00:00  1: sleep began",
        "    30d 00:00:00  1: sleep returned null",
        "2: effect `mail` failed, attempt 1, next in 00:00:00.",
        "2: effect `mail` returned \"sent\"",
    ] {
        assert!(text.contains(line), "`{line}` is not in\n{text}");
    }
}

#[tokio::test]
async fn assertions_show_both_sides_and_the_timeline() {
    let kit = TestKit::open(app).await;
    kit.effect("charge").returns(&"paid");
    let mut run = kit.start(CHARGE, &1).await.unwrap();
    run.result().await.unwrap();
    let timeline = kit.timeline(run.id()).await;
    let said = panic_of(async { timeline.assert_calls(["effect charge", "sleep"]).calls() }).await;
    for line in [
        "  expected                       found\n",
        "  effect charge                  effect charge\n",
        "> sleep                          (nothing)\n",
        "1: effect `charge` returned \"paid\"",
    ] {
        assert!(said.contains(line), "`{line}` is not in\n{said}");
    }
    let said = panic_of(async { timeline.assert_in_order(["effect charge", "sleep"]).calls() });
    let said = said.await;
    assert!(
        said.contains("expected the call `sleep` after `effect charge`, found none"),
        "{said}"
    );
    let said = panic_of(async { timeline.assert_never("effect charge").calls() }).await;
    assert!(
        said.contains("expected no call `effect charge`, found one"),
        "{said}"
    );
}

#[tokio::test]
async fn an_effect_without_a_script_runs_and_its_calls_are_noted() {
    let kit = TestKit::open(fickle(Arc::default())).await;
    let mut run = kit.start(FICKLE, &()).await.unwrap();
    run.result().await.unwrap();
    assert_eq!(kit.effect("part-0").calls().len(), 1);
}

#[tokio::test]
async fn random_numbers_are_those_of_the_seed() {
    let roll = async |seed| {
        let kit = TestKit::open(app).seed(seed).await;
        kit.start(DICE, &()).await.unwrap().result().await.unwrap()
    };
    let first = roll(1).await;
    assert_eq!(roll(1).await, first);
    assert_ne!(roll(2).await, first);
}

#[tokio::test]
async fn timers_of_tokio_pass_with_those_of_the_engine() {
    const RACE: Workflow<(), String> = Workflow::named("race");
    async fn race(cx: Cx, (): ()) -> Result<String> {
        let slow = cx.effect("slow", |_| async {
            tokio::time::sleep(3 * SECOND).await;
            Ok::<_, Failure>("the effect".to_owned())
        });
        match select(std::pin::pin!(slow), cx.sleep(5 * SECOND)).await {
            Either::Left((won, _)) => won,
            Either::Right(_) => Ok("the sleep".into()),
        }
    }
    let kit = TestKit::open(|engine| engine.register(RACE, race)).await;
    let mut run = kit.start(RACE, &()).await.unwrap();
    assert_eq!(run.result().await.unwrap(), "the effect");
}

#[tokio::test]
async fn waiting_in_vain_ends_the_test() {
    const FOR_EVER: Workflow<(), String> = Workflow::named("for-ever");
    let kit = TestKit::open(|engine| {
        engine.register(FOR_EVER, |cx: Cx, ()| async move { cx.wait(SIGNED).await })
    })
    .await;
    let mut run = kit.start(FOR_EVER, &()).await.unwrap();
    let said = panic_of(run.result()).await;
    for line in [
        "a hundred years have passed",
        "of workflow `for-ever`, waiting",
        "1: wait `signed` began",
    ] {
        assert!(said.contains(line), "`{line}` is not in\n{said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_runtime_with_threads_is_refused() {
    let said = panic_of(TestKit::open(app).into_future()).await;
    assert!(said.contains("a runtime with one thread"), "{said}");
}
