//! Durable calls belong to the workflow's function. Inside the closure of a step or an effect they
//! would be made by some attempts and not by others, and no replay could find them again.

use std::cell::{Cell, RefCell};
use std::ptr;
use std::sync::Arc;

use roundel_core::{Failure, NewFact, Publish, Start, limits};
use serde::Serialize;

use super::shared::Shared;
use super::{By, publication};
use crate::Topic;

thread_local! {
    /// The run whose step runs on this thread.
    static STEP: RefCell<Option<Arc<Shared>>> = const { RefCell::new(None) };
    /// The run whose closure is polled on this thread, and whether it made a durable call.
    static POLLED: Cell<(*const Shared, bool)> = const { Cell::new((ptr::null(), false)) };
}

/// Polls a closure of this run. Says whether it made a durable call, which then leads nowhere.
/// `poll` does not unwind.
pub(super) fn poll<T>(shared: &Arc<Shared>, poll: impl FnOnce() -> T) -> (T, bool) {
    let outer = POLLED.replace((Arc::as_ptr(shared), false));
    let polled = poll();
    let (_, misplaced) = POLLED.replace(outer);
    (polled, misplaced)
}

/// Is a durable call of this run made inside one of its closures?
pub(super) fn is_misplaced(shared: &Arc<Shared>) -> bool {
    let (run, _) = POLLED.get();
    let misplaced = ptr::eq(run, Arc::as_ptr(shared));
    if misplaced {
        POLLED.set((run, true));
    }
    misplaced
}

/// Adds to what the step that runs on this thread publishes.
pub(crate) fn emit<T: Serialize>(topic: Topic<T>, value: &T) -> Result<(), Failure> {
    let shared = step("publish")?;
    let publish = publication(shared.info.namespace.clone(), topic, value)?;
    let mut inner = shared.lock();
    let context = inner.whole_context();
    inner.emitted.push(Publish { context, ..publish });
    Ok(())
}

/// Adds to what the step that runs on this thread sends.
pub(crate) fn send(start: Start, begins: Option<By>) -> Result<(), Failure> {
    let shared = step("send")?;
    let mut inner = shared.lock();
    if inner.sent.len() >= limits::FAN_OUT {
        let limit = limits::FAN_OUT;
        let message = format!("a step sends at most {limit} commands; send the rest in the next");
        return Err(Failure::permanent(message).with_code("refused"));
    }
    let namespace = shared.info.namespace.clone();
    let mut batch = start.batch;
    for start in batch.iter_mut().flat_map(|batch| batch.starts_mut()) {
        start.namespace = namespace.clone();
    }
    let start = Start {
        namespace,
        batch,
        ..start
    };
    inner.sent.push((start, begins));
    Ok(())
}

/// Adds to what the step that runs on this thread records.
pub(crate) fn record(fact: NewFact) -> Result<(), Failure> {
    let shared = step("record")?;
    shared.lock().recorded.push(fact);
    Ok(())
}

/// The run whose step runs on this thread, in which this may be done.
pub(super) fn step(what: &str) -> Result<Arc<Shared>, Failure> {
    STEP.with_borrow(Clone::clone).ok_or_else(|| {
        let message = format!("{what} inside a step, on the thread that it was called on");
        Failure::permanent(message).with_code("misplaced_call")
    })
}

/// Polls the closure of a step of this run, in which it may publish.
pub(super) fn poll_step<T>(shared: &Arc<Shared>, poll: impl FnOnce() -> T) -> (T, bool) {
    STEP.set(Some(shared.clone()));
    let polled = self::poll(shared, poll);
    STEP.set(None);
    polled
}

/// What such a step or effect fails with.
pub(super) fn misplaced(what: &str) -> Failure {
    Failure::permanent(format!(
        "a durable call was made inside {what}; make it in the workflow's function, \
         before or after {what}"
    ))
    .with_code("misplaced_call")
}
