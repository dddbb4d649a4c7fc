//! What the tests share: a file, a clock that is moved by hand, and short ways to ask.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use roundel_core::{
    Claimant, Committed, Entry, Lane, LaneId, Name, Op, Payload, Register, Reply, Round, RunId,
    RunRow, Start, Started, Then, Timestamp, WorkerId, encode_entries,
};
use roundel_store::{
    Answer, Answered, Ask, Dump, Error, ManualClock, Options, Query, Request, Sink, Sqlite, Store,
    ask,
};
use tempfile::TempDir;

pub(crate) const BEGIN: Timestamp = Timestamp(1_700_000_000_000_000);
pub(crate) const SPACE: Name = Name::constant("default");
pub(crate) const FLOW: Name = Name::constant("flow");
pub(crate) const WORKER: WorkerId = WorkerId(uuid::Uuid::from_u128(7));
pub(crate) const LEASE: Duration = Duration::from_secs(30);

pub(crate) struct File {
    pub(crate) folder: TempDir,
    pub(crate) clock: Arc<ManualClock>,
}

impl File {
    pub(crate) fn new() -> File {
        File {
            folder: tempfile::tempdir().unwrap(),
            clock: Arc::new(ManualClock::at(BEGIN)),
        }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("runs.db")
    }

    pub(crate) fn options(&self) -> Options {
        Options {
            clock: self.clock.clone(),
            ..Options::default()
        }
    }

    pub(crate) fn open(&self) -> Sqlite {
        Sqlite::open(&self.path(), self.options()).unwrap()
    }

    /// With a worker and its lane.
    pub(crate) fn open_with_worker(&self) -> Sqlite {
        let store = self.open();
        register(&store);
        store
    }
}

pub(crate) fn register(store: &Sqlite) -> LaneId {
    let lane = Lane {
        namespace: SPACE,
        workflow: FLOW,
        version: 1,
    };
    let op = Op::Register(Register {
        worker: WORKER,
        name: "test".into(),
        lanes: vec![lane],
    });
    match ask(store, op) {
        Ok(Reply::Registered(lanes)) => lanes[0],
        other => panic!("{other:?}"),
    }
}

pub(crate) fn run(number: u128) -> RunId {
    RunId(uuid::Uuid::from_u128(number))
}

pub(crate) fn name(text: &str) -> Name {
    Name::new(text.to_owned()).unwrap()
}

pub(crate) fn payload(text: &str) -> Payload {
    Payload::parse(text).unwrap()
}

pub(crate) fn claimant() -> Claimant {
    Claimant {
        worker: WORKER,
        lease: LEASE,
    }
}

pub(crate) fn start(number: u128) -> Start {
    Start {
        version: Some(1),
        ..Start::new(SPACE, run(number), FLOW, Payload::null())
    }
}

pub(crate) fn started(store: &Sqlite, start: Start) -> Started {
    match ask(store, Op::Start(start)) {
        Ok(Reply::Started(started)) => started,
        other => panic!("{other:?}"),
    }
}

/// A run that the worker has, under epoch 1.
pub(crate) fn claimed(store: &Sqlite, number: u128) -> RunId {
    let op = Start {
        claimant: Some(claimant()),
        ..start(number)
    };
    assert!(started(store, op).new);
    run(number)
}

/// A round with one entry that continues.
pub(crate) fn round(run: RunId, epoch: u64) -> Round {
    let mut round = Round::new(run, WORKER, epoch);
    round.entries = encode_entries(&[Entry::CancelSeen]);
    round.count = 1;
    round
}

pub(crate) fn suspended(run: RunId, epoch: u64) -> Round {
    let mut round = round(run, epoch);
    round.then = Then::Suspend;
    round
}

pub(crate) fn commit(store: &Sqlite, round: Round) -> Result<Committed, Error> {
    match ask(store, Op::Commit(round))? {
        Reply::Committed(committed) => Ok(committed),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn read(store: &Sqlite, query: Query) -> Result<Answer, Error> {
    wait_for(store.read(query))
}

pub(crate) fn wait_for<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(future)
}

pub(crate) fn dump(store: &Sqlite) -> Dump {
    match read(store, Query::Dump) {
        Ok(Answer::Dump(dump)) => *dump,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn row(store: &Sqlite, run: RunId) -> RunRow {
    dump(store)
        .runs
        .into_iter()
        .find(|row| row.id == run)
        .unwrap()
}

/// The result of a future that does not wait.
pub(crate) fn now_or_never<T>(future: impl Future<Output = T>) -> T {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(future).poll(&mut context) {
        std::task::Poll::Ready(value) => value,
        std::task::Poll::Pending => panic!("it waits"),
    }
}

/// Collects answers, and counts how often it was called.
pub(crate) struct Collector {
    sender: mpsc::Sender<Answered>,
    pub(crate) calls: Mutex<usize>,
}

impl Sink for Collector {
    fn deliver(&self, answers: Vec<Answered>) {
        *self.calls.lock().unwrap() += 1;
        for answer in answers {
            let _ = self.sender.send(answer);
        }
    }
}

pub(crate) fn collector() -> (Arc<Collector>, mpsc::Receiver<Answered>) {
    let (sender, receiver) = mpsc::channel();
    let calls = Mutex::new(0);
    (Arc::new(Collector { sender, calls }), receiver)
}

/// Submits all at once and returns the answers in the order asked.
pub(crate) fn ask_all(store: &Sqlite, asks: Vec<Ask>) -> Vec<Answered> {
    let (sink, receiver) = collector();
    let count = asks.len();
    let request = |(tag, ask): (usize, Ask)| Request {
        ask: Box::new(ask),
        tag: tag as u64,
        sink: sink.clone(),
    };
    store.submit(asks.into_iter().enumerate().map(request).collect());
    let mut answers: Vec<Answered> = receiver.iter().take(count).collect();
    answers.sort_by_key(|answer| answer.tag);
    answers
}
