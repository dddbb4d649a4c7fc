//! `sql`: one statement that reads, whatever it asks. The engine's own tables, its views, and the
//! user's tables are there; nothing can be changed.

use std::io::{IsTerminal, Read};

use clap::Args;
use roundel::{Client, Table, Value};
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
    limit: usize,
    /// List the views and tables that there are, with their columns.
    #[arg(long)]
    views: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}

pub(crate) async fn run(args: &Sql, client: &Client) -> Result<Exit> {
    let table = if args.views {
        client.views().await?
    } else {
        client.sql(statement(args)?, args.limit).await?
    };
    let mut screen = args.output.screen();
    if args.output.json {
        for row in &table.rows {
            screen.json(&object(&table.columns, row));
        }
    } else if args.views {
        for row in &table.rows {
            let [kind, name, columns] = [0, 1, 2].map(|at| text(&row[at]));
            let kind = screen.paint(Style::Dim, &format!("{kind:<6}"));
            let name = screen.paint(Style::Head, &clean(&name));
            screen.line(&format!("{kind} {name}"));
            for line in screen.wrapped(&columns, 9) {
                screen.line(&format!("         {line}"));
            }
        }
    } else {
        let heads: Vec<Column<'_>> = table.columns.iter().map(|head| column(head)).collect();
        let rows: Vec<Vec<Cell>> = table.rows.iter().map(|row| cells(row)).collect();
        show(&mut screen, &heads, &rows);
    }
    screen.flush()?;
    note(args, &table);
    Ok(Exit::Done)
}

fn note(args: &Sql, table: &Table) {
    if table.more {
        let shown = counted(table.rows.len(), "row");
        let most = match args.limit < SQL_ROWS {
            true => "; --limit shows more",
            false => "",
        };
        args.output
            .note(&format!("{shown}, and there are more{most}"));
    }
}

fn statement(args: &Sql) -> Result<String> {
    if let Some(text) = args.statement.as_ref().filter(|text| *text != "-") {
        return Ok(text.clone());
    }
    let input = std::io::stdin();
    if args.statement.is_none() && input.is_terminal() {
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

/// Names and values; a name that is there twice gets a number, since an object has each once.
fn object(columns: &[String], row: &[Value]) -> Json {
    let mut object = Map::new();
    for (name, value) in columns.iter().zip(row) {
        let mut key = name.clone();
        let mut number = 2;
        while object.contains_key(&key) {
            key = format!("{name}_{number}");
            number += 1;
        }
        object.insert(key, cell(value));
    }
    Json::Object(object)
}

fn column(head: &str) -> Column<'_> {
    let gives_way = true;
    Column { head, gives_way }
}

fn cells(row: &[Value]) -> Vec<Cell> {
    let shown = |value: &Value| match value {
        Value::Null => (Style::Dim, "null".to_owned()),
        value => plain(crate::show::cut(&text(value), WIDEST)),
    };
    row.iter().map(shown).collect()
}

fn text(value: &Value) -> String {
    match cell(value) {
        Json::String(text) => text,
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_columns_of_one_name_are_both_there() {
        let columns = ["a", "a", "b"].map(String::from);
        let row = [1, 2, 3].map(Value::Integer);
        let object = object(&columns, &row);
        assert_eq!(object.to_string(), r#"{"a":1,"a_2":2,"b":3}"#);
    }
}
