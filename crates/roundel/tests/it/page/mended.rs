use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex};

use roundel::testkit::{World, explore};
use roundel::{Client, Cx, EngineBuilder, Failure, Result, Tx, Workflow};

const ORDER: Workflow<String, ()> = Workflow::named("order");

/// The courier takes a key: the same key again is the same booking.
#[derive(Clone, Default)]
struct Courier(Arc<Mutex<BTreeMap<String, String>>>);

impl Courier {
    async fn book(&self, key: String, item: &str) -> Result<()> {
        self.0.lock().unwrap().insert(key, item.to_owned());
        Ok::<_, Failure>(())
    }
}

async fn pack(tx: Tx, item: &str) -> Result<()> {
    tx.execute("INSERT INTO parcel VALUES ($1)", (item,))
        .await?;
    Ok(())
}

async fn order(cx: Cx, courier: Courier, item: String) -> Result<()> {
    cx.step("pack", |tx| pack(tx, &item)).await?;
    cx.effect("book", |attempt| courier.book(attempt.key(), &item))
        .await
}

fn app(courier: Courier) -> impl Fn(EngineBuilder) -> EngineBuilder {
    move |engine| {
        let courier = courier.clone();
        engine.register(ORDER, move |cx, item| order(cx, courier.clone(), item))
    }
}

/// After every commit: no order has two parcels.
async fn no_second_parcel(tx: Tx) -> Result<(), Box<dyn Error>> {
    let parcels: i64 = tx
        .query_one("SELECT count(*) FROM parcel", ())
        .await?
        .get(0)?;
    match parcels {
        0 | 1 => Ok(()),
        more => Err(format!("{more} parcels").into()),
    }
}

async fn an_order_is_one_parcel(world: World) -> Result<(), Box<dyn Error>> {
    let courier = Courier::default();
    let kit = world.open(app(courier.clone())).await;
    let table = "CREATE TABLE parcel (item TEXT)";
    kit.sql(|tx| async move { tx.execute(table, ()).await })
        .await?;
    world.always("an order is one parcel", no_second_parcel);

    // The program's own handler, inside the process that crashes. Whoever called it calls again.
    let handler = |client: Client| async move {
        client
            .start(ORDER, &"a lamp".to_owned())
            .key("order-17")
            .await
    };
    let run = kit.request(handler).await?.id();
    kit.handle(ORDER, run).await?.result().await?;

    assert_eq!(courier.0.lock().unwrap().len(), 1);
    Ok(())
}

pub fn main() {
    let report = explore(an_order_is_one_parcel).run();
    assert!(report.crashes > 100);
}
