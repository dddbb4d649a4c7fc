//! Commands: single pieces of work that are sent to a queue and answered once.
//!
//! A command is a run whose workflow has one call, so it has what runs have: a lease, a journal, a
//! place in lists and trees. Its queue is the workflow of the same name, its id the run's key
//! within that queue, its reply the run's outcome. What is its own: a failure that is not the
//! caller's business parks it, also where somebody waits for it, until an operator has decided.

use std::borrow::Cow;
use std::future::{Future, IntoFuture, Ready, ready};
use std::marker::PhantomData;
use std::pin::Pin;
use std::time::Duration;

use roundel_core::{Failure, Name, Payload, Retry, Start, Timestamp};
use roundel_store::Tx;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::cx::{
    Attempt, Child, Cx, Spawn, encode, name, new_start, send_in_step, with_alike, with_flow_key,
};
use crate::ids::new_run;
use crate::names::assert_name;
use crate::{By, Client, EngineBuilder, Error, Handle, StartRun, Workflow};

/// A command's name, which is also that of its queue, with the types of its payload and its reply.
///
/// ```
/// use roundel::{Command, Retry};
/// const CHARGE: Command<u64, String> = Command::named("charge").retry(Retry::exponential(8));
/// ```
pub struct Command<I, O> {
    name: &'static str,
    retry: Retry,
    attempt_timeout: Option<Duration>,
    types: PhantomData<fn(I) -> O>,
}

impl<I, O> Clone for Command<I, O> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<I, O> Copy for Command<I, O> {}

impl<I, O> std::fmt::Debug for Command<I, O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Command({})", self.name)
    }
}

impl<I, O> Command<I, O> {
    /// The command of this name. Its handler is tried five times unless said.
    #[must_use]
    pub const fn named(name: &'static str) -> Self {
        assert_name(name);
        Command {
            name,
            retry: Retry::exponential(5),
            attempt_timeout: None,
            types: PhantomData,
        }
    }

    /// How often its handler is tried, and with which pauses, before it is parked.
    #[must_use]
    pub const fn retry(self, retry: Retry) -> Self {
        Command { retry, ..self }
    }

    /// How long one attempt of its handler may take; as long as it likes unless said, for the lease
    /// is kept meanwhile. A handler in a step is bound by its transaction.
    #[must_use]
    pub const fn attempt_timeout(self, limit: Duration) -> Self {
        Command {
            attempt_timeout: Some(limit),
            ..self
        }
    }

    /// The name of its queue.
    pub(crate) fn queue(self) -> Name {
        self.workflow().name()
    }

    pub(crate) fn workflow(self) -> Workflow<I, O> {
        Workflow::named(self.name)
    }
}

/// The key of the run that is the command of this id: ids are the queue's own.
pub(crate) fn key_in(queue: &Name, id: &str) -> Cow<'static, str> {
    Cow::Owned(format!("{queue}:{id}"))
}

/// The name of the one call that a command's run makes.
const HANDLE: &str = "handle";

impl EngineBuilder {
    /// Handles this command by calling the outside: at least once, with an idempotency key. A
    /// business failure is the reply. Any other that is left after all attempts parks the command
    /// until an operator has decided.
    pub fn handle<I, O, F, Fut, E>(self, command: Command<I, O>, handler: F) -> Self
    where
        I: DeserializeOwned + Clone + Send + 'static,
        O: Serialize + DeserializeOwned + Send + 'static,
        F: Fn(Attempt, I) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
        E: Into<Failure> + 'static,
    {
        self.register(command.workflow(), handled(command, handler))
    }

    /// Handles this command in the database: exactly once, in the transaction that also ends it.
    pub fn handle_in_step<I, O, F, Fut, E>(self, command: Command<I, O>, handler: F) -> Self
    where
        I: DeserializeOwned + Clone + Send + 'static,
        O: Serialize + DeserializeOwned + Send + 'static,
        F: Fn(Tx, I) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
        E: Into<Failure> + 'static,
    {
        let retry = command.retry;
        self.register(command.workflow(), move |cx: Cx, payload: I| {
            let handler = handler.clone();
            async move {
                cx.parks();
                let work = move |tx| handler(tx, payload.clone());
                cx.step(HANDLE, work).retry(retry).await
            }
        })
    }
}

