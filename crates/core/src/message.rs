//! Messages and who waits for them: mail, waits, gates, offers, keys.
//!
//! A wait and a message are matched by `decide`, under the run's lock (for offers, the gate's), in
//! the commit that brings the later of the two. Matched is not consumed: the run's next round
//! consumes it, or lets go of it, and then it is as if it had never been matched.

use serde::{Deserialize, Serialize};

use crate::{Name, Outcome, Payload, RunId, RunState, Timestamp};

/// What became of a signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sent {
    /// The run was waiting for it.
    Delivered(RunId),
    /// Kept until somebody waits for it.
    Queued,
    /// Nobody waited and its policy is not to keep it.
    Dropped,
    /// The run has ended.
    TargetEnded(RunState),
    /// There is no such run.
    TargetUnknown,
}

/// What happens to a signal that nobody waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Policy {
    /// It is kept; if its run ends without it, it is parked.
    #[default]
    Keep,
    /// It is dropped and the sender is told.
    Drop,
    /// It is kept; if its run ends without it, it goes.
    Discard,
    /// It is kept; if its run ends without it, it is offered to others.
    Offer,
}

impl Policy {
    /// All of them, each at the place of its stored number.
    pub const ALL: [Policy; 4] = [Policy::Keep, Policy::Drop, Policy::Discard, Policy::Offer];

    /// The number that is stored.
    #[must_use]
    pub fn number(self) -> u8 {
        self as u8
    }
}

/// The signal that a run's state has changed, to calls of the run that wait for that. Nobody sends
/// it, and it says nothing: whoever gets it reads the state.
pub const STATE_CHANGED: Name = Name::constant("roundel.state");

/// A message's place: run, name, number. Messages of the engine's own have no name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct MailId {
    /// Whose.
    pub run: RunId,
    /// The signal; none for the end of a child or of a watched run.
    pub name: Option<Name>,
    /// The run's own counter: arrival order across names.
    pub number: u64,
}

/// A message that waits for a run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct MailRow {
    /// Which call it answers, for the engine's own messages: (execution, call).
    pub answers: Option<(u32, u32)>,
    /// What it says.
    pub body: Outcome,
    /// When it came.
    pub at: Timestamp,
    /// If nobody waits for it.
    pub policy: Policy,
    /// From then on nobody gets it.
    pub expires_at: Option<Timestamp>,
    /// Since when it is parked: its run ended without it. It waits for an operator.
    pub parked_at: Option<Timestamp>,
}

impl MailRow {
    /// Is it too late for it?
    #[must_use]
    pub fn has_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }
}

/// A wait's place.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct WaitId {
    /// Who waits.
    pub run: RunId,
    /// For which signal.
    pub name: Name,
    /// In which call.
    pub call: u32,
}

/// A wait that is open.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct WaitRow {
    /// Its place among those who wait for an offer of that name; none if it takes no offers.
    pub place: Option<u64>,
    /// What it is matched to.
    pub taken: Option<Taken>,
}

/// What a wait is matched to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Taken {
    /// The run's own message of this number.
    Mail(u64),
    /// The offer of this place.
    Offer(u64),
}

/// Who waits for whose end: (watched, watcher, execution, call).
pub type WatchId = (RunId, RunId, u32, u32);

/// What is locked by those who look for rows that may not exist yet.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct GateId {
    /// The tenant.
    pub namespace: Name,
    /// The signal.
    pub name: Name,
}

/// A gate's counters.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct GateRow {
    /// The last place given to a waiter.
    pub waiters: u64,
    /// The last place given to an offer.
    pub offers: u64,
}

/// An offer's place.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct OfferId {
    /// Under which gate.
    pub gate: GateId,
    /// In which order it came.
    pub place: u64,
}

/// An offer that is not consumed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct OfferRow {
    /// What it says.
    pub payload: Payload,
    /// Whom it is matched to.
    pub taken_by: Option<RunId>,
    /// When it came.
    pub at: Timestamp,
}

/// What a unique key is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum KeyKind {
    /// The user's own id for a run.
    Run,
    /// A sender's key for a signal or an offer, or for what is like others that were started.
    Sender,
}

impl KeyKind {
    /// All of them.
    pub const ALL: [KeyKind; 2] = [KeyKind::Run, KeyKind::Sender];

    /// The word that is stored.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            KeyKind::Run => "run",
            KeyKind::Sender => "sender",
        }
    }
}

/// A unique key.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct KeyId {
    /// The tenant.
    pub namespace: Name,
    /// What it is for.
    pub kind: KeyKind,
    /// The text.
    pub key: String,
}

/// Who has a key, and what was answered.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KeyRow {
    /// The run it belongs to; it goes when that goes. None for the keys of offers.
    pub run: Option<RunId>,
    /// Of what was asked for: the same key with something else is a conflict.
    pub digest: u128,
    /// What the sender was told.
    pub sent: Option<Sent>,
}

/// A message, matched to a call of the run that it is for.
#[derive(Clone, PartialEq, Debug)]
pub struct Delivery {
    /// Which execution it is for: one that comes late may find the next.
    pub execution: u32,
    /// The call.
    pub call: u32,
    /// Where it lies until it is consumed.
    pub source: Source,
    /// What it says.
    pub body: Outcome,
}

/// Where a matched message lies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Source {
    /// A wait for this signal has it.
    Wait(Name),
    /// The engine's own message of this number.
    Mail(u64),
}

/// A digest of texts, to tell two requests apart (FNV-1a, 128 bits; not against forgery).
pub fn digest(parts: &[impl AsRef<[u8]>]) -> u128 {
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013B;
    let mut hash: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    for part in parts {
        for byte in part.as_ref().iter().chain(&[0xFF]) {
            hash = (hash ^ u128::from(*byte)).wrapping_mul(PRIME);
        }
    }
    hash
}
