//! Flows of trees that cooperate and are undone, explored: with every fault at every commit.

use std::time::Duration;

use roundel::future::{Either, select};
use roundel::testkit::{TestKit, World};
use roundel::{
    Client, Cx, EngineBuilder, Error, Failure, Result, RunId, RunState, Signal, Topic, Tx, Undo,
    Undone, Workflow,
};

use crate::flows::{SECOND, holds, lines, no_line_twice, write};

const SELL: Workflow<String, u32> = Workflow::named("sell");
const PACK: Workflow<String, u32> = Workflow::named("pack");
const BILL: Workflow<String, u32> = Workflow::named("bill");
const LATE: Workflow<String, u32> = Workflow::named("late");
const ODD: Workflow<String, u32> = Workflow::named("odd");
const SOLD: Topic<String> = Topic::named("sold");
const OPEN: Topic<String> = Topic::named("open").window(Duration::from_secs(10));
const TRIED: Topic<String> = Topic::named("tried");
const SIGNED: Signal<String> = Signal::named("signed");
const STRIKE: Undo<String> = Undo::named("strike");

/// A line that is taken away again when it is undone: it must be there then.
async fn reserve(cx: &Cx, line: String) -> Result<String> {
    let wrote = cx.step("reserve", |tx: Tx| {
        let line = line.clone();
        async move { write(tx, line.clone()).await.map(|()| line) }
    });
    let undo = |tx: Tx, line: String| async move {
        let gone = tx.execute("DELETE FROM line WHERE line = $1", (line.clone(),));
        match gone.await? {
            1 => Ok(()),
            times => Err(Failure::permanent(format!(
                "{line} was there {times} times"
            ))),
        }
    };
    wrote.undo(undo).await
}

/// Sells, and has it packed and billed; then something goes wrong, if the input says so.
async fn sell(cx: Cx, how: String) -> Result<u32> {
    reserve(&cx, "sold".into()).await?;
    cx.publish(SOLD, &how).await?;
    let parts = ["left".to_owned(), "right".to_owned()];
    cx.children(BILL, &parts).await?;
    match how.as_str() {
        "fails" => Err(Failure::business("no money")),
        "waits" => {
            cx.wait(SIGNED).await?;
            Ok(0)
        }
        _ => Ok(1),
    }
}

async fn pack(cx: Cx, how: String) -> Result<u32> {
    let sent = cx.step("packed", |tx: Tx| async move {
        write(tx, "packed".into()).await?;
        Ok::<_, Failure>(1)
    });
    let undo = |tx: Tx, _: u32| async move {
        let gone = tx.execute("DELETE FROM line WHERE line = 'packed'", ());
        gone.await?;
        Ok::<_, Failure>(())
    };
    sent.undo(undo).await?;
    cx.child(BILL, &format!("pack {how}")).await
}

async fn bill(cx: Cx, what: String) -> Result<u32> {
    reserve(&cx, format!("bill {what}")).await?;
    Ok(1)
}

/// What the input says happens.
async fn sell_somehow(cx: Cx, how: String) -> Result<u32> {
    if ["works", "fails", "waits"].contains(&how.as_str()) {
        return sell(cx, how).await;
    }
    reserve(&cx, "begun".into()).await?;
    match how.as_str() {
        // Whoever comes within the window joins; then it fails.
        "window" => {
            let placed = cx.step("place", |tx: Tx| {
                let how = how.clone();
                async move { OPEN.publish(&tx, &how) }
            });
            placed.await?;
            Err(Failure::business("no money"))
        }
        // A failure of what was set off is handled by setting off again; the next execution fails.
        "handled" => {
            cx.publish(TRIED, &"odd".to_owned()).await.unwrap_err();
            cx.publish(TRIED, &"even".to_owned()).await?;
            cx.continue_as_new(&"fails".to_owned()).await
        }
        // What was published loses against time, and the run goes on.
        "lost" => {
            let published = cx.publish(TRIED, &"waits".to_owned());
            let slept = cx.sleep(SECOND);
            match select(published, Box::pin(slept)).await {
                Either::Left(_) => unreachable!("it waits"),
                Either::Right(((), published)) => drop(published),
            }
            reserve(&cx, "after".into()).await?;
            Ok(1)
        }
        "finally" | "finally fails" => {
            cx.finally("sweep", |tx: Tx| write(tx, "swept".into()))
                .await?;
            cx.publish(SOLD, &how).await?;
            match how.as_str() {
                "finally" => Ok(1),
                _ => Err(Failure::business("no money")),
            }
        }
        "named" => {
            let step = cx.step("named", |tx: Tx| write(tx, "named".into()));
            step.undo_by(STRIKE, &"named".to_owned()).await?;
            cx.publish(SOLD, &how).await?;
            Ok(1)
        }
        other => Err(Failure::permanent(format!("nobody sells `{other}`"))),
    }
}

