//! Engines behind PgBouncer in transaction mode: each transaction may get another connection to the
//! server, nothing that was said outside of one is kept, and nobody can listen.

use std::time::Duration;

use roundel::{Cx, Engine, EngineBuilder, Failure, Result, Signal, Tx, Workflow};
use roundel_testpg::Schema;

const ORDER: Workflow<u64, u64> = Workflow::named("order");
const PACK: Workflow<u64, u64> = Workflow::named("pack");
const PAID: Signal<u64> = Signal::named("paid");
const ORDERS: u64 = 12;

async fn pack(cx: Cx, number: u64) -> Result<u64> {
    cx.sleep(Duration::from_millis(5)).await;
    Ok(number)
}

/// A step with a table of its own, through both doors, an effect, a child that sleeps, and a signal
/// from outside.
async fn order(cx: Cx, number: u64, insert: String) -> Result<u64> {
    cx.step("reserve", |tx: Tx| {
        let insert = insert.clone();
        async move {
            let number = i64::try_from(number).expect("a small number");
            tx.execute(&insert, (number,)).await?;
            let mut connection = tx.postgres().await?;
            let again = sqlx::query(&insert).bind(number + 1_000);
            again.execute(&mut *connection).await?;
            Ok::<_, Failure>(())
        }
    })
    .await?;
    let weight = cx.effect("weigh", |_| async move { Ok::<_, Failure>(number * 2) });
    let (weight, packed) = (weight.await?, cx.child(PACK, &number).await?);
    Ok(weight + packed + cx.wait(PAID).within(Duration::from_secs(60)).await?)
}

fn engine(schema: &Schema, pooler: &str) -> EngineBuilder {
    let into = ["INSERT INTO ", schema.name(), ".parcel (number) "];
    let insert = [&into.concat(), "VALUES ($1)"].concat();
    Engine::open(schema.address_at(pooler))
        .schema(schema.name())
        .pooled()
        .register(PACK, pack)
        .register(ORDER, move |cx, number| order(cx, number, insert.clone()))
}

async fn ask(schema: &Schema, sql: &str) -> i64 {
    use sqlx::{Connection, PgConnection, Row};
    let mut connection = PgConnection::connect(&schema.address())
        .await
        .expect("a server");
    let rows = sqlx::query(sql).fetch_all(&mut connection).await;
    let rows = rows.expect("the statement");
    rows.first().map_or(0, |row| row.get(0))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h8_engines_that_share_connections_run_everything_once() {
    let found =
        tokio::task::block_in_place(|| (roundel_testpg::schema(), roundel_testpg::pooler()));
    let (Some(schema), Some(pooler)) = found else {
        return;
    };
    ask(&schema, "CREATE TABLE parcel (number bigint NOT NULL)").await;
    let one = engine(&schema, pooler.address()).start();
    let one = one.await.expect("an engine");
    let two = engine(&schema, pooler.address()).start();
    let two = two.await.expect("another");
    let mut orders = Vec::new();
    for number in 0..ORDERS {
        let (here, there) = if number % 2 == 0 {
            (&one, &two)
        } else {
            (&two, &one)
        };
        let run = here.start(ORDER, &number).await.expect("a start").id();
        there.signal(run, PAID, &100).await.expect("a signal");
        let handle = there.handle(ORDER, run).await.expect("a handle");
        orders.push((number, handle));
    }
    for (number, mut order) in orders {
        let sum = tokio::time::timeout(Duration::from_secs(60), order.result());
        let sum = sum.await.expect("in time").expect("an end");
        assert_eq!(sum, number * 3 + 100);
    }
    let parcels = "SELECT count(*) * 1000 + count(DISTINCT number) FROM parcel";
    assert_eq!(ask(&schema, parcels).await, 1_000 * 24 + 24);
    one.shutdown().await;
    two.shutdown().await;
    tokio::task::block_in_place(|| drop((pooler, schema)));
}
