//! The engine's own flows, explored: the real worker and client, with every fault at every commit.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::time::Duration;

use roundel::future::{Either, join_all, select};
use roundel::testkit::{TestKit, World, explore};
use roundel::{
    Client, Cx, EngineBuilder, Error, Failure, Result, Retry, RunState, Sent, Signal, Tx, TxError,
    Workflow,
};
use roundel_core::mutant::{self, Mutant};

pub const SECOND: Duration = Duration::from_secs(1);

const PARENT: Workflow<u32, Vec<u32>> = Workflow::named("parent");
const CHILD: Workflow<u32, u32> = Workflow::named("child");
const SIGNED: Signal<String> = Signal::named("signed");
const SIGN: Workflow<(), String> = Workflow::named("sign");
const JOB: Signal<u32> = Signal::named("job").offerable();
const TAKE: Workflow<(), u32> = Workflow::named("take");
const GIVE: Workflow<u32, bool> = Workflow::named("give");
const TOTAL: Workflow<(u32, u32), u32> = Workflow::named("total");
const ADD: Signal<u32> = Signal::named("add");
const FLAKY: Workflow<u32, u32> = Workflow::named("flaky");
const LONG: Workflow<(), ()> = Workflow::named("long");

/// A line in a table, by a step: each must be there once.
pub async fn write(tx: Tx, line: String) -> Result<()> {
    let table = "CREATE TABLE IF NOT EXISTS line (line TEXT)";
    tx.execute(table, ()).await?;
    tx.execute("INSERT INTO line VALUES ($1)", (line,)).await?;
    Ok(())
}

async fn parent(cx: Cx, children: u32) -> Result<Vec<u32>> {
    let all = join_all((0..children).map(|number| cx.child(CHILD, &number))).await;
    let all: Vec<u32> = all.into_iter().collect::<Result<_>>()?;
    cx.step("end", |tx| write(tx, "parent".into())).await?;
    Ok(all)
}

async fn child(cx: Cx, number: u32) -> Result<u32> {
    let doubled = cx.effect(
        "double",
        move |_| async move { Ok::<_, Failure>(2 * number) },
    );
    let doubled = doubled.await?;
    cx.step("child", |tx| write(tx, format!("child {number}")))
        .await?;
    Ok(doubled)
}

async fn sign(cx: Cx, (): ()) -> Result<String> {
    let by = match cx.wait(SIGNED).within(3600 * SECOND).await {
        Ok(by) => by,
        Err(late) if late.code == "timed_out" => "nobody".into(),
        Err(other) => return Err(other),
    };
    cx.step("signed", |tx| write(tx, format!("signed by {by}")))
        .await?;
    Ok(by)
}

async fn take(cx: Cx, (): ()) -> Result<u32> {
    let job = cx.wait(JOB).await?;
    cx.step("take", |tx| write(tx, format!("job {job}")))
        .await?;
    Ok(job)
}

async fn give(cx: Cx, job: u32) -> Result<bool> {
    cx.sleep(SECOND).await;
    let sent = cx.offer(JOB, &job).await?;
    Ok(matches!(sent, Sent::Delivered(_) | Sent::Queued))
}

async fn total(cx: Cx, (so_far, left): (u32, u32)) -> Result<u32> {
    if left == 0 {
        return Ok(so_far);
    }
    let added = match select(cx.wait(ADD), cx.sleep(7200 * SECOND)).await {
        Either::Left((added, _)) => added?,
        Either::Right(_) => return Err(Failure::business("nobody adds")),
    };
    cx.step("add", |tx| write(tx, format!("add {added}")))
        .await?;
    cx.continue_as_new(&(so_far + added, left - 1)).await
}

async fn flaky(cx: Cx, number: u32) -> Result<u32> {
    let part = cx.effect("part", |attempt| async move {
        tokio::time::sleep(SECOND).await;
        match attempt.number() {
            1 => Err(Failure::transient("the first is always lost")),
            _ => Ok(number),
        }
    });
    let part = part.retry(Retry::fixed(6, 2 * SECOND)).await?;
    cx.set_state(&part).await?;
    Ok(part)
}

async fn long(cx: Cx, (): ()) -> Result<()> {
    let children = (0..2).map(|_| cx.child(SIGN, &()));
    join_all(children).await;
    cx.effect("long", |attempt| async move {
        attempt.cancelled().await;
        Ok::<_, Failure>(())
    })
    .await
}

fn app(engine: EngineBuilder) -> EngineBuilder {
    engine
        .concurrency(2)
        .register(PARENT, parent)
        .register(CHILD, child)
        .register(SIGN, sign)
        .register(TAKE, take)
        .register(GIVE, give)
        .register(TOTAL, total)
        .register(FLAKY, flaky)
        .register(LONG, long)
}

