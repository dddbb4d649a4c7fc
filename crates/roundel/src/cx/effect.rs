//! Effects: work outside the database. At least once, always with the same key, result recorded.

use std::borrow::Cow;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;
use roundel_core::{Call, Emitted, Failure, Payload, Retry, RunId, UndoBy};
use roundel_store::Tx;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::shared::{Asked, CallGuard, Inner, Phase, Shared, Tries};
use super::{Begun, Cx, decode_outcome, encode, inside, name, undo};
use crate::Undo;
use crate::live::Of;

/// One attempt of an effect, or of a step, as its closure sees it.
#[derive(Clone)]
pub struct Attempt {
    shared: Arc<Shared>,
    call: u32,
    number: u32,
    last: bool,
}

impl std::fmt::Debug for Attempt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Attempt({} of {})", self.number, self.key())
    }
}

impl Attempt {
    /// The idempotency key: the same for every attempt of this call, after any crash, and for no
    /// other call. Give it to the service that is called.
    #[must_use]
    pub fn key(&self) -> String {
        key_of(&self.shared, (self.shared.info.execution, self.call))
    }

    /// That of the step whose transaction this is.
    ///
    /// # Errors
    /// When no step runs here.
    pub fn of(_tx: &Tx) -> Result<Attempt, Failure> {
        let shared = inside::step("read the attempt")?;
        let inner = shared.lock();
        let call = inner.in_step.as_ref().map(|(call, _)| *call);
        let slot = call.and_then(|call| inner.calls.get(&call));
        let slot = slot.expect("a step that runs is known");
        let number = 1 + u32::try_from(slot.attempts.len()).unwrap_or(u32::MAX);
        let last = match &slot.ask {
            Asked::Step(tries) => tries.retry.is_last(number),
            _ => true,
        };
        let call = call.expect("just seen");
        drop(inner);
        Ok(Attempt {
            shared,
            call,
            number,
            last,
        })
    }

    /// This attempt may take at least this long from now, though attempts are limited
    /// ([`Effect::attempt_timeout`](crate::Effect::attempt_timeout),
    /// [`Command::attempt_timeout`](crate::Command::attempt_timeout)): for work that goes well and
    /// is not done. Said again and again, it is a heartbeat, without which the attempt ends. It
    /// never shortens the time, and does nothing once the attempt has ended or where there is no
    /// limit. The lease is another matter: it is kept for as long as the process lives.
    pub fn extend(&self, span: Duration) {
        let mut inner = self.shared.lock();
        inner.extended.push((self.call, self.number, span));
    }

    /// Whose.
    #[must_use]
    pub fn run(&self) -> RunId {
        self.shared.info.run
    }

    /// The name of the step or effect; of what is undone, in an undo.
    #[must_use]
    pub fn name(&self) -> String {
        let inner = self.shared.lock();
        let slot = inner.calls.get(&self.call);
        slot.map_or_else(String::new, |slot| slot.what.signature().1.to_owned())
    }

