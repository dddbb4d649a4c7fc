//! The workflows of a schedule: real functions over `Cx`. Each returns how many lines it wrote into
//! the ledger and how many calls services did for it, so that both can be compared in the end.

use std::time::Duration;

use roundel::future::{Either, join, select};
use roundel::sim::Function;
use roundel::{Attempt, Command, Cx, Failure, Retry, Signal, Workflow};
use roundel_core::Name;
use serde::{Deserialize, Serialize};

use crate::facts::{WROTE, line_id};
use crate::{site, trees};

/// What a workflow is given, and what it has done so far. As JSON it is four numbers: it is written
/// and read in every other round.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(from = "[u32; 4]", into = "[u32; 4]")]
pub(crate) struct Tally {
    pub(crate) rounds: u32,
    pub(crate) lines: u32,
    pub(crate) calls: u32,
    /// Which version says so, if it is not the first.
    pub(crate) version: u32,
}

impl From<[u32; 4]> for Tally {
    fn from([rounds, lines, calls, version]: [u32; 4]) -> Tally {
        Tally {
            rounds,
            lines,
            calls,
            version,
        }
    }
}

impl From<Tally> for [u32; 4] {
    fn from(tally: Tally) -> [u32; 4] {
        [tally.rounds, tally.lines, tally.calls, tally.version]
    }
}

/// A signal to one run.
pub(crate) const GO: Signal<u64> = Signal::named("go");
/// A signal that goes to one of those who wait.
pub(crate) const PICK: Signal<u64> = Signal::named("pick").offerable();

const STEPS: Workflow<Tally, Tally> = Workflow::named("steps");
const CALLS: Workflow<Tally, Tally> = Workflow::named("calls");

/// Gives up soon, so that it is often parked.
pub(crate) const ORDER: Command<Tally, Tally> =
    Command::named("order").retry(Retry::fixed(2, Duration::from_millis(10)));

/// One version of a workflow.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) name: Name,
    pub(crate) version: u32,
    /// Played only where runs cooperate.
    pub(crate) cooperates: bool,
    /// Played only where there are schedules.
    pub(crate) keeps_times: bool,
    function: Function,
    /// What it was made by mistake.
    bad: Option<Function>,
}

impl Flow {
    /// What runs, where the mistake is deployed or where it is not.
    pub(crate) fn code(&self, bad: bool) -> &Function {
        let bad = self.bad.as_ref().filter(|_| bad);
        bad.unwrap_or(&self.function)
    }
}

/// All of them.
pub(crate) fn all() -> Vec<Flow> {
    let flow = |name: &'static str, function| Flow {
        name: Name::constant(name),
        version: 1,
        cooperates: false,
        keeps_times: false,
        function,
        bad: None,
    };
    let cooperating = |name: &'static str, function| Flow {
        cooperates: true,
        ..flow(name, function)
    };
    vec![
        Flow {
            bad: Some(Function::new(steps_changed)),
            ..flow("steps", Function::new(steps))
        },
        flow("calls", Function::new(calls)),
        flow("waits", Function::new(waits)),
        flow("parent", Function::new(parent)),
        flow("anew", Function::new(anew)),
        flow("race", Function::new(race)),
        flow("state", Function::new(state)),
        flow("watch", Function::new(watch)),
        flow("sends", Function::new(sends)),
        flow("order", Function::handler(ORDER, handle)),
        flow("roundel.batch", Function::batch()),
        Flow {
            version: 2,
            ..flow("steps", Function::new(steps_2))
        },
        cooperating("tree", Function::new(trees::tree)),
        cooperating("twig", Function::new(trees::tree).parked_when_late()),
        cooperating("late", Function::new(trees::tree).failed_when_late()),
        cooperating("crowd", Function::new(trees::crowd)),
        cooperating("leaf", Function::new(trees::leaf)),
        cooperating("scene", Function::new(crate::scenes::scene)),
        Flow {
            keeps_times: true,
            ..flow("roundel.schedule", Function::schedule(LOOKS))
        },
    ]
}

/// After so many looks a schedule begins anew: soon, so that some do.
const LOOKS: usize = 5;

