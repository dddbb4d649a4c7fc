//! Real processes, really killed. A worker process is killed at random points, again and again,
//! also while it still opens the file, and a population of runs goes on; now and then one is
//! stopped until others have its runs, and goes on as a zombie. Then everything must have happened,
//! and once.
//!
//! This program is the harness and, with a hidden argument, the worker. `ROUNDEL_KILLS` says how
//! often to kill, in both parts together, `ROUNDEL_SEED` when. On PostgreSQL connections are ended
//! as well, processes of the server killed, the server restarted, and a proxy cuts, delays and
//! loses; `ROUNDEL_BLOWS` says how often each, in this order.

mod audit;
mod batches;
mod facts;
#[path = "../../../store/tests/sqlite/figures.rs"]
mod figures;
mod ground;
mod harness;
// Its own program is not used here.
#[allow(dead_code)]
#[path = "../../examples/ledger.rs"]
mod ledger;
#[cfg(feature = "postgres")]
mod on_server;
mod process;
#[cfg(feature = "postgres")]
mod proxy;
#[cfg(feature = "postgres")]
mod server;
mod walk;

use std::path::Path;
use std::time::Instant;

use roundel::Engine;
use rusqlite::Connection;
use tempfile::TempDir;

use audit::{Findings, audit, missed};
use ground::Ground;
use harness::{Harness, Random, Tally};

/// Kills of a test run.
const KILLS: u64 = 1_000;

/// A folder in memory, where there is such a place: what a killed process wrote stays there too,
/// and a busy disk does not make it slow.
fn folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .expect("a folder")
}

/// One part: so many workers at a time on one file. Returns whether all is well.
async fn part(workers: usize, kills: u32, seed: u64) -> bool {
    let folder = folder();
    let file = folder.path().join("kill.db");
    let connection = Connection::open(&file).expect("the file is made");
    let made = connection.execute_batch(walk::LEDGER);
    made.expect("the user's own table");
    drop(connection);
    let engine = Engine::open(&file).start().await.expect("a client");
    let mut harness = Harness {
        engine,
        ground: Ground::File(file),
        random: Random::new(seed),
        started: 0,
        signalled: 0,
        tally: Tally::default(),
    };
    let begin = Instant::now();
    harness.kill(workers, kills).await;
    let mut found = audit(&harness).await;
    found.wrong.extend(missed(&harness.tally));
    println!(
        "workers: {workers}, {:?}, runs: {} completed, ledger rows: {}, duplicates: {}, {:.0} s, \
         seed {seed}",
        harness.tally,
        found.completed,
        found.rows,
        found.duplicates,
        begin.elapsed().as_secs_f64()
    );
    if found.wrong.is_empty() {
        hand_over(&harness.tally, &found);
    }
    for what in found.wrong.iter().take(20) {
        println!("  {what}");
    }
    found.wrong.is_empty()
}

fn hand_over(tally: &Tally, found: &Findings) {
    let counted = [
        ("kills", tally.kills),
        ("in_flight", tally.in_flight),
        ("recovering", tally.recovering),
        ("zombies", tally.zombies),
        ("refused", tally.refused),
        ("fenced", tally.fenced),
        ("runs", found.completed),
    ];
    let mut figures: Vec<(&str, u64)> = counted
        .iter()
        .map(|(name, count)| (*name, u64::from(*count)))
        .collect();
    figures.push(("rounds_refused", tally.rounds));
    figures.push(("steps", u64::try_from(found.rows).unwrap_or(0)));
    figures.push(("duplicates", u64::try_from(found.duplicates).unwrap_or(0)));
    figures::hand_over("kills", &figures);
}

fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(otherwise)
}

/// Is this part asked for? All are, or those whose names contain one of the arguments.
fn is_wanted(name: &str) -> bool {
    let filters: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    filters.is_empty() || filters.iter().any(|part| name.contains(part))
}

/// Those on files at the same time: each mostly waits for leases to end.
async fn all(kills: u64, seed: u64) -> Vec<bool> {
    let kills = u32::try_from(kills.div_ceil(2)).expect("a number of kills");
    let mut parts = Vec::new();
    for (workers, name) in [(1, "kill_one_worker"), (2, "kill_two_workers")] {
        if is_wanted(name) {
            parts.push(tokio::spawn(part(workers, kills, seed + workers as u64)));
        }
    }
    let mut well = Vec::new();
    for part in parts {
        well.push(part.await.unwrap_or(false));
    }
    if is_wanted("kill_batch") {
        well.push(tokio::spawn(batches::part(seed)).await.unwrap_or(false));
    }
    #[cfg(feature = "postgres")]
    if is_wanted("kill_batch_on_server") {
        let part = tokio::spawn(batches::part_on_server(seed));
        well.push(part.await.unwrap_or(false));
    }
    if is_wanted("kill_facts") {
        well.push(tokio::spawn(facts::part(seed)).await.unwrap_or(false));
    }
    // By itself: beside it, workers on a file would come to too little to be killed at.
    #[cfg(feature = "postgres")]
    if is_wanted("kill_on_server") {
        well.push(tokio::spawn(on_server::part(seed)).await.unwrap_or(false));
    }
    #[cfg(feature = "postgres")]
    if is_wanted("kill_facts_on_server") {
        let part = tokio::spawn(facts::part_on_server(seed));
        well.push(part.await.unwrap_or(false));
    }
    well
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("threads");
    let mut arguments = std::env::args().skip(1);
    let as_what = arguments.next();
    if as_what.as_deref() == Some(facts::BOOKKEEPER) {
        let file = arguments.next().expect("a process is given its file");
        let server: Vec<String> = arguments.collect();
        let ended = runtime.block_on(facts::keep_books(Path::new(&file), &server));
        panic!("a process ended by itself: {ended:?}");
    }
    if as_what.as_deref() == Some(process::WORKER) {
        let file = arguments.next().expect("a worker is given its file");
        let server: Vec<String> = arguments.collect();
        let ended = runtime.block_on(process::work(Path::new(&file), &server));
        panic!("a worker ended by itself: {ended:?}");
    }
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.map_or(1, |since| since.subsec_nanos().into());
    let seed = setting("ROUNDEL_SEED", now);
    println!("seed {seed}");
    let well = runtime.block_on(all(setting("ROUNDEL_KILLS", KILLS), seed));
    let passed = well.iter().filter(|part| **part).count();
    println!("{passed} passed, {} failed", well.len() - passed);
    if passed < well.len() {
        std::process::exit(1);
    }
}