    /// In a step: what it has published so far.
    #[must_use]
    pub fn emitted(&self) -> Vec<Emitted> {
        self.shared.lock().emitting()
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// In which execution of the run, and in which call of it.
    pub(crate) fn place(&self) -> (u32, u32) {
        (self.shared.info.execution, self.call)
    }

    /// Counted from 1.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Is there no further attempt if this fails?
    #[must_use]
    pub fn is_last(&self) -> bool {
        self.last
    }

    /// Waits until the run is asked to end. What still runs after the grace time is abandoned.
    pub async fn cancelled(&self) {
        std::future::poll_fn(|context| self.shared.lock().poll_cancelled(context)).await;
    }
}

/// The idempotency key of a call.
pub(super) fn key_of(shared: &Shared, (execution, call): Of) -> String {
    let mut text = uuid::Uuid::encode_buffer();
    let run = shared.info.run.0.hyphenated().encode_lower(&mut text);
    format!("{run}-{execution}-{call}")
}

/// What a test kit says instead of the call.
type Scripted = Pin<Box<dyn Future<Output = Result<Payload, Failure>> + Send>>;

#[cfg(feature = "testkit")]
fn scripted(attempt: &Attempt, what: &Call) -> Option<Scripted> {
    let hooks = attempt.shared.lock().hooks.clone()?;
    let run = attempt.shared.info.run;
    let name = match what {
        Call::Undo { name, .. } => format!("undo {name}"),
        _ => what.signature().1.to_owned(),
    };
    let tried = (attempt.key(), attempt.number);
    if let Some(failure) = hooks.strike(&name, (run, attempt.last), &tried) {
        return Some(Box::pin(std::future::ready(Err(failure))));
    }
    hooks.attempt(&name, run, tried)
}

/// What a test kit makes of an answer.
#[cfg(feature = "testkit")]
fn heard(
    shared: &Shared,
    tried: (u32, u32),
    result: Result<Payload, Failure>,
) -> Result<Payload, Failure> {
    let Some(hooks) = shared.lock().hooks.clone() else {
        return result;
    };
    let lost = hooks.is_lost(&(key_of(shared, (shared.info.execution, tried.0)), tried.1));
    lost.map_or(result, Err)
}

#[cfg(not(feature = "testkit"))]
fn heard(_: &Shared, _: (u32, u32), result: Result<Payload, Failure>) -> Result<Payload, Failure> {
    result
}

#[cfg(not(feature = "testkit"))]
fn scripted(_: &Attempt, _: &Call) -> Option<Scripted> {
    None
}

pin_project! {
    /// A durable call to the outside. Await it.
    #[must_use = "it does nothing unless awaited"]
    pub struct Effect<F, Fut, T> {
        what: Result<Call, Failure>,
        tries: Tries,
        call: F,
        undo: Option<undo::Handler>,
        #[pin]
        running: Option<Fut>,
        scripted: Option<Scripted>,
        guard: CallGuard,
        value: PhantomData<fn() -> T>,
    }
}

impl<F, Fut, T> std::fmt::Debug for Effect<F, Fut, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Effect({:?})", self.what)
    }
}

impl Cx {
    /// Calls the outside: an API, a file, another service. Runs at least once; its result is
    /// recorded and not asked for again. Errors are tried again as [`Effect::retry`] says.
    pub fn effect<F, Fut, T, E>(
        &self,
        name_of: impl Into<Cow<'static, str>>,
        call: F,
    ) -> Effect<F, Fut, T>
    where
        F: Fn(Attempt) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        E: Into<Failure>,
        T: Serialize + DeserializeOwned,
    {
        let what = name(name_of).map(|name| Call::Effect { name, undo: None });
        self.effect_of(what, call)
    }

    pub(crate) fn effect_of<F, Fut, T, E>(
        &self,
        what: Result<Call, Failure>,
        call: F,
    ) -> Effect<F, Fut, T>
    where
        F: Fn(Attempt) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        E: Into<Failure>,
        T: Serialize + DeserializeOwned,
    {
        Effect {
            what,
            undo: None,
            tries: Tries {
                retry: Retry::exponential(5),
                each: None,
                total: None,
            },
            call,
            running: None,
            scripted: None,
            guard: CallGuard::new(&self.shared),
            value: PhantomData,
        }
    }
}

impl<F, Fut, T> Effect<F, Fut, T> {
    /// How often, and with which pauses.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.tries.retry = retry;
        self
    }

    /// Undone by this if the run fails later, is cancelled, or is undone: also if the effect began
    /// and failed, for it may have come through, unless its failure says
    /// [`did_not_happen`](Failure::did_not_happen).
    pub fn undo<U, UFut, UE>(mut self, undo: U) -> Self
    where
        U: Fn(Begun<T>) -> UFut + Send + Sync + 'static,
        UFut: Future<Output = Result<(), UE>> + Send + 'static,
        UE: Into<Failure>,
        T: DeserializeOwned,
    {
        if let Ok(Call::Effect { undo, .. }) = &mut self.what {
            *undo = Some(Box::new(UndoBy::Code));
        }
        self.undo = Some(undo::Handler::of_effect(undo));
        self
    }

    /// Undone by what is registered under this name, with these arguments. Both are recorded: so
    /// it is undone without the workflow's code, also when that has changed. The best for what
    /// may be undone long after.
    pub fn undo_by<A: Serialize>(mut self, by: Undo<A>, args: &A) -> Self {
        self.what = self.what.and_then(|what| undo::by_name(what, by, args));
        self
    }

    /// How long one attempt may take.
    pub fn attempt_timeout(mut self, limit: Duration) -> Self {
        self.tries.each = Some(limit);
        self
    }

    /// How long all attempts and the pauses between them may take.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.tries.total = Some(limit);
        self
    }
}

