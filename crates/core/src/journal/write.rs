//! Entries as text, to the byte what their derived form says. The most frequent are written here:
//! a journal is mostly the words of its own form, which need not be looked at for escapes each
//! time. All others, and what is read, are left to the derived form.

use serde::Serialize;

use super::{Call, Entry, Outcome};
use crate::{Name, Payload};

/// A JSON array of them.
pub(super) fn entries(entries: &[Entry]) -> Vec<u8> {
    let mut text = Text(Vec::with_capacity(64 + entries.len() * 96));
    let mut between = "[";
    for entry in entries {
        text.words(between);
        text.entry(entry);
        between = ",";
    }
    text.words(if entries.is_empty() { "[]" } else { "]" });
    text.0
}

struct Text(Vec<u8>);

impl Text {
    fn entry(&mut self, entry: &Entry) {
        match entry {
            Entry::Begun { call, what } => {
                self.words(r#"{"begun":{"call":"#);
                self.value(call);
                self.words(r#","what":"#);
                self.call(what);
            }
            Entry::Done { call, outcome } => {
                self.words(r#"{"done":{"call":"#);
                self.value(call);
                self.words(r#","outcome":"#);
                self.outcome(outcome);
            }
            Entry::Did {
                call,
                what,
                outcome,
            } => {
                self.words(r#"{"did":{"call":"#);
                self.value(call);
                self.words(r#","what":"#);
                self.call(what);
                self.words(r#","outcome":"#);
                self.outcome(outcome);
            }
            Entry::Started {
                workflow,
                version,
                input,
                unsettled: None,
                context,
                due: None,
            } if context.is_empty() => {
                self.words(r#"{"started":{"workflow":"#);
                self.name(workflow);
                self.words(r#","version":"#);
                self.value(version);
                self.words(r#","input":"#);
                self.payload(input);
            }
            Entry::Ended { state } => {
                self.words(r#"{"ended":{"state":"#);
                self.value(state);
            }
            other => return self.value(other),
        }
        self.words("}}");
    }

    fn call(&mut self, what: &Call) {
        let (words, name) = match what {
            Call::Step { name, undo: None } => (r#"{"step":{"name":"#, name),
            Call::Effect { name, undo: None } => (r#"{"effect":{"name":"#, name),
            Call::Record { name } => (r#"{"record":{"name":"#, name),
            Call::State { name } => (r#"{"state":{"name":"#, name),
            Call::Wait {
                signal,
                until: None,
            } => (r#"{"wait":{"signal":"#, signal),
            other => return self.value(other),
        };
        self.words(words);
        self.name(name);
        self.words("}}");
    }

    fn outcome(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Value(value) => {
                self.words(r#"{"value":"#);
                self.payload(value);
                self.words("}");
            }
            failure @ Outcome::Failure(_) => self.value(failure),
        }
    }

    /// A name has no control characters: only these two would have to be escaped.
    fn name(&mut self, name: &Name) {
        let text = name.as_str();
        if text.bytes().any(|byte| byte == b'"' || byte == b'\\') {
            return self.value(name);
        }
        self.words("\"");
        self.words(text);
        self.words("\"");
    }

    /// It is text already.
    fn payload(&mut self, payload: &Payload) {
        self.words(payload.as_str());
    }

    fn value<T: Serialize>(&mut self, value: &T) {
        serde_json::to_writer(&mut self.0, value).expect("entries always encode");
    }

    fn words(&mut self, words: &str) {
        self.0.extend_from_slice(words.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Context, Failure, RunState, Timestamp, UndoBy};

    fn calls() -> Vec<Call> {
        let name = || Name::constant(r#"a "name" \ ü"#);
        let plain = || Name::constant("plain");
        let undo = Some(Box::new(UndoBy::Code));
        let until = Some(Timestamp(7));
        let signal = plain;
        vec![
            Call::Step {
                name: name(),
                undo: None,
            },
            Call::Step {
                name: plain(),
                undo: undo.clone(),
            },
            Call::Effect {
                name: plain(),
                undo: None,
            },
            Call::Effect { name: name(), undo },
            Call::Sleep {
                until: Timestamp(-3),
            },
            Call::Wait {
                signal: signal(),
                until: None,
            },
            Call::Wait {
                signal: signal(),
                until,
            },
            Call::Record { name: name() },
            Call::State { name: plain() },
            Call::Offer { signal: signal() },
        ]
    }

    fn all() -> Vec<Entry> {
        let value = || Payload::parse(r#"{"b":1,"a":["\u0000"]}"#).unwrap();
        let call = 4_000_000_000;
        let outcomes = || {
            let failure = Box::new(Failure::permanent("no \"way\"\n"));
            [Outcome::Value(value()), Outcome::Failure(failure)]
        };
        let mut set = Context::default();
        set.set(Name::constant("who"), value());
        let mut all = vec![Entry::CancelSeen, Entry::Dropped { call }, Entry::Continued];
        for (context, unsettled) in [
            (Context::default(), None),
            (set.clone(), None),
            (set, Some(2)),
        ] {
            all.push(Entry::Started {
                workflow: Name::constant("quote\""),
                version: 3,
                input: value(),
                unsettled,
                context,
                due: unsettled.map(|_| Timestamp(5)),
            });
        }
        all.push(Entry::Started {
            workflow: Name::constant("later"),
            version: 1,
            input: value(),
            unsettled: None,
            context: Context::default(),
            due: Some(Timestamp(5)),
        });
        all.extend([RunState::Completed, RunState::RolledBack].map(|state| Entry::Ended { state }));
        all.extend(outcomes().map(|outcome| Entry::Done { call, outcome }));
        for what in calls() {
            all.push(Entry::Begun {
                call,
                what: what.clone(),
            });
            for outcome in outcomes() {
                let what = what.clone();
                all.push(Entry::Did {
                    call,
                    what,
                    outcome,
                });
            }
        }
        all
    }

    #[test]
    fn e12_what_is_written_here_is_the_derived_form_to_the_byte() {
        let all = all();
        for entry in &all {
            let derived = serde_json::to_string(&[entry]).unwrap();
            let written = entries(std::slice::from_ref(entry));
            assert_eq!(String::from_utf8(written).unwrap(), derived);
        }
        assert_eq!(entries(&all), serde_json::to_vec(&all).unwrap());
        assert_eq!(entries(&[]), b"[]");
    }
}
