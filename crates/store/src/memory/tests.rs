//! Faults, snapshots, hints, and who may ask from where. What every store does is in the
//! conformance list.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use roundel_core::{
    Claim, Claimant, Fence, Hint, Lane, LaneId, Name, Op, Payload, Refusal, Register, Reply, Round,
    RunId, Start, Timestamp, WorkerId, limits,
};

use crate::{
    Answer, Answered, Ask, Boxed, Clock, Error, Fate, Faults, Listener, Memory, Point, Query,
    Request, Sink, Store, Tx, TxError, Work, Worked, ask,
};

const WORKER: WorkerId = WorkerId(uuid::Uuid::from_u128(7));
const LEASE: Duration = Duration::from_secs(30);
const NS: Name = Name::constant("default");

/// A clock that goes where it is told, also back.
struct Loose(AtomicI64);

impl Clock for Loose {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::Relaxed))
    }

    fn sleep_until(&self, _: Timestamp) -> Boxed<'_, ()> {
        Box::pin(std::future::pending())
    }
}

fn store() -> (Memory, Arc<Loose>) {
    let clock = Arc::new(Loose(AtomicI64::new(1_000_000_000_000)));
    let store = Memory::new(clock.clone());
    let (namespace, workflow, version) = (NS, Name::constant("w"), 1);
    let lanes = vec![Lane {
        namespace,
        workflow,
        version,
    }];
    let name = String::new();
    let register = Register {
        worker: WORKER,
        name,
        lanes,
    };
    ask(&store, Op::Register(register)).expect("registered");
    (store, clock)
}

fn start(number: u128, owned: bool) -> Op {
    Op::Start(Start {
        key: Some(Name::new(format!("key {number}")).expect("a name")),
        claimant: owned.then_some(Claimant {
            worker: WORKER,
            lease: LEASE,
        }),
        ..Start::new(NS, run(number), Name::constant("w"), Payload::null())
    })
}

fn run(number: u128) -> RunId {
    RunId(uuid::Uuid::from_u128(number))
}

fn claim(store: &Memory) -> Vec<RunId> {
    let (worker, lanes, limit, lease) = (WORKER, vec![LaneId(1)], 9, LEASE);
    let claim = Claim {
        worker,
        lanes,
        limit,
        lease,
    };
    match ask(store, Op::Claim(claim)) {
        Ok(Reply::Claimed { runs, .. }) => runs.iter().map(|claimed| claimed.run).collect(),
        other => panic!("{other:?}"),
    }
}

fn runs(store: &Memory) -> usize {
    store.look(|rows| rows.runs().count())
}

/// Strikes once, at this point.
struct Once(Mutex<Option<(Point, Fate)>>);

impl Once {
    fn at(point: Point, fate: Fate) -> Arc<Once> {
        Arc::new(Once(Mutex::new(Some((point, fate)))))
    }
}

impl Faults for Once {
    fn at(&self, point: Point) -> Fate {
        let mut planned = self.0.lock().expect("a plan");
        let strikes = planned.take_if(|(planned, _)| *planned == point);
        strikes.map_or(Fate::Proceed, |(_, fate)| fate)
    }
}

#[test]
fn a1_what_was_aborted_did_not_happen() {
    for point in [Point::Begin, Point::Commit] {
        let (store, _) = store();
        store.inject(Once::at(point, Fate::Abort));
        let aborted = ask(&store, start(1, false));
        assert!(matches!(aborted, Err(Error::Unavailable(_))), "{point:?}");
        assert_eq!(runs(&store), 0, "{point:?}");
        assert!(ask(&store, start(1, false)).is_ok(), "the next one happens");
        assert_eq!(claim(&store), [run(1)]);
    }
}

#[test]
fn ro_03_ro_06_a_lost_reply_is_found_out_by_asking_again() {
    for (point, fate) in [
        (Point::Begin, Fate::LoseReply),
        (Point::Commit, Fate::LoseReply),
        (Point::Committed, Fate::LoseReply),
        (Point::Committed, Fate::Abort),
    ] {
        let (store, _) = store();
        store.inject(Once::at(point, fate));
        let lost = ask(&store, start(1, false));
        assert!(matches!(lost, Err(Error::Unknown(_))), "{point:?}");
        match ask(&store, start(1, false)) {
            Ok(Reply::Started(started)) => assert!(!started.new, "{point:?}"),
            other => panic!("{other:?}"),
        }
        assert_eq!(runs(&store), 1);
    }
}

/// Makes a table, or a row in it.
struct Step {
    round: Round,
    sql: &'static str,
    seen: mpsc::Sender<Result<i64, TxError>>,
}

impl Work for Step {
    fn lease(&self) -> (RunId, WorkerId, Fence) {
        (self.round.run, self.round.worker, self.round.fence())
    }

    fn run(&mut self, tx: Tx) -> Worked {
        let seen = tx.sqlite(|connection| {
            connection.execute_batch(self.sql)?;
            connection.query_row("SELECT count(*) FROM t", [], |row| row.get(0))
        });
        let _ = self.seen.send(seen);
        let round = self.round.clone();
        Worked { round, keep: true }
    }

