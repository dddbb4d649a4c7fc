//! Deadlines: until when a run must have come to its end, and which run said so.
//!
//! They flow down: a run has the earlier of its parent's and its own, so one can be tightened by
//! whoever starts a run, and never extended. One counts while a run goes forward, the other while
//! it undoes what it did; whoever wants one for both gives both the same time.

use serde::{Deserialize, Serialize};

use crate::{Failure, RunId, Timestamp};

/// One deadline.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Deadline {
    /// Until when.
    pub at: Timestamp,
    /// The run in which it was set: the one that was started with it, or that started another
    /// with it.
    pub set_by: RunId,
}

/// Those of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Deadlines {
    /// While it goes forward: a run that misses it rolls back, fails or is parked, as its workflow
    /// says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward: Option<Deadline>,
    /// While it undoes what it did: a rollback that misses it has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollback: Option<Deadline>,
}

impl Deadline {
    /// Is it over?
    #[must_use]
    pub fn has_passed(&self, now: Timestamp) -> bool {
        self.at <= now
    }

    /// What a run that misses it fails with.
    #[must_use]
    pub fn missed(&self) -> Failure {
        let Deadline { at, set_by } = self;
        let message = format!("the deadline {at} that run {set_by} set was missed");
        Failure::business(message)
            .with_code(Deadline::CODE)
            .with_data(self)
    }

    /// The code of such a failure.
    pub const CODE: &'static str = "deadline";
}

impl Deadlines {
    /// The earlier of each; of two at the same time, those from above.
    #[must_use]
    pub fn and(self, below: Deadlines) -> Deadlines {
        Deadlines {
            forward: earlier(self.forward, below.forward),
            rollback: earlier(self.rollback, below.rollback),
        }
    }
}

fn earlier(above: Option<Deadline>, below: Option<Deadline>) -> Option<Deadline> {
    match (above, below) {
        (Some(above), Some(below)) if below.at < above.at => Some(below),
        (above, below) => above.or(below),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(time: i64, by: u8) -> Option<Deadline> {
        let (at, set_by) = (Timestamp(time), RunId::from_bytes([by; 16]));
        Some(Deadline { at, set_by })
    }

    fn forward(forward: Option<Deadline>) -> Deadlines {
        let rollback = None;
        Deadlines { forward, rollback }
    }

    #[test]
    fn sc_43_the_earliest_wins_and_keeps_its_source() {
        for (above, below, due) in [
            (None, None, None),
            (at(5, 1), None, at(5, 1)),
            (None, at(5, 2), at(5, 2)),
            (at(5, 1), at(4, 2), at(4, 2)),
            (at(5, 1), at(6, 2), at(5, 1)),
            (at(5, 1), at(5, 2), at(5, 1)),
        ] {
            assert_eq!(forward(above).and(forward(below)), forward(due));
        }
    }

    #[test]
    fn sc_43_a_failure_names_the_source() {
        let deadline = at(7_000_000, 3).unwrap();
        let failure = deadline.missed();
        assert_eq!(failure.code, "deadline");
        assert!(
            failure.message.contains(&deadline.set_by.to_string()),
            "{failure}"
        );
        assert_eq!(
            failure.data.unwrap().decode::<Deadline>().unwrap(),
            deadline
        );
    }
}
