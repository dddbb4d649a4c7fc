//! Sagas: workflows that are declared as a list of named steps, each with how it is undone and
//! what happens when what it set off fails. A saga is a function over [`Cx`] as any workflow is:
//! it is recorded, resumed and rolled back by the same rules.
//!
//! | a step says | what follows |
//! |---|---|
//! | go on | the next step; after the last, the saga is done |
//! | repeat | the same step, with a higher iteration |
//! | go to | the step of that name: ahead, back, or itself |

use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use roundel_core::{Failure, limits};
use roundel_store::Tx;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::cx::{Cx, Ended, child_failures};

type Working<T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + Send>>;
type Invoke<S> = Arc<dyn Fn(Tx, Visit<S>) -> Working<Next<S>> + Send + Sync>;
type Handle<S> = Arc<dyn Fn(Tx, Visit<S>, Vec<Ended>) -> Working<Next<S>> + Send + Sync>;
type UndoStep<S> = Arc<dyn Fn(Tx, S) -> Working<()> + Send + Sync>;

/// What every state of a saga can do: it is recorded with each step.
pub trait SagaState: Serialize + DeserializeOwned + Clone + Send + Sync + 'static {}
impl<S: Serialize + DeserializeOwned + Clone + Send + Sync + 'static> SagaState for S {}

/// A workflow that is declared as a list of steps.
///
/// Each step runs in the database's transaction, gets the state, and returns it with what comes
/// [next](Next). What it publishes is waited for before the next step.
///
/// ```
/// use roundel::{Failure, Next, Saga, Tx, Visit};
/// let saga = Saga::<Vec<String>>::new()
///     .step("pack", |_: Tx, visit: Visit<Vec<String>>| async move {
///         let mut parcel = visit.into_state();
///         parcel.push("a book".into());
///         Ok::<_, Failure>(Next::go_on(parcel))
///     })
///     .undo(|_: Tx, _parcel| async move { Ok::<_, Failure>(()) });
/// # let _ = saga.into_workflow();
/// ```
#[must_use = "it does nothing until it is registered"]
pub struct Saga<S> {
    steps: Vec<Declared<S>>,
    most: u32,
    wrong: Option<String>,
}

struct Declared<S> {
    name: Cow<'static, str>,
    invoke: Invoke<S>,
    undo: Option<UndoStep<S>>,
    on_child_failure: Option<Handle<S>>,
}

impl<S> std::fmt::Debug for Saga<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = self.steps.iter().map(|step| &step.name);
        f.debug_list().entries(names).finish()
    }
}

/// One visit of a step: the state as it stands, and how often the step has been reached.
#[derive(Clone, Debug)]
pub struct Visit<S> {
    state: S,
    iteration: u32,
}

impl<S> Visit<S> {
    /// The state.
    #[must_use]
    pub fn state(&self) -> &S {
        &self.state
    }

    /// The state, to be changed and returned.
    #[must_use]
    pub fn into_state(self) -> S {
        self.state
    }

    /// Which visit of this step it is, from 1. Where failures of children are handled: which time
    /// they are handled in this visit.
    #[must_use]
    pub fn iteration(&self) -> u32 {
        self.iteration
    }
}

/// What a step came to, and which step is next.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Next<S> {
    state: S,
    to: To,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum To {
    Following,
    Again,
    Step(String),
}

impl<S> Next<S> {
    /// The following step; after the last one, the saga is done.
    #[must_use]
    pub fn go_on(state: S) -> Next<S> {
        let to = To::Following;
        Next { state, to }
    }

    /// The same step again.
    #[must_use]
    pub fn repeat(state: S) -> Next<S> {
        let to = To::Again;
        Next { state, to }
    }

    /// The step of this name. If there is none, the step that asked for it fails.
    #[must_use]
    pub fn go_to(step: impl Into<String>, state: S) -> Next<S> {
        let to = To::Step(step.into());
        Next { state, to }
    }
}

impl<S: SagaState> Default for Saga<S> {
    fn default() -> Self {
        Saga::new()
    }
}

impl<S: SagaState> Saga<S> {
    /// One without steps.
    pub fn new() -> Saga<S> {
        Saga {
            steps: Vec::new(),
            most: limits::SAGA_VISITS,
            wrong: None,
        }
    }

