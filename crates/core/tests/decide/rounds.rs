//! Rounds: fence, journal, what they consume, what they leave behind.

use roundel_core::{
    CancelMark, Caused, Consumed, Entry, Failure, Fence, Name, Op, OpenWait, Outcome, Refusal,
    Reply, Round, RunId, RunState, Start, Then, Timestamp, decode_entries, may_step,
};

use crate::world::{
    A, B, World, child_of, claimant, consuming, ending, opening, recording, same, signal,
    suspending, value, working,
};

fn numbers(world: &World, run: RunId) -> Vec<(u32, u64, u32)> {
    let rows = world.journal.iter().filter(|row| row.run == run);
    rows.map(|row| (row.execution, row.first, row.count))
        .collect()
}

#[test]
fn ro_20_entries_are_gap_free_from_one() {
    let mut world = World::new();
    let run = world.owned(A);
    for _ in 0..3 {
        let round = working(working(world.round(run)));
        world.commit(round);
        let nothing = world.round(run);
        world.commit(nothing);
    }
    world.end(run);
    assert_eq!(
        numbers(&world, run),
        [(1, 1, 1), (1, 2, 2), (1, 4, 2), (1, 6, 2), (1, 8, 1)]
    );
    assert_eq!(world.run(run).head, 8);
    for row in world.journal.iter().filter(|row| row.run == run) {
        assert_eq!(
            decode_entries(&row.entries).unwrap().len(),
            row.count as usize
        );
    }
}

#[test]
fn a_start_and_its_first_round_share_a_row_and_nothing_else_does() {
    let mut world = World::new();
    let start = world.starting();
    let first = working(Round::new(start.run, A, 1));
    let start = Start {
        claimant: Some(claimant(A)),
        first: Some(Box::new(suspending(first))),
        ..start
    };
    let started = world.started(start);
    assert!(started.first.is_some_and(|first| first.is_ok()));
    assert_eq!(started.claimed, []);
    assert_eq!(numbers(&world, started.run), [(1, 1, 2)]);
    let entries = decode_entries(&world.journal[0].entries).unwrap();
    assert!(matches!(
        entries[..],
        [Entry::Started { .. }, Entry::Did { .. }]
    ));

    let start = Op::Start(world.starting());
    let Ok(Reply::Started(other)) = world.decide(&start) else {
        panic!("started")
    };
    let mut world = with_claim(world, other.run);
    let round = Op::Commit(working(world.round(other.run)));
    world.decide(&round).unwrap();
    world.write();
    assert_eq!(
        numbers(&world, other.run),
        [(1, 1, 1), (1, 2, 1)],
        "although fused"
    );
}

fn with_claim(mut world: World, run: RunId) -> World {
    let lanes = vec![world.lane];
    let lease = crate::world::LEASE;
    let claim = Op::Claim(roundel_core::Claim {
        worker: A,
        lanes,
        limit: 9,
        lease,
    });
    world.decide(&claim).unwrap();
    assert_eq!(world.run(run).owner, Some(A));
    world
}

#[test]
fn ro_05_a_run_ends_once() {
    let mut world = World::new();
    let run = world.owned(A);
    let completed = ending(world.round(run), RunState::Completed);
    let failed = ending(world.round(run), RunState::Failed);
    world.commit(completed);
    let before = world.dump();
    assert!(matches!(
        world.try_commit(failed),
        Err(Refusal::Fenced { .. })
    ));
    same(&before, &world.dump());
    assert_eq!(world.state(run), RunState::Completed);
    world.check();
}

#[test]
fn ro_15_a_round_of_a_run_that_is_gone_recreates_nothing() {
    let mut world = World::new();
    let run = world.new_id();
    let refused = world.try_commit(working(Round::new(run, A, 1)));
    assert_eq!(refused, Err(Refusal::UnknownRun { run }));
    assert!(world.rows.run(run).is_none());
}

#[test]
fn a_step_is_let_in_by_the_same_rules_as_its_round() {
    let mut world = World::new();
    let run = world.owned(A);
    let gone = world.new_id();
    let fence = |epoch| Round::new(run, A, epoch).fence();
    let another = Fence {
        created_at: Some(Timestamp(1)),
        ..fence(1)
    };
    assert_eq!(may_step(&world.rows, run, (A, fence(1)), world.now), Ok(()));
    assert!(matches!(
        may_step(&world.rows, run, (A, fence(2)), world.now),
        Err(Refusal::Fenced { .. })
    ));
    assert!(matches!(
        may_step(&world.rows, run, (B, fence(1)), world.now),
        Err(Refusal::Fenced { .. })
    ));
    assert!(matches!(
        may_step(&world.rows, run, (A, another), world.now),
        Err(Refusal::Fenced { .. })
    ));
    assert_eq!(
        may_step(&world.rows, gone, (A, fence(1)), world.now),
        Err(Refusal::UnknownRun { run: gone })
    );
    world.cancel(run);
    assert_eq!(
        may_step(&world.rows, run, (A, fence(1)), world.now),
        Err(Refusal::CancelRequested { run })
    );
}

