//! A worker process: what it does, and how it is made, stopped and killed.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use roundel::Engine;

use crate::batches::{AFTER, PIECE, after, piece};
use crate::ground::Ground;
use crate::walk::{ERRAND, WALK, errand, walk};

pub(crate) const LEASE: Duration = Duration::from_millis(400);
/// Runs that one process works on at once. What a killed one had waits for the end of its leases,
/// so it must not have them all.
const CONCURRENCY: usize = 8;
/// The hidden argument.
pub(crate) const WORKER: &str = "--worker";
/// A look at its own counters, this often.
const A_MOMENT: Duration = Duration::from_millis(5);

/// What a process was told because others have its runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Refusals {
    /// Rounds that were not committed.
    pub(crate) rounds: u64,
    /// Leases that were not renewed.
    pub(crate) leases: u64,
}

impl Refusals {
    fn of(engine: &Engine) -> Refusals {
        let metrics = engine.metrics();
        Refusals {
            rounds: metrics.rounds_fenced,
            leases: metrics.leases_lost,
        }
    }

    pub(crate) fn since(self, before: Refusals) -> Refusals {
        Refusals {
            rounds: self.rounds - before.rounds,
            leases: self.leases - before.leases,
        }
    }
}

/// Works until killed. What was refused to it is left beside the database, which is the file
/// itself, or an address and a schema.
pub(crate) async fn work(file: &Path, server: &[String]) -> Result<(), roundel::Error> {
    let engine = loop {
        let engine = match server {
            [address, schema] => Engine::open(address).schema(schema),
            _ => Engine::open(file),
        };
        let engine = engine
            .lease(LEASE)
            .concurrency(CONCURRENCY)
            .register(WALK, walk)
            .register(ERRAND, errand)
            .handle_in_step(PIECE, piece)
            .handle_in_step(AFTER, after);
        match engine.start().await {
            Ok(engine) => break engine,
            // The server is away.
            Err(roundel::Error::Unavailable(_) | roundel::Error::Unknown(_)) => {
                tokio::time::sleep(A_MOMENT).await;
            }
            Err(error) => return Err(error),
        }
    };
    let told = refusals(file, std::process::id());
    let mut known = Refusals::default();
    loop {
        tokio::time::sleep(A_MOMENT).await;
        let now = Refusals::of(&engine);
        if now != known {
            known = now;
            let text = format!("{} {}", now.rounds, now.leases);
            std::fs::write(&told, text).expect("a file beside the database");
        }
    }
}

/// Where a process says what was refused to it.
fn refusals(file: &Path, process: u32) -> PathBuf {
    file.with_extension(format!("{process}.fenced"))
}

/// A worker process, which does not outlive the harness.
pub(crate) struct Worker(Child);

impl Worker {
    pub(crate) fn spawn(ground: &Ground) -> Worker {
        Worker::spawn_as(WORKER, ground)
    }

    /// With this hidden argument.
    pub(crate) fn spawn_as(what: &str, ground: &Ground) -> Worker {
        let program = std::env::current_exe().expect("this program has a path");
        let mut command = Command::new(program);
        let worker = command.arg(what).args(ground.arguments()).spawn();
        Worker(worker.expect("a worker can be started"))
    }

    /// The name under which it is found in the table of workers.
    pub(crate) fn name(&self) -> String {
        format!("process {}", self.0.id())
    }

    pub(crate) fn send(&self, signal: &str) {
        let id = self.0.id().to_string();
        let sent = Command::new("kill").args(["-s", signal, &id]).status();
        assert!(sent.is_ok_and(|sent| sent.success()), "{signal} was sent");
    }

    /// What was refused to it so far.
    pub(crate) fn refused(&self, ground: &Ground) -> Refusals {
        let told =
            std::fs::read_to_string(refusals(ground.beside(), self.0.id())).unwrap_or_default();
        let (rounds, leases) = told.split_once(' ').unwrap_or_default();
        Refusals {
            rounds: rounds.parse().unwrap_or(0),
            leases: leases.parse().unwrap_or(0),
        }
    }
}

impl Drop for Worker {
    /// With SIGKILL, and gone when this returns.
    fn drop(&mut self) {
        self.0.kill().expect("a worker can be killed");
        self.0.wait().expect("a killed worker ends");
    }
}
