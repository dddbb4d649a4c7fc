//! Claim, renew, release.

use std::time::Duration;

use roundel_core::{
    Claim, Lease, Op, Refusal, Register, Release, Renew, Reply, RunState, Start, Target, WorkerId,
};

use crate::world::{
    A, B, LEASE, World, claimant, lane, opening, recording, same, signal, suspending, working,
};

#[test]
fn ro_10_one_owner_at_a_time() {
    let mut world = World::new();
    let run = world.start();
    assert_eq!(world.claimed_ids(A, 9), [run]);
    assert_eq!(world.claimed_ids(B, 9), []);
    assert_eq!(world.state(run), RunState::Running);
}

#[test]
fn ro_10_claimers_get_distinct_runs_and_none_gets_nothing() {
    let mut world = World::new();
    let runs = [world.start(), world.start(), world.start()];
    let (a, b, c) = (
        world.claimed_ids(A, 1),
        world.claimed_ids(B, 1),
        world.claimed_ids(A, 1),
    );
    assert_eq!([a[0], b[0], c[0]], runs);
}

#[test]
fn ro_11_b1_after_a_takeover_the_first_owner_changes_nothing() {
    let mut world = World::new();
    let run = world.owned(A);
    let late = working(world.round(run));
    world.pass(LEASE);
    assert_eq!(world.claimed_ids(B, 1), [run]);
    let before = world.dump();
    let refused = world.try_commit(late.clone()).unwrap_err();
    assert!(
        matches!(
            refused,
            Refusal::Fenced {
                epoch: 1,
                current: 3,
                ..
            }
        ),
        "{refused}"
    );
    assert_eq!(world.release(A, &[run]), 0);
    same(&before, &world.dump());
    assert_eq!(world.renew(A, run), Lease::Lost);
    assert_eq!(world.run(run).owner, Some(B));
    let again = world.round(run);
    world.commit(working(again));
}

#[test]
fn ro_11_b3_expired_but_not_taken_over_a_commit_is_accepted_and_a_renewal_is_not() {
    let mut world = World::new();
    let run = world.owned(A);
    world.pass(LEASE);
    assert_eq!(world.renew(A, run), Lease::Lost);
    let round = working(world.round(run));
    assert!(world.commit(round).kept);
    assert_eq!(
        world.claimed_ids(B, 1),
        [run],
        "the commit did not revive the lease"
    );
}

#[test]
fn ro_11_a_lease_ends_to_the_microsecond() {
    let mut world = World::new();
    let run = world.owned(A);
    world.pass(LEASE - Duration::from_micros(1));
    assert_eq!(world.claimed_ids(B, 1), []);
    world.pass(Duration::from_micros(1));
    assert_eq!(world.claimed_ids(B, 1), [run]);
}

#[test]
fn b2_an_epoch_is_valid_for_one_round() {
    let mut world = World::new();
    let run = world.owned(A);
    let round = working(world.round(run));
    let committed = world.commit(round.clone());
    assert_eq!(committed.epoch, round.epoch + 1);
    assert!(matches!(
        world.try_commit(round),
        Err(Refusal::Fenced { .. })
    ));
    let next = world.round(run);
    assert_eq!(world.release(A, &[run]), 1);
    assert!(matches!(
        world.try_commit(next),
        Err(Refusal::Fenced { .. })
    ));
}

#[test]
fn b5_a_foreign_worker_with_the_right_epoch_is_fenced() {
    let mut world = World::new();
    let run = world.owned(A);
    let mut round = working(world.round(run));
    round.worker = B;
    assert!(matches!(
        world.try_commit(round),
        Err(Refusal::Fenced { .. })
    ));
    assert_eq!(world.release(B, &[run]), 0);
}

#[test]
fn ro_12_renewal_keeps_a_lease_and_never_shortens_it() {
    let mut world = World::new();
    let run = world.owned(A);
    for _ in 0..5 {
        world.pass(LEASE / 2);
        assert!(matches!(world.renew(A, run), Lease::Kept { .. }));
        assert_eq!(world.claimed_ids(B, 1), []);
    }
    let end = world.run(run).lease_until;
    let (worker, runs, lease) = (A, vec![run], Duration::from_secs(1));
    world.must(Op::Renew(Renew {
        worker,
        runs,
        lease,
    }));
    assert_eq!(world.run(run).lease_until, end);
}

