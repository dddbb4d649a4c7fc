//! Bars over time, and the parts that they are made of.

use roundel::{RunId, Timestamp};
use roundel_core::Call;

use crate::shape::output;

output! {
    /// A run as bars over time.
    pub struct Timeline {
        /// When the first of them begins.
        from: Timestamp,
        /// When the last of them ends, or now.
        to: Timestamp,
        /// The last of its calls, in the order in which they began.
        bars: Vec<Bar>,
        /// How many before them are left out.
        left_out: usize,
    }
}

output! {
    /// A call over time, or the run as a whole: what it waited for before its calls.
    pub struct Bar {
        /// The call's number; null of the run as a whole.
        call: Option<u32>,
        /// For people: what it is.
        text: String,
        /// The run that it set off, or waits for.
        run: Option<RunId>,
        /// When it began.
        from: Timestamp,
        /// When it ended, or now.
        to: Timestamp,
        /// Has it ended?
        ended: bool,
        /// It came to a failure.
        failed: bool,
        /// What it was, from its begin to its end.
        parts: Vec<Part>,
    }
}

output! {
    /// A part of a bar.
    pub struct Part {
        /// `queued`, `runs`, `pauses` between attempts, or `waits`.
        kind: &'static str,
        /// When it began.
        from: Timestamp,
        /// When it ended, or now.
        to: Timestamp,
        /// For people: what it is.
        text: String,
        /// What it failed with.
        failure: Option<String>,
    }
}

/// What a part of a bar is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    /// Ready; nobody has committed anything of it.
    Queued,
    /// Worked on.
    Runs,
    /// The pause before the next attempt.
    Pauses,
    /// For a time, a signal, or what was set off.
    Waits,
}

impl Kind {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Kind::Queued => "queued",
            Kind::Runs => "runs",
            Kind::Pauses => "pauses",
            Kind::Waits => "waits",
        }
    }
}

/// A part as it is made.
pub(super) fn part(
    kind: Kind,
    (from, to): (Timestamp, Timestamp),
    text: impl Into<String>,
) -> Part {
    Part {
        kind: kind.as_str(),
        from,
        to: to.max(from),
        text: text.into(),
        failure: None,
    }
}

/// Is it done in a round that is made for it, and begins with that?
pub(super) fn own_round(what: &Call) -> bool {
    matches!(what, Call::Step { .. } | Call::Undo { .. })
}

/// What a call waits for, if it is not worked on.
pub(super) fn waits(what: &Call) -> Option<&'static str> {
    Some(match what {
        Call::Sleep { .. } => "sleeps",
        Call::Wait { .. } => "waits for the signal",
        Call::Watch { .. } => "waits for the end of that run",
        Call::Child { .. } | Call::Children { .. } | Call::Batch { .. } => {
            "waits for what it started"
        }
        Call::Publish { .. } => "waits for all who heard it",
        Call::RollBack { .. } => "waits for what is rolled back below",
        _ => return None,
    })
}
