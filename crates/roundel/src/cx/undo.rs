//! How what a call did is undone: what the workflow gave with the call, its types erased. It
//! outlives the function, so it owns what it needs; plain functions over what was recorded do.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use roundel_core::{Call, Failure, Name, Payload};
use roundel_store::Tx;
use serde::de::DeserializeOwned;

use super::effect::{Attempt, key_of};
use super::{Cx, decode};
use crate::live::{Of, Undoable};

type Undoing = Pin<Box<dyn Future<Output = Result<Payload, Failure>> + Send>>;

/// A handler.
#[derive(Clone)]
pub(crate) enum Handler {
    Step(Arc<dyn Fn(Tx, Payload) -> Undoing + Send + Sync>),
    Effect(Arc<dyn Fn(Attempt, Option<Payload>, String) -> Undoing + Send + Sync>),
}

/// An effect that began, as the handler that undoes it sees it.
#[derive(Clone, Debug)]
pub struct Begun<T> {
    key: String,
    value: Option<T>,
    attempt: Attempt,
}

impl<T> Begun<T> {
    /// The idempotency key under which it was called.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// What it came to; none if that is not known: it may have happened all the same.
    #[must_use]
    pub fn value(&self) -> Option<&T> {
        self.value.as_ref()
    }

    /// This attempt to undo it, with an idempotency key of its own.
    #[must_use]
    pub fn attempt(&self) -> &Attempt {
        &self.attempt
    }
}

impl Handler {
    pub(crate) fn of_step<T, F, Fut, E>(undo: F) -> Handler
    where
        T: DeserializeOwned,
        F: Fn(Tx, T) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<Failure>,
    {
        Handler::Step(Arc::new(move |tx, value| {
            let undoing = decode::<T>(&value).map(|value| undo(tx, value));
            Box::pin(async move {
                undoing?.await.map_err(Into::into)?;
                Ok(Payload::null())
            })
        }))
    }

    pub(crate) fn of_effect<T, F, Fut, E>(undo: F) -> Handler
    where
        T: DeserializeOwned,
        F: Fn(Begun<T>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<Failure>,
    {
        Handler::Effect(Arc::new(move |attempt, value, key| {
            let value = value.map(|value| decode::<T>(&value)).transpose();
            let begun = value.map(|value| Begun {
                key,
                value,
                attempt,
            });
            let undoing = begun.map(&undo);
            Box::pin(async move {
                undoing?.await.map_err(Into::into)?;
                Ok(Payload::null())
            })
        }))
    }
}

impl Cx {
    /// The execution of a call, if it is an earlier one.
    pub(super) fn earlier(&self, (execution, _): Of) -> Option<u32> {
        Some(execution).filter(|execution| *execution != self.shared.info.execution)
    }

    /// Undoes what a call did, in a step or an effect of its own.
    pub(crate) async fn undo_call(
        &self,
        (of, name): (Of, Name),
        undo: Undoable,
    ) -> Result<(), Failure> {
        let handler = self.shared.lock().undos.get(&of).cloned();
        let Some(handler) = handler else {
            let message = format!(
                "how `{name}` is undone is no longer in the code; restore it, then resume the run"
            );
            return Err(Failure::permanent(message).with_code("diverged"));
        };
        let call = Call::Undo {
            of: of.1,
            name,
            execution: self.earlier(of),
        };
        match handler {
            Handler::Step(handler) => {
                let value = undo.value.unwrap_or_else(Payload::null);
                let work = |tx: Tx| handler(tx, value.clone());
                self.step_of::<_, _, Payload, Failure>(Ok(call), work).await
            }
            Handler::Effect(handler) => {
                let key = key_of(&self.shared, of);
                let work = |attempt| handler(attempt, undo.value.clone(), key.clone());
                self.effect_of::<_, _, Payload, Failure>(Ok(call), work)
                    .await
            }
        }
        .map(drop)
    }
}
