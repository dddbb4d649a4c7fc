//! Children, spawned runs, and watched runs.

use roundel_core::{
    Caused, Delivery, Failure, Name, Outcome, Round, RunId, RunState, Scope, Source, Start, Target,
    Then, limits,
};

use crate::world::{
    A, B, NS, World, child_of, claimant, ending, opening, recording, same, signal, suspending,
    value_of,
};

/// Starts a child in this call and suspends.
fn with_child(world: &mut World, run: RunId, call: u32) -> RunId {
    let child = child_of(world, run, call);
    let id = child.run;
    let mut round = suspending(world.round(run));
    round.caused.push(Caused::Child(call, Box::new(child)));
    assert!(
        !world.commit(round).kept,
        "a child that started says nothing yet"
    );
    id
}

fn failure_code(delivery: &Delivery) -> &str {
    match &delivery.body {
        Outcome::Failure(failure) => &failure.code,
        Outcome::Value(_) => "a value",
    }
}

#[test]
fn ro_30_a_childs_output_reaches_its_parent() {
    let mut world = World::new();
    let parent = world.owned(A);
    let child = with_child(&mut world, parent, 4);
    let row = world.run(child);
    assert_eq!((row.root, row.depth), (parent, 1));
    assert_eq!(world.claimed_ids(B, 9), [child]);
    world.end(child);
    world.pass(limits::HEAD_START);
    let claimed = world.claim(B, 9);
    assert_eq!(claimed[0].run, parent);
    let delivery = &claimed[0].inbox[0];
    assert_eq!((delivery.call, value_of(&delivery.body)), (4, 7));
    let mut round = world.round(parent);
    let Source::Mail(number) = delivery.source else {
        panic!("the engine's own")
    };
    round.consumed.push(roundel_core::Consumed::Mail(number));
    world.commit(round);
    assert_eq!((world.run(parent).mail, world.run(parent).matched), (0, 0));
    world.check();
}

#[test]
fn ro_30_a_childs_failure_reaches_its_parent() {
    let mut world = World::new();
    let parent = world.owned(A);
    let child = with_child(&mut world, parent, 4);
    world.claim(B, 9);
    let mut round = world.round(child);
    let failure = Failure::business("no").with_code("no");
    round.then = Then::End(RunState::Failed, Outcome::Failure(Box::new(failure)));
    world.commit(round);
    let claimed = world.claim(A, 9);
    assert_eq!(failure_code(&claimed[0].inbox[0]), "no");
}

#[test]
fn ro_30_a_child_id_or_key_in_use_fails_the_call_at_once() {
    let mut world = World::new();
    let key = Some(Name::constant("taken"));
    let user = Start {
        key: key.clone(),
        ..world.starting()
    };
    let user = world.started(user).run;
    let parent = world.owned(A);
    let by_key = Start {
        key,
        ..child_of(&mut world, parent, 1)
    };
    let by_id = Start {
        run: user,
        ..child_of(&mut world, parent, 2)
    };
    let mut round = world.round(parent);
    round.caused.push(Caused::Child(1, Box::new(by_key)));
    round.caused.push(Caused::Child(2, Box::new(by_id)));
    let committed = world.commit(round);
    let codes: Vec<_> = committed
        .inbox
        .iter()
        .map(|d| (d.call, failure_code(d)))
        .collect();
    assert_eq!(codes, [(1, "conflict"), (2, "conflict")]);
    assert_eq!(world.run(user).parent, None, "the user's run is untouched");
    world.check();
}

#[test]
fn ro_15_a_childs_end_for_an_ended_parent_is_dropped() {
    let mut world = World::new();
    let parent = world.owned(A);
    let child = with_child(&mut world, parent, 1);
    world.cancel(parent);
    world.claim(A, 9);
    let round = ending(world.round(parent), RunState::Cancelled);
    world.commit(round);
    let before = world.run(parent).clone();
    world.end(child);
    assert_eq!(*world.run(parent), before);
    world.check();
}

#[test]
fn a_child_that_ends_in_its_first_round_answers_in_the_same_commit() {
    let mut world = World::new();
    let parent = world.owned(A);
    let child = child_of(&mut world, parent, 1);
    let first = ending(Round::new(child.run, A, 1), RunState::Completed);
    let child = Start {
        claimant: Some(claimant(A)),
        first: Some(Box::new(first)),
        ..child
    };
    let mut round = suspending(world.round(parent));
    round.caused.push(Caused::Child(1, Box::new(child)));
    let committed = world.commit(round);
    assert!(committed.kept);
    assert_eq!(committed.inbox.len(), 1);
    assert_eq!(committed.claimed, []);
    world.check();
}

#[test]
fn a_spawned_run_is_a_root_and_its_id_is_answered() {
    let mut world = World::new();
    let run = world.owned(A);
    let spawned = world.starting();
    let id = spawned.run;
    let mut round = suspending(world.round(run));
    round.caused.push(Caused::Spawn(3, Box::new(spawned)));
    let committed = world.commit(round);
    assert!(committed.kept, "the answer is there");
    let Outcome::Value(answer) = &committed.inbox[0].body else {
        panic!("a value")
    };
    assert_eq!(answer.decode::<RunId>().unwrap(), id);
    assert_eq!((world.run(id).root, world.run(id).parent), (id, None));
}

