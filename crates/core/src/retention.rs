//! How long what has ended is kept, as it is set for all processes at once.
//!
//! What is set is the state of a run of the engine's own, [`RETENTION`], of which there is at most
//! one in a namespace. So it is audited, checked, moved and kept in every store as any state is.
//! What a program says for itself is the same value: one lies over the other ([`Retention::over`]).

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Name;

/// The run whose state it is: its workflow, and its key.
pub const RETENTION: Name = Name::constant("roundel.retention");

/// How long something is kept once it has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Keep {
    /// For ever.
    Ever,
    /// For so many milliseconds.
    Millis(u64),
}

impl Keep {
    /// For so long: for ever, if that is longer than can be said.
    #[must_use]
    pub fn of(span: Duration) -> Keep {
        u64::try_from(span.as_millis()).map_or(Keep::Ever, Keep::Millis)
    }

    /// For how long; none is for ever.
    #[must_use]
    pub fn span(self) -> Option<Duration> {
        match self {
            Keep::Ever => None,
            Keep::Millis(millis) => Some(Duration::from_millis(millis)),
        }
    }
}

/// How long what has ended is kept.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retention {
    /// What is not named below.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Keep>,
    /// Trees whose root is of these workflows or queues.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub workflows: BTreeMap<Name, Keep>,
}

impl Retention {
    /// Is nothing said?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ended.is_none() && self.workflows.is_empty()
    }

    /// Says this of one workflow or queue, or of the rest; nothing takes back what was said.
    pub fn say(&mut self, workflow: Option<Name>, keep: Option<Keep>) {
        match (workflow, keep) {
            (None, keep) => self.ended = keep,
            (Some(name), Some(keep)) => drop(self.workflows.insert(name, keep)),
            (Some(name), None) => drop(self.workflows.remove(&name)),
        }
    }

    /// What holds where both are said: for each thing the word of this one, if it has one.
    #[must_use]
    pub fn over(&self, below: &Retention) -> Retention {
        let mut both = below.clone();
        both.ended = self.ended.or(below.ended);
        let own = self.workflows.iter();
        both.workflows
            .extend(own.map(|(name, keep)| (name.clone(), *keep)));
        both
    }

    /// The shortest time after which anything goes; none if nothing ever does.
    #[must_use]
    pub fn shortest(&self) -> Option<Duration> {
        let all = self.workflows.values().chain(&self.ended);
        all.filter_map(|keep| keep.span()).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Keep = Keep::Millis(86_400_000);
    const MAIL: Name = Name::constant("mail");

    fn retention(ended: Option<Keep>, workflows: &[(Name, Keep)]) -> Retention {
        let workflows = workflows.iter().cloned().collect();
        Retention { ended, workflows }
    }

    #[test]
    fn what_is_set_lies_over_what_a_program_says_thing_by_thing() {
        let none = Retention::default();
        let soon = Keep::Millis(5);
        let program = retention(Some(soon), &[(MAIL, soon)]);
        for (set, expected) in [
            (none.clone(), program.clone()),
            (
                retention(Some(DAY), &[]),
                retention(Some(DAY), &[(MAIL, soon)]),
            ),
            (
                retention(None, &[(MAIL, Keep::Ever)]),
                retention(Some(soon), &[(MAIL, Keep::Ever)]),
            ),
        ] {
            assert_eq!(set.over(&program), expected);
            assert_eq!(set.over(&none), set);
        }
    }

    #[test]
    fn the_shortest_is_that_of_what_goes() {
        assert_eq!(retention(None, &[]).shortest(), None);
        assert_eq!(retention(Some(Keep::Ever), &[]).shortest(), None);
        let both = retention(Some(Keep::Ever), &[(MAIL, DAY)]);
        assert_eq!(both.shortest(), DAY.span());
        assert_eq!(Keep::of(Duration::MAX), Keep::Ever);
        assert_eq!(Keep::of(Duration::from_secs(86_400)), DAY);
    }

    #[test]
    fn what_was_said_is_taken_back() {
        let mut said = Retention::default();
        said.say(None, Some(DAY));
        said.say(Some(MAIL), Some(Keep::Ever));
        let text = serde_json::to_string(&said).unwrap();
        assert_eq!(
            text,
            r#"{"ended":{"millis":86400000},"workflows":{"mail":"ever"}}"#
        );
        assert_eq!(serde_json::from_str::<Retention>(&text).unwrap(), said);
        said.say(None, None);
        said.say(Some(MAIL), None);
        assert!(said.is_empty());
    }
}
