//! What a workflow sets off together and waits for: publications, and many children at once. And
//! how that is rolled back.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

use roundel_core::{
    Call, Context as Flowing, Deadlines, Emitted, Failure, Name, Outcome, Payload, PublicationId,
    Publish as PublishOp, Remainder, RunId, RunState, Scope, ScopeEnd, Start,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::shared::{Asked, CallGuard};
use super::{Cx, Times, deadlines, decode, decode_outcome, encode, one_value};
use crate::ids::new_run;
use crate::live::Of;
use crate::{Key, Topic, Workflow};

/// How a run that was set off has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Ended {
    end: ScopeEnd,
}

impl Ended {
    /// Which run.
    #[must_use]
    pub fn run(&self) -> RunId {
        self.end.run
    }

    /// What ran.
    #[must_use]
    pub fn workflow(&self) -> &str {
        self.end.workflow.as_str()
    }

    /// How it ended.
    #[must_use]
    pub fn state(&self) -> RunState {
        self.end.state
    }

    /// What it returned.
    ///
    /// # Errors
    /// When it failed, with how; or when its result is not of this type.
    pub fn output<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        decode_outcome(self.end.outcome.clone())
    }

    /// What went wrong, if something did.
    #[must_use]
    pub fn failure(&self) -> Option<&Failure> {
        match &self.end.outcome {
            Outcome::Value(_) => None,
            Outcome::Failure(failure) => Some(failure),
        }
    }

    pub(crate) fn all(ends: Vec<ScopeEnd>) -> Vec<Ended> {
        ends.into_iter().map(|end| Ended { end }).collect()
    }
}

/// The runs that failed, if this failure says that some that were set off did.
#[must_use]
pub fn child_failures(failure: &Failure) -> Vec<Ended> {
    let data = failure
        .data
        .as_ref()
        .filter(|_| failure.code == CHILD_FAILED);
    let ends = data.and_then(|data| data.decode::<Vec<ScopeEnd>>().ok());
    let mut ends = ends.unwrap_or_default();
    // What the first failed with is told in full beside the list.
    if let (Some(first), Some(cause)) = (ends.first_mut(), &failure.cause) {
        first.outcome = Outcome::Failure(cause.clone());
    }
    Ended::all(ends)
}

/// How runs ended, without what the failures of runs below them say in turn. Those tell that
/// themselves; if each level told all that is below it, and its first cause once more, a failure
/// would double with each.
pub(crate) fn listed(ends: &[&ScopeEnd]) -> Vec<ScopeEnd> {
    let brief = |end: &&ScopeEnd| {
        let mut end = (*end).clone();
        if let Outcome::Failure(failure) = &mut end.outcome {
            **failure = brief(failure);
        }
        end
    };
    ends.iter().map(brief).collect()
}

/// A failure, up to where it tells of other runs.
pub(crate) fn brief(failure: &Failure) -> Failure {
    let of_others = [CHILD_FAILED, Remainder::CODE].contains(&failure.code.as_str());
    let mut brief = failure.clone();
    if of_others {
        brief.data = None;
    }
    let cause = failure.cause.as_deref().filter(|_| !of_others);
    brief.cause = cause.map(|cause| Box::new(self::brief(cause)));
    brief
}

const CHILD_FAILED: &str = "child_failed";

/// Did what the call set off exist, whatever became of it?
pub(crate) fn was_set_off(outcome: &Outcome) -> bool {
    let known = [CHILD_FAILED, DELETED, TOO_LARGE];
    match outcome {
        Outcome::Value(_) => true,
        Outcome::Failure(failure) => known.contains(&failure.code.as_str()),
    }
}

const DELETED: &str = "deleted";
pub(crate) const TOO_LARGE: &str = "too_large";

/// What a scope came to: how all of its runs ended, or a failure with those that failed.
pub(crate) fn scope_result(what: &Call, ends: &[ScopeEnd], failed_of: u32) -> Result<(), Failure> {
    let failed: Vec<&ScopeEnd> = ends
        .iter()
        .filter(|end| end.state != RunState::Completed)
        .collect();
    let Some(first) = failed.first() else {
        if failed_of == 0 {
            return Ok(());
        }
        let message = format!("{failed_of} of the runs that {what} set off are gone");
        return Err(Failure::business(message).with_code(DELETED));
    };
    let stuck = |end: &&&ScopeEnd| end.state == RunState::RollbackFailed;
    let stuck = failed.iter().filter(stuck).count();
    let mut message = format!(
        "{} of {} runs that {what} set off failed",
        failed.len(),
        ends.len()
    );
    if stuck > 0 {
        message.push_str(&format!(", {stuck} of them without undoing what they did"));
    }
    let failure = Failure::business(message)
        .with_code(CHILD_FAILED)
        .with_data(&listed(&failed));
    Err(match &first.outcome {
        Outcome::Failure(primary) => failure.caused_by((**primary).clone()),
        Outcome::Value(_) => failure,
    })
}

/// A publication, waited for.
#[must_use = "it does nothing unless awaited"]
pub struct Publish {
    publish: Result<Box<PublishOp>, Failure>,
    times: Times,
    guard: CallGuard,
}

impl std::fmt::Debug for Publish {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Publish({:?})", self.publish)
    }
}

/// Several child runs, waited for together.
#[must_use = "it does nothing unless awaited"]
pub struct Children<O> {
    starts: Result<(Name, Vec<Start>), Failure>,
    times: Times,
    guard: CallGuard,
    value: PhantomData<fn() -> O>,
}

