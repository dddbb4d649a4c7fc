//! The shop: its workflows, and the steps that write to its own tables. An order is published to
//! the stock and to the cashier, and once it is packed to the shipping. If one of them cannot do
//! its part, all that was done for the order is undone, newest first.

use std::time::Duration;

use roundel::{
    Attempt, Begun, Cx, EngineBuilder, Failure, Result, Retry, Signal, Topic, Tx, Workflow,
};
use serde::{Deserialize, Serialize};

use super::outside::Outside;

pub(super) const ORDER: Workflow<Order, String> = Workflow::named("order");
const STOCK: Workflow<Order, ()> = Workflow::named("stock");
const PAYMENT: Workflow<Order, String> = Workflow::named("payment");
const SHIPPING: Workflow<Shipment, Vec<String>> = Workflow::named("shipping");
const PARCEL: Workflow<Parcel, String> = Workflow::named("parcel");
/// An order has come in.
const PLACED: Topic<Order> = Topic::named("placed");
/// An order can be sent.
const PACKED: Topic<Shipment> = Topic::named("packed");
/// A customer gives another address. If the order is undone, nobody minds it any more.
pub(super) const ADDRESS: Signal<String> = Signal::named("address").discarded_unless_read();

pub(super) const SHIPPED: &str = "shipped";
pub(super) const UNDONE: &str = "undone";

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

/// An order, packed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Shipment {
    order: u32,
    item: u32,
    pieces: u32,
    address: String,
}

/// One piece of an order, on its way.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Parcel {
    pub(super) order: u32,
    pub(super) item: u32,
    pub(super) number: u32,
    pub(super) address: String,
}

/// Adds the shop's workflows to an engine.
pub(super) fn register(engine: EngineBuilder, outside: Outside) -> EngineBuilder {
    engine
        .register(ORDER, fulfil)
        .register(STOCK, take)
        .register(PAYMENT, move |cx, order| pay(cx, outside, order))
        .register(SHIPPING, ship)
        .register(PARCEL, move |cx, parcel| send(cx, outside, parcel))
        .subscribe(PLACED, STOCK)
        .subscribe(PLACED, PAYMENT)
        .subscribe(PACKED, SHIPPING)
}

async fn fulfil(cx: Cx, order: Order) -> Result<String> {
    cx.step("open", |tx| open(tx, &order))
        .undo(set_undone)
        .await?;
    cx.publish(PLACED, &order).await?;
    cx.sleep(Duration::from_millis(order.packing_ms)).await;
    let address = match cx.wait(ADDRESS).within(PATIENCE).await {
        Ok(address) => address,
        Err(failure) if failure.code == "timed_out" => order.address.clone(),
        Err(failure) => return Err(failure),
    };
    let shipment = Shipment {
        order: order.number,
        item: order.item,
        pieces: order.pieces,
        address,
    };
    cx.publish(PACKED, &shipment).await?;
    cx.step("close", |tx| close(tx, &order)).await?;
    Ok(SHIPPED.into())
}

async fn take(cx: Cx, order: Order) -> Result<()> {
    let taken = cx.step("take", |tx| take_pieces(tx, &order));
    taken.undo(give_back).await.map(drop)
}

async fn pay(cx: Cx, outside: Outside, order: Order) -> Result<String> {
    let charge = |attempt: Attempt| outside.charge(attempt.key(), &order);
    let refund = move |begun: Begun<String>| outside.refund(begun.key().to_owned());
    let charged = cx.effect("charge", charge).retry(RETRY).undo(refund);
    let receipt = charged.await?;
    let booked = cx.step("book", |tx| book(tx, &order, &receipt));
    booked.undo(book_back).await?;
    Ok(receipt)
}

async fn ship(cx: Cx, shipment: Shipment) -> Result<Vec<String>> {
    let parcels: Vec<Parcel> = (1..=shipment.pieces)
        .map(|number| Parcel {
            order: shipment.order,
            item: shipment.item,
            number,
            address: shipment.address.clone(),
        })
        .collect();
    cx.children(PARCEL, &parcels).await
}

async fn send(cx: Cx, outside: Outside, parcel: Parcel) -> Result<String> {
    let label = |attempt: Attempt| outside.label(attempt.key(), &parcel);
    let void = move |begun: Begun<String>| outside.void(begun.key().to_owned());
    let label = cx.effect("label", label).retry(RETRY).undo(void).await?;
    let handed = cx.step("hand over", |tx| hand_over(tx, &parcel, &label));
    handed.undo(take_back).await?;
    Ok(label)
}

async fn open(tx: Tx, order: &Order) -> Result<u32> {
    let sql = "INSERT INTO orders (number, customer, item, pieces, cents, status) \
               VALUES ($1, $2, $3, $4, $5, 'open')";
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
    Ok(*number)
}

async fn close(tx: Tx, order: &Order) -> Result<()> {
    set_status(tx, order.number, SHIPPED).await
}

async fn set_undone(tx: Tx, number: u32) -> Result<()> {
    set_status(tx, number, UNDONE).await
}

async fn set_status(tx: Tx, number: u32, status: &str) -> Result<()> {
    let sql = "UPDATE orders SET status = $1 WHERE number = $2";
    tx.execute(sql, (status, number)).await?;
    Ok(())
}

/// How many of what were taken.
type Taken = (u32, u32);

async fn take_pieces(tx: Tx, order: &Order) -> Result<Taken> {
    let sql = "UPDATE stock SET remaining = remaining - $1 WHERE item = $2";
    tx.execute(sql, (order.pieces, order.item)).await?;
    Ok((order.pieces, order.item))
}

async fn give_back(tx: Tx, (pieces, item): Taken) -> Result<()> {
    let sql = "UPDATE stock SET remaining = remaining + $1 WHERE item = $2";
    tx.execute(sql, (pieces, item)).await?;
    Ok(())
}

const LEDGER: &str = "INSERT INTO ledger (number, cents, receipt) VALUES ($1, $2, $3)";

/// What was booked.
type Booked = (u32, u32, String);

async fn book(tx: Tx, order: &Order, receipt: &str) -> Result<Booked> {
    tx.execute(LEDGER, (order.number, order.cents, receipt))
        .await?;
    Ok((order.number, order.cents, receipt.to_owned()))
}

/// Nothing is taken out of a ledger.
async fn book_back(tx: Tx, (number, cents, receipt): Booked) -> Result<()> {
    let back = -i64::from(cents);
    tx.execute(LEDGER, (number, back, receipt.as_str())).await?;
    Ok(())
}

async fn hand_over(tx: Tx, parcel: &Parcel, label: &str) -> Result<String> {
    let sql = "INSERT INTO parcels (number, parcel, address, label) VALUES ($1, $2, $3, $4)";
    let values = (parcel.order, parcel.number, &parcel.address, label);
    tx.execute(sql, values).await?;
    Ok(label.to_owned())
}

async fn take_back(tx: Tx, label: String) -> Result<()> {
    let sql = "DELETE FROM parcels WHERE label = $1";
    match tx.execute(sql, (label.as_str(),)).await? {
        1 => Ok(()),
        found => Err(Failure::permanent(format!(
            "{found} parcels have `{label}`"
        ))),
    }
}
