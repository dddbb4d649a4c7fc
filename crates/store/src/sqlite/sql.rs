//! An operator's own statement, on a connection of its own that can only read: nobody waits behind
//! it, and what it leaves behind goes with the connection.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use roundel_core::limits::{ROUND_BYTES, SQL_AT_ONCE, SQL_ROWS, SQL_TIME};
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode, Row};

use super::guard::is_readable;
use super::open;
use super::shared::Shared;
use crate::query::sql::{self, Growing};
use crate::{Answer, Error, Query, Statement, Value};

/// Steps of the database's machine between two looks at the clock.
const STEPS: i32 = 10_000;
/// Bytes in one value: as much as a round may have.
const VALUE: i32 = ROUND_BYTES as i32;

const VIEWS: &str = "SELECT type AS kind, name, \
     (SELECT group_concat(name, ', ') FROM pragma_table_info(thing.name)) AS columns \
     FROM sqlite_schema AS thing WHERE type IN ('view', 'table') AND name NOT LIKE 'sqlite\\_%' \
     ESCAPE '\\' ORDER BY type DESC, name";

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

/// One of a few places, given back when dropped.
pub(super) struct Turn(Arc<Shared>);

impl Turn {
    pub(super) fn take(shared: &Arc<Shared>) -> Result<Turn, Error> {
        if shared.reads.is_closed() {
            return Err(Error::Closed);
        }
        let turn = Turn(Arc::clone(shared));
        let taken = shared.statements.fetch_add(1, Ordering::Relaxed);
        match taken < SQL_AT_ONCE {
            true => Ok(turn),
            false => Err(sql::too_many()),
        }
    }

    /// Runs the statement.
    pub(super) fn answer(self, statement: &Statement) -> Result<Answer, Error> {
        if let Some(gone) = self.0.gone() {
            return Err(Error::Unusable(gone));
        }
        let connection = open::reader(&self.0.path, &self.0.options)?;
        guarded(connection)
            .map_err(|error| failed(&error))
            .and_then(|connection| read(&connection, statement))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.statements.fetch_sub(1, Ordering::Relaxed);
    }
}

fn guarded(mut connection: Connection) -> rusqlite::Result<Connection> {
    // A sort that does not fit into a little memory goes to a file of its own.
    connection.pragma_update(None, "temp_store", 1)?;
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, VALUE)?;
    connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0)?;
    connection.authorizer(Some(|context: AuthContext<'_>| {
        if is_allowed(&context.action) {
            Authorization::Allow
        } else {
            Authorization::Deny
        }
    }))?;
    let end = Instant::now() + SQL_TIME;
    connection.progress_handler(STEPS, Some(move || Instant::now() > end))?;
    Ok(connection)
}

fn is_allowed(action: &AuthAction<'_>) -> bool {
    match *action {
        AuthAction::Select | AuthAction::Read { .. } | AuthAction::Recursive => true,
        AuthAction::Function { function_name } => {
            !function_name.eq_ignore_ascii_case("load_extension")
        }
        AuthAction::Pragma {
            pragma_name,
            pragma_value,
        } => is_readable(pragma_name, pragma_value),
        _ => false,
    }
}

fn read(connection: &Connection, asked: &Statement) -> Result<Answer, Error> {
    let failed = |error: rusqlite::Error| failed(&error);
    let mut statement = connection.prepare(asked.text()?).map_err(failed)?;
    if statement.parameter_count() > 0 {
        return Err(Error::Statement(
            "the statement has parameters; write the values into it".into(),
        ));
    }
    if !statement.readonly() || statement.column_count() == 0 {
        return Err(sql::only_reads());
    }
    let columns: Vec<String> = statement.column_names().map(String::from).collect();
    let width = columns.len();
    let mut table = Growing::new(columns, asked.rows());
    let mut rows = statement.raw_query();
    while let Some(row) = rows.next().map_err(failed)? {
        if table.is_full() {
            break;
        }
        let values = (0..width).map(|at| value(row, at));
        table.push(values.collect::<Result<_, _>>().map_err(failed)?);
    }
    Ok(Answer::Table(table.into_table()))
}

fn value(row: &Row<'_>, at: usize) -> rusqlite::Result<Value> {
    Ok(match row.get_ref(at)? {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => Value::Integer(number),
        ValueRef::Real(number) => Value::Real(number),
        ValueRef::Blob(bytes) => Value::Blob(bytes.to_vec()),
        ValueRef::Text(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => Value::Text(text.to_owned()),
            Err(_) => Value::Blob(bytes.to_vec()),
        },
    })
}

fn failed(error: &rusqlite::Error) -> Error {
    if matches!(error, rusqlite::Error::MultipleStatement) {
        return sql::only_reads();
    }
    match error.sqlite_error_code() {
        Some(ErrorCode::OperationInterrupted) => sql::too_long(),
        Some(ErrorCode::AuthorizationForStatementDenied) => sql::only_reads(),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            Error::Unusable(error.to_string())
        }
        Some(
            ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::OutOfMemory
            | ErrorCode::SystemIoFailure
            | ErrorCode::DiskFull,
        ) => Error::Unavailable(error.to_string()),
        _ => Error::Statement(error.to_string()),
    }
}
