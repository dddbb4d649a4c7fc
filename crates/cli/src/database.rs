//! Which database a command works on. None is ever made, and none is changed but as asked.

use std::path::{Path, PathBuf};

use clap::Args;
use roundel::{Client, Engine, EngineBuilder};

use crate::exit::{Exit, Failed, Result};
use crate::remote::Remote;

/// Which database: a file, a server, or one that the program has open.
#[derive(Clone)]
pub struct Database {
    at: At,
    namespace: Option<String>,
    schema: Option<String>,
    /// The URL by which operators' own statements come.
    reader: Option<String>,
    /// Where the keys are that payloads are sealed with.
    key_file: Option<PathBuf>,
    /// How the user can choose another.
    hint: &'static str,
}

#[derive(Clone)]
enum At {
    File(PathBuf),
    /// Objects in a folder: `folder:PATH`.
    Folder(PathBuf),
    /// Its URL, in which there may be a password.
    Server(PathBuf),
    Open(Client),
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let at = match &self.at {
            At::File(path) | At::Folder(path) => path.display().to_string(),
            At::Server(_) => "a server".to_owned(),
            At::Open(_) => "open".to_owned(),
        };
        write!(f, "Database({at})")
    }
}

impl Database {
    /// This file, the server of this URL (`postgres://...`), or objects in a folder
    /// (`folder:PATH`): what it names must be there.
    #[must_use]
    pub fn file(path: impl Into<PathBuf>) -> Database {
        let path = path.into();
        let at = if is_url(&path) {
            At::Server(path)
        } else if path.to_string_lossy().starts_with("folder:") {
            At::Folder(path)
        } else {
            At::File(path)
        };
        Database {
            at,
            namespace: None,
            schema: None,
            reader: None,
            key_file: None,
            hint: "",
        }
    }

    /// On a server, in this schema; `roundel` unless said.
    #[must_use]
    pub fn schema(mut self, name: impl Into<String>) -> Database {
        self.schema = Some(name.into());
        self
    }

    /// On a server, operators' own statements come by this URL: as a role that may only read.
    #[must_use]
    pub fn reader(mut self, url: impl Into<String>) -> Database {
        self.reader = Some(url.into());
        self
    }

    /// Payloads are sealed and opened with the keys in this file.
    #[must_use]
    pub fn key_file(mut self, path: impl Into<PathBuf>) -> Database {
        self.key_file = Some(path.into());
        self
    }

    /// In this namespace; `default` unless said.
    #[must_use]
    pub fn namespace(mut self, name: impl Into<String>) -> Database {
        self.namespace = Some(name.into());
        self
    }

    /// The one that this client talks to, in its namespace. If its engine has workflows, a run
    /// started by a command begins in this process.
    #[must_use]
    pub fn open(client: Client) -> Database {
        Database {
            at: At::Open(client),
            namespace: None,
            schema: None,
            reader: None,
            key_file: None,
            hint: "",
        }
    }

    /// The file, if it is one.
    pub(crate) fn path(&self) -> Option<&Path> {
        match &self.at {
            At::File(path) => Some(path),
            At::Folder(_) | At::Server(_) | At::Open(_) => None,
        }
    }

    /// Is it a schema on a server?
    pub(crate) fn is_server(&self) -> bool {
        matches!(self.at, At::Server(_))
    }

    /// Is it a folder of objects?
    pub(crate) fn is_folder(&self) -> bool {
        matches!(self.at, At::Folder(_))
    }

    /// The file, or the URL of the server, if it is not open already.
    pub(crate) fn address(&self) -> Option<&Path> {
        match &self.at {
            At::File(path) | At::Folder(path) | At::Server(path) => Some(path),
            At::Open(_) => None,
        }
    }

    /// The schema, on a server.
    pub(crate) fn schema_name(&self) -> &str {
        self.schema.as_deref().unwrap_or("roundel")
    }

    /// The namespace; `default` unless said.
    pub(crate) fn namespace_name(&self) -> &str {
        self.namespace.as_deref().unwrap_or("default")
    }

    /// An engine over it, if it is not open already. Nothing is made.
    pub(crate) fn engine(&self) -> Option<EngineBuilder> {
        let path = match &self.at {
            At::Open(_) => return None,
            At::File(path) | At::Folder(path) | At::Server(path) => path,
        };
        let mut engine = Engine::open(path).existing();
        if let Some(namespace) = &self.namespace {
            engine = engine.namespace(namespace.clone());
        }
        if let Some(reader) = &self.reader {
            engine = engine.reader(reader.clone());
        }
        if let Some(schema) = &self.schema {
            engine = engine.schema(schema.clone());
        }
        if let Some(path) = &self.key_file {
            engine = engine.key_file(path);
        }
        Some(engine)
    }

