//! The one thread that writes. It owns the only connection that does.
//!
//! | what happened | what the requests of the batch hear |
//! |---|---|
//! | committed, or nothing to commit | their replies |
//! | busy, full, read-only: rolled back | unavailable: nothing happened |
//! | a step ended the transaction | that step is refused; all others are decided again |
//! | a statement failed, or something panicked | halves are tried until the culprit is alone |
//! | the commit failed, outcome open | after asking the file: their replies, or decided again |
//! | the file was replaced, deleted or restored, or its rows were moved elsewhere | unusable |

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use roundel_core::{Hint, Op};
use rusqlite::Connection;

use super::batch::Session;
use super::log::{Log, Move, move_log};
use super::shared::Shared;
use super::trouble::{Trouble, is_busy};
use super::{backup, doubt, moving, open};
use crate::answers::{answer_all, deliver};
use crate::queue::{BATCH, Item, Woken};
use crate::{Ask, Error, TxError};

/// How long a batch takes up what comes in while it is decided.
const TAKING: Duration = Duration::from_millis(2);
/// Further tries to get the write lock, after the database's own waiting.
pub(super) const BUSY_TRIES: u32 = 3;
/// After this long without work, the log is moved into the database.
const IDLE: Duration = Duration::from_secs(1);
/// How long closing waits for readers of other processes before it leaves the log to them.
const CLOSING: Duration = Duration::from_millis(200);
/// How long to wait before the next try to open the file again.
const REOPEN: Duration = Duration::from_millis(100);

/// Requests that are decided together.
pub(super) type Batch = Vec<Item>;

/// May a batch take up what comes in while it is decided?
#[derive(Clone, Copy, PartialEq, Eq)]
enum Growth {
    Open,
    /// It is decided again.
    Ended,
}

/// A batch whose commit failed in a way that leaves the outcome open.
pub(super) struct Doubt {
    pub(super) batch: Batch,
    pub(super) hints: Vec<Hint>,
    /// Its number in the committer row.
    pub(super) number: u64,
    pub(super) message: String,
}

/// Why a connection is given up.
enum Exit {
    /// The store was closed and everything is answered.
    Closed,
    /// The connection is not to be trusted.
    Reopen(Option<Doubt>),
}

struct Writer {
    shared: Arc<Shared>,
    /// Batches to be decided again, before anything new.
    again: VecDeque<Batch>,
    /// The number of the last batch that was tried.
    number: u64,
    /// Something was committed since the log was last moved.
    fresh: bool,
    log: Log,
}

/// The thread.
pub(super) fn run(shared: Arc<Shared>, connection: Connection) {
    let mut writer = Writer {
        log: Log::of(&shared.path),
        shared,
        again: VecDeque::new(),
        number: 0,
        fresh: false,
    };
    let mut connection = Some(connection);
    let mut doubt = None;
    loop {
        let Some(opened) = connection.take().or_else(|| writer.reopen(&mut doubt)) else {
            return;
        };
        let opened = Rc::new(opened);
        match writer.serve(&opened, doubt.take()) {
            Exit::Closed => {
                let _ = opened.busy_timeout(CLOSING);
                move_log(&opened, Move::Truncate);
                return;
            }
            Exit::Reopen(open) => doubt = open,
        }
    }
}

impl Writer {
    fn serve(&mut self, connection: &Rc<Connection>, doubt: Option<Doubt>) -> Exit {
        let clock = Arc::clone(&self.shared.options.clock);
        let mut session = match Session::new(connection, clock) {
            Ok(session) => session,
            Err(error) => {
                self.refuse_all(&Error::Unavailable(error.to_string()));
                if self.shared.queue.wait(Some(REOPEN)) == Woken::Closed {
                    self.leave_unknown(doubt, &error);
                    return Exit::Closed;
                }
                return Exit::Reopen(doubt);
            }
        };
        if let Some(doubt) = doubt
            && let Some(exit) = self.resolve(connection, doubt)
        {
            return exit;
        }
        loop {
            let Some((mut batch, growth)) = self.next_batch(connection) else {
                return Exit::Closed;
            };
            if let Some(gone) = self.shared.gone() {
                answer_all(batch, &Error::Unusable(gone));
                continue;
            }
            let tried = catch_unwind(AssertUnwindSafe(|| {
                self.attempt(&mut session, &mut batch, growth)
            }));
            let trouble = match tried {
                Ok(Ok(hints)) => {
                    deliver(batch);
                    self.shared.listeners.hint(&hints);
                    self.log
                        .keep_short(connection, self.shared.options.busy_wait());
                    continue;
                }
                Ok(Err((trouble, hints))) => (trouble, hints),
                Err(panic) => (Trouble::Panic(panic_message(&*panic)), Vec::new()),
            };
            let trusted = session.rollback();
            match self.handle(batch, trouble) {
                Some(exit) => return exit,
                None if trusted => {}
                None => return Exit::Reopen(None),
            }
        }
    }

