//! An operator's own statement, which only reads: as a table, or as a file for a spreadsheet. It
//! sees all namespaces, so it is for those who may go everywhere.

use axum::http::StatusCode;
use axum::response::Response;
use roundel::{Client, Table};
use serde_json::Value;

use crate::auth::{AllOfThem, Cap, actions};
use crate::problem::Problem;
use crate::route::{Ask, Give, Json, respond};
use crate::shape::{Listing, Nothing, input, output};
use crate::view::{cell, csv};

/// Rows unless more are asked for.
const ROWS: usize = 200;
const CSV: &str = "text/csv; charset=utf-8; header=present";

type Query = Cap<actions::Query, AllOfThem>;

input! {
    /// A statement.
    pub(crate) struct SqlAsked {
        /// One statement that reads.
        statement: String,
        /// So many rows at most; 200 unless said, up to 10,000.
        limit: Option<usize>,
    }
}

output! {
    /// What a statement found.
    pub(crate) struct SqlAnswer {
        /// The names of the columns.
        columns: Vec<String>,
        /// Rows, each with a value for every column.
        rows: Vec<Vec<Value>>,
        /// There are more rows than were asked for, or than fit.
        more: bool,
    }
}

async fn found(client: &Client, asked: SqlAsked) -> Result<Table, Problem> {
    Ok(client
        .sql(asked.statement, asked.limit.unwrap_or(ROWS))
        .await?)
}

pub(crate) async fn ask(
    cap: Query,
    ask: Ask<Nothing, SqlAsked>,
) -> Result<Json<SqlAnswer>, Problem> {
    let table = found(cap.client(), ask.body).await?;
    let rows = table.rows.iter();
    Ok(Json(SqlAnswer {
        rows: rows.map(|row| row.iter().map(cell).collect()).collect(),
        columns: table.columns,
        more: table.more,
    }))
}

/// Rows as a file.
pub(crate) struct File(String);

impl Give for File {
    fn shape() -> (&'static str, Option<Value>) {
        (CSV, None)
    }

    fn give(self) -> Response {
        respond(StatusCode::OK, CSV, self.0)
    }
}

pub(crate) async fn export(cap: Query, ask: Ask<Nothing, SqlAsked>) -> Result<File, Problem> {
    Ok(File(csv(&found(cap.client(), ask.body).await?)))
}

output! {
    /// Something that a statement can ask.
    pub(crate) struct Relation {
        /// `view` or `table`.
        kind: String,
        /// Its name.
        name: String,
        /// The names of its columns.
        columns: Vec<String>,
    }
}

pub(crate) async fn views(cap: Query, _: Ask) -> Result<Json<Listing<Relation>>, Problem> {
    let views = cap.client().views().await?;
    let text = |row: &[roundel::Value], at: usize| match row.get(at).map(cell) {
        Some(Value::String(text)) => text,
        _ => String::new(),
    };
    let relation = |row: &Vec<roundel::Value>| Relation {
        kind: text(row, 0),
        name: text(row, 1),
        columns: text(row, 2).split(", ").map(str::to_owned).collect(),
    };
    Ok(Json(Listing {
        items: views.rows.iter().map(relation).collect(),
        next: None,
    }))
}
