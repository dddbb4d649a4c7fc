//! Books that are kept by processes which are killed, while facts come in, projections follow and
//! are built anew: every fact is there once, and what the books say is what the facts say.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use roundel::{Arrival, Cx, Engine, EngineBuilder, Error, Result, RunState, Tx, Workflow};
use rusqlite::Connection;

use crate::ground::Ground;
use crate::harness::{Random, until_done};
use crate::ledger::{self, PAID, Paid, Transfer, Turnover};
use crate::process::{LEASE, Worker};

/// The hidden argument.
pub(crate) const BOOKKEEPER: &str = "--bookkeeper";
/// Processes at work at a time, and how many of them are killed.
const WORKERS: usize = 2;
const KILLS: u32 = 30;
/// Facts that come in between two kills, and runs that are started, whose steps record one each.
const ARRIVE: u32 = 40;
const DEPOSITS: u32 = 10;
const ACCOUNTS: u32 = 5;
/// How long nothing may come of it.
const PATIENCE: Duration = Duration::from_secs(60);

/// The user's own table: a line for every deposit.
const LINES: &str = "CREATE TABLE deposit (number INTEGER NOT NULL)";
const DEPOSIT: Workflow<u32, ()> = Workflow::named("deposit");

fn account(number: u32) -> String {
    format!("account {}", number % ACCOUNTS)
}

/// A line and its fact, in one transaction.
async fn note(tx: Tx, number: u32) -> Result<()> {
    let line = "INSERT INTO deposit (number) VALUES ($1)";
    tx.execute(line, (i64::from(number),)).await?;
    let paid = Paid {
        account: account(number),
        cents: 1,
    };
    let fact = PAID.record(&tx, &paid).id(format!("deposit {number}"));
    fact.await?;
    Ok(())
}

async fn deposit(cx: Cx, number: u32) -> Result<()> {
    cx.step("note", |tx| note(tx, number)).await
}

fn bookkeeper(file: &Path, server: &[String]) -> EngineBuilder {
    let engine = match server {
        [address, schema] => Engine::open(address).schema(schema),
        _ => Engine::open(file),
    };
    let engine = engine.lease(LEASE).register(DEPOSIT, deposit);
    ledger::books(engine)
}

