//! Brings a schema to this version, in one transaction and under a lock that all processes take, so
//! that many may start at once.

use super::link::{Link, values};
use super::trouble::Trouble;
use crate::cells::Cells;

/// Each brings the schema from the version before to the next; the first makes version 1. They
/// are never edited.
const MIGRATIONS: [(&str, &str); 8] = [
    (
        "0001_runs",
        include_str!("../../migrations/postgres/0001_runs.sql"),
    ),
    (
        "0002_messages",
        include_str!("../../migrations/postgres/0002_messages.sql"),
    ),
    (
        "0003_leftovers",
        include_str!("../../migrations/postgres/0003_leftovers.sql"),
    ),
    (
        "0004_queues",
        include_str!("../../migrations/postgres/0004_queues.sql"),
    ),
    (
        "0005_flow_keys",
        include_str!("../../migrations/postgres/0005_flow_keys.sql"),
    ),
    (
        "0006_facts",
        include_str!("../../migrations/postgres/0006_facts.sql"),
    ),
    (
        "0007_run_states",
        include_str!("../../migrations/postgres/0007_run_states.sql"),
    ),
    (
        "0008_projections",
        include_str!("../../migrations/postgres/0008_projections.sql"),
    ),
];

/// The schema that this version of the program writes.
pub(super) const NEWEST: i64 = MIGRATIONS.len() as i64;

const FIND_META: &str = "SELECT 1 FROM pg_catalog.pg_class \
     JOIN pg_catalog.pg_namespace ON pg_namespace.oid = relnamespace \
     WHERE nspname = $1 AND relname = 'roundel_meta'";
const FIND_SCHEMA: &str = "SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = $1";
const VERSION: &str = "SELECT value FROM roundel_meta WHERE name = 'schema'";
const SET_VERSION: &str = "INSERT INTO roundel_meta (name, value) VALUES ('schema', $1) \
     ON CONFLICT (name) DO UPDATE SET value = excluded.value";
/// One lock for each schema, among the user's own.
const LOCK: &str = "SELECT pg_advisory_xact_lock(hashtextextended('roundel migrate ' || $1, 0))";

/// The version of the schema; 0 if there is none. In a transaction with our search path.
pub(super) async fn version(link: &mut Link, schema: &str) -> Result<i64, Trouble> {
    if link.all(FIND_META, values![schema]).await?.is_empty() {
        return Ok(0);
    }
    let rows = link.all(VERSION, values![]).await?;
    Ok(rows
        .first()
        .map_or(Ok(None), |row| row.int(0))?
        .unwrap_or(0))
}

/// The migrations that a schema of this version lacks, by name.
pub(super) fn missing(from: i64) -> impl Iterator<Item = &'static (&'static str, &'static str)> {
    MIGRATIONS.iter().skip(usize::try_from(from).unwrap_or(0))
}

/// Applies what is missing, in the transaction that is open. The version is read again under the
/// lock: another process may have been faster.
pub(super) async fn apply(link: &mut Link, schema: &str) -> Result<(), Trouble> {
    link.all(LOCK, values![schema]).await?;
    if link.all(FIND_SCHEMA, values![schema]).await?.is_empty() {
        link.run(&format!("CREATE SCHEMA \"{schema}\"")).await?;
    }
    let from = version(link, schema).await?;
    for (_, migration) in missing(from) {
        link.run(migration).await?;
    }
    if from < NEWEST {
        link.execute(SET_VERSION, values![NEWEST]).await?;
    }
    Ok(())
}

/// All that is ever run.
#[cfg(test)]
pub(super) fn all_sql() -> String {
    MIGRATIONS.iter().map(|(_, sql)| *sql).collect()
}

#[cfg(test)]
mod tests {
    use roundel_core::{KeyKind, RunState};

    use super::*;

    /// The words between quotes in a part of a migration.
    fn words(migration: usize, from: &str, to: &str) -> Vec<&'static str> {
        let part = MIGRATIONS[migration]
            .1
            .split(from)
            .nth(1)
            .unwrap()
            .split(to)
            .next()
            .unwrap();
        part.split('\'').skip(1).step_by(2).collect()
    }

    #[test]
    fn n16_no_view_is_replaced_in_its_place() {
        // It would keep its readers and lose what confines them: it is dropped and made anew.
        assert!(!all_sql().to_uppercase().contains("REPLACE VIEW"));
    }

    #[test]
    fn the_checks_list_every_word_that_is_stored() {
        let states: Vec<&str> = RunState::ALL.into_iter().map(RunState::as_str).collect();
        assert_eq!(words(0, "CHECK (state", "parent_run"), states);
        assert_eq!(words(6, "CHECK (VALUE", "ALTER"), states);
        let kinds: Vec<&str> = KeyKind::ALL.into_iter().map(KeyKind::as_str).collect();
        assert_eq!(words(0, "CHECK (kind", "key "), kinds);
    }
}