    fn refused(&mut self, _: TxError) -> Round {
        self.round.clone()
    }

    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any + Send> {
        self
    }
}

fn epoch(store: &Memory) -> u64 {
    store.look(|rows| rows.run(run(1)).expect("run 1").epoch)
}

/// Takes a step of run 1. Returns what was answered, and how many rows it saw.
fn step(store: &Memory, sql: &'static str) -> (Result<Reply, Error>, Option<i64>) {
    let round = Round::new(run(1), WORKER, epoch(store));
    let (seen, saw) = mpsc::channel();
    let work = Box::new(Step { round, sql, seen });
    let answer = submit(store, Ask::Work(work));
    (answer.result, saw.try_recv().ok().and_then(Result::ok))
}

fn submit(store: &Memory, ask: Ask) -> Answered {
    struct Tray(mpsc::Sender<Answered>);
    impl Sink for Tray {
        fn deliver(&self, answers: Vec<Answered>) {
            answers
                .into_iter()
                .for_each(|answer| drop(self.0.send(answer)));
        }
    }
    let (sender, receiver) = mpsc::channel();
    let sink = Arc::new(Tray(sender));
    store.submit(vec![Request {
        ask: Box::new(ask),
        tag: 0,
        sink,
    }]);
    receiver.recv().expect("an answer")
}

const ROW: &str = "CREATE TABLE IF NOT EXISTS t (a); INSERT INTO t VALUES (1)";
const LOOK: &str = "SELECT 1";

#[test]
fn a1_a_fault_takes_back_what_a_step_wrote_with_its_round() {
    let (store, _) = store();
    ask(&store, start(1, true)).expect("started");
    assert_eq!(step(&store, ROW).1, Some(1));
    let before = epoch(&store);
    store.inject(Once::at(Point::Commit, Fate::Abort));
    let (aborted, saw) = step(&store, ROW);
    assert!(matches!(aborted, Err(Error::Unavailable(_))));
    assert_eq!((saw, epoch(&store)), (Some(2), before));
    assert_eq!(step(&store, LOOK).1, Some(1));
    store.inject(Once::at(Point::Commit, Fate::LoseReply));
    assert!(matches!(step(&store, ROW).0, Err(Error::Unknown(_))));
    assert_eq!(step(&store, LOOK).1, Some(2), "it happened");
}

#[test]
fn a_snapshot_brings_everything_back() {
    let (store, _) = store();
    ask(&store, start(1, true)).expect("started");
    step(&store, ROW).0.expect("a step");
    let then = store.snapshot();
    ask(&store, start(2, false)).expect("started");
    step(&store, ROW).0.expect("a step");
    assert_eq!((runs(&store), step(&store, LOOK).1), (2, Some(2)));
    store.restore(&then);
    assert_eq!((runs(&store), step(&store, LOOK).1), (1, Some(1)));
    assert_eq!(claim(&store), [], "indexes too");
    ask(&store, start(2, false)).expect("started");
    assert_eq!(claim(&store), [run(2)]);
}

#[test]
fn b14_a_lease_from_a_clock_that_went_back_is_found() {
    let (store, clock) = store();
    ask(&store, start(1, true)).expect("started");
    assert_eq!(claim(&store), []);
    let hour = i64::try_from(limits::LEASE.as_micros()).expect("an hour");
    clock.0.fetch_sub(hour, Ordering::Relaxed);
    assert_eq!(claim(&store), [run(1)]);
}

#[test]
fn a_step_that_reads_the_store_it_runs_in_is_told_so() {
    struct Curious {
        round: Round,
        store: Arc<Memory>,
        told: mpsc::Sender<Result<Answer, Error>>,
    }
    impl Work for Curious {
        fn lease(&self) -> (RunId, WorkerId, Fence) {
            (self.round.run, self.round.worker, self.round.fence())
        }

        fn run(&mut self, _: Tx) -> Worked {
            let _ = self.told.send(read(&self.store, Query::Workers));
            let (ask, tag, sink) = (Ask::Op(start(2, false)), 0, Arc::new(Nobody));
            self.store.submit(vec![Request {
                ask: Box::new(ask),
                tag,
                sink,
            }]);
            let round = self.round.clone();
            Worked { round, keep: true }
        }

        fn refused(&mut self, _: TxError) -> Round {
            self.round.clone()
        }

        fn into_any(self: Box<Self>) -> Box<dyn std::any::Any + Send> {
            self
        }
    }
    struct Nobody;
    impl Sink for Nobody {
        fn deliver(&self, _: Vec<Answered>) {}
    }
    let store = Arc::new(store().0);
    ask(&*store, start(1, true)).expect("started");
    let (told, heard) = mpsc::channel();
    let (round, held) = (Round::new(run(1), WORKER, 1), Arc::clone(&store));
    let work = Box::new(Curious {
        round,
        store: held,
        told,
    });
    assert!(submit(&store, Ask::Work(work)).result.is_ok());
    assert!(matches!(heard.recv(), Ok(Err(Error::Unavailable(_)))));
    assert_eq!(runs(&store), 2, "what it submitted comes after it");
}

