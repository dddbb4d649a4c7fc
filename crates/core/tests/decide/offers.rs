//! Offers: to exactly one waiter, the longest waiting; else kept.

use roundel_core::{Caused, Name, Offer, Op, Refusal, Reply, Round, RunState, Sent, Start};

use crate::world::{
    A, B, World, claimant, closing, consuming, continuing, ending, offering, opening, same,
    suspending, value_of,
};

const JOB: (u32, &str) = (1, "@job");

#[test]
fn si_03_an_offer_goes_to_the_one_who_waits_longest_else_is_kept() {
    let mut world = World::new();
    assert_eq!(world.offer("@job", 1), Sent::Queued);
    let (first, second, third) = (
        world.waiting(A, &[JOB]),
        world.waiting(B, &[JOB]),
        world.waiting(A, &[JOB]),
    );
    assert_eq!(
        world.run(first).matched,
        1,
        "the kept offer is taken by the first who waits"
    );
    assert_eq!(world.offer("@job", 2), Sent::Delivered(second));
    assert_eq!(world.offer("@job", 3), Sent::Delivered(third));
    assert_eq!(world.offer("@job", 4), Sent::Queued);
    world.check();
}

#[test]
fn si_02_targeted_before_offered_and_offers_in_order() {
    let mut world = World::new();
    let run = world.owned(A);
    world.offer("@job", 1);
    world.offer("@job", 2);
    world.signal(run, "@job", 3);
    let round = opening(world.round(run), &[(1, "@job"), (2, "@job"), (3, "@job")]);
    let committed = world.commit(round);
    let mut got: Vec<_> = committed
        .inbox
        .iter()
        .map(|d| (d.call, value_of(&d.body)))
        .collect();
    got.sort_unstable();
    assert_eq!(got, [(1, 3), (2, 1), (3, 2)]);
    world.check();
}

#[test]
fn a_wait_that_takes_no_offers_gets_none() {
    let mut world = World::new();
    let run = world.owned(A);
    assert_eq!(world.offer("@job", 1), Sent::Queued);
    let mut round = opening(world.round(run), &[JOB]);
    round.opened[0].offerable = false;
    world.commit(suspending(round));
    assert_eq!(world.offer("@job", 1), Sent::Queued);
    assert_eq!(world.signal(run, "@job", 2), Sent::Delivered(run));
    world.check();
}

#[test]
fn inv16_an_offer_that_is_let_go_goes_to_the_next_in_line() {
    for how in ["closed", "ended", "continued", "deleted"] {
        let mut world = World::new();
        let (one, two, three) = (
            world.waiting(A, &[JOB]),
            world.waiting(A, &[JOB]),
            world.waiting(A, &[JOB]),
        );
        assert_eq!(world.offer("@job", 5), Sent::Delivered(one));
        world.claim(A, 1);
        let round = world.round(one);
        match how {
            "closed" => drop(world.commit(closing(round, &[JOB]))),
            "ended" => drop(world.commit(ending(round, RunState::Failed))),
            "continued" => drop(world.commit(continuing(round, None))),
            _ => world.delete(one, true),
        }
        assert_eq!(world.run(two).matched, 1, "{how}");
        assert_eq!(world.run(three).matched, 0, "{how}");
        world.check();
    }
}

#[test]
fn offers_given_back_pass_over_the_run_that_gives_them() {
    let mut world = World::new();
    let many = world.waiting(A, &[(1, "@job"), (2, "@job"), (3, "@job")]);
    let others = [world.waiting(B, &[JOB]), world.waiting(B, &[JOB])];
    world.offer("@job", 1);
    world.offer("@job", 2);
    assert_eq!(world.run(many).matched, 2);
    world.claim(A, 1);
    let round = ending(world.round(many), RunState::Failed);
    world.commit(round);
    for run in others {
        assert_eq!(world.run(run).matched, 1);
    }
    world.check();
}

