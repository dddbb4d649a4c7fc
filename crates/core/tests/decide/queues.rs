//! Limits of queues: concurrency, rate, pause.

use std::time::Duration;

use roundel_core::{
    CancelMark, Failure, Flow, Hint, Limit, Name, Op, QueueId, Rate, Refusal, Reply, RunId,
    RunState, Start, Then,
};

use crate::world::{A, B, LEASE, NS, World, claimant, opening, signal, suspending};

fn queue() -> QueueId {
    QueueId {
        namespace: NS,
        queue: Name::constant("w"),
    }
}

fn set(world: &mut World, change: impl FnOnce(&mut Limit)) {
    let mut limit = Limit::of(queue());
    change(&mut limit);
    world.must(Op::Limit(limit));
}

fn at_once(world: &mut World, most: u32) {
    set(world, |limit| limit.concurrency = Some(Some(most)));
}

fn permits(world: &World) -> u32 {
    world.permits(&queue()).values().sum()
}

fn sent_for(world: &mut World, key: &'static str) -> RunId {
    let start = Start {
        flow_key: Some(Name::constant(key)),
        ..world.starting()
    };
    world.started(start).run
}

#[test]
fn co_30_no_more_are_leased_than_the_limit_whoever_claims() {
    let mut world = World::new();
    at_once(&mut world, 2);
    let runs = [world.start(), world.start(), world.start()];
    assert_eq!(world.claimed_ids(A, 9), runs[..2]);
    assert_eq!(world.claimed_ids(B, 9), []);
    assert_eq!(permits(&world), 2);
    world.rows.take_hints();
    world.end(runs[0]);
    let lane = world.lane;
    let told = |hint: &Hint| matches!(hint, Hint::Ready(of, _) if *of == lane);
    assert!(world.rows.take_hints().iter().any(told), "there is room");
    assert_eq!(world.claimed_ids(B, 9), [runs[2]]);
    assert_eq!(permits(&world), 2);
}

#[test]
fn co_30_whoever_starts_takes_a_permit_while_half_of_them_are_left() {
    let mut world = World::new();
    at_once(&mut world, 4);
    let runs = [world.owned(A), world.owned(A), world.owned(A)];
    let leased = runs.map(|run| world.run(run).owner.is_some());
    assert_eq!(leased, [true, true, false]);
    let flows = runs.map(|run| world.run(run).flow);
    assert_eq!(flows, [Flow::Permit, Flow::Permit, Flow::Free]);
    let waits = world.start();
    assert_eq!(world.claimed_ids(B, 9), [runs[2], waits]);
    assert_eq!(permits(&world), 4);
    world.end(runs[0]);
    world.end(runs[1]);
    let late = world.owned(A);
    assert_eq!(world.run(late).owner, None, "two of four are held");
}

#[test]
fn co_30_whoever_starts_spends_the_rate_and_leaves_half_of_it() {
    let mut world = World::new();
    let per = Duration::from_secs(1);
    set(&mut world, |limit| {
        limit.rate = Some(Some(Rate { count: 4, per }));
    });
    let runs = [world.owned(A), world.owned(A), world.owned(A)];
    let leased = runs.map(|run| world.run(run).owner.is_some());
    assert_eq!(leased, [true, true, false]);
    let waits = [world.start(), world.start()];
    assert_eq!(world.claimed_ids(B, 9), [runs[2], waits[0]]);
    world.pass(per / 4);
    assert_eq!(world.claimed_ids(B, 9), [waits[1]]);
    set(&mut world, |limit| limit.paused = Some(true));
    world.pass(per);
    let paused = world.owned(A);
    assert_eq!(world.run(paused).owner, None);
}

#[test]
fn co_30_what_is_on_somebodys_behalf_waits_for_its_turn() {
    let mut world = World::new();
    at_once(&mut world, 9);
    let start = Start {
        flow_key: Some(Name::constant("ada")),
        claimant: Some(claimant(A)),
        ..world.starting()
    };
    let run = world.started(start).run;
    assert_eq!((world.run(run).owner, permits(&world)), (None, 0));
}

#[test]
fn co_30_whoever_starts_or_wakes_a_run_takes_no_last_permit() {
    let mut world = World::new();
    at_once(&mut world, 1);
    let started = world.owned(A);
    assert_eq!(world.run(started).owner, None);
    assert_eq!(world.claimed_ids(A, 9), [started]);
    let round = world.round(started);
    world.commit(suspending(opening(round, &[(1, "go")])));
    assert_eq!(
        (permits(&world), world.state(started)),
        (0, RunState::Waiting)
    );
    let other = world.start();
    assert_eq!(world.claimed_ids(A, 9), [other]);
    let mut sent = signal(started, "go", 1);
    sent.claimant = Some(claimant(A));
    world.must(Op::Signal(sent));
    assert_eq!(world.state(started), RunState::Ready);
    assert_eq!(world.claimed_ids(A, 9), []);
}

