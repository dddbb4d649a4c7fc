//! Steps: user code inside the round's transaction.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use roundel_core::{Fence, GateId, Op, Refusal, Reply, RunId, WorkerId};
use roundel_store::{Answered, Ask, Error, Row, Sqlite, Store, Tx, TxError, Value, Work, Worked};

use crate::disk::{Disk, Plan};
use crate::tools::{
    FLOW, File, SPACE, WORKER, ask_all, claimant, claimed, commit, dump, now_or_never, round, row,
};

type Code = dyn FnMut(Tx) -> bool + Send;

/// A step made of a closure, which says whether what it wrote stays.
struct Step {
    run: RunId,
    epoch: u64,
    code: Box<Code>,
    refused: Arc<Mutex<Vec<TxError>>>,
}

impl Work for Step {
    fn lease(&self) -> (RunId, WorkerId, Fence) {
        (self.run, WORKER, round(self.run, self.epoch).fence())
    }

    fn run(&mut self, tx: Tx) -> Worked {
        let keep = (self.code)(tx);
        let round = round(self.run, self.epoch);
        Worked { round, keep }
    }

    fn refused(&mut self, error: TxError) -> roundel_core::Round {
        self.refused.lock().unwrap().push(error);
        round(self.run, self.epoch)
    }

    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any + Send> {
        self
    }
}

fn step(run: RunId, epoch: u64, code: impl FnMut(Tx) -> bool + Send + 'static) -> Ask {
    refusable(run, epoch, code).0
}

fn refusable(
    run: RunId,
    epoch: u64,
    code: impl FnMut(Tx) -> bool + Send + 'static,
) -> (Ask, Arc<Mutex<Vec<TxError>>>) {
    let refused = Arc::default();
    let step = Step {
        run,
        epoch,
        code: Box::new(code),
        refused: Arc::clone(&refused),
    };
    (Ask::Work(Box::new(step)), refused)
}

fn execute(tx: &Tx, sql: &str) -> Result<u64, TxError> {
    now_or_never(tx.execute(sql, ()))
}

fn query(tx: &Tx, sql: &str) -> Result<Vec<Row>, TxError> {
    now_or_never(tx.query(sql, ()))
}

/// A store with the user's table and a claimed run.
fn prepared(file: &File) -> (Sqlite, RunId) {
    let store = file.open_with_worker();
    let id = claimed(&store, 1);
    let made = one(
        &store,
        step(id, 1, |tx| {
            execute(
                &tx,
                "CREATE TABLE account (id INTEGER PRIMARY KEY, amount INTEGER)",
            )
            .unwrap();
            execute(&tx, "INSERT INTO account VALUES (1, 100)").unwrap();
            true
        }),
    );
    assert!(made.result.is_ok(), "{made:?}");
    (store, id)
}

fn one(store: &Sqlite, ask: Ask) -> Answered {
    ask_all(store, vec![ask]).remove(0)
}

fn amount(file: &File) -> i64 {
    let own = rusqlite::Connection::open(file.path()).unwrap();
    own.query_row("SELECT amount FROM account WHERE id = 1", [], |row| {
        row.get(0)
    })
    .unwrap()
}

/// What a statement gives inside a step.
fn tried(sql: &'static str) -> Result<u64, TxError> {
    let file = File::new();
    let (store, id) = prepared(&file);
    let result = Arc::new(Mutex::new(None));
    let at_step = Arc::clone(&result);
    let answer = one(
        &store,
        step(id, 2, move |tx| {
            *at_step.lock().unwrap() = Some(execute(&tx, sql));
            true
        }),
    );
    assert!(answer.result.is_ok(), "{answer:?}");
    result.lock().unwrap().take().unwrap()
}

