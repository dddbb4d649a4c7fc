//! Failures, as they are recorded, replayed and shown.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Name, Payload, RunId, SEALED, Timestamp, limits};

/// What a failure means for what happens next.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// The answer is no: not retried, ends the run.
    Business,
    /// May pass: retried as the policy says. What is not known to be anything else.
    Transient,
    /// Will not pass by itself: not retried; a root run that ends with it is parked.
    Permanent,
    /// Transient, and the retries are used up; treated as permanent.
    Exhausted,
    /// The run, or what it waited for, was cancelled.
    Cancelled,
}

/// What went wrong, in a form that survives storage and travels between processes.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// What it means.
    pub class: Class,
    /// A stable word for programs, such as `timed_out` or `panic`; empty for users' own errors.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub code: String,
    /// For people.
    pub message: String,
    /// What the user attached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Payload>,
    /// Where it happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Box<Origin>>,
    /// The attempts before the last, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<Attempted>,
    /// What caused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Box<Failure>>,
    /// Of an effect: it certainly did not happen, so there is nothing to undo.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub did_not_happen: bool,
}

/// Where a failure happened.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Origin {
    /// In which run.
    pub run: RunId,
    /// Of which workflow; empty if what recorded it did not say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub workflow: String,
    /// In which call of it.
    pub call: u32,
    /// The call's name.
    pub name: String,
    /// Which attempt.
    pub attempt: u32,
    /// The name of the worker; empty if what recorded it did not say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub worker: String,
}

/// One failed attempt of a call that was tried again.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Attempted {
    /// Counted from 1.
    pub attempt: u32,
    /// What went wrong.
    pub message: String,
    /// When.
    pub at: Timestamp,
}

/// What a rollback that failed has left, as the data of its failure.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Remainder {
    /// Why the run was rolled back.
    pub because: Failure,
    /// How many calls are left.
    pub count: usize,
    /// These, newest first, that which failed among them; no more than [`limits::REMAINDER`].
    pub calls: Vec<Remaining>,
}

/// Where a run's code and its journal part, as the data of the failure that it is parked with.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Divergence {
    /// At which entry of the journal.
    pub entry: u64,
    /// What the journal has there.
    pub recorded: String,
    /// What the code asks for instead.
    pub asked: String,
}

impl Divergence {
    /// The code of a failure that tells one.
    pub const CODE: &str = "diverged";

    /// Where the failure of a run says that its code and its journal part.
    #[must_use]
    pub fn told_by(failure: &Failure) -> Option<Divergence> {
        let data = failure.data.as_ref();
        data.filter(|_| failure.code == Divergence::CODE)?
            .decode()
            .ok()
    }
}

/// A call that is not undone, or not all that it set off.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Remaining {
    /// In which execution it is.
    pub execution: u32,
    /// Its number in that.
    pub call: u32,
    /// Its name.
    pub name: Name,
    /// Is it itself to be undone?
    pub own: bool,
    /// Is something that it set off to be undone?
    pub set_off: bool,
}

impl Remainder {
    /// The code of a failure that tells one.
    pub const CODE: &str = "rollback_failed";

    /// What the failure of a run says that its rollback has left.
    #[must_use]
    pub fn told_by(failure: &Failure) -> Option<Remainder> {
        let data = failure.data.as_ref();
        data.filter(|_| failure.code == Remainder::CODE)?
            .decode()
            .ok()
    }
}

impl Failure {
    /// A failure of this class. The message is cut to a limit.
    pub fn new(class: Class, message: impl fmt::Display) -> Failure {
        let mut message = message.to_string();
        if message.len() > limits::MESSAGE_BYTES {
            let cut = (0..=limits::MESSAGE_BYTES)
                .rev()
                .find(|at| message.is_char_boundary(*at));
            message.truncate(cut.unwrap_or(0));
            message.push('…');
        }
        // What others said is not to be taken for what is sealed.
        if message.starts_with(SEALED) {
            message.insert(0, ' ');
        }
        Failure {
            class,
            code: String::new(),
            message,
            data: None,
            origin: None,
            attempts: Vec::new(),
            cause: None,
            did_not_happen: false,
        }
    }