#[test]
fn a_renewal_tells_what_came_meanwhile() {
    let mut world = World::new();
    let run = world.owned(A);
    let round = opening(world.round(run), &[(1, "go")]);
    world.commit(round);
    world.signal(run, "go", 5);
    world.cancel(run);
    let Lease::Kept { cancel, inbox, .. } = world.renew(A, run) else {
        panic!("kept")
    };
    assert!(cancel);
    assert_eq!(
        inbox
            .iter()
            .map(|delivery| delivery.call)
            .collect::<Vec<_>>(),
        [1]
    );
}

#[test]
fn ro_16_claims_take_by_priority_then_oldest_due_first() {
    let mut world = World::new();
    let mut at = |priority: i32, seconds: u64| {
        let at = Some(world.now.after(Duration::from_secs(seconds)));
        let start = Start {
            priority,
            at,
            ..world.starting()
        };
        world.started(start).run
    };
    let (late, early, urgent) = (at(0, 3), at(0, 1), at(-5, 4));
    world.pass(Duration::from_secs(9));
    assert_eq!(world.claimed_ids(A, 2), [urgent, early]);
    assert_eq!(world.claimed_ids(A, 2), [late]);
}

#[test]
fn a_claim_takes_as_many_as_it_may_and_says_when_to_come_back() {
    let mut world = World::new();
    let now = world.now;
    for _ in 0..3 {
        world.start();
    }
    let (runs, next) = world.claim_next(A, 2);
    assert_eq!((runs.len(), next), (2, Some(now)), "more are due now");
    let (runs, next) = world.claim_next(A, 1);
    assert_eq!(
        (runs.len(), next),
        (1, Some(now.after(LEASE))),
        "the first lease ends then"
    );
    assert_eq!(world.claim_next(A, 1), (vec![], Some(now.after(LEASE))));
}

#[test]
fn a_woken_run_is_left_to_its_holder_for_a_moment_and_hides_nobody() {
    let mut world = World::new();
    let held = world.waiting(A, &[(1, "go")]);
    world.signal(held, "go", 1);
    let other = world.start();
    let woken = world.now;
    let (runs, next) = world.claim_next(B, 1);
    assert_eq!(
        runs[0].run, other,
        "it looks past what is left to its holder"
    );
    let head_start = roundel_core::limits::HEAD_START;
    assert_eq!(next, Some(woken.after(head_start)));
    world.pass(head_start - Duration::from_micros(1));
    assert_eq!(world.claimed_ids(B, 1), []);
    let mut later = world.clone();
    later.pass(Duration::from_micros(1));
    assert_eq!(later.claimed_ids(B, 1), [held]);
    assert_eq!(world.claimed_ids(A, 1), [held]);
}

#[test]
fn whoever_wakes_a_run_that_it_holds_takes_it_in_the_same_commit() {
    let mut world = World::new();
    let held = world.waiting(A, &[(1, "go")]);
    for (worker, takes) in [(B, 0), (A, 1)] {
        let mut world = world.clone();
        let mut go = signal(held, "go", 3);
        go.claimant = Some(claimant(worker));
        let Reply::Sent(_, claimed) = world.must(Op::Signal(go)) else {
            panic!("sent")
        };
        assert_eq!(claimed.len(), takes);
        if let Some(claimed) = claimed.first() {
            assert_eq!((claimed.run, claimed.inbox.len()), (held, 1));
            assert_eq!(world.run(held).owner, Some(A));
        }
    }
}

#[test]
fn a_run_of_another_lane_is_not_claimed() {
    let mut world = World::new();
    let start = Start {
        version: Some(2),
        ..world.starting()
    };
    let run = world.started(start).run;
    let lanes = vec![world.lane];
    let claim = Claim {
        worker: A,
        lanes,
        limit: 9,
        lease: LEASE,
    };
    let Reply::Claimed { runs, .. } = world.must(Op::Claim(claim)) else {
        panic!("claimed")
    };
    assert_eq!(runs, []);
    assert_eq!(world.claimed_ids(A, 9), [run]);
}

