//! What a step's SQL may not do. The guards are put on the connection once, and are up while a
//! step runs; the engine's own statements pass.
//!
//! Refused: ending or nesting the transaction, other databases, settings, and writing anything
//! whose name begins with `roundel_`. Reading the engine's tables is fine. A statement that ends
//! the transaction by itself (`INSERT OR ROLLBACK`) cannot be seen beforehand; nothing that comes
//! after it can be committed, and the writer finds out.

use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::{Connection, Result};

use crate::tx;

/// Settings that a step may read. None of them can be set through its argument.
const READABLE: [&str; 13] = [
    "application_id",
    "collation_list",
    "compile_options",
    "database_list",
    "foreign_key_list",
    "function_list",
    "index_info",
    "index_list",
    "index_xinfo",
    "pragma_list",
    "table_info",
    "table_list",
    "table_xinfo",
];

/// Puts the guards on a connection that steps will use.
pub(crate) fn install(connection: &mut Connection) -> Result<()> {
    connection.authorizer(Some(|context: AuthContext<'_>| {
        if !tx::is_entered() || is_allowed(&context.action) {
            Authorization::Allow
        } else {
            Authorization::Deny
        }
    }))?;
    // After `INSERT OR ROLLBACK` statements would commit by themselves.
    connection.commit_hook(Some(tx::is_entered))
}

fn is_allowed(action: &AuthAction<'_>) -> bool {
    match *action {
        AuthAction::Transaction { .. }
        | AuthAction::Savepoint { .. }
        | AuthAction::Attach { .. }
        | AuthAction::Detach { .. }
        | AuthAction::Unknown { .. } => false,
        AuthAction::Pragma {
            pragma_name,
            pragma_value,
        } => is_readable(pragma_name, pragma_value),
        AuthAction::Function { function_name } => {
            !function_name.eq_ignore_ascii_case("load_extension")
        }
        AuthAction::Read { .. } | AuthAction::Select | AuthAction::Recursive => true,
        _ => changed(action).into_iter().flatten().all(is_free),
    }
}

/// Does this only read a setting that anybody may know?
pub(super) fn is_readable(name: &str, value: Option<&str>) -> bool {
    let readable = READABLE
        .iter()
        .any(|known| known.eq_ignore_ascii_case(name));
    let argument_sets = name.eq_ignore_ascii_case("application_id");
    readable && !(argument_sets && value.is_some())
}

/// The names of what is written, made or removed, and of what that belongs to.
fn changed<'a>(action: &AuthAction<'a>) -> [Option<&'a str>; 2] {
    use AuthAction as A;
    match *action {
        A::Insert { table_name: name }
        | A::Delete { table_name: name }
        | A::Update {
            table_name: name, ..
        }
        | A::CreateTable { table_name: name }
        | A::CreateTempTable { table_name: name }
        | A::DropTable { table_name: name }
        | A::DropTempTable { table_name: name }
        | A::AlterTable {
            table_name: name, ..
        }
        | A::Analyze { table_name: name }
        | A::CreateVtable {
            table_name: name, ..
        }
        | A::DropVtable {
            table_name: name, ..
        }
        | A::CreateView { view_name: name }
        | A::CreateTempView { view_name: name }
        | A::DropView { view_name: name }
        | A::DropTempView { view_name: name }
        | A::Reindex { index_name: name } => [Some(name), None],
        A::CreateIndex {
            index_name: name,
            table_name,
        }
        | A::CreateTempIndex {
            index_name: name,
            table_name,
        }
        | A::DropIndex {
            index_name: name,
            table_name,
        }
        | A::DropTempIndex {
            index_name: name,
            table_name,
        }
        | A::CreateTrigger {
            trigger_name: name,
            table_name,
        }
        | A::CreateTempTrigger {
            trigger_name: name,
            table_name,
        }
        | A::DropTrigger {
            trigger_name: name,
            table_name,
        }
        | A::DropTempTrigger {
            trigger_name: name,
            table_name,
        } => [Some(name), Some(table_name)],
        _ => [None, None],
    }
}

/// Does this name belong to the user?
fn is_free(name: &str) -> bool {
    let prefix = name.get(..8).unwrap_or_default();
    !prefix.eq_ignore_ascii_case("roundel_")
}
