//! What opens where, and what does not.

use roundel_core::{
    Context, Deadline, Entry, Failure, Name, Op, Outcome, Patch, Payload, RETENTION, Remainder,
    Round, RunId, SEALED, Signal, Start, Target, Then, Timestamp, decode_entries, encode_entries,
};

use roundel_store::{Answer, Memory, Query, Store, SystemClock, ask};

use super::answers::Opener;
use super::envelope::{Shut, open, seal};
use super::keys::Keys;
use super::masked;
use super::ops::Sealer;
use super::place::{Field, Part, Place};
use super::walk::{self, Hand};

static SPACE: Name = Name::constant("default");
static PAY: Name = Name::constant("pay");
static REFUND: Name = Name::constant("refund");

fn keys(text: &str) -> Keys {
    Keys::parse(text).unwrap()
}

fn run(byte: u8) -> RunId {
    RunId::from_bytes([byte; 16])
}

/// Each place once.
fn places<'a>() -> Vec<Place<'a>> {
    vec![
        Place::Input(&PAY),
        Place::Input(&REFUND),
        Place::Topic(&PAY),
        Place::Topic(&REFUND),
        Place::Signal(&PAY),
        Place::Signal(&REFUND),
        Place::Output(Some(run(1))),
        Place::Output(Some(run(2))),
        Place::Output(None),
        Place::Call(run(1), 1, Part::Value),
        Place::Call(run(1), 2, Part::Value),
        Place::Call(run(2), 1, Part::Value),
        Place::Call(run(1), 1, Part::Undo),
        Place::Call(run(1), 1, Part::End(0)),
        Place::Call(run(1), 1, Part::End(1)),
        Place::State(b"a"),
        Place::State(b"b"),
        Place::Failure(Field::Message),
        Place::Failure(Field::Data),
        Place::Failure(Field::Attempt),
        Place::Context(&PAY),
        Place::Context(&REFUND),
    ]
}

/// Those that a value is moved to by commits.
fn moves(from: usize, to: usize) -> bool {
    let topic_to_input = (2..=3).contains(&from) && to < 2;
    let by_hand = from == 8 && (6..8).contains(&to);
    from == to || topic_to_input || by_hand
}

#[test]
fn p3_a_value_opens_where_it_was_sealed_for_and_nowhere_else() {
    let keys = keys(&Keys::generate("one"));
    let with = (&keys, &SPACE);
    for (from, place) in places().iter().enumerate() {
        for text in ["", "7", r#"{"card":"4711"}"#, &"x".repeat(5000)] {
            let sealed = seal(with, place, text, None);
            assert!(!sealed.contains("4711"));
            for (to, other) in places().iter().enumerate() {
                let opened = open(with, other, &sealed);
                match moves(from, to) {
                    true => assert_eq!(opened.unwrap(), text, "{place:?} as {other:?}"),
                    false => assert_eq!(opened, Err(Shut::Broken("one".into())), "{other:?}"),
                }
            }
            let elsewhere = (&keys, &Name::constant("other"));
            assert!(open(elsewhere, place, &sealed).is_err());
        }
    }
    let some = Place::SomeOutput;
    for output in [Place::Output(None), Place::Output(Some(run(1)))] {
        assert_eq!(
            open(with, &some, &seal(with, &output, "7", None)).unwrap(),
            "7"
        );
    }
    assert!(open(with, &some, &seal(with, &Place::Signal(&PAY), "7", None)).is_err());
}

