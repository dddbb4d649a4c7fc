//! The shop's tables, as they are read in the end: from a file, from a server, or by steps.

use rusqlite::Connection;
use rusqlite::types::ValueRef;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{Column, Row, TypeInfo};

use super::folder::Clerk;

/// Where the tables are.
pub(super) enum Books {
    File(Connection),
    Server(PgConnection),
    Folder(Clerk),
}

/// Why they could not be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("the shop's tables could not be read: {0}")]
    Sqlite(#[from] rusqlite::Error),
    #[error("the shop's tables could not be read: {0}")]
    Postgres(#[from] sqlx::Error),
    #[error("the shop's tables could not be read: {0}")]
    Engine(#[from] roundel::Error),
    #[error("a row of the shop is not as it should be: {0}")]
    Row(#[from] serde_json::Error),
}

impl Books {
    /// All rows that this finds, each a tuple of numbers and texts.
    pub(super) async fn rows<T: DeserializeOwned>(&mut self, sql: &str) -> Result<Vec<T>, Error> {
        let rows: Vec<Value> = match self {
            Books::File(connection) => {
                let mut statement = connection.prepare(sql)?;
                let count = statement.column_count();
                let read = |row: &rusqlite::Row<'_>| {
                    let values = (0..count).map(|at| row.get_ref(at).map(of_sqlite));
                    values.collect::<rusqlite::Result<Value>>()
                };
                let rows = statement.query_map((), read)?;
                rows.collect::<rusqlite::Result<_>>()?
            }
            Books::Server(connection) => {
                let rows = sqlx::query(sql).fetch_all(connection).await?;
                rows.iter().map(of_postgres).collect::<Result<_, _>>()?
            }
            Books::Folder(clerk) => clerk.look(sql).await?,
        };
        let rows = rows.into_iter().map(serde_json::from_value);
        Ok(rows.collect::<Result<_, _>>()?)
    }

    pub(super) async fn close(self) {
        if let Books::Folder(clerk) = self {
            clerk.close().await;
        }
    }
}

fn of_sqlite(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Integer(number) => number.into(),
        ValueRef::Real(number) => number.into(),
        ValueRef::Text(text) => String::from_utf8_lossy(text).into(),
        ValueRef::Blob(_) | ValueRef::Null => Value::Null,
    }
}

fn of_postgres(row: &PgRow) -> sqlx::Result<Value> {
    let columns = row.columns().iter();
    let value = |column: &sqlx::postgres::PgColumn| match column.type_info().name() {
        "INT8" => row
            .try_get(column.ordinal())
            .map(|number: i64| Value::from(number)),
        _ => row
            .try_get(column.ordinal())
            .map(|text: String| Value::from(text)),
    };
    columns.map(value).collect()
}
