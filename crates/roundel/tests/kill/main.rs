//! Real processes, really killed. A worker process is killed at random points, again and again,
//! also while it still opens the file, and a population of runs goes on; now and then one is
//! stopped until others have its runs, and goes on as a zombie. Then everything must have happened,
//! and once.
//!
//! This program is the harness and, with a hidden argument, the worker. `ROUNDEL_KILLS` says how
//! often to kill, in both parts together, `ROUNDEL_SEED` when.

mod audit;
#[path = "../../../store/tests/sqlite/figures.rs"]
mod figures;
mod harness;
mod process;
mod walk;

use std::path::Path;
use std::time::Instant;

use roundel::Engine;
use rusqlite::Connection;
use tempfile::TempDir;

use audit::{Findings, audit};
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
        file,
        random: Random::new(seed),
        started: 0,
        signalled: 0,
        tally: Tally::default(),
    };
    let begin = Instant::now();
    harness.kill(workers, kills).await;
    let found = audit(&harness).await;
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

/// The parts that are asked for: all, or those whose names contain one of the arguments.
fn parts() -> Vec<usize> {
    let filters: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    let wanted = |name: &str| filters.is_empty() || filters.iter().any(|part| name.contains(part));
    [(1, "kill_one_worker"), (2, "kill_two_workers")]
        .into_iter()
        .filter(|(_, name)| wanted(name))
        .map(|(workers, _)| workers)
        .collect()
}

/// The parts at the same time: each mostly waits for leases to end.
async fn all(kills: u64, seed: u64) -> Vec<bool> {
    let kills = u32::try_from(kills.div_ceil(2)).expect("a number of kills");
    let parts = parts()
        .into_iter()
        .map(|workers| tokio::spawn(part(workers, kills, seed + workers as u64)));
    let mut well = Vec::new();
    for part in parts.collect::<Vec<_>>() {
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
    if arguments.next().as_deref() == Some(process::WORKER) {
        let file = arguments.next().expect("a worker is given its file");
        let ended = runtime.block_on(process::work(Path::new(&file)));
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
