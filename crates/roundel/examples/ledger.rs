//! A ledger made of facts: money comes in and moves between accounts. A decider looks at a balance
//! and answers with a fact, or refuses; a projection folds facts into balances, in the commit that
//! records them; another follows, and counts. Whatever order facts come in, the books are the same.

use std::collections::BTreeMap;

use roundel::{
    Arrival, Client, Decision, Engine, EngineBuilder, Error, Fact, Failure, Projection, Result,
};
use serde::{Deserialize, Serialize};

/// Money that came in, or left.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Paid {
    pub(crate) account: String,
    pub(crate) cents: i64,
}

/// Money that changed hands.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Transfer {
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) cents: i64,
}

/// What an account did.
#[derive(Default, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Turnover {
    pub(crate) entries: u64,
    pub(crate) cents: i64,
}

pub(crate) const PAID: Fact<Paid> = Fact::named("paid");
pub(crate) const TRANSFERRED: Fact<Transfer> = Fact::named("transferred");

/// What every account holds: read as soon as it is recorded, because it is decided upon.
fn balances() -> Projection<i64> {
    let path = |account: &str| format!("balance/{account}");
    Projection::named("balances")
        .fold(
            PAID,
            move |paid| vec![path(&paid.account)],
            |balance, paid| Ok(Some(balance.unwrap_or(0) + paid.cents)),
        )
        .fold(
            TRANSFERRED,
            move |moved| vec![path(&moved.from)],
            |balance, moved| Ok(Some(balance.unwrap_or(0) - moved.cents)),
        )
        .fold(
            TRANSFERRED,
            move |moved| vec![path(&moved.to)],
            |balance, moved| Ok(Some(balance.unwrap_or(0) + moved.cents)),
        )
}

/// How much every account moved: nobody waits for it.
fn turnovers() -> Projection<Turnover> {
    let path = |account: &str| format!("turnover/{account}");
    let add = |turnover: Option<Turnover>, cents: i64| {
        let mut turnover = turnover.unwrap_or_default();
        turnover.entries += 1;
        turnover.cents += cents.abs();
        Ok::<_, Failure>(Some(turnover))
    };
    Projection::named("turnovers")
        .following()
        .fold(
            PAID,
            move |paid| vec![path(&paid.account)],
            move |turnover, paid| add(turnover, paid.cents),
        )
        .fold(
            TRANSFERRED,
            move |moved| vec![path(&moved.from), path(&moved.to)],
            move |turnover, moved| add(turnover, moved.cents),
        )
}

/// What a process needs that keeps the books.
pub(crate) fn books(engine: EngineBuilder) -> EngineBuilder {
    engine.project(balances()).project(turnovers())
}

/// Moves money, if there is enough of it. Nobody else can spend it in between: what the decider saw
/// must still be so in the commit.
pub(crate) async fn transfer(client: &Client, moved: &Transfer) -> Result<bool, Error> {
    let decided = client.decide(|look| async move {
        let path = format!("balance/{}", moved.from);
        let balance = look.document::<i64>(path).await?.unwrap_or(0);
        Ok(match balance >= moved.cents {
            true => Decision::of(true).record(TRANSFERRED, moved),
            false => Decision::of(false),
        })
    });
    decided.await
}

/// All balances and turnovers, as they are.
pub(crate) async fn read(client: &Client) -> Result<BTreeMap<String, String>, Error> {
    client.catch_up().await?;
    let all = client.documents("", None, 1000).await?.items.into_iter();
    let said = all.filter_map(|(id, row)| Some((id.path.to_string(), row.value?)));
    Ok(said
        .map(|(path, value)| (path, value.as_str().to_owned()))
        .collect())
}

fn paid(account: &str, cents: i64) -> Paid {
    let account = account.to_owned();
    Paid { account, cents }
}

fn moved(from: &str, to: &str, cents: i64) -> Transfer {
    let (from, to) = (from.to_owned(), to.to_owned());
    Transfer { from, to, cents }
}

/// The same facts, as others may hand them in: in any order, and some of them twice.
fn arrivals(order: &[usize]) -> Vec<Arrival> {
    let one = |number: &usize| match number {
        0 => Arrival::of(PAID, &paid("ada", 1000)).id("salary"),
        1 => Arrival::of(TRANSFERRED, &moved("ada", "bob", 250))
            .id("rent")
            .needs("salary"),
        2 => Arrival::of(PAID, &paid("bob", -50)).id("bread"),
        _ => Arrival::of(TRANSFERRED, &moved("bob", "ada", 20))
            .id("change")
            .needs("rent"),
    };
    order.iter().chain(&order[..1]).map(one).collect()
}

fn permutations(of: &[usize]) -> Vec<Vec<usize>> {
    if of.len() <= 1 {
        return vec![of.to_vec()];
    }
    let mut all = Vec::new();
    for (at, first) in of.iter().enumerate() {
        let rest: Vec<usize> = [&of[..at], &of[at + 1..]].concat();
        for mut one in permutations(&rest) {
            one.insert(0, *first);
            all.push(one);
        }
    }
    all
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Error> {
    let engine = books(Engine::in_memory()).start().await?;
    engine.record(PAID, &paid("ada", 1000)).await?;
    assert!(transfer(&engine, &moved("ada", "bob", 700)).await?);
    assert!(
        !transfer(&engine, &moved("ada", "bob", 700)).await?,
        "there is not enough"
    );
    let before = read(&engine).await?;
    println!("{before:#?}");
    assert_eq!(before["balance/ada"], "300");
    for projection in ["balances", "turnovers"] {
        engine.rebuild(projection).await?; // from all facts
        assert_eq!(read(&engine).await?, before);
    }
    engine.shutdown().await;

    // In every order: what needs another fact waits for it, and what comes twice is one.
    let mut books_of_all = Vec::new();
    for order in permutations(&[0, 1, 2, 3]) {
        let engine = books(Engine::in_memory()).start().await?;
        engine.handle_batch(arrivals(&order)).await?;
        books_of_all.push(read(&engine).await?);
        engine.shutdown().await;
    }
    assert_eq!(books_of_all[0]["balance/ada"], "770");
    assert_eq!(books_of_all[0]["balance/bob"], "180");
    assert!(books_of_all.iter().all(|books| *books == books_of_all[0]));
    println!("{} orders, one result", books_of_all.len());
    Ok(())
}
