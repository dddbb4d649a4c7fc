//! Starts: once per id, once per key.

use std::time::Duration;

use roundel_core::{
    Entry, Hint, Name, Op, Policy, Refusal, Reply, Round, RunState, Sent, Start, Target,
    decode_entries,
};

use crate::world::{
    A, LEASE, NS, World, claimant, ending, opening, same, signal, suspending, value, working,
};

fn keyed(world: &mut World, key: &'static str) -> Start {
    Start {
        key: Some(Name::constant(key)),
        ..world.starting()
    }
}

#[test]
fn ro_04_starting_twice_with_a_key_gives_the_first() {
    let mut world = World::new();
    let first = keyed(&mut world, "k");
    let again = keyed(&mut world, "k");
    assert!(world.started(first.clone()).new);
    let before = world.dump();
    let second = world.started(again);
    assert_eq!((second.run, second.new), (first.run, false));
    same(&before, &world.dump());
}

#[test]
fn e19_a_key_used_for_something_else_is_a_conflict() {
    let mut world = World::new();
    let first = keyed(&mut world, "k");
    world.started(first);
    let before = world.dump();
    for change in ["workflow", "input"] {
        let mut start = keyed(&mut world, "k");
        match change {
            "workflow" => start.workflow = Name::constant("other"),
            _ => start.input = value(1),
        }
        let key = Name::constant("k");
        assert_eq!(
            world.op(&Op::Start(start)),
            Err(Refusal::Conflict { key }),
            "{change}"
        );
        same(&before, &world.dump());
    }
    let elsewhere = Start {
        namespace: Name::constant("other"),
        input: value(1),
        ..keyed(&mut world, "k")
    };
    assert!(world.started(elsewhere).new, "a key belongs to a namespace");
}

#[test]
fn e20_the_same_id_again_is_the_same_run_or_a_conflict() {
    let mut world = World::new();
    let start = keyed(&mut world, "k");
    world.started(start.clone());
    assert!(!world.started(start.clone()).new);
    let plain = world.starting();
    world.started(plain.clone());
    assert!(!world.started(plain.clone()).new);
    let before = world.dump();
    let others = [
        Start {
            workflow: Name::constant("other"),
            ..plain.clone()
        },
        Start {
            namespace: Name::constant("other"),
            ..plain.clone()
        },
        Start {
            key: Some(Name::constant("k2")),
            ..plain.clone()
        },
        Start {
            key: None,
            ..start.clone()
        },
    ];
    for other in others {
        let refused = world.op(&Op::Start(other));
        assert!(
            matches!(refused, Err(Refusal::Conflict { .. })),
            "{refused:?}"
        );
        same(&before, &world.dump());
    }
}

#[test]
fn a_key_is_free_again_once_its_run_is_deleted() {
    let mut world = World::new();
    let first = Start {
        claimant: Some(claimant(A)),
        ..keyed(&mut world, "k")
    };
    let run = world.started(first).run;
    world.end(run);
    world.delete(run, false);
    let again = Start {
        input: value(9),
        ..keyed(&mut world, "k")
    };
    assert!(world.started(again).new);
}

#[test]
fn ro_27_a_start_takes_the_version_it_names_else_the_highest_known() {
    let mut world = World::new();
    let version = |world: &World, run| world.rows.lane(world.run(run).lane).version;
    let first = world.start();
    assert_eq!(version(&world, first), 1);
    let exact = Start {
        version: Some(3),
        ..world.starting()
    };
    let exact = world.started(exact).run;
    let latest = world.start();
    let unknown = Start {
        workflow: Name::constant("fresh"),
        ..world.starting()
    };
    let unknown = world.started(unknown).run;
    assert_eq!((version(&world, exact), version(&world, latest)), (3, 3));
    assert_eq!(version(&world, unknown), 1);
}

#[test]
fn a_start_is_leased_at_once_to_its_claimant() {
    let mut world = World::new();
    let start = Start {
        claimant: Some(claimant(A)),
        ..world.starting()
    };
    let started = world.started(start);
    assert_eq!(started.claimed.len(), 1);
    let claimed = &started.claimed[0];
    assert_eq!(
        (claimed.run, claimed.epoch, claimed.head),
        (started.run, 1, 1)
    );
    assert_eq!(world.run(started.run).owner, Some(A));
}

#[test]
fn a_start_for_later_is_leased_to_nobody_and_says_when() {
    let mut world = World::new();
    let at = world.now.after(Duration::from_secs(60));
    let start = world.starting();
    let first = Some(Box::new(working(Round::new(start.run, A, 1))));
    let start = Start {
        at: Some(at),
        claimant: Some(claimant(A)),
        first,
        ..start
    };
    world.rows.take_hints();
    let started = world.started(start);
    assert_eq!((started.first, started.claimed), (None, vec![]));
    assert_eq!(world.rows.take_hints(), [Hint::Ready(world.lane, at)]);
    assert_eq!(world.run(started.run).ready_at, Some(at));
}

