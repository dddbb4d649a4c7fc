//! The demo's file. One that the demo made before is replaced; anybody else's is left alone.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};

use super::plan::{ITEMS, stock};

const NAME: &str = "roundel-demo";
/// More files than anybody keeps.
const MOST: u32 = 1000;

/// Marks the file as the demo's own, and says how it was made.
const MARK: &str =
    "CREATE TABLE made_by_roundel_demo (orders INTEGER NOT NULL, seed TEXT NOT NULL)";
const IS_MARKED: &str =
    "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'made_by_roundel_demo'";

/// Why there is no file to work on.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error(
        "{} was not made by the demo and is left alone; \
         move it, or choose another folder with --dir", .0.display()
    )]
    NotOurs(PathBuf),
    #[error(
        "{} is in use by another program; close it, or choose another folder with --dir",
        .0.display()
    )]
    InUse(PathBuf),
    #[error("{} could not be {did}: {error}", .file.display())]
    Io {
        file: PathBuf,
        did: &'static str,
        error: io::Error,
    },
    #[error("{} could not be written: {error}", .file.display())]
    Sqlite {
        file: PathBuf,
        error: rusqlite::Error,
    },
}

/// Makes an empty shop in this folder. Keeps the file of an earlier demo, or replaces it.
pub(super) fn make(dir: &Path, keep: bool, plan: (u32, u64)) -> Result<PathBuf, Error> {
    let name = |number: u32| match number {
        1 => format!("{NAME}.db"),
        _ => format!("{NAME}-{number}.db"),
    };
    let here = dir == Path::new(".");
    let at = |name: String| {
        if here {
            PathBuf::from(name)
        } else {
            dir.join(name)
        }
    };
    let mut file = at(name(1));
    if keep {
        let free = (1..MOST).map(|number| at(name(number)));
        let free = free.filter(|file| fs::symlink_metadata(file).is_err());
        file = free.into_iter().next().unwrap_or(file);
    } else if fs::symlink_metadata(&file).is_ok() {
        remove(&file)?;
    }
    let failed = |error| Error::Io {
        file: file.clone(),
        did: "made",
        error,
    };
    File::create_new(&file).map_err(failed)?;
    fill(&file, plan).map_err(|error| Error::Sqlite {
        file: file.clone(),
        error,
    })?;
    Ok(file)
}

/// Removes the file of an earlier demo.
fn remove(file: &Path) -> Result<(), Error> {
    let not_ours = || Error::NotOurs(file.to_owned());
    let plain = fs::symlink_metadata(file).is_ok_and(|meta| meta.is_file());
    if !plain || !is_ours(file).unwrap_or(false) {
        return Err(not_ours());
    }
    // Only whoever has the file alone may leave write-ahead logging.
    let alone = Connection::open(file)
        .and_then(|connection| connection.pragma_update(None, "journal_mode", "DELETE"));
    alone.map_err(|_| Error::InUse(file.to_owned()))?;
    fs::remove_file(file).map_err(|error| Error::Io {
        file: file.to_owned(),
        did: "removed",
        error,
    })
}

fn is_ours(file: &Path) -> rusqlite::Result<bool> {
    let connection = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    connection.query_row(IS_MARKED, (), |row| row.get(0))
}

/// Puts the shop's tables into a new file.
fn fill(file: &Path, (orders, seed): (u32, u64)) -> rusqlite::Result<()> {
    let mut connection = Connection::open(file)?;
    let tx = connection.transaction()?;
    tx.execute(MARK, ())?;
    let made = "INSERT INTO made_by_roundel_demo (orders, seed) VALUES (?1, ?2)";
    tx.execute(made, (orders, seed.to_string()))?;
    tx.execute_batch(include_str!("shop.sql"))?;
    let had = stock(orders);
    let stock = "INSERT INTO stock (item, name, had, remaining) VALUES (?1, ?2, ?3, ?3)";
    for (item, (name, _)) in (0_u32..).zip(ITEMS) {
        tx.execute(stock, (item, name, had))?;
    }
    tx.commit()
}
