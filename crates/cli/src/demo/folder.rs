//! The demo's folder of objects, where there is no database. One that the demo made before is
//! replaced; anybody else's is left alone.
//!
//! Nobody can open the tables that steps write there, so the shop's are made and read by steps.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use roundel::{Cx, Engine, EngineBuilder, Error as EngineError, Failure, Result, Tx, Workflow};
use serde_json::Value;

use super::plan::{ITEMS, stock};

const NAME: &str = "roundel-demo-objects";
/// In the folder, beside the objects: it is the demo's own, and in use while this is locked.
const MARK: &str = "made-by-roundel-demo";
/// More than anybody keeps.
const MOST: u32 = 1000;

/// Makes the shop's tables, for so many orders.
const MAKE: Workflow<u32, ()> = Workflow::named("demo.make");
/// What a statement finds in them.
const LOOK: Workflow<String, Vec<Value>> = Workflow::named("demo.look");
/// What the names of these begin with.
pub(super) const OWN: &str = "demo.";

/// Why there is no folder to work in.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error(
        "the folder {} was not made by the demo and is left alone; \
         move it, or choose another folder with --dir", .0.display()
    )]
    NotOurs(PathBuf),
    #[error("another demo works in {}; wait until it ends, or keep both with --keep", .0.display())]
    InUse(PathBuf),
    #[error("{}: {error}", .folder.display())]
    Io { folder: PathBuf, error: io::Error },
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// A shop in a folder.
pub(super) struct Folder {
    pub(super) path: PathBuf,
    /// Says that it is in use.
    _mark: File,
}

impl Folder {
    /// As an engine opens it.
    pub(super) fn address(&self) -> String {
        format!("folder:{}", self.path.join("objects").display())
    }
}

/// Makes an empty shop in a folder in this one. Keeps that of an earlier demo, or replaces it.
pub(super) async fn make(
    dir: &Path,
    keep: bool,
    orders: u32,
) -> std::result::Result<Folder, Error> {
    let mut path = dir.join(NAME);
    for number in 2..MOST {
        if !(keep && path.exists()) {
            break;
        }
        path = dir.join(format!("{NAME}-{number}"));
    }
    let failed = |error| Error::Io {
        folder: path.clone(),
        error,
    };
    if path.exists() {
        let mark = File::open(path.join(MARK)).map_err(|_| Error::NotOurs(path.clone()))?;
        match mark.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(Error::InUse(path)),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        fs::remove_dir_all(&path).map_err(failed)?;
    }
    fs::create_dir_all(&path).map_err(failed)?;
    let mark = File::create_new(path.join(MARK)).map_err(failed)?;
    mark.lock().map_err(failed)?;
    let folder = Folder { path, _mark: mark };
    let engine = clerk(Engine::open(folder.address())).start().await?;
    let made = engine.start(MAKE, &orders).await?.result().await;
    engine.shutdown().await;
    made?;
    Ok(folder)
}

/// An engine that makes and reads the shop's tables.
fn clerk(engine: EngineBuilder) -> EngineBuilder {
    let make = |cx: Cx, orders: u32| async move {
        cx.step("make", move |tx| make_tables(tx, orders)).await
    };
    let look = |cx: Cx, sql: String| async move { cx.step("look", |tx| look(tx, &sql)).await };
    engine.register(MAKE, make).register(LOOK, look)
}

async fn make_tables(tx: Tx, orders: u32) -> Result<()> {
    let statements = include_str!("shop.sql").split(';').map(str::trim);
    for statement in statements.filter(|statement| !statement.is_empty()) {
        tx.execute(statement, ()).await?;
    }
    let had = stock(orders);
    let sql = "INSERT INTO stock (item, name, had, remaining) VALUES ($1, $2, $3, $3)";
    for (item, (name, _)) in (0_u32..).zip(ITEMS) {
        tx.execute(sql, (item, name, had)).await?;
    }
    Ok(())
}

async fn look(tx: Tx, sql: &str) -> Result<Vec<Value>> {
    let rows = tx.query(sql, ()).await?;
    let value = |value: &roundel::Value| match value {
        roundel::Value::Integer(number) => Ok(Value::from(*number)),
        roundel::Value::Text(text) => Ok(Value::from(text.as_str())),
        other => Err(Failure::permanent(format!("{other:?} in the shop"))),
    };
    let rows = rows
        .iter()
        .map(|row| row.values().iter().map(value).collect());
    rows.collect()
}

/// Reads the shop's tables.
pub(super) struct Clerk {
    engine: Engine,
    _folder: Folder,
}

impl Clerk {
    pub(super) async fn of(folder: Folder) -> std::result::Result<Clerk, EngineError> {
        let engine = clerk(Engine::open(folder.address())).start().await?;
        Ok(Clerk {
            engine,
            _folder: folder,
        })
    }

    pub(super) async fn look(&self, sql: &str) -> std::result::Result<Vec<Value>, EngineError> {
        self.engine
            .start(LOOK, &sql.to_owned())
            .await?
            .result()
            .await
    }

    pub(super) async fn close(self) {
        self.engine.shutdown().await;
    }
}