#[test]
fn p3_whatever_byte_is_changed_it_does_not_open() {
    let keys = keys(&Keys::generate("one"));
    let (with, place) = ((&keys, &SPACE), Place::Signal(&PAY));
    let sealed = seal(with, &place, r#""hunter2""#, None);
    for at in SEALED.len()..sealed.len() {
        for other in [b'A', b'B', b'_', b':'] {
            let mut bytes = sealed.clone().into_bytes();
            if bytes[at] == other {
                continue;
            }
            bytes[at] = other;
            let changed = String::from_utf8(bytes).unwrap();
            assert!(open(with, &place, &changed).is_err(), "{changed}");
        }
        assert!(open(with, &place, &sealed[..at]).is_err());
    }
}

#[test]
fn p6_all_keys_open_and_the_first_seals() {
    let (old, new, resends) = (Keys::line("old"), Keys::line("new"), Keys::line("resends"));
    let before = keys(&format!("{old}{resends}"));
    let after = keys(&format!("{new}{old}{resends}"));
    let without = keys(&format!("{new}{resends}"));
    let place = Place::Signal(&PAY);
    let sealed = seal((&before, &SPACE), &place, "7", None);
    assert!(sealed.starts_with(&format!("{SEALED}old:")));
    assert_eq!(open((&after, &SPACE), &place, &sealed).unwrap(), "7");
    let lost = open((&without, &SPACE), &place, &sealed);
    assert_eq!(lost, Err(Shut::NoKey("old".into())));
    let sealed = seal((&after, &SPACE), &place, "7", None);
    assert!(sealed.starts_with(&format!("{SEALED}new:")));
    // A key of the same name that is another opens nothing.
    let other = keys(&format!("{}{resends}", Keys::line("new")));
    let broken = open((&other, &SPACE), &place, &sealed);
    assert_eq!(broken, Err(Shut::Broken("new".into())));
}

fn mark(keys: &Keys, place: &Place<'_>, once: &str, text: &str) -> String {
    let sealed = seal((keys, &SPACE), place, text, Some(once));
    assert_eq!(open((keys, &SPACE), place, &sealed).unwrap(), text);
    sealed.rsplit_once(':').unwrap().1.to_owned()
}

#[test]
fn p6_what_is_sent_again_has_the_same_mark_also_under_another_key() {
    let resends = Keys::line("resends");
    let old = keys(&format!("{}{resends}", Keys::line("old")));
    let new = keys(&format!("{}{resends}", Keys::line("new")));
    let place = Place::Input(&PAY);
    let first = mark(&old, &place, "order-1", "7");
    assert_eq!(first, mark(&old, &place, "order-1", "7"));
    assert_eq!(first, mark(&new, &place, "order-1", "7"));
    assert_ne!(first, mark(&old, &place, "order-1", "8"));
    assert_ne!(first, mark(&old, &place, "order-2", "7"));
    assert_ne!(first, mark(&old, &Place::Input(&REFUND), "order-1", "7"));
    let others = keys(&Keys::generate("old"));
    assert_ne!(first, mark(&others, &place, "order-1", "7"));
}

#[test]
fn p3_equal_values_look_different() {
    let keys = keys(&Keys::generate("one"));
    let with = (&keys, &SPACE);
    for place in places() {
        assert_ne!(
            seal(with, &place, "true", None),
            seal(with, &place, "true", None)
        );
    }
    let again = self::keys(&Keys::generate("one"));
    let [one, two] = [&keys, &again].map(|keys| keys.nonce());
    assert_ne!(one[..8], two[..8], "each process has numbers of its own");
}

/// Seals with one hand, and opens with the other.
struct Both {
    keys: Keys,
}

impl Both {
    fn new() -> Both {
        let keys = keys(&Keys::generate("one"));
        Both { keys }
    }

    fn sealer(&self) -> Sealer<'_> {
        let (keys, namespace) = (&self.keys, &SPACE);
        Sealer { keys, namespace }
    }

    fn opener(&self) -> Opener<'_> {
        let (keys, namespace) = (&self.keys, &SPACE);
        Opener { keys, namespace }
    }
}

