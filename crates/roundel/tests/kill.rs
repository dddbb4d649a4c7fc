//! Real processes, really killed. A worker process is killed at random points, again and again,
//! also while it still opens the file, and a population of runs goes on; now and then one is
//! stopped until others have its runs, and goes on as a zombie. Then everything must have happened,
//! and once.
//!
//! This program is the harness and, with a hidden argument, the worker. `ROUNDEL_KILLS` says how
//! often to kill, in both parts together, `ROUNDEL_SEED` when.

use std::future::Future;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use roundel::{
    Checked, Cx, Engine, Error, Result as RunResult, RunState, Sent, Signal, Tx, Violation,
    Workflow,
};
use roundel_core::Outcome;
use roundel_store::Sqlite;
use rusqlite::{Connection, OpenFlags};
use tempfile::TempDir;

const WALK: Workflow<u32, u32> = Workflow::named("walk");
const ERRAND: Workflow<u32, u32> = Workflow::named("errand");
const GO: Signal<u32> = Signal::named("go");

const STEPS: u32 = 20;
/// What the effect and the signal bring.
const EFFECT: u32 = 1;
const SIGNAL: u32 = 1_000;
/// Runs under way at any time, at least.
const POPULATION: usize = 60;
const LEASE: Duration = Duration::from_millis(400);
const WORKER: &str = "--worker";
/// One of so many kills is followed by another one while the next process recovers.
const AGAIN: u64 = 3;
/// Before one of so many kills, a process is stopped for so many leases.
const ZOMBIE: usize = 12;
const LEASES: u32 = 3;
const FENCED: &str = "fenced";

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
            5 => sum += cx.effect("call", |_| call(number)).await?,
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

/// What a walk of this number returns when nothing was lost and nothing came twice.
fn expected(number: u32) -> u32 {
    (0..STEPS).sum::<u32>() + EFFECT + SIGNAL + number
}

/// Something outside, which takes its time now and then.
async fn call(number: u32) -> RunResult<u32> {
    if number.is_multiple_of(4) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(EFFECT)
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
    let engine = engine.start().await?;
    let told = file.with_extension(format!("{}.{FENCED}", std::process::id()));
    let mut fenced = 0;
    loop {
        tokio::time::sleep(Duration::from_millis(10)).await;
        let now = engine.metrics().rounds_fenced;
        if now > fenced {
            fenced = now;
            std::fs::write(&told, now.to_string()).expect("a file beside the database");
        }
    }
}

