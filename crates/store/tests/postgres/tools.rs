//! What the tests share: a schema, and short ways to ask.

use std::time::Duration;

use roundel_core::{
    Claimant, Committed, Entry, Lane, LaneId, Name, Op, Payload, Register, Reply, Round, RunId,
    Start, WorkerId, encode_entries,
};
use roundel_store::{Answer, Dump, Error, Postgres, PostgresOptions, Query, Store, ask};
use roundel_testpg::Schema;
use sqlx::{Connection, PgConnection};

pub(crate) const SPACE: Name = Name::constant("default");
pub(crate) const FLOW: Name = Name::constant("flow");
pub(crate) const WORKER: WorkerId = WorkerId(uuid::Uuid::from_u128(7));
pub(crate) const LEASE: Duration = Duration::from_secs(600);

/// The options of a store in this schema, by the server's clock.
pub(crate) fn options(schema: &Schema) -> PostgresOptions {
    PostgresOptions {
        schema: schema.name().to_owned(),
        ..PostgresOptions::default()
    }
}

/// The server, with the schema's name as that of the program, so that its connections are known.
pub(crate) fn address(schema: &Schema) -> String {
    format!("{}&application_name={}", schema.address(), schema.name())
}

pub(crate) fn open(schema: &Schema) -> Postgres {
    Postgres::open(&address(schema), options(schema)).expect("a database")
}

pub(crate) fn wait_for<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(future)
}

/// Runs a statement of the test's own.
pub(crate) fn sql(schema: &Schema, sql: &str) -> u64 {
    wait_for(async {
        let mut connection = PgConnection::connect(&schema.address()).await?;
        let done = sqlx::query(sql).execute(&mut connection).await?;
        connection.close().await?;
        Ok::<_, sqlx::Error>(done.rows_affected())
    })
    .expect("the statement")
}

pub(crate) fn register(store: &dyn Store) -> LaneId {
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

pub(crate) fn start(number: u128) -> Start {
    Start {
        version: Some(1),
        ..Start::new(
            SPACE,
            RunId(uuid::Uuid::from_u128(number)),
            FLOW,
            Payload::null(),
        )
    }
}

/// A run that the worker has, under epoch 1.
pub(crate) fn claimed(store: &dyn Store, number: u128) -> RunId {
    let (worker, lease) = (WORKER, LEASE);
    let start = Start {
        claimant: Some(Claimant { worker, lease }),
        ..start(number)
    };
    let run = start.run;
    match ask(store, Op::Start(start)) {
        Ok(Reply::Started(started)) if started.new => run,
        other => panic!("{other:?}"),
    }
}

/// A round with one entry that continues.
pub(crate) fn round(run: RunId, epoch: u64) -> Round {
    let mut round = Round::new(run, WORKER, epoch);
    round.entries = encode_entries(&[Entry::CancelSeen]);
    round.count = 1;
    round
}

pub(crate) fn commit(store: &dyn Store, round: Round) -> Result<Committed, Error> {
    match ask(store, Op::Commit(round))? {
        Reply::Committed(committed) => Ok(committed),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn dump(store: &dyn Store) -> Dump {
    match wait_for(store.read(Query::Dump)) {
        Ok(Answer::Dump(dump)) => *dump,
        other => panic!("{other:?}"),
    }
}
