//! The demo's schemas on a server: one for the engine, one for the shop's own tables. Those that
//! the demo made before are replaced; anybody else's are left alone.

use sqlx::postgres::PgConnection;
use sqlx::{Connection, Executor, Row};

use super::plan::{ITEMS, stock};

const NAME: &str = "roundel_demo";
/// More than anybody keeps.
const MOST: u32 = 1000;

/// Marks the schema as the demo's own, and says how it was made.
const MARK: &str = "CREATE TABLE made_by_roundel_demo (orders bigint NOT NULL, seed text NOT NULL)";
const MADE: &str = "INSERT INTO made_by_roundel_demo (orders, seed) VALUES ($1, $2)";
/// Which of these are there: the engine's schema, the shop's, and its mark.
const LOOK: &str = "SELECT to_regnamespace($1) IS NOT NULL, to_regnamespace($2) IS NOT NULL, \
     to_regclass($3) IS NOT NULL";
/// Held for as long as the demo lasts.
const HOLD: &str = "SELECT pg_try_advisory_lock(hashtextextended($1, 0))";
const STOCK: &str = "INSERT INTO stock (item, name, had, remaining) VALUES ($1, $2, $3, $3)";

/// Why there are no schemas to work on.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error(
        "the schema {0} was not made by the demo and is left alone; rename it, or choose another \
         database"
    )]
    NotOurs(String),
    #[error("another demo works in the schema {0}; wait until it ends, or keep both with --keep")]
    InUse(String),
    #[error("the server refused: {0}")]
    Server(#[from] sqlx::Error),
}

/// A shop on a server.
pub(super) struct Server {
    /// Of the server, with the shop's own tables in the search path of whoever connects.
    pub(super) url: String,
    /// The engine's schema.
    pub(super) schema: String,
    /// The URL to be shown, without a password.
    pub(super) shown: String,
    /// Says that the schemas are in use, and reads them in the end.
    pub(super) connection: PgConnection,
}

/// Makes an empty shop on this server. Keeps the schemas of an earlier demo, or replaces them.
pub(super) async fn make(url: &str, keep: bool, plan: (u32, u64)) -> Result<Server, Error> {
    let mut connection = PgConnection::connect(url).await?;
    let mut schema = NAME.to_owned();
    for number in 2..MOST {
        let there = look(&mut connection, &schema).await?;
        if !(keep && (there.engine || there.shop)) {
            break;
        }
        schema = format!("{NAME}_{number}");
    }
    let held: bool = query(&mut connection, HOLD, &[&schema]).await?.try_get(0)?;
    if !held {
        return Err(Error::InUse(schema));
    }
    let there = look(&mut connection, &schema).await?;
    if (there.engine || there.shop) && !there.mark {
        return Err(Error::NotOurs(schema));
    }
    fill(&mut connection, &schema, plan).await?;
    let joint = if url.contains('?') { '&' } else { '?' };
    let path = format!("options=-c%20search_path%3D{}", shop_of(&schema));
    Ok(Server {
        url: format!("{url}{joint}{path}"),
        shown: without_password(url),
        schema,
        connection,
    })
}

fn shop_of(schema: &str) -> String {
    format!("{schema}_shop")
}

struct There {
    engine: bool,
    shop: bool,
    mark: bool,
}

async fn look(connection: &mut PgConnection, schema: &str) -> Result<There, Error> {
    let shop = shop_of(schema);
    let mark = format!("{shop}.made_by_roundel_demo");
    let row = query(connection, LOOK, &[schema, &shop, &mark]).await?;
    Ok(There {
        engine: row.try_get(0)?,
        shop: row.try_get(1)?,
        mark: row.try_get(2)?,
    })
}

async fn query(
    connection: &mut PgConnection,
    sql: &str,
    values: &[&str],
) -> Result<sqlx::postgres::PgRow, Error> {
    let bound = values.iter();
    let query = bound.fold(sqlx::query(sql), |query, value| query.bind(*value));
    Ok(query.fetch_one(connection).await?)
}

/// Makes both schemas anew, and puts the shop's tables into its own.
async fn fill(
    connection: &mut PgConnection,
    schema: &str,
    (orders, seed): (u32, u64),
) -> Result<(), Error> {
    let shop = shop_of(schema);
    let mut tx = connection.begin().await?;
    tx.execute("SET LOCAL client_min_messages = warning")
        .await?;
    for name in [schema, &shop] {
        let drop = ["DROP SCHEMA IF EXISTS ", name, " CASCADE"].concat();
        tx.execute(sqlx::raw_sql(&drop)).await?;
    }
    let make = ["CREATE SCHEMA ", &shop].concat();
    tx.execute(sqlx::raw_sql(&make)).await?;
    let path = ["SET search_path = ", &shop, ", ", schema].concat();
    tx.execute(sqlx::raw_sql(&path)).await?;
    tx.execute(MARK).await?;
    let made = sqlx::query(MADE).bind(i64::from(orders));
    made.bind(seed.to_string()).execute(&mut *tx).await?;
    tx.execute(sqlx::raw_sql(include_str!("shop.sql"))).await?;
    for (item, (name, _)) in (0_i64..).zip(ITEMS) {
        let had = i64::from(stock(orders));
        let put = sqlx::query(STOCK).bind(item).bind(name).bind(had);
        put.execute(&mut *tx).await?;
    }
    Ok(tx.commit().await?)
}

/// What may be shown of a URL.
fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let shown = match authority.rsplit_once('@') {
        Some((user, host)) => {
            let name = user.split_once(':').map_or(user, |(name, _)| name);
            format!("{name}@{host}")
        }
        None => authority.to_owned(),
    };
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let kept = query.split('&').filter(|pair| {
        let name = pair.split('=').next().unwrap_or_default();
        !pair.is_empty() && !name.eq_ignore_ascii_case("password")
    });
    let kept = kept.collect::<Vec<_>>().join("&");
    let joint = if kept.is_empty() { "" } else { "?" };
    format!("{scheme}://{shown}{path}{joint}{kept}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_is_shown() {
        for (url, shown) in [
            ("postgres://me@here/db", "postgres://me@here/db"),
            ("postgres://me:secret@here:5/db", "postgres://me@here:5/db"),
            ("postgres://me:s@cr:et@here/db", "postgres://me@here/db"),
            ("postgres://here", "postgres://here"),
            (
                "postgres://here/db?password=secret&sslmode=disable",
                "postgres://here/db?sslmode=disable",
            ),
            ("postgres://here/db?password=secret", "postgres://here/db"),
        ] {
            assert_eq!(without_password(url), shown);
        }
    }
}