#[test]
fn b17_a_worker_claims_only_once_it_is_registered() {
    let mut world = World::new();
    let worker = WorkerId::from_bytes([9; 16]);
    let claim = Op::Claim(Claim {
        worker,
        lanes: vec![world.lane],
        limit: 1,
        lease: LEASE,
    });
    assert_eq!(world.op(&claim), Err(Refusal::UnknownWorker { worker }));
    let lanes = vec![
        lane(&crate::world::NS, "w", 1),
        lane(&crate::world::NS, "x", 4),
    ];
    let register = Op::Register(Register {
        worker,
        name: "c".into(),
        lanes,
    });
    let Reply::Registered(lanes) = world.must(register.clone()) else {
        panic!("registered")
    };
    assert_eq!(lanes, [roundel_core::LaneId(1), roundel_core::LaneId(2)]);
    assert_eq!(
        world.must(register),
        Reply::Registered(lanes),
        "registering twice is fine"
    );
    assert!(world.op(&claim).is_ok());
    world.must(Op::Release(Release {
        worker,
        runs: vec![],
        leave: true,
    }));
    assert_eq!(world.op(&claim), Err(Refusal::UnknownWorker { worker }));
}

#[test]
fn ro_13_a_release_gives_up_what_the_worker_has_and_nothing_else() {
    let mut world = World::new();
    let (mine, theirs) = (world.owned(A), world.owned(B));
    let unknown = world.new_id();
    let waiting = world.waiting(A, &[(1, "go")]);
    assert_eq!(world.release(A, &[mine, theirs, unknown, waiting, mine]), 1);
    let row = world.run(mine);
    assert_eq!(
        (row.state, row.suspect, row.crashes),
        (RunState::Ready, false, 0)
    );
    assert_eq!(world.run(theirs).owner, Some(B));
    assert_eq!(world.claimed_ids(B, 9), [mine]);
}

#[test]
fn a_lease_is_no_longer_than_the_longest() {
    let mut world = World::new();
    let longest = world.now.after(roundel_core::limits::LEASE);
    let mut start = world.starting();
    start.claimant = Some(roundel_core::Claimant {
        worker: A,
        lease: Duration::MAX,
    });
    let run = world.started(start).run;
    assert_eq!(world.run(run).lease_until, Some(longest));
    let (worker, runs, lease) = (A, vec![run], Duration::MAX);
    world.must(Op::Renew(Renew {
        worker,
        runs,
        lease,
    }));
    assert_eq!(world.run(run).lease_until, Some(longest));
}

#[test]
fn ro_14_messages_during_a_lease_wait_for_the_owner() {
    let mut world = World::new();
    let run = world.owned(A);
    let end = world.run(run).lease_until;
    let round = opening(world.round(run), &[(1, "go")]);
    world.commit(round);
    world.signal(run, "go", 1);
    assert_eq!(world.run(run).ready_at, end, "a live lease is left alone");
    assert_eq!(world.claimed_ids(B, 1), []);
    let round = recording(suspending(world.round(run)), &[]);
    let committed = world.commit(round);
    assert!(committed.kept, "something is there already");
    assert_eq!(committed.inbox.len(), 1);
}

#[test]
fn targets_are_found_by_key_and_by_id() {
    let mut world = World::new();
    let key = roundel_core::Name::constant("order-7");
    let start = Start {
        key: Some(key.clone()),
        ..world.starting()
    };
    let run = world.started(start).run;
    for target in [Target::Run(run), Target::Key(key)] {
        let mut go = signal(run, "go", 1);
        go.target = target;
        assert_eq!(world.send(go), roundel_core::Sent::Queued);
    }
}

#[test]
fn a_claim_takes_nothing_that_a_search_found_wrongly() {
    let mut world = World::new();
    let due = world.start();
    let leased = world.owned(A);
    let ended = world.owned(A);
    world.end(ended);
    let waiting = world.waiting(A, &[(1, "go")]);
    let start = Start {
        version: Some(9),
        ..world.starting()
    };
    let elsewhere = world.started(start).run;
    let at = Some(world.now.after(LEASE));
    let start = Start {
        at,
        version: Some(1),
        ..world.starting()
    };
    let early = world.started(start).run;
    let unknown = world.new_id();
    world.rows.found = vec![leased, ended, waiting, elsewhere, early, unknown, due, due];
    let (lanes, limit, lease) = (vec![world.lane], 9, LEASE);
    let claim = Claim {
        worker: B,
        lanes,
        limit,
        lease,
    };
    let reply = roundel_core::decide(&Op::Claim(claim), &mut world.rows, world.now);
    let Ok(Reply::Claimed { runs, .. }) = reply else {
        panic!("{reply:?}")
    };
    assert_eq!(
        runs.iter().map(|claimed| claimed.run).collect::<Vec<_>>(),
        [due]
    );
}
