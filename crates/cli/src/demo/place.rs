//! Where the shop is: in a file, on a server, or in a folder of objects.

use std::path::PathBuf;
use std::process::Command;

use roundel::{Engine, EngineBuilder};
use rusqlite::{Connection, OpenFlags};

use super::books::{Books, Error};
use super::folder::{Clerk, Folder};
use super::report::quoted;
use super::server::Server;

pub(super) enum Place {
    File(PathBuf),
    Server(Server),
    Folder(Folder),
}

/// A URL may hold a password, which no list of processes is to show.
const URL: &str = "ROUNDEL_DEMO_URL";

impl Place {
    /// For people.
    pub(super) fn name(&self) -> String {
        match self {
            Place::File(file) => file.display().to_string(),
            Place::Server(server) => format!("schema {} on {}", server.schema, server.shown),
            Place::Folder(folder) => folder.path.display().to_string(),
        }
    }

    /// An engine over it.
    pub(super) fn engine(&self) -> EngineBuilder {
        match self {
            Place::File(file) => Engine::open(file),
            Place::Server(server) => Engine::open(&server.url).schema(&server.schema),
            Place::Folder(folder) => Engine::open(folder.address()),
        }
    }

    /// Tells a worker process where to work.
    pub(super) fn tell(&self, command: &mut Command) {
        match self {
            Place::File(file) => command.arg("--file").arg(file),
            Place::Folder(folder) => command.arg("--file").arg(folder.address()),
            Place::Server(server) => command
                .env(URL, &server.url)
                .args(["--in-schema", &server.schema]),
        };
    }

    /// What other commands need to work here, as it is typed.
    pub(super) fn arguments(&self) -> String {
        match self {
            Place::File(file) => format!("--db {}", quoted(&file.display().to_string())),
            Place::Folder(folder) => format!("--db {}", quoted(&folder.address())),
            Place::Server(server) => {
                format!("--db {} --schema {}", quoted(&server.shown), server.schema)
            }
        }
    }

    /// The shop's tables.
    pub(super) async fn books(self) -> Result<Books, Error> {
        let books = match self {
            // The last to close a file that it may write tidies up beside it.
            Place::File(file) => {
                let flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
                Books::File(Connection::open_with_flags(&file, flags)?)
            }
            Place::Server(server) => Books::Server(server.connection),
            Place::Folder(folder) => Books::Folder(Clerk::of(folder).await?),
        };
        Ok(books)
    }
}

/// What a worker process was told.
#[derive(Debug, clap::Args)]
pub(super) struct Told {
    /// The demo's file, or folder of objects.
    #[arg(long)]
    file: Option<PathBuf>,
    /// Its schema, on the server.
    #[arg(long)]
    in_schema: Option<String>,
}

impl Told {
    /// The engine that the demo has made there.
    pub(super) fn engine(self) -> Result<EngineBuilder, std::env::VarError> {
        let engine = match (self.file, self.in_schema) {
            (Some(file), _) => Engine::open(file),
            (None, schema) => {
                let engine = Engine::open(std::env::var(URL)?);
                schema.into_iter().fold(engine, EngineBuilder::schema)
            }
        };
        Ok(engine.existing())
    }
}
