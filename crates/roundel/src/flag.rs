//! A flag that is also a waker: raised by whatever wakes the run, seen by the task that drives it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};

#[derive(Default)]
pub(crate) struct Flag {
    raised: AtomicBool,
    task: Mutex<Option<Waker>>,
}

impl Flag {
    /// Lowers it, and says whether it was raised.
    pub(crate) fn lower(&self) -> bool {
        self.raised.swap(false, Ordering::AcqRel)
    }

    pub(crate) fn is_raised(&self) -> bool {
        self.raised.load(Ordering::Acquire)
    }

    /// The task to wake when it is raised.
    pub(crate) fn register(&self, waker: &Waker) {
        let mut task = self
            .task
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        match &mut *task {
            Some(known) => known.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
    }

    fn raise(&self) {
        if self.raised.swap(true, Ordering::AcqRel) {
            return;
        }
        let task = self
            .task
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .take();
        if let Some(task) = task {
            task.wake();
        }
    }
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.raise();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.raise();
    }
}
