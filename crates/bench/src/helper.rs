//! Other worker processes on the same database: this same program, started again. They work on what
//! is due there, and on what this one tells them, line by line.
//!
//! | line | answer |
//! |---|---|
//! | `slice 500` | keeps so many runs of W1 in flight for a slice: effects per second |
//! | `ended` | how many runs have ended there |
//!
//! A process goes when its standard input ends.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use roundel::{Engine, EngineBuilder};

use crate::ground::Ground;
use crate::w1::{self, Place};
use crate::{Error, w2, w3, w4, w5};

/// Names the server to a process, in its environment: there may be a password in it.
const SERVER: &str = "ROUNDEL_BENCH_SERVER";

/// What a process is to work on.
#[derive(Clone, Debug)]
pub struct Role {
    /// The workload.
    pub workload: String,
    /// The schema.
    pub schema: String,
    /// Runs worked on at once, if that is said.
    pub concurrency: Option<usize>,
}

/// Another worker process. It does not outlive this value.
pub(crate) struct Helper {
    child: Child,
    lines: ChildStdin,
    answers: BufReader<ChildStdout>,
}

/// So many worker processes in all; this one is the first.
pub(crate) fn start(
    ground: &Ground,
    workers: usize,
    (workload, concurrency): (&str, Option<usize>),
) -> Result<Vec<Helper>, Error> {
    if workers <= 1 {
        return Ok(Vec::new());
    }
    let url = ground.url().ok_or(Error::Alone)?;
    let schema = ground.schema(workload);
    let start = |_| {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["bench", "worker", workload, &schema]);
        if let Some(most) = concurrency {
            command.args(["--concurrency", &most.to_string()]);
        }
        command.env(SERVER, url);
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        Helper::of(spawned?)
    };
    (1..workers).map(start).collect()
}

impl Helper {
    /// Waits until it is there.
    fn of(mut child: Child) -> Result<Helper, Error> {
        let (lines, answers) = child.stdin.take().zip(child.stdout.take()).expect("piped");
        let mut helper = Helper {
            child,
            lines,
            answers: BufReader::new(answers),
        };
        helper.answer()?;
        Ok(helper)
    }

    pub(crate) fn tell(&mut self, line: &str) -> Result<(), Error> {
        let told = writeln!(self.lines, "{line}").and_then(|()| self.lines.flush());
        told.map_err(|error| Error::Process(format!("cannot be told anything: {error}")))
    }

    /// What it says to what it was told before.
    pub(crate) fn answer(&mut self) -> Result<f64, Error> {
        let mut line = String::new();
        tokio::task::block_in_place(|| self.answers.read_line(&mut line))?;
        let number = line.trim().parse();
        number.map_err(|_| Error::Process("ended by itself; what it said is above".into()))
    }

    pub(crate) fn ask(&mut self, line: &str) -> Result<f64, Error> {
        self.tell(line)?;
        self.answer()
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // Nothing is lost if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs that have ended in all processes, so far.
pub(crate) fn ended(engine: &Engine, helpers: &mut [Helper]) -> Result<f64, Error> {
    let mut all = engine.metrics().runs_completed as f64;
    for helper in helpers {
        all += helper.ask("ended")?;
    }
    Ok(all)
}

/// What such a process does, until its standard input ends.
///
/// # Errors
/// When the server cannot be used, or it is not told which.
pub async fn help(role: &Role) -> Result<(), Error> {
    let url = std::env::var(SERVER);
    let url = url.map_err(|_| Error::Process("is started by a benchmark only".into()))?;
    let engine = Engine::open(url).schema(&role.schema).existing();
    let engine = match role.concurrency {
        Some(most) => engine.concurrency(most),
        None => engine,
    };
    let mut place = Place::start(engine, register(&role.workload)).await?;
    println!("0");
    let mut lines = std::io::stdin().lines();
    while let Some(line) = tokio::task::block_in_place(|| lines.next()).transpose()? {
        let answer = match line.split_once(' ') {
            Some(("slice", number)) => {
                place.slice(number.parse().unwrap_or(1)).await?;
                place.rates.last().copied().unwrap_or_default()
            }
            _ => place.engine.metrics().runs_completed as f64,
        };
        println!("{answer}");
    }
    place.engine.shutdown().await;
    Ok(())
}

/// The workflows of a workload, but for those of W1, which are always there.
fn register(workload: &str) -> fn(EngineBuilder) -> EngineBuilder {
    match workload {
        "w2" => w2::register,
        "w3" => w3::register,
        "w4" => w4::register,
        "w5" => w5::register,
        _ => w1::nothing_else,
    }
}