/// The workflow that handles this command by calling the outside.
pub(crate) fn handled<I, O, F, Fut, E>(
    command: Command<I, O>,
    handler: F,
) -> impl Fn(Cx, I) -> Boxed<Result<O, Failure>> + Send + Sync + 'static
where
    I: Clone + Send + 'static,
    O: Serialize + DeserializeOwned + Send + 'static,
    F: Fn(Attempt, I) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<O, E>> + Send + 'static,
    E: Into<Failure> + 'static,
{
    let (retry, limit) = (command.retry, command.attempt_timeout);
    move |cx: Cx, payload: I| {
        let handler = handler.clone();
        Box::pin(async move {
            cx.parks();
            let call = move |attempt| handler(attempt, payload.clone());
            let handled = cx.effect(HANDLE, call).retry(retry);
            match limit {
                Some(limit) => handled.attempt_timeout(limit).await,
                None => handled.await,
            }
        })
    }
}

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A command that a step sends. Await it, in the step.
#[must_use = "it does nothing unless awaited"]
#[derive(Debug)]
pub struct SendInStep {
    start: Result<Box<Start>, Failure>,
    begins: Option<By>,
}

impl<I: Serialize, O> Command<I, O> {
    /// Sends it as part of a step: it is sent if the step's own writes are committed, and else was
    /// never there. Under a [key](SendInStep::key) that was used with another payload the step
    /// fails, with the code `conflict`, and writes nothing.
    pub fn send(self, _tx: &Tx, payload: &I) -> SendInStep {
        let start = encode(payload).map(|payload| {
            // The step knows its namespace.
            let (namespace, what) = (Name::constant("default"), (self.workflow().name(), None));
            Box::new(new_start(namespace, new_run(), what, payload))
        });
        SendInStep {
            start,
            begins: None,
        }
    }
}

impl SendInStep {
    /// Under this id in its queue. Sent again with the same payload, it is the first.
    pub fn key(mut self, id: impl AsRef<str>) -> Self {
        self.start = self.start.and_then(|mut start| {
            start.key = Some(name(key_in(&start.workflow, id.as_ref()))?);
            Ok(start)
        });
        self
    }

    /// Not before this long from now.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.begins = Some(delay.into());
        self
    }

    /// Not before this time, by the database's clock.
    pub fn at(mut self, at: Timestamp) -> Self {
        self.begins = Some(at.into());
        self
    }

    /// On whose behalf: those of a queue take turns, and can be limited each.
    pub fn flow_key(mut self, key: impl Into<Cow<'static, str>>) -> Self {
        self.start = self.start.and_then(|start| with_flow_key(start, key));
        self
    }

    /// Only the first of those with this key in this time is sent, whatever the others are given.
    /// Not together with a [key](Self::key).
    pub fn dedupe(mut self, key: impl Into<Cow<'static, str>>, window: Duration) -> Self {
        let alike = |start| with_alike(start, (key, window), false);
        self.start = self.start.and_then(alike);
        self
    }

    /// Begins when no other with this key has come for this long: each takes the place of the one
    /// that waits, with its own payload. Not together with a [key](Self::key).
    pub fn debounce(mut self, key: impl Into<Cow<'static, str>>, quiet: Duration) -> Self {
        let alike = |start| with_alike(start, (key, quiet), true);
        self.start = self.start.and_then(alike);
        self
    }

    /// Lower is taken first; 0 unless said.
    pub fn priority(mut self, priority: i32) -> Self {
        if let Ok(start) = &mut self.start {
            start.priority = priority;
        }
        self
    }
}

impl IntoFuture for SendInStep {
    type Output = Result<(), Failure>;
    type IntoFuture = Ready<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        ready(
            self.start
                .and_then(|start| send_in_step(*start, self.begins)),
        )
    }
}

impl Client {
    /// Sends a command. Await it for a handle, and the handle for the reply. Under a
    /// [key](StartRun::key), which is the command's id in its queue, it is sent once: the same
    /// again gives the first, another payload is a conflict.
    pub fn send<I: Serialize, O>(&self, command: Command<I, O>, payload: &I) -> StartRun<O> {
        self.start(command.workflow(), payload).in_queue()
    }

    /// Sends a command by the name of its queue, with any JSON.
    pub fn send_named(&self, queue: Name, payload: Payload) -> StartRun<Payload> {
        self.start_named(queue, payload).in_queue()
    }

    /// The command that was sent under this id, to wait for its reply or to look at it.
    ///
    /// # Errors
    /// When there is none.
    pub async fn sent<I, O>(&self, command: Command<I, O>, id: &str) -> Result<Handle<O>, Error> {
        let workflow = command.workflow();
        let key = key_in(&workflow.name(), id);
        Client::handle(self, workflow, key.into_owned()).await
    }
}

impl Cx {
    /// Sends a command and waits for its reply. While the command is parked, this waits.
    pub fn call<I: Serialize, O: DeserializeOwned>(
        &self,
        command: Command<I, O>,
        payload: &I,
    ) -> Child<O> {
        self.child(command.workflow(), payload).in_queue()
    }

    /// Sends a command without waiting for its reply, and says which run it is.
    pub fn send<I: Serialize, O>(&self, command: Command<I, O>, payload: &I) -> Spawn {
        self.spawn(command.workflow(), payload).in_queue()
    }
}