impl<O> std::fmt::Debug for Children<O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let count = self.starts.as_ref().map(|(_, starts)| starts.len());
        write!(f, "Children({count:?})")
    }
}

/// A publication of this id, new unless somebody has it.
pub(crate) fn publication<T: Serialize>(
    namespace: Name,
    topic: Topic<T>,
    value: &T,
) -> Result<PublishOp, Failure> {
    Ok(PublishOp {
        namespace,
        id: PublicationId(new_run().0),
        topic: topic.name(),
        payload: encode(value)?,
        window: topic.open_for(),
        deadlines: Deadlines::default(),
        context: Flowing::default(),
    })
}

impl Cx {
    /// Publishes to a topic: every workflow that subscribes at this moment starts a run, as a
    /// child of this one. Returns when all of them have ended, and all that they set off.
    ///
    /// A failure says which of them failed ([`child_failures`]). Handle it and go on, or let it
    /// propagate: then everything before is undone, newest first.
    pub fn publish<T: Serialize>(&self, topic: Topic<T>, value: &T) -> Publish {
        let namespace = self.shared.info.namespace.clone();
        Publish {
            publish: publication(namespace, topic, value).map(Box::new),
            times: Times::default(),
            guard: CallGuard::new(&self.shared),
        }
    }

    /// Starts a child run for each input, and waits for all of them. Their results come in the
    /// order of the inputs.
    pub fn children<I: Serialize, O: DeserializeOwned>(
        &self,
        workflow: Workflow<I, O>,
        inputs: &[I],
    ) -> Children<O> {
        let starts = inputs.iter().map(|input| self.start_of(&workflow, input));
        let starts = starts.map(|start| start.map(|start| *start));
        let starts = starts.collect::<Result<Vec<Start>, Failure>>();
        Children {
            starts: starts.map(|starts| (workflow.name(), starts)),
            times: Times::default(),
            guard: CallGuard::new(&self.shared),
            value: PhantomData,
        }
    }

    /// How the runs ended that were set off by the last call that set some off and was waited for.
    #[must_use]
    pub fn ended(&self) -> Vec<Ended> {
        Ended::all(self.shared.lock().ended.clone())
    }

    /// What this execution has published so far, in order: by calls that have come back, and by
    /// steps.
    #[must_use]
    pub fn emitted(&self) -> Vec<Emitted> {
        self.shared.lock().published.clone()
    }

    /// What the last step came to whose runs ended, though one of them failed.
    pub(crate) fn value_of_failed<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        let value = self.shared.lock().ended_step.clone();
        decode(&value.unwrap_or_else(Payload::null))
    }

    /// Rolls back what an earlier call set off, and waits until that is done.
    pub(crate) async fn roll_back_scope(&self, of: Of, scope: Scope) -> Result<(), Failure> {
        let mut guard = CallGuard::new(&self.shared);
        let call = Call::RollBack {
            of: of.1,
            execution: self.earlier(of),
        };
        let asked = || (call.clone(), Asked::RollBack(scope));
        let outcome = std::future::poll_fn(|context| guard.poll(context, asked)).await;
        outcome.into_result().map(drop)
    }
}

impl Publish {
    deadlines!();

    /// With this value in the context of those that hear it, beside those that this run has.
    pub fn context<T: Serialize>(mut self, key: Key<T>, value: &T) -> Self {
        self.publish = self.publish.and_then(|mut publish| {
            publish.context.take(&one_value(&key, value)?);
            Ok(publish)
        });
        self
    }
}

impl<O> Children<O> {
    deadlines!();

    /// With this value in the context of each, beside those that this run has.
    pub fn context<T: Serialize>(mut self, key: Key<T>, value: &T) -> Self {
        self.starts = self.starts.and_then(|(workflow, mut starts)| {
            let value = one_value(&key, value)?;
            for start in &mut starts {
                start.context.take(&value);
            }
            Ok((workflow, starts))
        });
        self
    }
}

impl Future for Publish {
    type Output = Result<Vec<Ended>, Failure>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let publish = match &this.publish {
            Ok(publish) => publish,
            Err(failure) => return Poll::Ready(Err(failure.clone())),
        };
        let asked = || {
            let (topic, window) = (publish.topic.clone(), publish.window);
            let id = Some(publish.id);
            (
                Call::Publish { topic, window, id },
                Asked::Publish(publish.clone(), this.times),
            )
        };
        let polled = this.guard.poll(context, asked);
        polled.map(|outcome| Ok(Ended::all(decode(&outcome.into_result()?)?)))
    }
}

impl<O: DeserializeOwned> Future for Children<O> {
    type Output = Result<Vec<O>, Failure>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let (workflow, starts) = match &this.starts {
            Ok(starts) => starts,
            Err(failure) => return Poll::Ready(Err(failure.clone())),
        };
        let asked = || {
            let workflow = workflow.clone();
            let asked = Asked::Children(starts.clone(), this.times);
            (Call::Children { workflow }, asked)
        };
        let polled = this.guard.poll(context, asked);
        polled.map(|outcome| {
            let ends: Vec<ScopeEnd> = decode(&outcome.into_result()?)?;
            ends.into_iter()
                .map(|end| decode_outcome(end.outcome))
                .collect()
        })
    }
}

/// The value with which a call ends whose scope did: how each of its runs ended.
pub(crate) fn ends_value(ends: &[ScopeEnd]) -> Result<Payload, Failure> {
    encode(ends)
}