impl<F, Fut, T, E> Future for Effect<F, Fut, T>
where
    F: Fn(Attempt) -> Fut,
    Fut: Future<Output = Result<T, E>>,
    E: Into<Failure>,
    T: Serialize + DeserializeOwned,
{
    type Output = Result<T, Failure>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let what = match this.what {
            Ok(what) => what,
            Err(failure) => return Poll::Ready(Err(failure.clone())),
        };
        let tries = *this.tries;
        let known = this.guard.number().is_some();
        let polled = this
            .guard
            .poll(context, || (what.clone(), Asked::Effect(tries)));
        if let Poll::Ready(outcome) = polled {
            this.running.set(None);
            *this.scripted = None;
            return Poll::Ready(decode_outcome(outcome));
        }
        let Some(call) = this.guard.number() else {
            return Poll::Pending;
        };
        let shared = this.guard.shared.clone();
        if let Some(undo) = this.undo.as_ref().filter(|_| !known) {
            let of = (shared.info.execution, call);
            shared.lock().undos.insert(of, undo.clone());
        }
        let (attempt, stopped) = may_run(&mut shared.lock(), call);
        let Some(attempt) = attempt else {
            if stopped {
                this.running.set(None);
                *this.scripted = None;
            }
            return Poll::Pending;
        };
        let poll = AssertUnwindSafe(|| {
            if this.running.is_none() && this.scripted.is_none() {
                let last = tries.retry.is_last(attempt);
                let seen = Attempt {
                    shared: shared.clone(),
                    call,
                    number: attempt,
                    last,
                };
                *this.scripted = scripted(&seen, what);
                if this.scripted.is_none() {
                    this.running.set(Some((this.call)(seen)));
                }
            }
            if let Some(scripted) = this.scripted {
                return scripted.as_mut().poll(context);
            }
            let running = this.running.as_mut().as_pin_mut().expect("just set");
            running.poll(context).map(|result| match result {
                Ok(value) => encode(&value),
                Err(error) => Err(error.into()),
            })
        });
        let (running, misplaced) = inside::poll(&shared, || catch_unwind(poll));
        let result: Result<Payload, Failure> = match running {
            _ if misplaced => Err(inside::misplaced("an effect")),
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(result)) => result,
            Err(panic) => Err(panicked(panic.as_ref())),
        };
        this.running.set(None);
        *this.scripted = None;
        let result = heard(&shared, (call, attempt), result);
        let mut inner = shared.lock();
        inner.attempt_over(call);
        inner.finished.push((call, result));
        Poll::Pending
    }
}

/// The number of the attempt that may run now; and whether one that ran was stopped.
fn may_run(inner: &mut Inner, call: u32) -> (Option<u32>, bool) {
    let Some(slot) = inner.calls.get(&call) else {
        return (None, true);
    };
    let runs = slot.run && slot.phase == Phase::Open;
    if runs && inner.in_step.is_some() {
        inner.skipped.push(call);
        return (None, false);
    }
    let next = || {
        u32::try_from(slot.attempts.len())
            .unwrap_or(u32::MAX)
            .saturating_add(1)
    };
    (runs.then(next), !slot.run)
}

/// What a panic said, as a failure. Only a change of code helps, so it is not tried again.
pub(crate) fn panicked(panic: &(dyn std::any::Any + Send)) -> Failure {
    let said = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "something that is not text".into());
    Failure::permanent(format!("the code panicked: {said}")).with_code("panic")
}