#[test]
fn what_a_step_writes_and_its_round_are_one() {
    let file = File::new();
    let (store, id) = prepared(&file);
    let answer = one(
        &store,
        step(id, 2, |tx| {
            let changed = now_or_never(tx.execute(
                "UPDATE account SET amount = amount - $2 WHERE id = $1",
                (1, 30),
            ));
            assert_eq!(changed, Ok(1));
            true
        }),
    );
    let Ok(Reply::Committed(committed)) = answer.result else {
        panic!("{:?}", answer.result);
    };
    assert_eq!(committed.epoch, 3);
    assert_eq!((amount(&file), row(&store, id).head), (70, 3));
    assert!(matches!(*answer.ask, Ask::Work(_)), "the step comes back");
}

#[test]
fn what_a_step_does_not_keep_is_gone_and_its_round_stands() {
    let file = File::new();
    let (store, id) = prepared(&file);
    let answer = one(
        &store,
        step(id, 2, |tx| {
            execute(&tx, "UPDATE account SET amount = 0").unwrap();
            false
        }),
    );
    assert!(answer.result.is_ok());
    assert_eq!((amount(&file), row(&store, id).head), (100, 3));
}

#[test]
fn b1_a_fenced_step_does_not_run() {
    let file = File::new();
    let (store, id) = prepared(&file);
    let ran = Arc::new(AtomicUsize::new(0));
    let at_step = Arc::clone(&ran);
    let fenced = step(id, 1, move |_| at_step.fetch_add(1, Ordering::Relaxed) == 0);
    let answer = one(&store, fenced);
    let refused = matches!(answer.result, Err(Error::Refused(Refusal::Fenced { .. })));
    assert!(refused, "{answer:?}");
    assert_eq!(ran.load(Ordering::Relaxed), 0);
}

#[test]
fn a_step_whose_round_is_refused_leaves_nothing() {
    let file = File::new();
    let (store, id) = prepared(&file);
    let mut asks = vec![step(id, 2, |tx| {
        execute(&tx, "UPDATE account SET amount = 1").unwrap();
        true
    })];
    struct Wrong(Box<dyn Work>);
    impl Work for Wrong {
        fn lease(&self) -> (RunId, WorkerId, Fence) {
            self.0.lease()
        }
        fn run(&mut self, tx: Tx) -> Worked {
            let mut worked = self.0.run(tx);
            worked.round.epoch += 7;
            // What its round needs is searched for before it is refused.
            let (namespace, name) = (SPACE, FLOW);
            worked.round.gates.push(GateId { namespace, name });
            worked
        }
        fn refused(&mut self, error: TxError) -> roundel_core::Round {
            self.0.refused(error)
        }
        fn into_any(self: Box<Self>) -> Box<dyn std::any::Any + Send> {
            self
        }
    }
    let Some(Ask::Work(work)) = asks.pop() else {
        panic!("it is a step");
    };
    let other = claimed(&store, 2);
    let neighbour = Ask::Op(Op::Commit(round(other, 1)));
    let wrong = Ask::Work(Box::new(Wrong(work)));
    let answers = ask_all(&store, vec![neighbour, wrong]);
    let fenced = |result| matches!(result, &Err(Error::Refused(Refusal::Fenced { .. })));
    assert!(fenced(&answers[1].result), "{answers:?}");
    assert_eq!((amount(&file), row(&store, id).head), (100, 2));
    assert_eq!(row(&store, other).head, 2, "its neighbour was committed");
}

#[test]
fn e15_a_step_cannot_end_or_nest_the_transaction_or_change_settings() {
    for sql in [
        "COMMIT",
        "END",
        "ROLLBACK",
        "BEGIN",
        "SAVEPOINT mine",
        "RELEASE roundel_step",
        "ROLLBACK TO roundel_step",
        "ATTACH ':memory:' AS other",
        "DETACH main",
        "PRAGMA foreign_keys = OFF",
        "PRAGMA synchronous = OFF",
        "PRAGMA journal_mode = DELETE",
        "PRAGMA writable_schema = ON",
        "PRAGMA application_id = 5",
        "PRAGMA wal_checkpoint",
    ] {
        let result = tried(sql);
        assert!(
            matches!(result, Err(TxError::Refused(_))),
            "{sql}: {result:?}"
        );
    }
    assert!(tried("SELECT load_extension('x')").is_err());
    assert_eq!(tried("PRAGMA table_info(account)"), Ok(2));
}

