//! What a workflow sets off: child runs, runs of their own, signals, offers.

use std::borrow::Cow;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

use roundel_core::{
    Call, Context as Flowing, Deadlines, Failure, Name, Offer, Payload, RunId, Sent,
    Signal as SignalOp, Start, Timestamp,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::shared::{Asked, CallGuard};
use super::{Cx, Times, deadlines, decode_outcome, encode, name, one_value};
use crate::ids::new_run;
use crate::{Key, Signal, To, Workflow};

/// A child run, waited for.
#[must_use = "it does nothing unless awaited"]
pub struct Child<O> {
    start: Result<Box<Start>, Failure>,
    times: Times,
    guard: CallGuard,
    value: PhantomData<fn() -> O>,
}

/// A run of its own, neither waited for nor undone.
#[must_use = "it does nothing unless awaited"]
pub struct Spawn {
    start: Result<Box<Start>, Failure>,
    guard: CallGuard,
}

/// A signal or an offer sent by a workflow.
#[must_use = "it does nothing unless awaited"]
pub struct SendSignal {
    asked: Result<(Call, Asked), Failure>,
    guard: CallGuard,
}

impl<O> std::fmt::Debug for Child<O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Child({:?})", self.start)
    }
}

impl std::fmt::Debug for Spawn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Spawn({:?})", self.start)
    }
}

impl std::fmt::Debug for SendSignal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SendSignal({:?})", self.asked)
    }
}

impl Cx {
    /// Starts a child run and waits for its result. Dropping the future asks the child to end.
    pub fn child<I: Serialize, O: DeserializeOwned>(
        &self,
        workflow: Workflow<I, O>,
        input: &I,
    ) -> Child<O> {
        let start = self.start_of(&workflow, input);
        Child {
            start,
            times: Times::default(),
            guard: CallGuard::new(&self.shared),
            value: PhantomData,
        }
    }

    /// Starts a run of its own, and says which.
    pub fn spawn<I: Serialize, O>(&self, workflow: Workflow<I, O>, input: &I) -> Spawn {
        let start = self.start_of(&workflow, input);
        Spawn {
            start,
            guard: CallGuard::new(&self.shared),
        }
    }

    /// Sends a signal to another run, exactly once, and says what became of it.
    pub fn signal<T: Serialize>(
        &self,
        to: impl Into<To>,
        signal: Signal<T>,
        value: &T,
    ) -> SendSignal {
        let asked = to.into().target().and_then(|target| {
            let op = SignalOp {
                namespace: self.shared.info.namespace.clone(),
                target,
                name: signal.name(),
                payload: encode(value)?,
                policy: signal.policy(),
                key: None,
                claimant: None,
            };
            Ok((
                Call::Signal {
                    signal: signal.name(),
                },
                Asked::Signal(Box::new(op)),
            ))
        });
        SendSignal {
            asked,
            guard: CallGuard::new(&self.shared),
        }
    }

    /// Offers a signal to whichever run waits longest, exactly once.
    pub fn offer<T: Serialize>(&self, signal: Signal<T>, value: &T) -> SendSignal {
        let asked = encode(value).map(|payload| {
            let op = Offer {
                namespace: self.shared.info.namespace.clone(),
                name: signal.name(),
                payload,
                key: None,
                claimant: None,
            };
            (
                Call::Offer {
                    signal: signal.name(),
                },
                Asked::Offer(Box::new(op)),
            )
        });
        SendSignal {
            asked,
            guard: CallGuard::new(&self.shared),
        }
    }

    pub(crate) fn start_of<I: Serialize, O>(
        &self,
        workflow: &Workflow<I, O>,
        input: &I,
    ) -> Result<Box<Start>, Failure> {
        encode(input).map(|input| {
            let namespace = self.shared.info.namespace.clone();
            let run = new_run();
            Box::new(new_start(
                namespace,
                run,
                (workflow.name(), workflow.exact_version()),
                input,
            ))
        })
    }
}

/// A plain start, to be filled in.
pub(crate) fn new_start(
    namespace: Name,
    run: RunId,
    (workflow, version): (Name, Option<u32>),
    input: Payload,
) -> Start {
    Start {
        namespace,
        run,
        workflow,
        version,
        key: None,
        input,
        labels: Vec::new(),
        priority: 0,
        at: None,
        parent: None,
        deadlines: Deadlines::default(),
        context: Flowing::default(),
        claimant: None,
        first: None,
        signal: None,
    }
}

fn with_key(
    start: Result<Box<Start>, Failure>,
    key: impl Into<Cow<'static, str>>,
) -> Result<Box<Start>, Failure> {
    let mut start = start?;
    start.key = Some(name(key)?);
    Ok(start)
}

impl<O> Child<O> {
    deadlines!();

    /// With this value in its context, beside those that this run has.
    pub fn context<T: Serialize>(mut self, key: Key<T>, value: &T) -> Self {
        self.start = self.start.and_then(|mut start| {
            start.context.take(&one_value(&key, value)?);
            Ok(start)
        });
        self
    }

    /// Under an id of the user's own. One that is in use fails the call at once.
    pub fn key(mut self, key: impl Into<Cow<'static, str>>) -> Self {
        let start = std::mem::replace(&mut self.start, Err(Failure::permanent("moved")));
        self.start = with_key(start, key);
        self
    }
}

impl Spawn {
    /// Not before this time, by the database's clock. A workflow that begins by spawning its
    /// successor runs periodically, whatever becomes of its own work.
    pub fn at(mut self, at: Timestamp) -> Self {
        if let Ok(start) = &mut self.start {
            start.at = Some(at);
        }
        self
    }

    /// Under an id of the user's own. The same request again gives the first run.
    pub fn key(mut self, key: impl Into<Cow<'static, str>>) -> Self {
        let start = std::mem::replace(&mut self.start, Err(Failure::permanent("moved")));
        self.start = with_key(start, key);
        self
    }
}

impl<O: DeserializeOwned> Future for Child<O> {
    type Output = Result<O, Failure>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let start = match &this.start {
            Ok(start) => start,
            Err(failure) => return Poll::Ready(Err(failure.clone())),
        };
        let asked = || {
            let what = Call::Child {
                workflow: start.workflow.clone(),
                run: start.run,
            };
            (what, Asked::Child(start.clone(), this.times))
        };
        this.guard.poll(context, asked).map(decode_outcome)
    }
}

impl Future for Spawn {
    type Output = Result<RunId, Failure>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let start = match &this.start {
            Ok(start) => start,
            Err(failure) => return Poll::Ready(Err(failure.clone())),
        };
        let asked = || {
            let what = Call::Spawn {
                workflow: start.workflow.clone(),
                run: start.run,
            };
            (what, Asked::Spawn(start.clone()))
        };
        this.guard.poll(context, asked).map(decode_outcome)
    }
}

impl Future for SendSignal {
    type Output = Result<Sent, Failure>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let asked = match &this.asked {
            Ok(asked) => asked,
            Err(failure) => return Poll::Ready(Err(failure.clone())),
        };
        this.guard
            .poll(context, || asked.clone())
            .map(decode_outcome)
    }
}
