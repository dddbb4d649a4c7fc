//! A batch of ten thousand commands, whose workers are killed while they work on it: its counters
//! are right, and what follows it happened once.

use std::time::{Duration, Instant};

use roundel::{Batch, Command, Engine, Failure, Retry, RunState, Tx};
use rusqlite::Connection;

use crate::ground::Ground;
use crate::harness::Random;
use crate::process::Worker;
use crate::walk::LEDGER;
#[cfg(feature = "postgres")]
use {
    crate::server::Site,
    roundel_testpg::{Binaries, Schema, Server, Sync, untested},
};

pub(crate) const PIECE: Command<u32, u32> = Command::named("piece").retry(Retry::exponential(8));
pub(crate) const AFTER: Command<u32, u32> = Command::named("after").retry(Retry::exponential(8));

const COMMANDS: u32 = 10_000;
/// Every one of so many fails, and says so.
const FAILING: u32 = 10;
/// Processes at work at a time, and how many of them are killed: so many, if it takes that long.
const WORKERS: usize = 2;
const KILLS: u32 = 25;
const FEW: u32 = 5;
/// How long a batch may stand still.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) async fn piece(tx: Tx, number: u32) -> Result<u32, Failure> {
    if number.is_multiple_of(FAILING) {
        return Err(Failure::business("not this one"));
    }
    note(&tx, "piece", number).await
}

pub(crate) async fn after(tx: Tx, number: u32) -> Result<u32, Failure> {
    note(&tx, "after", number).await
}

async fn note(tx: &Tx, what: &str, number: u32) -> Result<u32, Failure> {
    let sql = "INSERT INTO ledger (run, step) VALUES ($1, $2)";
    tx.execute(sql, (what, i64::from(number))).await?;
    Ok(number)
}

/// In a file. Returns whether all is well.
pub(crate) async fn part(seed: u64) -> bool {
    let folder = crate::folder();
    let file = folder.path().join("kill.db");
    let connection = Connection::open(&file).expect("the file is made");
    connection.execute_batch(LEDGER).expect("the user's table");
    drop(connection);
    on(Ground::File(file), seed).await
}

/// The same on a server.
#[cfg(feature = "postgres")]
pub(crate) async fn part_on_server(seed: u64) -> bool {
    let binaries = match Binaries::find() {
        Ok(binaries) => binaries,
        Err(why) => {
            untested("kill: a batch on a server", &why);
            return true;
        }
    };
    let server = tokio::task::block_in_place(|| Server::start(&binaries, Sync::Off));
    let server = server.expect("a server");
    let schema = tokio::task::block_in_place(|| Schema::on(server.address()));
    let folder = tempfile::tempdir().expect("a folder");
    let site = Site {
        direct: schema.address(),
        through: schema.address(),
        schema: schema.name().to_owned(),
        beside: folder.path().join("kill"),
    };
    site.make(LEDGER).await;
    let well = on(Ground::Server(site), seed).await;
    tokio::task::block_in_place(|| drop((schema, server)));
    well
}

/// Kills workers until the batch has ended. Returns whether all is well.
async fn on(ground: Ground, seed: u64) -> bool {
    let (begin, mut random) = (Instant::now(), Random::new(seed));
    let engine = ground.engine().start().await.expect("a client");
    let mut alive: Vec<Worker> = (0..WORKERS).map(|_| Worker::spawn(&ground)).collect();
    let batch: Batch = (0..COMMANDS).map(|number| PIECE.member(&number)).collect();
    let batch = batch.key("all").then(AFTER.member(&0).key("it"));
    engine.batch(batch).await.expect("it is sent");
    let (mut kills, mut ended, mut since) = (0, 0, Instant::now());
    loop {
        let pause = 20 + random.below(100);
        tokio::time::sleep(Duration::from_millis(pause)).await;
        let view = engine.batch_view("all").await.expect("the batch");
        if view.run.row.state.has_ended() || since.elapsed() > PATIENCE {
            break;
        }
        if view.ended() > ended {
            (ended, since) = (view.ended(), Instant::now());
        }
        for run in parked(&engine).await {
            let _ = engine.resume(run).await;
        }
        if kills < KILLS {
            drop(alive.remove(0));
            alive.push(Worker::spawn(&ground));
            kills += 1;
        }
    }
    let follower = async { engine.sent(AFTER, "it").await?.result().await };
    let follower = tokio::time::timeout(PATIENCE, follower).await;
    let mut wrong = audit(&engine, &ground).await;
    if !matches!(follower, Ok(Ok(0))) {
        wrong.push(format!("what follows: {follower:?}"));
    }
    if kills < FEW {
        wrong.push(format!("only {kills} kills came in time"));
    }
    drop(alive);
    let seconds = begin.elapsed().as_secs_f64();
    println!("a batch of {COMMANDS}, kills: {kills}, {seconds:.0} s, seed {seed}");
    wrong.iter().for_each(|what| println!("  {what}"));
    engine.shutdown().await;
    wrong.is_empty()
}

/// Those whose workers were killed too often.
async fn parked(engine: &Engine) -> Vec<roundel::RunId> {
    let page = engine.runs().in_state(RunState::Parked).fetch().await;
    let runs = page.expect("a list").items.into_iter();
    runs.map(|run| run.row.id).collect()
}

async fn audit(engine: &Engine, ground: &Ground) -> Vec<String> {
    let view = engine.batch_view("all").await.expect("the batch");
    let failing = u64::from(COMMANDS / FAILING);
    let replied = u64::from(COMMANDS) - failing;
    let said = match &view.run.row.outcome {
        Some(roundel_core::Outcome::Value(value)) => value.as_str().to_owned(),
        other => format!("{other:?}"),
    };
    let count = async |sql| u64::try_from(ground.count(sql).await).expect("a count");
    let pieces = "SELECT count(*) FROM ledger WHERE run = 'piece'";
    let distinct = "SELECT count(DISTINCT step) FROM ledger WHERE run = 'piece'";
    let after = "SELECT count(*) FROM ledger WHERE run = 'after'";
    let checks = [
        ("commands", view.commands(), u64::from(COMMANDS)),
        ("replies", view.count(RunState::Completed), replied),
        ("failures", view.count(RunState::Failed), failing),
        ("lines", count(pieces).await, replied),
        ("different lines", count(distinct).await, replied),
        ("lines of what follows", count(after).await, 1),
    ];
    let wrong = checks.iter().filter(|(_, found, wanted)| found != wanted);
    let wrong = wrong.map(|(what, found, wanted)| format!("{what}: {found}, not {wanted}"));
    let mut wrong: Vec<String> = wrong.collect();
    if said != format!("{{\"commands\":{COMMANDS},\"failed\":{failing}}}") {
        wrong.push(format!("the batch says {said}"));
    }
    let told = |_: &roundel::Checked, found: Vec<roundel::Violation>| {
        wrong.extend(found.iter().map(ToString::to_string));
    };
    engine.verify(told).await.expect("rows that can be read");
    wrong
}