#[test]
fn o_a_journal_says_when_what_was_started_for_later_is_due_and_nothing_of_what_is_due_at_once() {
    let mut world = World::new();
    let later = world.now.after(Duration::from_secs(60));
    for (at, due) in [
        (None, None),
        (Some(world.now), None),
        (Some(later), Some(later)),
    ] {
        let start = Start {
            at,
            ..world.starting()
        };
        world.started(start);
        let row = world.journal.last().expect("its start");
        let entries = decode_entries(&row.entries).unwrap();
        let [Entry::Started { due: said, .. }] = entries.as_slice() else {
            panic!("{entries:?}");
        };
        assert_eq!(*said, due);
    }
}

#[test]
fn si_17_signal_with_start_starts_and_delivers_in_one_commit() {
    let mut world = World::new();
    let with_signal = |world: &mut World, number| {
        let start = keyed(world, "k");
        let go = roundel_core::Signal {
            target: Target::Run(start.run),
            ..signal(start.run, "go", number)
        };
        Start {
            signal: Some(Box::new(go)),
            ..start
        }
    };
    let first = with_signal(&mut world, 1);
    let started = world.started(first);
    assert_eq!((started.new, started.sent), (true, Some(Sent::Queued)));
    let second = with_signal(&mut world, 2);
    let again = world.started(second);
    assert_eq!((again.run, again.new), (started.run, false));
    assert_eq!(
        again.sent,
        Some(Sent::Queued),
        "it reaches the run that has the key"
    );
    assert_eq!(
        world.mail(started.run),
        [("go".into(), 1), ("go".into(), 2)]
    );
    world.claim(A, 1);
    world.end(started.run);
    let third = with_signal(&mut world, 3);
    let sent = world.started(third).sent;
    assert_eq!(sent, Some(Sent::TargetEnded(RunState::Completed)));
}

#[test]
fn si_17_the_first_round_sees_the_signal_that_came_with_the_start() {
    let mut world = World::new();
    let start = keyed(&mut world, "k");
    let first = suspending(opening(Round::new(start.run, A, 1), &[(1, "go")]));
    let by_key = roundel_core::Signal {
        target: Target::Key(Name::constant("k")),
        key: Some(Name::constant("sender")),
        policy: Policy::Keep,
        expires: None,
        ..signal(start.run, "go", 1)
    };
    let start = Start {
        claimant: Some(claimant(A)),
        first: Some(Box::new(first)),
        signal: Some(Box::new(by_key)),
        ..start
    };
    let started = world.started(start.clone());
    let committed = started.first.unwrap().unwrap();
    assert!(committed.kept);
    assert_eq!(committed.inbox.len(), 1);
    let again = world.started(start);
    assert_eq!(
        again.sent, started.sent,
        "a sender's key gives the first answer"
    );
    assert_eq!(world.mail(again.run).len(), 1);
}

#[test]
fn a_start_with_anothers_signal_or_round_is_refused() {
    let mut world = World::new();
    let other = world.start();
    let before = world.dump();
    let start = world.starting();
    let first = Some(Box::new(Round::new(other, A, 1)));
    let elsewhere = roundel_core::Signal {
        namespace: Name::constant("other"),
        ..signal(start.run, "go", 1)
    };
    for bad in [
        Start {
            signal: Some(Box::new(signal(other, "go", 1))),
            ..start.clone()
        },
        Start {
            signal: Some(Box::new(elsewhere)),
            ..start.clone()
        },
        Start {
            first,
            ..start.clone()
        },
    ] {
        assert!(matches!(
            world.op(&Op::Start(bad)),
            Err(Refusal::Inconsistent { .. })
        ));
        same(&before, &world.dump());
    }
}

#[test]
fn a_first_round_that_ends_the_run_ends_it() {
    let mut world = World::new();
    let start = world.starting();
    let first = ending(working(Round::new(start.run, A, 1)), RunState::Completed);
    let (claimant, first) = (Some(claimant(A)), Some(Box::new(first)));
    let started = world.started(Start {
        claimant,
        first,
        ..start
    });
    assert_eq!(world.state(started.run), RunState::Completed);
    assert_eq!(started.claimed, []);
    let entries = decode_entries(&world.journal[0].entries).unwrap();
    assert!(matches!(entries.last(), Some(Entry::Ended { .. })));
    assert_eq!(world.claim(A, 1), []);
}

#[test]
fn a_first_round_that_is_refused_leaves_the_run_started() {
    let mut world = World::new();
    let start = world.starting();
    let mut first = working(Round::new(start.run, A, 1));
    first.epoch = 7;
    let (claimant, first) = (Some(claimant(A)), Some(Box::new(first)));
    let started = world.started(Start {
        claimant,
        first,
        ..start
    });
    assert!(matches!(
        started.first.as_deref(),
        Some(Err(Refusal::Fenced { .. }))
    ));
    assert_eq!(world.run(started.run).owner, Some(A));
    world.pass(LEASE);
    assert_eq!(world.claimed_ids(A, 1), [started.run]);
}

#[test]
fn a_label_given_twice_is_one_label() {
    let mut world = World::new();
    let name = Name::constant("city");
    let labels = vec![
        (name.clone(), "Ulm".to_owned()),
        (name.clone(), "Bonn".to_owned()),
    ];
    let start = Start {
        labels,
        namespace: NS,
        ..world.starting()
    };
    let run = start.run;
    let Ok(Reply::Started(_)) = world.decide(&Op::Start(start)) else {
        panic!("started")
    };
    assert_eq!(
        world.rows.take_changes().labels,
        [(run, name, "Bonn".to_owned())]
    );
}
