//! A file, from outside: where it lies, who may read it, how large it is, whether it is damaged.

use std::path::Path;

use roundel_store::{Health, Sqlite};

use super::{Findings, megabytes};
use crate::database::Database;
use crate::exit::{Exit, Failed, Result};

/// A log that is longer is not being moved into the database.
const LONG_LOG: u64 = 256 << 20;
/// A disk with less than this is as good as full.
const LITTLE_ROOM: u64 = 256 << 20;
/// A file of which more than half is unused is worth making smaller, if it is not small anyway.
const WORTH_IT: u64 = 64 << 20;

pub(super) async fn look(path: &Path, database: &Database, findings: &mut Findings) -> Result<()> {
    let owned = path.to_owned();
    let looked = tokio::task::spawn_blocking(move || {
        let schema = Sqlite::schema(&owned);
        let health = Sqlite::health(&owned);
        (schema, health)
    });
    let looked = looked.await;
    let (schema, health) = looked.map_err(|error| Failed::new(Exit::NotNow, error.to_string()))?;
    let explain = |error| database.explain(Failed::from(roundel::Error::from(error)));
    let health = health.map_err(explain)?;
    let (program, sqlite) = (env!("CARGO_PKG_VERSION"), rusqlite::version());
    match schema {
        Ok(schema) if schema.missing.is_empty() => findings.fine(
            "schema",
            format!(
                "version {}, roundel {program}, SQLite {sqlite}",
                schema.found
            ),
        ),
        Ok(schema) => findings.wrong(
            "schema",
            format!(
                "version {}; this program writes {}",
                schema.found, schema.known
            ),
            "make a backup, then run `roundel migrate`",
        ),
        Err(error) => return Err(explain(error)),
    }
    damage(&health, findings);
    place(path, &health, findings);
    room(&health, findings);
    Ok(())
}

fn damage(health: &Health, findings: &mut Findings) {
    match health.damage.first() {
        None => findings.fine("integrity", "a quick check of every page finds nothing"),
        Some(first) => findings.wrong(
            "integrity",
            format!("the file is damaged: {first}"),
            "stop the workers, keep a copy of the file with its -wal, restore the last backup, and \
             look for what damaged it: the disk, or a program that copied or wrote the file itself",
        ),
    }
}

fn place(path: &Path, health: &Health, findings: &mut Findings) {
    match health.remote {
        None => {}
        Some(name) => findings.wrong(
            "file system",
            format!("it lies on {name}, where processes cannot share memory"),
            "move it to a local disk, or use PostgreSQL",
        ),
    }
    readers(path, findings);
}

#[cfg(unix)]
fn readers(path: &Path, findings: &mut Findings) {
    use std::os::unix::fs::PermissionsExt;
    let mode = |path: &Path| {
        let found = std::fs::metadata(path).ok()?;
        Some(found.permissions().mode() & 0o777)
    };
    let Some(file) = mode(path) else { return };
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let folder = mode(folder.unwrap_or(Path::new("."))).unwrap_or_default();
    if file & 0o077 != 0 {
        findings.unwise(
            "permissions",
            format!("others than its owner have rights to the file ({file:03o})"),
            "chmod 600 it, and what ends in -wal and -shm beside it",
        );
    } else if folder & 0o002 != 0 {
        findings.unwise(
            "permissions",
            format!("everybody may write to its folder ({folder:03o}), and so replace it"),
            "put it into a folder of its own, with mode 700",
        );
    } else {
        findings.fine("permissions", format!("{file:03o}"));
    }
}

#[cfg(not(unix))]
fn readers(_: &Path, _: &mut Findings) {}

fn room(health: &Health, findings: &mut Findings) {
    let size = megabytes(health.bytes);
    if health.unused_bytes > WORTH_IT && health.unused_bytes > health.bytes / 2 {
        findings.unwise(
            "size",
            format!(
                "{size}, of which {} are unused",
                megabytes(health.unused_bytes)
            ),
            "it is used again by what comes; to make the file smaller, stop the workers and run \
             VACUUM on it with the sqlite3 tool",
        );
    } else {
        findings.fine("size", size);
    }
    let log = megabytes(health.log_bytes);
    if health.log_bytes > LONG_LOG {
        findings.unwise(
            "log",
            format!("the write-ahead log has {log}"),
            "somebody reads for so long that it cannot be moved into the database: look for other \
             programs that have the file open (lsof), such as a backup or a forgotten shell",
        );
    } else {
        findings.fine("log", log);
    }
    match health.free_bytes {
        Some(free) if free < LITTLE_ROOM.max(health.bytes / 10) => findings.wrong(
            "disk",
            format!("{} are free", megabytes(free)),
            "make room: without it nothing can be committed; `roundel retention run` removes what \
             ended long ago",
        ),
        Some(free) => findings.fine("disk", format!("{} are free", megabytes(free))),
        None => {}
    }
}
