//! What an operator does about something that is parked.

use roundel_core::{Destination, Op, Payload, Redirect, Refusal, Reply, RunId, Sent};
use roundel_store::{Answer, Query};

use super::{Client, To, TroubleId};
use crate::Error;

/// What to do about what is parked.
#[derive(Clone, Debug, PartialEq)]
pub enum Remedy {
    /// Try it again as it is; also a rollback that failed.
    Retry,
    /// Begin anew with this input.
    RetryWith(Payload),
    /// It will not be done: what it did before is undone.
    Cancel,
    /// It will not be done: what it did before stays.
    CancelWithoutUndo,
    /// It was done otherwise: this is the reply.
    Complete(Payload),
    /// Undo what it did.
    Undo,
    /// Of a rollback that failed: go on without the undo that failed.
    Skip,
    /// Of a rollback that failed: what is left of it stays.
    Accept,
    /// Of a signal: send it to this run.
    Replay(To),
    /// Of a signal: offer it to the run that waits longest for it.
    Offer,
    /// Of a signal: remove it.
    Discard,
}

impl Remedy {
    /// Is it one for signals? The others are for runs.
    #[must_use]
    pub fn is_for_signals(&self) -> bool {
        matches!(self, Remedy::Replay(_) | Remedy::Offer | Remedy::Discard)
    }
}

impl Client {
    /// Does this about something that is parked. Of several who do so at once, one does it, and the
    /// others are told that it is not parked.
    ///
    /// # Errors
    /// When there is no such thing, it is not parked, or that cannot be done about it.
    pub async fn remedy(&self, id: impl Into<TroubleId>, remedy: &Remedy) -> Result<(), Error> {
        let id = id.into();
        match (id, remedy.is_for_signals()) {
            (TroubleId::Run(run), false) => self.remedy_run(run, remedy).await,
            (TroubleId::Signal(run, number), true) => self.remedy_signal(run, number, remedy).await,
            (TroubleId::Run(run), true) => {
                let text = format!("run {run} is no signal; a signal is named as ID/NUMBER");
                Err(Error::Value(text))
            }
            (TroubleId::Signal(..), false) => {
                let text = format!("{id} is a signal: replay it, offer it, or discard it");
                Err(Error::Value(text))
            }
        }
    }

    async fn remedy_run(&self, run: RunId, remedy: &Remedy) -> Result<(), Error> {
        let client = self.if_parked();
        match remedy {
            Remedy::Retry => client.resume(run).await,
            Remedy::RetryWith(input) => client.resume_with_payload(run, input.clone()).await,
            Remedy::Cancel => client.cancel(run).await.map(drop),
            Remedy::CancelWithoutUndo => client.cancel_without_undo(run).await.map(drop),
            Remedy::Complete(value) => client.complete(run, value).await,
            Remedy::Undo => client.undo(run).await.map(drop),
            Remedy::Skip => client.resume_skipping(run).await,
            Remedy::Accept => client.accept(run).await,
            Remedy::Replay(_) | Remedy::Offer | Remedy::Discard => unreachable!("for signals"),
        }
    }

    async fn remedy_signal(&self, run: RunId, number: u64, remedy: &Remedy) -> Result<(), Error> {
        let to = match remedy {
            Remedy::Replay(to) => Destination::Run(to.clone().checked()?),
            Remedy::Offer => Destination::Offer,
            _ => Destination::Out,
        };
        let mail = Query::Mail(run, number.saturating_sub(1), 1);
        let Answer::Mail(mail) = self.inner.read(mail).await? else {
            unreachable!("messages were asked for")
        };
        let name = mail.into_iter().find(|(id, _)| id.number == number);
        let Some(name) = name.and_then(|(id, _)| id.name) else {
            return Err(Refusal::SignalNotParked { run, number }.into());
        };
        let redirect = Redirect {
            namespace: self.inner.namespace.clone(),
            run,
            name,
            number,
            to,
            claimant: self.inner.claimant(),
        };
        let Reply::Sent(sent, _) = self.act(Op::Redirect(redirect)).await? else {
            unreachable!("a signal answers as one")
        };
        match (sent, remedy) {
            (Sent::TargetUnknown, Remedy::Replay(to)) => Err(Error::NoSuchRun(to.to_string())),
            (Sent::TargetEnded(state), Remedy::Replay(to)) => {
                let state = state.as_str();
                let text = format!("run {to} is {state}: the signal stays parked; choose another");
                Err(Error::Value(text))
            }
            _ => Ok(()),
        }
    }
}