    /// The next batch. None when the store is closed.
    fn next_batch(&mut self, connection: &Connection) -> Option<(Batch, Growth)> {
        if let Some(batch) = self.again.pop_front() {
            return Some((batch, Growth::Ended));
        }
        loop {
            let most = self.fresh.then_some(IDLE);
            match self.shared.queue.wait(most) {
                Woken::Work => {
                    let mut batch = Batch::new();
                    if self.shared.queue.take(&mut batch) {
                        return Some((batch, Growth::Open));
                    }
                }
                Woken::Idle => {
                    move_log(connection, Move::Some);
                    self.fresh = false;
                }
                Woken::Closed => return None,
            }
        }
    }

    /// One transaction. With the trouble come the hints of a commit that is in doubt.
    fn attempt(
        &mut self,
        session: &mut Session<'_>,
        batch: &mut Batch,
        growth: Growth,
    ) -> Result<Vec<Hint>, (Trouble, Vec<Hint>)> {
        let none = |trouble: Trouble| (trouble, Vec::new());
        self.begin(session, batch).map_err(none)?;
        self.number += 1;
        let written = self.decide(session, batch, growth).map_err(none)?;
        self.shared.count(batch);
        if !written {
            let hints = session.finish();
            session.leave().map_err(|error| none(error.into()))?;
            return Ok(hints);
        }
        self.fresh = true;
        self.log.make_ready();
        self.shared.put_in_flight(std::mem::take(batch));
        let committed = self.commit(session);
        *batch = self.shared.take_in_flight();
        let hints = session.finish();
        match committed {
            Ok(()) => Ok(hints),
            Err(error) => Err((Trouble::of_commit(&error), hints)),
        }
    }

    fn commit(&self, session: &mut Session<'_>) -> rusqlite::Result<()> {
        #[cfg(test)]
        if let Some(fault) = self.shared.next_fault() {
            return fault.strike(session);
        }
        session.commit()
    }

    /// Gets the write lock, within bounds.
    fn begin(&self, session: &mut Session<'_>, batch: &Batch) -> Result<(), Trouble> {
        let mut tries = 0;
        loop {
            match session.begin() {
                Ok(()) => {
                    let path = &self.shared.path;
                    return match session.moved() {
                        Some(mark) => Err(Trouble::Moved(moving::refusal(path, mark))),
                        None if session.restored() != self.shared.restored => {
                            Err(Trouble::Moved(backup::refusal(path)))
                        }
                        None => Ok(()),
                    };
                }
                Err(error) => {
                    if !is_busy(&error) {
                        return Err(error.into());
                    }
                    self.shared.counters.busy();
                    if tries == BUSY_TRIES || self.shared.is_too_late(batch) {
                        return Err(error.into());
                    }
                    tries += 1;
                    session.rollback();
                    std::thread::sleep(jitter(tries));
                }
            }
        }
    }

    fn decide(
        &mut self,
        session: &mut Session<'_>,
        batch: &mut Batch,
        growth: Growth,
    ) -> Result<bool, Trouble> {
        let began = Instant::now();
        let mut decided = 0;
        loop {
            session.decide(&mut batch[decided..], decided)?;
            decided = batch.len();
            let open = growth == Growth::Open && began.elapsed() < TAKING;
            let room = open && decided < BATCH;
            if !room || !self.shared.queue.take(batch) {
                break;
            }
        }
        Ok(session.write(&self.shared.incarnation, self.number)?)
    }

    /// Decides what becomes of a batch that was not committed.
    fn handle(&mut self, mut batch: Batch, (trouble, hints): (Trouble, Vec<Hint>)) -> Option<Exit> {
        self.shared.counters.retry();
        match trouble {
            Trouble::Passing(message) => {
                answer_all(batch, &Error::Unavailable(message));
            }
            Trouble::Broken(message) => {
                answer_all(batch, &Error::Unavailable(message));
                return Some(Exit::Reopen(None));
            }
            Trouble::Ended(place) => {
                if !refuse(&mut batch[place], TxError::Refused(ENDED.into())) {
                    let culprit = batch.remove(place);
                    let error = Error::Unusable("a refused step panicked".into());
                    answer_all(vec![culprit], &error);
                }
                self.again.push_front(batch);
            }
            Trouble::Moved(message) => answer_all(batch, &Error::Unusable(message)),
            Trouble::Culprit(message) => self.find_culprit(batch, Some(message)),
            Trouble::Panic(message) if batch.len() == 1 => {
                tracing::error!(%message, "a request panicked");
                answer_all(batch, &Error::Unusable(message));
            }
            Trouble::Panic(_) => self.find_culprit(batch, None),
            Trouble::Doubt(message) => {
                let number = self.number;
                return Some(Exit::Reopen(Some(Doubt {
                    batch,
                    hints,
                    number,
                    message,
                })));
            }
        }
        None
    }

