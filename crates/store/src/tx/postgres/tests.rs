//! Steps on a real server: what they may do, what they may not, and what stays.

use std::any::Any;
use std::future::Future;
use std::time::Duration;

use roundel_core::{Fence, Round, RunId, WorkerId};
use roundel_testpg::{Schema, schema};
use sqlx::postgres::PgConnection;
use sqlx::{Connection, Executor};
use tokio::runtime::Runtime;
use uuid::Uuid;

use super::{Broken, LIMIT, begin, run, settle};
use crate::tx::{Driven, Tx, TxError, Value};
use crate::{Work, Worked};

struct Step<F>(F);

impl<F: FnMut(Tx) -> bool + Send + 'static> Work for Step<F> {
    fn lease(&self) -> (RunId, WorkerId, Fence) {
        unreachable!("the store asks for it, which is not here")
    }

    fn run(&mut self, tx: Tx) -> Worked {
        let keep = (self.0)(tx);
        let round = Round::new(RunId(Uuid::nil()), WorkerId(Uuid::nil()), 1);
        Worked { round, keep }
    }

    fn refused(&mut self, _: TxError) -> Round {
        unreachable!("the store asks for it, which is not here")
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }
}

/// How the code ended, if it did, and whether what it wrote was committed.
type Came<T> = (Option<Driven<Result<T, TxError>>>, Result<(), Broken>);

/// A schema of one table with one row.
struct Place {
    runtime: Runtime,
    schema: Schema,
}

impl Place {
    fn new() -> Option<Place> {
        let schema = schema()?;
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let place = Place { runtime, schema };
        place.outside("CREATE TABLE stock (id INTEGER PRIMARY KEY, here INTEGER NOT NULL)");
        place.outside("INSERT INTO stock VALUES (1, 10)");
        Some(place)
    }

    fn connect(&self) -> PgConnection {
        // Made on the runtime's own threads, as the store does.
        let address = self.schema.address();
        let connected = async move { PgConnection::connect(&address).await };
        let connected = self.runtime.spawn(connected);
        let connected = self.runtime.block_on(connected).expect("it ran");
        connected.expect("a connection")
    }

    fn outside(&self, sql: &'static str) {
        let mut connection = self.connect();
        let done = self.runtime.block_on(connection.execute(sql));
        done.expect("a statement");
    }

    fn here(&self) -> i32 {
        let mut connection = self.connect();
        let query = sqlx::query_scalar("SELECT here FROM stock WHERE id = 1");
        let found = self.runtime.block_on(query.fetch_one(&mut connection));
        found.expect("a row")
    }

    /// Runs a step, and commits if it may.
    fn step<F, Fut, T>(&self, code: F) -> Came<T>
    where
        F: Fn(Tx) -> Fut + Send + 'static,
        Fut: Future<Output = Result<T, TxError>>,
        T: Send + 'static,
    {
        let mut connection = self.connect();
        self.runtime
            .block_on(begin(&mut connection, true))
            .expect("begun");
        let (sender, receiver) = std::sync::mpsc::channel();
        let mut work = Step(move |tx: Tx| {
            let driven = tx.drive(code(tx.clone()));
            let keep = matches!(driven, Driven::Ended(Ok(_)));
            sender.send(driven).expect("somebody listens");
            keep
        });
        let ran = run(connection, &mut work);
        let came = receiver.try_recv().ok();
        let worked = match ran.worked {
            Ok(worked) => worked,
            Err(broken) => return (came, Err(broken)),
        };
        if !worked.keep {
            return (came, Ok(()));
        }
        let mut connection = ran.connection.expect("the connection comes back");
        let settled = self.runtime.block_on(settle(&mut connection));
        if settled.is_ok() {
            let committed = self.runtime.block_on(connection.execute("COMMIT"));
            committed.expect("it can be committed");
        }
        (came, settled)
    }
}

const TAKE: &str = "UPDATE stock SET here = here - 1 WHERE id = 1";