const SHORT: Duration = Duration::from_millis(40);
const LONG: Duration = Duration::from_millis(900);

/// Is a fact recorded with such a line?
pub(crate) fn is_plain_line(name: &str) -> bool {
    matches!(name, "one" | "two" | "three")
}

async fn line(cx: &Cx, name: &'static str, tally: &mut Tally) -> Result<(), Failure> {
    let retry = Retry::exponential(8);
    let wrote = cx
        .step(name, |tx| async move {
            if is_plain_line(name) && site::with(|site| site.facts) {
                let id = line_id(cx.run(), cx.execution(), name);
                WROTE.record(&tx, &1).id(id).await?;
            }
            site::write(cx, name)
        })
        .retry(retry);
    tally.lines += wrote.await.map_err(judged)?;
    site::maybe_panic();
    Ok(())
}

async fn called(cx: &Cx, name: &'static str, tally: &mut Tally) -> Result<(), Failure> {
    let retry = Retry::exponential(8);
    tally.calls += cx
        .effect(name, site::call)
        .retry(retry)
        .await
        .map_err(judged)?;
    Ok(())
}

/// A service that fails for good is this workflow's failure, not an operator's question.
fn judged(failure: Failure) -> Failure {
    Failure::business(failure.message)
}

async fn steps(cx: Cx, mut tally: Tally) -> Result<Tally, Failure> {
    line(&cx, "one", &mut tally).await?;
    line(&cx, "two", &mut tally).await?;
    cx.sleep(SHORT).await;
    line(&cx, "three", &mut tally).await?;
    Ok(tally)
}

/// The next version: it does something else, and says which it is.
async fn steps_2(cx: Cx, mut tally: Tally) -> Result<Tally, Failure> {
    called(&cx, "ask", &mut tally).await?;
    line(&cx, "one", &mut tally).await?;
    tally.version = 2;
    Ok(tally)
}

/// `steps`, changed by mistake: it asks for something else than its runs did. A run that begins
/// with it goes no further, so that the mended code finds nothing of it.
async fn steps_changed(cx: Cx, mut tally: Tally) -> Result<Tally, Failure> {
    assert!(cx.is_replaying(), "this code is not finished");
    line(&cx, "changed", &mut tally).await?;
    Ok(tally)
}

async fn calls(cx: Cx, mut tally: Tally) -> Result<Tally, Failure> {
    called(&cx, "ask", &mut tally).await?;
    line(&cx, "note", &mut tally).await?;
    let (first, second) = join(
        cx.effect("left", site::call).retry(Retry::exponential(8)),
        cx.effect("right", site::call).retry(Retry::exponential(8)),
    )
    .await;
    tally.calls += first.map_err(judged)? + second.map_err(judged)?;
    line(&cx, "noted", &mut tally).await?;
    Ok(tally)
}

async fn waits(cx: Cx, mut tally: Tally) -> Result<Tally, Failure> {
    if cx.wait(GO).within(LONG).await.is_ok() {
        line(&cx, "went", &mut tally).await?;
    }
    if cx.wait(PICK).within(LONG).await.is_ok() {
        line(&cx, "picked", &mut tally).await?;
    }
    cx.wait(GO).await?;
    line(&cx, "gone", &mut tally).await?;
    Ok(tally)
}

async fn parent(cx: Cx, mut tally: Tally) -> Result<Tally, Failure> {
    line(&cx, "before", &mut tally).await?;
    let none = Tally::default();
    // A call beside them keeps the lease: their ends are told to it.
    let beside = cx.effect("beside", site::call).retry(Retry::exponential(8));
    let children = join(cx.child(STEPS, &none), cx.child(CALLS, &none));
    let ((left, right), called) = join(children, beside).await;
    left.map_err(judged)?;
    right.map_err(judged)?;
    tally.calls += called.map_err(judged)?;
    line(&cx, "after", &mut tally).await?;
    Ok(tally)
}

async fn anew(cx: Cx, mut tally: Tally) -> Result<Tally, Failure> {
    let got = cx.wait(GO).within(SHORT).await;
    line(&cx, "turn", &mut tally).await?;
    if got.is_ok() {
        called(&cx, "ask", &mut tally).await?;
    }
    if tally.rounds < 2 {
        tally.rounds += 1;
        return cx.continue_as_new(&tally).await;
    }
    Ok(tally)
}