/// Memory answers at once.
fn read(store: &Memory, query: Query) -> Result<Answer, Error> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match store.read(query).as_mut().poll(&mut context) {
        std::task::Poll::Ready(answer) => answer,
        std::task::Poll::Pending => panic!("memory does not wait"),
    }
}

#[derive(Default)]
struct Ears(Mutex<Vec<Hint>>);

impl Listener for Ears {
    fn hints(&self, hints: Vec<Hint>) {
        self.0.lock().expect("ears").extend(hints);
    }

    fn others_committed(&self) {}
}

#[test]
fn a2_hints_follow_a_commit_and_are_lost_with_its_reply() {
    let (store, clock) = store();
    let ears = Arc::new(Ears::default());
    store.listen(ears.clone());
    ask(&store, start(1, false)).expect("started");
    let now = clock.now();
    let heard = || std::mem::take(&mut *ears.0.lock().expect("ears"));
    assert_eq!(heard(), [Hint::Ready(LaneId(1), now)]);
    store.inject(Once::at(Point::Committed, Fate::LoseReply));
    assert!(ask(&store, start(2, false)).is_err());
    assert_eq!(heard(), []);
    assert_eq!(
        claim(&store),
        [run(1), run(2)],
        "a search finds it all the same"
    );
    ask(&store, start(3, false)).expect("the fault is over");
    assert_eq!(heard(), [Hint::Ready(LaneId(1), now)]);
}

#[test]
fn a_sink_may_submit_and_read_again() {
    struct Chain {
        store: Arc<Memory>,
        left: Mutex<u32>,
        done: mpsc::Sender<Result<Answer, Error>>,
    }
    impl Sink for Chain {
        fn deliver(&self, answers: Vec<Answered>) {
            assert!(answers.iter().all(|answer| answer.result.is_ok()));
            let mut left = self.left.lock().expect("a count");
            *left -= 1;
            let _ = self.done.send(read(&self.store, Query::Workers));
            if *left > 0 {
                let sink = Arc::new(Chain {
                    store: Arc::clone(&self.store),
                    left: Mutex::new(*left),
                    done: self.done.clone(),
                });
                let ask = Ask::Op(start(u128::from(*left), false));
                self.store.submit(vec![Request {
                    ask: Box::new(ask),
                    tag: 0,
                    sink,
                }]);
            }
        }
    }
    let store = Arc::new(store().0);
    let (done, receiver) = mpsc::channel();
    let sink = Arc::new(Chain {
        store: Arc::clone(&store),
        left: Mutex::new(3),
        done,
    });
    let ask = Ask::Op(start(9, false));
    store.submit(vec![Request {
        ask: Box::new(ask),
        tag: 0,
        sink,
    }]);
    assert_eq!(receiver.try_iter().filter(Result::is_ok).count(), 3);
    assert_eq!(runs(&store), 3);
}

#[test]
fn a_fenced_round_stays_fenced_after_a_restore() {
    let (store, _) = store();
    ask(&store, start(1, true)).expect("started");
    let then = store.snapshot();
    let round = Round::new(run(1), WORKER, 1);
    ask(&store, Op::Commit(round.clone())).expect("committed");
    let fenced = ask(&store, Op::Commit(round.clone()));
    assert!(matches!(
        fenced,
        Err(Error::Refused(Refusal::Fenced { .. }))
    ));
    store.restore(&then);
    assert!(
        ask(&store, Op::Commit(round)).is_ok(),
        "then it had not been committed"
    );
}

#[test]
fn what_is_run_beside_the_steps_stays_unless_it_fails() {
    fn now<T>(future: impl Future<Output = T>) -> T {
        let polled = pin!(future).poll(&mut Context::from_waker(Waker::noop()));
        match polled {
            Poll::Ready(value) => value,
            Poll::Pending => panic!("a transaction never waits"),
        }
    }
    let (store, _) = store();
    let run = |sql: &'static str| store.transact(|tx| now(tx.execute(sql, ())));
    assert_eq!(run("CREATE TABLE noted (it INTEGER)"), Ok(0));
    let failed: Result<(), TxError> = store.transact(|tx| {
        now(tx.execute("INSERT INTO noted VALUES (1)", ()))?;
        Err(TxError::Rows(7))
    });
    assert_eq!(failed, Err(TxError::Rows(7)));
    assert_eq!(run("DELETE FROM noted"), Ok(0), "nothing of it stayed");
    assert_eq!(run("INSERT INTO noted VALUES (2)"), Ok(1));
    assert!(matches!(run("COMMIT"), Err(TxError::Refused(_))));
    assert_eq!(run("DELETE FROM noted"), Ok(1));
}