/// Takes what came in, runs what was started and moves money about, until killed.
pub(crate) async fn keep_books(file: &Path, server: &[String]) -> Result<(), Error> {
    let engine = until_done(|| bookkeeper(file, server).start()).await;
    let mut random = Random::new(u64::from(std::process::id()));
    loop {
        until_done(|| engine.tick(engine.now())).await;
        let number = u32::try_from(random.below(100)).expect("a small number");
        let moved = Transfer {
            from: account(number),
            to: account(number + 1),
            cents: 1 + i64::from(number),
        };
        until_done(|| ledger::transfer(&engine, &moved)).await;
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

/// Books that are not left alone.
struct Books {
    engine: Engine,
    ground: Ground,
    random: Random,
    alive: Vec<Worker>,
    turn: u32,
    arrived: u32,
    deposits: u32,
}

impl Books {
    async fn on(ground: Ground, seed: u64) -> Books {
        Books {
            engine: until_done(|| ground.engine().start()).await,
            ground,
            random: Random::new(seed),
            alive: Vec::new(),
            turn: 0,
            arrived: 0,
            deposits: 0,
        }
    }

    /// What happens between two blows.
    async fn go_on(&mut self) {
        while self.alive.len() < WORKERS {
            let worker = Worker::spawn_as(BOOKKEEPER, &self.ground);
            self.alive.push(worker);
        }
        let engine = &self.engine;
        for _ in 0..ARRIVE {
            until_done(|| engine.append(arrival(self.arrived))).await;
            self.arrived += 1;
        }
        for _ in 0..DEPOSITS {
            let key = format!("deposit {}", self.deposits);
            until_done(|| {
                engine
                    .start(DEPOSIT, &self.deposits)
                    .key(key.clone())
                    .into_future()
            })
            .await;
            self.deposits += 1;
        }
        self.turn += 1;
        if self.turn.is_multiple_of(3) {
            // Somebody who has it builds it, if there is anybody.
            for name in ["balances", "turnovers"] {
                let _ = engine.rebuild(name).await;
            }
        }
        let pause = 50 + self.random.below(250);
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }

    /// The killing has ended: all that was asked for must come of it.
    async fn let_end(&mut self) {
        self.alive.push(Worker::spawn_as(BOOKKEEPER, &self.ground));
        let paid = "SELECT count(*) FROM roundel_fact WHERE kind = 'paid'";
        let (mut known, mut since) = (0, Instant::now());
        let all = i64::from(self.arrived + self.deposits);
        while known < all && since.elapsed() < PATIENCE {
            let now = self.ground.count(paid).await;
            if now > known {
                (known, since) = (now, Instant::now());
            }
            // What an operator does where every process that tried it was killed.
            let parked = self.engine.runs().in_state(RunState::Parked);
            for run in until_done(|| parked.fetch()).await.items {
                let _ = self.engine.resume(run.row.id).await;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.alive.clear();
    }

    /// Says what came of it, and whether all is well.
    async fn judge(self, blows: &str, begin: Instant) -> bool {
        self.engine.shutdown().await;
        let wrong = audit(&self.ground, self.arrived, self.deposits).await;
        let seconds = begin.elapsed().as_secs_f64();
        let (arrived, deposits) = (self.arrived, self.deposits);
        println!("facts: {arrived} came in, {deposits} by steps; {blows}, {seconds:.0} s");
        wrong.iter().take(20).for_each(|what| println!("  {what}"));
        wrong.is_empty()
    }
}

/// Kills who keeps the books in a file. Returns whether all is well.
pub(crate) async fn part(seed: u64) -> bool {
    let (folder, begin) = (crate::folder(), Instant::now());
    let file = folder.path().join("kill.db");
    let connection = Connection::open(&file).expect("the file is made");
    connection.execute_batch(LINES).expect("a table");
    drop(connection);
    let mut books = Books::on(Ground::File(file), seed).await;
    for _ in 0..KILLS {
        books.go_on().await;
        drop(books.alive.remove(0));
    }
    books.let_end().await;
    let blows = format!("{KILLS} kills, seed {seed}");
    books.judge(&blows, begin).await
}

/// Kills who keeps the books on a server, and does to the server what a tormentor does.
#[cfg(feature = "postgres")]
pub(crate) async fn part_on_server(seed: u64) -> bool {
    use crate::server::{Blow, Plan, Tormentor};

    let Some(stage) = crate::on_server::stage("kill: facts on a server").await else {
        return true;
    };
    let begin = Instant::now();
    stage.site.make(LINES).await;
    let mut books = Books::on(Ground::Server(stage.site.clone()), seed).await;
    let mut tormentor = Tormentor {
        server: stage.server,
        proxy: stage.proxy,
        site: stage.site,
        left: BLOWS,
        done: Plan::default(),
    };
    while let Some(blow) = tormentor.next(&mut books.random) {
        books.go_on().await;
        if blow == Blow::Kill {
            drop(books.alive.remove(0));
        }
        tormentor.strike(blow, &mut books.random).await;
    }
    books.let_end().await;
    let blows = format!("on a server, {:?}, seed {seed}", tormentor.done);
    let well = books.judge(&blows, begin).await;
    tokio::task::block_in_place(|| drop(stage.schema));
    well
}

/// What is done to those who keep books on a server.
#[cfg(feature = "postgres")]
const BLOWS: crate::server::Plan = crate::server::Plan {
    kills: 12,
    terminated: 8,
    backends: 2,
    restarts: 1,
    scenarios: 7,
};

/// What facts come to, told once more.
#[derive(Default)]
struct Told {
    paid: Vec<String>,
    /// Deposits that name the round that recorded them.
    by_rounds: usize,
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
                let id = fact.id.id.to_string();
                let by_step = id.starts_with("deposit") && fact.row.cause.is_some();
                told.by_rounds += usize::from(by_step);
                told.paid.push(id);
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

async fn audit(ground: &Ground, arrived: u32, deposits: u32) -> Vec<String> {
    let mut wrong = Vec::new();
    let books = || ledger::books(ground.engine()).start();
    let engine = until_done(books).await;
    let found = until_done(|| ledger::read(&engine)).await;
    let mut told = until_done(|| tell(&engine)).await;
    if found != told.documents() {
        wrong.push(format!(
            "the books say {found:?}, not {:?}",
            told.documents()
        ));
    }
    told.paid.sort();
    let came = (0..arrived).map(|number| format!("paid {number}"));
    let by_steps = (0..deposits).map(|number| format!("deposit {number}"));
    let mut wanted: Vec<String> = came.chain(by_steps).collect();
    wanted.sort();
    if told.paid != wanted {
        let (found, all) = (told.paid.len(), wanted.len());
        wrong.push(format!("{found} payments of {all} are there"));
    }
    // A line is there if its fact is, once, and the fact says which round wrote both.
    let lines = ground.count("SELECT count(*) FROM deposit").await;
    let numbers = "SELECT count(*) FROM (SELECT DISTINCT number FROM deposit) AS line";
    let counted = (lines, ground.count(numbers).await, told.by_rounds);
    if counted != (deposits.into(), deposits.into(), deposits as usize) {
        wrong.push(format!(
            "{counted:?} lines, numbers and facts of {deposits} deposits"
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
