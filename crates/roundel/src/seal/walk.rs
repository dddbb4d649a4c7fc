//! One walk over all values of an entry, an outcome, a failure, a context and a state, for who
//! seals and who opens alike: both come to the same values, at the same places.

use std::fmt;

use roundel_core::{
    Call, Context, Deadline, Entry, Failure, Outcome, Payload, Remainder, RunId, SEALED, ScopeEnd,
    UndoBy, Why, decode_entries, encode_entries, limits,
};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::place::{Field, Part, Place};

/// Seals or opens.
pub(super) trait Hand {
    /// A value; `once` is the id under which it may be sent again.
    fn value(&mut self, place: &Place<'_>, once: Option<&str>, value: &mut Payload);

    /// A text.
    fn text(&mut self, place: &Place<'_>, text: &mut String);

    /// Is there anything to do about this text?
    fn is_for(&self, text: &[u8]) -> bool;
}

/// Does what is stored like this hold something sealed?
pub(super) fn holds_sealed(text: &[u8]) -> bool {
    std::str::from_utf8(text).is_ok_and(|text| text.contains(SEALED))
}

/// Entries, encoded.
pub(super) fn encoded(hand: &mut impl Hand, run: RunId, bytes: &mut Vec<u8>) {
    if bytes.is_empty() || !hand.is_for(bytes) {
        return;
    }
    // What is no list of entries is told by whoever reads it as such.
    let Ok(mut entries) = decode_entries(bytes) else {
        return;
    };
    entries.iter_mut().for_each(|each| entry(hand, run, each));
    *bytes = encode_entries(&entries);
}

pub(super) fn entry(hand: &mut impl Hand, run: RunId, entry: &mut Entry) {
    match entry {
        Entry::Started {
            workflow,
            version: _,
            input,
            unsettled: _,
            context: flows,
            due: _,
        } => {
            if !is_plain(workflow) {
                hand.value(&Place::Input(workflow), None, input);
            }
            context(hand, flows);
        }
        Entry::ContextSet { context: set } => context(hand, set),
        Entry::Settled {
            call,
            ends,
            failure: why,
        } => {
            for (number, end) in (0..).zip(ends) {
                let ScopeEnd { outcome: of, .. } = end;
                outcome(hand, &Place::Call(run, *call, Part::End(number)), of);
            }
            why.iter_mut().for_each(|why| failure(hand, why));
        }
        Entry::RollingBack {
            why,
            was,
            context: flows,
        } => {
            match why {
                Why::Failed(why) => failure(hand, why),
                Why::Cancelled | Why::Asked | Why::Retried | Why::Skipped => {}
            }
            // It was taken over from the run's own row.
            was.iter_mut()
                .for_each(|was| outcome(hand, &Place::Output(Some(run)), was));
            context(hand, flows);
        }
        entry => of_call(hand, run, entry),
    }
}

/// An entry about one call, or about nothing that has a value.
fn of_call(hand: &mut impl Hand, run: RunId, entry: &mut Entry) {
    let value = |call| Place::Call(run, call, Part::Value);
    match entry {
        Entry::Begun { call, what } => undo(hand, (run, *call), what),
        Entry::Done { call, outcome: of } => outcome(hand, &value(*call), of),
        Entry::Did {
            call,
            what,
            outcome: of,
        } => {
            undo(hand, (run, *call), what);
            outcome(hand, &value(*call), of);
        }
        Entry::Attempted {
            call,
            what,
            attempt: _,
            failure: why,
            at: _,
            retry_at: _,
        } => {
            undo(hand, (run, *call), what);
            failure(hand, why);
        }
        Entry::Worked {
            call,
            what,
            value: came_to,
            window: _,
            emitted: _,
        } => {
            undo(hand, (run, *call), what);
            hand.value(&value(*call), None, came_to);
        }
        Entry::Started { .. }
        | Entry::ContextSet { .. }
        | Entry::Settled { .. }
        | Entry::RollingBack { .. } => unreachable!("they are about more than a call"),
        Entry::Dropped { .. }
        | Entry::CancelSeen
        | Entry::Kept
        | Entry::DeadlineMissed { .. }
        | Entry::Continued
        | Entry::Ended { .. } => {}
    }
}

/// Facts that come in are folded by commits, so they are never sealed; nor is how they wait.
pub(super) fn is_plain(workflow: &roundel_core::Name) -> bool {
    *workflow == roundel_core::INCOMING
}

fn undo(hand: &mut impl Hand, (run, call): (RunId, u32), what: &mut Call) {
    let by = match what {
        Call::Step { name: _, undo } | Call::Effect { name: _, undo } => undo,
        Call::Sleep { .. }
        | Call::Wait { .. }
        | Call::Watch { .. }
        | Call::Child { .. }
        | Call::Children { .. }
        | Call::Batch { .. }
        | Call::Publish { .. }
        | Call::Undo { .. }
        | Call::RollBack { .. }
        | Call::Spawn { .. }
        | Call::Signal { .. }
        | Call::Offer { .. }
        | Call::Record { .. }
        | Call::State { .. } => return,
    };
    match by.as_deref_mut() {
        Some(UndoBy::Named(_, args)) => {
            hand.value(&Place::Call(run, call, Part::Undo), None, args);
        }
        Some(UndoBy::Code | UndoBy::Finally) | None => {}
    }
}

pub(super) fn outcome(hand: &mut impl Hand, place: &Place<'_>, outcome: &mut Outcome) {
    match outcome {
        Outcome::Value(value) => hand.value(place, None, value),
        Outcome::Failure(why) => failure(hand, why),
    }
}

pub(super) fn failure(hand: &mut impl Hand, failure: &mut Failure) {
    let mut next = Some(failure);
    while let Some(Failure {
        class: _,
        code,
        message,
        data,
        origin: _,
        attempts,
        cause,
        did_not_happen: _,
    }) = next
    {
        hand.text(&Place::Failure(Field::Message), message);
        data.iter_mut().for_each(|data| told(hand, code, data));
        for attempt in attempts {
            hand.text(&Place::Failure(Field::Attempt), &mut attempt.message);
        }
        next = cause.as_deref_mut();
    }
}

/// What a failure tells. What the engine decides by stays as it is: when a run was late, and what a
/// rollback has left.
fn told(hand: &mut impl Hand, code: &str, data: &mut Payload) {
    if code == Deadline::CODE && is_exactly::<Deadline>(data) {
        return;
    }
    if code == Remainder::CODE && is_exactly::<Remainder>(data) {
        let mut remainder: Remainder = data.decode().expect("just decoded");
        failure(hand, &mut remainder.because);
        *data = Payload::encode(&remainder).expect("it had a JSON form");
        return;
    }
    hand.value(&Place::Failure(Field::Data), None, data);
}

/// Does it say that and nothing more? Users choose codes too.
fn is_exactly<T: serde::de::DeserializeOwned + serde::Serialize>(data: &Payload) -> bool {
    let again = data.decode::<T>().and_then(|told| Payload::encode(&told));
    again.is_ok_and(|again| again == *data)
}

pub(super) fn context(hand: &mut impl Hand, context: &mut Context) {
    if context.is_empty() {
        return;
    }
    let mut walked = Context::default();
    for (key, value) in context.iter() {
        let mut value = value.clone();
        hand.value(&Place::Context(key), None, &mut value);
        walked.set(key.clone(), value);
    }
    *context = walked;
}

/// A run's state, or a patch to it: it is merged by commits, so its members stay members, and what
/// they hold is sealed, each alone. `null` removes a member and stays too.
pub(super) fn state(hand: &mut impl Hand, state: &mut Payload) {
    if hand.is_for(state.as_str().as_bytes()) {
        let walked = member(hand, &mut Vec::new(), state.as_str(), 1);
        *state = Payload::parse(&walked).expect("JSON with other texts in it is JSON");
    }
}

fn member(hand: &mut impl Hand, path: &mut Vec<u8>, text: &str, depth: usize) -> String {
    if text == "null" {
        return text.to_owned();
    }
    let object = text.starts_with('{') && depth <= limits::PATCH_DEPTH;
    let members = object.then(|| serde_json::from_str::<Members>(text).ok());
    let Some(Members(members)) = members.flatten() else {
        let mut value = Payload::parse(text).expect("a part of JSON is JSON");
        hand.value(&Place::State(path), None, &mut value);
        return value.as_str().to_owned();
    };
    let mut walked = String::from("{");
    for (key, value) in members {
        if walked.len() > 1 {
            walked.push(',');
        }
        walked.push_str(&serde_json::to_string(&key).expect("a text is JSON"));
        walked.push(':');
        let before = path.len();
        path.extend((key.len() as u64).to_be_bytes());
        path.extend(key.as_bytes());
        walked.push_str(&member(hand, path, value.get(), depth + 1));
        path.truncate(before);
    }
    walked.push('}');
    walked
}

/// The members of an object, in their order.
struct Members(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Members, D::Error> {
        struct Each;
        impl<'de> Visitor<'de> for Each {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        from.deserialize_map(Each)
    }
}
