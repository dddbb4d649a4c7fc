//! Steps: the user's own SQL and the round that records it, together or not at all.

use std::any::Any;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use roundel_core::{Fence, Name, Op, OpenWait, Refusal, Reply, Round, RunId, Start, WorkerId};

use super::Make;
use super::desk::{Desk, deleting, submit_all};
use super::words::{A, B, LEASE, claimant, signal, working};
use crate::{Answered, Ask, Error, Row, Tx, TxError, Work, Worked};

type Code = Box<dyn Fn(&Tx) -> Result<(), TxError> + Send>;

/// A step that runs this code, and the round that it leads to.
struct Step {
    round: Round,
    keep: bool,
    code: Code,
    calls: Arc<AtomicUsize>,
    failed: Option<TxError>,
}

impl Work for Step {
    fn lease(&self) -> (RunId, WorkerId, Fence) {
        (self.round.run, self.round.worker, self.round.fence())
    }

    fn run(&mut self, tx: Tx) -> Worked {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.failed = (self.code)(&tx).err();
        let keep = self.keep && self.failed.is_none();
        Worked {
            round: self.round.clone(),
            keep,
        }
    }

    fn refused(&mut self, error: TxError) -> Round {
        self.failed = Some(error);
        self.round.clone()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }
}

/// What came of a step: the reply, how often its code ran, what failed in it.
struct Came {
    reply: Result<Reply, Error>,
    calls: usize,
    failed: Option<TxError>,
}

fn step(round: Round, code: impl Fn(&Tx) -> Result<(), TxError> + Send + 'static) -> Step {
    Step {
        round,
        keep: true,
        code: Box::new(code),
        calls: Arc::default(),
        failed: None,
    }
}

fn take(desk: &Desk, step: Step) -> Came {
    came_of(submit_all(&*desk.store, vec![Ask::Work(Box::new(step))])).remove(0)
}

/// What came of the steps among these.
fn came_of(answers: Vec<Answered>) -> Vec<Came> {
    let mut came = Vec::new();
    for answer in answers {
        if let Ask::Work(work) = *answer.ask {
            let step = work.into_any().downcast::<Step>().expect("the step");
            came.push(Came {
                reply: answer.result,
                calls: step.calls.load(Ordering::Relaxed),
                failed: step.failed,
            });
        }
    }
    came
}

