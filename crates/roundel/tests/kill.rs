//! Real processes, really killed. A worker process is killed at random points, again and again,
//! while a population of runs goes on; then everything must have happened, and once.
//!
//! This program is the harness and, with a hidden argument, the worker. `ROUNDEL_KILLS` says how
//! often to kill in each of the two parts, `ROUNDEL_SEED` when.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use roundel::{Cx, Engine, Failure, Result as RunResult, RunState, Signal, Tx, Workflow};
use rusqlite::{Connection, OpenFlags};

const WALK: Workflow<u32, u32> = Workflow::named("walk");
const ERRAND: Workflow<u32, u32> = Workflow::named("errand");
const GO: Signal<u32> = Signal::named("go");

const STEPS: u32 = 20;
/// Runs under way at any time, at least.
const POPULATION: usize = 60;
const LEASE: Duration = Duration::from_millis(400);
const WORKER: &str = "--worker";

async fn note(tx: Tx, run: String, step: u32) -> RunResult<u32> {
    tx.execute(
        "INSERT INTO ledger (run, step) VALUES ($1, $2)",
        (run, i64::from(step)),
    )
    .await?;
    Ok(step)
}

/// Twenty steps, each of which writes a row into the user's own table; between some of them an
/// effect, a pause, a signal, a child.
async fn walk(cx: Cx, number: u32) -> RunResult<u32> {
    let mut sum = 0;
    for step in 0..STEPS {
        match step {
            5 => sum += cx.effect("call", |_| async { Ok::<_, Failure>(1) }).await?,
            9 => cx.sleep(Duration::from_millis(15)).await,
            13 => sum += cx.wait(GO).await?,
            17 => sum += cx.child(ERRAND, &number).await?,
            _ => {}
        }
        sum += cx
            .step("note", |tx| note(tx, cx.run().to_string(), step))
            .await?;
    }
    Ok(sum)
}

async fn errand(cx: Cx, number: u32) -> RunResult<u32> {
    cx.step("note", |tx| note(tx, cx.run().to_string(), STEPS))
        .await?;
    Ok(number)
}

async fn work(file: &Path) -> Result<(), roundel::Error> {
    let engine = Engine::open(file)
        .lease(LEASE)
        .register(WALK, walk)
        .register(ERRAND, errand);
    let _engine = engine.start().await?;
    std::future::pending().await
}

/// A small generator: the same seed kills at the same moments, as far as the machine allows.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

fn spawn(file: &Path) -> Child {
    let program = std::env::current_exe().expect("this program has a path");
    Command::new(program)
        .arg(WORKER)
        .arg(file)
        .spawn()
        .expect("a worker can be started")
}

struct Harness {
    engine: Engine,
    started: u32,
    random: Random,
}

impl Harness {
    async fn unfinished(&self) -> usize {
        let stats = self.engine.stats().await.expect("counts");
        let going = stats.runs.iter().filter(|(workflow, _, state, _)| {
            workflow.as_str() == "walk" && !state.has_ended() && *state != RunState::Parked
        });
        going
            .map(|(_, _, _, count)| usize::try_from(*count).expect("few"))
            .sum()
    }

    /// Keeps the population up.
    async fn refill(&mut self) {
        let missing = POPULATION.saturating_sub(self.unfinished().await);
        for _ in 0..missing {
            self.started += 1;
            let start = self
                .engine
                .start(WALK, &self.started)
                .key(self.started.to_string());
            start.with_signal(GO, &7).await.expect("a run is started");
        }
    }

    async fn kill(&mut self, file: &Path, workers: usize, kills: usize) {
        let mut alive: Vec<Child> = (0..workers).map(|_| spawn(file)).collect();
        for kill in 0..kills {
            self.refill().await;
            let pause = 20 + self.random.below(180);
            tokio::time::sleep(Duration::from_millis(pause)).await;
            let place = kill % workers;
            let mut killed = std::mem::replace(&mut alive[place], spawn(file));
            killed.kill().expect("a worker can be killed");
            killed.wait().expect("a killed worker ends");
        }
        let deadline = Instant::now() + Duration::from_secs(120);
        while self.unfinished().await > 0 && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        for mut worker in alive {
            worker.kill().expect("a worker can be killed");
            worker.wait().expect("a killed worker ends");
        }
    }
}