    /// The next step of the list.
    pub fn step<F, Fut, E>(mut self, name: impl Into<Cow<'static, str>>, invoke: F) -> Self
    where
        F: Fn(Tx, Visit<S>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Next<S>, E>> + Send + 'static,
        E: Into<Failure>,
    {
        let name = name.into();
        if self.steps.iter().any(|step| step.name == name) {
            self.wrong = Some(format!(
                "a saga has two steps `{name}`; give one another name"
            ));
        }
        let invoke: Invoke<S> = Arc::new(move |tx, visit| {
            let working = invoke(tx, visit);
            Box::pin(async move { working.await.map_err(Into::into) })
        });
        self.steps.push(Declared {
            name,
            invoke,
            undo: None,
            on_child_failure: None,
        });
        self
    }

    /// How the last step so far is undone: once for each of its visits, with the state that it
    /// returned.
    pub fn undo<F, Fut, E>(mut self, undo: F) -> Self
    where
        F: Fn(Tx, S) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<Failure>,
    {
        let undo: UndoStep<S> = Arc::new(move |tx, state| {
            let working = undo(tx, state);
            Box::pin(async move { working.await.map_err(Into::into) })
        });
        if let Some(step) = self.last("undo") {
            step.undo = Some(undo);
        }
        self
    }

    /// What happens when runs that the last step so far has set off failed: it gets the state that
    /// the step returned, and those runs. It may publish again; that is waited for too, and its
    /// failures come here again. Without it, the saga fails, and is rolled back.
    pub fn on_child_failure<F, Fut, E>(mut self, handle: F) -> Self
    where
        F: Fn(Tx, Visit<S>, Vec<Ended>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Next<S>, E>> + Send + 'static,
        E: Into<Failure>,
    {
        let handle: Handle<S> = Arc::new(move |tx, visit, ended| {
            let working = handle(tx, visit, ended);
            Box::pin(async move { working.await.map_err(Into::into) })
        });
        if let Some(step) = self.last("on_child_failure") {
            step.on_child_failure = Some(handle);
        }
        self
    }

    /// How many visits there are at most, handling of failures included; 1,000 unless said. One
    /// more, and the saga is stopped: parked at the top of a tree, a failure below.
    pub fn at_most(mut self, visits: u32) -> Self {
        self.most = visits;
        self
    }

    fn last(&mut self, what: &str) -> Option<&mut Declared<S>> {
        if self.steps.is_empty() {
            self.wrong = Some(format!("`{what}` of a saga comes after the step it is for"));
        }
        self.steps.last_mut()
    }

    /// The function to register: from the first state to the last.
    pub fn into_workflow(self) -> impl Fn(Cx, S) -> Working<S> + Clone + Send + Sync + 'static {
        let saga = Arc::new(self);
        move |cx, state| {
            let saga = saga.clone();
            Box::pin(async move { saga.run(&cx, state).await })
        }
    }

    async fn run(&self, cx: &Cx, mut state: S) -> Result<S, Failure> {
        if let Some(wrong) = &self.wrong {
            return Err(Failure::permanent(wrong).with_code("bad_saga"));
        }
        let mut visits = Visits {
            of: vec![0; self.steps.len()],
            left: self.most,
        };
        let mut at = 0;
        while let Some(step) = self.steps.get(at) {
            visits.of[at] += 1;
            let iteration = visits.of[at];
            let visit = Visit { state, iteration };
            let next = self.visit((cx, step), visit, &mut visits).await?;
            state = next.state;
            at = match next.to {
                To::Following => at + 1,
                To::Again => at,
                To::Step(name) => self.place_of(&name)?,
            };
        }
        Ok(state)
    }

    /// One visit of a step, with all that it set off.
    async fn visit(
        &self,
        (cx, step): (&Cx, &Declared<S>),
        visit: Visit<S>,
        visits: &mut Visits,
    ) -> Result<Next<S>, Failure> {
        visits.count(self.most, &step.name)?;
        let invoke = |tx| self.checked((step.invoke)(tx, visit.clone()));
        let mut invoked = cx.step(step.name.clone(), invoke);
        if let Some(undo) = step.undo.clone() {
            invoked = invoked.undo(move |tx, next: Next<S>| undo(tx, next.state));
        }
        let mut failure = match invoked.await {
            Ok(next) => return Ok(next),
            Err(failure) => failure,
        };
        let Some(handle) = &step.on_child_failure else {
            return Err(failure);
        };
        for iteration in 1.. {
            let failed = child_failures(&failure);
            if failed.is_empty() {
                break;
            }
            visits.count(self.most, &step.name)?;
            let next: Next<S> = cx.value_of_failed()?;
            let state = next.state;
            let visit = Visit { state, iteration };
            let work = |tx| self.checked(handle(tx, visit.clone(), failed.clone()));
            let name = format!("{}: children failed", step.name);
            match cx.step(name, work).await {
                Ok(next) => return Ok(next),
                Err(again) => failure = again,
            }
        }
        Err(failure)
    }

    /// A step that wants to go where there is nothing has failed.
    async fn checked(&self, working: Working<Next<S>>) -> Result<Next<S>, Failure> {
        let next = working.await?;
        if let To::Step(name) = &next.to {
            self.place_of(name)?;
        }
        Ok(next)
    }

    fn place_of(&self, name: &str) -> Result<usize, Failure> {
        let place = self.steps.iter().position(|step| step.name == name);
        place.ok_or_else(|| {
            let names: Vec<&str> = self.steps.iter().map(|step| &*step.name).collect();
            let message = format!(
                "a step wants to go to `{name}`; the saga has {}",
                names.join(", ")
            );
            Failure::permanent(message).with_code("no_such_step")
        })
    }
}

/// How often each step was reached, and how many visits are left.
struct Visits {
    of: Vec<u32>,
    left: u32,
}

impl Visits {
    fn count(&mut self, most: u32, step: &str) -> Result<(), Failure> {
        let Some(left) = self.left.checked_sub(1) else {
            let message = format!(
                "the saga has made {most} visits and wants another of `{step}`; if that is no \
                 loop without end, allow more with `at_most`, then resume the run"
            );
            return Err(Failure::permanent(message).with_code("too_many_visits"));
        };
        self.left = left;
        Ok(())
    }
}
