use std::error::Error;
use std::sync::{Arc, Mutex};

use roundel::testkit::{World, explore};
use roundel::{Cx, EngineBuilder, Result, Tx, Workflow};

const ORDER: Workflow<String, ()> = Workflow::named("order");

/// The courier, as the test plays it: outside of the program, so it remembers across crashes.
#[derive(Clone, Default)]
struct Courier(Arc<Mutex<Vec<String>>>);

impl Courier {
    fn book(&self, item: &str) {
        self.0.lock().unwrap().push(item.to_owned());
    }
}

async fn ship(tx: Tx, courier: &Courier, item: &str) -> Result<()> {
    tx.execute("INSERT INTO parcel VALUES ($1)", (item,))
        .await?;
    courier.book(item);
    Ok(())
}

async fn order(cx: Cx, courier: Courier, item: String) -> Result<()> {
    cx.step("ship", |tx| ship(tx, &courier, &item)).await
}

fn app(courier: Courier) -> impl Fn(EngineBuilder) -> EngineBuilder {
    move |engine| {
        let courier = courier.clone();
        engine.register(ORDER, move |cx, item| order(cx, courier.clone(), item))
    }
}

pub async fn an_order_is_one_parcel(world: World) -> Result<(), Box<dyn Error>> {
    let courier = Courier::default();
    let kit = world.open(app(courier.clone())).await;
    let table = "CREATE TABLE parcel (item TEXT)";
    kit.sql(|tx| async move { tx.execute(table, ()).await })
        .await?;

    let mut run = kit.start(ORDER, &"a lamp".to_owned()).await?;
    run.result().await?;

    match courier.0.lock().unwrap().len() {
        1 => Ok(()),
        times => Err(format!("the courier was booked {times} times for one order").into()),
    }
}

fn main() {
    // In a test: explore(an_order_is_one_parcel).run();
    let broken = explore(an_order_is_one_parcel).find().unwrap_err();
    println!("{broken}");
}