async fn odd(cx: Cx, how: String) -> Result<u32> {
    reserve(&cx, format!("odd {how}")).await?;
    match how.as_str() {
        "odd" => Err(Failure::business("it is odd")),
        "waits" => cx.wait(SIGNED).await.map(|_| 1),
        _ => Ok(1),
    }
}

async fn strike(tx: Tx, line: String) -> Result<()> {
    // Who keeps an eye on it does not let it go.
    let kept = tx.query(
        "SELECT 1 FROM line WHERE line = 'keep ' || $1",
        (line.clone(),),
    );
    if !kept.await?.is_empty() {
        return Err(Failure::business(format!("{line} is kept")));
    }
    let gone = tx.execute("DELETE FROM line WHERE line = $1", (line.clone(),));
    match gone.await? {
        1 => Ok(()),
        times => Err(Failure::permanent(format!(
            "{line} was there {times} times"
        ))),
    }
}

fn app(engine: EngineBuilder) -> EngineBuilder {
    engine
        .concurrency(3)
        .register(SELL, sell_somehow)
        .register(PACK, pack)
        .register(BILL, bill)
        .register(LATE, bill)
        .register(ODD, odd)
        .register_undo(STRIKE, strike)
        .subscribe(SOLD, PACK)
        .subscribe(SOLD, BILL)
        .subscribe(OPEN, PACK)
        .subscribe(TRIED, ODD)
}

async fn opened(world: &World) -> TestKit {
    world.always("a line is written once", no_line_twice);
    world.open(app).await
}

async fn none_left(kit: &TestKit) {
    assert_eq!(lines(kit).await.unwrap(), Vec::<String>::new());
    let runs = kit.runs().fetch().await.unwrap().items;
    let open = runs.iter().filter(|run| !run.row.state.has_ended());
    assert_eq!(open.count(), 0, "nothing is left behind");
}

async fn ends(kit: &TestKit, how: &str) -> Result<RunState, Error> {
    let input = how.to_owned();
    let start = |client: Client| {
        let input = input.clone();
        async move { client.start(SELL, &input).key("sale").await }
    };
    let run = kit.request(start).await?.id();
    if how == "waits" {
        kit.advance(SECOND).await;
        let cancel = |client: Client| async move { client.cancel("sale").await };
        kit.request(cancel).await?;
    }
    match kit.handle(SELL, run).await?.result().await {
        Err(Error::Failed { state, .. }) => Ok(state),
        Err(error) => Err(error),
        Ok(_) => Ok(RunState::Completed),
    }
}

async fn rolled_back(world: World) -> Result<(), Error> {
    let kit = opened(&world).await;
    assert_eq!(ends(&kit, "fails").await?, RunState::RolledBack);
    assert_eq!(lines(&kit).await.unwrap(), Vec::<String>::new());
    Ok(())
}

async fn cancelled_and_undone(world: World) -> Result<(), Error> {
    let kit = opened(&world).await;
    assert_eq!(ends(&kit, "waits").await?, RunState::Cancelled);
    assert_eq!(lines(&kit).await.unwrap(), Vec::<String>::new());
    Ok(())
}

