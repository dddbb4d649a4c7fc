//! Which database a command works on. None is ever made, and none is changed but as asked.

use std::path::{Path, PathBuf};

use clap::Args;
use roundel::{Client, Engine};

use crate::exit::{Exit, Failed, Result};

/// Which database: a file, or one that the program has open.
#[derive(Clone, Debug)]
pub struct Database {
    at: At,
    namespace: Option<String>,
    /// How the user can choose another.
    hint: &'static str,
}

#[derive(Clone, Debug)]
enum At {
    File(PathBuf),
    Open(Client),
}

impl Database {
    /// This file, which must be there.
    #[must_use]
    pub fn file(path: impl Into<PathBuf>) -> Database {
        Database {
            at: At::File(path.into()),
            namespace: None,
            hint: "",
        }
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
            hint: "",
        }
    }

    /// The file, if it is one.
    pub(crate) fn path(&self) -> Option<&Path> {
        match &self.at {
            At::File(path) => Some(path),
            At::Open(_) => None,
        }
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
        let path = match &self.at {
            At::Open(client) => {
                let (client, engine) = (client.clone(), None);
                return Ok(Connected { client, engine });
            }
            At::File(path) => path,
        };
        let mut engine = Engine::open(path).existing();
        if let Some(namespace) = &self.namespace {
            engine = engine.namespace(namespace.clone());
        }
        let engine = engine.start().await;
        let engine = engine.map_err(|error| self.explain(error.into()))?;
        Ok(Connected {
            client: engine.client(),
            engine: Some(engine),
        })
    }
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
#[derive(Args, Clone, Debug)]
pub struct Place {
    /// The database file; it must be there.
    #[arg(
        long,
        global = true,
        env = "ROUNDEL_DB",
        default_value = "roundel.db",
        value_name = "FILE",
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
}

impl Place {
    /// The database that they name.
    #[must_use]
    pub fn database(&self) -> Database {
        Database {
            hint: "choose the database with --db or ROUNDEL_DB",
            ..Database::file(self.db.clone()).namespace(self.namespace.clone())
        }
    }
}
