//! When what is started may begin, and until when it must have ended.

use std::time::Duration;

use roundel_core::{Deadline, Deadlines, RunId, Timestamp};

/// When: a time by the store's clock, or so long from the start on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// This time.
    At(Timestamp),
    /// So long after the start.
    Within(Duration),
}

impl From<Timestamp> for By {
    fn from(at: Timestamp) -> By {
        By::At(at)
    }
}

impl From<Duration> for By {
    fn from(span: Duration) -> By {
        By::Within(span)
    }
}

impl By {
    /// As a time, if the start is now.
    pub(crate) fn time(self, now: Timestamp) -> Timestamp {
        match self {
            By::At(at) => at,
            By::Within(span) => now.after(span),
        }
    }
}

/// The times of a start, before it is known when that is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Times {
    /// Not before.
    pub(crate) begins: Option<By>,
    pub(crate) forward: Option<By>,
    pub(crate) rollback: Option<By>,
}

impl Times {
    /// As deadlines that this run sets now.
    pub(crate) fn set(self, set_by: RunId, now: Timestamp) -> Deadlines {
        let deadline = |by: By| Deadline {
            at: by.time(now),
            set_by,
        };
        Deadlines {
            forward: self.forward.map(deadline),
            rollback: self.rollback.map(deadline),
        }
    }
}

/// The three ways to give a deadline, the same for everything that starts runs.
macro_rules! deadlines {
    () => {
        /// What is started must have ended by then, forward and back: [`forward_deadline`] and
        /// [`rollback_deadline`] in one. Who misses it has no time left to undo what it did: give
        /// an earlier [`forward_deadline`] too, if that matters.
        ///
        /// [`forward_deadline`]: Self::forward_deadline
        /// [`rollback_deadline`]: Self::rollback_deadline
        pub fn deadline(self, by: impl Into<crate::By>) -> Self {
            let by = by.into();
            self.forward_deadline(by).rollback_deadline(by)
        }

        /// What is started must have completed by then, or it rolls back, with a failure of the
        /// code `deadline` that says who set it. All below has the same deadline; one can be
        /// tightened by whoever starts a run, and never extended.
        pub fn forward_deadline(mut self, by: impl Into<crate::By>) -> Self {
            self.times.forward = Some(by.into());
            self
        }

        /// If what is started rolls back, that must be done by then, or the rollback has failed.
        pub fn rollback_deadline(mut self, by: impl Into<crate::By>) -> Self {
            self.times.rollback = Some(by.into());
            self
        }
    };
}
pub(crate) use deadlines;