/// No line is there twice, ever.
pub async fn no_line_twice(tx: Tx) -> Result<(), String> {
    let twice = "SELECT line FROM line GROUP BY line HAVING count(*) > 1";
    match tx.query(twice, ()).await {
        Ok(rows) if rows.is_empty() => Ok(()),
        Ok(rows) => Err(format!("{rows:?} twice")),
        // No step has run yet.
        Err(TxError::Database(_)) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

async fn opened(world: &World) -> TestKit {
    world.always("a line is written once", no_line_twice);
    world.open(app).await
}

pub async fn lines(kit: &TestKit) -> Result<Vec<String>, TxError> {
    kit.sql(|tx| async move {
        // If no step ran, nobody has made it.
        let table = "CREATE TABLE IF NOT EXISTS line (line TEXT)";
        tx.execute(table, ()).await?;
        let rows = tx.query("SELECT line FROM line ORDER BY line", ()).await?;
        rows.iter().map(|row| row.get(0)).collect()
    })
    .await
}

/// A flow, from an empty database to its end.
type Flow = fn(World) -> Pin<Box<dyn Future<Output = Result<(), Error>>>>;

/// All flows, with how many processes work on each.
const FLOWS: [(Flow, usize); 10] = [
    (|world| Box::pin(tree(world)), 1),
    (|world| Box::pin(signal(world)), 1),
    (|world| Box::pin(offers(world)), 1),
    (|world| Box::pin(anew(world)), 1),
    (|world| Box::pin(batch(world)), 1),
    (|world| Box::pin(cancel(world)), 1),
    (|world| Box::pin(tree(world)), 2),
    (|world| Box::pin(together(world)), 2),
    (|world| Box::pin(queue(world)), 1),
    (|world| Box::pin(queue(world)), 2),
];

fn explored(number: usize) {
    let (flow, processes) = FLOWS[number];
    holds(flow, processes);
}

/// The flow comes to its end, whatever strikes.
pub fn holds<F: Future<Output = Result<(), Error>>>(
    flow: impl Fn(World) -> F + Sync,
    processes: usize,
) {
    let exploration = explore(flow).processes(processes).schedules(300);
    // However slow the machine is.
    let report = exploration.limit(Duration::from_secs(600)).run();
    assert!(report.crashes > 100 && !report.cut_short, "{report:?}");
}

async fn tree(world: World) -> Result<(), Error> {
    let kit = opened(&world).await;
    let start = |client: Client| async move { client.start(PARENT, &4).key("tree").await };
    let run = kit.request(start).await?.id();
    let mut run = kit.handle(PARENT, run).await?;
    assert_eq!(run.result().await?, [0, 2, 4, 6]);
    let expected = ["child 0", "child 1", "child 2", "child 3", "parent"];
    assert_eq!(lines(&kit).await.unwrap(), expected);
    Ok(())
}

async fn signal(world: World) -> Result<(), Error> {
    let kit = opened(&world).await;
    let start = |client: Client| async move { client.start(SIGN, &()).key("s").await };
    let run = kit.request(start).await?.id();
    let signal = |client: Client| async move {
        let signal = client.signal("s", SIGNED, &"Ada".to_owned());
        signal.key("once").await
    };
    let sent = kit.request(signal).await?;
    assert!(
        matches!(sent, Sent::Delivered(_) | Sent::Queued),
        "{sent:?}"
    );
    assert_eq!(kit.handle(SIGN, run).await?.result().await?, "Ada");
    assert_eq!(lines(&kit).await.unwrap(), ["signed by Ada"]);
    Ok(())
}

async fn offers(world: World) -> Result<(), Error> {
    let kit = opened(&world).await;
    let mut takers = Vec::new();
    for _ in 0..3 {
        takers.push(kit.start(TAKE, &()).await?);
    }
    for job in 1..=3 {
        kit.start(GIVE, &job).await?;
    }
    let mut jobs = Vec::new();
    for taker in &mut takers {
        jobs.push(taker.result().await?);
    }
    jobs.sort_unstable();
    assert_eq!(jobs, [1, 2, 3]);
    Ok(())
}

async fn anew(world: World) -> Result<(), Error> {
    let kit = opened(&world).await;
    let start = |client: Client| async move { client.start(TOTAL, &(0, 3)).key("t").await };
    let run = kit.request(start).await?.id();
    for number in 1..=3_u32 {
        let add = |client: Client| async move {
            let signal = client.signal("t", ADD, &number);
            signal.key(format!("add {number}")).await
        };
        kit.request(add).await?;
    }
    assert_eq!(kit.handle(TOTAL, run).await?.result().await?, 6);
    assert_eq!(lines(&kit).await.unwrap(), ["add 1", "add 2", "add 3"]);
    Ok(())
}

async fn batch(world: World) -> Result<(), Error> {
    let kit = opened(&world).await;
    let start = |client: Client| async move {
        let keys = ["a", "b", "c", "d", "e"];
        let ops = keys.map(|key| client.start(FLAKY, &7).key(key).op());
        let ops = ops.into_iter().collect::<Result<_, Error>>()?;
        let started = client.at_once(ops).await;
        started.into_iter().collect::<Result<Vec<_>, Error>>()
    };
    kit.request(start).await?;
    for key in ["a", "b", "c", "d", "e"] {
        let mut run = kit.handle(FLAKY, key).await?;
        assert_eq!(run.result().await?, 7);
        let state = kit.state::<u32>(key).await?;
        assert_eq!(state.map(|(value, _)| value), Some(7));
    }
    Ok(())
}

/// More runs than there is room for, one of them after the other: first rounds follow claims.
async fn queue(world: World) -> Result<(), Error> {
    worked_off(world).await.map(|_| ())
}

async fn worked_off(world: World) -> Result<TestKit, Error> {
    let kit = opened(&world).await;
    let start = |client: Client| async move {
        let starts = (0..6).map(|number| {
            let start = client.start(CHILD, &number).key(format!("child {number}"));
            start.into_future()
        });
        let started = join_all(starts).await;
        started
            .into_iter()
            .map(|run| Ok(run?.id()))
            .collect::<Result<Vec<_>, Error>>()
    };
    for (number, run) in kit.request(start).await?.into_iter().enumerate() {
        let doubled = kit.handle(CHILD, run).await?.result().await?;
        assert_eq!(doubled as usize, 2 * number);
    }
    assert_eq!(lines(&kit).await.unwrap().len(), 6);
    Ok(kit)
}

/// The same, in less time than a lease.
async fn quick_queue(world: World) -> Result<(), Error> {
    let kit = worked_off(world).await?;
    assert!(kit.elapsed() < 20 * SECOND, "a lease was waited for");
    Ok(())
}

async fn cancel(world: World) -> Result<(), Error> {
    let kit = opened(&world).await;
    let start = |client: Client| async move { client.start(LONG, &()).key("l").await };
    let run = kit.request(start).await?.id();
    kit.advance(SECOND).await;
    let cancel = |client: Client| async move { client.cancel("l").await };
    kit.request(cancel).await?;
    match kit.handle(LONG, run).await?.result().await {
        Err(Error::Failed { state, .. }) => assert_eq!(state, RunState::Cancelled),
        other => panic!("{other:?}"),
    }
    Ok(())
}

async fn together(world: World) -> Result<(), Error> {
    let kit = opened(&world).await;
    let start = |client: Client| async move { client.start(PARENT, &3).key("tree").await };
    let run = kit.request(start).await?.id();
    let mut sign = kit.start(SIGN, &()).await?;
    let mut flaky = kit.start(FLAKY, &1).await?;
    kit.later(5 * SECOND, kit.signal(sign.id(), SIGNED, &"Ada".to_owned()));
    assert_eq!(kit.handle(PARENT, run).await?.result().await?, [0, 2, 4]);
    assert_eq!(sign.result().await?, "Ada");
    assert_eq!(flaky.result().await?, 1);
    Ok(())
}

#[test]
fn a_tree_of_children_is_whole_whatever_crashes() {
    explored(0);
}

#[test]
fn a_signal_is_taken_once_whatever_crashes() {
    explored(1);
}

#[test]
fn each_offer_goes_to_one_whatever_crashes() {
    explored(2);
}

#[test]
fn runs_that_begin_anew_lose_no_signal_whatever_crashes() {
    explored(3);
}

#[test]
fn a_batch_of_starts_with_retries_ends_whatever_crashes() {
    explored(4);
}

#[test]
fn a_cancelled_tree_ends_whatever_crashes() {
    explored(5);
}

#[test]
fn two_processes_share_a_tree_whatever_crashes() {
    explored(6);
}

#[test]
fn two_processes_share_all_kinds_of_work_whatever_crashes() {
    explored(7);
}

#[test]
fn a_queue_of_runs_is_worked_off_whatever_crashes() {
    explored(8);
}

#[test]
fn two_processes_work_off_a_queue_whatever_crashes() {
    explored(9);
}

#[test]
fn nobody_waits_for_a_lease_when_no_process_stops() {
    explore(quick_queue).only("none").run();
    for number in 1..=30 {
        for fault in ["refused", "late", "unknown"] {
            let found = explore(quick_queue).only(format!("{fault}{number}")).find();
            let Err(broken) = found else { continue };
            // Nobody can know what a claim leased whose answer was lost.
            let claim = "is not told whether a claim happened; it did";
            assert!(broken.faults()[0].ends_with(claim), "{broken}");
        }
    }
}

/// Bugs that nobody sees while nothing goes wrong, each with a flow that shows it.
const BUGS: [(Mutant, usize); 8] = [
    (Mutant::NoFence, 0),
    (Mutant::StartKeyIgnored, 1),
    (Mutant::LostWorkersRunsLost, 1),
    (Mutant::ReleasedRunsLost, 1),
    (Mutant::SleepLostInReplay, 2),
    (Mutant::SenderKeyIgnored, 3),
    (Mutant::EffectLostInReplay, 4),
    (Mutant::OwnMailKept, 5),
];

#[test]
fn bugs_of_the_engine_are_found_by_faults_alone() {
    for (bug, number) in BUGS {
        let (flow, processes) = FLOWS[number];
        let buggy = move |world: World| {
            mutant::switch(Some(bug));
            flow(world)
        };
        let found = explore(buggy).processes(processes).find();
        let broken = found.expect_err(&format!("{bug:?} is not found"));
        assert_ne!(broken.schedule(), "none", "{bug:?}: {broken}");
    }
}
