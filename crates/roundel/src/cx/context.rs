//! A run's context: values that flow down to the runs that it sets off, as they are at that moment.
//! What those change does not flow up. What a step sets is recorded with the step, and gone if the
//! step fails; what the function sets is recorded as any call of its is.

use roundel_core::{Call, Context, Failure, Name, Payload};
use roundel_store::Tx;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::records::Recorded;
use super::shared::{Asked, Inner};
use super::{Attempt, Cx, decode, encode, inside};
use crate::Key;

impl Cx {
    /// The value of a key; none if nobody above has set it.
    ///
    /// # Errors
    /// When it is not of this type.
    pub fn context<T: DeserializeOwned>(&self, key: Key<T>) -> Result<Option<T>, Failure> {
        self.shared.lock().context_of(&key)
    }

    /// Sets the value of a key for this run and all that it sets off from here on. Await it.
    pub fn set_context<T: Serialize>(&self, key: Key<T>, value: &T) -> Recorded<()> {
        let what = Call::Record {
            name: Name::constant("context"),
        };
        let change = self.shared.lock().context_with(&key, value);
        self.recorded(change.map(|change| (what, Asked::SetContext(change))))
    }
}

impl Attempt {
    /// The value of a key of the run's context; none if nobody above has set it.
    ///
    /// # Errors
    /// When it is not of this type.
    pub fn context<T: DeserializeOwned>(&self, key: Key<T>) -> Result<Option<T>, Failure> {
        self.shared().lock().context_of(&key)
    }
}

impl<T: DeserializeOwned> Key<T> {
    /// The value in the context of the run whose step this is.
    ///
    /// # Errors
    /// When it is not of this type, or no step runs here.
    pub fn get(&self, _tx: &Tx) -> Result<Option<T>, Failure> {
        inside::step("read the context")?.lock().context_of(self)
    }
}

impl<T: Serialize> Key<T> {
    /// Sets the value as part of a step: it is set if the step happens.
    ///
    /// # Errors
    /// When the value has no JSON form or is too large, or no step runs here.
    pub fn set(&self, _tx: &Tx, value: &T) -> Result<(), Failure> {
        let shared = inside::step("set the context")?;
        let mut inner = shared.lock();
        let change = inner.context_with(self, value)?;
        inner.step_context.take(&change);
        Ok(())
    }
}

impl Inner {
    /// The context, with what the step at hand has set.
    pub(crate) fn whole_context(&self) -> Context {
        let mut context = self.context.clone();
        context.take(&self.step_context);
        context
    }

    fn context_of<T: DeserializeOwned>(&self, key: &Key<T>) -> Result<Option<T>, Failure> {
        let name = key.name();
        let value = self.step_context.get(&name);
        let value = value.or_else(|| self.context.get(&name));
        value.map(decode).transpose()
    }

    /// This one value, if there is room for it.
    fn context_with<T: Serialize>(&self, key: &Key<T>, value: &T) -> Result<Context, Failure> {
        let change = one(key, value)?;
        let mut whole = self.whole_context();
        whole.take(&change);
        checked(&whole)?;
        Ok(change)
    }
}

/// A context of this one value.
pub(crate) fn one<T: Serialize>(key: &Key<T>, value: &T) -> Result<Context, Failure> {
    let value: Payload = encode(value)?;
    let mut context = Context::default();
    context.set(key.name(), value);
    Ok(context)
}

/// Within the limits?
fn checked(context: &Context) -> Result<(), Failure> {
    let too_large = |refusal| Failure::permanent(refusal).with_code("too_large");
    context.check().map_err(too_large)
}