/// How many rounds of zombies were refused: each worker leaves its number beside the database.
fn fenced(folder: &Path) -> u64 {
    let files = std::fs::read_dir(folder).expect("the folder");
    let files = files.map(|file| file.expect("a file").path());
    let told = files.filter(|path| path.extension().is_some_and(|end| end == FENCED));
    let told = told.filter_map(|path| std::fs::read_to_string(path).ok());
    told.filter_map(|number| number.parse::<u64>().ok()).sum()
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

/// A worker process, which does not outlive the harness.
struct Worker(Child);

impl Worker {
    fn spawn(file: &Path) -> Worker {
        let program = std::env::current_exe().expect("this program has a path");
        let worker = Command::new(program).arg(WORKER).arg(file).spawn();
        Worker(worker.expect("a worker can be started"))
    }

    fn send(&self, signal: &str) {
        let id = self.0.id().to_string();
        let sent = Command::new("kill").args(["-s", signal, &id]).status();
        assert!(sent.is_ok_and(|sent| sent.success()), "{signal} was sent");
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.0.kill().expect("a worker can be killed");
        self.0.wait().expect("a killed worker ends");
    }
}

struct Harness {
    engine: Engine,
    started: u32,
    /// Runs up to this one were sent their signal.
    signalled: u32,
    random: Random,
    /// Processes that were stopped for too long.
    zombies: u32,
}

impl Harness {
    async fn unfinished(&self) -> usize {
        let stats = until_done(|| self.engine.stats()).await;
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
            let number = self.started + 1;
            let start = || self.engine.start(WALK, &number).key(number.to_string());
            until_done(|| async { start().await.map(|_| ()) }).await;
            self.started = number;
        }
    }

    /// Sends the signals of all but the newest runs, some of which wait and some of which do not
    /// yet.
    async fn signal(&mut self, but: u32) {
        while self.signalled + but < self.started {
            let number = (self.signalled + 1).to_string();
            let send = || self.engine.signal(number.as_str(), GO, &SIGNAL).key("go");
            until_done(|| async {
                let sent = send().await?;
                assert!(
                    matches!(sent, Sent::Delivered(_) | Sent::Queued),
                    "{sent:?}"
                );
                Ok(())
            })
            .await;
            self.signalled += 1;
        }
    }

    async fn kill(&mut self, file: &Path, workers: usize, kills: usize) {
        let mut alive: Vec<Worker> = (0..workers).map(|_| Worker::spawn(file)).collect();
        let mut kill = 0;
        while kill < kills {
            self.refill().await;
            self.signal(u32::try_from(POPULATION / 3).expect("few"))
                .await;
            self.pause(10, 150).await;
            let place = kill % workers;
            if kill % ZOMBIE == ZOMBIE - 1 {
                self.zombie(file, &alive[place]).await;
            }
            // The next one lives already when this one dies.
            alive[place] = Worker::spawn(file);
            kill += 1;
            if kill < kills && self.random.below(AGAIN) == 0 {
                self.pause(0, 30).await;
                alive[place] = Worker::spawn(file);
                kill += 1;
            }
        }
        self.signal(0).await;
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.unfinished().await > 0 && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn pause(&mut self, least: u64, more: u64) {
        let pause = least + self.random.below(more);
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }

    /// Stops a process in the middle of its work until its leases have ended and another one has
    /// its runs; then both go on for a while.
    async fn zombie(&mut self, file: &Path, worker: &Worker) {
        worker.send("STOP");
        let _heir = Worker::spawn(file);
        tokio::time::sleep(LEASE * LEASES).await;
        worker.send("CONT");
        self.zombies += 1;
        self.pause(50, 100).await;
    }

    /// Runs that did not complete, or not with what they should have; and how many did.
    async fn results(&self) -> (Vec<String>, u32) {
        let (mut wrong, mut completed) = (Vec::new(), 0);
        for number in 1..=self.started {
            let row = self
                .engine
                .run(number.to_string())
                .await
                .expect("a run")
                .row;
            match (row.state, row.outcome) {
                (RunState::Completed, Some(Outcome::Value(value)))
                    if value.decode::<u32>().ok() == Some(expected(number)) =>
                {
                    completed += 1;
                }
                (state, outcome) => {
                    let said = match outcome {
                        Some(Outcome::Value(value)) => value.as_str().to_owned(),
                        Some(Outcome::Failure(failure)) => failure.to_string(),
                        None => "nothing".into(),
                    };
                    wrong.push(format!("run {number} is {}: {said}", state.as_str()));
                }
            }
        }
        (wrong, completed)
    }
}

impl Harness {
    /// What the checker finds, and what is left over when all is done.
    async fn unsound(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let told = |_: &Checked, found: Vec<Violation>| {
            wrong.extend(found.iter().map(ToString::to_string));
        };
        let checked = self
            .engine
            .verify(told)
            .await
            .expect("rows that can be read");
        if (checked.messages, checked.offers) != (0, 0) {
            wrong.push(format!("{checked:?}: messages are left"));
        }
        wrong
    }
}

/// Repeats what the database was too busy for, as any client would: under the same key.
async fn until_done<T, F, Fut>(mut ask: F) -> T
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, Error>>,
{
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(Error::Unavailable(_) | Error::Unknown(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// What the file says in the end.
struct Findings {
    wrong: Vec<String>,
    rows: i64,
    duplicates: i64,
}

fn findings(file: &Path, started: u32) -> Findings {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
    let connection = Connection::open_with_flags(file, flags).expect("the file opens");
    let one = |sql: &str| {
        let found = connection.query_row(sql, [], |row| row.get::<_, i64>(0));
        found.expect("a count")
    };
    let rows = one("SELECT count(*) FROM ledger");
    let duplicates = rows - one("SELECT count(*) FROM (SELECT DISTINCT run, step FROM ledger)");
    let walks = i64::from(started);
    let done = "SELECT count(*) FROM roundel_run WHERE state = 'completed'";
    let checks = [
        ("steps that happened twice", duplicates, 0),
        ("rows that steps wrote", rows, walks * i64::from(STEPS + 1)),
        ("runs that completed, with children", one(done), 2 * walks),
    ];
    let wrong = checks
        .iter()
        .filter(|(_, found, wanted)| found != wanted)
        .map(|(what, found, wanted)| format!("{what}: {found} instead of {wanted}"))
        .collect();
    Findings {
        wrong,
        rows,
        duplicates,
    }
}

/// A folder in memory, where there is such a place: what a killed process wrote stays there too,
/// and a busy disk does not make it slow.
fn folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .expect("a folder")
}

/// One part: so many workers at a time on one file. Returns whether all is well.
async fn part(workers: usize, kills: usize, seed: u64) -> bool {
    let folder = folder();
    let file = folder.path().join("kill.db");
    let connection = Connection::open(&file).expect("the file is made");
    let ledger = "CREATE TABLE ledger (run TEXT NOT NULL, step INTEGER NOT NULL)";
    let made = connection.execute_batch(ledger);
    made.expect("the user's own table");
    drop(connection);
    let engine = Engine::open(&file).start().await.expect("a client");
    let mut harness = Harness {
        engine,
        started: 0,
        signalled: 0,
        random: Random(seed | 1),
        zombies: 0,
    };
    let begin = Instant::now();
    harness.kill(&file, workers, kills).await;
    let (mut wrong, completed) = harness.results().await;
    wrong.extend(harness.unsound().await);
    harness.engine.shutdown().await;
    wrong.extend(Sqlite::integrity(&file, || ()).expect("the file opens"));
    let found = findings(&file, harness.started);
    wrong.extend(found.wrong);
    let fenced = fenced(folder.path());
    println!(
        "workers: {workers}, kills: {kills}, zombies: {}, fenced rounds: {fenced}, \
         runs: {completed} completed, ledger rows: {}, \
         duplicates: {}, {:.0} s, seed {seed}",
        harness.zombies,
        found.rows,
        found.duplicates,
        begin.elapsed().as_secs_f64()
    );
    for what in wrong.iter().take(20) {
        println!("  {what}");
    }
    wrong.is_empty()
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
    let kills = usize::try_from(setting("ROUNDEL_KILLS", 300)).expect("a number of kills");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.map_or(1, |since| since.subsec_nanos().into());
    let seed = setting("ROUNDEL_SEED", now);
    println!("seed {seed}");
    let well: Vec<bool> = parts()
        .into_iter()
        .map(|workers| runtime.block_on(part(workers, kills.div_ceil(2), seed)))
        .collect();
    let passed = well.iter().filter(|part| **part).count();
    println!("{passed} passed, {} failed", well.len() - passed);
    if passed < well.len() {
        std::process::exit(1);
    }
}
