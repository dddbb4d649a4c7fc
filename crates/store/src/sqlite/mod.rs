//! One SQLite file. Stub.
use std::path::Path;
use std::sync::Arc;

use crate::{Answer, Boxed, Clock, Error, Listener, Query, Request, Store};

/// How to open a file.
#[derive(Clone)]
pub struct Options {
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// x
    pub create: bool,
    /// x
    pub answer_within: std::time::Duration,
    /// x
    pub x: bool,
}
impl Default for Options {
    fn default() -> Self {
        panic!()
    }
}
/// One SQLite file.
pub struct Sqlite {
    clock: Arc<dyn Clock>,
}
impl Sqlite {
    /// Opens a file, or makes it.
    ///
    /// # Errors
    /// When it cannot be used.
    pub fn open(_path: &Path, options: Options) -> Result<Sqlite, Error> {
        Ok(Sqlite {
            clock: options.clock,
        })
    }
}
impl Store for Sqlite {
    fn submit(&self, _: Vec<Request>) {}
    fn read(&self, _: Query) -> Boxed<'_, Result<Answer, Error>> {
        Box::pin(async { Err(Error::Closed) })
    }
    fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }
    fn listen(&self, _: Arc<dyn Listener>) {}
    fn watch_closely(&self, _: bool) {}
    fn close(&self) {}
}