#[test]
fn g1_what_a_step_wrote_is_committed() {
    let Some(place) = Place::new() else { return };
    let (came, settled) = place.step(|tx| async move {
        let rows = tx.execute(TAKE, ()).await?;
        let sql = "SELECT here, $1 + 1 AS more FROM stock WHERE id = $2";
        let row = tx.query_one(sql, (41, 1)).await?;
        Ok((rows, row.get::<i64>("here")?, row.get::<i64>("more")?))
    });
    assert!(
        matches!(came, Some(Driven::Ended(Ok((1, 9, 42))))),
        "{came:?}"
    );
    assert!(settled.is_ok(), "{settled:?}");
    assert_eq!(place.here(), 9);
}

#[test]
fn a_statement_that_failed_leaves_what_came_before_it_and_the_step_goes_on() {
    let Some(place) = Place::new() else { return };
    let (came, settled) = place.step(|tx| async move {
        tx.execute(TAKE, ()).await?;
        let twice = tx.execute("INSERT INTO stock VALUES (1, 1)", ()).await;
        assert!(matches!(twice, Err(TxError::Constraint(_))), "{twice:?}");
        tx.execute(TAKE, ()).await
    });
    assert!(matches!(came, Some(Driven::Ended(Ok(1)))), "{came:?}");
    assert!(settled.is_ok(), "{settled:?}");
    assert_eq!(place.here(), 8);
}

#[test]
fn e15_a_step_that_waits_for_something_else_is_found_out() {
    let Some(place) = Place::new() else { return };
    let (came, _) = place.step(|tx| async move {
        tx.execute(TAKE, ()).await?;
        tokio::task::yield_now().await;
        Ok(())
    });
    assert!(matches!(came, Some(Driven::Foreign)), "{came:?}");
    assert_eq!(place.here(), 10);
}

#[test]
fn e15_a_step_that_ended_its_transaction_is_refused() {
    let Some(place) = Place::new() else { return };
    let (came, _) = place.step(|tx| async move {
        let ended = tx.execute("COMMIT", ()).await;
        assert!(matches!(ended, Err(TxError::Refused(_))), "{ended:?}");
        assert!(tx.broke_a_rule());
        Ok(())
    });
    assert!(matches!(came, Some(Driven::Ended(Ok(())))), "{came:?}");
    for sql in [
        "COMMIT",
        "COMMIT AND CHAIN",
        "ROLLBACK; BEGIN",
        "COMMIT; BEGIN",
    ] {
        let (_, settled) = place.step(move |tx| async move {
            let mut connection = tx.postgres().await?;
            connection.execute(sql).await?;
            Ok(())
        });
        let refused = matches!(&settled, Err(Broken::Refused(TxError::Refused(_))));
        assert!(refused, "{sql}: {settled:?}");
    }
}

#[test]
fn a_step_uses_sqlx_as_it_knows_it() {
    let Some(place) = Place::new() else { return };
    let (came, settled) = place.step(|tx| async move {
        let mut connection = tx.postgres().await?;
        let meanwhile = tx.execute(TAKE, ()).await;
        assert!(
            matches!(meanwhile, Err(TxError::Refused(_))),
            "{meanwhile:?}"
        );
        let take = sqlx::query("UPDATE stock SET here = here - $1 RETURNING here");
        let rows = take.bind(3).fetch_all(&mut *connection).await?;
        drop(connection);
        tx.execute(TAKE, ()).await?;
        Ok(rows.len())
    });
    assert!(matches!(came, Some(Driven::Ended(Ok(1)))), "{came:?}");
    assert!(settled.is_ok(), "{settled:?}");
    assert_eq!(place.here(), 6);
}

#[test]
fn e13_a_handle_is_refused_outside_its_step_and_on_other_threads() {
    let Some(place) = Place::new() else { return };
    let (sender, receiver) = std::sync::mpsc::channel();
    let (came, _) = place.step(move |tx| {
        sender.send(tx.clone()).expect("somebody listens");
        let elsewhere = tx.clone();
        async move {
            let there = std::thread::spawn(move || elsewhere.drive(elsewhere.execute(TAKE, ())));
            match there.join().expect("a thread") {
                Driven::Ended(result) => result,
                other => panic!("{other:?}"),
            }
        }
    });
    assert!(
        matches!(came, Some(Driven::Ended(Err(TxError::Outside)))),
        "{came:?}"
    );
    let escaped = receiver.recv().expect("it leaked");
    let late = escaped.drive(escaped.execute(TAKE, ()));
    assert!(
        matches!(late, Driven::Ended(Err(TxError::Outside))),
        "{late:?}"
    );
    assert_eq!(place.here(), 10);
}

