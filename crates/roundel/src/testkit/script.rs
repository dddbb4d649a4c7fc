//! What effects answer, by name. An effect without a script runs as it is written; calls are noted
//! either way.
//!
//! An answer belongs to one attempt of one call: after a crash the same attempt gets the same
//! answer again, so that a script means the same however often a run is replayed.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use roundel_core::{Failure, Payload, RunId};
use serde::Serialize;
use tokio::sync::watch;

use super::clock::VirtualClock;
use super::explore::{Kind, Points};

type Answering = Pin<Box<dyn Future<Output = Result<Payload, Failure>> + Send>>;

/// What a test kit reaches into runs.
pub(crate) struct Hooks {
    clock: Arc<VirtualClock>,
    effects: Mutex<BTreeMap<String, Script>>,
    random: Mutex<u64>,
    /// Where faults strike, if they do.
    points: Option<Arc<Points>>,
    /// Attempts whose answers are lost: by key and number.
    lost: Mutex<BTreeSet<(String, u32)>>,
}

#[derive(Default)]
struct Script {
    answers: Vec<Answer>,
    next: usize,
    /// Which answer each attempt got: by key and number.
    given: BTreeMap<(String, u32), usize>,
    calls: Vec<EffectCall>,
}

#[derive(Clone)]
enum Answer {
    Value(Payload),
    Failure(Failure),
    /// Waits until it is let go, then takes the next.
    Hang(Arc<watch::Sender<bool>>),
}

/// One attempt of an effect, as the test kit saw it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct EffectCall {
    /// Of which run.
    pub run: RunId,
    /// The idempotency key: the same for all attempts of one call.
    pub key: String,
    /// Which attempt, from 1.
    pub attempt: u32,
    /// How long after the beginning of the test, by virtual time.
    pub after: Duration,
}

/// The script of one effect. Answers are given in the order they are said, one for each attempt;
/// the last is given ever after.
#[derive(Clone)]
pub struct ScriptedEffect {
    pub(super) hooks: Arc<Hooks>,
    pub(super) name: String,
}

impl std::fmt::Debug for ScriptedEffect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ScriptedEffect({})", self.name)
    }
}

impl ScriptedEffect {
    fn say(self, answer: Answer) -> Self {
        let mut effects = self.hooks.effects();
        let script = effects.entry(self.name.clone()).or_default();
        script.answers.push(answer);
        drop(effects);
        self
    }

    /// The next attempt returns this.
    ///
    /// # Panics
    /// When the value cannot be written as JSON.
    #[allow(clippy::return_self_not_must_use)]
    pub fn returns<T: Serialize>(self, value: &T) -> Self {
        let payload = Payload::encode(value)
            .unwrap_or_else(|error| panic!("the answer of `{}`: {error}", self.name));
        self.say(Answer::Value(payload))
    }

    /// The next attempt fails like this; what happens then is up to the effect's retries.
    #[allow(clippy::return_self_not_must_use)]
    pub fn fails(self, failure: Failure) -> Self {
        self.say(Answer::Failure(failure))
    }

    /// The next so many attempts fail like this.
    #[allow(clippy::return_self_not_must_use)]
    pub fn fails_times(self, attempts: u32, failure: &Failure) -> Self {
        (0..attempts).fold(self, |script, _| script.fails(failure.clone()))
    }

    /// The next attempt hangs until [`ScriptedEffect::let_go`], then does what is said next.
    #[allow(clippy::return_self_not_must_use)]
    pub fn hangs(self) -> Self {
        self.say(Answer::Hang(Arc::new(watch::Sender::new(false))))
    }

    /// Lets go of what hangs, and of what would hang by what was said so far.
    pub fn let_go(&self) {
        let mut effects = self.hooks.effects();
        let script = effects.entry(self.name.clone()).or_default();
        for answer in &script.answers {
            if let Answer::Hang(gate) = answer {
                gate.send_replace(true);
            }
        }
    }

