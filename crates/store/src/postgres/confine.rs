//! A role that reads one namespace and nothing else of ours: row-level security for people and
//! their tools, who come by the server and not by the engine.
//!
//! Invariant: what it may read has a policy that says whose the rows are. What it is not given by
//! name it does not get, so that a table of a later version is closed to it until this is done
//! again. The policies are for the role alone. The engine, which owns the tables, is never asked
//! for them.

use std::borrow::Cow;

use roundel_core::Name;
use sqlx::ConnectOptions;

use super::link::{Beginnings, Link, values};
use super::trouble::Trouble;
use super::{Postgres, migrate, open};
use crate::Error;
use crate::cells::{self, Cells};

const CONFINE: &str = include_str!("../sql/confine.postgres.sql");

const SET: &str = "SELECT set_config('roundel.reader', $1, true), \
     set_config('roundel.namespace', $2, true)";

/// What a role can do that no policy stands in the way of; null if there is nothing, and no row if
/// there is no such role.
const POWER: &str = "SELECT CASE \
     WHEN role.rolsuper THEN 'is a superuser' \
     WHEN role.rolbypassrls THEN 'bypasses row-level security' \
     WHEN role.rolcreaterole THEN 'may become a member of others (CREATEROLE)' \
     WHEN role.rolreplication THEN 'may read all that is written (REPLICATION)' \
     WHEN EXISTS (SELECT FROM pg_class AS class JOIN pg_namespace AS space \
     ON space.oid = class.relnamespace WHERE space.nspname = current_schema() \
     AND role.oid IN (class.relowner, space.nspowner)) THEN 'owns what it is to read' \
     ELSE (SELECT 'is a member of `' || min(other.rolname::text) || '`' FROM pg_roles AS other \
     WHERE other.oid <> role.oid AND pg_has_role(role.oid, other.oid, 'MEMBER')) \
     END FROM pg_roles AS role WHERE role.rolname::text = $1";

/// What a role may read or change in the schema, and whether its policies stand in the way.
const REACH: &str = "SELECT class.relname::text, CASE class.relkind \
     WHEN 'v' THEN coalesce('security_invoker=true' = ANY (class.reloptions), false) \
     ELSE class.relrowsecurity AND EXISTS (SELECT FROM pg_policy \
     WHERE polrelid = class.oid AND polname = $1::name AND NOT polpermissive) END \
     AND NOT has_any_column_privilege($1::name, class.oid, 'INSERT, UPDATE') \
     AND NOT has_table_privilege($1::name, class.oid, 'DELETE, TRUNCATE, TRIGGER') \
     FROM pg_class AS class JOIN pg_namespace AS space ON space.oid = class.relnamespace \
     WHERE space.nspname = current_schema() AND class.relkind IN ('r', 'p', 'v', 'm', 'f') AND ( \
     has_any_column_privilege($1::name, class.oid, 'SELECT, INSERT, UPDATE') \
     OR has_table_privilege($1::name, class.oid, 'DELETE, TRUNCATE, TRIGGER')) \
     ORDER BY 1";

impl Postgres {
    /// Lets a role read what is of one namespace in this schema, and nothing else there, whatever
    /// it was granted before. Returns the tables and views that it reads. The role of the URL must
    /// own the tables. Done again after each migration, which may have brought tables.
    ///
    /// # Errors
    /// When there is no such role, or it has other ways to more; then nothing was changed.
    pub async fn confine(
        url: &str,
        schema: &str,
        role: &str,
        namespace: &Name,
    ) -> Result<Vec<String>, Error> {
        open::check_schema(schema)?;
        let connect = open::address(url)?.disable_statement_logging();
        let mut link = open::connect(&connect, false).await?;
        let begin = Beginnings::of(schema);
        let confined = confined(&mut link, (&begin, schema), (role, namespace)).await;
        if confined.is_err() {
            let _ = link.run("ROLLBACK").await;
        }
        link.close().await;
        confined
    }
}

async fn confined(
    link: &mut Link,
    (begin, schema): (&Beginnings, &str),
    (role, namespace): (&str, &Name),
) -> Result<Vec<String>, Error> {
    let began = link.run(&begin.plain).await;
    began.map_err(|error| failed(role, error.into()))?;
    let version = migrate::version(link, schema).await;
    let version = version.map_err(|trouble| failed(role, trouble))?;
    if version != migrate::NEWEST {
        let known = migrate::NEWEST;
        return Err(Error::Unusable(format!(
            "the schema `{schema}` has version {version}, and this program knows {known}; run \
             `roundel migrate` of the newer program first"
        )));
    }
    if let Some(power) = power(link, role).await? {
        return Err(Error::Unusable(format!(
            "the role `{role}` {power}, so that no policy confines it; name one that can log in \
             and nothing else"
        )));
    }
    let reach = policies(link, role, namespace).await;
    let reach = reach.map_err(|trouble| failed(role, trouble))?;
    if let Some((open, _)) = reach.iter().find(|(_, guarded)| !guarded) {
        return Err(Error::Unusable(format!(
            "the role `{role}` may read or change `{open}` by a grant to everybody, or by one that \
             somebody else gave; revoke that first"
        )));
    }
    let committed = link.run("COMMIT").await;
    committed.map_err(|error| failed(role, error.into()))?;
    Ok(reach.into_iter().map(|(name, _)| name).collect())
}

/// What the role could do in spite of policies.
async fn power(link: &mut Link, role: &str) -> Result<Option<String>, Error> {
    let asked = async { link.all(POWER, values![role]).await };
    let rows = asked.await.map_err(|trouble| failed(role, trouble))?;
    let Some(row) = rows.first() else {
        return Err(Error::Unusable(format!(
            "there is no role `{role}`; make it first, so that it can log in and nothing else"
        )));
    };
    let power = row.bytes(0).map(|power| power.map(String::from_utf8_lossy));
    let power = power.map_err(|error| failed(role, error.into()))?;
    Ok(power.map(Cow::into_owned))
}

/// Makes the policies; what the role reaches then, and whether they stand in the way.
async fn policies(
    link: &mut Link,
    role: &str,
    namespace: &Name,
) -> Result<Vec<(String, bool)>, Trouble> {
    link.all(SET, values![role, namespace.as_str()]).await?;
    link.run(CONFINE).await?;
    let rows = link.all(REACH, values![role]).await?;
    let reached =
        |row: &sqlx::postgres::PgRow| Ok((cells::string(row, 0)?, row.int(1)? == Some(1)));
    rows.iter().map(reached).collect()
}

fn failed(role: &str, trouble: Trouble) -> Error {
    let passing = !matches!(trouble, Trouble::Culprit(_));
    let message = format!("the role `{role}` was not confined: {}", trouble.message());
    match passing {
        true => Error::Unavailable(message),
        false => Error::Unusable(message),
    }
}
