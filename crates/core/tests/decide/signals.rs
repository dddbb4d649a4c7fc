//! Signals: what the sender is told, and which wait gets which message.

use roundel_core::{Name, Op, Policy, Refusal, Reply, RunState, Sent, Signal, Source, Target};

use crate::world::{
    A, World, claimant, closing, consuming, ending, opening, same, signal, suspending, value_of,
};

#[test]
fn si_03_a_signal_answers_what_became_of_it() {
    let mut world = World::new();
    let (waiting, idle) = (world.waiting(A, &[(1, "go")]), world.start());
    let ended = world.owned(A);
    world.end(ended);
    let unknown = world.new_id();
    let drop = |run| Signal {
        policy: Policy::Drop,
        expires: None,
        ..signal(run, "go", 1)
    };
    for (what, sent) in [
        (signal(waiting, "go", 1), Sent::Delivered(waiting)),
        (signal(waiting, "go", 2), Sent::Queued),
        (drop(waiting), Sent::Dropped),
        (signal(idle, "go", 1), Sent::Queued),
        (drop(idle), Sent::Dropped),
        (
            signal(ended, "go", 1),
            Sent::TargetEnded(RunState::Completed),
        ),
        (signal(unknown, "go", 1), Sent::TargetUnknown),
        (
            Signal {
                target: Target::Key(Name::constant("none")),
                ..signal(idle, "go", 1)
            },
            Sent::TargetUnknown,
        ),
        (
            Signal {
                namespace: Name::constant("other"),
                ..signal(idle, "go", 1)
            },
            Sent::TargetUnknown,
        ),
    ] {
        assert_eq!(world.send(what.clone()), sent, "{what:?}");
    }
    world.check();
    assert_eq!(world.mail(ended), [], "C3: no row is left behind");
}

#[test]
fn si_02_c2_a_signal_before_the_wait_completes_it_at_once_in_order_of_arrival() {
    let mut world = World::new();
    let run = world.owned(A);
    for value in 1..=3 {
        world.signal(run, "go", value);
    }
    let round = suspending(opening(world.round(run), &[(1, "go"), (2, "go")]));
    let committed = world.commit(round);
    assert!(committed.kept);
    let got: Vec<_> = committed
        .inbox
        .iter()
        .map(|d| (d.call, value_of(&d.body)))
        .collect();
    assert_eq!(got, [(1, 1), (2, 2)]);
    assert_eq!(world.mail(run).len(), 3, "matched is not consumed");
    world.check();
}

#[test]
fn si_24_a_dropped_signal_is_gone_and_the_next_after_the_wait_arrives_once() {
    let mut world = World::new();
    let run = world.owned(A);
    let drop = |value| Signal {
        policy: Policy::Drop,
        expires: None,
        ..signal(run, "go", value)
    };
    assert_eq!(world.send(drop(1)), Sent::Dropped);
    let round = suspending(opening(world.round(run), &[(1, "go")]));
    assert!(!world.commit(round).kept);
    assert_eq!(world.send(drop(2)), Sent::Delivered(run));
    assert_eq!(world.send(drop(3)), Sent::Dropped);
    assert_eq!(world.mail(run), [("go".into(), 2)]);
}

#[test]
fn si_01_c4_losers_consume_nothing_and_messages_keep_their_place() {
    let mut world = World::new();
    let run = world.waiting(A, &[(1, "x"), (2, "y")]);
    for (name, value) in [("x", 1), ("y", 2), ("x", 3)] {
        world.signal(run, name, value);
    }
    let claimed = world.claim(A, 1);
    let calls: Vec<_> = claimed[0]
        .inbox
        .iter()
        .map(|delivery| delivery.call)
        .collect();
    assert_eq!(calls, [1, 2], "in order of arrival");
    let round = closing(consuming(world.round(run), &[(1, "x")]), &[(2, "y")]);
    world.commit(round);
    assert_eq!(world.mail(run), [("y".into(), 2), ("x".into(), 3)]);
    let round = opening(world.round(run), &[(3, "x"), (4, "y")]);
    let committed = world.commit(round);
    let got: Vec<_> = committed
        .inbox
        .iter()
        .map(|d| (d.call, value_of(&d.body)))
        .collect();
    assert_eq!(got, [(4, 2), (3, 3)]);
    world.check();
}

