//! Facts: what happened, recorded once and for all, and folded into documents by
//! [projections](crate::Projection).

use std::borrow::Cow;
use std::future::{IntoFuture, Ready, ready};
use std::marker::PhantomData;

use roundel_core::{Failure, Name, NewFact};
use roundel_store::Tx;
use serde::Serialize;

use crate::cx::{encode, name, record_in_step};
use crate::ids::new_fact;
use crate::names::assert_name;

/// A kind of fact, with the type of what it says.
///
/// ```
/// use roundel::Fact;
/// const PAID: Fact<u64> = Fact::named("paid");
/// ```
pub struct Fact<T> {
    name: &'static str,
    pub(crate) version: u32,
    types: PhantomData<fn(T)>,
}

impl<T> Clone for Fact<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Fact<T> {}

impl<T> std::fmt::Debug for Fact<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Fact({})", self.name)
    }
}

impl<T> Fact<T> {
    /// The kind of fact of this name.
    #[must_use]
    pub const fn named(name: &'static str) -> Self {
        assert_name(name);
        Fact {
            name,
            version: 1,
            types: PhantomData,
        }
    }

    /// What it says has this version; 1 unless said.
    #[must_use]
    pub const fn version(self, version: u32) -> Self {
        Fact { version, ..self }
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> Name {
        Name::constant(self.name)
    }
}

impl<T: Serialize> Fact<T> {
    /// Records it as part of a step: with the step's own writes, or not at all. If a projection
    /// fails, so does the step.
    pub fn record(self, _tx: &Tx, says: &T) -> RecordInStep {
        RecordInStep(self.saying(says))
    }

    /// Such a fact, under an id of its own.
    pub(crate) fn saying(self, says: &T) -> Result<NewFact, Failure> {
        let id = new_fact();
        let fact = NewFact::new(id, self.name(), encode(says)?);
        Ok(NewFact {
            version: self.version,
            ..fact
        })
    }
}

/// A fact that a step records. Await it, in the step.
#[must_use = "it does nothing unless awaited"]
#[derive(Debug)]
pub struct RecordInStep(Result<NewFact, Failure>);

impl RecordInStep {
    /// Under this id: the same fact twice is one.
    pub fn id(self, id: impl Into<Cow<'static, str>>) -> Self {
        RecordInStep(self.0.and_then(|fact| {
            let id = name(id.into())?;
            Ok(NewFact { id, ..fact })
        }))
    }

    /// Counted in this stream.
    pub fn stream(self, stream: impl Into<Cow<'static, str>>) -> Self {
        RecordInStep(self.0.and_then(|fact| {
            let stream = Some(name(stream.into())?);
            Ok(NewFact { stream, ..fact })
        }))
    }

    /// Only if its stream has so many facts before it.
    pub fn expecting(self, facts: u64) -> Self {
        RecordInStep(self.0.map(|fact| NewFact {
            expected: Some(facts),
            ..fact
        }))
    }
}

impl IntoFuture for RecordInStep {
    type Output = Result<(), Failure>;
    type IntoFuture = Ready<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        ready(self.0.and_then(record_in_step))
    }
}
