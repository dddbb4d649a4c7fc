//! What happened, in order, across all runs of a test: steps and effects write here, outside the
//! database, once for each time that they are called.

use std::sync::{Arc, Mutex};

use roundel::Cx;

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

/// A workflow's function that is given what a test shares with it.
pub fn with<T, F, Fut>(
    shared: &T,
    function: F,
) -> impl Fn(Cx, u32) -> Fut + Clone + Send + Sync + use<T, F, Fut>
where
    T: Clone + Send + Sync,
    F: Fn(Cx, u32, T) -> Fut + Clone + Send + Sync,
{
    let shared = shared.clone();
    move |cx, of| function(cx, of, shared.clone())
}
