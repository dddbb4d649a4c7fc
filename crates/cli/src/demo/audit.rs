//! Does it add up? Asked of the shop's own tables, beside the plan and the books of the card
//! company and the carrier. The engine is asked only whether its runs ended.

use rusqlite::Connection;
use serde::Serialize;

use super::outside::Book;
use super::plan::Plan;
use super::shop::{SHIPPED, UNDONE};

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
    let sent: Vec<u32> = plan.shipped().map(|order| order.number).collect();
    let all = plan.orders.iter().map(|planned| planned.order.number);
    let wanted: Vec<(u32, String)> = all
        .map(|number| {
            let is_sent = sent.binary_search(&number).is_ok();
            (number, if is_sent { SHIPPED } else { UNDONE }.to_owned())
        })
        .collect();
    let count = |wanted: &str| found.iter().filter(|(_, status)| status == wanted).count();
    Ok(Check {
        what: "every order is there once, and done",
        holds: found == wanted,
        found: format!("{} shipped, {} undone", count(SHIPPED), count(UNDONE)),
    })
}

fn charged_once(db: &Connection, plan: &Plan) -> rusqlite::Result<Check> {
    let sql = "SELECT number, cents FROM ledger ORDER BY number, cents";
    let found: Vec<(u32, i64)> = rows(db, sql, |row| Ok((row.get(0)?, row.get(1)?)))?;
    let sent: Vec<u32> = plan.shipped().map(|order| order.number).collect();
    let mut wanted = Vec::new();
    for order in plan.paid() {
        let cents = i64::from(order.cents);
        if sent.binary_search(&order.number).is_err() {
            wanted.push((order.number, -cents));
        }
        wanted.push((order.number, cents));
    }
    let back = found.iter().filter(|(_, cents)| *cents < 0).count();
    Ok(Check {
        what: "charged once, and refunded once",
        holds: found == wanted,
        found: format!("{} charges, {back} refunds", found.len() - back),
    })
}

fn card_company(db: &Connection, book: &Book) -> rusqlite::Result<Check> {
    let sql = "SELECT number, cents, receipt FROM ledger";
    let mut ledger: Vec<(u32, i64, String)> =
        rows(db, sql, |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let charges = book.charges.iter();
    let mut charges: Vec<(u32, i64, String)> = charges
        .flat_map(|(key, (order, cents, receipt))| {
            let cents = i64::from(*cents);
            let back = book.refunds.contains(key).then_some(-cents);
            let both = std::iter::once(cents).chain(back);
            both.map(|cents| (*order, cents, receipt.clone()))
        })
        .collect();
    ledger.sort();
    charges.sort();
    let sum: i64 = charges.iter().map(|(_, cents, _)| cents).sum();
    Ok(Check {
        what: "the card company has the same",
        holds: ledger == charges,
        found: format!("{}.{:02} in all", sum / 100, sum % 100),
    })
}

fn stock(db: &Connection) -> rusqlite::Result<Check> {
    let sql = "SELECT had, remaining, (SELECT coalesce(sum(pieces), 0) FROM orders \
               WHERE orders.item = stock.item AND status <> 'undone') FROM stock";
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
    let kept = book
        .labels
        .iter()
        .filter(|(key, _)| !book.voids.contains(*key));
    let mut labels: Vec<_> = kept.map(|(_, label)| label.clone()).collect();
    labels.sort();
    let wanted = plan
        .shipped()
        .flat_map(|order| (1..=order.pieces).map(|parcel| (order.number, parcel)));
    let numbers = sent.iter().map(|(order, parcel, _)| (*order, *parcel));
    Ok(Check {
        what: "each piece was sent once, by its label",
        holds: sent == labels && numbers.eq(wanted),
        found: format!("{} parcels, {} labels void", sent.len(), book.voids.len()),
    })
}

fn runs(db: &Connection) -> rusqlite::Result<Check> {
    let sql = "SELECT count(*), coalesce(sum(state = 'completed'), 0), \
               coalesce(sum(state IN ('rolled_back', 'failed')), 0) FROM roundel_run";
    let (all, completed, undone): (i64, i64, i64) =
        db.query_row(sql, (), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    Ok(Check {
        what: "every run completed, or left nothing",
        holds: all == completed + undone,
        found: format!("{completed} and {undone} of {all}"),
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
            let sql = "INSERT INTO orders VALUES (?1, '', 0, ?2, ?3, 'undone')";
            db.execute(sql, (order.number, order.pieces, order.cents))
                .unwrap();
        }
        for order in plan.paid() {
            let receipt = format!("receipt {}", order.number);
            let paid = (order.number, order.cents, receipt.clone());
            book.charges.insert(receipt.clone(), paid.clone());
            let sql = "INSERT INTO ledger VALUES (?1, ?2, ?3)";
            db.execute(sql, paid).unwrap();
            if plan.shipped().all(|shipped| shipped != order) {
                let back = (order.number, -i64::from(order.cents), receipt.clone());
                db.execute(sql, back).unwrap();
                book.refunds.insert(receipt);
                continue;
            }
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
        let charged = "charged once, and refunded once";
        let company = "the card company has the same";
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
            ("DELETE FROM orders WHERE status = 'undone'", vec![orders]),
            ("DELETE FROM ledger WHERE cents < 0", vec![charged, company]),
            (
                "INSERT INTO roundel_run VALUES ('parked')",
                vec!["every run completed, or left nothing"],
            ),
        ] {
            assert_eq!(broken_by(sql), wrong, "{sql}");
        }
    }
}