#[test]
fn e16_a_step_cannot_write_the_engines_tables_but_can_read_them() {
    for sql in [
        "DELETE FROM roundel_run",
        "UPDATE roundel_run SET epoch = 9",
        "INSERT INTO roundel_meta VALUES ('x', 1)",
        "UPDATE Roundel_Run SET head = 0",
        "DROP TABLE roundel_mail",
        "ALTER TABLE roundel_mail ADD COLUMN x",
        "CREATE TABLE roundel_mine (x)",
        "CREATE TABLE Roundel_Mine (x)",
        "CREATE INDEX mine ON roundel_run (head)",
        "DROP INDEX roundel_run_ready",
        "CREATE VIEW roundel_view AS SELECT 1",
        "CREATE TRIGGER t AFTER INSERT ON roundel_journal BEGIN SELECT 1; END",
        "CREATE TEMP TRIGGER t AFTER INSERT ON roundel_journal BEGIN SELECT 1; END",
    ] {
        let result = tried(sql);
        let refused = matches!(result, Err(TxError::Refused(_)));
        assert!(refused, "{sql}: {result:?}");
    }
    assert!(tried("DELETE FROM sqlite_schema").is_err());
    assert_eq!(tried("SELECT id FROM roundel_run"), Ok(1));
}

#[test]
fn e16_a_trigger_of_the_users_cannot_write_the_engines_tables_either() {
    let file = File::new();
    let (store, id) = prepared(&file);
    let answer = one(
        &store,
        step(id, 2, |tx| {
            let made = execute(
                &tx,
                "CREATE TRIGGER sly AFTER UPDATE ON account BEGIN DELETE FROM roundel_journal; END",
            );
            // Making it is the user's business; it is refused when it would fire.
            assert_eq!(made, Ok(0));
            let fired = execute(&tx, "UPDATE account SET amount = 5");
            assert!(matches!(fired, Err(TxError::Refused(_))), "{fired:?}");
            false
        }),
    );
    assert!(answer.result.is_ok());
    assert_eq!(dump(&store).journal.len(), 3);
}

#[test]
fn insert_or_rollback_is_refused_and_its_neighbours_are_unharmed() {
    let file = File::new();
    let (store, id) = prepared(&file);
    let others: Vec<RunId> = (2..5).map(|number| claimed(&store, number)).collect();
    let calls = Arc::new(AtomicUsize::new(0));
    let at_step = Arc::clone(&calls);
    let neighbour = step(others[0], 1, move |tx| {
        at_step.fetch_add(1, Ordering::Relaxed);
        execute(&tx, "INSERT INTO account VALUES (2, 2)").unwrap();
        true
    });
    let (bad, refused) = refusable(id, 2, |tx| {
        let sly = execute(&tx, "INSERT OR ROLLBACK INTO account VALUES (1, 0)");
        assert!(matches!(sly, Err(TxError::Constraint(_))), "{sly:?}");
        let after = execute(&tx, "INSERT INTO account VALUES (77, 7)");
        assert!(matches!(after, Err(TxError::Refused(_))), "{after:?}");
        let read = query(&tx, "SELECT 1");
        assert!(matches!(read, Err(TxError::Refused(_))), "{read:?}");
        let behind = tx.sqlite(|own| own.execute("INSERT INTO account VALUES (78, 7)", []));
        assert!(matches!(behind, Err(TxError::Refused(_))), "{behind:?}");
        true
    });
    let commits = Ask::Op(Op::Commit(round(others[1], 1)));
    let answers = ask_all(
        &store,
        vec![
            neighbour,
            commits,
            bad,
            Ask::Op(Op::Commit(round(others[2], 1))),
        ],
    );
    for answer in &answers {
        assert!(
            matches!(answer.result, Ok(Reply::Committed(_))),
            "{answer:?}"
        );
    }
    assert_eq!(refused.lock().unwrap().len(), 1);
    assert!(matches!(refused.lock().unwrap()[0], TxError::Refused(_)));
    assert_eq!(
        calls.load(Ordering::Relaxed),
        2,
        "the neighbour was called again"
    );
    let own = rusqlite::Connection::open(file.path()).unwrap();
    let ids = "SELECT group_concat(id) FROM account";
    let ids: String = own.query_row(ids, [], |row| row.get(0)).unwrap();
    assert_eq!(ids, "1,2");
    for other in others {
        assert_eq!(row(&store, other).head, 2);
    }
}

