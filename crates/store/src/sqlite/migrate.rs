//! Brings a file to the schema of this version, in one transaction, so that several processes may
//! open a new file at once.

use rusqlite::{Connection, OptionalExtension, Result};

/// Each brings the schema from the version before to the next; the first makes version 1. They
/// are never edited.
const MIGRATIONS: [(&str, &str); 12] = [
    (
        "0001_runs",
        include_str!("../../migrations/sqlite/0001_runs.sql"),
    ),
    (
        "0002_cooperation",
        include_str!("../../migrations/sqlite/0002_cooperation.sql"),
    ),
    (
        "0003_messages",
        include_str!("../../migrations/sqlite/0003_messages.sql"),
    ),
    (
        "0004_deadlines",
        include_str!("../../migrations/sqlite/0004_deadlines.sql"),
    ),
    (
        "0005_retention",
        include_str!("../../migrations/sqlite/0005_retention.sql"),
    ),
    (
        "0006_workers",
        include_str!("../../migrations/sqlite/0006_workers.sql"),
    ),
    (
        "0007_audit",
        include_str!("../../migrations/sqlite/0007_audit.sql"),
    ),
    (
        "0008_leftovers",
        include_str!("../../migrations/sqlite/0008_leftovers.sql"),
    ),
    (
        "0009_queues",
        include_str!("../../migrations/sqlite/0009_queues.sql"),
    ),
    (
        "0010_flow_keys",
        include_str!("../../migrations/sqlite/0010_flow_keys.sql"),
    ),
    (
        "0011_facts",
        include_str!("../../migrations/sqlite/0011_facts.sql"),
    ),
    (
        "0012_projections",
        include_str!("../../migrations/sqlite/0012_projections.sql"),
    ),
];

/// The schema that this version of the program writes.
pub(super) const NEWEST: i64 = MIGRATIONS.len() as i64;

const FIND_META: &str =
    "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'roundel_meta'";
const VERSION: &str = "SELECT value FROM roundel_meta WHERE name = 'schema'";
const SET_VERSION: &str = "INSERT INTO roundel_meta (name, value) VALUES ('schema', ?1) \
     ON CONFLICT DO UPDATE SET value = ?1";

/// The schema version of the file; 0 if it has no tables of Roundel's.
pub(super) fn version(connection: &Connection) -> Result<i64> {
    let known = connection.query_row(FIND_META, [], |_| Ok(())).optional()?;
    if known.is_none() {
        return Ok(0);
    }
    let version = connection
        .query_row(VERSION, [], |row| row.get(0))
        .optional()?;
    Ok(version.unwrap_or(0))
}

/// The migrations that a file of this version lacks, by name.
pub(super) fn missing(from: i64) -> impl Iterator<Item = &'static (&'static str, &'static str)> {
    MIGRATIONS.iter().skip(usize::try_from(from).unwrap_or(0))
}

/// Applies what is missing. The version is read again under the write lock: another process may
/// have been faster.
pub(super) fn apply(connection: &Connection) -> Result<()> {
    if version(connection)? >= NEWEST {
        return Ok(());
    }
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let done = apply_missing(connection);
    let end = if done.is_ok() { "COMMIT" } else { "ROLLBACK" };
    let ended = connection.execute_batch(end);
    done.and(ended)
}

fn apply_missing(connection: &Connection) -> Result<()> {
    let from = version(connection)?;
    for (_, migration) in missing(from) {
        connection.execute_batch(migration)?;
    }
    if from < NEWEST {
        connection.execute(SET_VERSION, [NEWEST])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use roundel_core::{KeyKind, RunState};

    use super::*;

    /// Name and text of everything in the schema, without comments and spacing.
    fn schema(connection: &Connection) -> Vec<(String, String)> {
        let sql = "SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name";
        let mut statement = connection.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get::<_, String>(1)?)));
        let plain = |(name, sql): (String, String)| {
            let lines = sql
                .lines()
                .map(|line| line.split("--").next().unwrap_or_default());
            let words: Vec<&str> = lines.flat_map(str::split_whitespace).collect();
            // A column that was added later stands apart in the text.
            let text = words.join(" ").replace(" ,", ",").replace(" )", ")");
            (name, text)
        };
        rows.unwrap().map(Result::unwrap).map(plain).collect()
    }

    #[test]
    fn the_readable_schema_is_what_the_migrations_make() {
        let migrated = Connection::open_in_memory().unwrap();
        apply(&migrated).unwrap();
        let written = Connection::open_in_memory().unwrap();
        written
            .execute_batch(include_str!("../sql/schema.sqlite.sql"))
            .unwrap();
        assert_eq!(schema(&migrated), schema(&written));
        assert_eq!(version(&migrated).unwrap(), NEWEST);
    }

    #[test]
    fn what_is_missing_is_named_in_order() {
        let names = |from| missing(from).map(|(name, _)| *name).collect::<Vec<_>>();
        assert_eq!(names(0).len(), MIGRATIONS.len());
        assert!(names(0).is_sorted());
        assert_eq!(names(NEWEST - 1), [MIGRATIONS.last().unwrap().0]);
        assert!(names(NEWEST).is_empty());
    }

    #[test]
    fn applying_twice_changes_nothing() {
        let connection = Connection::open_in_memory().unwrap();
        apply(&connection).unwrap();
        let before = schema(&connection);
        apply(&connection).unwrap();
        assert_eq!(schema(&connection), before);
    }

    /// The words between quotes in a part of a table's definition.
    fn words(table: &str, from: &str, to: &str) -> Vec<String> {
        let connection = Connection::open_in_memory().unwrap();
        apply(&connection).unwrap();
        let schema = schema(&connection);
        let (_, sql) = schema.iter().find(|(name, _)| name == table).unwrap();
        let part = sql.split(from).nth(1).unwrap().split(to).next().unwrap();
        let quoted = part.split('\'').skip(1).step_by(2);
        quoted.map(str::to_owned).collect()
    }

    #[test]
    fn the_checks_list_every_word_that_is_stored() {
        let states: Vec<&str> = RunState::ALL.into_iter().map(RunState::as_str).collect();
        assert_eq!(words("roundel_run", "state TEXT", "priority"), states);
        let kinds: Vec<&str> = KeyKind::ALL.into_iter().map(KeyKind::as_str).collect();
        assert_eq!(words("roundel_key", "kind TEXT", "key TEXT"), kinds);
    }
}
