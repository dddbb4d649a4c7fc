//! Threads that read. Each has a connection of its own, and short transactions; a query that runs
//! for too long is interrupted, so that the log can be moved behind it.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode};
use tokio::sync::oneshot;

use super::shared::Shared;
use super::{open, read};
use crate::{Answer, Error, Query};

/// No query takes longer, apart from a dump.
const LONGEST: Duration = Duration::from_secs(5);
/// Steps of the database's machine between two looks at the clock.
const STEPS: i32 = 10_000;

#[derive(Default)]
pub(super) struct Reads {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    asked: VecDeque<Asked>,
    closed: bool,
}

struct Asked {
    query: Query,
    since: Instant,
    answer: oneshot::Sender<Result<Answer, Error>>,
}

impl Reads {
    pub(super) fn ask(&self, query: Query) -> oneshot::Receiver<Result<Answer, Error>> {
        let (answer, receiver) = oneshot::channel();
        let mut state = self.lock();
        if state.closed {
            let _ = answer.send(Err(Error::Closed));
        } else {
            let since = Instant::now();
            state.asked.push_back(Asked {
                query,
                since,
                answer,
            });
            self.changed.notify_one();
        }
        receiver
    }

    /// Answers what was asked before this time and nobody has come to.
    pub(super) fn refuse_older(&self, than: Instant, error: &Error) {
        let mut state = self.lock();
        let old = state.asked.iter().take_while(|asked| asked.since < than);
        let old = old.count();
        let old: Vec<Asked> = state.asked.drain(..old).collect();
        drop(state);
        for asked in old {
            let _ = asked.answer.send(Err(error.clone()));
        }
    }

    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    fn next(&self) -> Option<Asked> {
        let mut state = self.lock();
        loop {
            if let Some(asked) = state.asked.pop_front() {
                return Some(asked);
            }
            if state.closed {
                return None;
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// When the query under way has to end, in milliseconds after the thread began.
#[derive(Clone)]
struct Deadline {
    began: Instant,
    at: Arc<AtomicI64>,
}

impl Deadline {
    fn new() -> Deadline {
        Deadline {
            began: Instant::now(),
            at: Arc::new(AtomicI64::new(i64::MAX)),
        }
    }

    fn now(&self) -> i64 {
        i64::try_from(self.began.elapsed().as_millis()).unwrap_or(i64::MAX)
    }

    fn set(&self, most: Option<Duration>) {
        let most = most.and_then(|most| i64::try_from(most.as_millis()).ok());
        let at = most.map_or(i64::MAX, |most| self.now().saturating_add(most));
        self.at.store(at, Ordering::Relaxed);
    }

    fn has_passed(&self) -> bool {
        self.now() > self.at.load(Ordering::Relaxed)
    }
}

/// The thread.
pub(super) fn run(shared: &Shared) {
    let deadline = Deadline::new();
    let mut connection = None;
    while let Some(asked) = shared.reads.next() {
        if asked.answer.is_closed() {
            continue;
        }
        let tried = AssertUnwindSafe(|| answer(shared, &mut connection, &deadline, &asked.query));
        let answer = catch_unwind(tried).unwrap_or_else(|_| {
            connection = None;
            Err(Error::Unusable("the query panicked; this is a bug".into()))
        });
        let _ = asked.answer.send(answer);
    }
}

fn answer(
    shared: &Shared,
    connection: &mut Option<Connection>,
    deadline: &Deadline,
    query: &Query,
) -> Result<Answer, Error> {
    if let Some(gone) = shared.gone() {
        return Err(Error::Unusable(gone));
    }
    if connection.is_none() {
        let mut opened = open::reader(&shared.path, &shared.options)?;
        let deadline = deadline.clone();
        let handler = move || deadline.has_passed();
        opened
            .progress_handler(STEPS, Some(handler))
            .map_err(|error| failed(&error))?;
        *connection = Some(opened);
    }
    let opened = connection.as_mut().expect("just opened");
    deadline.set((*query != Query::Dump).then_some(LONGEST));
    match read::answer(opened, query) {
        Ok(answer) => answer.map_err(Error::from),
        Err(error) => {
            *connection = None;
            Err(failed(&error))
        }
    }
}

fn failed(error: &rusqlite::Error) -> Error {
    match error.sqlite_error_code() {
        Some(ErrorCode::OperationInterrupted) => Error::Unavailable(format!(
            "the query was stopped after {LONGEST:?}; ask for less at a time"
        )),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            Error::Unusable(error.to_string())
        }
        None => Error::Unusable(error.to_string()),
        Some(_) => Error::Unavailable(error.to_string()),
    }
}