#[test]
fn p3_the_members_of_a_state_are_merged_as_they_would_be_in_the_clear() {
    let both = Both::new();
    for (before, patch) in [
        (
            r#"{"a":1,"b":{"c":[1,2],"d":"x"}}"#,
            r#"{"b":{"c":null,"e":{"f":2}},"g":null}"#,
        ),
        (r#"{"a":{"b":1}}"#, r#"{"a":7}"#),
        (r#"{"a":7}"#, r#"{"a":{"b":{}}}"#),
        ("[1,2]", r#"{"a":"b"}"#),
        (r#"{"a":7}"#, "null"),
        (r#"{"a":{}}"#, r#"[{"a":null}]"#),
    ] {
        let [mut one, mut two] = [before, patch].map(|text| Payload::parse(text).unwrap());
        let mut clear = merged(&one, &two);
        for value in [&mut one, &mut two] {
            walk::state(&mut both.sealer(), value);
        }
        let mut sealed = merged(&one, &two);
        walk::state(&mut both.opener(), &mut sealed);
        // As values: merging sorts.
        let value = |of: &mut Payload| of.decode::<serde_json::Value>().unwrap();
        assert_eq!(value(&mut sealed), value(&mut clear), "{before} {patch}");
    }
}

/// By the rules of the engine, through a store, as a member: patches are objects there.
fn merged(before: &Payload, patch: &Payload) -> Payload {
    let store = Memory::new(std::sync::Arc::new(SystemClock::default()));
    let start = Start::new(SPACE.clone(), run(1), PAY.clone(), Payload::null());
    ask(&store, Op::Start(start)).unwrap();
    for value in [before, patch] {
        let value = Payload::parse(&format!(r#"{{"s":{}}}"#, value.as_str())).unwrap();
        let (namespace, target) = (SPACE.clone(), Target::Run(run(1)));
        let patch = Patch {
            namespace,
            target,
            patch: value,
            expected: None,
        };
        ask(&store, Op::Patch(patch)).unwrap();
    }
    let read = store.read(Query::State(run(1)));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let Answer::State(state) = runtime.block_on(read).unwrap() else {
        unreachable!("a state was asked for")
    };
    let state: std::collections::BTreeMap<String, Payload> = state.unwrap().value.decode().unwrap();
    state.get("s").cloned().unwrap_or_else(Payload::null)
}

#[test]
fn e17_what_is_sealed_comes_back_to_the_byte() {
    let both = Both::new();
    for text in [
        "12345678901234567890123",
        "1e400",
        r#""\u0000 \ud83d""#,
        r#"{"b":1,"a":2}"#,
    ] {
        let before = Payload::parse(text).unwrap();
        let mut value = before.clone();
        both.sealer().value(&Place::Input(&PAY), None, &mut value);
        let json = serde_json::to_string(&value).unwrap();
        assert_eq!(json, value.as_str(), "nothing in it is escaped");
        both.opener().value(&Place::Input(&PAY), None, &mut value);
        assert_eq!(value, before);
    }
    // A state keeps the order of its members.
    let before = Payload::parse(r#"{"b":{"z":1e400,"a":null},"a":[1, 2]}"#).unwrap();
    let mut state = before.clone();
    walk::state(&mut both.sealer(), &mut state);
    assert_eq!(state.as_str().matches(SEALED).count(), 2);
    walk::state(&mut both.opener(), &mut state);
    assert_eq!(state, before);
}

#[test]
fn p3_what_the_engine_decides_by_in_a_failure_stays_readable() {
    let both = Both::new();
    let set_by = run(9);
    let at = Timestamp(5);
    let late = Deadline { at, set_by };
    let mut failure = late.missed();
    walk::failure(&mut both.sealer(), &mut failure);
    assert_eq!(
        failure.data.as_ref().unwrap().decode::<Deadline>().unwrap(),
        late
    );
    let because = Failure::business("card 4711").with_data(&4711);
    let left = Remainder {
        because: because.clone(),
        count: 0,
        calls: Vec::new(),
    };
    let mut failure = Failure::permanent("4711 is left")
        .with_code(Remainder::CODE)
        .with_data(&left);
    let before = failure.clone();
    walk::failure(&mut both.sealer(), &mut failure);
    let text = serde_json::to_string(&failure).unwrap();
    assert!(!text.contains("4711"), "{text}");
    assert_eq!(Remainder::told_by(&failure).unwrap().count, 0);
    walk::failure(&mut both.opener(), &mut failure);
    assert_eq!(failure, before);
    // Whoever chooses such a code for data of their own has it sealed.
    let mut failure = Failure::business("no")
        .with_code(Deadline::CODE)
        .with_data(&"4711");
    walk::failure(&mut both.sealer(), &mut failure);
    assert!(failure.data.unwrap().sealed().is_some());
}

#[test]
fn p3_what_is_sealed_is_not_sealed_again() {
    let both = Both::new();
    let mut round = Round::new(run(1), roundel_core::WorkerId(uuid::Uuid::nil()), 1);
    let outcome = Outcome::Value(Payload::parse("4711").unwrap());
    let mut context = Context::default();
    context.set(PAY.clone(), Payload::parse("4711").unwrap());
    let entries = [
        Entry::Done {
            call: 1,
            outcome: outcome.clone(),
        },
        Entry::ContextSet { context },
    ];
    round.entries = encode_entries(&entries);
    round.then = Then::End(roundel_core::RunState::Completed, outcome);
    both.sealer().round(&mut round);
    let once = round.clone();
    both.sealer().round(&mut round);
    assert_eq!(round, once);
    let text = String::from_utf8(round.entries.clone()).unwrap();
    assert_eq!(
        (text.contains("4711"), text.matches(SEALED).count()),
        (false, 2)
    );
    walk::encoded(&mut both.opener(), run(1), &mut round.entries);
    assert_eq!(decode_entries(&round.entries).unwrap(), entries);
}

#[test]
fn p3_how_long_things_are_kept_is_for_all_to_read() {
    let both = Both::new();
    let patch = |target| Patch {
        namespace: SPACE.clone(),
        target,
        patch: Payload::parse(r#"{"ended":"ever"}"#).unwrap(),
        expected: None,
    };
    for (target, plain) in [
        (Target::Key(RETENTION), true),
        (Target::Key(PAY.clone()), false),
        (Target::Run(run(1)), false),
    ] {
        let mut op = Op::Patch(patch(target.clone()));
        both.sealer().op(&mut op);
        assert_eq!(op == Op::Patch(patch(target)), plain);
    }
}

#[test]
fn p6_what_is_sent_under_a_key_is_marked_and_the_rest_is_not() {
    let both = Both::new();
    let signal = |key: Option<Name>| {
        let mut op = Op::Signal(Signal {
            namespace: SPACE.clone(),
            target: Target::Run(run(1)),
            name: PAY.clone(),
            payload: Payload::parse("7").unwrap(),
            policy: roundel_core::Policy::default(),
            expires: None,
            key,
            claimant: None,
        });
        both.sealer().op(&mut op);
        let Op::Signal(signal) = op else {
            unreachable!("it stays one")
        };
        signal.payload.as_str().matches(':').count()
    };
    assert_eq!((signal(None), signal(Some(PAY.clone()))), (4, 5));
}

#[test]
fn p3_what_does_not_open_is_shown_as_encrypted() {
    let both = Both::new();
    let sealed = seal((&both.keys, &SPACE), &Place::Input(&PAY), "7", Some("once"));
    let text = format!(r#"{{"a":"{sealed}","b":["{sealed}",1]}} and {sealed}"#);
    let shown =
        r#"{"a":"encrypted (key one)","b":["encrypted (key one)",1]} and encrypted (key one)"#;
    assert_eq!(masked(&text), shown);
    assert_eq!(masked("nothing"), "nothing");
    assert_eq!(masked(SEALED), "encrypted");
}
