//! An operator's own statement, on a connection of its own: in a transaction that only reads and is
//! never committed, so that what it sets goes with it.
//!
//! What the role of the URL may read, it reads; and a function that reaches outside the database
//! (`pg_terminate_backend`) does so if that role may call it. So there can be a URL of its own for
//! these, of a role that may do less: one that logs in, since a role that is only set can be set
//! back.

use futures_util::TryStreamExt;
use roundel_core::limits::{SQL_ROWS, SQL_TIME};
use sqlx::{Column, Either, Executor, Statement as _};
use tokio::time::timeout;

use super::open;
use super::shared::Shared;
use crate::query::sql::{self, Growing};
use crate::{Answer, Error, Query, Statement};

const VIEWS: &str = "SELECT CASE WHEN thing.relkind IN ('v', 'm') THEN 'view' ELSE 'table' END \
     AS kind, CASE WHEN space.nspname = current_schema() THEN thing.relname::text \
     ELSE space.nspname || '.' || thing.relname END AS name, \
     string_agg(part.attname, ', ' ORDER BY part.attnum) AS columns \
     FROM pg_class AS thing JOIN pg_namespace AS space ON space.oid = thing.relnamespace \
     JOIN pg_attribute AS part ON part.attrelid = thing.oid AND part.attnum > 0 \
     AND NOT part.attisdropped \
     WHERE thing.relkind IN ('r', 'p', 'v', 'm') AND pg_table_is_visible(thing.oid) \
     AND space.nspname NOT IN ('pg_catalog', 'information_schema') \
     GROUP BY thing.oid, thing.relkind, thing.relname, space.nspname ORDER BY 1 DESC, 2";

/// Canceled: here, because it took too long.
const STOPPED: &str = "57014";

/// The statement that a question is, if it is one.
pub(super) fn of(query: &Query) -> Option<Statement> {
    match query {
        Query::Sql(statement) => Some(statement.clone()),
        Query::Views => Some(Statement {
            text: VIEWS.to_owned(),
            limit: SQL_ROWS,
        }),
        _ => None,
    }
}

/// Runs a statement, if there is room for one.
pub(super) async fn answer(shared: &Shared, asked: &Statement) -> Answered {
    let _room = shared
        .statements
        .try_acquire()
        .map_err(|_| sql::too_many())?;
    // The server stops it earlier; this is for a server that is gone.
    let within = SQL_TIME * 5;
    let answered = timeout(within, read(shared, asked)).await;
    answered.unwrap_or_else(|_| Err(Error::Unavailable(format!("no answer within {within:?}"))))
}

type Answered = Result<Answer, Error>;

async fn read(shared: &Shared, asked: &Statement) -> Answered {
    let text = asked.text()?;
    let mut link = open::connect(&shared.reader, false).await?;
    let began = link.run(&shared.begin.sql).await;
    began.map_err(|error| failed(&error))?;
    // Whether a transaction writes is settled with the first thing that it reads.
    let read = link.run("SELECT 1").await;
    read.map_err(|error| failed(&error))?;
    let connection = link.inner();
    let statement = (&mut *connection).prepare(text).await;
    let statement = statement.map_err(|error| failed(&error))?;
    match statement.parameters() {
        Some(Either::Left([])) | Some(Either::Right(0)) | None => {}
        Some(_) => {
            return Err(Error::Statement(
                "the statement has parameters; write the values into it".into(),
            ));
        }
    }
    if statement.columns().is_empty() {
        return Err(sql::only_reads());
    }
    let names = statement.columns().iter();
    let names = names.map(|column| column.name().to_owned()).collect();
    let mut table = Growing::new(names, asked.rows());
    let mut whole = true;
    {
        let mut rows = statement.query().fetch(&mut *connection);
        while let Some(row) = rows.try_next().await.map_err(|error| failed(&error))? {
            if table.is_full() {
                whole = false;
                break;
            }
            let row = crate::tx::postgres::values_of(&row);
            table.push(row.map_err(|error| Error::Statement(error.to_string()))?);
        }
    }
    // Of the others nobody hears: the server is still sending rows.
    if whole {
        let _ = link.run("ROLLBACK").await;
        link.close().await;
    }
    Ok(Answer::Table(table.into_table()))
}

fn failed(error: &sqlx::Error) -> Error {
    let Some(error) = error.as_database_error() else {
        return Error::Unavailable(error.to_string());
    };
    let code = error.code().unwrap_or_default();
    match code.as_ref() {
        STOPPED => sql::too_long(),
        // A statement that writes, in a transaction that only reads.
        "25006" => sql::only_reads(),
        _ if code.starts_with("08") || code.starts_with("57") || code.starts_with("53") => {
            Error::Unavailable(error.message().to_owned())
        }
        _ => Error::Statement(error.message().to_owned()),
    }
}
