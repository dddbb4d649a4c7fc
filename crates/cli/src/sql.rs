//! `sql`: one statement that reads, whatever it asks. The engine's own tables, its views, and the
//! user's tables are there; nothing can be changed.

use std::io::{IsTerminal, Read};

use clap::Args;
use roundel::{Client, Table};
use roundel_core::limits::{SQL_BYTES, SQL_ROWS};
use roundel_server::view::cell;
use serde_json::{Map, Value as Json};

use crate::exit::{Exit, Failed, Result};
use crate::many::counted;
use crate::show::table::{Cell, Column, plain, show};
use crate::show::{Output, Style, clean};

/// Columns that a text takes in a table, at most: whole values come with `--json`.
const WIDEST: usize = 80;

#[derive(Args, Debug)]
pub struct Sql {
    /// The statement; from standard input if there is none, or `-`.
    #[arg(conflicts_with = "views")]
    statement: Option<String>,
    /// How many rows at most, up to 10,000.
    #[arg(long, default_value_t = 100, value_name = "ROWS")]
    pub(crate) limit: usize,
    /// List the views and tables that there are, with their columns.
    #[arg(long)]
    pub(crate) views: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// What was found, wherever it was asked.
pub(crate) struct Found {
    columns: Vec<String>,
    rows: Vec<Vec<Json>>,
    more: bool,
}

impl Found {
    /// As a server tells it.
    pub(crate) fn of(answer: &Json) -> Found {
        let list = |value: &Json| value.as_array().cloned().unwrap_or_default();
        let columns = list(&answer["columns"]);
        Found {
            columns: columns.iter().map(text).collect(),
            rows: list(&answer["rows"]).iter().map(list).collect(),
            more: answer["more"] == true,
        }
    }
}

impl From<Table> for Found {
    fn from(table: Table) -> Found {
        let rows = table.rows.iter();
        Found {
            rows: rows.map(|row| row.iter().map(cell).collect()).collect(),
            columns: table.columns,
            more: table.more,
        }
    }
}

pub(crate) async fn run(args: &Sql, client: &Client) -> Result<Exit> {
    if !args.views {
        let found = client.sql(args.statement()?, args.limit).await?;
        return args.show(&found.into());
    }
    let found = Found::from(client.views().await?);
    let rows = found.rows.iter();
    let views: Vec<Json> = rows.map(|row| object(&found.columns, row)).collect();
    args.show_views(&views)
}

impl Sql {
    /// Rows with the names of their columns.
    pub(crate) fn show(&self, found: &Found) -> Result<Exit> {
        let mut screen = self.output.screen();
        if self.output.json {
            for row in &found.rows {
                screen.json(&object(&found.columns, row));
            }
        } else {
            let heads: Vec<Column<'_>> = found.columns.iter().map(|head| column(head)).collect();
            let rows: Vec<Vec<Cell>> = found.rows.iter().map(|row| cells(row)).collect();
            show(&mut screen, &heads, &rows);
        }
        screen.flush()?;
        if found.more {
            let shown = counted(found.rows.len(), "row");
            let most = match self.limit < SQL_ROWS {
                true => "; --limit shows more",
                false => "",
            };
            self.output
                .note(&format!("{shown}, and there are more{most}"));
        }
        Ok(Exit::Done)
    }

    /// What there is to ask.
    pub(crate) fn show_views(&self, views: &[Json]) -> Result<Exit> {
        let mut screen = self.output.screen();
        for view in views {
            if self.output.json {
                screen.json(view);
                continue;
            }
            let [kind, name] = ["kind", "name"].map(|field| clean(&text(&view[field])));
            let columns = match &view["columns"] {
                Json::Array(names) => names.iter().map(text).collect::<Vec<_>>().join(", "),
                other => text(other),
            };
            let kind = screen.paint(Style::Dim, &format!("{kind:<6}"));
            let name = screen.paint(Style::Head, &name);
            screen.line(&format!("{kind} {name}"));
            for line in screen.wrapped(&columns, 9) {
                screen.line(&format!("         {line}"));
            }
        }
        screen.flush()?;
        Ok(Exit::Done)
    }

    /// What is asked.
    pub(crate) fn statement(&self) -> Result<String> {
        if let Some(text) = self.statement.as_ref().filter(|text| *text != "-") {
            return Ok(text.clone());
        }
        let input = std::io::stdin();
        if self.statement.is_none() && input.is_terminal() {
            return Err(Failed::usage(
                "there is no statement; write one, or list what there is with --views",
            ));
        }
        let mut text = String::new();
        let most = SQL_BYTES as u64 + 1;
        input
            .lock()
            .take(most)
            .read_to_string(&mut text)
            .map_err(|error| Failed::usage(format!("the statement cannot be read: {error}")))?;
        Ok(text)
    }
}

/// Names and values; a name that is there twice gets a number, since an object has each once.
fn object(columns: &[String], row: &[Json]) -> Json {
    let mut object = Map::new();
    for (name, value) in columns.iter().zip(row) {
        let mut key = name.clone();
        let mut number = 2;
        while object.contains_key(&key) {
            key = format!("{name}_{number}");
            number += 1;
        }
        object.insert(key, value.clone());
    }
    Json::Object(object)
}

fn column(head: &str) -> Column<'_> {
    let gives_way = true;
    Column { head, gives_way }
}

fn cells(row: &[Json]) -> Vec<Cell> {
    let shown = |value: &Json| match value {
        Json::Null => (Style::Dim, "null".to_owned()),
        value => plain(crate::show::cut(&text(value), WIDEST)),
    };
    row.iter().map(shown).collect()
}

fn text(value: &Json) -> String {
    match value {
        Json::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_columns_of_one_name_are_both_there() {
        let columns = ["a", "a", "b"].map(String::from);
        let row = [1, 2, 3].map(Json::from);
        let object = object(&columns, &row);
        assert_eq!(object.to_string(), r#"{"a":1,"a_2":2,"b":3}"#);
    }
}