async fn undone(world: World) -> Result<(), Error> {
    let kit = opened(&world).await;
    assert_eq!(ends(&kit, "works").await?, RunState::Completed);
    let expected = [
        "bill left",
        "bill pack works",
        "bill right",
        "bill works",
        "packed",
        "sold",
    ];
    assert_eq!(lines(&kit).await.unwrap(), expected);
    let undo = |client: Client| async move { client.undo("sale").await };
    let begun = kit.request(undo).await?;
    let already = matches!(begun, Undone::Already(_));
    assert!(already || begun == Undone::Begun { partial: false });
    while kit.run("sale").await?.row.state != RunState::RolledBack {
        kit.advance(SECOND).await;
    }
    assert_eq!(lines(&kit).await.unwrap(), Vec::<String>::new());
    Ok(())
}

/// Time passes until the run is in one of these states.
async fn comes_to(
    kit: &TestKit,
    run: &'static str,
    states: &[RunState],
) -> Result<RunState, Error> {
    loop {
        let state = kit.run(run).await?.row.state;
        if states.contains(&state) {
            return Ok(state);
        }
        kit.advance(SECOND).await;
    }
}

async fn begun(kit: &TestKit, how: &'static str, within: Option<Duration>) -> Result<RunId, Error> {
    let start = |client: Client| async move {
        let how = how.to_owned();
        let start = client.start(SELL, &how).key("sale");
        match within {
            Some(within) => start.forward_deadline(within).await,
            None => start.await,
        }
    };
    Ok(kit.request(start).await?.id())
}

async fn late(world: World) -> Result<(), Error> {
    let kit = opened(&world).await;
    begun(&kit, "waits", Some(20 * SECOND)).await?;
    let state = comes_to(&kit, "sale", &[RunState::RolledBack, RunState::Failed]).await?;
    // If the first start came too late to the database, there was no time for anything.
    assert!([RunState::RolledBack, RunState::Failed].contains(&state));
    none_left(&kit).await;
    Ok(())
}

async fn windowed(world: World) -> Result<(), Error> {
    let kit = opened(&world).await;
    begun(&kit, "window", None).await?;
    kit.advance(3 * SECOND).await;
    let join = |client: Client| async move { client.subscribe("open", "late").await };
    kit.request(join).await?;
    comes_to(&kit, "sale", &[RunState::RolledBack]).await?;
    none_left(&kit).await;
    Ok(())
}

async fn handled(world: World) -> Result<(), Error> {
    let kit = opened(&world).await;
    begun(&kit, "handled", None).await?;
    comes_to(&kit, "sale", &[RunState::RolledBack]).await?;
    none_left(&kit).await;
    Ok(())
}

async fn lost(world: World) -> Result<(), Error> {
    let kit = opened(&world).await;
    begun(&kit, "lost", None).await?;
    comes_to(&kit, "sale", &[RunState::Completed]).await?;
    assert_eq!(lines(&kit).await.unwrap(), ["after", "begun"]);
    kit.request(|client: Client| async move { client.undo("sale").await })
        .await?;
    comes_to(&kit, "sale", &[RunState::RolledBack]).await?;
    none_left(&kit).await;
    Ok(())
}

async fn finally(world: World) -> Result<(), Error> {
    let kit = opened(&world).await;
    begun(&kit, "finally", None).await?;
    comes_to(&kit, "sale", &[RunState::Completed]).await?;
    assert!(lines(&kit).await.unwrap().contains(&"swept".to_owned()));
    kit.request(|client: Client| async move { client.undo("sale").await })
        .await?;
    comes_to(&kit, "sale", &[RunState::RolledBack]).await?;
    assert_eq!(lines(&kit).await.unwrap(), ["swept"]);
    Ok(())
}

async fn finally_in_rollback(world: World) -> Result<(), Error> {
    let kit = opened(&world).await;
    begun(&kit, "finally fails", None).await?;
    comes_to(&kit, "sale", &[RunState::RolledBack]).await?;
    assert_eq!(lines(&kit).await.unwrap(), ["swept"]);
    Ok(())
}

