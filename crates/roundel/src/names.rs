//! Typed names: constants that tie a workflow or a signal to its types. A bad one does not compile.

use std::marker::PhantomData;
use std::time::Duration;

use roundel_core::{Failure, Name, Policy};
use roundel_store::Tx;
use serde::Serialize;

/// A workflow's name, with the types of its input and output.
///
/// ```
/// use roundel::Workflow;
/// const GREET: Workflow<String, usize> = Workflow::named("greet");
/// const GREET_2: Workflow<String, usize> = Workflow::named("greet").version(2);
/// ```
pub struct Workflow<I, O> {
    name: &'static str,
    version: Option<u32>,
    when_late: WhenLate,
    types: PhantomData<fn(I) -> O>,
}

/// What becomes of a run that misses its forward deadline.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum WhenLate {
    /// What it did is undone.
    #[default]
    RollBack,
    /// It fails, and what it did stays.
    Fail,
    /// It waits for an operator.
    Park,
}

impl<I, O> Clone for Workflow<I, O> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<I, O> Copy for Workflow<I, O> {}

impl<I, O> std::fmt::Debug for Workflow<I, O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Workflow({}, {:?})", self.name, self.version)
    }
}

impl<I, O> Workflow<I, O> {
    /// The workflow of this name: registered as version 1, started in its latest version.
    #[must_use]
    pub const fn named(name: &'static str) -> Self {
        assert_name(name);
        Workflow {
            name,
            version: None,
            when_late: WhenLate::RollBack,
            types: PhantomData,
        }
    }

    /// Exactly this version.
    #[must_use]
    pub const fn version(self, version: u32) -> Self {
        Workflow {
            version: Some(version),
            ..self
        }
    }

    /// Runs that miss their forward deadline are parked, instead of undoing what they did: an
    /// operator lets them go on, without that deadline, or ends them. What is below them has the
    /// same deadline, and does as its own workflow says. Said where the workflow is registered.
    #[must_use]
    pub const fn parked_when_late(self) -> Self {
        Workflow {
            when_late: WhenLate::Park,
            ..self
        }
    }

    /// Runs that miss their forward deadline fail without undoing what they did; what is below them
    /// and has not ended is cancelled without undo. Said where the workflow is registered.
    #[must_use]
    pub const fn failed_when_late(self) -> Self {
        Workflow {
            when_late: WhenLate::Fail,
            ..self
        }
    }

    pub(crate) fn when_late(&self) -> WhenLate {
        self.when_late
    }

    pub(crate) fn name(&self) -> Name {
        Name::constant(self.name)
    }

    pub(crate) fn exact_version(&self) -> Option<u32> {
        self.version
    }
}

/// A signal's name, with the type of its value and what happens when nobody waits for it.
pub struct Signal<T> {
    name: &'static str,
    offerable: bool,
    policy: Policy,
    expires: Option<Duration>,
    types: PhantomData<fn(T)>,
}

impl<T> Clone for Signal<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Signal<T> {}

impl<T> std::fmt::Debug for Signal<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Signal({})", self.name)
    }
}

impl<T> Signal<T> {
    /// The signal of this name: kept for the run until it waits for it. If the run ends without
    /// it, it is parked: an operator removes it, or passes it on.
    #[must_use]
    pub const fn named(name: &'static str) -> Self {
        assert_name(name);
        assert!(!is_engines_own(name), "this signal is the engine's own");
        Signal {
            name,
            offerable: false,
            policy: Policy::Keep,
            expires: None,
            types: PhantomData,
        }
    }

    /// May also be offered, to whichever run waits longest.
    #[must_use]
    pub const fn offerable(self) -> Self {
        Signal {
            offerable: true,
            ..self
        }
    }

    /// Dropped when the run does not wait for it; the sender is told.
    #[must_use]
    pub const fn dropped_unless_awaited(self) -> Self {
        Signal {
            policy: Policy::Drop,
            ..self
        }
    }

    /// If the run ends without it, it goes.
    #[must_use]
    pub const fn discarded_unless_read(self) -> Self {
        Signal {
            policy: Policy::Discard,
            ..self
        }
    }

    /// If the run ends without it, it is offered to others.
    #[must_use]
    pub const fn offered_unless_read(self) -> Self {
        Signal {
            policy: Policy::Offer,
            ..self
        }
    }

