//! What a workflow sets off: child runs, runs of their own, signals, offers.

use std::borrow::Cow;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use roundel_core::{
    Call, Dedupe, Failure, Name, Offer, Payload, RunId, Sent, Signal as SignalOp, Start, Timestamp,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::shared::{Asked, CallGuard};
use super::{Cx, Times, deadlines, decode_outcome, encode, name, one_value};
use crate::command::key_in;
use crate::ids::new_run;
use crate::{Key, Signal, To, Workflow};

/// A child run, waited for.
#[must_use = "it does nothing unless awaited"]
pub struct Child<O> {
    start: Result<Box<Start>, Failure>,
    times: Times,
    guard: CallGuard,
    /// Keys are those of the workflow's own queue.
    in_queue: bool,
    value: PhantomData<fn() -> O>,
}

/// A run of its own, neither waited for nor undone.
#[must_use = "it does nothing unless awaited"]
pub struct Spawn {
    start: Result<Box<Start>, Failure>,
    times: Times,
    guard: CallGuard,
    in_queue: bool,
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
        Child::of(self, self.start_of(&workflow, input))
    }

    /// Starts a run of its own, and says which.
    pub fn spawn<I: Serialize, O>(&self, workflow: Workflow<I, O>, input: &I) -> Spawn {
        Spawn::of(self, self.start_of(&workflow, input))
    }

    /// Sends a signal to another run, exactly once, and says what became of it.
    pub fn signal<T: Serialize>(
        &self,
        to: impl Into<To>,
        signal: Signal<T>,
        value: &T,
    ) -> SendSignal {
        let asked = to.into().target().and_then(|target| {
            let (policy, expires) = signal.kept();
            let op = SignalOp {
                namespace: self.shared.info.namespace.clone(),
                target,
                name: signal.name(),
                payload: encode(value)?,
                policy,
                expires,
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
        version,
        ..Start::new(namespace, run, workflow, input)
    }
}

fn with_key(
    start: Result<Box<Start>, Failure>,
    key: impl Into<Cow<'static, str>>,
    in_queue: bool,
) -> Result<Box<Start>, Failure> {
    let mut start = start?;
    let key = key.into();
    start.key = Some(match in_queue {
        true => name(key_in(&start.workflow, &key))?,
        false => name(key)?,
    });
    Ok(start)
}

pub(crate) fn with_flow_key(
    mut start: Box<Start>,
    key: impl Into<Cow<'static, str>>,
) -> Result<Box<Start>, Failure> {
    start.flow_key = Some(name(key)?);
    Ok(start)
}

/// One of several that are alike, of which one is started.
pub(crate) fn with_alike(
    mut start: Box<Start>,
    (key, window): (impl Into<Cow<'static, str>>, Duration),
    last: bool,
) -> Result<Box<Start>, Failure> {
    let key = name(key)?;
    start.dedupe = Some(Dedupe { key, window, last });
    Ok(start)
}

impl<O> Child<O> {
    deadlines!();

    pub(crate) fn of(cx: &Cx, start: Result<Box<Start>, Failure>) -> Self {
        Child {
            start,
            times: Times::default(),
            guard: CallGuard::new(&cx.shared),
            in_queue: false,
            value: PhantomData,
        }
    }

    pub(crate) fn in_queue(mut self) -> Self {
        self.in_queue = true;
        self
    }

    /// On whose behalf: those of a queue take turns, and can be limited each.
    pub fn flow_key(mut self, key: impl Into<Cow<'static, str>>) -> Self {
        let start = std::mem::replace(&mut self.start, Err(Failure::permanent("moved")));
        self.start = start.and_then(|start| with_flow_key(start, key));
        self
    }

    /// Not before this long from now.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.times.begins = Some(delay.into());
        self
    }

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
        self.start = with_key(start, key, self.in_queue);
        self
    }
}

impl Spawn {
    pub(crate) fn of(cx: &Cx, start: Result<Box<Start>, Failure>) -> Self {
        Spawn {
            start,
            times: Times::default(),
            guard: CallGuard::new(&cx.shared),
            in_queue: false,
        }
    }

    pub(crate) fn in_queue(mut self) -> Self {
        self.in_queue = true;
        self
    }

    /// Not before this time, by the database's clock. A workflow that begins by spawning its
    /// successor runs periodically, whatever becomes of its own work.
    pub fn at(mut self, at: Timestamp) -> Self {
        self.times.begins = Some(at.into());
        self
    }

    /// On whose behalf: those of a queue take turns, and can be limited each.
    pub fn flow_key(mut self, key: impl Into<Cow<'static, str>>) -> Self {
        let start = std::mem::replace(&mut self.start, Err(Failure::permanent("moved")));
        self.start = start.and_then(|start| with_flow_key(start, key));
        self
    }

    /// Not before this long from now.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.times.begins = Some(delay.into());
        self
    }

    /// Only the first of those with this key in this time is started, whatever the others are
    /// given: the call answers with the first. Not together with a [key](Self::key).
    pub fn dedupe(self, key: impl Into<Cow<'static, str>>, window: Duration) -> Self {
        self.alike(key, window, false)
    }

    /// Begins when no other with this key has come for this long: each takes the place of the one
    /// before, which waits on with the new input. Not together with a [key](Self::key).
    pub fn debounce(self, key: impl Into<Cow<'static, str>>, quiet: Duration) -> Self {
        self.alike(key, quiet, true)
    }

    fn alike(mut self, key: impl Into<Cow<'static, str>>, window: Duration, last: bool) -> Self {
        let start = std::mem::replace(&mut self.start, Err(Failure::permanent("moved")));
        self.start = start.and_then(|start| with_alike(start, (key, window), last));
        self
    }

    /// Under an id of the user's own. The same request again gives the first run.
    pub fn key(mut self, key: impl Into<Cow<'static, str>>) -> Self {
        let start = std::mem::replace(&mut self.start, Err(Failure::permanent("moved")));
        self.start = with_key(start, key, self.in_queue);
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
            (what, Asked::Spawn(start.clone(), this.times))
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
