//! Does it add up? Asked of the shop's own tables, beside the plan and the books of the card
//! company and the carrier. The engine is asked only whether its runs ended.

use serde::Serialize;

use super::books::{Books, Error};
use super::counts::Counts;
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
pub(super) async fn audit(
    db: &mut Books,
    plan: &Plan,
    (book, counts): (&Book, &Counts),
) -> Result<Vec<Check>, Error> {
    let sound = sound(db).await?;
    let checks = [
        orders(db, plan).await?,
        charged_once(db, plan).await?,
        card_company(db, book).await?,
        stock(db).await?,
        parcels(db, plan, book).await?,
        runs(counts),
    ];
    Ok(checks.into_iter().chain(sound).collect())
}

async fn orders(db: &mut Books, plan: &Plan) -> Result<Check, Error> {
    let sql = "SELECT number, status FROM orders ORDER BY number";
    let found: Vec<(u32, String)> = db.rows(sql).await?;
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

async fn charged_once(db: &mut Books, plan: &Plan) -> Result<Check, Error> {
    let sql = "SELECT number, cents FROM ledger ORDER BY number, cents";
    let found: Vec<(u32, i64)> = db.rows(sql).await?;
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

async fn card_company(db: &mut Books, book: &Book) -> Result<Check, Error> {
    let sql = "SELECT number, cents, receipt FROM ledger";
    let mut ledger: Vec<(u32, i64, String)> = db.rows(sql).await?;
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

async fn stock(db: &mut Books) -> Result<Check, Error> {
    let sql = "SELECT had, remaining, (SELECT CAST(coalesce(sum(pieces), 0) AS BIGINT) \
               FROM orders WHERE orders.item = stock.item AND status <> 'undone') FROM stock";
    let items: Vec<(i64, i64, i64)> = db.rows(sql).await?;
    let [had, left, sold] = items.iter().fold([0; 3], |sum, item| {
        [sum[0] + item.0, sum[1] + item.1, sum[2] + item.2]
    });
    Ok(Check {
        what: "the stock adds up",
        holds: items.iter().all(|(had, left, sold)| had - sold == *left),
        found: format!("{had} - {sold} = {left}"),
    })
}

async fn parcels(db: &mut Books, plan: &Plan, book: &Book) -> Result<Check, Error> {
    let sql = "SELECT number, parcel, label FROM parcels ORDER BY number, parcel";
    let sent: Vec<(u32, u32, String)> = db.rows(sql).await?;
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

fn runs(counts: &Counts) -> Check {
    let (all, completed, undone) = (counts.runs, counts.completed, counts.given_up);
    Check {
        what: "every run completed, or left nothing",
        holds: all > 0 && all == completed + undone,
        found: format!("{completed} and {undone} of {all}"),
    }
}

/// The file, if it is one.
async fn sound(db: &mut Books) -> Result<Option<Check>, Error> {
    if !matches!(db, Books::File(_)) {
        return Ok(None);
    }
    let found: Vec<(String,)> = db.rows("PRAGMA integrity_check").await?;
    let found: Vec<String> = found.into_iter().map(|(line,)| line).collect();
    Ok(Some(Check {
        what: "the file is sound",
        holds: found == ["ok"],
        found: found.join("; "),
    }))
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;

    /// A shop in which everything happened as planned, and the books that go with it.
    fn shop() -> (Books, Plan, Book) {
        let (plan, mut book) = (Plan::draw(60, 1), Book::default());
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch(include_str!("shop.sql")).unwrap();
        let stock = "INSERT INTO stock VALUES (0, 'all', 500, 500)";
        db.execute_batch(stock).unwrap();
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
        (Books::File(db), plan, book)
    }

    /// What does not hold once this was done to the tables.
    async fn broken_by(sql: &str) -> Vec<&'static str> {
        let (mut db, plan, book) = shop();
        if let Books::File(file) = &db {
            file.execute_batch(sql).unwrap();
        }
        let counts = Counts {
            runs: 3,
            completed: 2,
            given_up: 1,
            ..Counts::default()
        };
        let checks = audit(&mut db, &plan, (&book, &counts)).await.unwrap();
        let broken = checks.into_iter().filter(|check| !check.holds);
        broken.map(|check| check.what).collect()
    }

    #[tokio::test]
    async fn a_shop_where_all_went_well_adds_up() {
        assert_eq!(broken_by("").await, [""; 0]);
    }

    #[test]
    fn runs_that_did_not_end_are_found() {
        let (runs, completed, given_up) = (3, 1, 1);
        let counts = Counts {
            runs,
            completed,
            given_up,
            ..Counts::default()
        };
        assert!(!super::runs(&counts).holds);
        assert!(!super::runs(&Counts::default()).holds, "there are none");
    }

    #[tokio::test]
    async fn what_does_not_add_up_is_found() {
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
        ] {
            assert_eq!(broken_by(sql).await, wrong, "{sql}");
        }
    }
}
