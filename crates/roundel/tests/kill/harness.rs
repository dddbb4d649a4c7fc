//! Keeps a population of runs up, and kills the processes that work on it.

use std::future::Future;
use std::time::{Duration, Instant};

use futures::future::join_all;
use roundel::{Engine, Error, RunState, Sent};
use roundel_core::Outcome;
use tokio::task::JoinHandle;

use crate::ground::Ground;
use crate::process::{LEASE, Refusals, Worker};
#[cfg(feature = "postgres")]
use crate::server::{Blow, Tormentor};
use crate::walk::{GO, SIGNAL, WALK};

/// Runs under way at any time, at least: more than the leases of killed processes can hold.
const POPULATION: u32 = 120;
/// One of so many kills is followed by another one while the next process recovers...
const AGAIN: u64 = 3;
/// ...and that one by others, up to so many in a row.
const DEPTH: u32 = 3;
/// One of so many processes is stopped, for so many leases, before it is killed.
const ZOMBIE: u32 = 8;
const LEASES: u32 = 3;
/// How long a zombie goes on, and how long it may take to be told.
const AFTERLIFE: Duration = Duration::from_millis(50);
const TOLD_WITHIN: Duration = Duration::from_secs(10);
/// Why such a run is parked.
const CRASHED: &str = "crashed_worker";
/// How long everything may take to end when the killing has.
const PATIENCE: Duration = Duration::from_secs(60);

/// A small generator: the same seed kills at the same moments, as far as the machine allows.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed | 1)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// What was done to the processes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) kills: u32,
    /// Kills of a process that had runs in hand.
    pub(crate) in_flight: u32,
    /// Kills of a process that had hardly begun, after a kill.
    pub(crate) recovering: u32,
    /// Processes that were stopped until others had runs of theirs, and then went on.
    pub(crate) zombies: u32,
    /// Those of them to which the store then refused a round or a renewal.
    pub(crate) refused: u32,
    /// Those of them to which it refused a round.
    pub(crate) fenced: u32,
    /// Rounds refused to zombies.
    pub(crate) rounds: u64,
    /// Runs that were parked because each process that tried them was killed, and were resumed.
    pub(crate) resumed: u32,
}

/// What became of a process that was stopped.
struct Afterlife {
    /// Runs that others had when it went on.
    lost: usize,
    refused: Refusals,
    in_hand: usize,
}

pub(crate) struct Harness {
    pub(crate) engine: Engine,
    pub(crate) ground: Ground,
    pub(crate) random: Random,
    pub(crate) started: u32,
    /// Runs up to this one were sent their signal.
    pub(crate) signalled: u32,
    pub(crate) tally: Tally,
}

impl Harness {
    async fn unfinished(&self) -> u32 {
        let stats = until_done(|| self.engine.stats()).await;
        let going = stats
            .runs
            .iter()
            .filter(|(workflow, _, state, _)| workflow.as_str() == "walk" && !state.has_ended());
        going
            .map(|(_, _, _, count)| u32::try_from(*count).expect("few"))
            .sum()
    }

    /// Keeps the population up.
    async fn refill(&mut self) {
        let missing = POPULATION.saturating_sub(self.unfinished().await);
        let numbers = self.started + 1..=self.started + missing;
        let start = async |number: u32| {
            let start = || self.engine.start(WALK, &number).key(number.to_string());
            until_done(|| async { start().await.map(|_| ()) }).await;
        };
        join_all(numbers.map(start)).await;
        self.started += missing;
    }

    /// Sends the signals of all but the newest runs, some of which wait and some of which do not
    /// yet.
    async fn signal(&mut self, but: u32) {
        let last = self.started.saturating_sub(but).max(self.signalled);
        let send = async |number: u32| {
            let to = number.to_string();
            let send = || self.engine.signal(to.as_str(), GO, &SIGNAL).key("go");
            let sent = until_done(|| async { send().await }).await;
            assert!(
                matches!(sent, Sent::Delivered(_) | Sent::Queued),
                "{sent:?}"
            );
        };
        join_all((self.signalled + 1..=last).map(send)).await;
        self.signalled = last;
    }

    /// Does what an operator would: resumes runs whose processes were killed too often.
    async fn resume(&mut self) {
        let parked = self.engine.runs().in_state(RunState::Parked);
        for run in until_done(|| parked.fetch()).await.items {
            if matches!(&run.row.outcome, Some(Outcome::Failure(why)) if why.code == CRASHED) {
                // If it does not succeed, the run is found again.
                let resumed = self.engine.resume(run.row.id).await;
                self.tally.resumed += u32::from(resumed.is_ok());
            }
        }
    }