    /// What went wrong with the file, and how to choose another.
    pub(crate) fn explain(&self, failed: Failed) -> Failed {
        if failed.exit != Exit::Database || self.hint.is_empty() {
            return failed;
        }
        let message = format!("{}\n{}", failed.message, self.hint);
        Failed { message, ..failed }
    }

    pub(crate) async fn connect(&self) -> Result<Connected> {
        let Some(engine) = self.engine() else {
            let At::Open(client) = &self.at else {
                unreachable!("all others are opened")
            };
            let (client, engine) = (client.clone(), None);
            return Ok(Connected { client, engine });
        };
        let engine = engine.start().await;
        let engine = engine.map_err(|error| self.explain(error.into()))?;
        Ok(Connected {
            client: engine.client(),
            engine: Some(engine),
        })
    }
}

/// Is this the URL of a server, and no file?
pub(crate) fn is_url(path: &Path) -> bool {
    let text = path.to_string_lossy();
    text.starts_with("postgres://") || text.starts_with("postgresql://")
}

/// A client, and the engine that was opened for it.
pub(crate) struct Connected {
    pub(crate) client: Client,
    engine: Option<Engine>,
}

impl Connected {
    pub(crate) async fn close(self) {
        if let Some(engine) = self.engine {
            engine.shutdown().await;
        }
    }
}

/// Arguments that say which file, for commands that have none of their own.
#[derive(Args, Clone)]
pub struct Place {
    /// The database: a file that is there, `postgres://user@host/database`, or `folder:PATH`; or a
    /// server's API, `http://localhost:8462` or `https://...`, for the commands that it has.
    #[arg(
        long,
        global = true,
        env = "ROUNDEL_DB",
        hide_env_values = true,
        default_value = "roundel.db",
        value_name = "FILE|URL",
        help_heading = "Database"
    )]
    db: PathBuf,
    /// The namespace.
    #[arg(
        long,
        global = true,
        default_value = "default",
        value_name = "NAME",
        help_heading = "Database"
    )]
    namespace: String,
    /// The schema, in PostgreSQL.
    #[arg(
        long,
        global = true,
        env = "ROUNDEL_SCHEMA",
        default_value = "roundel",
        value_name = "NAME",
        help_heading = "Database"
    )]
    schema: String,
    /// In PostgreSQL, the URL by which `sql` comes: of a role that may only read.
    #[arg(
        long,
        global = true,
        env = "ROUNDEL_READER",
        hide_env_values = true,
        value_name = "URL",
        help_heading = "Database"
    )]
    reader: Option<String>,
    /// The keys that payloads are sealed with and opened; `roundel keys new` makes such a file. A
    /// server's API opens with its own.
    #[arg(
        long,
        global = true,
        env = "ROUNDEL_KEY_FILE",
        value_name = "FILE",
        help_heading = "Database"
    )]
    key_file: Option<PathBuf>,
    /// The token for a server's API; else it is read from ROUNDEL_TOKEN.
    #[arg(long, global = true, value_name = "FILE", help_heading = "Database")]
    token_file: Option<PathBuf>,
    /// Who signed the certificate of a server's API, in PEM's form; else whom this system trusts.
    #[arg(long, global = true, value_name = "FILE", help_heading = "Database")]
    ca: Option<PathBuf>,
}

impl std::fmt::Debug for Place {
    /// Without URLs, in which there may be passwords.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Place({})", self.namespace)
    }
}

impl Place {
    /// The server whose API they name, if it is one.
    #[must_use]
    pub fn remote(&self) -> Option<Remote> {
        let url = self.db.to_str()?;
        let known = url.starts_with("http://") || url.starts_with("https://");
        known.then(|| Remote {
            url: url.to_owned(),
            namespace: self.namespace.clone(),
            token_file: self.token_file.clone(),
            ca: self.ca.clone(),
        })
    }

    /// The URL of the server that they name, if it is one.
    #[must_use]
    pub fn server(&self) -> Option<&str> {
        self.db.to_str().filter(|_| is_url(&self.db))
    }

    /// The database that they name.
    #[must_use]
    pub fn database(&self) -> Database {
        Database {
            hint: "choose the database with --db or ROUNDEL_DB",
            reader: self.reader.clone(),
            key_file: self.key_file.clone(),
            ..Database::file(self.db.clone())
                .namespace(self.namespace.clone())
                .schema(self.schema.clone())
        }
    }
}