async fn race(cx: Cx, mut tally: Tally) -> Result<Tally, Failure> {
    match select(cx.sleep(SHORT), cx.wait(PICK)).await {
        Either::Left(_) => line(&cx, "late", &mut tally).await?,
        Either::Right(_) => line(&cx, "picked", &mut tally).await?,
    }
    let none = Tally::default();
    match select(cx.child(CALLS, &none), cx.sleep(SHORT)).await {
        Either::Left((ended, _)) => drop(ended),
        Either::Right(_) => line(&cx, "alone", &mut tally).await?,
    }
    line(&cx, "last", &mut tally).await?;
    Ok(tally)
}

async fn state(cx: Cx, mut tally: Tally) -> Result<Tally, Failure> {
    cx.merge_state(&serde_json::json!({ "at": 1 })).await?;
    line(&cx, "first", &mut tally).await?;
    let seen: Option<serde_json::Value> = cx.state().await?;
    if seen.is_none() {
        return Err(Failure::business("its own state is lost").with_code("lost_state"));
    }
    let (_, wrote) = join(
        cx.sleep(SHORT),
        cx.step("both", |_| async { site::write(&cx, "both") }),
    )
    .await;
    tally.lines += wrote.map_err(judged)?;
    let has = |name: &'static str| move |state: &serde_json::Value| state.get(name).is_some();
    if cx.wait_until(has("first")).within(LONG).await.is_ok() {
        line(&cx, "patched", &mut tally).await?;
    }
    // A call beside it keeps the lease.
    let beside = cx.effect("beside", site::call).retry(Retry::exponential(8));
    let (last, called) = join(cx.wait_until(has(LAST)), beside).await;
    last?;
    tally.calls += called.map_err(judged)?;
    line(&cx, "last", &mut tally).await?;
    Ok(tally)
}

/// What the state of a run must have, that it may come to its end.
pub(crate) const LAST: &str = "last";

/// Lets go of a wait for a run that is not its child, and perhaps another's, and begins anew while
/// that goes on.
async fn watch(cx: Cx, mut tally: Tally) -> Result<Tally, Failure> {
    let spawn = cx.spawn(STEPS, &Tally::default());
    let run = match tally.rounds {
        0 => spawn.dedupe("a", SHORT).await?,
        _ => spawn.debounce("b", SHORT / 8).await?,
    };
    let ended = cx.wait_for::<Tally>(run);
    if let Either::Left(_) = select(cx.sleep(SHORT / 4), ended).await
        && tally.rounds == 0
    {
        tally.rounds = 1;
        return cx.continue_as_new(&tally).await;
    }
    line(&cx, "seen", &mut tally).await?;
    Ok(tally)
}

/// Sends a command in the commit of a line, and then waits for another.
async fn sends(cx: Cx, mut tally: Tally) -> Result<Tally, Failure> {
    let (run, none) = (cx.run(), Tally::default());
    let sent = cx.step(SENT, |tx| {
        let wrote = site::write(&cx, SENT);
        async move {
            // Sent before the line that may fail: then it was never sent.
            ORDER.send(&tx, &none).key(run.to_string()).await?;
            wrote
        }
    });
    tally.lines += sent.retry(Retry::exponential(8)).await.map_err(judged)?;
    let (one, other) = join(cx.call(ORDER, &none), cx.call(ORDER, &none)).await;
    one.map_err(judged)?;
    other.map_err(judged)?;
    line(&cx, "answered", &mut tally).await?;
    called(&cx, "ask", &mut tally).await?;
    cx.call(ORDER, &none).await.map_err(judged)?;
    line(&cx, "last", &mut tally).await?;
    Ok(tally)
}

/// The step that sends a command.
pub(crate) const SENT: &str = "sent";

async fn handle(attempt: Attempt, mut tally: Tally) -> Result<Tally, Failure> {
    tally.calls += site::call(attempt).await?;
    Ok(tally)
}
