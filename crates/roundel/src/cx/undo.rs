//! How what a call did is undone: what the workflow gave with the call, or a function that is
//! registered under a name, its types erased. It outlives the workflow's function, so it owns what
//! it needs; plain functions over what was recorded do.

use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use roundel_core::mutant::{self, Mutant};
use roundel_core::{Call, Failure, Name, Payload, UndoBy};
use roundel_store::Tx;
use rustc_hash::FxHashMap;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::effect::{Attempt, key_of};
use super::shared::{Asked, CallGuard};
use super::{Cx, decode, encode, name};
use crate::Undo;
use crate::live::{Of, Undoable};

type Running = Pin<Box<dyn Future<Output = Result<Payload, Failure>> + Send>>;

/// A handler.
#[derive(Clone)]
pub(crate) enum Handler {
    Step(Arc<dyn Fn(Tx, Payload) -> Running + Send + Sync>),
    Effect(Arc<dyn Fn(Attempt, Before) -> Running + Send + Sync>),
}

/// The call that is undone.
#[derive(Clone)]
pub(crate) struct Before {
    key: String,
    value: Option<Payload>,
    /// What was recorded for a named undo.
    args: Payload,
}

/// Functions that undo, by name.
#[derive(Default)]
pub(crate) struct NamedUndos(pub(crate) FxHashMap<Name, Handler>);

impl std::fmt::Debug for NamedUndos {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
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

/// A call that is undone by name, as the function that does it outside the database sees it.
#[derive(Clone, Debug)]
pub struct Undoing<A> {
    args: A,
    key: String,
    value: Option<Payload>,
    attempt: Attempt,
}

impl<A> Undoing<A> {
    /// What was recorded for it when the call was made.
    #[must_use]
    pub fn args(&self) -> &A {
        &self.args
    }

    /// The idempotency key under which the call was made.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// What the call came to; none if that is not known: it may have happened all the same.
    ///
    /// # Errors
    /// When it is not of this type.
    pub fn value<T: DeserializeOwned>(&self) -> Result<Option<T>, Failure> {
        self.value.as_ref().map(decode).transpose()
    }

