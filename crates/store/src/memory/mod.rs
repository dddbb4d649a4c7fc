//! All rows in memory: the model that the databases are held against, and the store of tests.
//!
//! Requests are decided one after the other, each as a transaction of its own, by whichever thread
//! finds nobody at it; answers and hints go out in the order of the commits.
//!
//! Absent on purpose: durability. What a step writes goes to a SQLite database in memory.

mod facts;
mod faults;
mod index;
#[cfg(feature = "sim")]
mod model;
mod read;
mod records;
mod state;
#[cfg(test)]
mod tests;
mod work;

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, ThreadId};

use roundel_core::{Hint, Rows};

pub use faults::{Fate, Faults, Point};
#[cfg(feature = "sim")]
pub use model::Model;
pub use state::Snapshot;

pub(crate) use self::state::State;
use crate::{
    Answer, Answered, Boxed, Clock, Error, Listener, Query, Request, Sink, Store, Tx, TxError,
};

/// All rows in memory.
pub struct Memory {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    queue: Mutex<Queue>,
    listeners: Mutex<Vec<Arc<dyn Listener>>>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Vec<Request>>,
    /// Is somebody at it?
    busy: bool,
    /// Who decides at this moment, and may not reach for the rows from inside a step.
    inside: Option<ThreadId>,
    closed: bool,
}

impl Queue {
    fn is_inside(&self) -> bool {
        self.inside == Some(thread::current().id())
    }
}

impl Memory {
    /// An empty store.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Memory {
        Memory {
            clock,
            state: Mutex::default(),
            queue: Mutex::default(),
            listeners: Mutex::default(),
        }
    }

    /// From now on, asks what happens to each request.
    pub fn inject(&self, faults: Arc<dyn Faults>) {
        self.state().faults = Some(faults);
    }

    /// Everything, as it is now.
    ///
    /// # Panics
    /// When called from inside a step.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.state().snapshot()
    }

    /// Everything, as it was then. Faults and listeners stay.
    ///
    /// # Panics
    /// When called from inside a step.
    pub fn restore(&self, snapshot: &Snapshot) {
        self.state().restore(snapshot);
    }

    /// Looks at the rows, all but journals and labels, as they are now.
    ///
    /// # Panics
    /// When called from inside a step.
    pub fn look<T>(&self, look: impl FnOnce(&Rows) -> T) -> T {
        look(&self.state().tables.rows)
    }

    /// Runs this in the database that steps write to, as a transaction of its own, which stays
    /// unless it fails.
    ///
    /// # Errors
    /// When it fails, or ends the transaction itself.
    ///
    /// # Panics
    /// When called from inside a step.
    pub fn transact<T, E>(&self, work: impl FnOnce(Tx) -> Result<T, E>) -> Result<T, E>
    where
        E: From<TxError>,
    {
        self.state().companion.transact(work)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        assert!(
            !self.queue().is_inside(),
            "a step reached for the store it runs in"
        );
        self.state.lock().expect("no operation panicked")
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue
            .lock()
            .expect("a queue's lock is held for a moment only")
    }

    fn process(&self, requests: Vec<Request>) {
        let mut state = self.state.lock().expect("no operation panicked");
        self.queue().inside = Some(thread::current().id());
        let mut out: Vec<(Arc<dyn Sink>, Vec<Answered>)> = Vec::new();
        let mut hints = Vec::new();
        for Request { mut ask, tag, sink } in requests {
            let result = state.answer(&mut ask, &*self.clock, &mut hints);
            let answered = Answered { tag, result, ask };
            match out.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &sink)) {
                Some((_, answers)) => answers.push(answered),
                None => out.push((sink, vec![answered])),
            }
        }
        self.queue().inside = None;
        drop(state);
        for (sink, answers) in out {
            sink.deliver(answers);
        }
        self.tell(&hints);
    }

    fn tell(&self, hints: &[Hint]) {
        if hints.is_empty() {
            return;
        }
        let listeners = self.listeners.lock().expect("listeners").clone();
        for listener in listeners {
            listener.hints(hints.to_vec());
        }
    }
}

/// Leaves the queue to the next when a sink panics.
struct Turn<'a>(&'a Memory);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            let mut queue = self.0.queue();
            queue.busy = false;
            queue.inside = None;
        }
    }
}

impl Store for Memory {
    fn submit(&self, requests: Vec<Request>) {
        let mut queue = self.queue();
        if queue.closed {
            drop(queue);
            for Request { ask, tag, sink } in requests {
                sink.deliver(vec![Answered {
                    tag,
                    result: Err(Error::Closed),
                    ask,
                }]);
            }
            return;
        }
        queue.waiting.push_back(requests);
        if std::mem::replace(&mut queue.busy, true) {
            return;
        }
        let _turn = Turn(self);
        while let Some(requests) = queue.waiting.pop_front() {
            drop(queue);
            self.process(requests);
            queue = self.queue();
        }
        queue.busy = false;
        drop(queue);
    }

    fn read(&self, query: Query) -> Boxed<'_, Result<Answer, Error>> {
        Box::pin(async move {
            let queue = self.queue();
            if queue.closed {
                return Err(Error::Closed);
            }
            if queue.is_inside() {
                let why = "a step cannot read the store it runs in";
                return Err(Error::Unavailable(why.into()));
            }
            drop(queue);
            self.state().read(query)
        })
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    fn listen(&self, listener: Arc<dyn Listener>) {
        self.listeners.lock().expect("listeners").push(listener);
    }

    /// Does nothing: no other process can commit here.
    fn watch_closely(&self, _closely: bool) {}

    fn close(&self) {
        self.queue().closed = true;
        self.listeners.lock().expect("listeners").clear();
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").finish_non_exhaustive()
    }
}
