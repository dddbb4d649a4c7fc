//! Sending signals and offers from outside.

use std::borrow::Cow;
use std::future::IntoFuture;

use roundel_core::{Name, Op, Reply, Sent};

use super::{Boxed, Client};
use crate::Error;

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

impl IntoFuture for SendTo {
    type Output = Result<Sent, Error>;
    type IntoFuture = Boxed<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            match self.client.inner.op(self.op?).await? {
                Reply::Sent(sent, _) => Ok(sent),
                _ => unreachable!("a signal answers as one"),
            }
        })
    }
}
