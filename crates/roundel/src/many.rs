//! Handlers that take many commands in one call: one request to a service that takes lists, one
//! file for a thousand mails.
//!
//! Each command stays a run of its own, with its lease, its attempts and its reply; only the call
//! is shared. Commands that begin together, which is in one commit, come together; nobody waits for
//! more of them to come. Whoever is cancelled, or whose time is up, is no longer waited for; the
//! call goes on for the others.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use roundel_core::Failure;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;

use crate::command::handled;
use crate::cx::{Attempt, panicked};
use crate::{Command, EngineBuilder};

/// How often others are let go first, as long as more come.
const YIELDS: usize = 16;

/// A command that has begun, and where its reply goes.
type Begun<I, O> = (Attempt, I, oneshot::Sender<Result<O, Failure>>);

/// Commands that have begun and are in no call yet.
struct Gathering<I, O> {
    begun: Mutex<Vec<Begun<I, O>>>,
    most: usize,
}

impl EngineBuilder {
    /// Handles this command by calling the outside with many at once, up to `most` of them: those
    /// that have begun together. There is one answer for each, in the same order; a failure, or
    /// none, concerns that command alone, which is tried again or parked as if it had been called
    /// alone. As many are in hand at once as [`concurrency`](Self::concurrency) says.
    pub fn handle_many<I, O, F, Fut, E>(
        self,
        command: Command<I, O>,
        most: usize,
        handler: F,
    ) -> Self
    where
        I: DeserializeOwned + Clone + Send + 'static,
        O: Serialize + DeserializeOwned + Send + 'static,
        F: Fn(Vec<(Attempt, I)>) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Vec<Result<O, E>>> + Send + 'static,
        E: Into<Failure> + Send + 'static,
    {
        let gathering = Arc::new(Gathering {
            begun: Mutex::default(),
            most: most.max(1),
        });
        let one = move |attempt: Attempt, payload: I| {
            let (gathering, handler) = (gathering.clone(), handler.clone());
            async move {
                let reply = gathering.join(attempt, payload, handler);
                let lost = || Failure::transient("the call that it was part of has gone");
                reply.await.unwrap_or_else(|_| Err(lost()))
            }
        };
        self.register(command.workflow(), handled(command, one))
    }
}

impl<I: Send + 'static, O: Send + 'static> Gathering<I, O> {
    /// Waits for the next call with the others. The first sees to it that there is one.
    fn join<F, Fut, E>(
        self: &Arc<Self>,
        attempt: Attempt,
        payload: I,
        handler: F,
    ) -> oneshot::Receiver<Result<O, Failure>>
    where
        F: Fn(Vec<(Attempt, I)>) -> Fut + Send + 'static,
        Fut: Future<Output = Vec<Result<O, E>>> + Send + 'static,
        E: Into<Failure> + Send + 'static,
    {
        let (sender, reply) = oneshot::channel();
        let mut begun = self.lock();
        begun.push((attempt, payload, sender));
        let first = begun.len() % self.most == 1 || self.most == 1;
        drop(begun);
        if first {
            let gathering = self.clone();
            drop(tokio::spawn(async move {
                gathering.others_come().await;
                let begun = gathering.take();
                if !begun.is_empty() {
                    call(begun, handler).await;
                }
            }));
        }
        reply
    }

    /// Those that began in the same commit are polled meanwhile, on other threads too.
    async fn others_come(&self) {
        let mut before = 0;
        for _ in 0..YIELDS {
            tokio::task::yield_now().await;
            let there = self.lock().len();
            if there == before || there >= self.most {
                return;
            }
            before = there;
        }
    }

    /// Those that have waited longest.
    fn take(&self) -> Vec<Begun<I, O>> {
        let mut begun = self.lock();
        let count = begun.len().min(self.most);
        begun.drain(..count).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Begun<I, O>>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One call, and the replies that come of it.
async fn call<I, O, F, Fut, E>(begun: Vec<Begun<I, O>>, handler: F)
where
    F: Fn(Vec<(Attempt, I)>) -> Fut,
    Fut: Future<Output = Vec<Result<O, E>>>,
    E: Into<Failure>,
{
    let (commands, senders): (Vec<_>, Vec<_>) = begun
        .into_iter()
        .filter(|(.., sender)| !sender.is_closed())
        .map(|(attempt, payload, sender)| ((attempt, payload), sender))
        .unzip();
    let asked = commands.len();
    let called = AssertUnwindSafe(async move { handler(commands).await });
    let answers = match called.catch_unwind().await {
        Ok(answers) => answers,
        Err(panic) => {
            let failure = panicked(panic.as_ref());
            for sender in senders {
                let _ = sender.send(Err(failure.clone()));
            }
            return;
        }
    };
    let given = answers.len();
    let mut answers = answers.into_iter().filter(|_| given == asked);
    for sender in senders {
        let answer = match answers.next() {
            Some(answer) => answer.map_err(Into::into),
            None => Err(uneven(asked, given)),
        };
        let _ = sender.send(answer);
    }
}

/// Which answer belongs to which command cannot be known.
fn uneven(asked: usize, given: usize) -> Failure {
    let message = format!(
        "the handler was given {asked} commands and answered {given}; it must answer each, in \
         the same order"
    );
    Failure::permanent(message).with_code("answers")
}