/// An undo that cannot be done is tried again once it can.
async fn stuck(world: World) -> Result<(), Error> {
    let kit = opened(&world).await;
    begun(&kit, "named", None).await?;
    comes_to(&kit, "sale", &[RunState::Completed]).await?;
    let keep = |tx: Tx| write(tx, "keep named".into());
    kit.sql(keep).await.unwrap();
    kit.request(|client: Client| async move { client.undo("sale").await })
        .await?;
    comes_to(&kit, "sale", &[RunState::RollbackFailed]).await?;
    let release = |tx: Tx| async move {
        tx.execute("DELETE FROM line WHERE line = 'keep named'", ())
            .await
    };
    kit.sql(release).await.unwrap();
    loop {
        match kit
            .request(|client: Client| async move { client.resume("sale").await })
            .await
        {
            // It was asked before, and the answer was lost.
            Ok(_) | Err(Error::Refused(_)) => {}
            Err(error) => return Err(error),
        }
        let states = [RunState::RolledBack, RunState::RollbackFailed];
        if comes_to(&kit, "sale", &states).await? == RunState::RolledBack {
            break;
        }
    }
    none_left(&kit).await;
    Ok(())
}

/// A part of a tree and the whole are undone at the same time.
async fn undone_twice(world: World) -> Result<(), Error> {
    let kit = opened(&world).await;
    begun(&kit, "works", None).await?;
    comes_to(&kit, "sale", &[RunState::Completed]).await?;
    let parts = kit.runs().of("pack")?.fetch().await?;
    let part = parts.items[0].row.id;
    kit.request(|client: Client| async move { client.undo(part).await })
        .await?;
    kit.request(|client: Client| async move { client.undo("sale").await })
        .await?;
    comes_to(&kit, "sale", &[RunState::RolledBack]).await?;
    none_left(&kit).await;
    Ok(())
}

/// It is asked to end as soon as it begins to fail, or before.
async fn cancelled_while_failing(world: World) -> Result<(), Error> {
    let kit = opened(&world).await;
    begun(&kit, "fails", None).await?;
    kit.request(|client: Client| async move { client.cancel("sale").await })
        .await?;
    comes_to(&kit, "sale", &[RunState::RolledBack, RunState::Cancelled]).await?;
    none_left(&kit).await;
    Ok(())
}

#[test]
fn d11_a_tree_is_rolled_back_whatever_crashes() {
    holds(rolled_back, 1);
}

#[test]
fn d11_two_processes_roll_a_tree_back_whatever_crashes() {
    holds(rolled_back, 2);
}

#[test]
fn sc_29_a_completed_tree_is_undone_whatever_crashes() {
    holds(undone, 1);
}

#[test]
fn sc_29_a_part_and_the_whole_are_undone_at_once_whatever_crashes() {
    holds(undone_twice, 2);
}

#[test]
fn sc_40_a_cancelled_tree_is_undone_whatever_crashes() {
    holds(cancelled_and_undone, 2);
}

#[test]
fn sc_40_a_run_that_fails_is_cancelled_at_that_moment_whatever_crashes() {
    holds(cancelled_while_failing, 1);
}

#[test]
fn sc_43_a_tree_that_is_late_is_undone_whatever_crashes() {
    holds(late, 1);
}

#[test]
fn sc_14_a_window_is_joined_closes_and_is_undone_whatever_crashes() {
    holds(windowed, 1);
}

#[test]
fn sc_26_sc_36_what_was_handled_is_undone_through_executions_whatever_crashes() {
    holds(handled, 1);
}

#[test]
fn inv9_what_lost_a_select_is_undone_whatever_crashes() {
    holds(lost, 1);
}

#[test]
fn sc_51_finally_is_done_once_whatever_crashes() {
    holds(finally, 1);
}

#[test]
fn sc_51_finally_is_done_once_in_a_rollback_whatever_crashes() {
    holds(finally_in_rollback, 2);
}

#[test]
fn sc_24_a_rollback_that_failed_goes_on_whatever_crashes() {
    holds(stuck, 1);
}