#[test]
fn statements_inside_a_closure_cannot_commit_by_themselves_after_a_rollback() {
    let file = File::new();
    let (store, id) = prepared(&file);
    let (bad, refused) = refusable(id, 2, |tx| {
        let result = tx.sqlite(|own| {
            let _ = own.execute("INSERT OR ROLLBACK INTO account VALUES (1, 0)", []);
            own.execute("INSERT INTO account VALUES (78, 7)", [])
        });
        assert!(matches!(result, Err(TxError::Refused(_))), "{result:?}");
        true
    });
    assert!(one(&store, bad).result.is_ok());
    assert_eq!(refused.lock().unwrap().len(), 1);
    let own = rusqlite::Connection::open(file.path()).unwrap();
    let count: i64 = own
        .query_row("SELECT count(*) FROM account", [], |row| row.get(0))
        .unwrap();
    assert_eq!(count, 1);
}

#[test]
fn e13_a_handle_that_escapes_its_step_is_of_no_use() {
    let file = File::new();
    let (store, id) = prepared(&file);
    let escaped = Arc::new(Mutex::new(None));
    let at_step = Arc::clone(&escaped);
    let first = step(id, 2, move |tx| {
        let other = tx.clone();
        let elsewhere = std::thread::spawn(move || execute(&other, "DELETE FROM account"));
        assert_eq!(elsewhere.join().unwrap(), Err(TxError::Outside));
        *at_step.lock().unwrap() = Some(tx);
        true
    });
    assert!(one(&store, first).result.is_ok());
    let tx = escaped.lock().unwrap().clone().unwrap();
    assert_eq!(execute(&tx, "DELETE FROM account"), Err(TxError::Outside));
    let later = step(id, 3, move |_| {
        assert_eq!(execute(&tx, "DELETE FROM account"), Err(TxError::Outside));
        assert!(tx.sqlite(|_| Ok(())).is_err());
        true
    });
    assert!(one(&store, later).result.is_ok());
    assert_eq!(amount(&file), 100);
}

#[test]
fn values_go_in_and_come_out() {
    let file = File::new();
    let (store, id) = prepared(&file);
    let answer = one(
        &store,
        step(id, 2, |tx| {
            execute(&tx, "CREATE TABLE thing (a, b, c, d, e)").unwrap();
            let values = (7, 1.5, "text", vec![1_u8, 2], None::<i64>);
            now_or_never(tx.execute("INSERT INTO thing VALUES ($1, $2, $3, $4, $5)", values))
                .unwrap();
            let row = now_or_never(tx.query_one("SELECT * FROM thing WHERE a = ?1", (7,))).unwrap();
            assert_eq!(row.get::<i64>(0), Ok(7));
            assert_eq!(row.get::<f64>("b"), Ok(1.5));
            assert_eq!(row.get::<String>("c").as_deref(), Ok("text"));
            assert_eq!(row.get::<Vec<u8>>("d"), Ok(vec![1, 2]));
            assert_eq!(row.get::<Option<i64>>("e"), Ok(None));
            assert_eq!(row.get::<Value>("e"), Ok(Value::Null));
            let wrong = row.get::<i64>("c").unwrap_err().to_string();
            assert!(wrong.contains("column `c` holds a text"), "{wrong}");
            assert!(matches!(row.get::<i64>("z"), Err(TxError::Type { .. })));
            let none = now_or_never(tx.query_optional("SELECT 1 WHERE 0", ()));
            assert_eq!(none, Ok(None));
            let none = now_or_never(tx.query_one("SELECT 1 WHERE 0", ()));
            assert_eq!(none, Err(TxError::Rows(0)));
            assert_eq!(query(&tx, "SELECT 1 UNION SELECT 2").unwrap().len(), 2);
            true
        }),
    );
    assert!(answer.result.is_ok(), "{answer:?}");
}

