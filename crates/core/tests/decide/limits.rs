//! Limits, exact at the boundary: what has the size of the limit passes, one more is refused and
//! changes nothing.

use roundel_core::{
    Caused, Name, Op, Outcome, Payload, Refusal, Round, RunState, Scope, Signal, Start,
    StateChange, Then, limits,
};

use crate::world::{A, World, offering, same, signal, suspending};

fn text(bytes: usize) -> Payload {
    Payload::encode(&"x".repeat(bytes - 2)).unwrap()
}

/// Both must be built from the same world; the first passes, the second is refused.
fn boundary(world: &mut World, what: &str, fits: &Op, over: &Op) {
    let before = world.dump();
    match world.op(over) {
        Err(Refusal::Limit { limit, found, .. }) => {
            assert_eq!(found, limit + 1, "{what}");
        }
        other => panic!("{what}: {other:?}"),
    }
    same(&before, &world.dump());
    let reply = world.op(fits);
    assert!(reply.is_ok(), "{what}: {reply:?}");
}

#[test]
fn ro_41_payloads() {
    let mut world = World::new();
    let run = world.owned(A);
    let start = world.starting();
    let with = |input| {
        Op::Start(Start {
            input,
            ..start.clone()
        })
    };
    let size = limits::PAYLOAD_BYTES;
    boundary(
        &mut world,
        "input",
        &with(text(size)),
        &with(text(size + 1)),
    );
    let send = |payload| {
        Op::Signal(Signal {
            payload,
            ..signal(run, "go", 1)
        })
    };
    boundary(
        &mut world,
        "signal",
        &send(text(size)),
        &send(text(size + 1)),
    );
    let offer = |payload| {
        Op::Offer(roundel_core::Offer {
            payload,
            ..offering("@job", 1)
        })
    };
    boundary(
        &mut world,
        "offer",
        &offer(text(size)),
        &offer(text(size + 1)),
    );
    let state = |world: &World, value| {
        let mut round = world.round(run);
        round.state.push(StateChange::Set(value));
        Op::Commit(round)
    };
    let (fits, over) = (state(&world, text(size)), state(&world, text(size + 1)));
    boundary(&mut world, "state", &fits, &over);
    let end = |world: &World, value| {
        let mut round = world.round(run);
        round.then = Then::End(RunState::Completed, Outcome::Value(value));
        Op::Commit(round)
    };
    let (fits, over) = (end(&world, text(size)), end(&world, text(size + 1)));
    boundary(&mut world, "result", &fits, &over);
}

#[test]
fn ro_41_labels() {
    let mut world = World::new();
    let start = world.starting();
    let with = |count: usize, bytes: usize| {
        let name = |at: usize| Name::new(format!("label {at}")).unwrap();
        let labels = (0..count).map(|at| (name(at), "v".repeat(bytes))).collect();
        Op::Start(Start {
            labels,
            ..start.clone()
        })
    };
    let mut other = world.clone();
    let (count, bytes) = (limits::LABELS, limits::LABEL_BYTES);
    boundary(&mut world, "labels", &with(count, 1), &with(count + 1, 1));
    boundary(&mut other, "a label", &with(1, bytes), &with(1, bytes + 1));
}

#[test]
fn ro_41_what_a_round_sets_off_and_weighs() {
    let mut world = World::new();
    let run = world.owned(A);
    let fan = |world: &World, count| {
        let mut round = world.round(run);
        round.caused = vec![Caused::Cancel(Scope::Child(run)); count];
        Op::Commit(round)
    };
    let (fits, over) = (
        fan(&world, limits::FAN_OUT),
        fan(&world, limits::FAN_OUT + 1),
    );
    boundary(&mut world.clone(), "fan-out", &fits, &over);
    let heavy = |world: &World, bytes| {
        let mut round = world.round(run);
        (round.entries, round.count) = (vec![b' '; bytes], 1);
        Op::Commit(round)
    };
    let (fits, over) = (
        heavy(&world, limits::ROUND_BYTES),
        heavy(&world, limits::ROUND_BYTES + 1),
    );
    boundary(&mut world.clone(), "entries", &fits, &over);
    let anew = |world: &World, bytes| {
        let mut round = world.round(run);
        round.then = Then::ContinueAsNew(vec![b' '; bytes], None);
        Op::Commit(round)
    };
    let (fits, over) = (
        anew(&world, limits::ROUND_BYTES),
        anew(&world, limits::ROUND_BYTES + 1),
    );
    boundary(&mut world, "first entries", &fits, &over);
}

#[test]
fn ro_41_f9_a_journal_keeps_room_for_its_end() {
    let mut world = World::new();
    let run = world.owned(A);
    let long = |world: &World, count: u64, then: Then| {
        let mut round = world.round(run);
        (round.entries, round.count) = (b"[]".to_vec(), u32::try_from(count).unwrap());
        round.then = then;
        Op::Commit(round)
    };
    let left = limits::JOURNAL_ENTRIES - 1;
    let fits = long(&world, left, Then::Continue);
    let over = long(&world, left + 1, Then::Continue);
    boundary(&mut world, "journal", &fits, &over);
    let one_more = long(&world, 1, Then::Suspend);
    assert!(matches!(world.op(&one_more), Err(Refusal::Limit { .. })));
    let end = || Then::End(RunState::Failed, Outcome::Value(Payload::null()));
    let fits = long(&world, limits::JOURNAL_RESERVE, end());
    let over = long(&world, limits::JOURNAL_RESERVE + 1, end());
    boundary(&mut world, "its end", &fits, &over);
}

#[test]
fn ro_41_a_mailbox() {
    let mut world = World::new();
    let run = world.start();
    for number in 1..limits::MAILBOX {
        let sent = world.decide(&Op::Signal(signal(run, "go", number)));
        assert!(sent.is_ok());
    }
    world.write();
    let last = Op::Signal(signal(run, "go", 0));
    assert!(world.op(&last).is_ok());
    let before = world.dump();
    assert!(matches!(world.op(&last), Err(Refusal::Limit { .. })));
    let with_start = Start {
        run,
        signal: Some(Box::new(signal(run, "go", 1))),
        ..world.starting()
    };
    assert!(matches!(
        world.op(&Op::Start(with_start)),
        Err(Refusal::Limit { .. })
    ));
    same(&before, &world.dump());
}

#[test]
fn ro_41_a_claim_and_an_inbox() {
    let mut world = World::new();
    for _ in 0..=limits::CLAIM {
        let start = Op::Start(world.starting());
        world.decide(&start).unwrap();
    }
    world.write();
    assert_eq!(world.claim(A, usize::MAX).len(), limits::CLAIM);
    let run = world.owned(A);
    let count = u32::try_from(limits::INBOX).unwrap() + 1;
    let mut round = suspending(Round::new(run, A, 1));
    for call in 1..=count {
        let (name, offerable) = (Name::constant("go"), false);
        round.opened.push(roundel_core::OpenWait {
            call,
            name,
            offerable,
        });
        world.decide(&Op::Signal(signal(run, "go", call))).unwrap();
    }
    let committed = world.commit(round);
    assert_eq!(committed.inbox.len(), limits::INBOX);
    assert_eq!(committed.inbox[0].call, 1, "the oldest first");
}