    /// The attempts that were made, in order. After a crash an attempt may be made again.
    #[must_use]
    pub fn calls(&self) -> Vec<EffectCall> {
        let effects = self.hooks.effects();
        let script = effects.get(&self.name);
        script.map_or_else(Vec::new, |script| script.calls.clone())
    }
}

impl Hooks {
    pub(super) fn new(clock: Arc<VirtualClock>, seed: u64, points: Option<Arc<Points>>) -> Hooks {
        Hooks {
            clock,
            effects: Mutex::default(),
            random: Mutex::new(seed),
            points,
            lost: Mutex::default(),
        }
    }

    fn effects(&self) -> MutexGuard<'_, BTreeMap<String, Script>> {
        self.effects
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The next number: drawn from the seed, so that a test does the same each time.
    pub(crate) fn random(&self) -> u64 {
        let mut state = self
            .random
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        drawn(&mut state)
    }

    /// An attempt is about to be made. Does it fail instead, if it is not the last?
    pub(crate) fn strike(
        &self,
        name: &str,
        (run, last): (RunId, bool),
        attempt: &(String, u32),
    ) -> Option<Failure> {
        let points = self.points.as_ref()?;
        match points.attempt(name, (run, attempt.1), last)? {
            Kind::Fails => Some(Failure::transient(
                "a fault of the test: nothing was called",
            )),
            _ => {
                let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
                lost.insert(attempt.clone());
                None
            }
        }
    }

    /// Is the answer to this attempt lost?
    pub(crate) fn is_lost(&self, attempt: &(String, u32)) -> Option<Failure> {
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        let text = "a fault of the test: the call was made, and its answer was lost";
        lost.remove(attempt).then(|| Failure::transient(text))
    }

    /// An attempt begins: what it answers, if that is scripted.
    pub(crate) fn attempt(
        self: &Arc<Self>,
        name: &str,
        run: RunId,
        attempt: (String, u32),
    ) -> Option<Answering> {
        let mut effects = self.effects();
        let script = effects.entry(name.to_owned()).or_default();
        script.calls.push(EffectCall {
            run,
            key: attempt.0.clone(),
            attempt: attempt.1,
            after: self.clock.elapsed(),
        });
        if script.answers.is_empty() {
            return None;
        }
        drop(effects);
        let (hooks, name) = (self.clone(), name.to_owned());
        Some(Box::pin(async move {
            loop {
                match hooks.answer(&name, &attempt) {
                    Answer::Value(value) => return Ok(value),
                    Answer::Failure(failure) => return Err(failure),
                    Answer::Hang(gate) => {
                        let _ = gate.subscribe().wait_for(|open| *open).await;
                        if !hooks.pass(&name, &attempt) {
                            return Err(Failure::permanent(format!(
                                "effect `{name}` was let go, but its script ends there; say what \
                                 it answers after `hangs()`"
                            )));
                        }
                    }
                }
            }
        }))
    }

    fn answer(&self, name: &str, attempt: &(String, u32)) -> Answer {
        let mut effects = self.effects();
        let script = effects.get_mut(name).expect("it has answers");
        let index = match script.given.get(attempt) {
            Some(index) => *index,
            None => script.take(attempt),
        };
        script.answers[index].clone()
    }

    /// On to the next answer. Returns whether there is one.
    fn pass(&self, name: &str, attempt: &(String, u32)) -> bool {
        let mut effects = self.effects();
        let script = effects.get_mut(name).expect("it has answers");
        let before = script.given.get(attempt).copied();
        before != Some(script.take(attempt))
    }
}

/// The next number after this state.
pub(super) fn drawn(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut value = *state;
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

impl Script {
    fn take(&mut self, attempt: &(String, u32)) -> usize {
        let index = self.next.min(self.answers.len() - 1);
        self.next += 1;
        self.given.insert(attempt.clone(), index);
        index
    }
}