#[test]
fn parameters_are_found_by_number_or_place_and_counted() {
    let file = File::new();
    let (store, id) = prepared(&file);
    let answer = one(
        &store,
        step(id, 2, |tx| {
            let swapped = now_or_never(tx.query_one("SELECT $2, $1, $2", ("a", "b"))).unwrap();
            let texts: Vec<String> = (0..3).map(|at| swapped.get(at).unwrap()).collect();
            assert_eq!(texts, ["b", "a", "b"]);
            let plain = now_or_never(tx.query_one("SELECT ? || ?", ["a", "b"])).unwrap();
            assert_eq!(plain.get::<String>(0).as_deref(), Ok("ab"));
            for (sql, count) in [
                ("SELECT $1", 0),
                ("SELECT $1", 2),
                ("SELECT 1", 1),
                ("SELECT $3", 2),
            ] {
                let result = now_or_never(tx.query(sql, vec![1; count]));
                assert!(
                    matches!(result, Err(TxError::Database(_))),
                    "{sql}: {result:?}"
                );
            }
            let named = now_or_never(tx.query("SELECT :name", (1,)));
            assert!(matches!(named, Err(TxError::Database(_))));
            let mixed = now_or_never(tx.query("SELECT $2, ?", ("a", "b")));
            assert!(matches!(mixed, Err(TxError::Database(_))), "{mixed:?}");
            true
        }),
    );
    assert!(answer.result.is_ok(), "{answer:?}");
}

#[test]
fn a_broken_constraint_is_the_steps_own_affair() {
    let result = tried("INSERT INTO account VALUES (1, 0)");
    assert!(matches!(result, Err(TxError::Constraint(_))), "{result:?}");
    let result = tried("INSERT INTO nothing VALUES (1, 0)");
    assert!(matches!(result, Err(TxError::Database(_))), "{result:?}");
}

#[test]
fn a_constraint_that_breaks_at_the_commit_refuses_that_step_alone() {
    let file = File::new();
    let (store, id) = prepared(&file);
    let other = claimed(&store, 2);
    let (bad, refused) = refusable(id, 2, |tx| {
        let sql = "CREATE TABLE IF NOT EXISTS part (of INTEGER REFERENCES account (id) \
                   DEFERRABLE INITIALLY DEFERRED)";
        execute(&tx, sql).unwrap();
        execute(&tx, "INSERT INTO part VALUES (555)").unwrap();
        true
    });
    let answers = ask_all(&store, vec![bad, Ask::Op(Op::Commit(round(other, 1)))]);
    assert!(
        answers.iter().all(|answer| answer.result.is_ok()),
        "{answers:?}"
    );
    assert_eq!(refused.lock().unwrap().len(), 1);
    assert_eq!((row(&store, id).head, row(&store, other).head), (3, 2));
}

#[test]
fn e1_a_panic_in_a_step_is_refused_and_harms_nobody_else() {
    let file = File::new();
    let (store, id) = prepared(&file);
    let others: Vec<RunId> = (2..6).map(|number| claimed(&store, number)).collect();
    let (bad, refused) = refusable(id, 2, |tx| {
        execute(&tx, "DELETE FROM account").unwrap();
        panic!("as the test wants");
    });
    let mut asks = vec![bad];
    asks.extend(
        others
            .iter()
            .map(|other| Ask::Op(Op::Commit(round(*other, 1)))),
    );
    let answers = ask_all(&store, asks);
    assert!(
        answers.iter().all(|answer| answer.result.is_ok()),
        "{answers:?}"
    );
    assert_eq!(refused.lock().unwrap().len(), 1);
    assert_eq!((amount(&file), row(&store, id).head), (100, 3));
}