    /// Kills so often, with so many processes at work at a time; then lets everything end.
    pub(crate) async fn kill(&mut self, workers: usize, kills: u32) {
        let mut alive: Vec<Worker> = (0..workers).map(|_| Worker::spawn(&self.ground)).collect();
        let mut stopped = Vec::new();
        let planned = |harness: &Harness, stopped: &Vec<JoinHandle<_>>| {
            harness.tally.kills + u32::try_from(stopped.len()).expect("few")
        };
        for turn in 1.. {
            if planned(self, &stopped) == kills {
                break;
            }
            self.resume().await;
            self.refill().await;
            self.signal(POPULATION / 3).await;
            self.pause(10, 60).await;
            if turn % ZOMBIE == 0 {
                stopped.push(self.stop(&mut alive));
                continue;
            }
            self.replace(&mut alive).await;
            for _ in 0..DEPTH {
                if planned(self, &stopped) == kills || self.random.below(AGAIN) > 0 {
                    break;
                }
                self.pause(0, 30).await;
                self.replace(&mut alive).await;
                self.tally.recovering += 1;
            }
        }
        for zombie in stopped {
            self.bury(&zombie.await.expect("a zombie is watched"));
        }
        self.let_end().await;
    }

    /// Lets everything end, undisturbed; gives up when no run has ended for long.
    async fn let_end(&mut self) {
        self.signal(0).await;
        let (mut left, mut since) = (self.unfinished().await, Instant::now());
        while left > 0 && since.elapsed() < PATIENCE {
            self.resume().await;
            tokio::time::sleep(Duration::from_millis(20)).await;
            let before = std::mem::replace(&mut left, self.unfinished().await);
            if left != before {
                since = Instant::now();
            }
        }
    }

    /// Deals all blows that are planned, with so many processes at work at a time; then lets
    /// everything end.
    #[cfg(feature = "postgres")]
    pub(crate) async fn torment(&mut self, workers: usize, tormentor: &mut Tormentor) {
        let mut alive: Vec<Worker> = (0..workers).map(|_| Worker::spawn(&self.ground)).collect();
        self.refill().await;
        while let Some(blow) = tormentor.next(&mut self.random) {
            self.resume().await;
            self.refill().await;
            self.signal(POPULATION / 3).await;
            self.pause(10, 60).await;
            if blow == Blow::Kill {
                self.replace(&mut alive).await;
            }
            tormentor.strike(blow, &mut self.random).await;
        }
        self.let_end().await;
    }

    async fn pause(&mut self, least: u64, more: u64) {
        let pause = least + self.random.below(more);
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }

    /// Kills the oldest process. Where there are several, the next one lives already when this one
    /// dies; where there is one, it is alone.
    async fn replace(&mut self, alive: &mut Vec<Worker>) {
        let dying = alive.remove(0);
        if !alive.is_empty() {
            alive.push(Worker::spawn(&self.ground));
        }
        let name = dying.name();
        drop(dying);
        self.count_kill(self.ground.in_hand(&name).await.len());
        if alive.is_empty() {
            alive.push(Worker::spawn(&self.ground));
        }
    }

    fn count_kill(&mut self, in_hand: usize) {
        self.tally.kills += 1;
        self.tally.in_flight += u32::from(in_hand > 0);
    }

    /// Stops the oldest process in the middle of its work. It goes on when its leases have long
    /// ended, and is killed a little later; meanwhile others are.
    fn stop(&mut self, alive: &mut Vec<Worker>) -> JoinHandle<Afterlife> {
        let worker = alive.remove(0);
        worker.send("STOP");
        alive.push(Worker::spawn(&self.ground));
        tokio::spawn(afterlife(self.ground.clone(), worker))
    }

    fn bury(&mut self, zombie: &Afterlife) {
        self.count_kill(zombie.in_hand);
        if zombie.lost > 0 {
            let Refusals { rounds, leases } = zombie.refused;
            self.tally.zombies += 1;
            self.tally.refused += u32::from(rounds + leases > 0);
            self.tally.fenced += u32::from(rounds > 0);
            self.tally.rounds += rounds;
        }
    }
}

/// A stopped process, until it is killed. It may hold the file's lock, so whoever stops one must
/// not wait for anything before it goes on.
async fn afterlife(ground: Ground, worker: Worker) -> Afterlife {
    let (name, before) = (worker.name(), worker.refused(&ground));
    let had = ground.in_hand(&name).await;
    tokio::time::sleep(LEASE * LEASES).await;
    let has = ground.in_hand(&name).await;
    let lost = had.iter().filter(|run| !has.contains(run)).count();
    worker.send("CONT");
    let deadline = Instant::now() + TOLD_WITHIN;
    while lost > 0 && worker.refused(&ground) == before && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(AFTERLIFE).await;
    let refused = worker.refused(&ground).since(before);
    drop(worker);
    Afterlife {
        lost,
        refused,
        in_hand: ground.in_hand(&name).await.len(),
    }
}

/// Repeats what the database was too busy for, as any client would: under the same key.
pub(crate) async fn until_done<T, F, Fut>(mut ask: F) -> T
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
