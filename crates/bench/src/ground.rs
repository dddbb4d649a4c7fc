//! Where what is measured is kept: files in a folder, or schemas of a server. All of it is new, and
//! gone afterwards, also after an error.

use std::fmt;
use std::path::PathBuf;

use roundel::{Engine, EngineBuilder};
use sqlx::{Connection, PgConnection, Row};
use tempfile::TempDir;

use crate::Error;
use crate::beside::Beside;

/// Where to measure.
#[derive(Clone)]
pub enum Target {
    /// On the disk that this folder is on, with SQLite.
    Folder(PathBuf),
    /// On the PostgreSQL server of this URL, in schemas of its own.
    Server(String),
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Folder(folder) => f.debug_tuple("Folder").field(folder).finish(),
            // There may be a password in it.
            Target::Server(_) => f.write_str("Server"),
        }
    }
}

/// A folder, or names for schemas, made for one measurement.
pub(crate) enum Ground {
    Folder(TempDir),
    Server { url: String, prefix: String },
}

/// Waits for engines that are still at it, but not for ever.
const PATIENCE: &str = "SET lock_timeout = '20s'";
const SCHEMAS: &str = "SELECT nspname::text FROM pg_catalog.pg_namespace \
     WHERE starts_with(nspname::text, $1)";
const NAME_IT: &str = "SELECT set_config('roundel.bench', $1, false)";
const DROP: &str = "\
DO $$ BEGIN
    EXECUTE format('DROP SCHEMA IF EXISTS %I CASCADE', current_setting('roundel.bench'));
END $$";
const BYTES: &str = "SELECT coalesce(sum(pg_total_relation_size(pg_class.oid)), 0)::bigint \
     FROM pg_catalog.pg_class JOIN pg_catalog.pg_namespace ON pg_namespace.oid = relnamespace \
     WHERE nspname = $1 AND relkind = 'r'";

impl Ground {
    /// Measures on new ground, and leaves none of it behind.
    pub(crate) async fn with<T>(
        target: &Target,
        name: &str,
        work: impl AsyncFnOnce(&Ground) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let ground = match target {
            Target::Folder(folder) => {
                let prefix = format!("{name}-");
                let made = tempfile::Builder::new().prefix(&prefix).tempdir_in(folder);
                Ground::Folder(made.map_err(Error::Folder)?)
            }
            Target::Server(url) => Ground::Server {
                url: url.clone(),
                prefix: format!("roundel_bench_{}_", uuid::Uuid::now_v7().simple()),
            },
        };
        let measured = work(&ground).await;
        let cleared = ground.clear().await;
        let measured = measured?;
        cleared?;
        Ok(measured)
    }

    /// An engine over a new database of this name.
    pub(crate) fn engine(&self, name: &str) -> EngineBuilder {
        match self {
            Ground::Folder(_) => Engine::open(self.file(name)),
            Ground::Server { url, .. } => Engine::open(url).schema(self.schema(name)),
        }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        match self {
            Ground::Folder(folder) => folder.path().join(format!("{name}.db")),
            Ground::Server { .. } => PathBuf::new(),
        }
    }

    pub(crate) fn schema(&self, name: &str) -> String {
        match self {
            Ground::Folder(_) => String::new(),
            Ground::Server { prefix, .. } => format!("{prefix}{name}"),
        }
    }

    /// The server, if there is one.
    pub(crate) fn url(&self) -> Option<&str> {
        match self {
            Ground::Folder(_) => None,
            Ground::Server { url, .. } => Some(url),
        }
    }

    /// The raw limit here.
    pub(crate) async fn beside(&self) -> Result<Beside, Error> {
        match self {
            Ground::Folder(folder) => Beside::on_disk(folder.path()),
            Ground::Server { url, .. } => Beside::on_server(url, &self.schema("raw")).await,
        }
    }

    /// How large a database has become, with its log if it has one of its own.
    pub(crate) async fn megabytes(&self, name: &str) -> Result<f64, Error> {
        let bytes = match self {
            Ground::Folder(_) => {
                let (file, log) = (self.file(name), self.file(name).with_extension("db-wal"));
                file.metadata()?.len() + log.metadata().map_or(0, |log| log.len())
            }
            Ground::Server { url, .. } => {
                let mut connection = PgConnection::connect(url).await?;
                let asked = sqlx::query_scalar(BYTES).bind(self.schema(name));
                let bytes: i64 = asked.fetch_one(&mut connection).await?;
                u64::try_from(bytes).unwrap_or_default()
            }
        };
        Ok(bytes as f64 / 1e6)
    }

    async fn clear(self) -> Result<(), Error> {
        let (url, prefix) = match self {
            Ground::Folder(folder) => return folder.close().map_err(Error::Folder),
            Ground::Server { url, prefix } => (url, prefix),
        };
        let mut connection = PgConnection::connect(&url).await?;
        sqlx::query(PATIENCE).execute(&mut connection).await?;
        let found = sqlx::query(SCHEMAS).bind(&prefix);
        for row in found.fetch_all(&mut connection).await? {
            let name: String = row.try_get(0)?;
            sqlx::query(NAME_IT)
                .bind(name)
                .execute(&mut connection)
                .await?;
            sqlx::raw_sql(DROP).execute(&mut connection).await?;
        }
        Ok(connection.close().await?)
    }
}
