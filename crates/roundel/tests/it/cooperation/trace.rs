//! What happened, in order, across all runs of a test: steps and effects write here, outside the
//! database, once for each time that they are called.

use std::sync::{Arc, Mutex};

/// A list that everybody adds to.
#[derive(Clone, Default)]
pub struct Trace(Arc<Mutex<Vec<String>>>);

impl Trace {
    pub fn add(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }

    pub fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    pub fn clear(&self) {
        self.0.lock().unwrap().clear();
    }
}
