//! Does it add up? Asked of the shop's own tables, beside the plan and the books of the card
//! company and the carrier. The engine is asked only whether its runs ended.

use std::collections::BTreeMap;

use rusqlite::Connection;
use serde::Serialize;

use super::outside::Book;
use super::plan::Plan;
use super::shop::{DECLINED, SHIPPED};

/// One question and its answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Check {
    pub(super) what: &'static str,
    pub(super) holds: bool,
    pub(super) found: String,
}

/// Asks all questions.
pub(super) fn audit(db: &Connection, plan: &Plan, book: &Book) -> rusqlite::Result<Vec<Check>> {
    Ok(vec![
        orders(db, plan)?,
        charged_once(db, plan)?,
        card_company(db, book)?,
        stock(db)?,
        parcels(db, plan, book)?,
        runs(db)?,
        sound(db)?,
    ])
}

fn orders(db: &Connection, plan: &Plan) -> rusqlite::Result<Check> {
    let sql = "SELECT number, status FROM orders ORDER BY number";
    let found = rows(db, sql, |row| Ok((row.get(0)?, row.get(1)?)))?;
    let paid: Vec<u32> = plan.paid().map(|order| order.number).collect();
    let all = plan.orders.iter().map(|planned| planned.order.number);
    let wanted: Vec<(u32, String)> = all
        .map(|number| {
            let status = if paid.binary_search(&number).is_ok() {
                SHIPPED
            } else {
                DECLINED
            };
            (number, status.to_owned())
        })
        .collect();
    let shipped = found.iter().filter(|(_, status)| status == SHIPPED).count();
    let declined = found
        .iter()
        .filter(|(_, status)| status == DECLINED)
        .count();
    Ok(Check {
        what: "every order is there once, and done",
        holds: found == wanted,
        found: format!("{shipped} shipped, {declined} declined"),
    })
}

fn charged_once(db: &Connection, plan: &Plan) -> rusqlite::Result<Check> {
    let rows: Vec<(u32, u32)> = rows(db, "SELECT number, cents FROM ledger", |row| {
        Ok((row.get(0)?, row.get(1)?))
    })?;
    let mut charged: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (number, cents) in &rows {
        charged.entry(*number).or_default().push(*cents);
    }
    let (mut missing, mut wrong) = (0, 0);
    for order in plan.paid() {
        match charged.get(&order.number).map(Vec::as_slice) {
            None => missing += 1,
            Some(cents) => wrong += usize::from(cents.iter().any(|cents| *cents != order.cents)),
        }
    }
    let twice = charged.values().filter(|cents| cents.len() > 1).count();
    let holds = missing + wrong + twice == 0 && rows.len() == plan.paid().count();
    let (count, bad) = (rows.len(), missing + wrong);
    Ok(Check {
        what: "each was charged exactly once",
        holds,
        found: format!("{count} in the ledger, {twice} twice, {bad} bad"),
    })
}

