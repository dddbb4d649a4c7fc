//! The shop: its workflows, and the steps that write to its own tables.

use std::time::Duration;

use roundel::{Attempt, Class, Cx, EngineBuilder, Result, Retry, Signal, Tx, Workflow, future};
use serde::{Deserialize, Serialize};

use super::outside::Outside;

pub(super) const ORDER: Workflow<Order, String> = Workflow::named("order");
const PARCEL: Workflow<Parcel, String> = Workflow::named("parcel");
/// A customer gives another address.
pub(super) const ADDRESS: Signal<String> = Signal::named("address");

pub(super) const SHIPPED: &str = "shipped";
pub(super) const DECLINED: &str = "declined";

/// How long the shop waits for another address.
pub(super) const PATIENCE: Duration = Duration::from_millis(1200);
/// More attempts than the outside is ever busy in a row.
const RETRY: Retry = Retry::exponential(8)
    .first(Duration::from_millis(60))
    .cap(Duration::from_millis(300));

/// What a customer orders.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) number: u32,
    pub(super) customer: String,
    pub(super) address: String,
    pub(super) card: u32,
    pub(super) item: u32,
    pub(super) pieces: u32,
    pub(super) cents: u32,
    pub(super) packing_ms: u64,
}

/// One piece of an order, on its way.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Parcel {
    pub(super) order: u32,
    pub(super) number: u32,
    pub(super) address: String,
}

/// Adds the shop's workflows to an engine.
pub(super) fn register(engine: EngineBuilder, outside: Outside) -> EngineBuilder {
    engine
        .register(ORDER, move |cx, order| fulfil(cx, outside, order))
        .register(PARCEL, move |cx, parcel| ship(cx, outside, parcel))
}

async fn fulfil(cx: Cx, outside: Outside, order: Order) -> Result<String> {
    cx.step("reserve", |tx| reserve(tx, &order)).await?;
    let charge = |attempt: Attempt| outside.charge(attempt.key(), &order);
    let receipt = match cx.effect("charge", charge).retry(RETRY).await {
        Ok(receipt) => receipt,
        Err(failure) if failure.class == Class::Business => {
            cx.step("give back", |tx| give_back(tx, &order)).await?;
            return Ok(DECLINED.into());
        }
        Err(failure) => return Err(failure),
    };
    cx.step("book", |tx| book(tx, &order, &receipt)).await?;
    cx.sleep(Duration::from_millis(order.packing_ms)).await;
    let address = match cx.wait(ADDRESS).within(PATIENCE).await {
        Ok(address) => address,
        Err(failure) if failure.code == "timed_out" => order.address.clone(),
        Err(failure) => return Err(failure),
    };
    let parcels: Vec<Parcel> = (1..=order.pieces)
        .map(|number| Parcel {
            order: order.number,
            number,
            address: address.clone(),
        })
        .collect();
    future::try_join_all(parcels.iter().map(|parcel| cx.child(PARCEL, parcel))).await?;
    cx.step("close", |tx| set_status(tx, &order, SHIPPED))
        .await?;
    Ok(SHIPPED.into())
}

async fn ship(cx: Cx, outside: Outside, parcel: Parcel) -> Result<String> {
    let label = |attempt: Attempt| outside.label(attempt.key(), &parcel);
    let label = cx.effect("label", label).retry(RETRY).await?;
    cx.step("hand over", |tx| hand_over(tx, &parcel, &label))
        .await?;
    Ok(label)
}

async fn reserve(tx: Tx, order: &Order) -> Result<()> {
    let sql = "UPDATE stock SET remaining = remaining - $1 WHERE item = $2";
    tx.execute(sql, (order.pieces, order.item)).await?;
    let sql = "INSERT INTO orders (number, customer, item, pieces, cents, status) \
               VALUES ($1, $2, $3, $4, $5, 'reserved')";
    let Order {
        number,
        customer,
        item,
        pieces,
        cents,
        ..
    } = order;
    tx.execute(sql, (*number, customer, *item, *pieces, *cents))
        .await?;
    Ok(())
}

async fn give_back(tx: Tx, order: &Order) -> Result<()> {
    let sql = "UPDATE stock SET remaining = remaining + $1 WHERE item = $2";
    tx.execute(sql, (order.pieces, order.item)).await?;
    set_status(tx, order, DECLINED).await
}

async fn book(tx: Tx, order: &Order, receipt: &str) -> Result<()> {
    let sql = "INSERT INTO ledger (number, cents, receipt) VALUES ($1, $2, $3)";
    tx.execute(sql, (order.number, order.cents, receipt))
        .await?;
    set_status(tx, order, "paid").await
}

async fn hand_over(tx: Tx, parcel: &Parcel, label: &str) -> Result<()> {
    let sql = "INSERT INTO parcels (number, parcel, address, label) VALUES ($1, $2, $3, $4)";
    let values = (parcel.order, parcel.number, &parcel.address, label);
    tx.execute(sql, values).await?;
    Ok(())
}

async fn set_status(tx: Tx, order: &Order, status: &str) -> Result<()> {
    let sql = "UPDATE orders SET status = $1 WHERE number = $2";
    tx.execute(sql, (status, order.number)).await?;
    Ok(())
}