    /// Sent to a run, it is kept for this long at most: after that it is as if it had never been
    /// sent. What a run waits for when it comes is delivered at once.
    #[must_use]
    pub const fn expires_after(self, after: Duration) -> Self {
        Signal {
            expires: Some(after),
            ..self
        }
    }

    pub(crate) fn name(&self) -> Name {
        Name::constant(self.name)
    }

    pub(crate) fn is_offerable(&self) -> bool {
        self.offerable
    }

    /// What becomes of it when nobody waits for it, and after how long it expires.
    pub(crate) fn kept(&self) -> (Policy, Option<Duration>) {
        (self.policy, self.expires)
    }
}

/// A topic's name, with the type of what is published there.
///
/// ```
/// use roundel::Topic;
/// const PARCELS: Topic<String> = Topic::named("parcels");
/// ```
pub struct Topic<T> {
    name: &'static str,
    window: Option<Duration>,
    types: PhantomData<fn(T)>,
}

impl<T> Clone for Topic<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Topic<T> {}

impl<T> std::fmt::Debug for Topic<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Topic({})", self.name)
    }
}

impl<T> Topic<T> {
    /// The topic of this name.
    #[must_use]
    pub const fn named(name: &'static str) -> Self {
        assert_name(name);
        Topic {
            name,
            window: None,
            types: PhantomData,
        }
    }

    /// Whoever publishes waits for this long, and then for all that started in it: also for
    /// workflows that subscribe meanwhile. For services that are not known when it is published.
    #[must_use]
    pub const fn window(self, window: Duration) -> Self {
        Topic {
            window: Some(window),
            ..self
        }
    }

    pub(crate) fn open_for(&self) -> Option<Duration> {
        self.window
    }

    pub(crate) fn name(&self) -> Name {
        Name::constant(self.name)
    }
}

/// The name of a function that undoes, with the type of the arguments that are recorded for it.
///
/// ```
/// use roundel::Undo;
/// const REFUND: Undo<u64> = Undo::named("refund");
/// ```
pub struct Undo<A> {
    name: &'static str,
    types: PhantomData<fn(A)>,
}

impl<A> Clone for Undo<A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A> Copy for Undo<A> {}

impl<A> std::fmt::Debug for Undo<A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Undo({})", self.name)
    }
}

impl<A> Undo<A> {
    /// The undo of this name.
    #[must_use]
    pub const fn named(name: &'static str) -> Self {
        assert_name(name);
        let types = PhantomData;
        Undo { name, types }
    }

    pub(crate) fn name(&self) -> Name {
        Name::constant(self.name)
    }
}

impl<T: Serialize> Topic<T> {
    /// Publishes as part of a step: it happens if the step does. The step's await returns when all
    /// that it set off has ended.
    ///
    /// # Errors
    /// When the value has no JSON form or is too large, or no step runs here.
    pub fn publish(&self, _tx: &Tx, value: &T) -> Result<(), Failure> {
        crate::cx::emit(*self, value)
    }
}

/// The key of a value in a run's context, with its type. The context flows down to all that a run
/// sets off, as it is at that moment.
///
/// ```
/// use roundel::Key;
/// const TENANT: Key<String> = Key::named("tenant");
/// ```
pub struct Key<T> {
    name: &'static str,
    types: PhantomData<fn(T) -> T>,
}

impl<T> Clone for Key<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Key<T> {}

impl<T> std::fmt::Debug for Key<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Key({})", self.name)
    }
}

impl<T> Key<T> {
    /// The key of this name.
    #[must_use]
    pub const fn named(name: &'static str) -> Self {
        assert_name(name);
        let types = PhantomData;
        Key { name, types }
    }

    pub(crate) fn name(&self) -> Name {
        Name::constant(self.name)
    }
}

/// Is it [`roundel_core::STATE_CHANGED`], which runs are told when their state has changed?
const fn is_engines_own(name: &str) -> bool {
    let (name, own) = (name.as_bytes(), b"roundel.state");
    let mut at = 0;
    while at < name.len() && at < own.len() && name[at] == own[at] {
        at += 1;
    }
    at == name.len() && at == own.len()
}

pub(crate) const fn assert_name(name: &'static str) {
    std::mem::forget(Name::constant(name));
}
