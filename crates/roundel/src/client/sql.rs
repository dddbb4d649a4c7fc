//! Statements of an operator's own, which only read.

use roundel_store::{Answer, Query, Statement, Table};

use super::Client;
use crate::Error;

impl Client {
    /// Runs one statement that reads, whatever it asks, within bounds (`limits::SQL_*`): for a
    /// screen or a shell. It sees all namespaces, and your own tables.
    ///
    /// # Errors
    /// When the statement is wrong, would change something, or takes too long; and when the
    /// database is none that understands SQL.
    pub async fn sql(&self, text: impl Into<String>, limit: usize) -> Result<Table, Error> {
        let text = text.into();
        let query = Query::Sql(Statement { text, limit });
        self.table(query).await
    }

    /// What such a statement can ask: views and tables, each with its columns.
    ///
    /// # Errors
    /// When the database is none that understands SQL.
    pub async fn views(&self) -> Result<Table, Error> {
        self.table(Query::Views).await
    }

    async fn table(&self, query: Query) -> Result<Table, Error> {
        match self.inner.read(query).await? {
            Answer::Table(table) => Ok(table),
            _ => unreachable!("a table was asked for"),
        }
    }
}
