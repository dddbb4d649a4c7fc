//! A journal as lines that people read: when, and what happened.

use std::collections::BTreeMap;

use roundel::{Context, Deadline, Entry, Error, Failure, Timestamp};
use roundel_core::{Call, JournalRow, Outcome, Why, decode_entries};

use super::{Style, style, time};

/// One entry.
#[derive(Clone, Debug)]
pub struct Moment {
    pub number: u64,
    pub at: Timestamp,
    /// The fence under which its round was committed: of no other round of the run.
    pub epoch: u64,
    pub entry: Entry,
}

/// The entries of these rounds.
///
/// # Errors
/// When they cannot be read.
pub fn moments(rounds: &[JournalRow]) -> Result<Vec<Moment>, Error> {
    let mut moments = Vec::new();
    for round in rounds {
        let entries = decode_entries(&round.entries).map_err(|error| {
            let (run, first) = (round.run, round.first);
            let message = format!(
                "the journal of run {run} cannot be read at entry {first}: {error}; \
                 `verify` says whether more is damaged"
            );
            Error::Unusable(message)
        })?;
        let numbered = (round.first..).zip(entries);
        let (at, epoch) = (round.at, round.epoch);
        moments.extend(numbered.map(|(number, entry)| Moment {
            number,
            at,
            epoch,
            entry,
        }));
    }
    Ok(moments)
}

/// What a call was about, by its number.
pub type Calls = BTreeMap<u32, Call>;

/// What was called, in all these entries.
pub fn calls(moments: &[Moment]) -> Calls {
    let mut calls = Calls::new();
    for moment in moments {
        if let Entry::Begun { call, what }
        | Entry::Attempted { call, what, .. }
        | Entry::Worked { call, what, .. } = &moment.entry
        {
            calls.insert(*call, what.clone());
        }
    }
    calls
}

/// What an entry says: a mark, a text, and the value that came with it.
#[derive(Debug)]
pub struct Said {
    pub style: Style,
    pub text: String,
    pub value: Option<String>,
}

pub fn say(moment: &Moment, calls: &Calls) -> Said {
    let plain = |text: String| Said {
        style: Style::Plain,
        text,
        value: None,
    };
    let look = |text: &str| Said {
        style: Style::Look,
        ..plain(text.to_owned())
    };
    match &moment.entry {
        Entry::Started {
            workflow, input, ..
        } => Said {
            value: Some(input.as_str().to_owned()),
            ..plain(format!("started `{workflow}`"))
        },
        Entry::Begun { what, .. } => Said {
            style: Style::Dim,
            ..plain(format!("{what} begins{}", more(what, moment.at)))
        },
        Entry::Done { call, outcome } => match calls.get(call) {
            Some(what) => ended(&what.to_string(), outcome),
            None => ended(&format!("call {call}"), outcome),
        },
        Entry::Did { what, outcome, .. } => ended(&what.to_string(), outcome),
        Entry::Attempted {
            what,
            attempt,
            failure,
            at,
            retry_at,
            ..
        } => Said {
            style: Style::Look,
            text: format!("{what} failed, attempt {attempt}; again after {}", {
                time::span(retry_at.since(*at))
            }),
            value: Some(failure.to_string()),
        },
        Entry::Dropped { call } => {
            let what = calls
                .get(call)
                .map_or_else(|| format!("call {call}"), Call::to_string);
            Said {
                style: Style::Dim,
                ..plain(format!("{what} is let go"))
            }
        }
        Entry::Worked { what, value, .. } => Said {
            value: Some(value.as_str().to_owned()),
            ..plain(format!("{what} waits for what it set off"))
        },
        Entry::Settled {
            call,
            ends,
            failure,
        } => settled(calls.get(call), ends.len(), failure.as_deref()),
        Entry::RollingBack { why, .. } => rolls_back(why),
        Entry::ContextSet { context } => sets(context),
        Entry::DeadlineMissed { deadline, .. } => late(deadline),
        Entry::CancelSeen => look("asked to end"),
        Entry::Kept => look("asked to end without undo: what it did stays"),
        Entry::Continued => plain("continues as new".into()),
        Entry::Ended { state } => Said {
            style: style(*state),
            ..plain(state.as_str().to_owned())
        },
    }
}

fn sets(context: &Context) -> Said {
    let keys: Vec<&str> = context.iter().map(|(key, _)| key.as_str()).collect();
    Said {
        style: Style::Dim,
        text: format!("sets in its context: {}", keys.join(", ")),
        value: None,
    }
}

fn late(deadline: &Deadline) -> Said {
    Said {
        style: Style::Look,
        text: format!("missed the deadline of run {}", deadline.set_by),
        value: None,
    }
}

fn settled(what: Option<&Call>, ends: usize, failure: Option<&Failure>) -> Said {
    let what = what.map_or_else(|| "a call".to_owned(), Call::to_string);
    match failure {
        None => Said {
            style: Style::Good,
            text: format!("{what}: all {ends} runs that it set off have ended"),
            value: None,
        },
        Some(failure) => Said {
            style: Style::Bad,
            text: format!("{what} failed"),
            value: Some(failure.to_string()),
        },
    }
}

fn rolls_back(why: &Why) -> Said {
    let (text, value) = match why {
        Why::Failed(failure) => ("it failed", Some(failure.to_string())),
        Why::Cancelled => ("it was cancelled", None),
        Why::Asked => ("it is undone", None),
        Why::Retried => ("an undo that failed is tried again", None),
        Why::Skipped => ("an undo that failed is left out", None),
    };
    Said {
        style: Style::Look,
        text: format!("rolls back: {text}"),
        value,
    }
}

/// What a call's name does not say.
fn more(what: &Call, at: Timestamp) -> String {
    match what {
        Call::Sleep { until } => format!(", for {}", time::span(until.since(at))),
        Call::Wait {
            until: Some(until), ..
        } => format!(", for {} at most", time::span(until.since(at))),
        Call::Child { run, .. } | Call::Spawn { run, .. } | Call::Watch { run } => {
            format!(", run {run}")
        }
        _ => String::new(),
    }
}

fn ended(what: &str, outcome: &Outcome) -> Said {
    let text = what.to_owned();
    match outcome {
        Outcome::Value(value) => Said {
            style: Style::Plain,
            text,
            value: Some(value.as_str().to_owned()).filter(|value| value != "null"),
        },
        Outcome::Failure(failure) => Said {
            style: Style::Bad,
            text: format!("{text} failed"),
            value: Some(failure.to_string()),
        },
    }
}