#[test]
fn co_30_k7_a_lease_that_ended_by_time_keeps_its_permit_and_takes_no_second() {
    let mut world = World::new();
    at_once(&mut world, 1);
    let (first, second) = (world.start(), world.start());
    assert_eq!(world.claimed_ids(A, 9), [first]);
    world.pass(LEASE);
    assert_eq!(
        world.claimed_ids(B, 9),
        [first],
        "the queue is full, and it is found"
    );
    assert_eq!(permits(&world), 1);
    assert_eq!(world.claimed_ids(A, 9), []);
    world.end(first);
    assert_eq!(world.claimed_ids(A, 9), [second]);
}

#[test]
fn co_30_what_is_released_suspended_or_parked_makes_room() {
    let mut world = World::new();
    at_once(&mut world, 1);
    let (first, second) = (world.start(), world.start());
    assert_eq!(world.claimed_ids(A, 9), [first]);
    world.pass(Duration::from_millis(1));
    world.release(A, &[first]);
    assert_eq!(permits(&world), 0);
    assert_eq!(
        world.claimed_ids(B, 9),
        [second],
        "the other has waited longer by now"
    );
    let mut round = world.round(second);
    round.then = Then::Park(Box::new(Failure::permanent("broken")));
    world.commit(round);
    assert_eq!((permits(&world), world.run(second).flow), (0, Flow::Free));
    assert_eq!(world.claimed_ids(B, 9), [first]);
}

#[test]
fn co_30_a_limit_below_what_is_leased_stops_nothing_and_lets_nothing_begin() {
    let mut world = World::new();
    let runs = [world.start(), world.start(), world.start()];
    assert_eq!(world.claimed_ids(A, 2), runs[..2]);
    at_once(&mut world, 1);
    for run in &runs[..2] {
        world.renew(A, *run);
    }
    assert_eq!(
        permits(&world),
        2,
        "what was leased before counts from its renewal on"
    );
    assert_eq!(world.claimed_ids(B, 9), []);
    for run in &runs[..2] {
        assert_eq!(world.claimed_ids(B, 9), []);
        world.end(*run);
    }
    assert_eq!(world.claimed_ids(B, 9), [runs[2]]);
}

#[test]
fn co_30_what_is_paused_begins_when_it_is_resumed() {
    let mut world = World::new();
    set(&mut world, |limit| limit.paused = Some(true));
    let run = world.start();
    assert_eq!(world.claim_next(A, 9), (vec![], None));
    world.rows.take_hints();
    set(&mut world, |limit| limit.paused = Some(false));
    assert!(!world.rows.take_hints().is_empty(), "workers are told");
    assert_eq!(world.claimed_ids(A, 9), [run]);
}

#[test]
fn co_30_who_is_asked_to_end_waits_for_no_permit() {
    let mut world = World::new();
    at_once(&mut world, 1);
    let begun = world.start();
    assert_eq!(world.claimed_ids(A, 9), [begun]);
    let round = world.round(begun);
    world.commit(suspending(opening(round, &[(1, "go")])));
    set(&mut world, |limit| limit.paused = Some(true));
    let unbegun = world.start();
    for run in [begun, unbegun] {
        world.cancel(run);
    }
    assert_eq!(world.state(unbegun), RunState::Cancelled);
    assert_eq!(world.claimed_ids(A, 9), [begun]);
    assert_eq!(permits(&world), 0);
    world.pass(LEASE);
    assert_eq!(
        world.claimed_ids(B, 9),
        [begun],
        "also after its worker was lost"
    );
    assert_eq!(world.run(begun).cancel, CancelMark::Requested);
}

#[test]
fn co_30_who_was_asked_to_end_before_the_queue_was_paused_comes_to_its_end() {
    let mut world = World::new();
    let run = world.start();
    assert_eq!(world.claimed_ids(A, 9), [run]);
    let round = world.round(run);
    world.commit(suspending(opening(round, &[(1, "go")])));
    world.cancel(run);
    set(&mut world, |limit| limit.paused = Some(true));
    assert_eq!(world.claimed_ids(A, 9), [run]);
    assert_eq!(permits(&world), 0);
}

#[test]
fn co_30_lost_leases_do_not_hide_what_there_is_room_for() {
    let mut world = World::new();
    at_once(&mut world, 2);
    let lost = world.start();
    assert_eq!(world.claimed_ids(A, 9), [lost]);
    world.pass(LEASE);
    let waits = world.start();
    let (claimed, next) = world.claim_next(B, 9);
    assert_eq!((claimed[0].run, next), (lost, Some(world.now)));
    assert_eq!(world.claimed_ids(B, 9), [waits]);
    assert_eq!(permits(&world), 2);
}