#[test]
fn h3_a_connection_that_is_lost_is_not_the_steps_fault() {
    let Some(place) = Place::new() else { return };
    let (_, settled) = place.step(|tx| async move {
        tx.execute(TAKE, ()).await?;
        let end = "SELECT pg_terminate_backend(pg_backend_pid())";
        let _ = tx.query(end, ()).await;
        Ok(())
    });
    assert!(matches!(settled, Err(Broken::Failed(_))), "{settled:?}");
    assert_eq!(place.here(), 10);
}

#[test]
fn g1_a_step_that_breaks_a_deferred_key_is_refused() {
    let Some(place) = Place::new() else { return };
    place.outside(
        "CREATE TABLE part (stock INTEGER REFERENCES stock DEFERRABLE INITIALLY DEFERRED)",
    );
    let (_, settled) =
        place.step(|tx| async move { tx.execute("INSERT INTO part VALUES (99)", ()).await });
    let refused = matches!(&settled, Err(Broken::Refused(TxError::Database(_))));
    assert!(refused, "{settled:?}");
}

#[test]
fn calls_beside_each_other_take_turns() {
    let Some(place) = Place::new() else { return };
    let (came, settled) = place.step(|tx| async move {
        let (a, b) = tokio::join!(tx.execute(TAKE, ()), tx.execute(TAKE, ()));
        Ok(a? + b?)
    });
    assert!(matches!(came, Some(Driven::Ended(Ok(2)))), "{came:?}");
    assert!(settled.is_ok(), "{settled:?}");
    assert_eq!(place.here(), 8);
}

#[test]
fn values_are_the_same_on_both_databases() {
    let Some(place) = Place::new() else { return };
    place.outside(
        "CREATE TABLE kinds (flag BOOLEAN, small SMALLINT, whole BIGINT, real DOUBLE PRECISION, \
         exact NUMERIC, text TEXT, bytes BYTEA, id UUID, doc JSONB, made TIMESTAMPTZ)",
    );
    let (came, settled) = place.step(|tx| async move {
        let id = "018f3a5e-0000-7000-8000-000000000001";
        let sql = "INSERT INTO kinds VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, \
                   CAST(CAST($10 AS TEXT) AS TIMESTAMPTZ))";
        let values: Vec<Value> = vec![
            true.into(),
            7_i16.into(),
            i64::MAX.into(),
            1.5.into(),
            "12345678901234567890.50".into(),
            "schön".into(),
            vec![0_u8, 255].into(),
            id.into(),
            "{\"a\": 1}".into(),
            "2026-01-02T03:04:05Z".into(),
        ];
        tx.execute(sql, &values[..]).await?;
        let row = tx
            .query_one("SELECT *, NULL::INT AS none FROM kinds", ())
            .await?;
        assert!(row.get::<bool>("flag")?);
        assert_eq!(row.get::<Option<i64>>("none")?, None);
        assert_eq!(row.get::<String>("made")?, "2026-01-02T03:04:05.000000Z");
        assert_eq!(row.values()[..9], values[..9]);
        let wrong = tx
            .execute("INSERT INTO kinds (made) VALUES ($1)", ("now",))
            .await;
        let advice = wrong.expect_err("no such text").to_string();
        assert!(advice.contains("CAST($1 AS TEXT)"), "{advice}");
        let wrong = tx
            .execute("INSERT INTO kinds (whole) VALUES (?1)", (1,))
            .await;
        let advice = wrong.expect_err("another database's").to_string();
        assert!(advice.contains("`$1`"), "{advice}");
        let wrong = tx
            .execute("INSERT INTO kinds (whole) VALUES ($1)", (1, 2))
            .await;
        let advice = wrong.expect_err("too many").to_string();
        assert!(advice.contains("1 parameters, and 2"), "{advice}");
        Ok(())
    });
    assert!(matches!(came, Some(Driven::Ended(Ok(())))), "{came:?}");
    assert!(settled.is_ok(), "{settled:?}");
}

