//! Runs that may have killed their worker.

use roundel_core::{Delete, Hint, Op, Outcome, Refusal, Reply, Resume, RunState, Target, limits};

use crate::world::{A, B, LEASE, NS, World, working};

/// Lets the lease end, and lets the other worker take it over.
fn crash(world: &mut World, from: &mut roundel_core::WorkerId) {
    world.pass(LEASE);
    *from = if *from == A { B } else { A };
}

#[test]
fn ro_13_a_run_that_keeps_killing_its_worker_is_parked_with_the_reason() {
    let mut world = World::new();
    let run = world.owned(A);
    let mut worker = A;
    for crashes in 0..limits::CRASHES {
        crash(&mut world, &mut worker);
        let claimed = world.claim(worker, 9);
        assert_eq!(claimed.len(), 1, "after {crashes} crashes");
        assert!(claimed[0].suspect);
        assert_eq!(world.run(run).crashes, crashes);
    }
    crash(&mut world, &mut worker);
    assert_eq!(world.claim(worker, 9), []);
    assert_eq!(world.state(run), RunState::Parked);
    let Some(Outcome::Failure(reason)) = &world.run(run).outcome else {
        panic!("a reason")
    };
    assert_eq!(reason.code, "crashed_worker");
}

#[test]
fn ro_13_suspects_run_one_at_a_time_and_neighbours_are_not_blamed() {
    let mut world = World::new();
    let killer = world.owned(A);
    let innocent = world.owned(A);
    let mut worker = A;
    for _ in 0..10 {
        crash(&mut world, &mut worker);
        let claimed = world.claimed_ids(worker, 9);
        assert!(claimed.len() <= 1, "one suspect at a time");
        if claimed == [innocent] {
            let round = working(world.round(innocent));
            assert!(world.commit(round).slot_freed);
            world.claim(worker, 9);
        }
    }
    assert_eq!(world.state(killer), RunState::Parked);
    let row = world.run(innocent);
    assert_ne!(row.state, RunState::Parked);
    assert!(row.crashes < limits::CRASHES, "{row:?}");
}

#[test]
fn ro_13_progress_resets_the_count() {
    let mut world = World::new();
    let run = world.owned(A);
    let mut worker = A;
    for _ in 0..limits::CRASHES {
        crash(&mut world, &mut worker);
        assert_eq!(world.claim(worker, 1).len(), 1);
    }
    assert_eq!(world.run(run).crashes, limits::CRASHES - 1);
    let round = working(world.round(run));
    assert!(world.commit(round).slot_freed);
    let row = world.run(run);
    assert_eq!((row.crashes, row.suspect), (0, false));
}

#[test]
fn ro_13_release_and_shutdown_never_count() {
    let mut world = World::new();
    let run = world.owned(A);
    world.pass(LEASE);
    for _ in 0..=limits::CRASHES {
        assert_eq!(world.claimed_ids(B, 1), [run]);
        assert_eq!(world.release(B, &[run]), 1);
    }
    assert_eq!(world.run(run).crashes, 0);
    assert_eq!(world.rows.workers.get(&B).unwrap().suspect, None);
}

#[test]
fn ro_13_an_expired_lease_alone_costs_nothing() {
    let mut world = World::new();
    let runs = [world.owned(A), world.owned(A)];
    world.pass(LEASE);
    world.claim(B, 9);
    for run in runs {
        assert_eq!(world.run(run).crashes, 0);
        assert!(world.run(run).suspect);
    }
    assert_eq!(world.claim(B, 9), [], "the slot is taken");
}

#[test]
fn ro_13_a_renewal_frees_the_slot_for_the_next() {
    let mut world = World::new();
    let runs = [world.owned(A), world.owned(A)];
    world.pass(LEASE);
    assert_eq!(world.claimed_ids(B, 9), [runs[0]]);
    world.rows.take_hints();
    world.renew(B, runs[0]);
    let ready = Hint::Ready(world.lane, world.now);
    assert_eq!(world.rows.take_hints(), [ready], "so that it claims again");
    assert_eq!(world.claimed_ids(B, 9), [runs[1]]);
}

#[test]
fn ro_13_a_run_that_kills_its_worker_after_a_renewal_is_found_out_too() {
    let mut world = World::new();
    let killer = world.owned(A);
    let mut worker = A;
    for _ in 0..10 {
        crash(&mut world, &mut worker);
        if world.claim(worker, 1).is_empty() {
            break;
        }
        world.pass(LEASE / 2);
        world.renew(worker, killer);
    }
    assert_eq!(world.state(killer), RunState::Parked);
}

#[test]
fn ro_13_the_slot_is_free_again_when_its_run_is_gone() {
    let mut world = World::new();
    let runs = [world.owned(A), world.owned(A)];
    world.pass(LEASE);
    assert_eq!(world.claimed_ids(B, 9), [runs[0]]);
    let (namespace, target, force) = (NS, Target::Run(runs[0]), true);
    world.must(Op::Delete(Delete {
        namespace,
        target,
        force,
    }));
    assert_eq!(world.claimed_ids(B, 9), [runs[1]]);
}

#[test]
fn ro_13_a_worker_that_never_heard_of_its_suspect_goes_on_with_the_next() {
    let mut world = World::new();
    let runs = [world.owned(A), world.owned(A)];
    world.pass(LEASE);
    assert_eq!(world.claimed_ids(B, 9), [runs[0]], "and the answer is lost");
    world.pass(LEASE);
    assert_eq!(world.claimed_ids(B, 9), [runs[1]], "it has waited longer");
    assert_eq!(world.run(runs[0]).crashes, 1, "its lease has ended");
    let round = working(world.round(runs[1]));
    assert!(world.commit(round).slot_freed);
    assert_eq!(world.claimed_ids(B, 9), [runs[0]]);
}

#[test]
fn ro_13_a_parked_run_goes_on_when_an_operator_says_so() {
    let mut world = World::new();
    let run = world.owned(A);
    let resume = Op::Resume(Resume {
        namespace: NS,
        target: Target::Run(run),
        skip: false,
        anew: None,
    });
    let state = RunState::Running;
    assert_eq!(world.op(&resume), Err(Refusal::NotParked { run, state }));
    let mut worker = A;
    for _ in 0..=limits::CRASHES {
        crash(&mut world, &mut worker);
        world.claim(worker, 1);
    }
    assert_eq!(world.state(run), RunState::Parked);
    assert_eq!(world.must(resume), Reply::Resumed);
    let row = world.run(run);
    assert_eq!(
        (row.state, row.crashes, row.suspect),
        (RunState::Ready, 0, false)
    );
    assert_eq!(row.outcome, None);
    assert_eq!(world.claimed_ids(A, 1), [run]);
}
