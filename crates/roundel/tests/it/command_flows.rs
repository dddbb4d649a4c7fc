//! Batches and payments, explored: the real worker and client, with faults at every commit.

use roundel::future::join_all;
use roundel::testkit::{World, explore};
use roundel::{
    Batch, Client, Command, Cx, EngineBuilder, Error, Failure, Result, Retry, RunState, Signal, Tx,
    Workflow,
};

use crate::flows::{SECOND, holds, lines, no_line_twice, write};

const MAIL: Command<u32, u32> = Command::named("mail").retry(Retry::fixed(3, SECOND));
const REPORT: Command<u32, ()> = Command::named("report").retry(Retry::fixed(3, SECOND));
const PAY: Workflow<(), ()> = Workflow::named("pay");
/// What each says, and whether it is good.
const CONFIRMED: [Signal<bool>; 4] = [
    Signal::named("level 1"),
    Signal::named("level 2"),
    Signal::named("level 3"),
    Signal::named("level 4"),
];
const APPROVED: Signal<bool> = Signal::named("approved");

async fn mail(tx: Tx, number: u32) -> Result<u32> {
    match number {
        0 => Err(Failure::business("no address")),
        number => write(tx, format!("mail {number}")).await.map(|()| number),
    }
}

async fn report(tx: Tx, _: u32) -> Result<()> {
    write(tx, "report".into()).await
}

/// Money is held; two levels confirm, a human approves, two more confirm. If one of them does not,
/// the money is let go.
async fn pay(cx: Cx, (): ()) -> Result<()> {
    let hold = cx.step("hold", |tx| write(tx, "held".into()));
    let let_go = |tx: Tx, ()| async move { write(tx, "let go".into()).await };
    hold.undo(let_go).await?;
    confirmed(&cx, &CONFIRMED[..2]).await?;
    if !cx.wait(APPROVED).await? {
        return Err(Failure::business("not approved"));
    }
    confirmed(&cx, &CONFIRMED[2..]).await?;
    cx.step("pay", |tx| write(tx, "paid".into())).await
}

async fn confirmed(cx: &Cx, by: &[Signal<bool>]) -> Result<()> {
    let all = join_all(by.iter().map(|signal| cx.wait(*signal))).await;
    for good in all {
        if !good? {
            return Err(Failure::business("refused"));
        }
    }
    Ok(())
}

fn app(engine: EngineBuilder) -> EngineBuilder {
    let engine = engine.concurrency(2).register(PAY, pay);
    engine
        .handle_in_step(MAIL, mail)
        .handle_in_step(REPORT, report)
}

async fn batch(world: World) -> Result<(), Error> {
    world.always("a line is written once", no_line_twice);
    let kit = world.open(app).await;
    let send = |client: Client| async move {
        let mails = [1, 2, 0, 3].map(|number| MAIL.member(&number).key(number.to_string()));
        let batch: Batch = mails.into_iter().collect();
        let batch = batch.key("night").then(REPORT.member(&0).key("r"));
        client.batch(batch).await
    };
    kit.request(send).await?;
    let end = kit.sent_batch("night").await?.result().await?;
    assert_eq!((end.commands, end.failed), (4, 1));
    kit.sent(REPORT, "r").await?.result().await?;
    let expected = ["mail 1", "mail 2", "mail 3", "report"];
    assert_eq!(lines(&kit).await.unwrap(), expected);
    Ok(())
}

/// In which order they come, and which of them is bad: the approval is the last.
#[derive(Clone, Copy, Debug)]
struct Day {
    order: [usize; 5],
    bad: Option<usize>,
}

/// Days that differ: the same for the same number.
fn day(number: u64) -> Day {
    let mut state = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut below = |limit: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % limit as u64).expect("small")
    };
    let mut order = [0, 1, 2, 3, 4];
    for at in (1..order.len()).rev() {
        order.swap(at, below(at + 1));
    }
    let bad = Some(below(8)).filter(|bad| *bad < 5);
    Day { order, bad }
}

async fn payment(world: World, day: Day) -> Result<(), Error> {
    world.always("a line is written once", no_line_twice);
    let kit = world.open(app).await;
    let start = |client: Client| async move { client.start(PAY, &()).key("p").await };
    let run = kit.request(start).await?.id();
    for at in day.order {
        let tell = |client: Client| async move {
            let signal = *CONFIRMED.get(at).unwrap_or(&APPROVED);
            let good = day.bad != Some(at);
            client.signal("p", signal, &good).key(format!("{at}")).await
        };
        kit.request(tell).await?;
    }
    let came_to = match kit.handle(PAY, run).await?.result().await {
        Ok(()) => RunState::Completed,
        Err(Error::Failed { .. }) => RunState::RolledBack,
        Err(other) => return Err(other),
    };
    let (state, expected) = match day.bad {
        None => (RunState::Completed, ["held", "paid"]),
        Some(_) => (RunState::RolledBack, ["held", "let go"]),
    };
    assert_eq!((came_to, kit.run(run).await?.row.state), (state, state));
    assert_eq!(lines(&kit).await.unwrap(), expected, "{day:?}");
    Ok(())
}

#[test]
fn co_11_a_batch_ends_once_whatever_crashes() {
    holds(batch, 1);
}

#[test]
fn co_11_two_processes_end_a_batch_once_whatever_crashes() {
    holds(batch, 2);
}

#[test]
fn co_31_a_payment_ends_right_in_whatever_order_and_whatever_crashes() {
    let (mut paid, mut refused) = (0, 0);
    for number in 1..=12 {
        let day = day(number);
        match day.bad {
            None => paid += 1,
            Some(_) => refused += 1,
        }
        let exploration = explore(move |world| payment(world, day)).schedules(40);
        let report = exploration.limit(std::time::Duration::from_secs(600)).run();
        assert!(!report.cut_short, "{report:?}");
    }
    assert!(paid > 1 && refused > 3, "{paid} paid, {refused} refused");
}
