//! Asking the store, for one answer or many, each in its time.
//!
//! An answer may bring runs that are leased to this process from then on: they are taken over also
//! if nobody waits for it any more.

use std::future::Future;
use std::sync::Arc;

use roundel_core::{Op, Reply, Timestamp};
use roundel_store::{Answer, Answered, Ask, Query};
use tokio::sync::oneshot;

use super::Inner;
use crate::Error;
use crate::worker::Worker;

impl Inner {
    pub(super) async fn in_time<T>(
        &self,
        receiver: impl Future<Output = Result<T, oneshot::error::RecvError>>,
    ) -> Result<T, Error> {
        match tokio::time::timeout(self.answer_within, receiver).await {
            Ok(Ok(answered)) => Ok(answered),
            Ok(Err(_)) => Err(Error::Closed),
            Err(_) => Err(Error::Unknown(format!(
                "the database did not answer within {:?}; it may still happen: repeat with the \
                 same key to learn it",
                self.answer_within
            ))),
        }
    }

    pub(crate) async fn op(&self, op: Op) -> Result<Reply, Error> {
        let coming = self.ask_all(vec![Ask::Op(op)]).pop();
        self.reply(coming.expect("one answer")).await
    }

    /// Asks for these things, in this order.
    pub(super) fn ask_all(&self, asks: Vec<Ask>) -> Vec<Coming<'_>> {
        let coming = |receiver| Coming {
            worker: self.worker.as_ref(),
            receiver: Some(receiver),
        };
        let receivers = self.post.ask_all(asks);
        receivers.into_iter().map(coming).collect()
    }

    /// The reply, if it comes in time; with the runs that came with it taken over.
    pub(super) async fn reply(&self, mut coming: Coming<'_>) -> Result<Reply, Error> {
        let receiver = coming.receiver.as_mut().expect("just put there");
        let answered = self.in_time(receiver).await?;
        coming.receiver = None;
        if let (Err(roundel_store::Error::Unknown(_)), Some(worker)) =
            (&answered.result, &self.worker)
        {
            // It may have leased a run to this process, which comes back when that lease ends: a
            // claim says when.
            worker.claim_at(Timestamp(0));
        }
        let mut reply = answered.result?;
        if matches!(&reply, Reply::Started(started) if started.new) {
            self.counters.runs_started.one();
        }
        if let Some(worker) = &self.worker {
            take_over(worker, &mut reply);
        }
        Ok(reply)
    }

    pub(crate) async fn read(&self, query: Query) -> Result<Answer, Error> {
        self.read_in_time(self.post.store().read(query)).await
    }

    /// What the database answers, unless it does not in time.
    pub(super) async fn read_in_time<T>(
        &self,
        read: impl Future<Output = Result<T, roundel_store::Error>>,
    ) -> Result<T, Error> {
        match tokio::time::timeout(self.answer_within, read).await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(Error::Unavailable(
                "the database did not answer in time".into(),
            )),
        }
    }
}

/// A reply that is on its way. If nobody waits for it any more, the runs that come with it are
/// taken over all the same, or they would stand still until their leases end.
pub(super) struct Coming<'a> {
    worker: Option<&'a Arc<Worker>>,
    receiver: Option<oneshot::Receiver<Answered>>,
}

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        let (Some(worker), Some(receiver)) = (self.worker, self.receiver.take()) else {
            return;
        };
        let worker = worker.clone();
        worker.runtime.clone().spawn(async move {
            if let Ok(Answered {
                result: Ok(mut reply),
                ..
            }) = receiver.await
            {
                take_over(&worker, &mut reply);
            }
        });
    }
}

/// Takes over the runs that came with a reply.
fn take_over(worker: &Arc<Worker>, reply: &mut Reply) {
    match reply {
        Reply::Sent(_, claimed) | Reply::Cancelled(_, claimed) => {
            worker.adopt_all(std::mem::take(claimed));
        }
        Reply::Started(started) => worker.adopt_all(std::mem::take(&mut started.claimed)),
        _ => {}
    }
}