    /// The same for failures that are alike: of the same class and code, with the same message but
    /// for numbers and ids. A message that is sealed tells nothing.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let class = format!("{:?}", self.class);
        let is_word = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
        let mut message = String::with_capacity(self.message.len());
        let mut rest = match self.message.starts_with(SEALED) {
            true => "",
            false => self.message.as_str(),
        };
        while let Some(first) = rest.chars().next() {
            let end = rest.find(|c| is_word(c) != is_word(first));
            let (part, after) = rest.split_at(end.unwrap_or(rest.len()));
            let numbered = part.contains(|c: char| c.is_ascii_digit());
            message.push_str(if numbered { "#" } else { part });
            rest = after;
        }
        let digest = crate::message::digest(&[&class, &self.code, &message]);
        format!("{:016x}", (digest >> 64) ^ (digest & u128::from(u64::MAX)))
    }

    /// The answer is no: not retried; the run fails.
    pub fn business(message: impl fmt::Display) -> Failure {
        Failure::new(Class::Business, message)
    }

    /// May pass: tried again as the call's policy says.
    pub fn transient(message: impl fmt::Display) -> Failure {
        Failure::new(Class::Transient, message)
    }

    /// Will not pass by itself: an operator must look.
    pub fn permanent(message: impl fmt::Display) -> Failure {
        Failure::new(Class::Permanent, message)
    }

    /// With a stable word for programs.
    #[must_use]
    pub fn with_code(mut self, code: impl Into<String>) -> Failure {
        self.code = code.into();
        self
    }

    /// With a value of the user's own, which comes back after any number of restarts.
    #[must_use]
    pub fn with_data<T: Serialize>(mut self, data: &T) -> Failure {
        self.data = Payload::encode(data).ok().map(Payload::unlike_sealed);
        self
    }

    /// With what caused it. Of a chain that becomes too long, one in the middle is left out: its
    /// ends say most.
    #[must_use]
    pub fn caused_by(mut self, cause: Failure) -> Failure {
        self.cause = Some(Box::new(cause));
        let causes = std::iter::successors(self.cause.as_deref(), |of| of.cause.as_deref());
        if causes.count() > limits::CAUSES {
            let mut above = &mut self;
            for _ in 0..limits::CAUSES / 2 {
                above = above.cause.as_deref_mut().expect("just counted");
            }
            above.cause = above.cause.take().and_then(|middle| middle.cause);
        }
        self
    }

    /// Says that what was tried certainly did not happen: an effect that fails with it is not
    /// undone. Without this, an effect that has begun is, since it may have come through.
    #[must_use]
    pub fn did_not_happen(mut self) -> Failure {
        self.did_not_happen = true;
        self
    }

    /// What went wrong, where, and what caused it: one line each, across runs and processes.
    #[must_use]
    pub fn trace(&self) -> String {
        let mut lines = Vec::new();
        let mut next = Some(self);
        while let Some(failure) = next {
            let caused = if lines.is_empty() { "" } else { "caused by: " };
            lines.push(format!("{caused}{}", failure.message));
            if let Some(origin) = &failure.origin {
                lines.push(format!("  at {origin}"));
            }
            next = failure.cause.as_deref();
        }
        lines.join("\n")
    }

    /// About how many bytes it has when it is stored.
    #[must_use]
    pub fn size(&self) -> usize {
        let data = self.data.as_ref().map_or(0, Payload::size);
        let attempts: usize = self.attempts.iter().map(|of| of.message.len() + 64).sum();
        let cause = self.cause.as_ref().map_or(0, |cause| cause.size());
        self.message.len() + data + attempts + cause + 256
    }

    /// Ends a call for good: no further attempt helps.
    #[must_use]
    pub fn is_final(&self) -> bool {
        self.class != Class::Transient
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Origin { run, name, .. } = self;
        write!(f, "`{name}`, attempt {}, in run {run}", self.attempt)?;
        if !self.workflow.is_empty() {
            write!(f, " of `{}`", self.workflow)?;
        }
        match self.worker.as_str() {
            "" => Ok(()),
            worker => write!(f, ", by {worker}"),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if let Some(cause) = &self.cause {
            write!(f, ": {cause}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} failure: {self}", self.class)
    }
}

/// Any error becomes a transient failure, with its sources in the message. `Failure` is not itself
/// an `Error`, so that `?` works on all of them.
impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Failure {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            let text = cause.to_string();
            if !message.contains(&text) {
                message = format!("{message}: {text}");
            }
            source = cause.source();
        }
        Failure::transient(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e1_long_messages_are_cut_at_a_character() {
        let failure = Failure::business("ä".repeat(limits::MESSAGE_BYTES));
        assert!(failure.message.len() <= limits::MESSAGE_BYTES + '…'.len_utf8());
        assert!(failure.message.ends_with('…'));
    }

    #[test]
    fn sc_63_a_trace_says_where_and_what_caused_it() {
        let mut cause = Failure::transient("slow");
        // As it was stored before workflows and workers were named.
        let text = r#"{"run":"00000000-0000-7000-8000-000000000000","call":2,"name":"charge",
            "attempt":3}"#;
        let mut origin: Origin = serde_json::from_str(text).unwrap();
        assert_eq!((origin.workflow.as_str(), origin.worker.as_str()), ("", ""));
        (origin.workflow, origin.worker) = ("pay".into(), "desk 7".into());
        cause.origin = Some(Box::new(origin));
        let failure = Failure::business("declined").caused_by(cause);
        let lines = "declined\ncaused by: slow\n  at `charge`, attempt 3, in run \
                     00000000-0000-7000-8000-000000000000 of `pay`, by desk 7";
        assert_eq!(failure.trace(), lines);
    }

    #[test]
    fn sc_63_a_chain_of_causes_keeps_its_ends_and_can_be_read() {
        let mut failure = Failure::transient("the first");
        for number in 0..500 {
            failure = Failure::business(number)
                .with_data(&number)
                .caused_by(failure);
        }
        let text = serde_json::to_string(&failure).unwrap();
        assert_eq!(serde_json::from_str::<Failure>(&text).unwrap(), failure);
        let trace = failure.trace();
        assert_eq!(trace.lines().count(), 1 + limits::CAUSES);
        assert!(trace.starts_with("499\ncaused by: 498\n"), "{trace}");
        assert!(
            trace.ends_with("caused by: 0\ncaused by: the first"),
            "{trace}"
        );
    }

    #[test]
    fn sc_63_a_failure_survives_storage_with_its_causes() {
        let failure = Failure::business("declined")
            .with_code("card")
            .with_data(&7)
            .caused_by(Failure::transient("slow"));
        let text = serde_json::to_string(&failure).unwrap();
        assert_eq!(serde_json::from_str::<Failure>(&text).unwrap(), failure);
        assert_eq!(failure.to_string(), "declined: slow");
    }

    #[test]
    fn co_10_failures_that_differ_in_numbers_alone_are_alike() {
        let of = |message: &str| Failure::permanent(message).fingerprint();
        let one = "no account 4711 at 0190a3b2-77aa, try again";
        assert_eq!(of(one), of("no account 5 at 0190ffff-0000, try again"));
        assert_ne!(of(one), of("no account 4711 at home, try again"));
        let coded = Failure::permanent(one).with_code("unknown_account");
        assert_ne!(coded.fingerprint(), of(one));
        let other = Failure::business(one).fingerprint();
        assert_ne!(other, of(one));
        assert_eq!(of("").len(), 16);
        let sealed = |rest: &str| {
            let message = format!("{SEALED}k:{rest}");
            let failure = Failure::business(&message);
            assert_eq!(failure.message, format!(" {message}"), "it only looks so");
            Failure { message, ..failure }.fingerprint()
        };
        assert_eq!(sealed("abc"), sealed("xyz"));
    }
}