/// What is wrong with the file, in words; and how many rows the steps wrote.
fn findings(file: &Path, started: u32) -> (Vec<String>, i64) {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
    let connection = Connection::open_with_flags(file, flags).expect("the file opens");
    let one = |sql: &str| {
        connection
            .query_row(sql, [], |row| row.get::<_, i64>(0))
            .expect("a count")
    };
    let rows = one("SELECT count(*) FROM ledger");
    let (walks, all) = (
        i64::from(started),
        i64::from(started) * i64::from(STEPS + 1),
    );
    let sound: String = connection
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .expect("the check runs");
    let gaps = "SELECT count(*) FROM (SELECT first, coalesce(lag(first + count) OVER \
        (PARTITION BY run, execution ORDER BY first), 1) AS due FROM roundel_journal) \
        WHERE first <> due";
    let ends = "SELECT count(*) FROM (SELECT run FROM roundel_entry WHERE kind = 'ended' \
        GROUP BY run HAVING count(*) = 1)";
    let done = "SELECT count(*) FROM roundel_run WHERE state = 'completed'";
    let twice = "SELECT count(*) - (SELECT count(*) FROM (SELECT DISTINCT run, step FROM ledger)) \
        FROM ledger";
    let checks = [
        ("steps that happened twice", one(twice), 0),
        ("rows that steps wrote", rows, all),
        (
            "runs that completed, with their children",
            one(done),
            2 * walks,
        ),
        ("journals with one end", one(ends), 2 * walks),
        ("gaps in journals", one(gaps), 0),
        (
            "runs that are still leased",
            one("SELECT count(owner) FROM roundel_run"),
            0,
        ),
    ];
    let mut wrong: Vec<String> = checks
        .iter()
        .filter(|(_, found, wanted)| found != wanted)
        .map(|(what, found, wanted)| format!("{what}: {found} instead of {wanted}"))
        .collect();
    if sound != "ok" {
        wrong.push(format!("the file is damaged: {sound}"));
    }
    (wrong, rows)
}

/// One part: so many workers at a time on one file. Returns whether all is well.
async fn part(workers: usize, kills: usize, seed: u64) -> bool {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("kill.db");
    let connection = Connection::open(&file).expect("the file is made");
    let ledger = "CREATE TABLE ledger (run TEXT NOT NULL, step INTEGER NOT NULL)";
    connection
        .execute_batch(ledger)
        .expect("the user's own table");
    drop(connection);
    let engine = Engine::open(&file).start().await.expect("a client");
    let mut harness = Harness {
        engine,
        started: 0,
        random: Random(seed | 1),
    };
    let begin = Instant::now();
    harness.kill(&file, workers, kills).await;
    harness.engine.shutdown().await;
    let (wrong, rows) = findings(&file, harness.started);
    println!(
        "{workers} at a time: {kills} kills, {} runs, {rows} ledger rows, {:.0} s, seed {seed}",
        harness.started,
        begin.elapsed().as_secs_f64()
    );
    let wrong: BTreeSet<String> = wrong.into_iter().collect();
    wrong.iter().for_each(|what| println!("  {what}"));
    wrong.is_empty()
}

fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(otherwise)
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("threads");
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some(WORKER) {
        let file = arguments.next().expect("a worker is given its file");
        let ended = runtime.block_on(work(Path::new(&file)));
        panic!("a worker ended by itself: {ended:?}");
    }
    let kills = usize::try_from(setting("ROUNDEL_KILLS", 200)).expect("a number of kills");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let seed = setting(
        "ROUNDEL_SEED",
        now.map_or(1, |since| since.subsec_nanos().into()),
    );
    let well = [1, 2].map(|workers| runtime.block_on(part(workers, kills, seed)));
    let passed = well.iter().filter(|part| **part).count();
    println!("{passed} passed, {} failed", well.len() - passed);
    if passed < well.len() {
        std::process::exit(1);
    }
}
