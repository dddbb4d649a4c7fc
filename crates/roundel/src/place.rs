//! Which database an engine works on, and how it is opened.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use roundel_store::{
    Clock, Folder, Memory, Options, PeekLock, PeekLockOptions, Sqlite, Store, SystemClock,
};
#[cfg(feature = "postgres")]
use roundel_store::{Postgres, PostgresOptions};

use roundel_store::Error as StoreError;

use crate::{EngineBuilder, Error};

/// Which database.
pub(crate) enum Place {
    File(PathBuf),
    /// Objects in a folder.
    Folder(PathBuf),
    /// Its URL.
    Server(String),
    Memory,
    Given(Arc<dyn Store>),
}

/// Opens a database, which may take a while.
type Open = Box<dyn FnOnce() -> Result<Arc<dyn Store>, StoreError> + Send>;

/// A database, and how it is to be opened.
pub(crate) struct Opening {
    place: Place,
    /// That of the database unless said.
    pub(crate) clock: Option<Arc<dyn Clock>>,
    pub(crate) create: bool,
    pub(crate) answer_within: Duration,
    pub(crate) schema: Option<String>,
    pub(crate) connections: Option<usize>,
    pub(crate) pooled: bool,
    pub(crate) reader: Option<String>,
}

impl Place {
    /// A file; or a server if this is the URL of one, or a folder if it says so.
    pub(crate) fn at(path: &Path) -> Place {
        let schemes = ["postgres://", "postgresql://"];
        let is_url = |text: &&str| schemes.iter().any(|scheme| text.starts_with(scheme));
        let text = path.to_str();
        if let Some(folder) = text.and_then(|text| text.strip_prefix("folder:")) {
            return Place::Folder(folder.into());
        }
        match text.filter(is_url) {
            Some(url) => Place::Server(url.to_owned()),
            None => Place::File(path.to_owned()),
        }
    }
}

/// Opens objects in a folder, which must be there unless it may be made.
fn open_folder(path: &Path, create: bool, clock: Arc<dyn Clock>) -> Result<PeekLock, StoreError> {
    if !create && !path.is_dir() {
        let shown = path.display();
        return Err(StoreError::Unusable(format!("there is no folder {shown}")));
    }
    let folder = Folder::open(path).map_err(|error| {
        let shown = path.display();
        StoreError::Unusable(format!("the folder {shown} cannot be used: {error}"))
    })?;
    let options = PeekLockOptions {
        clock,
        ..PeekLockOptions::default()
    };
    PeekLock::open(Arc::new(folder), options)
}

impl Opening {
    pub(crate) fn new(place: Place) -> Opening {
        Opening {
            place,
            clock: None,
            create: true,
            answer_within: Duration::from_secs(30),
            schema: None,
            connections: None,
            pooled: false,
            reader: None,
        }
    }

    /// Will it tell of every commit of other processes? A file's watcher does; a server tells only
    /// those whom a commit concerns.
    pub(crate) fn hears_all(&self) -> bool {
        matches!(self.place, Place::File(_))
    }

    pub(crate) async fn open(mut self) -> Result<Arc<dyn Store>, Error> {
        let open: Open = match std::mem::replace(&mut self.place, Place::Memory) {
            Place::Given(store) => return Ok(store),
            Place::Memory => return Ok(Arc::new(Memory::new(self.own_clock()))),
            Place::File(path) => {
                let options = Options {
                    create: self.create,
                    answer_within: self.answer_within,
                    clock: self.own_clock(),
                    ..Options::default()
                };
                Box::new(move || Ok(Arc::new(Sqlite::open(&path, options)?)))
            }
            Place::Folder(path) => {
                let (create, clock) = (self.create, self.own_clock());
                Box::new(move || Ok(Arc::new(open_folder(&path, create, clock)?)))
            }
            Place::Server(url) => self.server(url)?,
        };
        let opened = tokio::task::spawn_blocking(open).await;
        Ok(opened.map_err(|error| Error::Unusable(error.to_string()))??)
    }

    fn own_clock(self) -> Arc<dyn Clock> {
        self.clock
            .unwrap_or_else(|| Arc::new(SystemClock::default()))
    }

    #[cfg(feature = "postgres")]
    fn server(self, url: String) -> Result<Open, Error> {
        let standard = PostgresOptions::default();
        let options = PostgresOptions {
            clock: self.clock,
            create: self.create,
            schema: self.schema.unwrap_or(standard.schema),
            answer_within: self.answer_within,
            connections: self.connections.unwrap_or(standard.connections),
            pooled: self.pooled,
            reader: self.reader,
            ..PostgresOptions::default()
        };
        Ok(Box::new(move || {
            Ok(Arc::new(Postgres::open(&url, options)?))
        }))
    }

    #[cfg(not(feature = "postgres"))]
    fn server(self, _: String) -> Result<Open, Error> {
        let _ = (self.schema, self.connections, self.pooled, self.reader);
        Err(Error::Setup(
            "this program was built without PostgreSQL; \
             say `features = [\"postgres\"]` where it depends on roundel"
                .into(),
        ))
    }
}

impl EngineBuilder {
    /// In PostgreSQL, in the schema of this name: small letters, digits and `_`. `roundel` unless
    /// said.
    pub fn schema(mut self, name: impl Into<String>) -> Self {
        self.opening.schema = Some(name.into());
        self
    }

    /// So many connections to PostgreSQL for reading and for steps, beside those that the engine
    /// needs for itself. 4 unless said.
    pub fn connections(mut self, count: usize) -> Self {
        self.opening.connections = Some(count);
        self
    }

    /// PostgreSQL is behind a proxy that gives each transaction another connection, such as
    /// PgBouncer in its transaction mode. What other processes do is then noticed later.
    pub fn pooled(mut self) -> Self {
        self.opening.pooled = true;
        self
    }

    /// In PostgreSQL, operators' own statements ([`crate::Client::sql`]) come by this URL: as a
    /// role that may only read, and only what they may see. That of the engine's URL unless said.
    pub fn reader(mut self, url: impl Into<String>) -> Self {
        self.opening.reader = Some(url.into());
        self
    }

    /// Only a database that is there already: nothing is made or changed in form.
    pub fn existing(mut self) -> Self {
        self.opening.create = false;
        self
    }

    /// What is missing is made, which is so unless [said otherwise](EngineBuilder::existing).
    pub fn create(mut self) -> Self {
        self.opening.create = true;
        self
    }
}
