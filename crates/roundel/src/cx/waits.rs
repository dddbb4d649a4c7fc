//! Waiting: for a time, for a signal, for another run's end, for a condition on the run's state.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use roundel_core::{Call, Failure, Payload, RunId, STATE_CHANGED, Target, Timestamp};
use serde::de::DeserializeOwned;

use super::shared::{Asked, CallGuard, Limit, Span};
use super::{Cx, decode, decode_outcome};
use crate::Signal;

/// A pause that survives restarts.
#[must_use = "it does nothing unless awaited"]
pub struct Sleep {
    span: Span,
    guard: CallGuard,
}

/// A wait for a signal.
#[must_use = "it does nothing unless awaited"]
pub struct Wait<T> {
    signal: Signal<T>,
    limit: Limit,
    guard: CallGuard,
}

/// A wait for a condition on the run's own state.
#[must_use = "it does nothing unless awaited"]
pub struct WaitUntil<S, F> {
    condition: F,
    limit: Limit,
    guard: CallGuard,
    state: PhantomData<fn() -> S>,
}

/// A wait for another run's end.
#[must_use = "it does nothing unless awaited"]
pub struct WaitForRun<O> {
    run: RunId,
    guard: CallGuard,
    value: PhantomData<fn() -> O>,
}

impl std::fmt::Debug for Sleep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sleep({:?})", self.span)
    }
}

impl<T> std::fmt::Debug for Wait<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Wait({:?}, {:?})", self.signal, self.limit)
    }
}

impl<O> std::fmt::Debug for WaitForRun<O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WaitForRun({})", self.run)
    }
}

impl<S, F> std::fmt::Debug for WaitUntil<S, F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WaitUntil({:?})", self.limit)
    }
}

impl<T> Unpin for Wait<T> {}

impl<S, F> Unpin for WaitUntil<S, F> {}

impl Cx {
    /// Pauses, for milliseconds or months; costs nothing meanwhile.
    pub fn sleep(&self, span: Duration) -> Sleep {
        Sleep {
            span: Span::For(span),
            guard: CallGuard::new(&self.shared),
        }
    }

    /// Pauses until a time.
    pub fn sleep_until(&self, at: Timestamp) -> Sleep {
        Sleep {
            span: Span::Until(at),
            guard: CallGuard::new(&self.shared),
        }
    }

    /// Waits for a signal. One that came before is there at once; several come in their order.
    pub fn wait<T: DeserializeOwned>(&self, signal: Signal<T>) -> Wait<T> {
        Wait {
            signal,
            limit: Limit::default(),
            guard: CallGuard::new(&self.shared),
        }
    }

    /// Waits until the run's own state is as the condition says, and gives that state. If it is so
    /// already, it goes on at once; otherwise whenever somebody has changed it, from outside
    /// ([`Client::patch_state`]) or the run itself, the condition is looked at again. Without a
    /// state no condition holds.
    ///
    /// Which state it was is recorded; looking again in vain is not.
    ///
    /// [`Client::patch_state`]: crate::Client::patch_state
    pub fn wait_until<S, F>(&self, condition: F) -> WaitUntil<S, F>
    where
        S: DeserializeOwned,
        F: Fn(&S) -> bool,
    {
        WaitUntil {
            condition,
            limit: Limit::default(),
            guard: CallGuard::new(&self.shared),
            state: PhantomData,
        }
    }

    /// Waits for another run to end, also if it already has.
    pub fn wait_for<O: DeserializeOwned>(&self, run: RunId) -> WaitForRun<O> {
        WaitForRun {
            run,
            guard: CallGuard::new(&self.shared),
            value: PhantomData,
        }
    }
}

impl<T> Wait<T> {
    /// For so long at most, from now on; then the wait fails with the code `timed_out`.
    pub fn within(mut self, limit: Duration) -> Self {
        self.limit.within = Some(limit);
        self
    }

    /// When the time of [`within`](Self::within) is up, the run is parked instead. What comes
    /// while it is parked it finds when it is resumed; if nothing has come, it is parked again.
    pub fn or_park(mut self) -> Self {
        self.limit.parks = true;
        self
    }
}

impl<S, F> WaitUntil<S, F> {
    /// For so long at most, from now on, however often the state changes meanwhile; then the wait
    /// fails with the code `timed_out`, which rolls the run back unless that is handled.
    pub fn within(mut self, limit: Duration) -> Self {
        self.limit.within = Some(limit);
        self
    }

    /// When the time of [`within`](Self::within) is up, the run is parked instead. When it is
    /// resumed, the condition is looked at again; if it does not hold, it is parked again.
    pub fn or_park(mut self) -> Self {
        self.limit.parks = true;
        self
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let span = self.span;
        // The time is fixed by the driver when the call is recorded.
        let asked = || {
            (
                Call::Sleep {
                    until: Timestamp::MAX,
                },
                Asked::Sleep(span),
            )
        };
        self.guard.poll(context, asked).map(|_| ())
    }
}

impl<T: DeserializeOwned> Future for Wait<T> {
    type Output = Result<T, Failure>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let (signal, limit) = (self.signal, self.limit);
        let asked = || {
            let what = Call::Wait {
                signal: signal.name(),
                until: None,
            };
            (
                what,
                Asked::Wait {
                    offerable: signal.is_offerable(),
                    limit,
                },
            )
        };
        self.guard.poll(context, asked).map(decode_outcome)
    }
}

impl<S, F> Future for WaitUntil<S, F>
where
    S: DeserializeOwned,
    F: Fn(&S) -> bool,
{
    type Output = Result<S, Failure>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        // A state that does not fit the type is handed over, so that the call fails with that.
        let condition = &this.condition;
        this.guard.judge(|state| {
            let fits = |state: &Payload| decode(state).map_or(true, |state| condition(&state));
            state.as_str() != "null" && fits(state)
        });
        let limit = this.limit;
        let asked = || {
            let (signal, until) = (STATE_CHANGED, None);
            (Call::Wait { signal, until }, Asked::Until(limit))
        };
        this.guard.poll(context, asked).map(decode_outcome)
    }
}

impl<O: DeserializeOwned> Future for WaitForRun<O> {
    type Output = Result<O, Failure>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let run = self.run;
        let asked = || (Call::Watch { run }, Asked::Watch(Target::Run(run)));
        self.guard.poll(context, asked).map(decode_outcome)
    }
}
