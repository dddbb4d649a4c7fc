//! What will happen in the demo, drawn from a seed: orders, customers who write again, and kills.

use std::time::Duration;

use super::outside::{declines, refuses};
use super::shop::Order;

/// Orders come in at this pace.
const PACE: Duration = Duration::from_millis(30);
/// An order has so many pieces at most.
const PIECES: u32 = 3;
/// What the shop sells, and for how many cents.
pub(super) const ITEMS: [(&str, u32); 6] = [
    ("lamp", 4900),
    ("chair", 12900),
    ("teapot", 2350),
    ("blanket", 5990),
    ("clock", 3475),
    ("mirror", 8800),
];
/// The number of the item that carriers are careful with.
pub(super) const MIRROR: u32 = 5;
const CUSTOMERS: [&str; 8] = [
    "Ada", "Boris", "Chiara", "Dilan", "Edith", "Farid", "Grace", "Hedy",
];

/// Enough of an item for this many orders.
pub(super) fn stock(orders: u32) -> u32 {
    orders * PIECES
}

/// The whole demo, before it begins.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) orders: Vec<Planned>,
    pub(super) kills: Vec<Kill>,
}

/// An order, and when what happens.
#[derive(Clone, Debug)]
pub(super) struct Planned {
    pub(super) order: Order,
    pub(super) at: Duration,
    /// When the customer gives another address, and which.
    pub(super) address: Option<(Duration, String)>,
}

/// When the worker is killed, and how long there is none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kill {
    /// After so many orders.
    pub(super) after: usize,
    pub(super) pause: Duration,
}

impl Plan {
    pub(super) fn draw(orders: u32, seed: u64) -> Plan {
        let mut random = Random::new(seed);
        let orders: Vec<Planned> = (1..=orders).map(|n| planned(n, &mut random)).collect();
        let kills = 1 + (orders.len() / 100).min(2);
        let part = orders.len() as f64 / kills as f64;
        let kills = (0..kills)
            .map(|kill| {
                let after = part * (kill as f64 + 0.2 + 0.6 * random.part());
                Kill {
                    after: (after as usize).max(1),
                    pause: Duration::from_millis(200 + random.below(300)),
                }
            })
            .collect();
        Plan { orders, kills }
    }

    /// The orders that are sent: their cards are good, and the carrier takes them.
    pub(super) fn shipped(&self) -> impl Iterator<Item = &Order> {
        self.paid()
            .filter(|order| !refuses(order.item, order.pieces))
    }

    /// The place of an order that the carrier refuses, if there is one.
    pub(super) fn refused(&self) -> Option<usize> {
        let refused = |order: &Order| !declines(order.card) && refuses(order.item, order.pieces);
        self.orders
            .iter()
            .position(|planned| refused(&planned.order))
    }

    /// The orders whose cards are good.
    pub(super) fn paid(&self) -> impl Iterator<Item = &Order> {
        let orders = self.orders.iter().map(|planned| &planned.order);
        orders.filter(|order| !declines(order.card))
    }
}

fn planned(number: u32, random: &mut Random) -> Planned {
    let at = PACE * (number - 1);
    let item = random.index(ITEMS.len());
    let pieces = 1 + u32::try_from(random.below(PIECES.into())).unwrap_or(0);
    let customer = CUSTOMERS[random.index(CUSTOMERS.len())];
    let writes = random.below(100) < 75;
    let after = Duration::from_millis(100 + random.below(1400));
    let order = Order {
        number,
        customer: customer.into(),
        address: format!("{customer}, {} Long Street", 1 + random.below(99)),
        card: u32::try_from(random.below(1_000_000)).unwrap_or(0),
        item: u32::try_from(item).unwrap_or(0),
        pieces,
        cents: ITEMS[item].1 * pieces,
        packing_ms: 300 + random.below(600),
    };
    let other = format!("{customer}, {} Short Lane", 1 + random.below(99));
    Planned {
        order,
        at,
        address: writes.then_some((at + after, other)),
    }
}

/// A small generator (splitmix64): the same seed gives the same shop.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or(0)
    }

    /// From 0 to 1.
    fn part(&mut self) -> f64 {
        self.below(1_000_000) as f64 / 1_000_000.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_shop() {
        let plan = |seed| format!("{:?}", Plan::draw(40, seed));
        assert_eq!(plan(7), plan(7));
        assert_ne!(plan(7), plan(8));
    }

    #[test]
    fn every_kill_falls_while_orders_come_in_and_after_the_one_before() {
        for (orders, kills) in [(1, 1), (99, 1), (100, 2), (300, 3), (5_000, 3)] {
            let plan = Plan::draw(orders, 3);
            assert_eq!(plan.kills.len(), kills, "{orders} orders");
            let after: Vec<usize> = plan.kills.iter().map(|kill| kill.after).collect();
            assert!(after.is_sorted_by(|a, b| a < b), "{after:?}");
            assert!(
                after
                    .iter()
                    .all(|after| (1..=orders as usize).contains(after))
            );
        }
    }
}
