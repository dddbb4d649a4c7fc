//! What is set off together: publications to topics, who subscribes to those, and the latches by
//! which many runs that end wake one that waits for all of them.

use serde::{Deserialize, Serialize};

use crate::message::digest;
use crate::{
    Context, Deadlines, Name, Outcome, Parent, Payload, PublicationId, RunId, RunRow, RunState,
    Timestamp, undone,
};

/// A workflow's standing interest in a topic.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct SubscriptionId {
    /// The tenant.
    pub namespace: Name,
    /// In what.
    pub topic: Name,
    /// Whose.
    pub workflow: Name,
}

/// A subscription.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SubscriptionRow {
    /// Since when.
    pub since: Timestamp,
}

/// Something that was published.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PublicationRow {
    /// The tenant.
    pub namespace: Name,
    /// To whom.
    pub topic: Name,
    /// What it says.
    pub payload: Payload,
    /// Which call of which run published it; none if a client did.
    pub by: Option<Parent>,
    /// When.
    pub at: Timestamp,
    /// How many runs it set off: none if nobody subscribed.
    pub heard: u32,
    /// Until then whoever subscribes joins.
    pub closes_at: Option<Timestamp>,
    /// Until when those that it sets off must have ended, beside what the publisher's say.
    pub deadlines: Deadlines,
    /// What flows down to them.
    pub context: Context,
}

/// A publication, as the journal of the run that made it names it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Emitted {
    /// To which topic.
    pub topic: Name,
    /// Which.
    pub publication: PublicationId,
}

/// A latch's place: one call of one run, and which part. Part 0 is what the others add up to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct LatchId {
    /// Who waits.
    pub run: RunId,
    /// In which execution.
    pub execution: u32,
    /// In which call.
    pub call: u32,
    /// Which part.
    pub part: u8,
}

/// How many of a scope's runs have not ended. A scope of few has one row; of many, several, each
/// lowered on its own, so that runs that end at the same time do not wait for each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct LatchRow {
    /// Not ended; in part 0: those counted here, and other parts that are open.
    pub open: u32,
    /// In part 0: how many there ever were.
    pub total: u32,
    /// Those that ended otherwise than they should.
    pub failed: u32,
    /// In part 0: until then others may join, which counts as one that has not ended.
    pub closes_at: Option<Timestamp>,
}

/// Runs that are counted in part 0 itself.
pub(crate) const FEW: u32 = 32;
/// Parts for the others.
const PARTS: u32 = LatchId::PARTS as u32;

impl LatchId {
    /// Parts beside part 0.
    pub const PARTS: u8 = 16;

    /// The part of this number of a call's latch.
    #[must_use]
    pub fn of(by: Parent, part: u8) -> LatchId {
        LatchId {
            run: by.run,
            execution: by.execution,
            call: by.call,
            part,
        }
    }

    /// The part in which a scope's run of this number is counted.
    #[must_use]
    pub fn part_of(number: u32) -> u8 {
        match number {
            0..FEW => 0,
            _ => u8::try_from(1 + number % PARTS).expect("few parts"),
        }
    }
}

/// How one run of a scope ended.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ScopeEnd {
    /// Which.
    pub run: RunId,
    /// What ran.
    pub workflow: Name,
    /// How it ended.
    pub state: RunState,
    /// With what.
    pub outcome: Outcome,
}

impl ScopeEnd {
    /// How this run ended. One that is being undone since, because an operator asked for it, is no
    /// longer what it came to.
    #[must_use]
    pub fn of(row: &RunRow, workflow: Name) -> ScopeEnd {
        let outcome = row.outcome.clone().filter(|_| row.state.has_ended());
        ScopeEnd {
            run: row.id,
            workflow,
            state: row.state,
            outcome: outcome.unwrap_or_else(|| Outcome::Failure(Box::new(undone()))),
        }
    }
}

/// The run that a publication sets off for a workflow: always the same, so that it exists once.
/// The time of the publication stands first, as in any id that is made by time.
#[must_use]
pub fn subscriber_run(publication: PublicationId, workflow: &Name) -> RunId {
    let id = publication.as_bytes();
    let hash = digest(&[&publication.to_string(), workflow.as_str()]).to_be_bytes();
    let mut bytes = [0; 16];
    bytes[..6].copy_from_slice(&id[..6]);
    bytes[6..].copy_from_slice(&hash[6..]);
    bytes[6] = bytes[6] & 0x0F | 0x70;
    bytes[8] = bytes[8] & 0x3F | 0x80;
    RunId::from_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sc_01_each_workflow_has_one_run_per_publication() {
        let publication = PublicationId::from_bytes(*b"0123456789abcdef");
        let other = PublicationId::from_bytes(*b"0123456789abcdeg");
        let (stock, mail) = (Name::constant("stock"), Name::constant("mail"));
        let run = subscriber_run(publication, &stock);
        assert_eq!(run, subscriber_run(publication, &stock));
        assert_ne!(run, subscriber_run(publication, &mail));
        assert_ne!(run, subscriber_run(other, &stock));
        assert_eq!(run.as_bytes()[..6], *b"012345", "the time stands first");
        assert_eq!(run.0.get_version_num(), 7);
    }

    #[test]
    fn the_runs_of_a_large_scope_are_spread_over_its_parts() {
        let parts: Vec<u8> = (0..10_000).map(LatchId::part_of).collect();
        assert!(parts[..32].iter().all(|part| *part == 0));
        for part in 1..=16 {
            let count = parts.iter().filter(|of| **of == part).count();
            assert!((620..630).contains(&count), "part {part} has {count}");
        }
    }
}
