//! When a run may be claimed, and what a clock that jumps does.

use std::time::Duration;

use roundel_core::{RunState, Start, Timestamp, limits};

use crate::world::{A, B, LEASE, World, opening, suspending};

#[test]
fn ready_at_is_derived_from_what_a_run_waits_for() {
    let second = Duration::from_secs(1);
    let mut world = World::new();
    let now = world.now;
    let later = now.after(second * 60);
    let fresh = world.start();
    let delayed = Start {
        at: Some(later),
        ..world.starting()
    };
    let delayed = world.started(delayed).run;
    let overdue = Start {
        at: Some(Timestamp(5)),
        ..world.starting()
    };
    let overdue = world.started(overdue).run;
    let leased = world.owned(A);
    let waiting = world.waiting(A, &[(1, "go")]);
    let timer = world.owned(A);
    let mut round = suspending(world.round(timer));
    round.timer_at = Some(later);
    world.commit(round);
    let both = world.owned(A);
    let mut round = opening(suspending(world.round(both)), &[(1, "go")]);
    round.timer_at = Some(later);
    world.commit(round);
    world.pass(second);
    world.signal(both, "go", 1);
    let woken = now.after(second);
    for (run, state, ready_at) in [
        (fresh, RunState::Ready, Some(now)),
        (delayed, RunState::Ready, Some(later)),
        (overdue, RunState::Ready, Some(now)),
        (leased, RunState::Running, Some(now.after(LEASE))),
        (waiting, RunState::Waiting, None),
        (timer, RunState::Waiting, Some(later)),
        (both, RunState::Ready, Some(woken)),
    ] {
        let row = world.run(run);
        assert_eq!((row.state, row.ready_at), (state, ready_at), "{row:?}");
    }
    world.check();
}

#[test]
fn si_01_a_timer_makes_a_run_due_to_the_microsecond() {
    let mut world = World::new();
    let run = world.owned(A);
    let mut round = suspending(world.round(run));
    round.timer_at = Some(world.now.after(Duration::from_secs(5)));
    assert!(!world.commit(round).kept);
    world.pass(Duration::from_micros(4_999_999));
    assert_eq!(world.claimed_ids(B, 1), []);
    world.pass(Duration::from_micros(1));
    assert_eq!(world.claimed_ids(B, 1), [run], "a timer has no head start");
}

#[test]
fn si_08_a_timer_that_is_due_already_keeps_the_lease() {
    let mut world = World::new();
    let run = world.owned(A);
    for at in [world.now, Timestamp(i64::MIN)] {
        let mut round = suspending(world.round(run));
        round.timer_at = Some(at);
        assert!(world.commit(round).kept);
    }
}

#[test]
fn si_07_a_timer_that_was_replaced_does_not_fire() {
    let mut world = World::new();
    let run = world.owned(A);
    let mut round = suspending(world.round(run));
    round.timer_at = Some(world.now.after(Duration::from_secs(5)));
    world.commit(round);
    world.pass(Duration::from_secs(5));
    world.claim(A, 1);
    let round = opening(suspending(world.round(run)), &[(1, "go")]);
    assert!(!world.commit(round).kept);
    world.pass(Duration::from_secs(500));
    assert_eq!(world.claimed_ids(A, 1), []);
}

#[test]
fn c11_a_timer_at_the_end_of_time_overflows_nothing() {
    let mut world = World::new();
    let run = world.owned(A);
    let mut round = suspending(world.round(run));
    round.timer_at = Some(Timestamp::MAX);
    world.commit(round);
    let (runs, next) = world.claim_next(A, 1);
    assert_eq!((runs, next), (vec![], Some(Timestamp::MAX)));
    world.now = Timestamp::MAX;
    assert_eq!(world.claimed_ids(A, 1), [run]);
    assert_eq!(world.run(run).lease_until, Some(Timestamp::MAX));
}

#[test]
fn b13_a_clock_that_jumps_forward_only_makes_runs_run_again() {
    let mut world = World::new();
    let runs = [world.owned(A), world.owned(A)];
    let late = [world.round(runs[0]), world.round(runs[1])];
    world.pass(Duration::from_secs(3600));
    assert!(
        world.try_commit(suspending(late[1].clone())).is_ok(),
        "nobody has taken it over"
    );
    assert_eq!(world.claimed_ids(B, 9), [runs[0]]);
    assert!(world.try_commit(late[0].clone()).is_err());
    for run in runs {
        assert_ne!(world.state(run), RunState::Parked);
        assert_eq!(world.run(run).crashes, 0);
    }
}

#[test]
fn b14_a_lease_from_a_clock_that_went_back_counts_as_ended() {
    let mut world = World::new();
    let run = world.owned(A);
    let made = world.now;
    world.now = Timestamp(made.0 - 3_600_000_000);
    assert!(!world.run(run).is_leased(world.now));
    assert_eq!(world.claimed_ids(B, 1), [run]);
    assert!(world.run(run).suspect);
}

#[test]
fn b14_a_lease_as_long_as_the_longest_still_counts() {
    let mut world = World::new();
    let run = world.owned(A);
    world.now = Timestamp(world.now.0 + 30_000_000 - 3_600_000_000);
    assert_eq!(
        world.run(run).lease_until,
        Some(world.now.after(limits::LEASE))
    );
    assert_eq!(world.claimed_ids(B, 1), []);
    world.now = Timestamp(world.now.0 - 1);
    assert_eq!(world.claimed_ids(B, 1), [run]);
}

#[test]
fn ro_16_a_second_message_does_not_cost_a_run_its_place() {
    let mut world = World::new();
    let (first, second) = (
        world.waiting(A, &[(1, "x"), (2, "y")]),
        world.waiting(A, &[(1, "x")]),
    );
    let woken = world.now;
    world.signal(first, "x", 1);
    world.pass(Duration::from_secs(1));
    world.signal(second, "x", 1);
    world.signal(first, "y", 1);
    assert_eq!(world.run(first).ready_at, Some(woken));
    assert_eq!(world.claimed_ids(A, 9), [first, second]);
}