/// A transaction's futures wait for the database, if at all.
fn now<T>(future: impl Future<Output = T>) -> T {
    struct Sleeper(Thread);
    impl Wake for Sleeper {
        fn wake(self: Arc<Sleeper>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Sleeper(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}

fn run_sql(sql: &'static str) -> impl Fn(&Tx) -> Result<(), TxError> + Send + 'static {
    move |tx| now(tx.execute(sql, ())).map(|_| ())
}

/// A run of worker A, and a table with one row.
fn ready(make: &Make) -> (Desk, RunId) {
    let mut desk = Desk::new(make);
    let run = desk.owned(A);
    for sql in [
        "CREATE TABLE stock (id INTEGER PRIMARY KEY, here INTEGER NOT NULL)",
        INSERT,
    ] {
        let came = take(&desk, step(working(desk.round(run)), run_sql(sql)));
        assert!(came.reply.is_ok(), "{:?} {:?}", came.reply, came.failed);
    }
    (desk, run)
}

const INSERT: &str = "INSERT INTO stock VALUES (1, 10)";
const TAKE: &str = "UPDATE stock SET here = here - 1 WHERE id = 1";

/// What the user's table says, as a step sees it.
fn left(desk: &Desk, run: RunId) -> i64 {
    let (sender, receiver) = std::sync::mpsc::channel();
    let look = move |tx: &Tx| {
        let row: Row = now(tx.query_one("SELECT here FROM stock WHERE id = 1", ()))?;
        sender
            .send(row.get::<i64>("here")?)
            .expect("somebody listens");
        Ok(())
    };
    let mut look = step(desk.round(run), look);
    look.keep = false;
    let came = take(desk, look);
    assert!(came.reply.is_ok(), "{:?}", came.reply);
    receiver.recv().expect("the step ran")
}

pub fn g1_a_step_commits_with_its_sql(make: &Make) {
    let (desk, run) = ready(make);
    let head = desk.run(run).head;
    let came = take(&desk, step(working(desk.round(run)), run_sql(TAKE)));
    let Ok(Reply::Committed(committed)) = came.reply else {
        panic!("{:?}", came.reply)
    };
    assert!(committed.kept);
    assert_eq!((came.calls, desk.run(run).head), (1, head + 1));
    assert_eq!(left(&desk, run), 9);
}

pub fn g1_a_step_that_failed_is_recorded_without_its_sql(make: &Make) {
    let (desk, run) = ready(make);
    let head = desk.run(run).head;
    let fails = |tx: &Tx| {
        now(tx.execute(TAKE, ()))?;
        now(tx.execute(INSERT, ())).map(|_| ())
    };
    let came = take(&desk, step(working(desk.round(run)), fails));
    assert!(
        matches!(came.failed, Some(TxError::Constraint(_))),
        "{:?}",
        came.failed
    );
    assert!(came.reply.is_ok(), "its round says so");
    assert_eq!(desk.run(run).head, head + 1);
    assert_eq!(left(&desk, run), 10);
}

pub fn b5_a_step_of_a_run_that_was_deleted_and_started_again_does_not_run(make: &Make) {
    let (mut desk, looks) = ready(make);
    let start = Start {
        claimant: Some(claimant(A)),
        ..desk.starting()
    };
    let run = desk.started(start.clone()).run;
    let late = step(working(desk.round(run)), run_sql(TAKE));
    desk.must(deleting(run, true));
    desk.pass(Duration::from_micros(1));
    assert!(desk.started(start).new);
    let came = take(&desk, late);
    assert!(matches!(
        came.reply,
        Err(Error::Refused(Refusal::Fenced { .. }))
    ));
    assert_eq!((came.calls, left(&desk, looks)), (0, 10));
    let its = take(&desk, step(working(desk.round(run)), run_sql(TAKE)));
    assert!(its.reply.is_ok(), "{:?}", its.reply);
    assert_eq!(left(&desk, looks), 9);
}

pub fn b1_a_fenced_step_does_not_run(make: &Make) {
    let (desk, run) = ready(make);
    let late = working(desk.round(run));
    desk.pass(LEASE);
    assert_eq!(desk.claimed_ids(B, 1), [run]);
    let came = take(&desk, step(late, run_sql(TAKE)));
    assert!(matches!(
        came.reply,
        Err(Error::Refused(Refusal::Fenced { .. }))
    ));
    assert_eq!(came.calls, 0);
    assert_eq!(left(&desk, run), 10);
}

pub fn inv21_a_step_of_a_cancelled_run_does_not_run(make: &Make) {
    let (desk, run) = ready(make);
    let round = working(desk.round(run));
    desk.cancel(run);
    let came = take(&desk, step(round, run_sql(TAKE)));
    assert_eq!(
        came.reply,
        Err(Error::Refused(Refusal::CancelRequested { run }))
    );
    assert_eq!(came.calls, 0);
}

pub fn g1_a_step_whose_round_is_refused_leaves_nothing(make: &Make) {
    let (desk, run) = ready(make);
    let mut round = working(desk.round(run));
    let (call, name, offerable) = (1, Name::constant("@job"), true);
    round.opened.push(OpenWait {
        call,
        name,
        offerable,
    });
    let before = desk.dump();
    let came = take(&desk, step(round, run_sql(TAKE)));
    assert!(matches!(
        came.reply,
        Err(Error::Refused(Refusal::Inconsistent { .. }))
    ));
    assert_eq!(came.calls, 1);
    assert_eq!(desk.dump(), before);
    assert_eq!(left(&desk, run), 10);
}

pub fn e15_a_step_may_not_end_its_transaction_or_leave_the_database(make: &Make) {
    let (desk, run) = ready(make);
    for sql in [
        "COMMIT",
        "ROLLBACK",
        "SAVEPOINT mine",
        "RELEASE roundel_step",
        "ATTACH 'x.db' AS x",
        "PRAGMA foreign_keys = OFF",
        "PRAGMA user_version = 3",
    ] {
        let came = take(&desk, step(working(desk.round(run)), run_sql(sql)));
        assert!(
            matches!(came.failed, Some(TxError::Refused(_))),
            "{sql}: {:?}",
            came.failed
        );
        assert!(came.reply.is_ok(), "{sql}");
    }
    assert_eq!(left(&desk, run), 10);
}

/// By what each database has for it.
fn end_the_transaction(tx: &Tx) {
    let ended = now(tx.execute("INSERT OR ROLLBACK INTO stock VALUES (1, 1)", ()));
    #[cfg(feature = "postgres")]
    if matches!(ended, Err(TxError::Database(_))) {
        let mut connection = now(tx.postgres()).expect("the connection itself");
        now(sqlx::raw_sql("ROLLBACK").execute(&mut *connection)).expect("it ends");
        return;
    }
    assert!(ended.is_err(), "the row is there");
}

pub fn e15_a_step_that_ends_its_transaction_by_a_statement_is_refused(make: &Make) {
    let (mut desk, run) = ready(make);
    let other = desk.owned(A);
    let ends = |tx: &Tx| {
        now(tx.execute(TAKE, ()))?;
        end_the_transaction(tx);
        let _ = now(tx.execute(TAKE, ()));
        Ok(())
    };
    let head = desk.run(run).head;
    let asks = vec![
        Ask::Op(Op::Signal(signal(run, "go", 1))),
        Ask::Work(Box::new(step(working(desk.round(other)), run_sql(TAKE)))),
        Ask::Work(Box::new(step(working(desk.round(run)), ends))),
        Ask::Op(Op::Signal(signal(run, "go", 2))),
    ];
    let answers = submit_all(&*desk.store, asks);
    assert!(
        answers.iter().all(|answer| answer.result.is_ok()),
        "{answers:?}"
    );
    let came = came_of(answers);
    assert_eq!(
        came[0].failed, None,
        "the others are called again, if need be"
    );
    assert!(
        matches!(came[1].failed, Some(TxError::Refused(_))),
        "{:?}",
        came[1].failed
    );
    assert_eq!(desk.run(run).head, head + 1, "the round that says so");
    assert_eq!(desk.mail(run).len(), 2);
    assert_eq!(left(&desk, run), 9, "the other step's stays");
}

pub fn e16_a_step_may_not_write_the_engines_tables(make: &Make) {
    let (desk, run) = ready(make);
    let sql = "CREATE TABLE roundel_mine (a INTEGER)";
    let came = take(&desk, step(working(desk.round(run)), run_sql(sql)));
    assert!(
        matches!(came.failed, Some(TxError::Refused(_))),
        "{:?}",
        came.failed
    );
}

pub fn e13_a_handle_that_escapes_its_step_is_refused(make: &Make) {
    let (desk, run) = ready(make);
    let (sender, receiver) = std::sync::mpsc::channel();
    let leak = move |tx: &Tx| {
        sender.send(tx.clone()).expect("somebody listens");
        Ok(())
    };
    take(&desk, step(working(desk.round(run)), leak));
    let escaped = receiver.recv().expect("it leaked");
    assert_eq!(now(escaped.execute(TAKE, ())), Err(TxError::Outside));
    let uses = move |_: &Tx| now(escaped.execute(TAKE, ())).map(|_| ());
    let came = take(&desk, step(working(desk.round(run)), uses));
    assert_eq!(came.failed, Some(TxError::Outside));
}

pub fn g1_a_step_that_breaks_a_deferred_key_is_refused_alone(make: &Make) {
    let (mut desk, run) = ready(make);
    let other = desk.owned(A);
    let table = "CREATE TABLE part (stock INTEGER REFERENCES stock \
                 DEFERRABLE INITIALLY DEFERRED)";
    take(&desk, step(working(desk.round(run)), run_sql(table)));
    let head = desk.run(run).head;
    let breaks = run_sql("INSERT INTO part VALUES (99)");
    let asks = vec![
        Ask::Work(Box::new(step(working(desk.round(run)), breaks))),
        Ask::Work(Box::new(step(working(desk.round(other)), run_sql(TAKE)))),
    ];
    let came = came_of(submit_all(&*desk.store, asks));
    assert!(came.iter().all(|came| came.reply.is_ok()));
    assert!(
        matches!(came[0].failed, Some(TxError::Database(_))),
        "{:?}",
        came[0].failed
    );
    assert_eq!(came[1].failed, None);
    assert_eq!(desk.run(run).head, head + 1);
    assert_eq!(left(&desk, run), 9);
}

pub fn e1_a_step_that_panics_is_refused_alone(make: &Make) {
    let (desk, run) = ready(make);
    let panics = |tx: &Tx| {
        now(tx.execute(TAKE, ()))?;
        std::panic::resume_unwind(Box::new("on purpose"));
    };
    let came = take(&desk, step(working(desk.round(run)), panics));
    assert!(came.reply.is_ok(), "{:?}", came.reply);
    assert!(matches!(came.failed, Some(TxError::Database(_))));
    assert_eq!(left(&desk, run), 10);
}
