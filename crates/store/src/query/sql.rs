//! Statements of an operator's own: one that reads, with bounds on what it may take. The rest of
//! what is read goes through typed questions; this is for what nobody has thought of.
//!
//! It sees every tenant, and the user's own tables: whoever offers it decides to whom.

use roundel_core::limits::{SQL_ANSWER, SQL_AT_ONCE, SQL_BYTES, SQL_ROWS, SQL_TIME};

use crate::{Error, Value};

/// One statement that reads.
#[derive(Clone, Debug, PartialEq)]
pub struct Statement {
    /// The statement, without parameters.
    pub text: String,
    /// How many rows at most.
    pub limit: usize,
}

/// What a statement found.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Table {
    /// The names of the columns.
    pub columns: Vec<String>,
    /// Rows, each with a value for every column.
    pub rows: Vec<Vec<Value>>,
    /// There are more rows than were asked for, or than fit.
    pub more: bool,
}

impl Statement {
    /// The statement, if it is not too long to be one.
    pub(crate) fn text(&self) -> Result<&str, Error> {
        let text = self.text.trim();
        if text.is_empty() {
            return Err(Error::Statement("there is no statement; write one".into()));
        }
        if text.len() > SQL_BYTES {
            return Err(Error::Statement(format!(
                "the statement has {} bytes, and {SQL_BYTES} are allowed; write a shorter one",
                text.len()
            )));
        }
        Ok(text)
    }

    pub(crate) fn rows(&self) -> usize {
        self.limit.clamp(1, SQL_ROWS)
    }
}

/// A table that grows until there is no room.
pub(crate) struct Growing {
    table: Table,
    rows: usize,
    bytes: usize,
}

impl Growing {
    pub(crate) fn new(columns: Vec<String>, rows: usize) -> Growing {
        let table = Table {
            columns,
            ..Table::default()
        };
        let bytes = 0;
        Growing { table, rows, bytes }
    }

    /// Is there no room for another row? Then there is one more than was asked for.
    pub(crate) fn is_full(&mut self) -> bool {
        self.table.more = self.table.rows.len() >= self.rows || self.bytes >= SQL_ANSWER;
        self.table.more
    }

    pub(crate) fn push(&mut self, row: Vec<Value>) {
        let bytes = |value: &Value| match value {
            Value::Text(text) => text.len(),
            Value::Blob(bytes) => bytes.len(),
            Value::Null | Value::Integer(_) | Value::Real(_) => 8,
        };
        self.bytes += row.iter().map(bytes).sum::<usize>();
        self.table.rows.push(row);
    }

    pub(crate) fn into_table(self) -> Table {
        self.table
    }
}

/// A statement that was refused before it ran.
pub(crate) fn only_reads() -> Error {
    Error::Statement(
        "only statements that read and give rows are run here, one at a time; \
         change things with the engine's own commands"
            .into(),
    )
}

/// A statement that took too long.
pub(crate) fn too_long() -> Error {
    Error::Statement(format!(
        "the statement was stopped after {SQL_TIME:?}; ask for less: an index, a narrower WHERE"
    ))
}

/// Too many at a time.
pub(crate) fn too_many() -> Error {
    Error::Unavailable(format!("{SQL_AT_ONCE} statements are running already"))
}

/// A store without SQL.
pub(crate) fn no_sql() -> Error {
    Error::Statement("this store holds no SQL; only SQLite and PostgreSQL do".into())
}
