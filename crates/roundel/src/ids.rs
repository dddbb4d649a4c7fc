//! Ids of what is new: by time; drawn if this is a simulation, counted if a test explores.

use roundel_core::{Name, RunId, Timestamp, WorkerId};
use uuid::Uuid;

/// The id of a new run.
pub(crate) fn new_run() -> RunId {
    #[cfg(feature = "sim")]
    if let Some((high, low)) = crate::sim::draw().zip(crate::sim::draw()) {
        return RunId(Uuid::from_u64_pair(high, low));
    }
    RunId(counted().unwrap_or_else(Uuid::now_v7))
}

/// The id of a new fact.
pub(crate) fn new_fact() -> Name {
    let id = new_run().0.hyphenated().to_string();
    Name::new(id).expect("an id is a name")
}

/// The id of a new worker.
pub(crate) fn new_worker() -> WorkerId {
    WorkerId(counted().unwrap_or_else(Uuid::new_v4))
}

/// The lowest id of something made at this time.
pub(crate) fn first_id_at(at: Timestamp) -> [u8; 16] {
    let millis = u64::try_from(at.0 / 1000).unwrap_or(0).min((1 << 48) - 1);
    let mut bytes = [0; 16];
    bytes[..6].copy_from_slice(&millis.to_be_bytes()[2..]);
    bytes
}

#[cfg(feature = "testkit")]
fn counted() -> Option<Uuid> {
    crate::testkit::counted_id()
}

#[cfg(not(feature = "testkit"))]
fn counted() -> Option<Uuid> {
    None
}
