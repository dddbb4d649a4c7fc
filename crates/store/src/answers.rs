//! The ways back from a store: answers to those who asked, hints to those who listen.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use roundel_core::Hint;

#[cfg(feature = "postgres")]
use crate::News;
use crate::queue::Item;
use crate::{Answered, Error, Listener, Request, Sink};

/// Hands the answers back: one call for each sink, in order.
pub(crate) fn deliver(batch: Vec<Item>) {
    let mut sinks: Vec<(Arc<dyn Sink>, Vec<Answered>)> = Vec::new();
    for item in batch {
        let Request { ask, tag, sink } = item.request;
        let result = item.result.expect("a delivered request was decided");
        let answer = Answered { tag, result, ask };
        match sinks
            .iter_mut()
            .find(|(known, _)| Arc::ptr_eq(known, &sink))
        {
            Some((_, answers)) => answers.push(answer),
            None => sinks.push((sink, vec![answer])),
        }
    }
    for (sink, answers) in sinks {
        guarded(|| sink.deliver(answers));
    }
}

/// The same answer to all.
pub(crate) fn answer_all(mut batch: Vec<Item>, error: &Error) {
    for item in &mut batch {
        item.result = Some(Err(error.clone()));
    }
    deliver(batch);
}

/// Those who listen.
#[derive(Default)]
pub(crate) struct Listeners(Mutex<Vec<Arc<dyn Listener>>>);

impl Listeners {
    pub(crate) fn add(&self, listener: Arc<dyn Listener>) {
        self.lock().push(listener);
    }

    pub(crate) fn forget(&self) {
        let listeners = std::mem::take(&mut *self.lock());
        drop(listeners);
    }

    pub(crate) fn hint(&self, hints: &[Hint]) {
        if hints.is_empty() {
            return;
        }
        let listeners = self.lock().clone();
        for listener in &listeners {
            guarded(|| listener.hints(hints.to_vec()));
        }
    }

    pub(crate) fn others_committed(&self) {
        let listeners = self.lock().clone();
        for listener in &listeners {
            guarded(|| listener.others_committed());
        }
    }

    #[cfg(feature = "postgres")]
    pub(crate) fn others_brought(&self, news: &News) {
        let listeners = self.lock().clone();
        for listener in &listeners {
            guarded(|| listener.others_brought(news));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<dyn Listener>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Somebody else's panic must not end the thread that answers everybody.
fn guarded(f: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(f)).is_err() {
        tracing::error!("a receiver of answers panicked");
    }
}
