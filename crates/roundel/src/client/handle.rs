//! A run, from outside: waiting for its result, whichever process works on it.

use std::marker::PhantomData;

use futures_util::FutureExt;
use roundel_core::{Outcome, RunId, RunState, Sent, Started, Target};
use roundel_store::{Answer, Query};
use serde::de::DeserializeOwned;

use super::{Client, Inner};
use crate::Error;
use crate::cx::decode;
use crate::rests::{Rest, Resting};

/// A run, to wait for its result.
pub struct Handle<O> {
    pub(super) client: Client,
    pub(super) run: RunId,
    pub(super) new: bool,
    pub(super) sent: Option<Sent>,
    pub(super) rest: Option<Resting>,
    pub(super) value: PhantomData<fn() -> O>,
}

impl<O> std::fmt::Debug for Handle<O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Handle({})", self.run)
    }
}

impl<O> Handle<O> {
    /// To what was started, with a place among those who wait for its rest.
    pub(super) fn of(client: Client, started: &Started, rest: Resting) -> Handle<O> {
        Handle {
            client,
            run: started.run,
            new: started.new,
            sent: started.sent,
            rest: started.new.then_some(rest),
            value: PhantomData,
        }
    }

    /// Which run.
    #[must_use]
    pub fn id(&self) -> RunId {
        self.run
    }

    /// Did this start make it, or did it exist under the key?
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.new
    }

    /// What became of the signal that the start came with, if it did.
    #[must_use]
    pub fn sent(&self) -> Option<Sent> {
        self.sent
    }
}

impl<O: DeserializeOwned> Handle<O> {
    /// Waits for the run's result, whichever process works on it.
    ///
    /// # Errors
    /// When the run ended with a failure, is parked, or was deleted.
    pub async fn result(&mut self) -> Result<O, Error> {
        let (state, outcome) = self.rest().await?;
        let run = self.run;
        match outcome {
            None => Err(Error::NoSuchRun(run.to_string())),
            Some(Outcome::Value(value)) => Ok(decode(&value)?),
            Some(Outcome::Failure(reason)) if state == RunState::Parked => {
                Err(Error::Parked { run, reason })
            }
            Some(Outcome::Failure(failure)) => Err(Error::Failed {
                run,
                state,
                failure,
            }),
        }
    }

    async fn rest(&mut self) -> Result<Rest, Error> {
        let inner = &self.client.inner;
        if self.rest.is_none() {
            self.rest = Some(inner.rests.await_rest(self.run));
            if let Some(rest) = look(inner, self.run).await? {
                self.rest = None;
                return Ok(rest);
            }
        }
        if inner.worker.is_none() {
            inner.post.store().watch_closely(true);
        }
        let rest = loop {
            let resting = self.rest.as_mut().expect("just made");
            let store = inner.post.store();
            let sweep = store.now().after(inner.sweep);
            let rest = tokio::select! {
                biased;
                rest = resting.next() => rest,
                () = store.clock().sleep_until(sweep) => None,
            };
            match rest {
                // The news may be old: a parked run can have been resumed since.
                Some((RunState::Parked, _)) => {
                    self.rest = Some(inner.rests.await_rest(self.run));
                }
                Some(rest) => break rest,
                None => {}
            }
            match look(inner, self.run).await {
                Ok(Some(rest)) => break rest,
                Ok(None) => {}
                // The last commit may have said so while this looked.
                Err(Error::Closed) => match told(&mut self.rest) {
                    Some(rest) => break rest,
                    None => return Err(Error::Closed),
                },
                Err(error) => return Err(error),
            }
        };
        self.rest = None;
        if inner.worker.is_none() && !inner.rests.anybody_waits() {
            inner.post.store().watch_closely(false);
        }
        Ok(rest)
    }
}

/// The rest that has been told of already, if one has.
fn told(resting: &mut Option<Resting>) -> Option<Rest> {
    resting.as_mut()?.next().now_or_never().flatten()
}

/// Has the run come to rest?
async fn look(inner: &Inner, run: RunId) -> Result<Option<Rest>, Error> {
    let query = Query::Run(inner.namespace.clone(), Target::Run(run));
    let Answer::Run(view) = inner.read(query).await? else {
        unreachable!("a run was asked for")
    };
    let Some(view) = view else {
        return Ok(Some((RunState::Cancelled, None)));
    };
    let (state, outcome) = (view.row.state, view.row.outcome);
    let rests = state.has_ended() || state == RunState::Parked;
    Ok(rests.then_some((state, outcome)))
}
