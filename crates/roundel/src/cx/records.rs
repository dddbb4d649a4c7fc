//! Recorded side values: the time, ids, randomness, and the run's own state.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

use roundel_core::{Call, Failure, Name, RunId, StateChange, Timestamp};
use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use super::shared::{Asked, CallGuard, Shared};
use super::{Cx, decode_outcome, encode, own_state};

/// A random number. Six bits of a random id are fixed; no bit of this is.
pub(crate) fn random(shared: &Shared) -> u64 {
    shared.seeded().unwrap_or_else(|| {
        let (first, second) = Uuid::new_v4().as_u64_pair();
        first ^ second.rotate_left(20)
    })
}

fn new_uuid(shared: &Shared) -> Uuid {
    match shared.seeded().zip(shared.seeded()) {
        Some((high, low)) => {
            let bytes = Uuid::from_u64_pair(high, low).into_bytes();
            uuid::Builder::from_random_bytes(bytes).into_uuid()
        }
        None => Uuid::now_v7(),
    }
}

/// A value that is recorded once and the same ever after.
#[must_use = "it does nothing unless awaited"]
pub struct Recorded<T> {
    asked: Result<(Call, Asked), Failure>,
    guard: CallGuard,
    value: PhantomData<fn() -> T>,
}

impl<T> std::fmt::Debug for Recorded<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Recorded({:?})", self.asked)
    }
}

impl<T> Unpin for Recorded<T> {}

impl Cx {
    pub(super) fn recorded<T>(&self, asked: Result<(Call, Asked), Failure>) -> Recorded<T> {
        Recorded {
            asked,
            guard: CallGuard::new(&self.shared),
            value: PhantomData,
        }
    }

    fn side_value<T: Serialize>(&self, name: &'static str, value: &T) -> Recorded<T> {
        let what = Call::Record {
            name: Name::constant(name),
        };
        self.recorded(encode(value).map(|payload| (what, Asked::Record(payload))))
    }

    /// The time, by the store's clock, which is also that of timers.
    pub fn now(&self) -> Recorded<Timestamp> {
        let what = Call::Record {
            name: Name::constant("now"),
        };
        self.recorded(Ok((what, Asked::Now)))
    }

    /// A new id.
    pub fn uuid(&self) -> Recorded<Uuid> {
        self.side_value("uuid", &new_uuid(&self.shared))
    }

    /// A random number. For more of them, seed a generator with it.
    pub fn random(&self) -> Recorded<u64> {
        self.side_value("random", &random(&self.shared))
    }

    /// The run's own state, as others may have patched it; none if it was never set.
    pub fn state<T: DeserializeOwned>(&self) -> Recorded<Option<T>> {
        let what = Call::State {
            name: Name::constant("read"),
        };
        self.recorded(Ok((what, Asked::ReadState)))
    }

    /// The runs above this one, from the root down, and this one last.
    pub fn lineage(&self) -> Recorded<Vec<RunId>> {
        let what = Call::Record {
            name: Name::constant("lineage"),
        };
        self.recorded(Ok((what, Asked::ReadLineage)))
    }

    /// Replaces the run's own state, which others can read.
    pub fn set_state<T: Serialize>(&self, value: &T) -> Recorded<()> {
        self.change_state(
            "set",
            encode(value).and_then(own_state).map(StateChange::Set),
        )
    }

    /// Merges a patch (RFC 7396) into the run's own state.
    pub fn merge_state<T: Serialize>(&self, patch: &T) -> Recorded<()> {
        self.change_state(
            "merge",
            encode(patch).and_then(own_state).map(StateChange::Merge),
        )
    }

    fn change_state(
        &self,
        name: &'static str,
        change: Result<StateChange, Failure>,
    ) -> Recorded<()> {
        let what = Call::State {
            name: Name::constant(name),
        };
        self.recorded(change.map(|change| (what, Asked::Change(change))))
    }
}

impl<T: DeserializeOwned> Future for Recorded<T> {
    type Output = Result<T, Failure>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let asked = match &this.asked {
            Ok(asked) => asked,
            Err(failure) => return Poll::Ready(Err(failure.clone())),
        };
        this.guard
            .poll(context, || asked.clone())
            .map(decode_outcome)
    }
}