#[test]
fn a_signal_that_a_round_sent_is_answered_to_its_call() {
    let mut world = World::new();
    let (run, to) = (world.owned(A), world.waiting(B, &[(1, "go")]));
    let mut round = world.round(run);
    round
        .caused
        .push(Caused::Signal(3, Box::new(signal(to, "go", 1))));
    let committed = world.commit(round);
    let Outcome::Value(answer) = &committed.inbox[0].body else {
        panic!("a value")
    };
    let sent: roundel_core::Sent = answer.decode().unwrap();
    assert_eq!(sent, roundel_core::Sent::Delivered(to));
    assert_eq!(world.state(to), RunState::Ready);
}

fn watching(world: &mut World, watcher: RunId, target: Target) -> roundel_core::Committed {
    let mut round = suspending(world.round(watcher));
    round.caused.push(Caused::Watch(5, NS, target));
    world.commit(round)
}

#[test]
fn si_16_the_end_of_a_watched_run_is_delivered() {
    let mut world = World::new();
    let (watched, watcher) = (world.owned(B), world.owned(A));
    assert!(!watching(&mut world, watcher, Target::Run(watched)).kept);
    assert_eq!(world.run(watched).watchers, 1);
    world.end(watched);
    let claimed = world.claim(A, 9);
    assert_eq!(claimed[0].run, watcher);
    assert_eq!(claimed[0].inbox[0].call, 5);
    world.check();
}

#[test]
fn si_16_a_run_that_has_ended_answers_a_watch_at_once() {
    let mut world = World::new();
    let key = Name::constant("k");
    let start = Start {
        key: Some(key.clone()),
        claimant: Some(claimant(B)),
        ..world.starting()
    };
    let watched = world.started(start).run;
    world.end(watched);
    let watcher = world.owned(A);
    let committed = watching(&mut world, watcher, Target::Key(key));
    assert!(committed.kept);
    assert_eq!(value_of(&committed.inbox[0].body), 7);
    world.check();
}

#[test]
fn si_16_watching_nobody_fails_the_call() {
    let mut world = World::new();
    let watcher = world.owned(A);
    let nobody = world.new_id();
    let committed = watching(&mut world, watcher, Target::Run(nobody));
    assert_eq!(failure_code(&committed.inbox[0]), "unknown_run");
}

#[test]
fn si_16_a_watch_a_signal_and_a_timer_in_one_wait() {
    let mut world = World::new();
    let (watched, watcher) = (world.owned(B), world.owned(A));
    let mut round = opening(suspending(world.round(watcher)), &[(1, "go")]);
    round
        .caused
        .push(Caused::Watch(2, NS, Target::Run(watched)));
    round.timer_at = Some(world.now.after(std::time::Duration::from_secs(9)));
    world.commit(round);
    world.end(watched);
    world.signal(watcher, "go", 1);
    let claimed = world.claim(A, 1);
    let calls: Vec<_> = claimed[0]
        .inbox
        .iter()
        .map(|delivery| delivery.call)
        .collect();
    assert_eq!(calls, [2, 1], "in order of arrival");
}

#[test]
fn the_worker_that_ends_a_run_takes_the_parent_and_the_watchers_it_holds() {
    let mut world = World::new();
    let parent = world.owned(A);
    let child = with_child(&mut world, parent, 1);
    world.claim(A, 9);
    let watcher = world.owned(A);
    watching(&mut world, watcher, Target::Run(child));
    let committed = world.end(child);
    let mut taken: Vec<_> = committed
        .claimed
        .iter()
        .map(|claimed| claimed.run)
        .collect();
    taken.sort();
    assert_eq!(taken, [parent, watcher]);
}

#[test]
fn a_round_asks_a_child_to_end() {
    let mut world = World::new();
    let parent = world.owned(A);
    let child = with_child(&mut world, parent, 1);
    world.cancel(parent);
    world.claim(A, 9);
    let mut round = recording(world.round(parent), &[roundel_core::Entry::CancelSeen]);
    round.cancel_seen = true;
    round.caused.push(Caused::Cancel(Scope::Child(child)));
    world.commit(suspending(round));
    assert_eq!(world.run(child).cancel, roundel_core::CancelMark::Requested);
}

#[test]
fn d19_a_tree_is_as_deep_as_the_limit_and_no_deeper() {
    let mut world = World::new();
    let mut run = world.owned(A);
    for _ in 0..limits::DEPTH {
        let start = child_of(&mut world, run, 1);
        let child = start.run;
        let mut round = world.round(run);
        let start = Start {
            claimant: Some(claimant(A)),
            ..start
        };
        round.caused.push(Caused::Child(1, Box::new(start)));
        assert_eq!(world.commit(round).inbox, []);
        run = child;
    }
    assert_eq!(world.run(run).depth, limits::DEPTH);
    let start = child_of(&mut world, run, 1);
    let before = world.rows.runs().count();
    let mut round = world.round(run);
    round.caused.push(Caused::Child(1, Box::new(start)));
    assert_eq!(failure_code(&world.commit(round).inbox[0]), "refused");
    assert_eq!(world.rows.runs().count(), before);
}

#[test]
fn a_child_of_nobody_is_refused() {
    let mut world = World::new();
    let parent = world.owned(A);
    let orphan = child_of(&mut world, parent, 1);
    world.delete(parent, true);
    let before = world.dump();
    let refused = world.op(&roundel_core::Op::Start(orphan));
    assert!(matches!(
        refused,
        Err(roundel_core::Refusal::UnknownRun { .. })
    ));
    same(&before, &world.dump());
}
