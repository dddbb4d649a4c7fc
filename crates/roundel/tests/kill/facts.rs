//! Books that are kept by processes which are killed, while facts come in, projections follow and
//! are built anew: every fact is there once, and what the books say is what the facts say.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use roundel::{Arrival, Engine, Error};

use crate::ground::Ground;
use crate::harness::Random;
use crate::ledger::{self, PAID, Paid, Transfer, Turnover};
use crate::process::Worker;

/// The hidden argument.
pub(crate) const BOOKKEEPER: &str = "--bookkeeper";
/// Processes at work at a time, and how many of them are killed.
const WORKERS: usize = 2;
const KILLS: u32 = 30;
/// Facts that come in between two kills.
const ARRIVE: u32 = 40;
const ACCOUNTS: u32 = 5;
/// How long nothing may come of it.
const PATIENCE: Duration = Duration::from_secs(60);

fn account(number: u32) -> String {
    format!("account {}", number % ACCOUNTS)
}

/// Takes what came in and moves money about, until killed.
pub(crate) async fn keep_books(file: &Path) -> Result<(), Error> {
    let engine = ledger::books(Engine::open(file)).start().await?;
    let mut random = Random::new(u64::from(std::process::id()));
    loop {
        engine.tick(engine.now()).await?;
        let number = u32::try_from(random.below(100)).expect("a small number");
        let moved = Transfer {
            from: account(number),
            to: account(number + 1),
            cents: 1 + i64::from(number),
        };
        ledger::transfer(&engine, &moved).await?;
    }
}

/// A fact that comes in. Now and then it needs the one after it.
fn arrival(number: u32) -> Arrival {
    let paid = Paid {
        account: account(number),
        cents: 100 + i64::from(number),
    };
    let arrival = Arrival::of(PAID, &paid).id(format!("paid {number}"));
    match number % 10 {
        5 => arrival.needs(format!("paid {}", number + 1)),
        _ => arrival,
    }
}

/// Kills who keeps the books. Returns whether all is well.
pub(crate) async fn part(seed: u64) -> bool {
    let (folder, begin) = (crate::folder(), Instant::now());
    let file = folder.path().join("kill.db");
    let engine = Engine::open(&file).start().await.expect("a client");
    let (ground, mut random) = (Ground::File(file.clone()), Random::new(seed));
    let mut alive: Vec<Worker> = Vec::new();
    let mut wrong = Vec::new();
    let mut arrived = 0;
    for kill in 0..KILLS {
        while alive.len() < WORKERS {
            alive.push(Worker::spawn_as(BOOKKEEPER, &ground));
        }
        for _ in 0..ARRIVE {
            let queued = engine.append(arrival(arrived)).await;
            wrong.extend(queued.err().map(|error| format!("{arrived}: {error}")));
            arrived += 1;
        }
        if kill % 3 == 2 {
            // Somebody who has it builds it, if there is anybody.
            for name in ["balances", "turnovers"] {
                let _ = engine.rebuild(name).await;
            }
        }
        let pause = 50 + random.below(250);
        tokio::time::sleep(Duration::from_millis(pause)).await;
        drop(alive.remove(0));
    }
    alive.push(Worker::spawn_as(BOOKKEEPER, &ground));
    let paid = "SELECT count(*) FROM roundel_fact WHERE kind = 'paid'";
    let (mut known, mut since) = (0, Instant::now());
    while known < i64::from(arrived) && since.elapsed() < PATIENCE {
        let now = ground.count(paid).await;
        if now > known {
            (known, since) = (now, Instant::now());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    drop(alive);
    engine.shutdown().await;
    wrong.extend(audit(&file, arrived).await);
    let seconds = begin.elapsed().as_secs_f64();
    println!("facts: {arrived} came in, kills: {KILLS}, {seconds:.0} s, seed {seed}");
    wrong.iter().take(20).for_each(|what| println!("  {what}"));
    wrong.is_empty()
}

/// What facts come to, told once more.
#[derive(Default)]
struct Told {
    paid: Vec<String>,
    transfers: u64,
    books: BTreeMap<String, (i64, Turnover)>,
}

impl Told {
    fn add(&mut self, account: String, cents: i64) {
        let (balance, turnover) = self.books.entry(account).or_default();
        *balance += cents;
        turnover.entries += 1;
        turnover.cents += cents.abs();
    }

    fn documents(&self) -> BTreeMap<String, String> {
        let all = self
            .books
            .iter()
            .flat_map(|(account, (balance, turnover))| {
                let turnover = serde_json::to_string(turnover).expect("JSON");
                [
                    (format!("balance/{account}"), balance.to_string()),
                    (format!("turnover/{account}"), turnover),
                ]
            });
        all.collect()
    }
}

async fn tell(engine: &Engine) -> Result<Told, Error> {
    let (mut told, mut after) = (Told::default(), None);
    loop {
        let mut facts = engine.facts().limit(1000);
        if let Some(after) = after {
            facts = facts.after(after);
        }
        let page = facts.fetch().await?;
        for fact in &page.items {
            let data = fact.row.data.as_str();
            if fact.row.kind == PAID.name() {
                let paid: Paid = serde_json::from_str(data).expect("a payment");
                told.paid.push(fact.id.id.to_string());
                told.add(paid.account, paid.cents);
            } else {
                let moved: Transfer = serde_json::from_str(data).expect("a transfer");
                told.transfers += 1;
                told.add(moved.from, -moved.cents);
                told.add(moved.to, moved.cents);
            }
        }
        after = page.items.last().map(|fact| fact.position);
        if !page.more {
            return Ok(told);
        }
    }
}

async fn audit(file: &Path, arrived: u32) -> Vec<String> {
    let mut wrong = Vec::new();
    let books = ledger::books(Engine::open(file)).start().await;
    let engine = books.expect("an engine");
    let found = ledger::read(&engine).await.expect("documents");
    let mut told = tell(&engine).await.expect("facts");
    if found != told.documents() {
        wrong.push(format!(
            "the books say {found:?}, not {:?}",
            told.documents()
        ));
    }
    told.paid.sort();
    let mut wanted: Vec<String> = (0..arrived)
        .map(|number| format!("paid {number}"))
        .collect();
    wanted.sort();
    if told.paid != wanted {
        wrong.push(format!(
            "{} payments of {arrived} are there",
            told.paid.len()
        ));
    }
    let overdrawn = told.books.iter().filter(|(_, (balance, _))| *balance < 0);
    wrong.extend(overdrawn.map(|(account, _)| format!("{account} is overdrawn")));
    if told.transfers == 0 {
        wrong.push("nobody moved money".to_owned());
    }
    let all = engine.projections().await.expect("projections");
    let generations = all.iter().map(|status| status.row.generations);
    if generations.sum::<u32>() < 2 {
        wrong.push("nothing was built anew".to_owned());
    }
    let unsound = |_: &roundel::Checked, found: Vec<roundel::Violation>| {
        wrong.extend(found.iter().map(ToString::to_string));
    };
    engine.verify(unsound).await.expect("rows that can be read");
    engine.shutdown().await;
    wrong
}
