//! What `cargo xtask cost` counts the instructions of: `cost <unit> <how many> <folder>`.
//!
//! | unit | what one is |
//! |---|---|
//! | `effect` | an effect of a run of five, one run at a time, through the engine, on SQLite |
//! | `fused` | a round that goes to the SQLite store with 99 others, in one transaction |
//! | `decided` | the same over rows in memory: the rules alone |
//!
//! It stands beside the simulator because it is built of the same packages in the same profile.
//! Nothing here is left to chance: who submits waits for all answers before it goes on.

use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use roundel::{Cx, Engine, Failure, Result as RunResult, Workflow};
use roundel_core::{
    Claimant, Lane, Name, Op, Payload, Register, Round, RunId, Start, Timestamp, WorkerId,
};
use roundel_store::{
    Answered, Ask, ManualClock, Memory, Options, Request, Sink, Sqlite, Store, ask,
};

const FIVE: Workflow<u64, u64> = Workflow::named("cost-five");
const EFFECTS: u64 = 5;
const BATCH: u64 = 100;
const LEASE: Duration = Duration::from_secs(3600);
/// As much as a beginning and a result of an effect have.
const ENTRIES: &str = r#"{"at":1700000000000000,"event":"begun","call":1,"attempt":1}"#;

type Failed = Box<dyn std::error::Error>;

fn main() -> Result<(), Failed> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [unit, count, folder] = &arguments[..] else {
        return Err("usage: cost <unit> <how many> <folder>".into());
    };
    let (count, file) = (count.parse()?, PathBuf::from(folder).join("cost.db"));
    let clock = Arc::new(ManualClock::at(Timestamp(1_700_000_000_000_000)));
    match unit.as_str() {
        "effect" => effects(&file, count),
        "fused" => {
            let options = Options {
                clock,
                ..Options::default()
            };
            rounds(&Sqlite::open(&file, options)?, count)
        }
        "decided" => rounds(&Memory::new(clock), count),
        unknown => Err(format!("there is no unit `{unknown}`").into()),
    }
}

async fn five(cx: Cx, number: u64) -> RunResult<u64> {
    let mut total = 0;
    for part in 0..EFFECTS {
        let price = |_| async move { Ok::<_, Failure>(number + part) };
        total += cx.effect("price", price).await?;
    }
    Ok(total)
}

/// Runs of five, one at a time, by one thread beside the store's.
fn effects(file: &Path, count: u64) -> Result<(), Failed> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().build()?.block_on(async {
        let engine = Engine::open(file).register(FIVE, five).start().await?;
        for number in 0..count / EFFECTS {
            // As long in every run as in any other.
            engine
                .start(FIVE, &(number + 1_000_000))
                .await?
                .result()
                .await?;
        }
        engine.shutdown().await;
        Ok(())
    })
}

/// Rounds of a hundred runs, all of them in each transaction.
fn rounds(store: &dyn Store, count: u64) -> Result<(), Failed> {
    let (namespace, workflow) = (Name::new("default")?, Name::new("cost")?);
    let worker = WorkerId::from_bytes([7; 16]);
    let lane = Lane {
        namespace: namespace.clone(),
        workflow: workflow.clone(),
        version: 1,
    };
    let register = Register {
        worker,
        name: "cost".into(),
        lanes: vec![lane],
    };
    ask(store, Op::Register(register))?;
    let runs: Vec<RunId> = (0..BATCH).map(id).collect();
    let start = |run: &RunId| {
        let mut start = Start::new(namespace.clone(), *run, workflow.clone(), Payload::null());
        start.version = Some(1);
        start.claimant = Some(Claimant {
            worker,
            lease: LEASE,
        });
        Op::Start(start)
    };
    together(store, runs.iter().map(start))?;
    for epoch in 1..=count / BATCH {
        let round = |run: &RunId| {
            let mut round = Round::new(*run, worker, epoch);
            round.entries = ENTRIES.into();
            round.count = 1;
            round.lease = LEASE;
            Op::Commit(round)
        };
        together(store, runs.iter().map(round))?;
    }
    store.close();
    Ok(())
}

/// The same in every run of this program, and as far apart as real ones, whose ends are random: ids
/// that differ in one byte only would all fall into the same places of a hash table.
fn id(number: u64) -> RunId {
    let mut mixed = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    let mut bytes = [1; 16];
    bytes[8..].copy_from_slice(&(mixed ^ (mixed >> 31)).to_be_bytes());
    RunId::from_bytes(bytes)
}

struct Answers(mpsc::Sender<Vec<Answered>>);

impl Sink for Answers {
    fn deliver(&self, answers: Vec<Answered>) {
        let _ = self.0.send(answers);
    }
}

/// Submits these at once, and waits until all are answered.
fn together(store: &dyn Store, ops: impl Iterator<Item = Op>) -> Result<(), Failed> {
    let (sender, receiver) = mpsc::channel();
    let sink: Arc<dyn Sink> = Arc::new(Answers(sender));
    let request = |op| Request {
        ask: Box::new(Ask::Op(op)),
        tag: 0,
        sink: Arc::clone(&sink),
    };
    let requests: Vec<Request> = ops.map(request).collect();
    let mut open = requests.len();
    store.submit(requests);
    while open > 0 {
        for answered in receiver.recv()? {
            answered.result?;
            open -= 1;
        }
    }
    Ok(())
}