/// A step that cannot even be refused.
struct Hopeless(RunId);

impl Work for Hopeless {
    fn lease(&self) -> (RunId, WorkerId, Fence) {
        (self.0, WORKER, round(self.0, 2).fence())
    }

    fn run(&mut self, _: Tx) -> Worked {
        panic!("as the test wants");
    }

    fn refused(&mut self, _: TxError) -> roundel_core::Round {
        panic!("this too");
    }

    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any + Send> {
        self
    }
}

#[test]
fn e1_a_step_that_cannot_be_refused_is_answered_alone() {
    let file = File::new();
    let (store, id) = prepared(&file);
    let other = claimed(&store, 2);
    let asks = vec![
        Ask::Work(Box::new(Hopeless(id))),
        Ask::Op(Op::Commit(round(other, 1))),
    ];
    let answers = ask_all(&store, asks);
    assert!(
        matches!(answers[0].result, Err(Error::Unusable(_))),
        "{answers:?}"
    );
    assert!(answers[1].result.is_ok(), "{answers:?}");
    assert!(commit(&store, round(id, 2)).is_ok());
}

#[test]
fn renewals_are_decided_before_steps() {
    let file = File::new();
    let (store, id) = prepared(&file);
    let clock = file.clock.clone();
    let slow = step(id, 2, move |_| {
        clock.advance(claimant().lease * 2);
        true
    });
    let renew = Ask::Op(Op::Renew(roundel_core::Renew {
        worker: WORKER,
        runs: vec![id],
        lease: claimant().lease,
    }));
    let answers = ask_all(&store, vec![slow, renew]);
    let Ok(Reply::Renewed(renewed)) = &answers[1].result else {
        panic!("{answers:?}");
    };
    assert!(matches!(renewed[0].lease, roundel_core::Lease::Kept { .. }));
}

#[test]
fn the_futures_of_a_transaction_can_be_sent() {
    fn is_send<T: Send>(_: &T) {}
    let file = File::new();
    let (store, id) = prepared(&file);
    let answer = one(
        &store,
        step(id, 2, |tx| {
            is_send(&tx.execute("SELECT 1", ()));
            is_send(&tx.query_one("SELECT $1", (1, "a")));
            is_send(&tx);
            true
        }),
    );
    assert!(answer.result.is_ok());
    store.close();
}

#[test]
fn g4_a_disk_that_fails_inside_a_step_is_not_the_fault_of_the_step() {
    let file = File::new();
    let disk = Arc::new(Disk::mount(file.folder.path(), Plan::Well));
    let (store, id) = prepared(&file);
    drop(store);
    // Nothing is in memory any more, so that the step has to read.
    let store = file.open();
    let failing = Arc::clone(&disk);
    let (ask, refused) = refusable(id, 2, move |tx| {
        failing.fail_reads(true);
        let failed = execute(&tx, "UPDATE account SET amount = 1");
        failing.fail_reads(false);
        assert!(matches!(failed, Err(TxError::Busy(_))), "{failed:?}");
        let after = execute(&tx, "UPDATE account SET amount = 2");
        assert!(after.is_err(), "the transaction is gone");
        assert!(!tx.broke_a_rule());
        false
    });
    let answer = one(&store, ask);
    assert!(
        matches!(answer.result, Err(Error::Unavailable(_))),
        "{answer:?}"
    );
    assert_eq!(*refused.lock().unwrap(), []);
    assert_eq!(amount(&file), 100);
    let again = one(
        &store,
        step(id, 2, |tx| {
            execute(&tx, "UPDATE account SET amount = 3").unwrap();
            true
        }),
    );
    assert!(again.result.is_ok(), "{again:?}");
    assert_eq!(amount(&file), 3);
}
