//! What is sealed looks different each time: what is sent again is told by its mark.

use roundel_core::{Name, Offer, Op, Payload, Publish, Refusal, SEALED, Sent, Signal, Start};

use super::Make;
use super::desk::Desk;
use super::together::publishing;
use super::words::{A, offering, signal};

/// A value sealed under this key, known by this mark.
fn sealed(key: &str, value: &str, mark: &str) -> Payload {
    let text = format!("{SEALED}{key}:{value}:{mark}");
    Payload::encode(&text).expect("a text is JSON")
}

/// The same twice, and another: each looks different.
fn thrice() -> [Payload; 3] {
    [
        ("old", "aaa", "m1"),
        ("new", "bbb", "m1"),
        ("new", "ccc", "m2"),
    ]
    .map(|(key, value, mark)| sealed(key, value, mark))
}

pub fn p6_what_is_sent_again_sealed_differently_is_the_first(make: &Make) {
    let mut desk = Desk::new(make);
    let key = Some(Name::constant("k"));
    let run = desk.waiting(A, &[(1, "go")]);
    let starts = thrice().map(|input| {
        let (key, start) = (key.clone(), desk.starting());
        Op::Start(Start {
            key,
            input,
            ..start
        })
    });
    let signals = thrice().map(|payload| {
        let key = Some(Name::constant("sender"));
        let signal = signal(run, "go", 1);
        Op::Signal(Signal {
            key,
            payload,
            ..signal
        })
    });
    let offers = thrice().map(|payload| {
        let key = key.clone();
        let offer = offering("@job", 1);
        Op::Offer(Offer {
            key,
            payload,
            ..offer
        })
    });
    let publish = publishing(&mut desk);
    let publishes = thrice().map(|payload| {
        let publish = publish.clone();
        Op::Publish(Publish { payload, ..publish })
    });
    for [first, again, other] in [starts, signals, offers, publishes] {
        desk.must(first);
        desk.must(again);
        let refused = desk.refused(other);
        assert!(matches!(refused, Refusal::Conflict { .. }), "{refused}");
    }
    let dump = desk.dump();
    let counts = (dump.mail.len(), dump.offers.len(), dump.publications.len());
    assert_eq!(counts, (1, 1, 1));
    assert_eq!(dump.runs.iter().filter(|run| run.key == key).count(), 1);
    assert_eq!(desk.offer("@job", 2), Sent::Queued);
}