#[test]
fn an_offer_that_is_let_go_may_come_back_to_another_call() {
    let mut world = World::new();
    let run = world.waiting(A, &[(1, "@job"), (2, "@job")]);
    world.offer("@job", 1);
    world.claim(A, 1);
    let round = closing(world.round(run), &[(1, "@job")]);
    let committed = world.commit(round);
    assert_eq!(
        committed.inbox.iter().map(|d| d.call).collect::<Vec<_>>(),
        [2]
    );
    world.check();
}

#[test]
fn a_consumed_offer_is_gone() {
    let mut world = World::new();
    let run = world.waiting(A, &[JOB]);
    world.offer("@job", 1);
    world.claim(A, 1);
    let round = consuming(world.round(run), &[JOB]);
    world.commit(round);
    assert_eq!(world.rows.offers.iter().count(), 0);
    let row = world.run(run);
    assert_eq!((row.mail, row.matched, row.waits), (0, 0, 0));
    world.check();
}

#[test]
fn si_12_an_offers_key_gives_the_first_answer() {
    let mut world = World::new();
    let keyed = |value| Offer {
        key: Some(Name::constant("k")),
        ..offering("@job", value)
    };
    for _ in 0..2 {
        let Reply::Sent(sent, _) = world.must(Op::Offer(keyed(1))) else {
            panic!("sent")
        };
        assert_eq!(sent, Sent::Queued);
    }
    assert_eq!(world.rows.offers.iter().count(), 1);
    let before = world.dump();
    let key = Name::constant("k");
    assert_eq!(
        world.op(&Op::Offer(keyed(2))),
        Err(Refusal::Conflict { key: key.clone() })
    );
    same(&before, &world.dump());
    let other = Offer {
        key: Some(key),
        ..offering("@other", 2)
    };
    assert!(
        world.op(&Op::Offer(other)).is_ok(),
        "a key belongs to a name"
    );
}

#[test]
fn several_offers_of_one_round_reach_several_waiters() {
    let mut world = World::new();
    let waiting = [world.waiting(B, &[JOB]), world.waiting(B, &[JOB])];
    let sender = world.owned(A);
    let mut round = world.round(sender);
    for call in 1..=3 {
        round
            .caused
            .push(Caused::Offer(call, Box::new(offering("@job", call))));
    }
    let committed = world.commit(round);
    assert_eq!(committed.inbox.len(), 3, "each offer is answered");
    for run in waiting {
        assert_eq!(world.run(run).matched, 1);
    }
    world.check();
}

#[test]
fn the_first_round_of_a_start_takes_an_offer_that_was_kept() {
    let mut world = World::new();
    world.offer("@job", 4);
    let start = world.starting();
    let first = suspending(opening(Round::new(start.run, A, 1), &[JOB]));
    let (claimant, first) = (Some(claimant(A)), Some(Box::new(first)));
    let started = world.started(Start {
        claimant,
        first,
        ..start
    });
    let committed = started.first.unwrap().unwrap();
    assert!(committed.kept);
    assert_eq!(value_of(&committed.inbox[0].body), 4);
    world.check();
}

#[test]
fn namespaces_have_gates_of_their_own() {
    let mut world = World::new();
    world.waiting(A, &[JOB]);
    let elsewhere = Offer {
        namespace: Name::constant("other"),
        ..offering("@job", 1)
    };
    let Reply::Sent(sent, _) = world.must(Op::Offer(elsewhere)) else {
        panic!("sent")
    };
    assert_eq!(sent, Sent::Queued);
}

#[test]
fn the_holder_takes_a_waiter_that_its_offer_wakes() {
    let mut world = World::new();
    let run = world.waiting(A, &[JOB, (2, "go")]);
    world.signal(run, "go", 9);
    let offer = Offer {
        claimant: Some(claimant(A)),
        ..offering("@job", 1)
    };
    let Reply::Sent(sent, claimed) = world.must(Op::Offer(offer)) else {
        panic!("sent")
    };
    assert_eq!(sent, Sent::Delivered(run));
    assert_eq!(claimed[0].inbox.len(), 2);
}