#[test]
fn c15_a_message_that_is_let_go_goes_to_the_next_wait_for_it() {
    let mut world = World::new();
    let run = world.waiting(A, &[(1, "go"), (2, "go")]);
    world.signal(run, "go", 1);
    world.claim(A, 1);
    let round = closing(world.round(run), &[(1, "go")]);
    let committed = world.commit(round);
    let got: Vec<_> = committed
        .inbox
        .iter()
        .map(|d| (d.call, value_of(&d.body)))
        .collect();
    assert_eq!(got, [(2, 1)]);
    assert_eq!(
        committed.inbox[0].source,
        Source::Wait(Name::constant("go"))
    );
    world.check();
}

#[test]
fn si_12_c20_a_senders_key_gives_the_first_answer_and_does_nothing_again() {
    let mut world = World::new();
    let run = world.waiting(A, &[(1, "go")]);
    let keyed = |value| Signal {
        key: Some(Name::constant("k")),
        ..signal(run, "go", value)
    };
    assert_eq!(world.send(keyed(1)), Sent::Delivered(run));
    let before = world.dump();
    assert_eq!(world.send(keyed(1)), Sent::Delivered(run));
    same(&before, &world.dump());
    let key = Name::constant("k");
    assert_eq!(
        world.op(&Op::Signal(keyed(2))),
        Err(Refusal::Conflict { key })
    );
    same(&before, &world.dump());
    let by_key = Signal {
        key: Some(Name::constant("other")),
        ..signal(run, "go", 1)
    };
    assert_eq!(world.send(by_key), Sent::Queued);
}

#[test]
fn si_12_a_senders_key_is_remembered_after_the_end() {
    let mut world = World::new();
    let run = world.owned(A);
    let keyed = Signal {
        key: Some(Name::constant("k")),
        ..signal(run, "go", 1)
    };
    assert_eq!(world.send(keyed.clone()), Sent::Queued);
    world.end(run);
    assert_eq!(world.send(keyed), Sent::Queued);
    assert_eq!(
        world.signal(run, "go", 1),
        Sent::TargetEnded(RunState::Completed)
    );
}

#[test]
fn senders_keys_of_different_targets_do_not_meet() {
    let mut world = World::new();
    let (one, two) = (world.start(), world.start());
    let keyed = |run| Signal {
        key: Some(Name::constant("k")),
        ..signal(run, "go", 1)
    };
    assert_eq!(world.send(keyed(one)), Sent::Queued);
    assert_eq!(world.send(keyed(two)), Sent::Queued);
    assert_eq!(world.mail(two).len(), 1);
}

#[test]
fn si_13_several_signals_to_one_run_are_delivered_and_queued_in_order() {
    let mut world = World::new();
    let run = world.waiting(A, &[(1, "go")]);
    let mut sent = Vec::new();
    for value in 1..=3 {
        match world.decide(&Op::Signal(signal(run, "go", value))).unwrap() {
            Reply::Sent(answer, _) => sent.push(answer),
            other => panic!("{other:?}"),
        }
    }
    world.write();
    assert_eq!(sent, [Sent::Delivered(run), Sent::Queued, Sent::Queued]);
    let order: Vec<u32> = world.mail(run).iter().map(|(_, value)| *value).collect();
    assert_eq!(order, [1, 2, 3]);
}

#[test]
fn si_04_a_suspended_run_and_its_signal_never_pass_each_other() {
    for signal_first in [true, false] {
        let mut world = World::new();
        let run = world.owned(A);
        let suspend = Op::Commit(suspending(opening(world.round(run), &[(1, "go")])));
        let send = Op::Signal(signal(run, "go", 1));
        let order = if signal_first {
            [send, suspend]
        } else {
            [suspend, send]
        };
        for op in order {
            world.must(op);
            world.check();
        }
        assert!(
            world
                .run(run)
                .ready_at
                .is_some_and(|_| world.run(run).matched == 1)
        );
    }
}

#[test]
fn a_second_message_hands_over_both_when_the_holder_takes_the_run() {
    let mut world = World::new();
    let run = world.waiting(A, &[(1, "x"), (2, "y")]);
    world.signal(run, "x", 1);
    let mut second = signal(run, "y", 2);
    second.claimant = Some(claimant(A));
    let Reply::Sent(_, claimed) = world.must(Op::Signal(second)) else {
        panic!("sent")
    };
    assert_eq!(claimed[0].inbox.len(), 2);
}

#[test]
fn what_a_run_did_not_read_stays_with_it() {
    let mut world = World::new();
    let run = world.owned(A);
    let round = opening(world.round(run), &[(1, "go")]);
    world.commit(round);
    world.signal(run, "go", 1);
    world.signal(run, "other", 2);
    let round = ending(world.round(run), RunState::Failed);
    world.commit(round);
    assert_eq!(world.mail(run).len(), 2);
    world.check();
}