#[test]
fn h6_a_step_in_a_deadlock_is_to_be_run_again() {
    let Some(place) = Place::new() else { return };
    place.outside("INSERT INTO stock VALUES (2, 10)");
    place.outside("ALTER TABLE stock ADD COLUMN note TEXT");
    let mut other = place.connect();
    let lock = "BEGIN; UPDATE stock SET here = 0 WHERE id = 2";
    place.runtime.block_on(other.execute(lock)).expect("locked");
    let waits = place.runtime.spawn(async move {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let crossing = "UPDATE stock SET here = 0 WHERE id = 1; COMMIT";
        other.execute(crossing).await.map(|_| ())
    });
    let (_, settled) = place.step(|tx| async move {
        tx.execute(TAKE, ()).await?;
        tx.execute("UPDATE stock SET here = 1 WHERE id = 2", ())
            .await
    });
    let theirs = place.runtime.block_on(waits).expect("it ran");
    // The server chooses whom to refuse.
    assert!(theirs.is_ok() != settled.is_ok(), "{theirs:?} {settled:?}");
    if settled.is_err() {
        assert!(matches!(settled, Err(Broken::Failed(_))), "{settled:?}");
    }
}

#[test]
fn co_05_no_statement_of_a_step_outlives_the_lease_of_a_process_that_died() {
    let Some(place) = Place::new() else { return };
    let (came, _) = place.step(|tx| async move {
        let asked = "SELECT setting::bigint FROM pg_settings WHERE name = 'statement_timeout'";
        tx.query_one(asked, ()).await?.get::<i64>(0)
    });
    let Some(Driven::Ended(Ok(most))) = came else {
        panic!("{came:?}");
    };
    // A lease is renewed every third of its time: so much is left of it, at least.
    let left = roundel_core::limits::USUAL_LEASE * 2 / 3;
    assert!(most > 0 && most <= left.as_millis() as i64, "{most} ms");
}

/// One that cannot end in time would be run again for ever if that were the database's fault.
#[test]
fn co_05_a_statement_that_takes_too_long_is_the_fault_of_the_step() {
    let Some(place) = Place::new() else { return };
    let (came, settled) = place.step(|tx| async move {
        tx.execute("SET LOCAL statement_timeout = '50ms'", ())
            .await?;
        let slow = tx.execute("SELECT pg_sleep(60)", ()).await;
        tx.execute(TAKE, ()).await?;
        slow
    });
    let Some(Driven::Ended(Err(TxError::Database(said)))) = came else {
        panic!("{came:?}");
    };
    assert!(said.contains("do less in one"), "{said}");
    assert!(settled.is_ok(), "what it did beside stands: {settled:?}");
}

#[test]
fn co_05_who_waits_for_a_lock_is_not_taken_for_one_that_takes_long() {
    let Some(place) = Place::new() else { return };
    let (came, _) = place.step(|tx| async move {
        let asked = "SELECT setting::bigint FROM pg_settings WHERE name IN ('lock_timeout', \
             'statement_timeout', 'idle_in_transaction_session_timeout') ORDER BY name DESC";
        let rows = tx.query(asked, ()).await?;
        rows.iter()
            .map(|row| row.get::<i64>(0))
            .collect::<Result<Vec<_>, _>>()
    });
    let Some(Driven::Ended(Ok(limits))) = came else {
        panic!("{came:?}");
    };
    let [statement, lock, idle] = limits[..] else {
        panic!("{limits:?}");
    };
    assert!(lock > 0 && lock < statement, "{limits:?}");
    // As long as the whole step may take: none that goes on is ended by this.
    assert_eq!(u128::try_from(idle), Ok(LIMIT.as_millis()));
}
