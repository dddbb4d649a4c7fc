//! Steps: work inside the round's own database transaction. What they write happens exactly once.

use std::borrow::Cow;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use roundel_core::{Call, Failure, Payload, Retry, UndoBy};
use roundel_store::{Driven, Tx};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::effect::panicked;
use super::shared::{Asked, CallGuard, Shared, Tries};
use super::{Cx, decode_outcome, encode, inside, name, undo};
use crate::Undo;

/// A durable step in the database. Await it.
#[must_use = "it does nothing unless awaited"]
pub struct Step<F, T> {
    what: Result<Call, Failure>,
    tries: Tries,
    work: F,
    undo: Option<undo::Handler>,
    guard: CallGuard,
    value: PhantomData<fn() -> T>,
}

impl<F, T> std::fmt::Debug for Step<F, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Step({:?})", self.what)
    }
}

// The closure is never pinned: its future lives within one poll.
impl<F, T> Unpin for Step<F, T> {}

impl Cx {
    /// Runs SQL in the transaction that also records that it ran. Only the transaction may be
    /// awaited inside. An error rolls it back; it is tried again as [`Step::retry`] says.
    pub fn step<F, Fut, T, E>(&self, name_of: impl Into<Cow<'static, str>>, work: F) -> Step<F, T>
    where
        F: Fn(Tx) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        E: Into<Failure>,
        T: Serialize + DeserializeOwned,
    {
        let what = name(name_of).map(|name| Call::Step { name, undo: None });
        self.step_of(what, work)
    }

    pub(crate) fn step_of<F, Fut, T, E>(&self, what: Result<Call, Failure>, work: F) -> Step<F, T>
    where
        F: Fn(Tx) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        E: Into<Failure>,
        T: Serialize + DeserializeOwned,
    {
        Step {
            what,
            undo: None,
            tries: Tries {
                retry: Retry::exponential(3),
                each: None,
                total: None,
            },
            work,
            guard: CallGuard::new(&self.shared),
            value: PhantomData,
        }
    }
}

impl<F, T> Step<F, T> {
    /// How often, and with which pauses.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.tries.retry = retry;
        self
    }

    /// Undone by this, in a step of its own, if the run fails later, is cancelled, or is undone.
    /// It gets what the step returned.
    pub fn undo<U, UFut, UE>(mut self, undo: U) -> Self
    where
        U: Fn(Tx, T) -> UFut + Send + Sync + 'static,
        UFut: Future<Output = Result<(), UE>> + Send + 'static,
        UE: Into<Failure>,
        T: DeserializeOwned,
    {
        if let Ok(Call::Step { undo, .. }) = &mut self.what {
            *undo = Some(Box::new(UndoBy::Code));
        }
        self.undo = Some(undo::Handler::of_step(undo));
        self
    }

    /// Undone by what is registered under this name, with these arguments. Both are recorded: so
    /// it is undone without the workflow's code, also when that has changed. The best for what
    /// may be undone long after.
    pub fn undo_by<A: Serialize>(mut self, by: Undo<A>, args: &A) -> Self {
        self.what = self.what.and_then(|what| undo::by_name(what, by, args));
        self
    }
}

impl<F, Fut, T, E> Future for Step<F, T>
where
    F: Fn(Tx) -> Fut,
    Fut: Future<Output = Result<T, E>>,
    E: Into<Failure>,
    T: Serialize + DeserializeOwned,
{
    type Output = Result<T, Failure>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let what = match &this.what {
            Ok(what) => what,
            Err(failure) => return Poll::Ready(Err(failure.clone())),
        };
        let tries = this.tries;
        let asked = || (what.clone(), Asked::Step(tries));
        let known = this.guard.number().is_some();
        if let Poll::Ready(outcome) = this.guard.poll(context, asked) {
            return Poll::Ready(decode_outcome(outcome));
        }
        let Some(call) = this.guard.number() else {
            return Poll::Pending;
        };
        if let Some(undo) = this.undo.as_ref().filter(|_| !known) {
            let shared = &this.guard.shared;
            let of = (shared.info.execution, call);
            shared.lock().undos.insert(of, undo.clone());
        }
        let inner = this.guard.shared.lock();
        let mine = inner
            .in_step
            .as_ref()
            .is_some_and(|(turn, _)| *turn == call);
        if !mine || inner.worked.is_some() {
            return Poll::Pending;
        }
        let (_, tx) = inner.in_step.clone().expect("just seen");
        drop(inner);
        let worked = run(&this.work, &tx, &this.guard.shared);
        let result = worked.map_err(|failure| {
            if tx.broke_a_rule() {
                return Failure::permanent(failure.message).with_code("rule_broken");
            }
            failure
        });
        this.guard.shared.lock().worked = Some(result);
        Poll::Pending
    }
}

/// Runs the closure to its end, on this thread.
fn run<F, Fut, T, E>(work: &F, tx: &Tx, shared: &Arc<Shared>) -> Result<Payload, Failure>
where
    F: Fn(Tx) -> Fut,
    Fut: Future<Output = Result<T, E>>,
    E: Into<Failure>,
    T: Serialize,
{
    let drive = AssertUnwindSafe(|| tx.drive(work(tx.clone())));
    let (driven, misplaced) = inside::poll_step(shared, || catch_unwind(drive));
    match driven {
        _ if misplaced => Err(inside::misplaced("a step")),
        Ok(Driven::Ended(Ok(value))) => encode(&value),
        Ok(Driven::Ended(Err(error))) => Err(error.into()),
        Ok(Driven::Late) => Err(Failure::transient(
            "a step took longer than its transaction may be open; do less in one step",
        )
        .with_code("step_too_long")),
        Ok(Driven::Foreign) => Err(Failure::permanent(
            "a step awaited something other than its transaction; \
             do that in an effect, before or after the step",
        )
        .with_code("foreign_await")),
        Err(panic) => Err(panicked(panic.as_ref())),
    }
}