#[test]
fn a_suspended_run_keeps_its_lease_if_something_is_there_already() {
    let mut world = World::new();
    let run = world.owned(A);
    let round = suspending(opening(world.round(run), &[(1, "go")]));
    for there in ["nothing", "mail", "cancel", "timer"] {
        let mut world = world.clone();
        let mut round = round.clone();
        match there {
            "mail" => assert_eq!(world.signal(run, "go", 1), roundel_core::Sent::Queued),
            "cancel" => {
                world.cancel(run);
                round = suspending(world.round(run));
            }
            "timer" => round.timer_at = Some(world.now),
            _ => {}
        }
        let committed = world.commit(round);
        assert_eq!(committed.kept, there != "nothing", "{there}");
        assert_eq!(committed.epoch, 2, "{there}");
        assert_eq!(
            committed.inbox.len(),
            usize::from(there == "mail"),
            "{there}"
        );
        assert_eq!(world.run(run).owner.is_some(), committed.kept);
        world.check();
    }
}

#[test]
fn a_parked_round_gives_the_lease_up_and_keeps_the_reason() {
    let mut world = World::new();
    let run = world.owned(A);
    let mut round = working(world.round(run));
    round.then = Then::Park(Box::new(
        Failure::permanent("diverged").with_code("diverged"),
    ));
    let late = world.round(run);
    assert!(!world.commit(round).kept);
    let row = world.run(run);
    assert_eq!(
        (row.state, row.ready_at, row.owner),
        (RunState::Parked, None, None)
    );
    let Some(Outcome::Failure(reason)) = &row.outcome else {
        panic!("a reason")
    };
    assert_eq!(reason.code, "diverged");
    assert!(world.try_commit(late).is_err());
    world.signal(run, "go", 1);
    assert_eq!(
        world.state(run),
        RunState::Parked,
        "a message does not unpark"
    );
}

/// Rounds that bring the run forward, each in another way.
fn forward(world: &mut World, run: RunId) -> Vec<Round> {
    let child = child_of(world, run, 1);
    let round = world.round(run);
    let with = |change: &dyn Fn(&mut Round)| {
        let mut round = round.clone();
        change(&mut round);
        round
    };
    let (call, name, offerable) = (1, Name::constant("go"), false);
    let wait = OpenWait {
        call,
        name,
        offerable,
    };
    let set = roundel_core::StateChange::Set(value(1));
    vec![
        with(&|round| round.opened.push(wait.clone())),
        with(&|round| round.state.push(set.clone())),
        with(&|round| round.caused.push(Caused::Child(1, Box::new(child.clone())))),
        with(&|round| round.caused = vec![Caused::Signal(1, Box::new(signal(run, "go", 1)))]),
        ending(round.clone(), RunState::Completed),
        with(&|round| round.then = Then::ContinueAsNew(b"[]".to_vec(), None)),
    ]
}

#[test]
fn inv21_after_a_cancel_no_forward_round_commits() {
    let mut world = World::new();
    let run = world.owned(A);
    world.cancel(run);
    for mark in [CancelMark::Requested, CancelMark::Seen] {
        assert_eq!(world.run(run).cancel, mark);
        let rounds = forward(&mut world, run);
        let before = world.dump();
        for round in rounds {
            let shown = format!("{round:?}");
            let refused = world.try_commit(round);
            assert_eq!(refused, Err(Refusal::CancelRequested { run }), "{shown}");
            same(&before, &world.dump());
        }
        let working = working(world.round(run));
        let may_record = mark == CancelMark::Seen;
        assert_eq!(world.try_commit(working).is_ok(), may_record, "{mark:?}");
        let silent = world.round(run);
        world.commit(silent);
        let mut seen = recording(world.round(run), &[Entry::CancelSeen]);
        seen.cancel_seen = true;
        world.commit(seen);
    }
    let last = ending(world.round(run), RunState::Cancelled);
    world.commit(last);
    assert_eq!(world.state(run), RunState::Cancelled);
}

