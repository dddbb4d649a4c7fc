//! One thing that waits for an operator: a run, or a signal that its run ended without.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use roundel_core::{Class, Failure, Name, Outcome, RunId, Timestamp};
use roundel_store::{RunView, SignalView};

/// Something that waits for an operator.
#[derive(Clone, Debug, PartialEq)]
pub enum Trouble {
    /// A command or a run that is parked, or a rollback that failed.
    Run(Box<RunView>),
    /// A signal that its run ended without.
    Signal(Box<SignalView>),
}

/// Which: a run by its id, a signal by that of its run and its number there, as in `ID/7`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TroubleId {
    /// A run.
    Run(RunId),
    /// A signal of a run.
    Signal(RunId, u64),
}

impl Trouble {
    /// Which it is.
    #[must_use]
    pub fn id(&self) -> TroubleId {
        match self {
            Trouble::Run(run) => TroubleId::Run(run.row.id),
            Trouble::Signal(signal) => TroubleId::Signal(signal.id.run, signal.id.number),
        }
    }

    /// The workflow, or the queue of the command.
    #[must_use]
    pub fn workflow(&self) -> &Name {
        match self {
            Trouble::Run(run) => &run.lane.workflow,
            Trouble::Signal(signal) => &signal.lane.workflow,
        }
    }

    /// Since when it waits.
    #[must_use]
    pub fn since(&self) -> Timestamp {
        match self {
            Trouble::Run(run) => run.row.changed_at,
            Trouble::Signal(signal) => signal.row.parked_at.unwrap_or(signal.row.at),
        }
    }

    /// Why it waits.
    #[must_use]
    pub fn why(&self) -> Option<Cow<'_, Failure>> {
        match self {
            Trouble::Run(run) => match &run.row.outcome {
                Some(Outcome::Failure(failure)) => Some(Cow::Borrowed(failure)),
                _ => None,
            },
            Trouble::Signal(signal) => {
                let name = signal.id.name.as_ref().map_or("", Name::as_str);
                let text = format!("the run is {} without it: `{name}`", signal.state.as_str());
                let failure = Failure::new(Class::Business, text).with_code("signal_unread");
                Some(Cow::Owned(failure))
            }
        }
    }
}

impl TroubleId {
    /// The run, or that of the signal.
    #[must_use]
    pub fn run(self) -> RunId {
        let (TroubleId::Run(run) | TroubleId::Signal(run, _)) = self;
        run
    }

    /// Its place in the queue, which begins at the highest: a run comes before its signals.
    pub(super) fn place(self) -> (RunId, u64) {
        match self {
            TroubleId::Run(run) => (run, u64::MAX >> 1),
            TroubleId::Signal(run, number) => (run, number),
        }
    }
}

impl From<RunId> for TroubleId {
    fn from(run: RunId) -> TroubleId {
        TroubleId::Run(run)
    }
}

impl fmt::Display for TroubleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TroubleId::Run(run) => run.fmt(f),
            TroubleId::Signal(run, number) => write!(f, "{run}/{number}"),
        }
    }
}

impl FromStr for TroubleId {
    type Err = String;

    fn from_str(text: &str) -> Result<TroubleId, String> {
        let wrong = || format!("`{text}` is neither the id of a run nor ID/NUMBER of a signal");
        let (run, number) = match text.split_once('/') {
            None => (text, None),
            Some((run, number)) => (run, Some(number)),
        };
        let run: RunId = run.parse().map_err(|_| wrong())?;
        match number {
            None => Ok(TroubleId::Run(run)),
            Some(number) => match number.parse() {
                Ok(number) => Ok(TroubleId::Signal(run, number)),
                Err(_) => Err(wrong()),
            },
        }
    }
}

impl serde::Serialize for TroubleId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_trouble_is_named_by_run_and_number() {
        let run = RunId::from_bytes([7; 16]);
        for id in [TroubleId::Run(run), TroubleId::Signal(run, 12)] {
            assert_eq!(id.to_string().parse(), Ok(id));
        }
        for text in ["", "7", "order/1", &format!("{run}/"), &format!("{run}/x")] {
            assert!(text.parse::<TroubleId>().is_err(), "{text}");
        }
    }
}