fn card_company(db: &Connection, book: &Book) -> rusqlite::Result<Check> {
    let sql = "SELECT number, cents, receipt FROM ledger";
    let mut ledger: Vec<(u32, u32, String)> =
        rows(db, sql, |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let mut charges: Vec<_> = book.charges.values().cloned().collect();
    ledger.sort();
    charges.sort();
    let sum: u64 = charges.iter().map(|(_, cents, _)| u64::from(*cents)).sum();
    Ok(Check {
        what: "the card company has the same charges",
        holds: ledger == charges,
        found: format!("{} charges, {}.{:02}", charges.len(), sum / 100, sum % 100),
    })
}

fn stock(db: &Connection) -> rusqlite::Result<Check> {
    let sql = "SELECT had, remaining, (SELECT coalesce(sum(pieces), 0) FROM orders \
               WHERE orders.item = stock.item AND status <> 'declined') FROM stock";
    let items: Vec<(i64, i64, i64)> =
        rows(db, sql, |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let [had, left, sold] = items.iter().fold([0; 3], |sum, item| {
        [sum[0] + item.0, sum[1] + item.1, sum[2] + item.2]
    });
    Ok(Check {
        what: "the stock adds up",
        holds: items.iter().all(|(had, left, sold)| had - sold == *left),
        found: format!("{had} - {sold} = {left}"),
    })
}

fn parcels(db: &Connection, plan: &Plan, book: &Book) -> rusqlite::Result<Check> {
    let sql = "SELECT number, parcel, label FROM parcels ORDER BY number, parcel";
    let sent: Vec<(u32, u32, String)> =
        rows(db, sql, |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let mut labels: Vec<_> = book.labels.values().cloned().collect();
    labels.sort();
    let wanted = plan
        .paid()
        .flat_map(|order| (1..=order.pieces).map(|parcel| (order.number, parcel)));
    let numbers = sent.iter().map(|(order, parcel, _)| (*order, *parcel));
    Ok(Check {
        what: "each piece was sent once, by its label",
        holds: sent == labels && numbers.eq(wanted),
        found: format!("{} parcels, {} labels", sent.len(), labels.len()),
    })
}

fn runs(db: &Connection) -> rusqlite::Result<Check> {
    let sql = "SELECT count(*), coalesce(sum(state = 'completed'), 0) FROM roundel_run";
    let (all, completed): (i64, i64) =
        db.query_row(sql, (), |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(Check {
        what: "every run completed",
        holds: all == completed,
        found: format!("{completed} of {all}"),
    })
}

fn sound(db: &Connection) -> rusqlite::Result<Check> {
    let found: String = db.query_row("PRAGMA integrity_check", (), |row| row.get(0))?;
    Ok(Check {
        what: "the file is sound",
        holds: found == "ok",
        found,
    })
}

fn rows<T>(
    db: &Connection,
    sql: &str,
    read: impl Fn(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Vec<T>> {
    let mut statement = db.prepare(sql)?;
    let rows = statement.query_map((), |row| read(row))?;
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A shop in which everything happened as planned, and the books that go with it.
    fn shop() -> (Connection, Plan, Book) {
        let (plan, mut book) = (Plan::draw(60, 1), Book::default());
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch(include_str!("shop.sql")).unwrap();
        let engine = "CREATE TABLE roundel_run (state TEXT); \
                      INSERT INTO roundel_run VALUES ('completed'); \
                      INSERT INTO stock VALUES (0, 'all', 500, 500)";
        db.execute_batch(engine).unwrap();
        for planned in &plan.orders {
            let order = &planned.order;
            let sql = "INSERT INTO orders VALUES (?1, '', 0, ?2, ?3, 'declined')";
            db.execute(sql, (order.number, order.pieces, order.cents))
                .unwrap();
        }
        for order in plan.paid() {
            let receipt = format!("receipt {}", order.number);
            let paid = (order.number, order.cents, receipt.clone());
            book.charges.insert(receipt.clone(), paid.clone());
            db.execute("INSERT INTO ledger VALUES (?1, ?2, ?3)", paid)
                .unwrap();
            let sql = "UPDATE orders SET status = 'shipped' WHERE number = ?1";
            db.execute(sql, (order.number,)).unwrap();
            let sql = "UPDATE stock SET remaining = remaining - ?1";
            db.execute(sql, (order.pieces,)).unwrap();
            for parcel in 1..=order.pieces {
                let sent = (order.number, parcel, format!("{receipt}, {parcel}"));
                book.labels.insert(sent.2.clone(), sent.clone());
                db.execute("INSERT INTO parcels VALUES (?1, ?2, '', ?3)", sent)
                    .unwrap();
            }
        }
        (db, plan, book)
    }

    /// What does not hold once this was done to the tables.
    fn broken_by(sql: &str) -> Vec<&'static str> {
        let (db, plan, book) = shop();
        db.execute_batch(sql).unwrap();
        let checks = audit(&db, &plan, &book).unwrap();
        let broken = checks.into_iter().filter(|check| !check.holds);
        broken.map(|check| check.what).collect()
    }

    #[test]
    fn a_shop_where_all_went_well_adds_up() {
        assert_eq!(broken_by(""), [""; 0]);
    }

    #[test]
    fn what_does_not_add_up_is_found() {
        let orders = "every order is there once, and done";
        let charged = "each was charged exactly once";
        let company = "the card company has the same charges";
        let stock = "the stock adds up";
        let parcels = "each piece was sent once, by its label";
        for (sql, wrong) in [
            (
                "INSERT INTO ledger SELECT * FROM ledger LIMIT 1",
                vec![charged, company],
            ),
            ("DELETE FROM ledger WHERE rowid = 1", vec![charged, company]),
            (
                "UPDATE ledger SET cents = 1 WHERE rowid = 1",
                vec![charged, company],
            ),
            (
                "UPDATE ledger SET receipt = '' WHERE rowid = 1",
                vec![company],
            ),
            ("UPDATE stock SET remaining = remaining - 1", vec![stock]),
            (
                "INSERT INTO parcels SELECT * FROM parcels LIMIT 1",
                vec![parcels],
            ),
            ("DELETE FROM parcels WHERE rowid = 1", vec![parcels]),
            (
                "UPDATE parcels SET label = '' WHERE rowid = 1",
                vec![parcels],
            ),
            (
                "UPDATE orders SET status = 'paid' WHERE status = 'shipped'",
                vec![orders],
            ),
            ("DELETE FROM orders WHERE status = 'declined'", vec![orders]),
            (
                "INSERT INTO roundel_run VALUES ('parked')",
                vec!["every run completed"],
            ),
        ] {
            assert_eq!(broken_by(sql), wrong, "{sql}");
        }
    }
}
