//! What a workflow's function is given: `Cx`, and the durable calls it makes.
//!
//! Every call here is recorded in the journal and found again in replay. Between calls a workflow
//! must do the same each time: no clocks, no randomness, no I/O of its own.

mod causes;
mod context;
mod effect;
mod inside;
mod records;
mod resource;
mod scopes;
pub(crate) mod shared;
mod step;
mod times;
mod undo;
mod waits;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use roundel_core::{Failure, Name, Outcome, Payload, RunId, SEALED, limits};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use causes::{Child, SendSignal, Spawn};
pub(crate) use causes::{new_start, with_alike, with_flow_key};
pub(crate) use context::one as one_value;
pub(crate) use effect::panicked;
pub use effect::{Attempt, Effect};
pub(crate) use inside::{emit, record as record_in_step, send as send_in_step};
pub use records::Recorded;
pub(crate) use records::random;
pub use resource::Resource;
pub use scopes::{Children, Ended, Publish, child_failures};
pub(crate) use scopes::{
    TOO_LARGE, brief, ends_value, listed, publication, scope_result, was_set_off,
};
pub use step::Step;
pub use times::By;
pub(crate) use times::{Times, deadlines};
pub use undo::{Begun, Undoing};
pub(crate) use undo::{Handler as UndoHandler, NamedUndos};
pub use waits::{Sleep, Wait, WaitForRun, WaitUntil};

use crate::live::Anew;
use shared::Shared;

/// A workflow's view of its own run. Cheap to clone.
#[derive(Clone)]
pub struct Cx {
    pub(crate) shared: Arc<Shared>,
}

impl std::fmt::Debug for Cx {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cx({})", self.shared.info.run)
    }
}

impl Cx {
    /// A failure that is not business parks this run, also if it has a parent.
    pub(crate) fn parks(&self) {
        self.shared.lock().parks = true;
    }

    /// This run.
    #[must_use]
    pub fn run(&self) -> RunId {
        self.shared.info.run
    }

    /// The user's own id for it.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.shared.info.key.as_ref().map(Name::as_str)
    }

    /// The tenant.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.shared.info.namespace.as_str()
    }

    /// The version it is pinned to.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.shared.info.version
    }

    /// Counts `continue_as_new`, from 1.
    #[must_use]
    pub fn execution(&self) -> u32 {
        self.shared.info.execution
    }

    /// Is the function being run over what has already happened? For logging only: what a
    /// workflow does must not depend on it.
    #[must_use]
    pub fn is_replaying(&self) -> bool {
        self.shared.lock().replaying
    }

    /// Ends this execution and begins anew with this input and an empty journal, in one commit.
    /// Unread signals, parent, key and state stay. Never returns.
    ///
    /// What this execution did is still undone if a later one fails, unless it is declared
    /// [`settled`](ContinueAsNew::settled).
    pub fn continue_as_new<I: Serialize, O>(&self, input: &I) -> ContinueAsNew<O> {
        ContinueAsNew {
            cx: self.clone(),
            with: encode(input),
            version: None,
            settled: false,
            never: Never::new(),
        }
    }
}

type Never<O> = std::marker::PhantomData<fn() -> O>;

trait NewNever {
    fn new() -> Self;
}

impl<O> NewNever for Never<O> {
    fn new() -> Self {
        std::marker::PhantomData
    }
}

/// The end of this execution and the beginning of the next.
#[must_use = "it does nothing unless awaited"]
pub struct ContinueAsNew<O> {
    cx: Cx,
    with: Result<Payload, Failure>,
    version: Option<u32>,
    settled: bool,
    never: Never<O>,
}

impl<O> ContinueAsNew<O> {
    /// In this version of the workflow.
    pub fn version(mut self, version: u32) -> Self {
        self.version = Some(version);
        self
    }

    /// What the run did so far stands: a later failure, a cancel or an undo does not reach it.
    /// Say so where a loop has finished a piece of work; or what could be undone grows with it.
    pub fn settled(mut self) -> Self {
        self.settled = true;
        self
    }
}

impl<O> std::fmt::Debug for ContinueAsNew<O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ContinueAsNew")
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

impl<O> Future for ContinueAsNew<O> {
    type Output = Result<O, Failure>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let _ = self.never;
        match &self.with {
            Ok(input) => {
                self.cx.shared.lock().continue_with = Some(Anew {
                    input: input.clone(),
                    version: self.version,
                    settled: self.settled,
                });
                Poll::Pending
            }
            Err(failure) => Poll::Ready(Err(failure.clone())),
        }
    }
}

/// A value as it is recorded, within the limit.
pub(crate) fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Payload, Failure> {
    let payload = Payload::encode(value).map_err(|error| {
        Failure::permanent(format!("a value has no JSON form: {error}")).with_code("unencodable")
    })?;
    if payload.size() > limits::PAYLOAD_BYTES {
        let (limit, found) = (limits::PAYLOAD_BYTES, payload.size());
        let message = format!(
            "a value has {found} bytes as JSON; at most {limit} are allowed; store a reference"
        );
        return Err(Failure::permanent(message).with_code("too_large"));
    }
    own(payload)
}

/// A value of a user's own. What is sealed is known by how it begins: if another might begin so,
/// whoever sends it could have a run wait for a key that is nowhere.
pub(crate) fn own(payload: Payload) -> Result<Payload, Failure> {
    match payload.sealed() {
        Some(_) => Err(looks_sealed()),
        None => Ok(payload),
    }
}

/// The same of a run's state, or a change of it, whose members are sealed one by one.
pub(crate) fn own_state(payload: Payload) -> Result<Payload, Failure> {
    match payload.holds_sealed() {
        true => Err(looks_sealed()),
        false => Ok(payload),
    }
}

fn looks_sealed() -> Failure {
    let message = format!(
        "a value begins with `{SEALED}`, as only what is sealed does; put something before it"
    );
    Failure::permanent(message).with_code("looks_sealed")
}

/// The code of a failure to read what was recorded.
pub(crate) const UNDECODABLE: &str = "undecodable";

/// A recorded value, as its type.
pub(crate) fn decode<T: DeserializeOwned>(payload: &Payload) -> Result<T, Failure> {
    if let Some(sealed) = payload.sealed() {
        return Err(unopened(sealed));
    }
    payload.decode().map_err(|error| {
        let wanted = std::any::type_name::<T>();
        let why = without_value(&error.to_string());
        Failure::permanent(format!("a recorded value does not fit `{wanted}`: {why}"))
            .with_code(UNDECODABLE)
    })
}

/// What is told instead of a value that is sealed.
pub(crate) fn unopened(sealed: &str) -> Failure {
    let name = crate::seal::key_of(sealed);
    Failure::permanent(format!(
        "a value is sealed with the key `{name}` and does not open here; give this process the \
         file that has the key, by `--key-file` or `EngineBuilder::sealed`; if it has the key, \
         the value was changed or moved in the database"
    ))
    .with_code("sealed")
}

/// What was expected where, without what was found there: failures are told in more places than
/// payloads are.
fn without_value(error: &str) -> String {
    match error.rfind(", expected ") {
        Some(at) => error[at + 2..].to_owned(),
        None => error.to_owned(),
    }
}

pub(crate) fn decode_outcome<T: DeserializeOwned>(outcome: Outcome) -> Result<T, Failure> {
    outcome.into_result().and_then(|payload| decode(&payload))
}

pub(crate) fn name(text: impl Into<std::borrow::Cow<'static, str>>) -> Result<Name, Failure> {
    Name::new(text).map_err(|error| Failure::permanent(error).with_code("bad_name"))
}
