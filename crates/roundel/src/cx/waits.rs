//! Waiting: for a time, for a signal, for another run's end.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use roundel_core::{Call, Failure, RunId, Target, Timestamp};
use serde::de::DeserializeOwned;

use super::shared::{Asked, CallGuard, Span};
use super::{Cx, decode_outcome};
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
    within: Option<Duration>,
    guard: CallGuard,
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
        write!(f, "Wait({:?}, {:?})", self.signal, self.within)
    }
}

impl<O> std::fmt::Debug for WaitForRun<O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WaitForRun({})", self.run)
    }
}

impl<T> Unpin for Wait<T> {}

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
            within: None,
            guard: CallGuard::new(&self.shared),
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
        self.within = Some(limit);
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
        let (signal, within) = (self.signal, self.within);
        let asked = || {
            let what = Call::Wait {
                signal: signal.name(),
                until: None,
            };
            (
                what,
                Asked::Wait {
                    offerable: signal.is_offerable(),
                    within,
                },
            )
        };
        self.guard.poll(context, asked).map(decode_outcome)
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