    /// This attempt to undo it, with an idempotency key of its own.
    #[must_use]
    pub fn attempt(&self) -> &Attempt {
        &self.attempt
    }
}

/// What a handler does, if it could be given what it wants.
fn running<Fut, E>(undoing: Result<Fut, Failure>) -> Running
where
    Fut: Future<Output = Result<(), E>> + Send + 'static,
    E: Into<Failure>,
{
    Box::pin(async move {
        undoing?.await.map_err(Into::into)?;
        Ok(Payload::null())
    })
}

impl Handler {
    pub(crate) fn of_named_effect<A, F, Fut, E>(undo: F) -> Handler
    where
        A: DeserializeOwned,
        F: Fn(Undoing<A>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<Failure>,
    {
        Handler::Effect(Arc::new(move |attempt, before| {
            let Before { key, value, args } = before;
            let undoing = decode::<A>(&args).map(|args| {
                undo(Undoing {
                    args,
                    key,
                    value,
                    attempt,
                })
            });
            running(undoing)
        }))
    }

    pub(crate) fn of_step<T, F, Fut, E>(undo: F) -> Handler
    where
        T: DeserializeOwned,
        F: Fn(Tx, T) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<Failure>,
    {
        Handler::Step(Arc::new(move |tx, value| {
            let undoing = decode::<T>(&value).map(|value| undo(tx, value));
            running(undoing)
        }))
    }

    pub(crate) fn of_effect<T, F, Fut, E>(undo: F) -> Handler
    where
        T: DeserializeOwned,
        F: Fn(Begun<T>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<Failure>,
    {
        Handler::Effect(Arc::new(move |attempt, before| {
            let Before { key, value, .. } = before;
            let value = value.map(|value| decode::<T>(&value)).transpose();
            let begun = value.map(|value| Begun {
                key,
                value,
                attempt,
            });
            let undoing = begun.map(&undo);
            running(undoing)
        }))
    }
}

/// The call, undone by a function that has a name.
pub(super) fn by_name<A: Serialize>(
    mut what: Call,
    by: Undo<A>,
    args: &A,
) -> Result<Call, Failure> {
    let named = UndoBy::Named(by.name(), encode(args)?);
    if let Call::Step { undo, .. } | Call::Effect { undo, .. } = &mut what {
        *undo = Some(Box::new(named));
    }
    Ok(what)
}

impl Cx {
    /// From now on, this is done in any case, once, in a step of its own: when this execution
    /// ends, after all that it set off; or, if the run fails, is cancelled or undone, when its
    /// rollback comes to this place.
    ///
    /// # Errors
    /// When the name is no name.
    pub async fn finally<F, Fut, E>(
        &self,
        name_of: impl Into<Cow<'static, str>>,
        work: F,
    ) -> Result<(), Failure>
    where
        F: Fn(Tx) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<Failure>,
    {
        let undo = Some(Box::new(UndoBy::Finally));
        let name = name(name_of)?;
        let handler = Handler::of_step(move |tx, (): ()| work(tx));
        let mut guard = CallGuard::new(&self.shared);
        let what = || (Call::Step { name, undo }, Asked::Record(Payload::null()));
        let mut what = Some(what);
        let outcome = std::future::poll_fn(|context| {
            let known = guard.number().is_some();
            let polled = guard.poll(context, || what.take().expect("asked once")());
            if let Some(call) = guard.number().filter(|_| !known) {
                let of = (self.shared.info.execution, call);
                let mut inner = self.shared.lock();
                inner.undos.insert(of, handler.clone());
                inner.finally = true;
            }
            polled
        });
        outcome.await.into_result().map(drop)
    }

    /// The execution of a call, if it is an earlier one.
    pub(super) fn earlier(&self, (execution, _): Of) -> Option<u32> {
        Some(execution).filter(|execution| *execution != self.shared.info.execution)
    }

    /// What undoes a call.
    ///
    /// # Errors
    /// When it is not known here.
    pub(crate) fn undo_of(
        &self,
        (of, name): (Of, &Name),
        by: &UndoBy,
        named: &NamedUndos,
    ) -> Result<Handler, Failure> {
        let (found, message) = match by {
            UndoBy::Code | UndoBy::Finally => {
                let found = self.shared.lock().undos.get(&of).cloned();
                let message =
                    format!("how `{name}` is undone is no longer in the code; restore it");
                (found, message)
            }
            UndoBy::Named(undo, _) => {
                let message = format!(
                    "`{name}` is undone by `{undo}`, which is not registered here; register it \
                     with `register_undo`"
                );
                (named.0.get(undo).cloned(), message)
            }
        };
        found.ok_or_else(|| {
            Failure::permanent(format!("{message}, then resume the run")).with_code("no_undo")
        })
    }

    /// Undoes what a call did, in a step or an effect of its own.
    pub(crate) async fn undo_call(
        &self,
        (of, name): (Of, Name),
        undo: Undoable,
        handler: Handler,
    ) -> Result<(), Failure> {
        let call = Call::Undo {
            of: of.1,
            name,
            execution: self.earlier(of),
        };
        let args = match undo.by {
            UndoBy::Named(_, args) => Some(args).filter(|_| !mutant::on(Mutant::UndoArgumentsLost)),
            UndoBy::Code | UndoBy::Finally => None,
        };
        match handler {
            Handler::Step(handler) => {
                let given = args.or(undo.value).unwrap_or_else(Payload::null);
                let work = |tx: Tx| handler(tx, given.clone());
                self.step_of::<_, _, Payload, Failure>(Ok(call), work).await
            }
            Handler::Effect(handler) => {
                let before = Before {
                    key: key_of(&self.shared, of),
                    value: undo.value,
                    args: args.unwrap_or_else(Payload::null),
                };
                let work = |attempt| handler(attempt, before.clone());
                self.effect_of::<_, _, Payload, Failure>(Ok(call), work)
                    .await
            }
        }
        .map(drop)
    }
}
