//! The queue of facts that come in: each item is a run of a workflow of the engine's own that no
//! worker works on. Whoever knows the fact records it, in the commit that ends the run.

use serde::{Deserialize, Serialize};

use crate::fact::FactId;
use crate::message::digest;
use crate::{BadName, GateId, Name, NewFact, Payload, RunId, Timestamp};

/// The workflow whose runs are the items.
pub const INCOMING: Name = Name::constant("roundel.incoming");

/// A fact on its way in, as it came.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Envelope {
    /// Its sender's own id: the same fact twice is one.
    pub id: Name,
    /// What kind of thing happened.
    pub kind: Name,
    /// The version of what it says.
    #[serde(default = "first", skip_serializing_if = "is_first")]
    pub version: u32,
    /// What it says.
    pub data: Payload,
    /// The stream that it is counted in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<Name>,
    /// The ids of facts that must be there before it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<Name>,
}

fn first() -> u32 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_first(version: &u32) -> bool {
    *version == 1
}

impl Envelope {
    /// Of a fact that is to be recorded.
    #[must_use]
    pub fn of(fact: &NewFact) -> Envelope {
        Envelope {
            id: fact.id.clone(),
            kind: fact.kind.clone(),
            version: fact.version,
            data: fact.data.clone(),
            stream: fact.stream.clone(),
            needs: fact.needs.clone(),
        }
    }

    /// The fact, folded into nothing yet.
    #[must_use]
    pub fn fact(&self) -> NewFact {
        NewFact {
            version: self.version,
            stream: self.stream.clone(),
            needs: self.needs.clone(),
            ..NewFact::new(self.id.clone(), self.kind.clone(), self.data.clone())
        }
    }
}

/// The key of the item that is the fact of this id.
pub(crate) fn item_key(fact: &Name) -> Result<Name, BadName> {
    Name::new(format!("{INCOMING}:{fact}"))
}

/// The gate whose counter gives items their places.
pub(crate) fn item_gate(namespace: &Name) -> GateId {
    GateId {
        namespace: namespace.clone(),
        name: INCOMING,
    }
}

/// The place after the last one: it counts, and keeps up with the clock, so that what is made of
/// it lies where other new runs do.
pub(crate) fn next_place(last: u64, now: Timestamp) -> u64 {
    let clock = u64::try_from(now.0 / 1000).unwrap_or_default() & ((1 << 48) - 1);
    (last + 1).max(clock << 12)
}

/// The run at a place: a UUIDv7, in the order of places.
pub(crate) fn item_run(namespace: &Name, place: u64) -> RunId {
    let tail = digest(&["item", namespace.as_str()]) & ((1 << 62) - 1);
    let (millis, count) = (u128::from(place >> 12), u128::from(place & 0xFFF));
    let bits = (millis << 80) | (7 << 76) | (count << 64) | (2 << 62) | tail;
    RunId(uuid::Uuid::from_u128(bits))
}

/// Since when the item at a place is due: places and times have one order.
pub(crate) fn due_at(place: u64) -> Timestamp {
    Timestamp(i64::try_from(place >> 12).map_or(i64::MAX, |millis| millis.saturating_mul(1000)))
}

impl FactId {
    /// What those who wait for it watch in its place: the id of no run. Two facts may have the same
    /// one; then somebody looks once too often.
    #[must_use]
    pub fn mark(&self) -> RunId {
        let bits = digest(&["fact", self.namespace.as_str(), self.id.as_str()]);
        RunId(
            uuid::Builder::from_u128(bits)
                .with_version(uuid::Version::Custom)
                .into_uuid(),
        )
    }
}

impl RunId {
    /// Is it that of a fact, and of no run?
    #[must_use]
    pub fn is_mark(self) -> bool {
        self.0.get_version() == Some(uuid::Version::Custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_and_runs_and_times_have_one_order() {
        let space = Name::constant("default");
        let clocks = [0, 5_000, 5_000, 4_000, 9_999_999, 9_999_999, 1];
        let mut last = 0;
        for clock in clocks {
            let next = next_place(last, Timestamp(clock));
            assert!(next > last);
            assert!(item_run(&space, next) > item_run(&space, last));
            assert!(due_at(next) >= due_at(last));
            assert_eq!(item_run(&space, next).0.get_version_num(), 7);
            last = next;
        }
        let other = Name::constant("other");
        assert_ne!(item_run(&space, last), item_run(&other, last));
    }

    #[test]
    fn the_mark_of_a_fact_is_no_run() {
        let (namespace, id) = (Name::constant("default"), Name::constant("a"));
        let mark = FactId { namespace, id }.mark();
        assert!(mark.is_mark());
        assert!(!item_run(&Name::constant("default"), 7).is_mark());
    }

    #[test]
    fn an_envelope_is_the_same_bytes_again() {
        let text = r#"{"id":"a","kind":"paid","data":{"b":1,"a":2}}"#;
        let envelope: Envelope = serde_json::from_str(text).expect("an envelope");
        assert_eq!(serde_json::to_string(&envelope).expect("JSON"), text);
        assert_eq!(Envelope::of(&envelope.fact()), envelope);
    }
}
