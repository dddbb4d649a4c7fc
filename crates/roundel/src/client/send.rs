//! Sending signals and offers from outside.

use std::borrow::Cow;
use std::future::IntoFuture;
use std::time::Duration;

use roundel_core::{Name, Offer, Op, Payload, Policy, Reply, Sent, Signal as SignalOp};
use serde::Serialize;

use super::{Boxed, Client, To};
use crate::cx::{encode, own};
use crate::{Error, Signal};

/// A signal or offer, to be awaited.
#[must_use = "it does nothing unless awaited"]
#[derive(Debug)]
pub struct SendTo {
    pub(super) client: Client,
    pub(super) op: Result<Op, Error>,
}

impl SendTo {
    /// Under this key: sending it again does nothing and gives the first answer.
    pub fn key(mut self, key: impl Into<Cow<'static, str>>) -> Self {
        let key = Name::new(key.into());
        self.op = self.op.and_then(|mut op| {
            match &mut op {
                Op::Signal(signal) => signal.key = Some(key?),
                Op::Offer(offer) => offer.key = Some(key?),
                _ => unreachable!("a signal or an offer"),
            }
            Ok(op)
        });
        self
    }

    /// As an operation, for a batch.
    ///
    /// # Errors
    /// When something about it is not valid.
    pub fn op(self) -> Result<Op, Error> {
        self.op
    }
}

impl Client {
    /// Sends a signal to a run.
    pub fn signal<T: Serialize>(&self, to: impl Into<To>, signal: Signal<T>, value: &T) -> SendTo {
        let payload = encode(value).map_err(Error::from);
        self.send_signal(to.into(), (signal.name(), signal.kept()), payload)
    }

    /// Sends a signal to a run by the signal's name, with any JSON.
    pub fn signal_named(&self, to: impl Into<To>, signal: Name, payload: Payload) -> SendTo {
        self.send_signal(
            to.into(),
            (signal, (Policy::Keep, None)),
            own(payload).map_err(Error::from),
        )
    }

    fn send_signal(
        &self,
        to: To,
        (name, (policy, expires)): (Name, (Policy, Option<Duration>)),
        payload: Result<Payload, Error>,
    ) -> SendTo {
        let op = to.checked().and_then(|target| {
            Ok(Op::Signal(SignalOp {
                namespace: self.inner.namespace.clone(),
                target,
                name,
                payload: payload?,
                policy,
                expires,
                key: None,
                claimant: self.inner.claimant(),
            }))
        });
        SendTo {
            client: self.clone(),
            op,
        }
    }

    /// Offers a signal to the run that waits longest for it; keeps it if none does.
    pub fn offer<T: Serialize>(&self, signal: Signal<T>, value: &T) -> SendTo {
        self.make_offer(signal.name(), encode(value).map_err(Error::from))
    }

    /// Offers a signal by its name, with any JSON.
    pub fn offer_named(&self, signal: Name, payload: Payload) -> SendTo {
        self.make_offer(signal, own(payload).map_err(Error::from))
    }

    fn make_offer(&self, name: Name, payload: Result<Payload, Error>) -> SendTo {
        let op = payload.map(|payload| {
            Op::Offer(Offer {
                namespace: self.inner.namespace.clone(),
                name,
                payload,
                key: None,
                claimant: self.inner.claimant(),
            })
        });
        SendTo {
            client: self.clone(),
            op,
        }
    }
}

impl IntoFuture for SendTo {
    type Output = Result<Sent, Error>;
    type IntoFuture = Boxed<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            match self.client.act(self.op?).await? {
                Reply::Sent(sent, _) => Ok(sent),
                _ => unreachable!("a signal answers as one"),
            }
        })
    }
}
