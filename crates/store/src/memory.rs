//! All rows in memory. Stub.
use std::sync::Arc;

use crate::{Answer, Boxed, Clock, Error, Listener, Query, Request, Store};

/// All rows in memory.
pub struct Memory {
    clock: Arc<dyn Clock>,
}
impl Memory {
    /// Empty.
    pub fn new(clock: Arc<dyn Clock>) -> Memory {
        Memory { clock }
    }
}
impl Store for Memory {
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