#[test]
fn inv21_a_rollback_that_fails_does_not_overtake_a_cancel() {
    let mut world = World::new();
    let run = world.owned(A);
    world.cancel(run);
    // It failed and could not be undone before its worker heard of the request.
    let unaware = ending(world.round(run), RunState::RollbackFailed);
    let refused = world.try_commit(unaware);
    assert_eq!(refused, Err(Refusal::CancelRequested { run }));
    let mut aware = ending(world.round(run), RunState::RollbackFailed);
    aware.cancel_seen = true;
    world.commit(aware);
    assert_eq!(world.state(run), RunState::RollbackFailed);
}

type Bug = (&'static str, Box<dyn Fn(&mut Round)>);

/// Each of these is a bug in a worker, and none may do harm. The run has an offerable wait in call
/// 2, and waits for `go` in calls 1, which has a message, and 3.
fn bugs(child: &Start, orphan: &Start) -> Vec<Bug> {
    fn bug(what: &'static str, change: impl Fn(&mut Round) + 'static) -> Bug {
        (what, Box::new(change))
    }
    let caused = |caused: Caused| move |round: &mut Round| round.caused.push(caused.clone());
    let (go, offer) = (Name::constant("go"), Name::constant("@offer"));
    let consumed = |call| Consumed::Wait(Name::constant("go"), call);
    let plain = OpenWait {
        call: 3,
        name: go,
        offerable: false,
    };
    let twice = vec![
        OpenWait {
            call: 7,
            ..plain.clone()
        };
        2
    ];
    let gateless = OpenWait {
        call: 7,
        name: offer.clone(),
        offerable: true,
    };
    let no_end = Then::End(RunState::Ready, Outcome::Value(value(1)));
    vec![
        bug("no wait had", move |r| r.consumed.push(consumed(9))),
        bug("no wait had", move |r| r.consumed.push(consumed(3))),
        bug("twice", move |r| r.consumed = vec![consumed(1); 2]),
        bug("never got", |r| r.consumed.push(Consumed::Mail(1))),
        bug("is open", move |r| r.opened.push(plain.clone())),
        bug("twice", move |r| r.opened = twice.clone()),
        bug("without its gate", move |r| r.opened.push(gateless.clone())),
        bug("without its gate", move |r| {
            r.closed.push((offer.clone(), 2));
        }),
        bug("no end", move |r| r.then = no_end.clone()),
        bug(
            "another parent",
            caused(Caused::Child(1, child.clone().into())),
        ),
        bug(
            "another parent",
            caused(Caused::Child(8, orphan.clone().into())),
        ),
        bug(
            "has a parent",
            caused(Caused::Spawn(8, child.clone().into())),
        ),
    ]
}

#[test]
fn what_no_worker_may_send_is_refused_and_changes_nothing() {
    let mut world = World::new();
    let run = world.owned(A);
    let round = opening(world.round(run), &[(1, "go"), (2, "@offer"), (3, "go")]);
    world.commit(round);
    world.signal(run, "go", 1);
    let (child, orphan) = (child_of(&mut world, run, 8), world.starting());
    let before = world.dump();
    for (expected, bug) in bugs(&child, &orphan) {
        let mut round = working(world.round(run));
        bug(&mut round);
        match world.try_commit(round) {
            Err(Refusal::Inconsistent { what, .. }) => assert!(what.contains(expected), "{what}"),
            other => panic!("{expected}: {other:?}"),
        }
        same(&before, &world.dump());
    }
    world.check();
}

#[test]
fn ro_04_a_message_is_consumed_once() {
    let mut world = World::new();
    let run = world.waiting(A, &[(1, "go")]);
    world.signal(run, "go", 1);
    world.claim(A, 1);
    let round = consuming(world.round(run), &[(1, "go")]);
    world.commit(round);
    let row = world.run(run);
    assert_eq!((row.mail, row.matched, row.waits), (0, 0, 0));
    let again = consuming(world.round(run), &[(1, "go")]);
    assert!(matches!(
        world.try_commit(again),
        Err(Refusal::Inconsistent { .. })
    ));
    world.check();
}

#[test]
fn a_run_that_is_committed_by_b_after_a_lost_it_is_held_by_b() {
    let mut world = World::new();
    let run = world.waiting(A, &[(1, "go")]);
    assert_eq!(world.run(run).holder, Some(A));
    world.signal(run, "go", 1);
    world.pass(roundel_core::limits::HEAD_START);
    world.claim(B, 1);
    assert_eq!(world.run(run).holder, Some(B));
}
