//! Where a value lies: what it was sealed for, and where it is read. A value that the database
//! moves is sealed for what stays the same on its way.
//!
//! | sealed for | opens as |
//! |---|---|
//! | the input of a workflow | the input of a run of that workflow |
//! | a topic | what was published there; the input of any run |
//! | a signal's name | a signal or an offer of that name, to whichever run |
//! | the output of a run | that run's; what any call is told that waits for a run |
//! | the output that an operator gave | that of any run |
//! | a call | the same call of the same run, and as the same part of it |
//! | a member of a state | the same member of any run's state |
//! | a part of a failure | the same part of any failure |
//! | a key of a context | the same key of any context |

use roundel_core::{Name, RunId};

/// Where a value lies.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place<'a> {
    /// What a run of this workflow was started with.
    Input(&'a Name),
    /// What was published to this topic.
    Topic(&'a Name),
    /// A signal, or an offer, of this name.
    Signal(&'a Name),
    /// What this run came to; an operator who says it may know the run by its key alone.
    Output(Option<RunId>),
    /// What some run came to.
    SomeOutput,
    /// What the journal of a run says of one of its calls.
    Call(RunId, u32, Part),
    /// A member of a run's state, by its path.
    State(&'a [u8]),
    /// A part of a failure.
    Failure(Field),
    /// The value of a context's key.
    Context(&'a Name),
    /// Anything that is its own place, wherever it lies.
    Anywhere,
}

/// What of a call.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    /// What it came to.
    Value,
    /// What its undo is given.
    Undo,
    /// What one of the runs that it set off came to: the number of that.
    End(u32),
}

/// What of a failure.
#[derive(Clone, Copy, Debug)]
pub(super) enum Field {
    Message,
    Data,
    Attempt,
}

/// What a value is sealed for, as it stands beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Made {
    pub(super) kind: u8,
    pub(super) name: Vec<u8>,
}

impl Place<'_> {
    /// What a value that goes there is sealed for.
    pub(super) fn made(&self) -> Made {
        let named = |name: &Name| name.as_str().as_bytes().to_vec();
        let (kind, name) = match self {
            Place::Input(workflow) => (b'i', named(workflow)),
            Place::Topic(topic) => (b'p', named(topic)),
            Place::Signal(signal) => (b's', named(signal)),
            Place::Output(run) => (b'o', run.map_or_else(Vec::new, |run| run.as_bytes().into())),
            Place::Call(..) => (b'c', Vec::new()),
            Place::State(_) => (b't', Vec::new()),
            Place::Failure(_) => (b'f', Vec::new()),
            Place::Context(_) => (b'x', Vec::new()),
            Place::SomeOutput | Place::Anywhere => unreachable!("read there, never sealed for it"),
        };
        Made { kind, name }
    }

    /// Does a value open there that was sealed for this?
    pub(super) fn takes(&self, made: &Made) -> bool {
        match self {
            Place::Input(_) => made.kind == b'p' || *made == self.made(),
            Place::Output(_) => made.kind == b'o' && made.name.is_empty() || *made == self.made(),
            Place::SomeOutput => made.kind == b'o',
            Place::Anywhere => matches!(made.kind, b'i' | b'p' | b's' | b'o'),
            Place::Topic(_)
            | Place::Signal(_)
            | Place::Call(..)
            | Place::State(_)
            | Place::Failure(_)
            | Place::Context(_) => *made == self.made(),
        }
    }

    /// What both who seals and who opens know of it, so that it need not stand beside the value.
    pub(super) fn known(&self) -> Vec<u8> {
        match self {
            Place::Call(run, call, part) => {
                let mut known = run.as_bytes().to_vec();
                known.extend(call.to_be_bytes());
                match part {
                    Part::Value => known.push(b'v'),
                    Part::Undo => known.push(b'u'),
                    Part::End(number) => {
                        known.push(b'e');
                        known.extend(number.to_be_bytes());
                    }
                }
                known
            }
            Place::State(path) => path.to_vec(),
            Place::Failure(Field::Message) => b"message".into(),
            Place::Failure(Field::Data) => b"data".into(),
            Place::Failure(Field::Attempt) => b"attempt".into(),
            Place::Context(key) => key.as_str().as_bytes().into(),
            Place::Input(_)
            | Place::Topic(_)
            | Place::Signal(_)
            | Place::Output(_)
            | Place::SomeOutput
            | Place::Anywhere => Vec::new(),
        }
    }
}