    /// Halves the batch until the request that fails stands alone.
    fn find_culprit(&mut self, mut batch: Batch, message: Option<String>) {
        if batch.len() > 1 {
            let second = batch.split_off(batch.len() / 2);
            self.again.push_front(second);
            self.again.push_front(batch);
            return;
        }
        let message = message.unwrap_or_default();
        let step = batch.first().is_some_and(|item| {
            matches!(*item.request.ask, Ask::Work(_)) && item.instead.is_none()
        });
        if step && refuse(&mut batch[0], TxError::Database(message.clone())) {
            self.again.push_front(batch);
            return;
        }
        tracing::error!(%message, "a request cannot be carried out");
        answer_all(batch, &Error::Unusable(message));
    }

    /// Learns whether a batch was committed, on a fresh connection.
    fn resolve(&mut self, connection: &Connection, doubt: Doubt) -> Option<Exit> {
        match doubt::was_committed(connection, &self.shared, doubt.number) {
            Ok(true) => {
                deliver(doubt.batch);
                self.shared.listeners.hint(&doubt.hints);
            }
            Ok(false) => self.again.push_front(doubt.batch),
            Err(message) => {
                if !self.shared.is_too_late(&doubt.batch) {
                    std::thread::sleep(REOPEN);
                    return Some(Exit::Reopen(Some(doubt)));
                }
                self.leave_unknown(Some(doubt), &message);
            }
        }
        None
    }

    /// Gives up on learning whether a batch was committed.
    fn leave_unknown(&self, doubt: Option<Doubt>, why: &dyn std::fmt::Display) {
        if let Some(Doubt { batch, message, .. }) = doubt {
            let message = format!("{message}; and then: {why}");
            answer_all(batch, &Error::Unknown(message));
        }
    }

    /// Opens the file again, for as long as it takes. None when the store was closed meanwhile.
    fn reopen(&mut self, doubt: &mut Option<Doubt>) -> Option<Connection> {
        loop {
            let opened = match self.shared.gone() {
                Some(gone) => Err(Error::Unusable(gone)),
                None => open::writer(&self.shared.path, &self.shared.options),
            };
            let error = match opened {
                Ok(connection) => return Some(connection),
                Err(error) => error,
            };
            tracing::warn!(%error, "the database cannot be opened again");
            if doubt
                .as_ref()
                .is_some_and(|doubt| self.shared.is_too_late(&doubt.batch))
            {
                self.leave_unknown(doubt.take(), &error);
            }
            if self.shared.queue.wait(Some(REOPEN)) == Woken::Closed {
                self.leave_unknown(doubt.take(), &error);
                self.refuse_all(&Error::Closed);
                return None;
            }
            self.refuse_all(&error);
            std::thread::sleep(REOPEN);
        }
    }

    /// Refuses what was asked until now, and not what is asked again in answer to that: the file
    /// must get its next try.
    fn refuse_all(&mut self, error: &Error) {
        let mut all: Batch = self.again.drain(..).flatten().collect();
        all.extend(self.shared.queue.take_older(Instant::now()));
        answer_all(all, error);
    }
}

const ENDED: &str = "it ended the transaction (such as by INSERT OR ROLLBACK); \
     nothing of it was kept";

/// The step is recorded as refused when its batch is decided again. Returns whether it can be.
fn refuse(item: &mut Item, error: TxError) -> bool {
    let Ask::Work(work) = &mut *item.request.ask else {
        unreachable!("only steps run code in the transaction");
    };
    let round = catch_unwind(AssertUnwindSafe(|| work.refused(error))).ok();
    item.instead = round.map(|round| Box::new(Op::Commit(round)));
    item.instead.is_some()
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    format!("it panicked: {}", text.unwrap_or_default())
}

/// A pause that two processes do not take in step.
fn jitter(tries: u32) -> Duration {
    let random = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.subsec_nanos());
    Duration::from_micros(u64::from(random % 20_000 + 5_000) * u64::from(tries))
}