#[test]
fn co_30_a_rate_says_when_the_next_may_begin() {
    let mut world = World::new();
    let per = Duration::from_secs(1);
    set(&mut world, |limit| {
        limit.rate = Some(Some(Rate { count: 2, per }));
    });
    let runs = [world.start(), world.start(), world.start()];
    let opens = world.now.after(per / 2);
    let (claimed, next) = world.claim_next(A, 9);
    assert_eq!((claimed.len(), next), (2, Some(opens)));
    assert_eq!(world.claim_next(B, 9), (vec![], Some(opens)));
    world.pass(per / 2);
    assert_eq!(world.claimed_ids(B, 9), [runs[2]]);
}

#[test]
fn co_30_other_queues_are_not_held_up() {
    let mut world = World::new();
    at_once(&mut world, 1);
    let runs = [world.start(), world.start()];
    let other = Start {
        workflow: Name::constant("v"),
        ..world.starting()
    };
    let other = world.started(other).run;
    assert_eq!(world.claimed_ids(A, 9), [runs[0], other]);
}

#[test]
fn co_30_a_limit_of_zero_is_refused_with_a_word_about_pausing() {
    let mut world = World::new();
    let zero = Rate {
        count: 0,
        per: Duration::from_secs(1),
    };
    let timeless = Rate {
        count: 1,
        per: Duration::ZERO,
    };
    let mut limits = [Limit::of(queue()), Limit::of(queue()), Limit::of(queue())];
    limits[0].concurrency = Some(Some(0));
    limits[1].rate = Some(Some(zero));
    limits[2].rate = Some(Some(timeless));
    for limit in limits {
        let refused = world.op(&Op::Limit(limit)).unwrap_err();
        assert!(matches!(refused, Refusal::Zero { .. }), "{refused}");
    }
    assert_eq!(world.rows.lanes().len(), 1, "nothing has changed");
    let gone = set_and_read(&mut world);
    assert_eq!(gone.to_string(), "no limits");
}

fn set_and_read(world: &mut World) -> roundel_core::QueueRow {
    let mut limit = Limit::of(queue());
    limit.concurrency = Some(None);
    match world.must(Op::Limit(limit)) {
        Reply::Limited(row) => row,
        other => panic!("{other:?}"),
    }
}

#[test]
fn co_30_one_key_does_not_keep_the_others_waiting() {
    let mut world = World::new();
    at_once(&mut world, 1);
    let busy: Vec<RunId> = (0..5).map(|_| sent_for(&mut world, "busy")).collect();
    let quiet = sent_for(&mut world, "quiet");
    let none = world.start();
    let mut order = Vec::new();
    for _ in 0..7 {
        let claimed = world.claimed_ids(A, 9);
        assert_eq!(claimed.len(), 1);
        world.end(claimed[0]);
        order.extend(claimed);
    }
    let expected = [busy[0], quiet, none, busy[1], busy[2], busy[3], busy[4]];
    assert_eq!(order, expected, "each key in turn, and those without one");
}

#[test]
fn co_30_keys_take_turns_within_a_claim_and_by_priority_within_a_key() {
    let mut world = World::new();
    let first = sent_for(&mut world, "a");
    let mut urgent = Start {
        priority: -1,
        ..world.starting()
    };
    urgent.flow_key = Some(Name::constant("a"));
    let urgent = world.started(urgent).run;
    let other = sent_for(&mut world, "b");
    assert_eq!(world.claimed_ids(A, 2), [urgent, other]);
    assert_eq!(world.claimed_ids(B, 2), [first]);
}

#[test]
fn co_30_no_more_of_a_key_are_leased_than_may_be() {
    let mut world = World::new();
    set(&mut world, |limit| limit.per_key = Some(Some(2)));
    let of_a: Vec<RunId> = (0..4).map(|_| sent_for(&mut world, "a")).collect();
    let of_b = sent_for(&mut world, "b");
    let none: Vec<RunId> = (0..3).map(|_| world.start()).collect();
    let mut claimed = world.claimed_ids(A, 9);
    claimed.extend(world.claimed_ids(B, 9));
    claimed.sort();
    let mut expected = vec![of_a[0], of_a[1], of_b];
    expected.extend(&none);
    assert_eq!(claimed, expected, "what has no key is not limited by it");
    world.end(of_a[0]);
    assert_eq!(world.claimed_ids(B, 9), [of_a[2]]);
    world.pass(LEASE);
    let lost = world.claimed_ids(A, 1);
    assert!(lost != [of_a[3]], "a lost lease keeps its place");
    let zero = Limit {
        per_key: Some(Some(0)),
        ..Limit::of(queue())
    };
    let refused = world.op(&Op::Limit(zero)).unwrap_err();
    assert!(matches!(refused, Refusal::Zero { .. }), "{refused}");
}
