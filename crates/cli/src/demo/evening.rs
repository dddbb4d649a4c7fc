//! After the day, for those who watch it in a browser: the shop stays open. Orders go on coming in,
//! letters go out through a queue that has limits, schedules are set, and some refunds have gone
//! wrong in ways that an operator can mend.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use roundel::{
    Attempt, Command, Cx, Engine, EngineBuilder, Error, Failure, Result, Retry, Workflow,
};
use serde::{Deserialize, Serialize};

use super::outside::Outside;
use super::plan::{ITEMS, MIRROR};
use super::shop::{self, ORDER, Order};

const LETTER: Command<Letter, String> = Command::named("letter").retry(Retry::exponential(3));
const REFUND: Command<Refund, String> = Command::named("refund").retry(Retry::exponential(1));
const STOCKTAKING: Workflow<String, usize> = Workflow::named("stocktaking");

/// An order comes in, and a few letters go out.
const PACE: Duration = Duration::from_secs(2);
const LETTERS: u32 = 4;
/// Letters are written by so many people.
const WRITERS: u32 = 2;
const WRITING: Duration = Duration::from_millis(700);
/// One order in so many is of mirrors, more than the carrier takes.
const MIRRORS: u32 = 3;
/// No bank has accounts that begin like this.
const NO_ACCOUNT: &str = "DE00";
/// More cents than this have to be released by somebody.
const MUCH: u32 = 100_000;

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Letter {
    to: String,
    about: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Refund {
    order: u32,
    account: String,
    cents: u32,
}

/// The shop with its evening's work.
pub(super) fn register(engine: EngineBuilder, outside: Outside) -> EngineBuilder {
    shop::register(engine, outside)
        .handle(LETTER, write)
        .handle(REFUND, refund)
        .register(STOCKTAKING, count)
}

async fn write(_: Attempt, letter: Letter) -> Result<String> {
    tokio::time::sleep(WRITING).await;
    Ok(format!("sent to {}", letter.to))
}

async fn refund(_: Attempt, refund: Refund) -> Result<String> {
    static HELD: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());
    let Refund { order, cents, .. } = refund;
    if refund.account.starts_with(NO_ACCOUNT) {
        let text = format!("no bank has an account {}", refund.account);
        return Err(Failure::permanent(text).with_code("no_account"));
    }
    let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    if cents > MUCH && held.insert(order) {
        let text = format!("{cents} cents for order {order} are held until somebody asks again");
        return Err(Failure::permanent(text).with_code("held"));
    }
    Ok(format!("{cents} cents to {}", refund.account))
}

async fn count(cx: Cx, _: String) -> Result<usize> {
    let look = |_: Attempt| async { Ok::<_, Failure>(ITEMS.len()) };
    cx.effect("count", look).await
}

/// Lets the evening begin; it goes on until whoever called is done with it.
pub(super) async fn pass(engine: &Engine, day: u32) -> Result<(), Error> {
    engine.queue(LETTER).concurrency(WRITERS).set().await?;
    let stocktaking = STOCKTAKING.timed(&"shelves".to_owned());
    let nightly = stocktaking.clone().cron("30 3 * * mon-fri");
    let nightly = nightly.zone("Europe/Zurich");
    engine.schedule("stocktaking").set(nightly).await?;
    let often = stocktaking.every(Duration::from_secs(20));
    engine.schedule("shop window").set(often).await?;
    for (order, account, cents) in [
        (1, "DE00 4711", 4900),
        (2, "DE00 0815", 2350),
        (3, "CH56 0483", 129_000),
        (4, "CH93 0076", 258_000),
    ] {
        let account = account.to_owned();
        let refund = Refund {
            order,
            account,
            cents,
        };
        let key = format!("refund-{order}");
        engine.send(REFUND, &refund).key(key).await?;
    }
    for number in day + 1.. {
        open(engine, number).await?;
        tokio::time::sleep(PACE).await;
    }
    Ok(())
}

async fn open(engine: &Engine, number: u32) -> Result<(), Error> {
    let items = u32::try_from(ITEMS.len()).unwrap_or(1);
    let item = match number.is_multiple_of(MIRRORS) {
        true => MIRROR,
        false => number % items,
    };
    let customer = "Ida".to_owned();
    let order = Order {
        number,
        address: format!("{customer}, {number} Evening Road"),
        customer: customer.clone(),
        card: 1,
        item,
        pieces: 3,
        cents: 3 * ITEMS[item as usize].1,
        packing_ms: 800,
    };
    let start = engine
        .start(ORDER, &order)
        .key(super::day::key(number as usize - 1));
    start.label("customer", &customer).await?;
    for about in 1..=LETTERS {
        let letter = Letter {
            to: customer.clone(),
            about: format!("order {number}, page {about}"),
        };
        engine.send(LETTER, &letter).await?;
    }
    Ok(())
}
