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
        } => {
            let readable = READABLE
                .iter()
                .any(|known| known.eq_ignore_ascii_case(pragma_name));
            let argument_sets = pragma_name.eq_ignore_ascii_case("application_id");
            readable && !(argument_sets && pragma_value.is_some())
        }
        AuthAction::Function { function_name } => {
            !function_name.eq_ignore_ascii_case("load_extension")
        }
        AuthAction::Insert { table_name }
        | AuthAction::Delete { table_name }
        | AuthAction::Update { table_name, .. }
        | AuthAction::CreateTable { table_name }
        | AuthAction::CreateTempTable { table_name }
        | AuthAction::DropTable { table_name }
        | AuthAction::DropTempTable { table_name }
        | AuthAction::AlterTable { table_name, .. }
        | AuthAction::Analyze { table_name }
        | AuthAction::CreateVtable { table_name, .. }
        | AuthAction::DropVtable { table_name, .. } => is_free(table_name),
        AuthAction::CreateView { view_name }
        | AuthAction::CreateTempView { view_name }
        | AuthAction::DropView { view_name }
        | AuthAction::DropTempView { view_name } => is_free(view_name),
        AuthAction::Reindex { index_name } => is_free(index_name),
        AuthAction::CreateIndex {
            index_name: name,
            table_name,
        }
        | AuthAction::CreateTempIndex {
            index_name: name,
            table_name,
        }
        | AuthAction::DropIndex {
            index_name: name,
            table_name,
        }
        | AuthAction::DropTempIndex {
            index_name: name,
            table_name,
        }
        | AuthAction::CreateTrigger {
            trigger_name: name,
            table_name,
        }
        | AuthAction::CreateTempTrigger {
            trigger_name: name,
            table_name,
        }
        | AuthAction::DropTrigger {
            trigger_name: name,
            table_name,
        }
        | AuthAction::DropTempTrigger {
            trigger_name: name,
            table_name,
        } => is_free(name) && is_free(table_name),
        _ => true,
    }
}

/// Does this name belong to the user?
fn is_free(name: &str) -> bool {
    let prefix = name.get(..8).unwrap_or_default();
    !prefix.eq_ignore_ascii_case("roundel_")
}
